package servers

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"maps"
	"slices"
	"strings"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/redact"
	"github.com/toolkeep/toolkeep/secret"
	"github.com/toolkeep/toolkeep/upstream"
)

// Credentials are what servers are reached with: the values of their definitions, which
// lie sealed in the store, secrets that the definitions refer to, and logins.
type Credentials struct {
	Secrets Secrets
	Sealer  upstream.Sealer
	Logins  Logins
	// Minter and Redact are for servers that act for their callers.
	Minter secret.Minter
	Redact *redact.Redactor
}

// Resolve implements upstream.Secrets. What stands in a definition is chosen by those who
// may change it: the administrators of the tenant whose server it is, and those of the
// home tenant for a server of all. E3401, and what secret.Resolver.Fetch answers.
func (c *Credentials) Resolve(ctx context.Context, spec *upstream.Spec, p *toolkeep.Principal, ref string) (upstream.Value, error) {
	text, hide := strings.CutPrefix(ref, upstream.SealedScheme)
	kept := false
	if !hide {
		text, kept = strings.CutPrefix(ref, upstream.KeptScheme)
	}
	if !hide && !kept {
		v, err := c.Secrets.Fetch(ctx, p, ref)
		if err != nil {
			return upstream.Value{}, err
		}
		defer v.Wipe()
		text := v.Text()
		return upstream.Value{Text: text, Held: secret.Parts("", text), Scope: v.Scope.RedactionScope(p)}, nil
	}
	raw, err := base64.RawURLEncoding.DecodeString(text)
	if err == nil {
		raw, err = c.Sealer.Open(raw, upstream.SealedValue)
	}
	if err != nil {
		return upstream.Value{}, toolkeep.NewError(toolkeep.SecretNotFound, "a value of the MCP server's definition cannot be opened; import the server again with its values").Because(err)
	}
	v := upstream.Value{Text: string(raw), Scope: redact.Scope{Tenant: spec.Tenant}}
	if hide || !ordinary(v.Text) {
		v.Held = secret.Parts("", v.Text)
		if _, word, two := strings.Cut(v.Text, " "); two { // behind Bearer or Basic
			v.Held = append(v.Held, word)
		}
	}
	return v, nil
}

// leastHidden is how many bytes a literal value has at least that is taken out of results although its
// name does not say that it is secret.
const leastHidden = 8

// wellKnown are values that are no secret and that ordinary results hold.
var wellKnown = []string{
	"production", "development", "localhost", "127.0.0.1", "disabled", "anonymous", "readonly", "read-only", "read-write", "warnings",
	"critical", "standard", "us-east-1", "us-west-2", "eu-west-1", "eu-central-1", "c.utf-8", "en_us.utf-8", "en_gb.utf-8", "de_de.utf-8",
	"application/json", "application/xml", "text/plain", "text/html", "text/event-stream", "application/json, text/event-stream", "*/*", "no-cache", "keep-alive",
	"gzip, deflate", "gzip, deflate, br", "http://localhost", "https://localhost", "streamable-http", "stateless", "postgres", "postgresql", "password", "username",
}

// ordinary tells whether a literal value of a server's environment or headers may stay in results:
// NODE_ENV=production would otherwise black out each result with that word.
func ordinary(value string) bool {
	value = strings.TrimSpace(value)
	return len(value) < leastHidden || slices.Contains(wellKnown, strings.ToLower(value))
}

// value resolves a value of a definition.
func (c *Credentials) value(ctx context.Context, spec *upstream.Spec, p *toolkeep.Principal, v string) (string, error) {
	prefix, ref, ok := upstream.Secret(v)
	if !ok {
		return strings.TrimPrefix(v, "text:"), nil
	}
	resolved, err := c.Resolve(ctx, spec, p, ref)
	return prefix + resolved.Text, err
}

// hidden stands for a literal value that is not shown.
const hidden = "(hidden)"

func isSealed(v string) bool {
	return strings.Contains(v, upstream.SealedScheme) || strings.Contains(v, upstream.KeptScheme)
}

