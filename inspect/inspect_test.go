package inspect_test

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"math/big"
	"reflect"
	"strings"
	"sync"
	"testing"
	"unicode/utf8"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/canon"
	"github.com/toolkeep/toolkeep/inspect"
)

func tool(result *toolkeep.ResultSpec, schema string) *toolkeep.Tool {
	m := &toolkeep.Manifest{Result: result}
	if schema != "" {
		m.ResultSchema = json.RawMessage(schema)
	}
	return &toolkeep.Tool{ID: "test.tool", Version: "1.0.0", Digest: canon.Digest([]byte(schema)), Manifest: m}
}

func body(contentType, text string) *toolkeep.Output {
	return &toolkeep.Output{Body: []byte(text), ContentType: contentType}
}

func value(t testing.TB, text string) *toolkeep.Output {
	t.Helper()
	v, err := canon.Parse([]byte(text), canon.Limits{})
	if err != nil {
		t.Fatal(err)
	}
	return &toolkeep.Output{Value: v, HasValue: true}
}

// textCleaner cleans only text; treeCleaner also cleans trees.
type textCleaner struct{ secret string }

func (c textCleaner) Clean(s string) string { return strings.ReplaceAll(s, c.secret, "[REDACTED]") }

type treeCleaner struct {
	textCleaner
	asked *int
}

func (c treeCleaner) CleanValue(v any) any {
	*c.asked++
	if s, ok := v.(string); ok {
		return c.Clean(s)
	}
	return v
}

func no() *bool  { return new(false) }
func yes() *bool { return new(true) }

func TestRead(t *testing.T) {
	i := inspect.New(inspect.Config{})
	for _, c := range []struct{ name, contentType, body, want, whole string }{
		{"JSON", "application/json", ` {"b":1.50,"a":[9007199254740993]} `, `{"a":[9007199254740993],"b":1.50}`, "application/json"},
		{"JSON by suffix", "Application/Problem+JSON; charset=UTF-8", `{"a":1}`, `{"a":1}`, "application/json"},
		{"JSON with a mark", "application/json", "\ufeff[1]", `[1]`, "application/json"},
		{"JSON in latin1", "application/json; charset=iso-8859-1", "\"\xe9\"", `"é"`, "application/json"},
		{"text", "text/plain", `he said "hi"`, `"he said \"hi\""`, "text/plain; charset=utf-8"},
		{"JSON as text", "text/html; charset=utf-8", `{"a":1}`, `"{\"a\":1}"`, "text/html; charset=utf-8"},
		{"latin1", "text/plain; charset=ISO-8859-1", "caf\xe9", `"café"`, "text/plain; charset=utf-8"},
		{"windows-1252", `text/plain; charset="windows-1252"`, "\x80", `"€"`, "text/plain; charset=utf-8"},
		{"utf-16", "text/plain; charset=utf-16", "\xff\xfea\x00\xe9\x00", `"aé"`, "text/plain; charset=utf-8"},
		{"XML", "application/atom+xml", `<a/>`, `{"a":""}`, "application/json"},
		{"empty JSON", "application/json", ``, `null`, "application/json"},
		{"empty text", "text/plain", ``, `null`, "application/json"},
		{"empty binary", "image/png", ``, `null`, "application/json"},
		{"binary", "image/PNG; x=y", "\x00\x01\xff", `{"base64":"AAH/","bytes":3,"content_type":"image/png"}`, "image/png"},
		{"no type, JSON", "", `[1]`, `[1]`, "application/json"},
		{"no type, text", "", `hello`, `"hello"`, "text/plain; charset=utf-8"},
		{"no type, binary", "", "\x00\xff", `{"base64":"AP8=","bytes":2,"content_type":"application/octet-stream"}`, "application/octet-stream"},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := i.Inspect(tool(nil, ""), body(c.contentType, c.body), nil)
			if err != nil {
				t.Fatal(err)
			}
			if string(got.Output) != c.want || got.ContentType != c.whole || len(got.Warnings) != 0 || got.Truncated || got.Attached != strings.Contains(c.want, "base64") || got.Attached && string(got.Whole) != c.body || !got.Attached && got.Whole != nil {
				t.Errorf("got %s, %+v", got.Output, got)
			}
			if string(canon.Append(nil, got.Value)) != c.want {
				t.Errorf("the tree is %v", got.Value)
			}
		})
	}
}

