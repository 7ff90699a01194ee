package schema_test

import (
	"context"
	"encoding/json"
	"reflect"
	"strings"
	"sync"
	"testing"

	"github.com/toolkeep/toolkeep/canon"
	"github.com/toolkeep/toolkeep/schema"
)

func number(s string) json.Number { return json.Number(s) }

func TestPrepare(t *testing.T) {
	for _, c := range []struct{ name, schema, args, want string }{
		{"integer", `{"properties":{"n":{"type":"integer"}}}`, `{"n":"5"}`, `{"n":5}`},
		{"exact", `{"properties":{"n":{"type":"integer"}}}`, `{"n":"9007199254740993"}`, `{"n":9007199254740993}`},
		{"number keeps its text", `{"properties":{"n":{"type":"number"}}}`, `{"n":"1.50e0"}`, `{"n":1.50e0}`},
		{"boolean", `{"properties":{"a":{"type":"boolean"},"b":{"type":"boolean"}}}`, `{"a":"true","b":"false"}`, `{"a":true,"b":false}`},
		{"string allowed", `{"properties":{"n":{"type":["integer","string"]}}}`, `{"n":"5"}`, `{"n":"5"}`},
		{"no type", `{"properties":{"n":{"minimum":1}}}`, `{"n":"5"}`, `{"n":"5"}`},
		{"nullable", `{"properties":{"n":{"type":["integer","null"]}}}`, `{"n":"5"}`, `{"n":5}`},
		{"nullable by anyOf", `{"properties":{"n":{"anyOf":[{"type":"integer"},{"type":"null"}]}}}`, `{"n":"5"}`, `{"n":5}`},
		{"anyOf with a string", `{"properties":{"n":{"anyOf":[{"type":"integer"},{"type":"string"}]}}}`, `{"n":"5"}`, `{"n":"5"}`},
		{"integer or boolean", `{"properties":{"a":{"type":["integer","boolean"]},"b":{"type":["integer","boolean"]}}}`, `{"a":"5","b":"true"}`, `{"a":5,"b":true}`},
		{"enum of numbers", `{"properties":{"n":{"enum":[1,2]}}}`, `{"n":"2"}`, `{"n":2}`},
		{"const", `{"properties":{"n":{"const":true}}}`, `{"n":"true"}`, `{"n":true}`},
		{"ref", `{"properties":{"n":{"$ref":"#/$defs/p"}},"$defs":{"p":{"type":"integer"}}}`, `{"n":"5"}`, `{"n":5}`},
		{"allOf narrows", `{"properties":{"n":{"allOf":[{"type":["integer","string"]},{"type":"integer"}]}}}`, `{"n":"5"}`, `{"n":5}`},
		{"property of allOf", `{"allOf":[{"properties":{"n":{"type":"integer"}}},{"$ref":"#/$defs/m"}],"$defs":{"m":{"properties":{"m":{"type":"boolean","default":true}}}}}`, `{"n":"5"}`, `{"n":5,"m":true}`},
		{"items", `{"properties":{"l":{"type":"array","items":{"type":"integer"}}}}`, `{"l":["1",2,"3"]}`, `{"l":[1,2,3]}`},
		{"tuple", `{"properties":{"l":{"prefixItems":[{"type":"string"},{"type":"integer"}],"items":{"type":"boolean"}}}}`, `{"l":["1","2","true"]}`, `{"l":["1",2,true]}`},
		{"tuple of draft-07", `{` + d7 + `,"properties":{"l":{"items":[{"type":"string"},{"type":"integer"}],"additionalItems":{"type":"boolean"}}}}`, `{"l":["1","2","true"]}`, `{"l":["1",2,true]}`},
		{"additional", `{"properties":{"s":{"type":"string"}},"additionalProperties":{"type":"integer"}}`, `{"s":"1","x":"2"}`, `{"s":"1","x":2}`},
		{"patterns", `{"patternProperties":{"^n_":{"type":"number"}},"additionalProperties":{"type":"boolean"}}`, `{"n_a":"1.5","b":"true"}`, `{"n_a":1.5,"b":true}`},
		{"nested", `{"properties":{"o":{"properties":{"p":{"properties":{"n":{"type":"integer"}}}}}}}`, `{"o":{"p":{"n":"1","s":"2"},"q":"3"}}`, `{"o":{"p":{"n":1,"s":"2"},"q":"3"}}`},
		{"recursive", `{"properties":{"n":{"type":"integer","default":1},"next":{"$ref":"#"}}}`, `{"next":{"next":{"n":"7"}}}`, `{"n":1,"next":{"n":1,"next":{"n":7}}}`},
		{"branch by its tag", `{"properties":{"pay":{"oneOf":[
			{"properties":{"kind":{"const":"card"},"cvc":{"type":"integer"}},"required":["kind"]},
			{"properties":{"kind":{"const":"bank"},"cvc":{"type":"string"},"fast":{"type":"boolean","default":false}},"required":["kind"]}]}}}`,
			`{"pay":{"kind":"card","cvc":"123"}}`, `{"pay":{"kind":"card","cvc":123}}`},
		{"branch that fits as it is", `{"properties":{"pay":{"oneOf":[
			{"properties":{"kind":{"const":"card"},"cvc":{"type":"integer"}},"required":["kind"]},
			{"properties":{"kind":{"const":"bank"},"cvc":{"type":"string"},"fast":{"type":"boolean","default":false}},"required":["kind"]}]}}}`,
			`{"pay":{"kind":"bank","cvc":"123"}}`, `{"pay":{"kind":"bank","cvc":"123","fast":false}}`},
		{"branch of arrays", `{"properties":{"v":{"anyOf":[{"type":"integer"},{"type":"array","items":{"type":"integer"}}]}}}`, `{"v":["1","2"]}`, `{"v":[1,2]}`},
		{"default", `{"properties":{"u":{"type":"string","default":"metric"},"n":{"type":"integer","default":3}}}`, `{"n":4}`, `{"u":"metric","n":4}`},
		{"default null", `{"properties":{"u":{"type":["string","null"],"default":null}}}`, `{}`, `{"u":null}`},
		{"default in a present object only", `{"properties":{"o":{"properties":{"u":{"default":1}}},"p":{"properties":{"u":{"default":1}}}}}`, `{"o":{}}`, `{"o":{"u":1}}`},
		{"default with defaults", `{"properties":{"o":{"type":"object","default":{"a":1},"properties":{"b":{"default":2}}}}}`, `{}`, `{"o":{"a":1,"b":2}}`},
		{"default of a reference", `{"properties":{"o":{"$ref":"#/$defs/x"}},"$defs":{"x":{"type":"integer","default":9}}}`, `{}`, `{"o":9}`},
		{"default as a string is coerced", `{"properties":{"n":{"type":"integer","default":"5"}}}`, `{}`, `{"n":5}`},
		{"default that is not valid", `{"properties":{"n":{"type":"string","default":null},"m":{"type":"integer","minimum":5,"default":1}}}`, `{}`, `{}`},
		{"default inside items", `{"properties":{"l":{"items":{"properties":{"q":{"default":1}}}}}}`, `{"l":[{},{"q":2}]}`, `{"l":[{"q":1},{"q":2}]}`},
		{"whole number", `{"properties":{"n":{"type":"integer"},"l":{"items":{"type":["integer","null"]}},"m":{"type":"number"},"s":{"type":["integer","string"]}}}`,
			`{"n":7.0,"l":[7e2,null,8],"m":7.0,"s":-7.00}`, `{"n":7,"l":[700,null,8],"m":7.0,"s":-7}`},
		{"whole number in branches", `{"properties":{"n":{"anyOf":[{"type":"integer"},{"type":"null"}]},"o":{"oneOf":[{"properties":{"k":{"const":"a"},"n":{"type":"integer"}},"required":["k"]},{"properties":{"k":{"const":"b"}},"required":["k"]}]}}}`,
			`{"n":7.0,"o":{"k":"a","n":1.0}}`, `{"n":7,"o":{"k":"a","n":1}}`},
		{"null of an optional one is absent", `{"properties":{"a":{"type":"string"},"b":{"enum":["x"]},"n":{"type":["string","null"]},"any":{},"d":{"type":"integer","default":3},"o":{"type":"object","properties":{"a":{"type":"array"}}}}}`,
			`{"a":null,"b":null,"n":null,"any":null,"d":null,"o":{"a":null}}`, `{"n":null,"any":null,"d":3,"o":{}}`},
		{"null of an optional one in branches", `{"properties":{"o":{"oneOf":[{"type":"object","properties":{"k":{"const":"a"},"n":{"type":"integer"}},"required":["k"]},{"type":"object","properties":{"k":{"const":"b"}},"required":["k"]}]}}}`,
			`{"o":{"k":"a","n":null}}`, `{"o":{"k":"a"}}`},
		{"explicit null stays", `{"properties":{"n":{"type":["integer","null"],"default":1}}}`, `{"n":null}`, `{"n":null}`},
	} {
		t.Run(c.name, func(t *testing.T) {
			args := parse(t, c.args).(map[string]any)
			before := string(canon.Append(nil, args))
			got, faults := compile(t, c.schema).Prepare(context.Background(), args)
			if faults != nil {
				t.Errorf("faults %v", faults)
			}
			if !reflect.DeepEqual(any(got), parse(t, c.want)) {
				t.Errorf("got %s, want %s", canon.Append(nil, got), c.want)
			}
			if after := string(canon.Append(nil, args)); after != before {
				t.Errorf("the arguments were modified: %s became %s", before, after)
			}
		})
	}
}