// seal seals the literal values of environment, headers and login. hidden takes the
// value that was there before. E3301.
func (c *Credentials) seal(spec, before *upstream.Spec) error {
	if before == nil {
		before = &upstream.Spec{}
	}
	sealAll := func(now, old map[string]string) error {
		for k, v := range now {
			sealed, err := c.sealOne(k, v, old[k])
			if err != nil {
				return err
			}
			now[k] = sealed
		}
		return nil
	}
	if err := errors.Join(sealAll(spec.Env, before.Env), sealAll(spec.Headers, before.Headers)); err != nil || spec.OAuth == nil || spec.OAuth.ClientSecret == "" {
		return err
	}
	was := ""
	if before.OAuth != nil {
		was = before.OAuth.ClientSecret
	}
	login := *spec.OAuth
	var err error
	login.ClientSecret, err = c.sealOne("oauth.client_secret", login.ClientSecret, was)
	spec.OAuth = &login
	return err
}

func (c *Credentials) sealOne(name, v, before string) (string, error) {
	if _, _, ref := upstream.Secret(v); ref {
		if isSealed(v) {
			return "", toolkeep.NewError(toolkeep.InvalidParameters, "%s: a value cannot begin with %s or %s; write the value itself", name, upstream.SealedScheme, upstream.KeptScheme)
		}
		return v, nil
	}
	if v == hidden {
		if before == "" {
			return "", toolkeep.NewError(toolkeep.InvalidParameters, "%s is %s, and there was no value before; write the value itself", name, hidden)
		}
		return before, nil
	}
	// A password has no look of its own, so that all values are sealed and hidden.
	scheme := upstream.KeptScheme
	if upstream.SecretName(name) {
		scheme = upstream.SealedScheme
	}
	sealed, err := c.Sealer.Seal([]byte(strings.TrimPrefix(v, "text:")), upstream.SealedValue)
	if err != nil {
		return "", err
	}
	return scheme + base64.RawURLEncoding.EncodeToString(sealed), nil
}

// same tells whether a definition is that of a stored one, whose literal values are sealed. What it leaves to the server, its
// session, and the folder of either do not count.
func (c *Credentials) same(now, before *upstream.Spec) bool {
	a, b := *now.Filled(), *before.Filled()
	if now.Session == "" {
		a.Session = b.Session
	}
	a.Folder, b.Folder = "", ""
	// literal is how both write a value that is no reference.
	literal := func(v string) string {
		if _, _, ref := upstream.Secret(v); ref || v == hidden {
			return v
		}
		return "text:" + strings.TrimPrefix(v, "text:")
	}
	plain := func(now, old string) string {
		switch {
		case !isSealed(old):
			return old
		case now == hidden: // it stays
			return hidden
		}
		raw, err := base64.RawURLEncoding.DecodeString(strings.TrimPrefix(strings.TrimPrefix(old, upstream.SealedScheme), upstream.KeptScheme))
		if err == nil {
			raw, err = c.Sealer.Open(raw, upstream.SealedValue)
		}
		if err != nil {
			return old
		}
		return "text:" + string(raw)
	}
	each := func(now, old map[string]string) (map[string]string, map[string]string) {
		now, old = maps.Clone(now), maps.Clone(old)
		for k, v := range now {
			now[k] = literal(v)
			if was, has := old[k]; has {
				old[k] = plain(v, was)
			}
		}
		return now, old
	}
	a.Env, b.Env = each(a.Env, b.Env)
	a.Headers, b.Headers = each(a.Headers, b.Headers)
	if a.OAuth != nil && b.OAuth != nil {
		login, stored := *a.OAuth, *b.OAuth
		login.ClientSecret, stored.ClientSecret = literal(login.ClientSecret), plain(login.ClientSecret, stored.ClientSecret)
		a.OAuth, b.OAuth = &login, &stored
	}
	return bytes.Equal(a.Body(), b.Body())
}

// withoutValues is a spec's body without literal values.
func withoutValues(spec *upstream.Spec) []byte {
	show := *spec
	hide := func(m map[string]string) map[string]string {
		out := maps.Clone(m)
		for k, v := range out {
			if isSealed(v) {
				out[k] = hidden
			}
		}
		return out
	}
	show.Env, show.Headers = hide(spec.Env), hide(spec.Headers)
	if spec.OAuth != nil && isSealed(spec.OAuth.ClientSecret) {
		login := *spec.OAuth
		login.ClientSecret = hidden
		show.OAuth = &login
	}
	return show.Body()
}
