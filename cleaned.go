package toolkeep

import (
	"encoding/json"
	"strings"
)

// hidden replaces a credential in text.
const hidden = "[secret]"

// Cleaned removes the call's secrets from external text. The values of its credentials,
// including the password of a basic one, are removed even without a Cleaner. Values of
// fewer than 4 bytes stay, because they are common in ordinary text.
func (x *Execution) Cleaned(text string) string {
	if x.Clean != nil {
		text = x.Clean.Clean(text)
	}
	for _, c := range x.Credentials {
		text = without(text, c.Value)
		if c.Spec.Type == "basic" {
			_, password, _ := strings.Cut(c.Value, ":")
			text = without(text, password)
		}
	}
	return text
}

func without(text, secret string) string {
	if len(secret) < 4 {
		return text
	}
	return strings.ReplaceAll(text, secret, hidden)
}

// CleanedTree is Cleaned for the strings, names and numbers of a JSON tree, where no
// escaping can hide a secret. It modifies the tree, which must be the caller's own. A
// number that contains a secret becomes a string.
func (x *Execution) CleanedTree(v any) any {
	switch v := v.(type) {
	case string:
		return x.Cleaned(v)
	case json.Number:
		if s := x.Cleaned(v.String()); s != v.String() {
			return s
		}
	case []any:
		for i := range v {
			v[i] = x.CleanedTree(v[i])
		}
	case map[string]any:
		for name, el := range v {
			el = x.CleanedTree(el)
			if plain := x.Cleaned(name); plain != name {
				delete(v, name)
				name = plain
			}
			v[name] = el
		}
	}
	return v
}
