package invoke

import (
	"bytes"
	"strings"

	jsonv2 "github.com/go-json-experiment/json"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/canon"
)

// resultLimits bound what is read of an error's details, which this process made.
var resultLimits = canon.Limits{Bytes: 16 << 20, Depth: 1000, Properties: 1 << 20, Elements: 1 << 20}

// cleaned takes secrets out of an error's message and details. The details may
// hold anything that is JSON when it is shown, so they are cleaned as that;
// details that are no JSON could not be shown and go.
func (p *Pipeline) cleaned(e *toolkeep.Error) *toolkeep.Error {
	e.Message = p.Redact.Clean(e.Message)
	if len(e.Details) == 0 {
		return e
	}
	raw, err := jsonv2.Marshal(e.Details)
	var tree map[string]any
	if err == nil {
		tree, err = canon.ParseObject(raw, resultLimits)
	}
	if err != nil {
		p.Log.Error("the details of an error are dropped: they are no JSON", "code", e.Code)
		e.Details = nil
		return e
	}
	before := canon.Append(nil, tree)
	clean, _ := p.Redact.CleanValue(p.cleanPointers(tree)).(map[string]any)
	if !bytes.Equal(before, canon.Append(nil, clean)) {
		e.Details = clean
	}
	return e
}

// cleanPointers cleans the JSON Pointers of faults, in which names are escaped in
// a way of their own.
func (p *Pipeline) cleanPointers(v any) any {
	switch t := v.(type) {
	case map[string]any:
		for k, e := range t {
			if s, ok := e.(string); ok && k == "pointer" && strings.Contains(s, "~") {
				if plain := unescape.Replace(s); p.Redact.Clean(plain) != plain {
					t[k] = p.Redact.Clean(plain)
				}
				continue
			}
			t[k] = p.cleanPointers(e)
		}
	case []any:
		for i, e := range t {
			t[i] = p.cleanPointers(e)
		}
	}
	return v
}

var unescape = strings.NewReplacer("~1", "/", "~0", "~")
