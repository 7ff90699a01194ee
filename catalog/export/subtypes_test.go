package export

import (
	"strings"
	"testing"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/catalog"
	"github.com/toolkeep/toolkeep/catalog/source/openapi"
)

// TestSubtypesInStrict: subtypes that a document tells by the parent's discriminator are forms of
// their own in a strict export.
func TestSubtypesInStrict(t *testing.T) {
	plan, err := openapi.Read(t.Context(), openapi.Options{Location: "pets.yaml", Namespace: "pets", Document: []byte(`
openapi: 3.0.3
info: {title: Pets, version: "1"}
servers: [{url: "https://api.example.com"}]
paths:
  /pets: {post: {operationId: create, requestBody: {required: true, content: {application/json: {schema: {$ref: "#/components/schemas/Pet"}}}}, responses: {"201": {description: created}}}}
components:
  schemas:
    Pet: {type: object, required: [petType], discriminator: {propertyName: petType, mapping: {cat: "#/components/schemas/Cat", dog: "#/components/schemas/Dog"}}, properties: {petType: {type: string}}}
    Cat: {allOf: [{$ref: "#/components/schemas/Pet"}, {type: object, required: [lives], properties: {lives: {type: integer}}}]}
    Dog: {allOf: [{$ref: "#/components/schemas/Pet"}, {type: object, properties: {packSize: {type: integer}}}]}
`)})
	if err != nil || len(plan.Tools) != 1 {
		t.Fatal(err, plan)
	}
	tool, err := catalog.ParseManifest(plan.Tools[0].Manifest)
	if err != nil {
		t.Fatal(err)
	}
	for form, want := range map[Form]string{
		OpenAI: `"anyOf":[{"additionalProperties":false,"properties":{"lives":{"type":"integer"},"petType":{"enum":["cat"],"type":"string"}},"required":["lives","petType"],"type":"object"},` +
			`{"additionalProperties":false,"properties":{"packSize":{"type":["integer","null"]},"petType":{"enum":["dog"],"type":"string"}},"required":["packSize","petType"],"type":"object"}]`,
		Anthropic: `"anyOf":[{"additionalProperties":false,"properties":{"lives":{"type":"integer"},"petType":{"enum":["cat"],"type":"string"}},"required":["petType","lives"],"type":"object"},` +
			`{"additionalProperties":false,"properties":{"packSize":{"type":"integer"},"petType":{"enum":["dog"],"type":"string"}},"required":["petType"],"type":"object"}]`,
	} {
		res, err := Export([]*toolkeep.Tool{tool}, Options{form, true})
		if err != nil || !strings.Contains(string(res.Document), want) || !res.Names[0].Strict {
			t.Errorf("%s: %v %s", form, err, res.Document)
		}
	}
}
