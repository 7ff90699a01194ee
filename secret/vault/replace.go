package vault

import (
	"context"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/secret"
)

var _ secret.Replacer = (*Store)(nil)

// Replace writes value over old as a new version of a KV version 2 secret and keeps the other fields. A value that
// has changed since old was read stays, without an error. The policy needs update on the path.
//
// E3402 Vault refuses, or the secret cannot be replaced: an engine's credential, a KV version 1 secret, or a fixed
// version of a secret; otherwise the errors of Read.
func (s *Store) Replace(ctx context.Context, p *toolkeep.Principal, rest string, old secret.Value, value []byte) error {
	r, m, _, err := s.resolve(ctx, p, rest)
	if err != nil {
		return err
	}
	if m.kv != 2 || r.version != 0 {
		return refuse(toolkeep.SecretAccessDenied, "%s cannot be replaced: only the latest version of a KV version 2 secret can", r)
	}
	b, err := s.fetch(ctx, r, m)
	if err != nil {
		return err
	}
	defer clear(b)
	var a reply
	if json.Unmarshal(b, &a) != nil {
		return malformed()
	}
	defer wipe(a.Data)
	data, version, err := unversioned(r, a.Data)
	if err != nil {
		return err
	}
	defer wipe(data)
	if version != old.Version {
		return nil
	}
	if data, err = replaced(r, data, value); err != nil {
		return err
	}
	cas, err := strconv.Atoi(version)
	if err != nil {
		return malformed()
	}
	answer, err := s.client.do(ctx, "replace "+r.String(), put(ctx, m.apiPath(r.path),
		map[string]any{"options": map[string]any{"cas": cas}, "data": data}))
	clear(answer)
	if toolkeep.IsCode(err, toolkeep.SecretNotFound) { // 400: the version check failed
		return nil
	}
	return err
}

// replaced returns the fields with value in place of the referenced one.
func replaced(r reference, data map[string]jsontext.Value, value []byte) (map[string]jsontext.Value, error) {
	name := nameOf(r, data)
	if name == "" { // all fields
		var whole map[string]jsontext.Value
		if json.Unmarshal(value, &whole) != nil {
			return nil, refuse(toolkeep.SecretAccessDenied, "%s cannot be replaced: it has several fields, and the new value is not a JSON object", r)
		}
		return whole, nil
	}
	if strings.Contains(name, ":") && data[name] == nil {
		return nil, refuse(toolkeep.SecretAccessDenied, "%s cannot be replaced: it is two fields", r)
	}
	text, err := jsontext.AppendQuote(nil, value)
	if err != nil {
		return nil, refuse(toolkeep.SecretAccessDenied, "%s cannot be replaced: the new value is not text", r)
	}
	data[name] = text
	return data, nil
}