func TestPrepareTakesWholeTextOnly(t *testing.T) {
	s := compile(t, `{"properties":{"i":{"type":"integer"},"n":{"type":"number"},"b":{"type":"boolean"}}}`)
	for _, a := range []string{
		`{"i":" 5"}`, `{"i":"5 "}`, `{"i":"5.0"}`, `{"i":"1e3"}`, `{"i":"05"}`, `{"i":"+5"}`, `{"i":"0x5"}`, `{"i":""}`, `{"i":"five"}`, `{"i":"true"}`,
		`{"n":"NaN"}`, `{"n":"Infinity"}`, `{"n":"1,5"}`, `{"n":"1e99999"}`, `{"b":"True"}`, `{"b":"1"}`, `{"b":"yes"}`, `{"b":""}`,
	} {
		args := parse(t, a).(map[string]any)
		got, faults := s.Prepare(context.Background(), args)
		if len(faults) != 1 || faults[0].Rule != "type" {
			t.Errorf("%s: %v", a, faults)
		}
		if !reflect.DeepEqual(got, args) {
			t.Errorf("%s became %s", a, canon.Append(nil, got))
		}
	}
}

func TestPrepareSharesWhatItDoesNotChange(t *testing.T) {
	s := compile(t, `{"properties":{"a":{"type":"integer"},"o":{"properties":{"n":{"type":"integer"}}}}}`)
	args := parse(t, `{"a":1,"o":{"n":2}}`).(map[string]any)
	got, _ := s.Prepare(context.Background(), args)
	if reflect.ValueOf(got).Pointer() != reflect.ValueOf(args).Pointer() {
		t.Error("nothing changed and the arguments were copied")
	}
	args["a"] = "1"
	got, _ = s.Prepare(context.Background(), args)
	if reflect.ValueOf(got["o"]).Pointer() != reflect.ValueOf(args["o"]).Pointer() {
		t.Error("an object without a change was copied")
	}
}

