package rpc

import (
	"encoding/json"
	"maps"
	"math"
	"reflect"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"google.golang.org/protobuf/types/known/structpb"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/canon"
)

const wordy = `{"properties":{"text":{"type":"string"},"either":{"type":["integer","string"]},"any":{"anyOf":[{"type":"null"},{"type":"string"}]},
	"one":{"oneOf":[{"type":"string"}]},"n":{"type":"integer"},"free":{},"flag":true}}`

func TestInputs(t *testing.T) {
	for name, c := range map[string]struct {
		inputs map[string]string
		want   string
		bad    []string
	}{
		"values as they are":       {map[string]string{"n": "3", "text": `"a"`, "free": `{"b":[null,1.50]}`}, `{"free":{"b":[null,1.50]},"n":3,"text":"a"}`, nil},
		"exact numbers":            {map[string]string{"n": "9007199254740993"}, `{"n":9007199254740993}`, nil},
		"text without quotes":      {map[string]string{"text": "Claude AI", "either": "x y", "any": "z", "one": ""}, `{"any":"z","either":"x y","one":"","text":"Claude AI"}`, nil},
		"text with odd characters": {map[string]string{"text": "a\"b\\c\nd\u2028é"}, `{"text":"a\"b\\c\nd\u2028é"}`, nil},
		"a number stays a number where the schema says text": {map[string]string{"text": "10"}, `{"text":10}`, nil},
		"white space around": {map[string]string{"n": " 3 "}, `{"n":3}`, nil},
		"not text":           {map[string]string{"n": "three", "free": "{", "flag": "yes", "unknown": "x", "text": "fine"}, "", []string{"/flag", "/free", "/n", "/unknown"}},
		"names with slashes": {map[string]string{"a/b~c": "x"}, "", []string{"/a~1b~0c"}},
		"two values":         {map[string]string{"n": "1,2"}, "", []string{"/n"}},
		"an injected member": {map[string]string{"n": `1,"m":2`}, "", []string{"/n"}},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := joinInputs(c.inputs, textual([]byte(wordy)))
			if c.bad != nil {
				var at []string
				if err == nil || err.Code != toolkeep.MalformedRequest {
					t.Fatalf("got %s, %v", got, err)
				}
				for _, f := range err.Details["errors"].([]toolkeep.Fault) {
					at = append(at, f.Pointer)
				}
				if !slices.Equal(at, c.bad) {
					t.Errorf("faults at %v, want %v", at, c.bad)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			v, perr := canon.Parse(got, canon.Limits{})
			if perr != nil {
				t.Fatalf("%s: %v", got, perr)
			}
			want, perr := canon.Parse([]byte(c.want), canon.Limits{})
			if perr != nil {
				t.Fatal(perr)
			}
			if string(canon.Append(nil, v)) != string(canon.Append(nil, want)) {
				t.Errorf("got %s, want %s", got, c.want)
			}
		})
	}
}

func TestTextualOfNoSchema(t *testing.T) {
	for _, schema := range []string{"", "true", "[]", `{"properties":3}`, `{"properties":{"text":{"type":3}}}`} {
		if textual([]byte(schema))("text") {
			t.Errorf("%q says text", schema)
		}
	}
}

func TestParameters(t *testing.T) {
	s := func(v any) *structpb.Value {
		x, err := structpb.NewValue(v)
		if err != nil {
			t.Fatal(err)
		}
		return x
	}
	deep := structpb.NewNullValue()
	for range maxDepth + 1 {
		deep = structpb.NewListValue(&structpb.ListValue{Values: []*structpb.Value{deep}})
	}
	for name, c := range map[string]struct {
		v    *structpb.Value
		want string
		code toolkeep.Code
	}{
		"whole":            {s(42), "42", ""},
		"negative":         {s(-42), "-42", ""},
		"minus zero":       {s(math.Copysign(0, -1)), "0", ""},
		"a fraction":       {s(1.5), "1.5", ""},
		"small":            {s(1e-7), "1e-07", ""},
		"the largest":      {s(float64(1<<53 - 1)), "9007199254740991", ""},
		"beyond":           {s(float64(1 << 53)), "", toolkeep.MalformedRequest},
		"far beyond":       {s(1e300), "", toolkeep.MalformedRequest},
		"not a number":     {s(math.NaN()), "", toolkeep.MalformedRequest},
		"infinite":         {s(math.Inf(1)), "", toolkeep.MalformedRequest},
		"no kind":          {&structpb.Value{}, "", toolkeep.MalformedRequest},
		"nothing":          {nil, "", toolkeep.MalformedRequest},
		"a tree":           {s(map[string]any{"b": []any{true, nil, "x\u2028"}, "a": map[string]any{}}), `{"a":{},"b":[true,null,"x\u2028"]}`, ""},
		"too deep":         {deep, "", toolkeep.InvalidEncoding},
		"beyond in a list": {s([]any{1, 1e18}), "", toolkeep.MalformedRequest},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := joinParameters(&structpb.Struct{Fields: map[string]*structpb.Value{"v": c.v}})
			if c.code != "" {
				if err == nil || err.Code != c.code {
					t.Fatalf("got %s, %v; want %s", got, err, c.code)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			var x, y any
			if json.Unmarshal(got, &x) != nil || json.Unmarshal([]byte(`{"v":`+c.want+`}`), &y) != nil || !reflect.DeepEqual(x, y) {
				t.Errorf("got %s, want %s", got, c.want)
			}
		})
	}
}

// For any input, joinInputs returns a refusal or one JSON object with the same names, where each
// value is JSON of its own and none can add members to the object.
func FuzzInputs(f *testing.F) {
	f.Add("text", "Claude AI", "n", "3")
	f.Add("a/b", `"x`, "n", `1,"m":2`)
	f.Add("", "", "\x00", `{"a":1,"a":2}`)
	f.Add("any", "\"\xff\"", "text", "\xff")
	f.Add("free", "[1,2", "flag", "}")
	f.Fuzz(func(t *testing.T, k1, v1, k2, v2 string) {
		for _, s := range []string{k1, v1, k2, v2} {
			if !utf8.ValidString(s) {
				return // protobuf refuses it earlier
			}
		}
		inputs := map[string]string{k1: v1, k2: v2}
		got, err := joinInputs(inputs, textual([]byte(wordy)))
		if err != nil {
			if err.Code != toolkeep.MalformedRequest || got != nil {
				t.Fatal(err)
			}
			return
		}
		var members map[string]json.RawMessage
		if err := json.Unmarshal(got, &members); err != nil {
			t.Fatalf("%q: %v", got, err)
		}
		if !slices.Equal(slices.Sorted(maps.Keys(members)), slices.Sorted(maps.Keys(inputs))) {
			t.Fatalf("%q from %q", got, inputs)
		}
		for k, v := range members {
			var text string
			if json.Unmarshal([]byte(inputs[k]), new(any)) == nil {
				if strings.TrimSpace(inputs[k]) != string(v) {
					t.Fatalf("%q became %q", inputs[k], v)
				}
			} else if json.Unmarshal(v, &text) != nil || text != inputs[k] {
				t.Fatalf("%q became %q", inputs[k], v)
			}
		}
	})
}

func BenchmarkJoinInputs(b *testing.B) {
	b.ReportAllocs()
	inputs := map[string]string{"text": `"` + strings.Repeat("hello ", 80) + `"`, "n": "42", "free": `{"a":[1,2,3]}`}
	for b.Loop() {
		if _, err := joinInputs(inputs, nil); err != nil {
			b.Fatal(err)
		}
	}
}
