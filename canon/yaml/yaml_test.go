package yaml

import (
	"encoding/json"
	"errors"
	"reflect"
	"strings"
	"testing"

	"github.com/toolkeep/toolkeep/canon"
)

var all = Options{Bytes: 1 << 20, Values: 1000, Depth: 64, Aliases: true}

func lenient() Options {
	o := all
	o.Lenient = true
	return o
}

func tree(t *testing.T, text string, o Options) any {
	t.Helper()
	n, err := One([]byte(text), o)
	if err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	v, err := n.Tree()
	if err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return v
}

func TestScalars(t *testing.T) {
	number := func(s string) any { return json.Number(s) }
	for _, c := range []struct {
		text            string
		strict, lenient any // nil of strict: refused
	}{
		{"1", number("1"), number("1")},
		{"-0.10", number("-0.10"), number("-0.10")},
		{"+5", number("5"), number("5")},
		{".5", number("0.5"), number("0.5")},
		{"1.", number("1.0"), number("1.0")},
		{"1e400", number("1e400"), number("1e400")},
		{"12345678901234567890123", number("12345678901234567890123"), number("12345678901234567890123")},
		{"0x1FFFFFFFFFFFFFFFFF", number("590295810358705651711"), number("590295810358705651711")},
		{"0o17", number("15"), number("15")},
		{"1_000", number("1000"), "1_000"},
		{"0b101", number("5"), "0b101"},
		{"007", nil, "007"},
		{".inf", nil, ".inf"},
		{"'007'", "007", "007"},
		{`"1"`, "1", "1"},
		{"!!str 5", "5", "5"},
		{`!!int "5"`, number("5"), number("5")},
		{"!other x", nil, "x"},
		{"!!bool yes", nil, "yes"},
		{"2026-01-02", "2026-01-02", "2026-01-02"},
		{"10:30", "10:30", "10:30"},
		{"no", "no", "no"},
		{"True", true, true},
		{"1.2.3", "1.2.3", "1.2.3"},
		{"-x", "-x", "-x"},
		{"..", "..", ".."},
		{"|\n  1", "1", "1"},
	} {
		text := "a: " + c.text
		if got := tree(t, text, lenient()).(map[string]any)["a"]; got != c.lenient {
			t.Errorf("%s is %#v, want %#v", c.text, got, c.lenient)
		}
		n, err := One([]byte(text), all)
		if c.strict == nil {
			if err == nil {
				t.Errorf("%s is read", c.text)
			}
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", c.text, err)
		} else if v, _ := n.Tree(); v.(map[string]any)["a"] != c.strict {
			t.Errorf("%s is %#v, want %#v", c.text, v, c.strict)
		}
	}
}

func TestPlaces(t *testing.T) {
	n, err := One([]byte("%YAML 1.2\n---\na:\n  - x\nb: &b {c: 1}\nd: {<<: *b, c: 2}\nd: *b\n"), all)
	if err != nil {
		t.Fatal(err)
	}
	m := n.Value.(Mapping)
	if item := m[0].Value.Value.([]*Node)[0]; item.Line != 4 || item.Column != 5 || m[1].Line != 5 || m[1].Column != 1 {
		t.Errorf("%+v, %+v", item, m[1])
	}
	if m[2].Repeated || !m[3].Repeated || m[3].Value != m[1].Value {
		t.Errorf("%+v", m)
	}
	var e *Error
	if _, err := n.Tree(); !errors.As(err, &e) || e.Line != 7 || !strings.Contains(err.Error(), `"d"`) {
		t.Error(err)
	}
}