func TestPrepareDefaultsAreNotShared(t *testing.T) {
	s := compile(t, `{"properties":{"o":{"default":{"l":[1]},"properties":{"n":{"default":1}}}}}`)
	first, _ := s.Prepare(context.Background(), nil)
	first["o"].(map[string]any)["n"] = "changed"
	second, _ := s.Prepare(context.Background(), nil)
	if got := string(canon.Append(nil, second)); got != `{"o":{"l":[1],"n":1}}` {
		t.Errorf("got %s", got)
	}
}

func TestCoerceAnyValue(t *testing.T) {
	s := compile(t, `{"type":"array","items":{"type":"integer","default":1}}`)
	in := parse(t, `["1",2]`)
	if got := string(canon.Append(nil, s.Coerce(context.Background(), in))); got != `[1,2]` {
		t.Errorf("got %s", got)
	}
	if got := compile(t, `{"type":"boolean"}`).Coerce(context.Background(), "true"); got != true {
		t.Errorf("got %v", got)
	}
	if got := compile(t, `{"properties":{"a":{"default":1}}}`).Coerce(context.Background(), map[string]any{}); len(got.(map[string]any)) != 0 {
		t.Errorf("a default was filled: %v", got)
	}
}

func TestCoerceToSomeTypes(t *testing.T) {
	s := compile(t, `{"properties":{"n":{"type":"number"},"i":{"type":"integer"},"b":{"type":"boolean"},"l":{"items":{"type":["integer","boolean"]}}}}`)
	in := parse(t, `{"n":"1","i":"2","b":"true","l":["3","false"]}`)
	for want, names := range map[string][]string{
		`{"b":"true","i":"2","l":["3","false"],"n":"1"}`: {},
		`{"b":"true","i":"2","l":["3","false"],"n":1}`:   {"number"},
		`{"b":"true","i":2,"l":[3,"false"],"n":"1"}`:     {"integer"},
		`{"b":true,"i":"2","l":["3",false],"n":"1"}`:     {"boolean"},
		`{"b":true,"i":2,"l":[3,false],"n":1}`:           schema.TargetNames,
	} {
		to, ok := schema.NewTargets(names)
		if got := string(canon.Append(nil, s.CoerceTo(context.Background(), in, to))); !ok || got != want {
			t.Errorf("%q: %s, want %s", names, got, want)
		}
	}
	if _, ok := schema.NewTargets([]string{"time"}); ok {
		t.Error("there is a target time")
	}
}

