package inspect_test

import (
	"bytes"
	"encoding/csv"
	"reflect"
	"slices"
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
		{"flat", `[{"b":1.50,"a":"x,\"y\""},{"a":"two\nlines","c":true},{"b":null}]`, "\"a\",\"b\",\"c\"\n\"x,\"\"y\"\"\",1.50,\n\"two\nlines\",,true\n,,\n"},
		{"one column", `[{"a":"x"},{"a":""},{"a":1e999}]`, "\"a\"\n\"x\"\n\"\"\n1e999\n"},
		{"texts that look like others", `[{"a":"1","b":"true","c":"null"},{"a":1,"b":true,"c":null},{"a":" ","b":"NaN","c":"007"}]`,
			"\"a\",\"b\",\"c\"\n\"1\",\"true\",\"null\"\n1,true,\n\" \",\"NaN\",\"007\"\n"},
		{"formulas", `[{"=a":"+49 30 1","b":-1},{"=a":" @x","b":"'-"},{"=a":"'s","b":"x-1"}]`,
			"\"'=a\",\"b\"\n\"'+49 30 1\",-1\n\"' @x\",\"''-\"\n\"'s\",\"x-1\"\n"},
		{"one column with gaps", `[{"a":"long enough"},{},{"a":"z"}]`, ""},
		{"CR LF in a text", `[{"a":"long enough"},{"a":"x\r\ny"},{"a":"z"}]`, ""},
		{"CR LF in a name", `[{"a\r\nb":"long enough"},{"a\r\nb":"z"}]`, ""},
		{"an empty name", `[{"":"long enough","a":"x"},{"a":"z"}]`, ""},
		{"CR and LF apart", `[{"a":"x\ry","b":1},{"a":"\n\r"},{"a":"z"}]`, "\"a\",\"b\"\n\"x\ry\",1\n\"'\n\r\",\n\"z\",\n"},
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
			if !got.Table || string(got.Whole) != c.want || got.ContentType != "text/csv; charset=utf-8; header=present; escape=apostrophe" {
				t.Errorf("%s %q, want %q", got.ContentType, got.Whole, c.want)
			}
			// What was written reads as the same number of rows.
			back, err := i.Inspect(tool(nil, ""), body(got.ContentType, string(got.Whole)), nil)
			if err != nil || len(back.Value.([]any)) != 3 {
				t.Errorf("read back: %v, %v", back, err)
			}
		})
	}
	// What a program for tables may run is none there, and comes back as it was; also where nothing but that parameter tells.
	for _, text := range []string{"=1+2", "+x", "-x", "@x", "\tx", "\rx", "\nx", " =x", "＝x", "'=x", "''@", "'x", "'", "", "-1.5", "1e3", "a'=", "\ufffd"} {
		list := []any{map[string]any{"b": "long enough"}, map[string]any{"b": text, "=" + text: "x"}}
		got, err := i.Inspect(tool(&toolkeep.ResultSpec{MaxOutputBytes: 10}, ""), &toolkeep.Output{Value: list, HasValue: true}, nil)
		if err != nil || !got.Table {
			t.Fatalf("%q: %+v, %v", text, got, err)
		}
		raw, err := csv.NewReader(bytes.NewReader(got.Whole)).ReadAll()
		if err != nil {
			t.Fatal(err)
		}
		for _, field := range slices.Concat(raw...) {
			if field = strings.TrimLeft(field, " "); field != "" && strings.ContainsAny(field[:1], "=+-@\t\r\n") {
				t.Errorf("%q is written as %q", text, raw)
			}
		}
		back, err := i.Inspect(tool(nil, ""), body(got.ContentType, string(got.Whole)), nil)
		want := []any{map[string]any{"b": "long enough", "=" + text: ""}, list[1]}
		if err != nil || !reflect.DeepEqual(back.Value, want) {
			t.Errorf("%q: read back %q, %v", text, back.Value, err)
		}
		foreign, err := i.Inspect(tool(nil, ""), body("text/csv", string(got.Whole)), nil)
		if err != nil || foreign.Value.([]any)[1].(map[string]any)["b"] != raw[2][1] && foreign.Value.([]any)[1].(map[string]any)["b"] != raw[2][0] {
			t.Errorf("%q: read as another's %q, %v", text, foreign.Value, err)
		}
	}
	// A list that fits is no table.
	if got, err := i.Inspect(tool(nil, ""), value(t, `[{"a":1}]`), nil); err != nil || got.Table || got.Truncated {
		t.Errorf("%+v, %v", got, err)
	}
}
