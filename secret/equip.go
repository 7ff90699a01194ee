package secret

import (
	"context"
	"encoding/base64"
	"encoding/hex"
	"encoding/pem"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/toolkeep/toolkeep"
)

// Minter exchanges the secret of an auth entry for an access token. tokenexchange.Minter implements it.
type Minter interface {
	// Mint returns the token, and the rotated refresh token to store in place of the secret's ("" for none). fresh
	// discards a kept token. E3402, E3403.
	Mint(ctx context.Context, p *toolkeep.Principal, allow []toolkeep.HostPort, spec toolkeep.AuthSpec, secret string, fresh bool) (token Value, rotated string, err error)
	// Stored says that a tenant's rotated refresh token was stored. Until then the Minter has the only copy.
	Stored(tenant, rotated string)
}

// Equipped is the credential that an executor sends for one auth entry.
type Equipped struct {
	Value    Value    // scope, store and version are the secret's; the caller wipes it
	Held     []string // all values to redact; set even on failure
	Warnings []toolkeep.Warning
}

// Credential reads the secret of an auth entry and, for minted types, obtains the access token. fresh asks for a
// new token because the upstream refused the last one. The credential is valid for one call and ends with its ctx.
//
// Errors are those of Fetch, all before anything is sent to the tool; and E3205 if the manifest's
// permissions.credentials does not list the secret.
func (r *Resolver) Credential(ctx context.Context, p *toolkeep.Principal, m *toolkeep.Manifest, spec toolkeep.AuthSpec, fresh bool) (Equipped, error) {
	if err := Allowed(m, spec.Secret); err != nil {
		return Equipped{}, err
	}
	v, err := r.Fetch(ctx, p, spec.Secret)
	if err != nil {
		return Equipped{}, err
	}
	e := Equipped{Value: v, Held: Parts(spec.Type, v.Text())}
	if !v.KeptSince.IsZero() {
		e.Warnings = append(e.Warnings, toolkeep.Warning{Code: toolkeep.SecretRetrievalFailed,
			Message: "the store of the tool's secret cannot be reached; the last value from it is used",
			Details: map[string]any{"read_at": v.KeptSince.UTC().Format(time.RFC3339), "scope": string(v.Scope), "store": v.Store}})
	}
	if !spec.Minted() {
		return e, nil
	}
	defer v.Wipe()
	if r.c.Minter == nil {
		return Equipped{Held: e.Held}, refuse(toolkeep.SecretAccessDenied, "access tokens for %s are not available on this server", spec.Type)
	}
	var allow []toolkeep.HostPort
	if m.Permissions != nil {
		allow = m.Permissions.Network
	}
	text := v.Text()
	token, rotated, err := r.c.Minter.Mint(ctx, p, allow, spec, text, fresh)
	if rotated != "" {
		e.Held = append(e.Held, rotated)
		r.keepRotated(ctx, p, spec.Secret, v, text, rotated)
	}
	if err != nil {
		return Equipped{Held: e.Held}, err
	}
	token.Scope, token.Store, token.Version, token.KeptSince = v.Scope, v.Store, v.Version, v.KeptSince
	e.Value, e.Held = token, append(e.Held, token.Text())
	return e, nil
}

// keepRotated stores a rotated refresh token in place of the old one. If that fails, the Minter uses the new one
// until the server stops.
func (r *Resolver) keepRotated(ctx context.Context, p *toolkeep.Principal, ref string, old Value, text, rotated string) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	scheme, rest, _ := strings.Cut(ref, "://")
	to, can := r.stores[scheme].(Replacer)
	value, err := withRefresh(text, rotated)
	if err == nil && can {
		defer clear(value)
		if err = to.Replace(ctx, p, rest, old, value); err == nil {
			r.c.Minter.Stored(p.Tenant, rotated)
			return
		}
	}
	r.c.Rotated("failure")
	r.c.Log.Error("an OAuth server replaced a refresh token and the new one could not be stored; a restart of the server loses it", "secret_hash", RefHash(ref), "store", scheme, "can_keep", can, "error", err)
}

// withRefresh returns the JSON secret with its refresh token replaced.
func withRefresh(text, token string) ([]byte, error) {
	var fields map[string]jsontext.Value
	if err := json.Unmarshal([]byte(text), &fields); err != nil {
		return nil, err
	}
	quoted, err := jsontext.AppendQuote(nil, token)
	if err != nil {
		return nil, err
	}
	fields["refresh_token"] = quoted
	return json.Marshal(fields, json.Deterministic(true))
}

// Parts returns the secret and its sensitive parts: the password of user:password and of connection strings, the keys
// and tokens in JSON, and PEM private keys as written, on one line, and line by line. kind is the auth type.
func Parts(kind, text string) []string {
	all := []string{text}
	if strings.HasPrefix(strings.TrimSpace(text), "{") {
		var fields map[string]any
		if json.Unmarshal([]byte(text), &fields) == nil {
			all = appendFields(all, fields, false)
			for _, field := range all[1:] {
				all = appendKeys(all, field)
			}
			return all
		}
	}
	switch kind {
	case "basic", "oauth2_client_credentials", "azure_ad", "oauth2_token_exchange", "oauth2_identity_assertion":
		if _, password, ok := strings.Cut(text, ":"); ok {
			all = append(all, password)
		}
	}
	return appendKeys(appendConnection(all, text), text)
}

// appendFields appends texts whose field, or a field above it, is named like a secret.
func appendFields(all []string, v any, named bool) []string {
	switch v := v.(type) {
	case string:
		if named {
			all = append(all, v)
		}
	case map[string]any:
		for _, name := range slices.Sorted(maps.Keys(v)) {
			all = appendFields(all, v[name], named && !publicField(name) || secretField(name))
		}
	case []any:
		for _, one := range v {
			all = appendFields(all, one, named)
		}
	}
	return all
}

// maxKeyLines limits how many lines of one PEM text are matched singly; an 8192-bit key has about a hundred.
const maxKeyLines = 200

// appendKeys appends the private keys in PEM text: base64 without line breaks in both alphabets, hex, and each
// line.
func appendKeys(all []string, text string) []string {
	if !strings.Contains(text, "PRIVATE KEY-----") {
		return all
	}
	lines := maxKeyLines
	for rest := []byte(text); ; {
		var block *pem.Block
		if block, rest = pem.Decode(rest); block == nil {
			return all
		}
		if !strings.HasSuffix(block.Type, "PRIVATE KEY") {
			continue
		}
		body := base64.StdEncoding.EncodeToString(block.Bytes)
		all = append(all, body, base64.RawURLEncoding.EncodeToString(block.Bytes), hex.EncodeToString(block.Bytes))
		for line := range strings.SplitSeq(text, "\n") {
			line = strings.TrimSpace(line)
			if len(line) >= 16 && lines > 0 && strings.Contains(body, line) {
				all = append(all, line)
				lines--
			}
		}
		clear(block.Bytes)
	}
}

// secretField reports whether a field of a JSON secret is secret, by its name.
func secretField(name string) bool {
	if publicField(name) {
		return false
	}
	name = strings.ToLower(name)
	for _, word := range []string{"secret", "token", "key", "pass", "credential"} {
		if strings.Contains(name, word) {
			return true
		}
	}
	return false
}

// publicField reports whether a field of a JSON secret is public, by its name.
func publicField(name string) bool {
	name = strings.ToLower(name)
	for _, end := range []string{"_id", "_uri", "_url", "_type", "username", "user"} {
		if strings.HasSuffix(name, end) {
			return true
		}
	}
	return false
}