func TestCoerceToDates(t *testing.T) {
	s := compile(t, `{"properties":{"at":{"type":"string","format":"date-time"},"on":{"type":"string","format":"date"},"text":{"type":"string"}}}`)
	to, _ := schema.NewTargets([]string{"date"})
	for in, want := range map[string]string{
		`{"at":"2026-01-02T03:04:05.100Z"}`:          "",
		`{"at":"2026-01-02t03:04:05z"}`:              `{"at":"2026-01-02T03:04:05Z"}`,
		`{"at":"2026-01-02 03:04:05+01:00"}`:         `{"at":"2026-01-02T03:04:05+01:00"}`,
		`{"at":"2026-01-02T03:04:05+0100"}`:          `{"at":"2026-01-02T03:04:05+01:00"}`,
		`{"at":"Fri, 02 Jan 2026 03:04:05 GMT"}`:     `{"at":"2026-01-02T03:04:05Z"}`,
		`{"at":"Fri, 2 Jan 2026 03:04:05 -0500"}`:    `{"at":"2026-01-02T03:04:05-05:00"}`,
		`{"at":"2026-01-02 03:04:05"}`:               "", // of which time zone
		`{"at":"Fri, 02 Jan 2026 03:04:05 EST"}`:     "",
		`{"on":"2026/01/02"}`:                        `{"on":"2026-01-02"}`,
		`{"on":"20260102"}`:                          `{"on":"2026-01-02"}`,
		`{"on":"2 January 2026"}`:                    `{"on":"2026-01-02"}`,
		`{"on":"2026-01-02T00:00:00Z"}`:              `{"on":"2026-01-02"}`,
		`{"on":"2026-01-02T00:00:00+00:00"}`:         `{"on":"2026-01-02"}`,
		`{"on":"2026-01-02T00:00:00+01:00"}`:         "",
		`{"on":"2026-01-02T01:00:00+01:00"}`:         "",
		`{"on":"2026-01-02T03:00:00Z"}`:              "",
		`{"on":"01/02/2026"}`:                        "", // two days
		`{"text":"2026/01/02","other":"2026/01/02"}`: "",
		`{"on":"2026-01-32"}`:                        "",
		`{"on":5,"at":null}`:                         "",
	} {
		if want == "" {
			want = string(canon.Append(nil, parse(t, in)))
		}
		if got := string(canon.Append(nil, s.CoerceTo(context.Background(), parse(t, in), to))); got != want {
			t.Errorf("%s: %s, want %s", in, got, want)
		}
		if got := string(canon.Append(nil, s.Coerce(context.Background(), parse(t, in)))); got != string(canon.Append(nil, parse(t, in))) {
			t.Errorf("%s: arguments are changed: %s", in, got)
		}
	}
}