func TestRefused(t *testing.T) {
	none := all
	none.Aliases = false
	small := all
	small.Bytes = 100
	for _, c := range []struct {
		name, text string
		o          Options
		says       string
	}{
		{"aliases", "a: &x 1\nb: *x", none, "line 2, column 4: aliases are not read here"},
		{"an alias as a key", "a: &x 1\n*x : 1", none, "line 2, column 1"},
		{"merge keys", "<<: {a: 1}", none, "line 1, column 1: merge keys"},
		{"no anchor", "a: *hunter2", all, "an alias has no anchor"},
		{"an alias in its anchor", "a: &hunter2 [*hunter2]", all, "inside of its own anchor"},
		{"a tag", "a: !hunter2 x", all, "line 1, column 4: the tag"},
		{"a tag on a list", "a: !hunter2 []", all, "the tag"},
		{"a truth value", "a: !!bool hunter2", all, "line 1, column 4"},
		{"a number", "a: !!int hunter2", all, "line 1, column 4"},
		{"leading zeros", "a: 0123456", all, "line 1, column 4: a number has leading zeros"},
		{"NUL", `a: "hunter2\0"`, all, "NUL"},
		{"a list as a key", "? [hunter2]\n: 1", all, "not a scalar"},
		{"depth", strings.Repeat("[", 100) + strings.Repeat("]", 100), all, "deeper than 64 levels"},
		{"values", "[" + strings.Repeat("1,", 1001) + "]", all, "1000 values"},
		{"depth by aliases", "- &a " + strings.Repeat("[", 40) + strings.Repeat("]", 40) + "\n- " + strings.Repeat("[", 40) + "*a" + strings.Repeat("]", 40), all, "64 levels"},
		{"bytes by aliases", "- &a [" + strings.Repeat("x", 40) + "]\n- *a\n- *a", small, "100 bytes with its aliases"},
		{"bytes", strings.Repeat("x", 101), small, "at most 100"},
		{"two documents", "hunter2\n---\nb", all, "more than one"},
		{"not YAML", "password: 'hunter2", all, "end of stream"},
		{"a tab", "a:\n\thunter2: x", all, "line "},
	} {
		_, err := One([]byte(c.text), c.o)
		if err == nil || !strings.Contains(err.Error(), c.says) || strings.Contains(err.Error(), "hunter2") || strings.Contains(err.Error(), "123456") {
			t.Errorf("%s: %v", c.name, err)
		}
	}
	if n, err := One([]byte("# nothing"), all); n != nil || err != nil {
		t.Errorf("%+v, %v", n, err)
	}
}

func TestWrite(t *testing.T) {
	v := map[string]any{"num": json.Number("1.10"), "s": []any{"007", "1e999", "0x1FFFFFFFFFFFFFFFFF", "no", "a\nb", "2026-01-02", ""}, "1": nil, "m": map[string]any{"b": true}}
	block, err := Marshal(v)
	if err != nil || !strings.Contains(string(block), "\nm:\n    b: true\nnum: 1.10\n") {
		t.Errorf("%s, %v", block, err)
	}
	line, err := Line(v)
	if err != nil || strings.Contains(line, "\n") {
		t.Errorf("%s, %v", line, err)
	}
	for _, text := range []string{string(block), line} {
		if got := tree(t, text, all); !reflect.DeepEqual(got, v) {
			t.Errorf("%s reads back as %v", text, got)
		}
	}
}

// FuzzDocuments: a tree that is read is JSON, and reads back from its YAML.
func FuzzDocuments(f *testing.F) {
	for _, s := range []string{"a: 1\nb: [x]", "a: &x {k: *x}", "<<: {a: 1}", "- 0x_\n- 1__0\n- -.5e3", "? &k a\n: *k", "a: !!int ''",
		"\xff", "---\n...\n--- 1", "%YAML 1.2\n--- !x {}", "a: &a [&b [1], *b]\nc: {<<: [{d: *a}]}", "- 08\n- .inf\n- !!bool y"} {
		f.Add([]byte(s), false)
		f.Add([]byte(s), true)
	}
	f.Fuzz(func(t *testing.T, data []byte, lenient bool) {
		o := all
		o.Lenient = lenient
		for n, err := range Documents(data, o) {
			if err != nil {
				var e *Error
				if !errors.As(err, &e) {
					t.Errorf("%q: %v", data, err)
				}
				return
			}
			v, err := n.Tree()
			if err != nil {
				continue
			}
			raw := canon.Append(nil, v)
			if _, err := canon.Parse(raw, canon.Limits{Bytes: 1 << 30, Depth: 100, Properties: 1 << 30, Elements: 1 << 30}); err != nil && !lenient {
				t.Errorf("%q becomes %s: %v", data, raw, err)
			}
			if lenient {
				continue
			}
			text, err := Marshal(v)
			if err != nil {
				t.Errorf("%q: %v", data, err)
				continue
			}
			back, err := One(text, Options{Bytes: 1 << 24, Values: 2000, Depth: 100})
			if err != nil || back == nil {
				t.Errorf("%q is written as %q: %v", data, text, err)
				continue
			}
			if again, err := back.Tree(); err != nil || string(canon.Append(nil, again)) != string(raw) {
				t.Errorf("%q is written as %q: %v", data, text, err)
			}
		}
	})
}