func TestReadRefuses(t *testing.T) {
	i := inspect.New(inspect.Config{})
	for name, text := range map[string]string{
		"HTML": "<html>", "cut": `{"a":`,
		"number": `1e99999`, "deep": strings.Repeat("[", 1001) + strings.Repeat("]", 1001),
	} {
		_, err := i.Inspect(tool(nil, ""), body("application/json", text), nil)
		e := toolkeep.AsError(err)
		if e == nil || e.Code != toolkeep.InvalidResponse || e.Details["content_type"] != "application/json" {
			t.Errorf("%s: %v", name, err)
		}
		if e != nil && strings.Contains(e.Message, "html") {
			t.Errorf("%s: the message quotes the body: %s", name, e.Message)
		}
	}
	if _, err := i.Inspect(tool(nil, ""), nil, nil); !toolkeep.IsCode(err, toolkeep.InvalidResponse) {
		t.Error(err)
	}
}

func TestBadTextIsReplacedWithAWarning(t *testing.T) {
	i := inspect.New(inspect.Config{})
	for _, o := range []*toolkeep.Output{
		body("text/plain", "a\xffb\x00c"),
		body("application/json", "\"a\xffb\\u0000c\""),
		body("application/json", "\"a\\ud83db\x00c\""),
		{HasValue: true, Value: "a\xffb\x00c"},
	} {
		got, err := i.Inspect(tool(nil, ""), o, nil)
		if err != nil {
			t.Fatal(err)
		}
		if string(got.Output) != `"a`+"\ufffd"+`b`+"\ufffd"+`c"` {
			t.Errorf("got %s", got.Output)
		}
		if len(got.Warnings) != 1 || got.Warnings[0].Code != toolkeep.InvalidResponse {
			t.Errorf("warnings %v", got.Warnings)
		}
	}
	for sent, want := range map[string]string{`{"a":1,"a":2}`: `{"a":2}`, `{"a":"\u0000","a":[{"b":1,"b":"\udc00"}]}`: "{\"a\":[{\"b\":\"\ufffd\"}]}"} {
		got, err := i.Inspect(tool(nil, ""), body("application/json", sent), nil)
		if err != nil || string(got.Output) != want || len(got.Warnings) != 1+strings.Count(want, "\ufffd") {
			t.Errorf("%s: %v, %v", sent, got, err)
		}
	}
	lines, err := i.Inspect(tool(nil, ""), body("application/x-ndjson", `"\u0000"`+"\n"+`"\u0000"`), nil)
	if err != nil || len(lines.Warnings) != 1 {
		t.Errorf("%v, %v", lines, err)
	}
	got, err := i.Inspect(tool(nil, ""), body("text/plain; charset=klingon", "a\xff"), nil)
	if err != nil || len(got.Warnings) != 2 {
		t.Errorf("%v, %v", got, err)
	}
}

