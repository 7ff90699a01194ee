package openapi

import (
	"fmt"
	"strings"
	"testing"
)

// TestParametersThatCannotBeSent: what no call could send is refused at import where it is required, and
// left out with a warning where it is not. All else stays an argument.
func TestParametersThatCannotBeSent(t *testing.T) {
	const impossible, nullAlone, nestedValues = "no value satisfies its schema", "null alone", "within a list or object cannot be sent in style"
	for _, tt := range []struct{ param, reason string }{
		{`in: query, schema: false`, impossible},
		{`in: query, schema: {not: {}}`, impossible},
		{`in: query, schema: {type: string, enum: [{a: b}]}`, impossible},
		{`in: query, schema: {type: string, const: [1]}`, impossible},
		{`in: query, schema: {type: string, minLength: 5, maxLength: 4}`, impossible},
		{`in: query, schema: {type: integer, minimum: 5, maximum: 4}`, impossible},
		{`in: query, schema: {type: array, minItems: 1, items: false}`, impossible},
		{`in: query, schema: {allOf: [{type: string}, {type: integer}]}`, impossible},
		{`in: query, schema: {oneOf: [false, {$ref: "#/components/schemas/Never"}]}`, impossible},
		{`in: query, schema: {$ref: "#/components/schemas/Never"}`, impossible},
		{`in: query, schema: {$ref: "#/components/schemas/Text", type: integer}`, impossible},
		{`in: query, style: deepObject, schema: {type: object, required: [a], properties: {a: false}}`, impossible},
		{`in: query, style: deepObject, schema: {type: object, required: [a], additionalProperties: false}`, impossible},
		{`in: query, content: {application/json: {schema: false}}`, impossible},
		{`in: query, schema: {type: "null"}`, nullAlone},
		{`in: query, schema: {type: array, items: {type: object}}`, nestedValues + " form"},
		{`in: query, schema: {type: array, items: {type: array, items: {type: string}}}`, nestedValues},
		{`in: query, style: pipeDelimited, schema: {type: array, items: {$ref: "#/components/schemas/Row"}}`, nestedValues + " pipeDelimited"},
		{`in: query, schema: {$ref: "#/components/schemas/Row"}`, nestedValues},
		{`in: header, schema: {type: array, items: {type: object}}`, nestedValues + " simple"},
		{`in: cookie, schema: {type: array, items: {type: object}}`, nestedValues},
		{`in: path, schema: {type: array, items: {type: object}}`, nestedValues},

		{`in: query, schema: true`, ""},
		{`in: query`, ""},
		{`in: query, schema: {type: string, enum: []}`, ""}, // left out with a warning of its own
		{`in: query, schema: {type: string, enum: [1, 2]}`, ""},
		{`in: query, schema: {type: [string, "null"]}`, ""},
		{`in: query, schema: {type: string, minLength: 4, maxLength: 4}`, ""},
		{`in: query, schema: {minimum: 5, maximum: 4}`, ""}, // a text
		{`in: query, schema: {anyOf: [false, {type: string}]}`, ""},
		{`in: query, schema: {type: array, items: {anyOf: [{type: object}, {type: string}]}}`, ""},
		{`in: query, schema: {type: array, prefixItems: [{type: string}], items: false}`, ""},
		{`in: query, schema: {oneOf: [{type: string}, {type: array, items: {type: object}}]}`, ""},
		{`in: query, schema: {type: object, properties: {a: {type: array}}}`, ""}, // it may be left out
		{`in: query, schema: {$ref: "#/components/schemas/Again"}`, ""},
		{`in: query, style: deepObject, schema: {type: array, items: {type: object}}`, ""},
		{`in: query, style: deepObject, schema: {$ref: "#/components/schemas/Row"}`, ""},
		{`in: query, content: {application/json: {schema: {type: array, items: {type: object}}}}`, ""},
	} {
		for _, required := range []bool{true, false} {
			path := "/x"
			if strings.HasPrefix(tt.param, "in: path") {
				path, required = "/x/{p}", true
			}
			plan := readText(t, header+fmt.Sprintf("paths: {'%s': {get: {parameters: [{name: p, required: %v, %s}], responses: {200: {description: ok}}}}}\n", path, required, tt.param)+
				"components: {schemas: {Never: {allOf: [{type: string}, {type: object}]}, Text: {type: string}, Again: {required: [a], properties: {a: {$ref: '#/components/schemas/Again'}, b: {type: string}}, anyOf: [{type: object}, {type: string}]}, Row: {type: object, required: [a], properties: {a: {type: array}}}}}\n", Options{})
			warnings := strings.Join(plan.Warnings, "\n")
			switch {
			case tt.reason == "":
				if len(plan.Tools) != 1 || !strings.Contains(string(plan.Tools[0].Manifest), `"arg":"p"`) || strings.Contains(warnings, "left out: ") {
					t.Errorf("%s: %+v %s", tt.param, plan.Refused, warnings)
				}
			case required:
				wantRefused(t, plan, "GET "+path, `the required parameter "p" cannot be sent: `)
				wantRefused(t, plan, "GET "+path, tt.reason)
			case len(plan.Tools) != 1 || strings.Contains(string(plan.Tools[0].Manifest), `"arg":"p"`) || !strings.Contains(warnings, "the optional parameter p is left out: ") || !strings.Contains(warnings, tt.reason):
				t.Errorf("%s: %+v %s", tt.param, plan.Refused, warnings)
			}
		}
	}
}

// TestBodiesThatCannotBeSent: the same for bodies, which can be null.
func TestBodiesThatCannotBeSent(t *testing.T) {
	for schema, possible := range map[string]bool{
		"false": false, "{allOf: [{type: array}, {type: object}]}": false, "{type: 'null'}": true, "{type: array, items: false}": true,
		"{type: object, required: [a], properties: {a: {not: {}}}}": false,
	} {
		for _, required := range []bool{true, false} {
			plan := readText(t, header+fmt.Sprintf("paths: {/x: {post: {requestBody: {required: %v, content: {application/json: {schema: %s}}}, responses: {200: {description: ok}}}}}\n", required, schema), Options{})
			switch {
			case !possible && required:
				wantRefused(t, plan, "POST /x", "no value satisfies the schema of its body")
			case len(plan.Tools) != 1 || strings.Contains(string(plan.Tools[0].Manifest), `"content_type"`) != possible:
				t.Errorf("%s: %+v", schema, plan.Refused)
			case !possible && !strings.Contains(strings.Join(plan.Warnings, "\n"), "its optional body is left out: no value satisfies its schema"):
				t.Errorf("%s: %q", schema, plan.Warnings)
			}
		}
	}
}