func TestPrepareIsSafeForConcurrentUse(t *testing.T) {
	s := compile(t, callSchema)
	args := parse(t, callArguments).(map[string]any)
	args["days"] = "3"
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 200 {
				if got, f := s.Prepare(context.Background(), args); f != nil || got["days"] != number("3") {
					t.Error(got, f)
					return
				}
			}
		})
	}
	wg.Wait()
}

func TestCache(t *testing.T) {
	t.Run("one compilation for all", func(t *testing.T) {
		c := schema.NewCache(0)
		var wg sync.WaitGroup
		got := make([]*schema.Schema, 16)
		for i := range got {
			wg.Go(func() {
				s, err := c.Get("k", []byte(callSchema))
				if err != nil {
					t.Error(err)
				}
				got[i] = s
			})
		}
		wg.Wait()
		for _, s := range got {
			if s != got[0] {
				t.Fatal("two schemas for one key")
			}
		}
	})
	t.Run("an error is not kept", func(t *testing.T) {
		c := schema.NewCache(1000)
		if _, err := c.Get("k", []byte(`{`)); err == nil {
			t.Fatal("no error")
		}
		if _, err := c.Get("k", []byte(`{}`)); err != nil {
			t.Fatal(err)
		}
	})
	t.Run("bounded", func(t *testing.T) {
		// By texts: four large ones take the room of two hundred small ones.
		const large = 5000
		for size, most := range map[int]int{2: 4 * (large + 100) / 102, large: 4} {
			c := schema.NewCache(4 * (large + 100))
			for i := range 2 * most {
				if _, err := c.Get(strings.Repeat("k", i+1), []byte("{"+strings.Repeat(" ", size-2)+"}")); err != nil {
					t.Fatal(err)
				}
			}
			c.Settle()
			if n := c.Len(); n > most || n < most-most/4-1 {
				t.Errorf("%d schemas of %d bytes are held, want %d", n, size, most)
			}
		}
	})
	t.Run("too large to keep", func(t *testing.T) {
		c := schema.NewCache(1000)
		for range 2 {
			if _, err := c.Get("k", []byte("{"+strings.Repeat(" ", 2000)+"}")); err != nil {
				t.Fatal(err)
			}
		}
		c.Settle()
		if n := c.Len(); n != 0 {
			t.Errorf("%d schemas are held", n)
		}
	})
}

// FuzzPrepare: arguments are never modified, a valid result validates, and preparing twice changes nothing.
func FuzzPrepare(f *testing.F) {
	var schemas []*schema.Schema
	for _, raw := range []string{callSchema, unionSchema} {
		schemas = append(schemas, compile(f, raw))
	}
	for _, s := range []string{
		callArguments, `{}`, `{"days":"5","detail":{"wind":"true"}}`, `{"pay":{"kind":"card","cvc":"1"},"tree":{"n":"1","kids":[{"n":"2"}]}}`,
		`{"points":[{"lat":"1.5","lon":"2"}]}`, `{"any":["1",{"a":"2"}]}`,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		args, err := canon.ParseObject(data, canon.Limits{})
		if err != nil {
			return
		}
		before := string(canon.Append(nil, args))
		for _, s := range schemas {
			got, faults := s.Prepare(context.Background(), args)
			if after := string(canon.Append(nil, args)); after != before {
				t.Fatalf("modified: %s became %s", before, after)
			}
			if faults != nil {
				continue
			}
			if f := s.Validate(context.Background(), got); f != nil {
				t.Fatalf("%s is said to be valid: %v", canon.Append(nil, got), f)
			}
			again, faults := s.Prepare(context.Background(), got)
			if faults != nil || !reflect.DeepEqual(again, got) {
				t.Fatalf("%s became %s, %v", canon.Append(nil, got), canon.Append(nil, again), faults)
			}
		}
	})
}

