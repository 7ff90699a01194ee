package main

import (
	"strings"
	"testing"
)

func TestParametersAsTree(t *testing.T) {
	t.Parallel()
	const schema = `{"type": "object", "required": ["body"], "properties": {
	  "body": {"type": "object", "required": ["lines"], "properties": {
	    "lines": {"type": "array", "items": {"$ref": "#/$defs/Line"}, "description": "what is\n ordered"},
	    "pay": {"oneOf": [{"type": "object", "title": "card", "properties": {"number": {"type": "string"}}}, {"$ref": "#/$defs/Invoice"}]},
	    "notes": {"type": "object", "additionalProperties": {"type": "string"}}}},
	  "dry": {"type": ["boolean", "null"], "default": false}},
	  "$defs": {"Line": {"properties": {"book": {"enum": ["a", "b"]}, "parts": {"type": "array", "items": {"type": "array", "items": {"$ref": "#/$defs/Line"}}}}},
	            "Invoice": {"allOf": [{"$ref": "#/$defs/Payer"}, {"properties": {"days": {"type": "integer"}}, "required": ["days"]}]},
	            "Payer": {"type": "object", "properties": {"name": {"$ref": "#/$defs/Payer"}}}}}`
	for lines, want := range map[bool]string{
		false: `
Parameters:
  NAME            TYPE          REQUIRED  DESCRIPTION
  body            object        yes
    lines         array         yes       what is ordered
      book        a b
      parts       array
    notes         object
      (any name)  string
    pay           any
      either      object
        number    string
      or          Invoice
        days      integer       yes
        name      Payer
          name    Payer
  dry             boolean|null             (default false)
`,
		true: `
Parameters:
  NAME              TYPE          REQUIRED  DESCRIPTION
  body              object        yes
  ├─ lines          array         yes       what is ordered
  │  ├─ book        a b
  │  └─ parts       array
  ├─ notes          object
  │  └─ (any name)  string
  └─ pay            any
     ├─ either      object
     │  └─ number   string
     └─ or          Invoice
        ├─ days     integer       yes
        └─ name     Payer
           └─ name  Payer
  dry               boolean|null             (default false)
`} {
		var b strings.Builder
		printParameters(&b, []byte(schema), lines)
		var got strings.Builder
		for line := range strings.Lines(b.String()) {
			got.WriteString(strings.TrimRight(line, " \n") + "\n")
		}
		if got.String() != want {
			t.Errorf("lines %v:\n%s\nwant\n%s", lines, got.String(), want)
		}
	}
	var b strings.Builder
	printParameters(&b, []byte(`{"$defs": {"A": {"oneOf": [{"$ref": "#/$defs/B"}, {"$ref": "#/$defs/B"}]}, "B": {"properties": {"x": {"$ref": "#/$defs/C"}, "y": {"$ref": "#/$defs/A"}}},
	  "C": {"$ref": "#/$defs/C"}}, "properties": {"a": {"$ref": "#/$defs/A"}, "c": {"$ref": "#/$defs/C"}}, "allOf": [true, {"$ref": "#/$defs/none"}]}`), true)
	if n := strings.Count(b.String(), "\n"); n < 5 || n > maxParameterLines+5 {
		t.Errorf("definitions within themselves: %d lines\n%s", n, b.String())
	}
	b.Reset()
	printParameters(&b, []byte(`{"properties": {"a": {"$ref": "#/$defs/A"}}, "$defs": {"A": {"allOf": [`+strings.Repeat(`{"$ref": "#/$defs/A"},`, 5000)+`true]}}}`), true)
	if !strings.HasSuffix(b.String(), "  and more; --json shows all\n") {
		t.Errorf("5,000 times itself: %s", b.String())
	}
	b.Reset()
	printParameters(&b, []byte(`{"properties": {"a": {"allOf": [`+strings.Repeat(`{"$ref": "#/$defs/A"},`, 1000)+`true]}}, "$defs": {"A": {"allOf": [{"description": "`+strings.Repeat("x", 20_000)+`"}]}}}`), true)
	if !strings.HasSuffix(b.String(), "  and more; --json shows all\n") {
		t.Errorf("a large one 1,000 times: %s", b.String())
	}
	for schema, want := range map[string]string{
		`{"$ref": "#/$defs/A", "$defs": {"A": {"properties": {"within": {"type": "string"}}}}}`: "within ",
		`{"type": "object", "additionalProperties": {"type": "integer"}}`:                       "(any name)  integer",
	} {
		b.Reset()
		if printParameters(&b, []byte(schema), true); !strings.Contains(b.String(), want) {
			t.Errorf("%s: %q", schema, b.String())
		}
	}
	for _, none := range []string{`{"type": "object"}`, `true`, ``} {
		b.Reset()
		if printParameters(&b, []byte(none), true); b.Len() > 0 {
			t.Errorf("%s: %s", none, b.String())
		}
	}
}

// TestPrintable: what tools are called and say moves no cursor and hides nothing.
func TestPrintable(t *testing.T) {
	t.Parallel()
	var b strings.Builder
	if err := table(&b, "A|B", func(row func(...any)) { row("a\x1b[2J\tb", "c\u202e\nd") }); err != nil || strings.ContainsAny(b.String(), "\x1b\u202e") || strings.Count(b.String(), "\n") != 2 {
		t.Errorf("a table: %q %v", b.String(), err)
	}
	if got, want := printable("é\u00a0\u200d\n\x1b\x9b\u202e\xff", "\n"), "é \u200d\n\ufffd\ufffd\ufffd\ufffd"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}