func TestValueOfGoNumbers(t *testing.T) {
	i := inspect.New(inspect.Config{})
	in := map[string]any{"i": 1, "l": []any{int64(2), 0.5, new(big.Int).Lsh(big.NewInt(1), 70)}, "s": "x\x00"}
	before := fmt.Sprintf("%#v", in["l"])
	got, err := i.Inspect(tool(nil, ""), &toolkeep.Output{HasValue: true, Value: in}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if string(got.Output) != `{"i":1,"l":[2,0.5,1180591620717411303424],"s":"x`+"\ufffd"+`"}` {
		t.Errorf("got %s", got.Output)
	}
	if _, isNumber := got.Value.(map[string]any)["i"].(json.Number); !isNumber {
		t.Error("the tree holds a Go number")
	}
	if _, still := in["i"].(int); !still || fmt.Sprintf("%#v", in["l"]) != before {
		t.Error("the executor's tree was modified")
	}
	for _, v := range []any{math.NaN(), []any{math.Inf(1)}, map[string]any{"a": struct{}{}}, json.Number("x"), json.Number("1e123456")} {
		_, err := i.Inspect(tool(nil, ""), &toolkeep.Output{HasValue: true, Value: v}, nil)
		if e := toolkeep.AsError(err); e == nil || e.Code != toolkeep.InvalidResponse {
			t.Errorf("%v: %v", v, err)
		}
	}
}

func TestHardLimit(t *testing.T) {
	i := inspect.New(inspect.Config{HardBytes: 10})
	for _, o := range []*toolkeep.Output{
		body("text/plain", "01234567890"), body("application/json", `"012345678"`), body("image/png", "01234567890"),
		body("text/plain", `""""""`), // grows when written
		{HasValue: true, Value: "0123456789"},
	} {
		_, err := i.Inspect(tool(nil, ""), o, nil)
		if e := toolkeep.AsError(err); e == nil || e.Code != toolkeep.ResultTooLarge || e.Details["limit"] != int64(10) {
			t.Errorf("%q %v: %v", o.Body, o.Value, err)
		}
	}
	if _, err := i.Inspect(tool(nil, ""), body("application/json", `"01234567"`), nil); err != nil {
		t.Error(err)
	}
}

func TestTransform(t *testing.T) {
	i := inspect.New(inspect.Config{})
	in := `{"items":[{"n":1,"x":"a"},{"n":9007199254740993,"x":"b"}],"f":0.10}`
	for program, want := range map[string]string{
		`.items | map(.n)`:        `[1,9007199254740993]`,
		`{first: .items[0].x, f}`: `{"f":0.10,"first":"a"}`,
		`.f + 1`:                  `1.1`,
		`[.items[].n] | add`:      `9007199254740994`,
		`$ENV | length`:           `0`,
		`env | length`:            `0`,
		`.missing`:                `null`,
		`.f |= if type == "array" then . else [.] end | .f`: `[0.10]`,
		`.items |= map(.x)`:           `{"f":0.10,"items":["a","b"]}`,
		`.items[0].n = 5 | .items[0]`: `{"n":5,"x":"a"}`,
	} {
		o := value(t, in)
		got, err := i.Inspect(tool(&toolkeep.ResultSpec{Transform: program}, ""), o, nil)
		if err != nil || string(got.Output) != want {
			t.Errorf("%s gives %v, %v", program, got, err)
		}
		if after := canon.Append(nil, o.Value); string(after) != string(canon.Append(nil, value(t, in).Value)) {
			t.Errorf("%s modified the executor's tree: %s", program, after)
		}
	}
}

func TestTransformFails(t *testing.T) {
	i := inspect.New(inspect.Config{})
	for program, word := range map[string]string{
		`.items[`:                  "unexpected",
		`.a.b.c`:                   "",
		`empty`:                    "no value",
		`.items[]`:                 "more than one",
		`input`:                    "input",
		`inputs`:                   "input",
		`import "a" as a; .`:       "",
		`error("no " + .secret)`:   "[REDACTED]",
		`nan`:                      "NaN",
		`infinite`:                 "Inf",
		`last(range(1e12))`:        "deadline",
		`def f: . + . | f; .a | f`: "",
		`[limit(200000000; repeat(.a))] | length`:  "",
		`reduce range(40) as $i (.; [., .])`:       "too large",
		`reduce range(40) as $i (.; {x: ., y: .})`: "too large",
		`input_filename | import`:                  "",
		`$__prog_args`:                             "",
		`"a" | ltrimstr("x") | getpath(["a"])`:     "",
	} {
		o := value(t, `{"items":[1,2],"a":"text","secret":"hunter22"}`)
		_, err := i.Inspect(tool(&toolkeep.ResultSpec{Transform: program}, ""), o, textCleaner{"hunter22"})
		e := toolkeep.AsError(err)
		if e == nil || e.Code != toolkeep.TransformationFailed || !strings.Contains(fmt.Sprint(e.Details["reason"]), word) {
			t.Errorf("%s: %v %v", program, err, e)
			continue
		}
		if strings.Contains(fmt.Sprint(e.Message, e.Details, e.Cause), "hunter22") {
			t.Errorf("%s: the secret is in the error", program)
		}
	}
}

func TestRedact(t *testing.T) {
	i := inspect.New(inspect.Config{})
	t.Run("text cleaner", func(t *testing.T) {
		o := value(t, `{"a":["x hunter22",{"hunter22":"y","n":12345}],"b":"quiet"}`)
		got, err := i.Inspect(tool(nil, ""), o, textCleaner{"hunter22"})
		if err != nil || string(got.Output) != `{"a":["x [REDACTED]",{"[REDACTED]":"y","n":12345}],"b":"quiet"}` {
			t.Errorf("%s, %v", got.Output, err)
		}
		if strings.Contains(string(canon.Append(nil, o.Value)), "REDACTED") {
			t.Error("the executor's tree was modified")
		}
	})
	t.Run("tree cleaner", func(t *testing.T) {
		asked := 0
		got, err := i.Inspect(tool(nil, ""), body("text/plain", "x hunter22"), treeCleaner{textCleaner{"hunter22"}, &asked})
		if err != nil || asked != 1 || string(got.Output) != `"x [REDACTED]"` {
			t.Errorf("%s, %v, asked %d times", got.Output, err, asked)
		}
	})
	t.Run("before the schema", func(t *testing.T) {
		_, err := i.Inspect(tool(nil, `{"enum":["other"]}`), body("text/plain", "hunter22"), textCleaner{"hunter22"})
		if err == nil || strings.Contains(fmt.Sprint(toolkeep.AsError(err).Details, err), "hunter22") {
			t.Errorf("the secret is in the error: %v", err)
		}
	})
}

func TestSchema(t *testing.T) {
	i := inspect.New(inspect.Config{})
	const s = `{"type":"object","required":["n"],"properties":{"n":{"type":"integer"},"b":{"type":"boolean","default":true}}}`
	for _, c := range []struct {
		name, in, want string
		spec           *toolkeep.ResultSpec
		code, warning  toolkeep.Code
	}{
		{"valid", `{"n":1}`, `{"n":1}`, nil, "", ""},
		{"strict by default", `{"n":"1"}`, ``, nil, toolkeep.ResultSchemaViolation, ""},
		{"missing", `{}`, ``, &toolkeep.ResultSpec{Coerce: yes()}, toolkeep.ResultSchemaViolation, ""},
		{"not strict", `{"n":"1"}`, `{"n":"1"}`, &toolkeep.ResultSpec{Strict: no()}, "", toolkeep.ResultSchemaViolation},
		{"coerced", `{"n":"1","b":"false"}`, `{"b":false,"n":1}`, &toolkeep.ResultSpec{Coerce: yes()}, "", ""},
		{"not to be coerced", `{"n":"one"}`, ``, &toolkeep.ResultSpec{Coerce: yes()}, toolkeep.ResultCoercionFailed, ""},
		{"not to be coerced, not strict", `{"n":"one"}`, `{"n":"one"}`, &toolkeep.ResultSpec{Coerce: yes(), Strict: no()}, "", toolkeep.ResultCoercionFailed},
	} {
		t.Run(c.name, func(t *testing.T) {
			o := value(t, c.in)
			got, err := i.Inspect(tool(c.spec, s), o, nil)
			if c.code != "" {
				e := toolkeep.AsError(err)
				if e == nil || e.Code != c.code {
					t.Fatalf("got %v", err)
				}
				if faults, _ := e.Details["errors"].([]toolkeep.Fault); len(faults) != 1 {
					t.Errorf("details %v", e.Details)
				}
				return
			}
			if err != nil || string(got.Output) != c.want {
				t.Fatalf("%v, %v", got, err)
			}
			if c.warning == "" && len(got.Warnings) != 0 || c.warning != "" && (len(got.Warnings) != 1 || got.Warnings[0].Code != c.warning || got.Warnings[0].Details["errors"] == nil) {
				t.Errorf("warnings %v", got.Warnings)
			}
			if string(canon.Append(nil, o.Value)) != string(canon.Append(nil, value(t, c.in).Value)) {
				t.Error("the executor's tree was modified")
			}
		})
	}
	t.Run("broken schema", func(t *testing.T) {
		_, err := i.Inspect(tool(nil, `{"type":"nope"}`), value(t, `1`), nil)
		if e := toolkeep.AsError(err); e == nil || e.Code != toolkeep.ResultSchemaViolation || e.Cause == nil {
			t.Error(err)
		}
		got, err := i.Inspect(tool(&toolkeep.ResultSpec{Strict: no()}, `{"type":"nope"}`), value(t, `1`), nil)
		if err != nil || len(got.Warnings) != 1 {
			t.Error(got, err)
		}
	})
}

func TestSensitiveFields(t *testing.T) {
	i := inspect.New(inspect.Config{})
	const in = `{"user":{"ssn":"1","name":"Ada"},"list":[{"k":1},{"k":2},{"j":3}],"a/b":5,"none":null}`
	for _, c := range []struct{ pointers, want string }{
		{"/user/ssn", `{"a/b":5,"list":[{"k":1},{"k":2},{"j":3}],"none":null,"user":{"name":"Ada","ssn":"[REDACTED]"}}`},
		{"/list/*/k /a~1b", `{"a/b":"[REDACTED]","list":[{"k":"[REDACTED]"},{"k":"[REDACTED]"},{"j":3}],"none":null,"user":{"name":"Ada","ssn":"1"}}`},
		{"/list/1 /list/9 /list/x /user/*/z /none /nothing", `{"a/b":5,"list":[{"k":1},"[REDACTED]",{"j":3}],"none":null,"user":{"name":"Ada","ssn":"1"}}`},
		{"no-pointer", `"[REDACTED]"`},
	} {
		o := value(t, in)
		got, err := i.Inspect(tool(&toolkeep.ResultSpec{SensitiveFields: strings.Fields(c.pointers)}, ""), o, nil)
		if err != nil || string(got.Output) != c.want {
			t.Errorf("%s gives %s, %v", c.pointers, got.Output, err)
		}
		if !reflect.DeepEqual(o, value(t, in)) {
			t.Errorf("%s: the executor's tree was modified", c.pointers)
		}
	}
}

func TestTruncate(t *testing.T) {
	i := inspect.New(inspect.Config{})
	for _, c := range []struct {
		name  string
		limit int64
		o     *toolkeep.Output
		want  string
		whole string
		media string
	}{
		{"text", 8, body("text/plain", "abcdefghij"), `"abcdef"`, "abcdefghij", "text/plain; charset=utf-8"},
		{"text between characters", 6, body("text/html", "aé€€"), `"aé"`, "aé€€", "text/html; charset=utf-8"},
		{"text with escapes", 6, body("text/plain", "a\"\n\n\n"), `"a\""`, "a\"\n\n\n", "text/plain; charset=utf-8"},
		{"JSON string", 5, body("application/json", `"abcdef"`), `"abc"`, `"abcdef"`, "application/json"},
		{"array", 12, value(t, `[1,"a,]b",{"x":[2,3]},4]`), `[1,"a,]b"]`, `[1,"a,]b",{"x":[2,3]},4]`, "application/json"},
		{"array, first too long", 5, value(t, `["abcdef",1]`), `[]`, `["abcdef",1]`, "application/json"},
		{"array to the byte", 5, value(t, `[1,2,3]`), `[1,2]`, `[1,2,3]`, "application/json"},
		{"object", 36, value(t, `{"a":"bcdefghijklmnopqrstuvwxyz0123456789"}`), `{"truncated_preview":"{\"a\":\"bcd"}`, `{"a":"bcdefghijklmnopqrstuvwxyz0123456789"}`, "application/json"},
		{"binary", 40, body("image/png", "\x00"+strings.Repeat("\xff", 60)), `{"truncated_preview":"{\"base64\":\"AP"}`, "\x00" + strings.Repeat("\xff", 60), "image/png"},
		{"tiny limit", 1, value(t, `{"a":1}`), `{"truncated_preview":""}`, `{"a":1}`, "application/json"},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := i.Inspect(tool(&toolkeep.ResultSpec{MaxOutputBytes: c.limit}, ""), c.o, nil)
			if err != nil {
				t.Fatal(err)
			}
			if !got.Truncated || string(got.Output) != c.want || string(got.Whole) != c.whole || got.ContentType != c.media {
				t.Errorf("got %s of %q (%s)", got.Output, got.Whole, got.ContentType)
			}
			if string(canon.Append(nil, got.Value)) != string(got.Output) {
				t.Errorf("the tree is %v", got.Value)
			}
		})
	}
	t.Run("a binary that was cleaned is not given raw", func(t *testing.T) {
		secret := "AP//" // as its base64
		got, err := i.Inspect(tool(&toolkeep.ResultSpec{MaxOutputBytes: 30}, ""), body("image/png", "\x00\xff\xff"+strings.Repeat("x", 60)), textCleaner{secret})
		if err != nil || got.ContentType != "application/json" || strings.Contains(string(got.Whole), "\xff") || !json.Valid(got.Whole) {
			t.Errorf("%+v, %v", got, err)
		}
	})
	t.Run("a text with sensitive fields is not given raw", func(t *testing.T) {
		got, err := i.Inspect(tool(&toolkeep.ResultSpec{MaxOutputBytes: 8, SensitiveFields: []string{""}}, ""), body("text/plain", "something private"), nil)
		if err != nil || string(got.Whole) != `"[REDACTED]"` || got.ContentType != "application/json" {
			t.Errorf("%+v, %v", got, err)
		}
	})
	t.Run("at the limit", func(t *testing.T) {
		got, err := i.Inspect(tool(&toolkeep.ResultSpec{MaxOutputBytes: 5}, ""), value(t, `"abc"`), nil)
		if err != nil || got.Truncated || got.Whole != nil {
			t.Errorf("%+v, %v", got, err)
		}
	})
}