const callSchema = `{"type":"object","required":["city"],"additionalProperties":false,"properties":{
	"city":{"type":"string","minLength":1,"maxLength":200},
	"country":{"type":"string","pattern":"^[A-Z]{2}$"},
	"units":{"type":"string","enum":["metric","imperial"],"default":"metric"},
	"days":{"type":"integer","minimum":1,"maximum":14,"default":3},
	"detail":{"type":"object","properties":{"wind":{"type":"boolean"},"rain":{"type":"boolean"},"note":{"type":["string","null"]}}},
	"points":{"type":"array","maxItems":10,"items":{"type":"object","required":["lat","lon"],"properties":{"lat":{"type":"number"},"lon":{"type":"number"}}}},
	"tags":{"type":"array","items":{"type":"string"}}}}`

const callArguments = `{"city":"Paris","country":"FR","units":"metric","days":5,
	"detail":{"wind":true,"rain":false,"note":"morning and evening"},
	"points":[{"lat":48.85,"lon":2.35},{"lat":48.86,"lon":2.29}],"tags":["holiday","family"]}`

const unionSchema = `{"properties":{
	"pay":{"oneOf":[
		{"properties":{"kind":{"const":"card"},"cvc":{"type":"integer"}},"required":["kind"]},
		{"properties":{"kind":{"const":"bank"},"fast":{"type":"boolean","default":false}},"required":["kind"]}]},
	"tree":{"$ref":"#/$defs/tree"},
	"any":{"anyOf":[{"type":"integer"},{"type":"array","items":{"anyOf":[{"type":"integer"},{"type":"object","additionalProperties":{"type":"number"}}]}}]}},
	"$defs":{"tree":{"properties":{"n":{"type":"integer","default":0},"kids":{"type":"array","items":{"$ref":"#/$defs/tree"}}}}}}`

func BenchmarkValidate(b *testing.B) {
	s := compile(b, callSchema)
	args := parse(b, callArguments)
	b.ReportAllocs()
	for b.Loop() {
		if f := s.Validate(context.Background(), args); f != nil {
			b.Fatal(f)
		}
	}
}

// BenchmarkUnionTree is a tree of tagged nodes that is wrong at its deepest node.
func BenchmarkUnionTree(b *testing.B) {
	var forms []string
	for _, tag := range []string{"t0", "t1", "t2", "t3"} {
		forms = append(forms, `{"required":["type"],"properties":{"type":{"const":"`+tag+`"},"children":{"type":"array","items":{"$ref":"#"}}}}`)
	}
	s := compile(b, `{"anyOf":[`+strings.Join(forms, ",")+`]}`)
	v := parse(b, strings.Repeat(`{"type":"t0","children":[`, 24)+`{"type":"zz"}`+strings.Repeat(`]}`, 24))
	b.ReportAllocs()
	for b.Loop() {
		if f := s.Validate(context.Background(), v); len(f) != 1 {
			b.Fatal(f)
		}
	}
}

func BenchmarkPrepareNothingToDo(b *testing.B) {
	s := compile(b, callSchema)
	args := parse(b, callArguments).(map[string]any)
	b.ReportAllocs()
	for b.Loop() {
		if _, f := s.Prepare(context.Background(), args); f != nil {
			b.Fatal(f)
		}
	}
}

func BenchmarkPrepareCoerceAndFill(b *testing.B) {
	s := compile(b, callSchema)
	args := parse(b, `{"city":"Paris","days":"5","detail":{"wind":"true"},"points":[{"lat":"48.85","lon":2.35}]}`).(map[string]any)
	b.ReportAllocs()
	for b.Loop() {
		if _, f := s.Prepare(context.Background(), args); f != nil {
			b.Fatal(f)
		}
	}
}

func BenchmarkCompile(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		compile(b, callSchema)
	}
}

// BenchmarkCompileCostly compiles nearly the costliest schemas that are accepted.
func BenchmarkCompileCostly(b *testing.B) {
	for name, raw := range map[string]string{"references": manyRefs(1400, "", "x"), "ids": manyIDs(3900)} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				compile(b, raw)
			}
		})
	}
}

func BenchmarkCacheHit(b *testing.B) {
	c := schema.NewCache(0)
	raw := []byte(callSchema)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := c.Get("k", raw); err != nil {
			b.Fatal(err)
		}
	}
}
