package openapi

import (
	"encoding/json"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/toolkeep/toolkeep/canon"
	"github.com/toolkeep/toolkeep/catalog"
	"github.com/toolkeep/toolkeep/schema"
)

var became = regexp.MustCompile(`(?:about (\d+) KiB|what is too large to be measured) became (\d+) KiB`)

// TestLargeSchemas: a schema over its limit (32 KiB of arguments, 64 KiB of a result) is made smaller and
// not dropped, a warning says what is lost and how much, and what was valid stays valid. What stands
// outermost stays longest.
func TestLargeSchemas(t *testing.T) {
	rows := func(n int, each string) string {
		var b strings.Builder
		for i := range n {
			fmt.Fprintf(&b, "p%d: %s, ", i, strings.ReplaceAll(each, "N", strconv.Itoa(i)))
		}
		return b.String()
	}
	const numbered = "{type: string, enum: [aaaaaaaaaaaaaaaaaaaa-N, bbbbbbbbbbbbbbbbbbbbbb-N, cccccccccccccccccccccc-N]}"
	chain := func(levels, width int) string { // definitions that name the next one
		var b strings.Builder
		for i := range levels {
			next := "{type: integer}"
			if i+1 < levels {
				next = fmt.Sprintf("{$ref: '#/components/schemas/S%d'}", i+1)
			}
			fmt.Fprintf(&b, "S%d: {type: object, required: [next], additionalProperties: false, properties: {%snext: %s}}, ", i, rows(width, numbered), next)
		}
		return b.String()
	}
	inline := "{type: integer}"
	for range 30 {
		inline = "{type: object, required: [next], additionalProperties: false, properties: {" + rows(40, numbered) + "next: " + inline + "}}"
	}
	value := func(levels int) string {
		return strings.Repeat(`{"p1":"aaaaaaaaaaaaaaaaaaaa-1","next":`, levels) + "7" + strings.Repeat("}", levels)
	}
	var required []string
	for i := range 4000 {
		required = append(required, fmt.Sprintf("name-that-is-long-enough-%d", i))
	}
	names := strings.Join(required, ", ")
	for name, tt := range map[string]struct {
		schema, defs, value, lost string
		outer                     string // what must be left of the outermost schema
		unsaid                    bool   // nothing is left of the result
	}{
		"prose":       {schema: "{type: object, additionalProperties: false, properties: {" + rows(200, "{type: string, description: '"+strings.Repeat("long ", 100)+"'}") + "}}", value: `{"p1":"x"}`, lost: "descriptions and examples", outer: `"p199":{`},
		"definitions": {schema: "{$ref: '#/components/schemas/S0'}", defs: chain(30, 40), value: value(30), lost: "the inner parts", outer: "aaaaaaaaaaaaaaaaaaaa-39"},
		"inline":      {schema: inline, value: value(30), lost: "the inner parts", outer: "aaaaaaaaaaaaaaaaaaaa-39"},
		"wide":        {schema: "{$ref: '#/components/schemas/S0'}", defs: chain(3, 900), value: value(3), lost: "the inner parts", outer: `"p899":{}`},
		"names":       {schema: "{type: object, required: [" + names + "], minProperties: 1}", value: value(1), lost: "the inner parts", outer: `"body":{}`, unsaid: true},
	} {
		t.Run(name, func(t *testing.T) {
			plan := readText(t, header+"paths: {/x: {post: {requestBody: {content: {application/json: {schema: "+tt.schema+"}}}, responses: {200: {description: ok, content: {application/json: {schema: "+tt.schema+"}}}}}}}\ncomponents: {schemas: {"+tt.defs+"}}\n", Options{})
			if len(plan.Tools) != 1 {
				t.Fatal(plan.Refused)
			}
			tool, err := catalog.ParseManifest(plan.Tools[0].Manifest)
			if err != nil {
				t.Fatal(err)
			}
			for _, part := range []struct {
				what, value string
				schema      json.RawMessage
				limit       int
			}{
				{"arguments", `{"body":` + tt.value + `}`, tool.Manifest.ParametersSchema, 32 << 10},
				{"result", tt.value, tool.Manifest.ResultSchema, 64 << 10},
			} {
				if part.what == "result" && tt.unsaid {
					continue
				}
				if len(part.schema) == 0 || len(part.schema) > part.limit || !strings.Contains(string(part.schema), tt.outer) {
					t.Errorf("the schema of the %s has %d bytes, of at most %d, and holds %q: %v", part.what, len(part.schema), part.limit, tt.outer, strings.Contains(string(part.schema), tt.outer))
					continue
				}
				warned := ""
				for _, w := range plan.Warnings {
					if strings.Contains(w, fmt.Sprintf("the schema of its %s is larger than %d KiB or %d levels; %s are left out: ", part.what, part.limit>>10, maxLevels, tt.lost)) {
						warned = w
					}
				}
				if amounts := became.FindStringSubmatch(warned); amounts == nil {
					t.Errorf("the warnings do not tell what the schema of the %s lost: %q", part.what, plan.Warnings)
				} else if was, _ := strconv.Atoi(amounts[1]); amounts[1] != "" && was <= part.limit>>10 || amounts[2] != strconv.Itoa((len(part.schema)+1023)>>10) {
					t.Errorf("the schema of the %s has %d bytes, and the warning says %q", part.what, len(part.schema), warned)
				}
				compiled, err := schema.Compile(part.schema)
				if err != nil {
					t.Fatal(err)
				}
				v, err := canon.Parse([]byte(part.value), canon.Limits{})
				if err != nil {
					t.Fatal(err)
				}
				if faults := compiled.Validate(t.Context(), v); len(faults) > 0 {
					t.Errorf("the %s were valid: %+v", part.what, faults)
				}
			}
		})
	}
}
