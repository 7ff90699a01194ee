package inspect_test

import (
	"strings"
	"testing"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/inspect"
)

func TestTable(t *testing.T) {
	i := inspect.New(inspect.Config{})
	wide := "[" + strings.Repeat("{},", 2000)
	for n := range 1000 {
		wide += `{"column` + strings.Repeat("x", n%7) + strings.Repeat("y", n/7) + `":1},`
	}
	for _, c := range []struct{ name, list, want string }{
		{"flat", `[{"b":1.50,"a":"x,\"y\""},{"a":"two\nlines","c":true},{"b":null}]`, "a,b,c\n\"x,\"\"y\"\"\",1.50,\n\"two\nlines\",,true\n,,\n"},
		{"one column with gaps", `[{"a":"x"},{},{"a":"z"}]`, "a\nx\n\"\"\nz\n"},
		{"negative numbers", `[{"a":-1,"b":"1-2"},{"a":1e999},{}]`, "a,b\n-1,1-2\n1e999,\n,\n"},
		{"nested", `[{"a":1},{"a":[1]}]`, ""},
		{"not objects", `[{"a":1},2,3,4,5]`, ""},
		{"no names", `[{},{},{},{},{}]`, ""},
		{"sparse", wide + "{}]", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := i.Inspect(tool(&toolkeep.ResultSpec{MaxOutputBytes: 10}, ""), value(t, c.list), nil)
			if err != nil || !got.Truncated {
				t.Fatalf("%+v, %v", got, err)
			}
			if c.want == "" {
				if got.Table || got.ContentType != "application/json" {
					t.Errorf("a table of %s: %.200s", got.ContentType, got.Whole)
				}
				return
			}
			if !got.Table || string(got.Whole) != c.want || got.ContentType != "text/csv; charset=utf-8; header=present" {
				t.Errorf("%s %q, want %q", got.ContentType, got.Whole, c.want)
			}
			// What was written reads as the same number of rows.
			back, err := i.Inspect(tool(nil, ""), body(got.ContentType, string(got.Whole)), nil)
			if err != nil || len(back.Value.([]any)) != 3 {
				t.Errorf("read back: %v, %v", back, err)
			}
		})
	}
	// A program that reads a table takes these for something else.
	for _, text := range []string{"=1+2", "+x", "-x", "@x", "\tx", "\rx", " =x", "1", "-1.5", " 1e3", "1e999", "true", "False", "null", "NaN", "", " "} {
		for _, v := range []map[string]any{{"a": text}, {text: "x"}} {
			list := &toolkeep.Output{Value: []any{map[string]any{"b": "long enough"}, v}, HasValue: true}
			got, err := i.Inspect(tool(&toolkeep.ResultSpec{MaxOutputBytes: 10}, ""), list, nil)
			formula := strings.ContainsAny(text, "=+@\t\rx")
			if err != nil || !got.Truncated || got.Table != (v["a"] == nil && !formula && text != "-1.5") {
				t.Errorf("%q: table %t, %v", v, got.Table, err)
			}
		}
	}
	// A list that fits is no table.
	if got, err := i.Inspect(tool(nil, ""), value(t, `[{"a":1}]`), nil); err != nil || got.Table || got.Truncated {
		t.Errorf("%+v, %v", got, err)
	}
}
