package source

import (
	"fmt"
	"maps"
	"strings"
	"testing"

	"github.com/toolkeep/toolkeep/canon"
	"github.com/toolkeep/toolkeep/schema"
)

// TestShrink: a schema over the limit fits it, tells what it lost, and takes what it took before.
func TestShrink(t *testing.T) {
	wide := func(n int, more map[string]any) map[string]any {
		props := map[string]any{}
		for i := range n {
			props[fmt.Sprintf("p%d", i)] = map[string]any{"type": "string", "enum": []any{fmt.Sprint("a-long-word-to-choose-", i)}}
		}
		maps.Copy(props, more)
		return map[string]any{"type": "object", "properties": props, "additionalProperties": false,
			"allOf": []any{map[string]any{"oneOf": []any{map[string]any{"required": []any{"next"}}, map[string]any{"not": map[string]any{"required": []any{"next"}}}}}}}
	}
	inline := map[string]any{"type": "integer"}
	defs := map[string]any{"D30": map[string]any{"type": "integer"}}
	for i := range 30 {
		inline = wide(60, map[string]any{"next": inline})
		defs[fmt.Sprint("D", i)] = wide(60, map[string]any{"next": map[string]any{"$ref": fmt.Sprint("#/$defs/D", i+1)}, "back": map[string]any{"$ref": "#/$defs/D0"}})
	}
	prose := wide(20, nil)
	for _, p := range prose["properties"].(map[string]any) {
		p.(map[string]any)["description"] = strings.Repeat("long ", 1000)
	}
	lists := map[string]any{"type": "object", "properties": map[string]any{"rows": map[string]any{"type": "array", "items": wide(900, nil)}}}
	const inner = "descriptions and the inner parts are left out"
	for name, tt := range map[string]struct {
		schema            map[string]any
		value, lost, kept string
	}{
		"small":       {wide(3, nil), `{}`, "", `"p2":`},
		"prose":       {prose, `{"p1":"a-long-word-to-choose-1"}`, "long descriptions are cut", "a-long-word-to-choose-19"},
		"inline":      {inline, strings.Repeat(`{"next":`, 30) + "1" + strings.Repeat("}", 30), inner, "a-long-word-to-choose-59"},
		"definitions": {map[string]any{"$ref": "#/$defs/D0", "$defs": defs}, strings.Repeat(`{"back":{"p1":"a-long-word-to-choose-1"},"next":`, 30) + "1" + strings.Repeat("}", 30), inner, "a-long-word-to-choose-59"},
		"wide":        {wide(900, nil), `{"p1":"a-long-word-to-choose-1"}`, inner, `"p899":{}`},
		"lists":       {lists, `{"rows":[{"p1":"a-long-word-to-choose-1"}]}`, inner, `"p899":{}`},
		"too wide":    {wide(5000, nil), `{"p1":"a-long-word-to-choose-1"}`, inner, `{"type":"object"}`},
	} {
		t.Run(name, func(t *testing.T) {
			before := canon.Append(nil, tt.schema)
			smaller, lost := Shrink(tt.schema, MaxParameters)
			raw := canon.Append(nil, smaller)
			if len(raw) > MaxParameters || !strings.Contains(string(raw), tt.kept) {
				t.Errorf("it has %d bytes: %.300s", len(raw), raw)
			}
			want := ""
			if tt.lost != "" {
				want = fmt.Sprintf("is larger than 32 KiB; %s: %d KiB became %d KiB", tt.lost, kib(len(before)), kib(len(raw)))
			}
			if lost != want {
				t.Errorf("told is %q, want %q", lost, want)
			}
			if string(canon.Append(nil, tt.schema)) != string(before) {
				t.Error("the schema itself has changed")
			}
			value, err := canon.Parse([]byte(tt.value), canon.Limits{})
			if err != nil {
				t.Fatal(err)
			}
			for _, s := range [][]byte{before, raw} {
				compiled, err := schema.Compile(s)
				if err != nil {
					t.Fatal(err)
				}
				if faults := compiled.Validate(t.Context(), value); len(faults) > 0 {
					t.Errorf("%+v", faults)
				}
			}
		})
	}
}