func TestConcurrentUseOfOneTree(t *testing.T) {
	i := inspect.New(inspect.Config{})
	o := value(t, `{"n":"1","s":"hunter22","l":[{"k":1}]}`)
	spec := &toolkeep.ResultSpec{Coerce: yes(), Transform: `.l += [2]`, SensitiveFields: []string{"/l/0"}}
	target := tool(spec, `{"properties":{"n":{"type":"integer"}}}`)
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 50 {
				got, err := i.Inspect(target, o, textCleaner{"hunter22"})
				if err != nil || string(got.Output) != `{"l":["[REDACTED]",2],"n":1,"s":"[REDACTED]"}` {
					t.Errorf("%v, %v", got, err)
					return
				}
			}
		})
	}
	wg.Wait()
}

// FuzzInspect passes bodies of any type through tools with a small limit: the output is JSON within the limit, and
// errors have a result code.
func FuzzInspect(f *testing.F) {
	f.Add("application/json", []byte(`{"a":[1,2,{"b":"c"}]}`), int64(20))
	f.Add("text/plain; charset=latin1", []byte("caf\xe9 \x00"), int64(30))
	f.Add("image/png", []byte{0, 1, 255}, int64(60))
	f.Add("", []byte(`["a","b","\""]`), int64(26))
	i := inspect.New(inspect.Config{HardBytes: 1 << 16})
	f.Fuzz(func(t *testing.T, contentType string, data []byte, limit int64) {
		limit = 24 + limit&1023 // an object's preview needs 24
		got, err := i.Inspect(tool(&toolkeep.ResultSpec{MaxOutputBytes: limit}, ""), &toolkeep.Output{Body: data, ContentType: contentType}, textCleaner{"\x01\x02\x03\x04"})
		if err != nil {
			var e *toolkeep.Error
			if !errors.As(err, &e) || e.Code.Info().Kind != toolkeep.KindResult || !utf8.ValidString(e.Message) {
				t.Fatal(err)
			}
			return
		}
		if int64(len(got.Output)) > limit {
			t.Fatalf("%d bytes, the limit is %d", len(got.Output), limit)
		}
		v, err := canon.Parse(got.Output, canon.Limits{Bytes: 1 << 20, Depth: 1000, Properties: 1 << 20, Elements: 1 << 20})
		if err != nil || !reflect.DeepEqual(v, got.Value) {
			t.Fatalf("%q: %s, %v", data, got.Output, err)
		}
		if (got.Truncated || got.Attached) != (got.Whole != nil) {
			t.Fatal("Whole and Truncated disagree")
		}
	})
}

