package upstream

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/redact"
)

// environment is all a stdio server sees of Toolkeep's environment: PATH, its own HOME
// and TMPDIR, the language, and what its spec lists.
type environment struct {
	vars    []string
	dir     string
	secrets []Value
}

// own returns a server's directory for a tenant. Tenant names are escaped: they may
// hold characters a path must not.
func (c *settings) own(tenant, name string) string {
	return filepath.Join(c.Dir, safeName(tenant), name)
}

// safeName writes everything but lower-case letters, digits, hyphens and single dots as
// hex, so that names cannot collide or escape the directory.
func safeName(s string) string {
	if s == "" {
		return "_"
	}
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		c := s[i]
		if c >= 'a' && c <= 'z' || c >= '0' && c <= '9' || c == '-' || c == '_' && i > 0 {
			b.WriteByte(c)
		} else {
			fmt.Fprintf(&b, ".%02x", c)
		}
	}
	name := b.String()
	if len(name) > 200 {
		return name[:150] + "." + shortSum(s)
	}
	return name
}

// prepare creates the directories and resolves the secrets.
func (s *server) prepare(ctx context.Context, k key, who *toolkeep.Principal) (*environment, error) {
	base := s.config.own(k.tenant, s.spec.Name)
	e := &environment{dir: s.spec.Dir}
	home, tmp, work := filepath.Join(base, "home"), filepath.Join(base, "tmp"), filepath.Join(base, "work")
	for _, d := range []string{home, tmp, work} {
		if err := os.MkdirAll(d, 0o700); err != nil {
			return nil, fmt.Errorf("%w: its folder cannot be made: %w", errNoStart, err)
		}
	}
	if e.dir == "" {
		e.dir = work
	}
	vars := map[string]string{"HOME": home, "TMPDIR": tmp, "TERM": "dumb",
		"PATH": cmp.Or(os.Getenv("PATH"), "/usr/local/bin:/usr/bin:/bin"), "LANG": cmp.Or(os.Getenv("LANG"), "C.UTF-8")}
	for name, v := range s.spec.Env {
		value, secret, err := s.resolve(ctx, principalOf(k, who), v)
		if err != nil {
			return nil, err
		}
		e.secrets = append(e.secrets, secret)
		vars[name] = value
	}
	for name, v := range vars {
		e.vars = append(e.vars, name+"="+v)
	}
	slices.Sort(e.vars)
	return e, nil
}

// resolve returns the value of an entry of Env or Headers, and its secret parts.
func (s *server) resolve(ctx context.Context, p *toolkeep.Principal, v string) (value string, secret Value, err error) {
	prefix, ref, ok := Secret(v)
	if !ok {
		return literal(v), Value{}, nil
	}
	if s.config.Secrets == nil {
		return "", Value{}, unsentError(toolkeep.NewError(toolkeep.SecretNotFound, "the MCP server %s needs a secret, and this process has no secrets", s.spec.Name))
	}
	secret, err = s.config.Secrets.Resolve(ctx, s.spec, p, ref)
	if err != nil {
		return "", Value{}, err
	}
	if strings.ContainsRune(secret.Text, 0) {
		return "", Value{}, errors.New("a secret holds a NUL byte")
	}
	return prefix + secret.Text, secret, nil
}

// hold registers a session's secrets for redaction in the scopes they concern, which
// include everyone who shares the session.
func (s *server) hold(k key, secrets []Value) (release func()) {
	all := make([]func(), 0, len(secrets))
	for _, v := range secrets {
		all = append(all, s.config.Redact.Hold(v.Scope.At(s.spec.upstream()), v.Held...))
		if of := v.Scope; of.Person != "" && of.Person != k.subject && of.Person != k.behalf {
			all = append(all, s.config.Redact.Hold(redact.Scope{Tenant: k.tenant, Person: k.subject, Upstream: s.spec.upstream()}, v.Held...))
		}
	}
	return func() {
		for _, release := range all {
			release()
		}
	}
}

// headers resolves the spec's headers.
func (s *server) headers(ctx context.Context, k key, who *toolkeep.Principal) (h http.Header, secrets []Value, err error) {
	h = make(http.Header, len(s.spec.Headers))
	for name, v := range s.spec.Headers {
		value, secret, err := s.resolve(ctx, principalOf(k, who), v)
		if err != nil {
			return nil, nil, err
		}
		secrets = append(secrets, secret)
		if strings.ContainsAny(value, "\r\n") {
			return nil, nil, toolkeep.NewError(toolkeep.SecretRetrievalFailed, "the secret for the header %s of the MCP server %s has more than one line", name, s.spec.Name)
		}
		h.Set(name, value)
	}
	return h, secrets, nil
}
