package invoke

import (
	"bytes"
	"encoding/json"
	"sync"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/canon"
	"github.com/toolkeep/toolkeep/redact"
	"github.com/toolkeep/toolkeep/schema"
)

// Arguments of format password, and those listed under redact in a manifest, are as
// secret as the tool's credentials: no answer, record, log line or progress repeats
// them. They are redacted only for their own call and its child calls, for the reason
// given at redact.Scope.

// textCleaner removes secrets from text and trees.
type textCleaner interface {
	Clean(text string) string
	CleanValue(v any) any
}

// withSensitive adds a call's secret arguments to a cleaner. Both kinds are searched at
// once: otherwise a caller could pass the middle of a secret and see its ends.
func (p *Pipeline) withSensitive(above *redact.Cleaner, t *toolkeep.Tool, args map[string]any) *redact.Cleaner {
	f := p.sensitive.of(t)
	if f == nil {
		return above
	}
	s := search{}
	if !schema.Applied(f.schema, args, func(v any, at map[string]any) {
		if at["format"] == "password" {
			s.all(v)
		}
	}) {
		s.all(args) // an endlessly recursive schema makes every argument secret
	}
	for _, names := range f.pointers {
		s.pointer(args, names)
	}
	if len(s.found) == 0 {
		return above
	}
	own := redact.NewSecrets(p.Clock)
	own.Hold(s.found...)
	return above.With(own)
}

const maxSensitiveTools = 8192

// sensitiveFields are the places of a tool's secret arguments; nil for none.
type sensitiveFields struct {
	schema   any // may contain "format": "password"
	pointers [][]string
}

// sensitiveTools caches them by tool digest, and is emptied when full.
type sensitiveTools struct {
	mu    sync.RWMutex
	known map[string]*sensitiveFields
}

func (k *sensitiveTools) of(t *toolkeep.Tool) *sensitiveFields {
	k.mu.RLock()
	f, ok := k.known[t.Digest]
	k.mu.RUnlock()
	if ok && t.Digest != "" {
		return f
	}
	f = sensitiveFieldsOf(t.Manifest)
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.known == nil || len(k.known) >= maxSensitiveTools {
		k.known = make(map[string]*sensitiveFields)
	}
	k.known[t.Digest] = f
	return f
}

func sensitiveFieldsOf(m *toolkeep.Manifest) *sensitiveFields {
	f := &sensitiveFields{}
	for _, pointer := range m.Redact {
		names, ok := canon.Tokens(pointer)
		if !ok {
			names = nil // unclear: every argument is secret
		}
		f.pointers = append(f.pointers, names)
	}
	// In JSON, any spelling of the word contains its letters or an escape.
	if bytes.Contains(m.ParametersSchema, []byte("password")) || bytes.IndexByte(m.ParametersSchema, '\\') >= 0 {
		if tree, err := canon.ParseObject(m.ParametersSchema, resultLimits); err == nil && mentions(tree) {
			f.schema = tree
		}
	}
	if f.schema == nil && len(f.pointers) == 0 {
		return nil
	}
	return f
}

// mentions reports whether the format occurs in the tree.
func mentions(v any) bool {
	switch v := v.(type) {
	case map[string]any:
		if v["format"] == "password" {
			return true
		}
		for _, el := range v {
			if mentions(el) {
				return true
			}
		}
	case []any:
		for _, el := range v {
			if mentions(el) {
				return true
			}
		}
	}
	return false
}

// search collects the secret texts of a call's arguments.
type search struct{ found []string }

// pointer finds what a manifest's redact names; "*" is every element of an array.
func (s *search) pointer(v any, names []string) {
	if len(names) == 0 {
		s.all(v)
		return
	}
	switch t := v.(type) {
	case map[string]any:
		if el, ok := t[names[0]]; ok {
			s.pointer(el, names[1:])
		}
	case []any:
		for i, el := range t {
			if n, ok := canon.Index(names[0], len(t)); names[0] == "*" || ok && n == i {
				s.pointer(el, names[1:])
			}
		}
	}
}

// all takes every text and number of a value.
func (s *search) all(v any) {
	switch v := v.(type) {
	case string:
		s.found = append(s.found, v)
	case json.Number:
		s.found = append(s.found, v.String())
	case map[string]any:
		for _, el := range v {
			s.all(el)
		}
	case []any:
		for _, el := range v {
			s.all(el)
		}
	}
}