func BenchmarkInspectValue(b *testing.B) {
	i := inspect.New(inspect.Config{})
	o := value(b, `{"city":"Paris","temperature":11.5,"days":[{"day":"mon","rain":0.2},{"day":"tue","rain":0}],"note":"cloudy with sun later"}`)
	target := tool(nil, "")
	b.ReportAllocs()
	for b.Loop() {
		if _, err := i.Inspect(target, o, nil); err != nil {
			b.Fatal(err)
		}
	}
}

// A tree whose executor reports its JSON size.
func BenchmarkInspectLongValue(b *testing.B) {
	i := inspect.New(inspect.Config{})
	raw := `{"text":"` + strings.Repeat("lorem ipsum ", 5000) + `"}`
	o := value(b, raw)
	o.BytesRecv = int64(len(raw))
	target := tool(nil, "")
	b.ReportAllocs()
	for b.Loop() {
		if _, err := i.Inspect(target, o, nil); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkInspectBodyWithSchema(b *testing.B) {
	i := inspect.New(inspect.Config{})
	o := body("application/json", `{"city":"Paris","temperature":11.5,"days":[{"day":"mon","rain":0.2},{"day":"tue","rain":0}],"note":"cloudy with sun later"}`)
	target := tool(nil, `{"type":"object","required":["city"],"properties":{"city":{"type":"string"},"temperature":{"type":"number"}}}`)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := i.Inspect(target, o, nil); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkInspectTransform(b *testing.B) {
	i := inspect.New(inspect.Config{})
	o := body("application/json", `{"city":"Paris","days":[{"day":"mon","rain":0.2},{"day":"tue","rain":0}]}`)
	target := tool(&toolkeep.ResultSpec{Transform: `{city, rain: [.days[].rain]}`}, "")
	b.ReportAllocs()
	for b.Loop() {
		if _, err := i.Inspect(target, o, nil); err != nil {
			b.Fatal(err)
		}
	}
}

func TestBase64IsStandard(t *testing.T) {
	i := inspect.New(inspect.Config{})
	data := strings.Repeat("\xfb\xff", 5)
	got, err := i.Inspect(tool(nil, ""), body("application/octet-stream", data), nil)
	if err != nil {
		t.Fatal(err)
	}
	back, err := base64.StdEncoding.DecodeString(got.Value.(map[string]any)["base64"].(string))
	if err != nil || string(back) != data {
		t.Errorf("%q, %v", back, err)
	}
}

func TestContentTypeThatIsNone(t *testing.T) {
	i := inspect.New(inspect.Config{})
	for _, header := range []string{"\x00", "a b/c", "text", "text/", "/x", "image/p\nng", strings.Repeat("x", 300) + "/y", "text/html, text/plain"} {
		got, err := i.Inspect(tool(nil, ""), body(header, "\x00\xff"), nil)
		if err != nil || got.ContentType != "application/octet-stream" {
			t.Errorf("%q: %+v, %v", header, got, err)
		}
	}
	got, err := i.Inspect(tool(nil, ""), body("text/plain; charset", "a"), nil)
	if err != nil || string(got.Output) != `"a"` {
		t.Errorf("%+v, %v", got, err)
	}
}

// TestLocation: the upstream's Location is in a result that is null or an object, cleaned, unless the
// schema forbids the member.
func TestLocation(t *testing.T) {
	const object = `{"type":"object","properties":{"id":{"type":"integer"}},"required":["id"]`
	for _, tt := range []struct {
		name, schema, body, transform, want string
	}{
		{"nothing", "", "", "", `{"location":"/a?key=[REDACTED]"}`},
		{"an object", object + "}", `{"id":1}`, "", `{"id":1,"location":"/a?key=[REDACTED]"}`},
		{"its own", "", `{"location":"here"}`, "", `{"location":"here"}`},
		{"closed", object + `,"additionalProperties":false}`, `{"id":1}`, "", `{"id":1}`},
		{"a list", "", `[1]`, "", `[1]`},
		{"transformed", "", `{"id":1}`, ".id", `1`},
	} {
		o := body("application/json", tt.body)
		o.Location = "/a?key=s3cret"
		r, err := inspect.New(inspect.Config{}).Inspect(tool(&toolkeep.ResultSpec{Strict: no(), Transform: tt.transform}, tt.schema), o, textCleaner{"s3cret"})
		if err != nil {
			t.Errorf("%s: %v", tt.name, err)
		} else if string(r.Output) != tt.want || len(r.Warnings) > 0 {
			t.Errorf("%s: %s with %v, want %s", tt.name, r.Output, r.Warnings, tt.want)
		}
	}
}

// TestUndescribedAnswer: an answer of another declared type is not compared with the schema.
func TestUndescribedAnswer(t *testing.T) {
	for _, undescribed := range []bool{false, true} {
		o := body("text/csv", "a,b\n1,2\n")
		o.Undescribed = undescribed
		r, err := inspect.New(inspect.Config{}).Inspect(tool(&toolkeep.ResultSpec{Strict: no()}, `{"type":"object"}`), o, nil)
		if err != nil || (len(r.Warnings) == 0) != undescribed {
			t.Errorf("undescribed %v: %v, %v", undescribed, err, r)
		}
	}
}
