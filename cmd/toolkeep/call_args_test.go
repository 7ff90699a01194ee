package main

import (
	"errors"
	"strings"
	"testing"

	"github.com/toolkeep/toolkeep/canon"
)

// argumentsSchema has what names of arguments meet: parameters with dots in their names, references, parts, open objects.
const argumentsSchema = `{
	"$defs": {"car": {"type": "object", "properties": {"plate": {"type": "string"}, "tags": {"type": "array"}, "owner": {"$ref": "#/$defs/car"}}}, "loop": {"$ref": "#/$defs/loop"}},
	"type": "object",
	"properties": {
		"body": {"$ref": "#/$defs/car"}, "tags": {"type": ["array", "null"]}, "text": {"type": ["string", "array"]}, "either": {"anyOf": [{"type": "array"}, {"type": "null"}]},
		"a.b": {"type": "string"}, "a": {"type": "object", "properties": {"b": {}, "c.d": {"type": "array"}}}, "x.y": {"type": "object", "properties": {"z": {}}},
		"labels": {"type": "object", "additionalProperties": {"type": "string"}}, "more": {"type": "object", "additionalProperties": {"type": "object", "properties": {"n": {"type": "array"}}}},
		"maybe": {"anyOf": [{"type": "array"}, {}]}, "open": {}, "cars": {"type": "array", "items": {"$ref": "#/$defs/car"}}, "loop": {"$ref": "#/$defs/loop"},
		"parts": {"allOf": [{"properties": {"one": {"type": "array"}}}, {"properties": {"two": {}}}]}
	}
}`

// TestArgumentNames: dots lead into objects as the schema has them, and one value makes a list where a list is expected.
func TestArgumentNames(t *testing.T) {
	root, err := canon.Parse([]byte(argumentsSchema), canon.Limits{})
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct{ pairs, want, fault string }{
		{"body.plate=AB", `{"body":{"plate":"AB"}}`, ""},
		{"body.plate=AB body.tags=new body.owner.owner.plate=C", `{"body":{"owner":{"owner":{"plate":"C"}},"plate":"AB","tags":["new"]}}`, ""},
		{"body.plate:=5 body.tags=1 body.tags=2", `{"body":{"plate":5,"tags":["1","2"]}}`, ""},
		{"tags=1 either=2 text=3", `{"either":["2"],"tags":["1"],"text":"3"}`, ""},
		{"maybe=1", `{"maybe":"1"}`, ""},                       // which takes a text as well
		{"tags:=1 either:=[2]", `{"either":[2],"tags":1}`, ""}, // typed values are as they are
		{"tags=1 tags=2", `{"tags":["1","2"]}`, ""},
		{"a.b=1 a.c.d=2 x.y.z=3", `{"a":{"c.d":["2"]},"a.b":"1","x.y":{"z":"3"}}`, ""},
		{"labels.app.example.com/name=x labels.b=y", `{"labels":{"app.example.com/name":"x","b":"y"}}`, ""},
		{"more.k.n=1", `{"more":{"k":{"n":["1"]}}}`, ""},
		{"open.a.b=1 parts.one=2 parts.two=3", `{"open":{"a":{"b":"1"}},"parts":{"one":["2"],"two":"3"}}`, ""},
		{"body.none.x=1", `{"body":{"none":{"x":"1"}}}`, ""}, // the server says that there is none
		{"none.x=1 none=2", `{"none":"2","none.x":"1"}`, ""}, // no parameter begins so
		{"loop=1 loop.a=2", "", "loop and loop.a contradict"},
		{`body:={"plate":"x"} body.plate=AB`, "", "body and body.plate contradict"},
		{`body.plate=AB body:={"plate":"x"}`, "", "body.plate and body contradict"},
		{"body.owner=x body.owner.plate=AB", "", "body.owner and body.owner.plate contradict"},
		{"body.=x", "", "a dot without a name"},
		{"body..plate=x", "", "a dot without a name"},
		{"cars.plate=AB", "", "cars is a list"},
		{"body" + strings.Repeat(".owner", 20) + "=x", "", "more than 16 objects"},
	} {
		got, err := parametersOf("", "", strings.Fields(tt.pairs), func() *callSchema { return &callSchema{root: root} })
		var f *failure
		switch {
		case tt.fault == "" && (err != nil || string(got) != tt.want):
			t.Errorf("%s: %s %v, want %s", tt.pairs, got, err, tt.want)
		case tt.fault != "" && (!errors.As(err, &f) || f.code != exitUsage || !strings.Contains(err.Error(), tt.fault)):
			t.Errorf("%s: %s %v, want a usage error with %q", tt.pairs, got, err, tt.fault)
		}
	}
	// A schema that cannot be read now says nothing of what the names mean.
	unread := &failure{code: exitRefused, err: errors.New("E3801 too many requests")}
	if got, err := parametersOf("", "", []string{"body.plate=AB"}, func() *callSchema { return &callSchema{unread: unread} }); !errors.Is(err, unread) || !strings.Contains(err.Error(), "--json") {
		t.Errorf("of a schema that cannot be read: %s %v", got, err)
	}
	// Where nothing depends on the schema, it is not asked for.
	if _, err := parametersOf("", "", []string{"a:=1"}, func() *callSchema { t.Error("asked for a schema"); return nil }); err != nil {
		t.Error(err)
	}
}
