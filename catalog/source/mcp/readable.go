package mcp

import (
	"encoding/json"

	"github.com/toolkeep/toolkeep/canon"
	"github.com/toolkeep/toolkeep/promptscan"
)

// Readable returns a definition as JSON for a person: the invisible characters of its texts and names are escaped. It is nil
// for what is no JSON.
func Readable(definition []byte) []byte {
	v, err := canon.Parse(definition, canon.Limits{})
	if err != nil {
		return nil
	}
	raw, err := json.Marshal(readable(v))
	if err != nil {
		return nil
	}
	return raw
}

func readable(v any) any {
	switch v := v.(type) {
	case string:
		return promptscan.Visible(v)
	case []any:
		for i := range v {
			v[i] = readable(v[i])
		}
	case map[string]any:
		shown := make(map[string]any, len(v))
		for name, value := range v {
			shown[promptscan.Visible(name)] = readable(value)
		}
		return shown
	}
	return v
}
