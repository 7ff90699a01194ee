package vault

import (
	"bytes"
	"context"
	"errors"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/secret"
)

// Scheme is the scheme of the references.
const Scheme = "vault"

// Store reads vault:// references. It is safe for concurrent use and must be closed.
type Store struct {
	config Config
	paths  []prefix
	client *client
	mounts mounts
	leases leases
}

var _ secret.Store = (*Store)(nil)

// New makes a Store. The error names the invalid setting (E3008). It sends nothing to Vault: the first reference
// logs in.
func New(c Config) (*Store, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	c = c.filled()
	s := &Store{config: c}
	for _, text := range c.Paths {
		p, err := parsePrefix(text)
		if err != nil {
			return nil, err
		}
		s.paths = append(s.paths, p)
	}
	configured, err := parseMounts(c.Mounts)
	if err != nil {
		return nil, err
	}
	if s.client, err = newClient(c); err != nil {
		return nil, err
	}
	s.mounts = mounts{client: s.client, configured: configured, seen: make(map[string]mount)}
	s.leases = leases{client: s.client, held: make(map[*lease]struct{})}
	return s, nil
}

// Close revokes the leases in use and the login, until ctx ends. Requests in progress fail. It may be called more
// than once.
func (s *Store) Close(ctx context.Context) {
	s.leases.close(ctx)
	s.client.close(ctx)
}

// Scheme implements secret.Store.
func (s *Store) Scheme() string { return Scheme }

// Read returns the value of a reference. If Vault makes a credential for it, its lease is renewed while ctx lasts
// and revoked when ctx ends, so ctx must be that of the whole call.
//
// Errors, all before anything is sent to the tool: E3401 there is no such secret, version or field; E3402 no prefix
// of vault.paths covers it, Vault refuses it or this server's login, or it has expired; E3403 Vault is unreachable
// (retryable).
func (s *Store) Read(ctx context.Context, p *toolkeep.Principal, rest string) (secret.Value, error) {
	r, m, scope, err := s.resolve(ctx, p, rest)
	if err != nil {
		return secret.Value{}, err
	}
	if err := s.leases.full(); err != nil {
		return secret.Value{}, err
	}
	b, err := s.fetch(ctx, r, m)
	if err != nil {
		return secret.Value{}, err
	}
	defer clear(b)
	return s.value(ctx, r, m, scope, b)
}

// Look reports whether Read would return a value. It does not create credentials: for those it checks whether the
// login may. A missing secret is a Status, not an error; the errors are Read's.
func (s *Store) Look(ctx context.Context, p *toolkeep.Principal, rest string) (secret.Status, error) {
	r, m, scope, err := s.resolve(ctx, p, rest)
	st := secret.Status{State: "missing", Scope: scope, Store: Scheme}
	if err == nil && m.kv == 0 {
		if err = s.mayMake(ctx, r); err == nil {
			st.State = "ready"
		}
		return st, err
	}
	var v secret.Value
	if err == nil {
		v, err = s.Read(ctx, p, rest)
		v.Wipe()
	}
	st.Version, st.Expires = v.Version, v.Expires
	switch {
	case errors.Is(err, errExpired):
		st.State = "expired"
		return st, nil
	case toolkeep.IsCode(err, toolkeep.SecretNotFound):
		return st, nil
	case err == nil:
		st.State = "ready"
	}
	return st, err
}

// Health checks that Vault is reachable and unsealed, and that it accepts this server's token or last login: E3403 and
// E3402. It does not log in.
func (s *Store) Health(ctx context.Context) error {
	a, err := s.client.newAPI("")
	if err != nil {
		return err
	}
	_, err = get(ctx, "sys/health", map[string][]string{"standbyok": {"true"}, "perfstandbyok": {"true"}})(a.Logical())
	switch status(err) {
	case 0:
		if err != nil {
			return failed(ctx, "look at its health", err)
		}
	case http.StatusNotImplemented:
		return refuse(toolkeep.SecretRetrievalFailed, "Vault is not initialised").Because(cause(err))
	case http.StatusServiceUnavailable:
		return refuse(toolkeep.SecretRetrievalFailed, "Vault is sealed").Because(cause(err))
	}
	return s.client.health(ctx)
}

// resolve parses the reference and checks that the caller may read it.
func (s *Store) resolve(ctx context.Context, p *toolkeep.Principal, rest string) (reference, mount, secret.Scope, error) {
	r, err := parseReference(rest, s.config.Prefix, p)
	if err != nil {
		return r, mount{}, "", err
	}
	// Do not query Vault about a path that no mount could make allowed.
	if !s.thinkable(r.path, p) {
		return r, mount{}, "", s.outside(r.path)
	}
	m, err := s.mounts.find(ctx, r.path)
	if err != nil {
		return r, m, "", err
	}
	scope, ok := s.covered(m.apiPath(r.path), p)
	if !ok {
		return r, m, "", s.outside(m.apiPath(r.path))
	}
	return r, m, scope, nil
}

func (s *Store) outside(apiPath string) error {
	return refuse(toolkeep.SecretAccessDenied, "tools of this caller may not read %s in Vault: no path of vault.paths covers it", apiPath)
}

// thinkable reports whether some prefix covers the path, for any position of its mount.
func (s *Store) thinkable(p string, caller *toolkeep.Principal) bool {
	if _, ok := s.covered(p, caller); ok {
		return true
	}
	for i := range len(p) {
		if p[i] == '/' {
			if _, ok := s.covered(mount{path: p[:i], kv: 2}.apiPath(p), caller); ok {
				return true
			}
		}
	}
	return false
}

// covered returns the scope of the first prefix that covers the path.
func (s *Store) covered(apiPath string, p *toolkeep.Principal) (secret.Scope, bool) {
	for _, x := range s.paths {
		if x.covers(apiPath, p) {
			return x.scope(), true
		}
	}
	return "", false
}

// fetch reads the response for a reference; the caller wipes it.
func (s *Store) fetch(ctx context.Context, r reference, m mount) ([]byte, error) {
	params := map[string][]string{}
	if r.version > 0 {
		if m.kv != 2 {
			return nil, refuse(toolkeep.SecretNotFound, "%s has no versions: it is not a KV version 2 secret", r)
		}
		params["version"] = []string{strconv.Itoa(r.version)}
	}
	if r.ttl != "" {
		params["ttl"] = []string{r.ttl}
	}
	b, err := s.client.do(ctx, "read "+r.String(), get(ctx, m.apiPath(r.path), params))
	if toolkeep.IsCode(err, toolkeep.SecretNotFound) {
		s.mounts.forget(m)
	}
	return b, err
}

// reply is an API response.
type reply struct {
	LeaseID   string                    `json:"lease_id"`
	Duration  int64                     `json:"lease_duration"`
	Renewable bool                      `json:"renewable"`
	Data      map[string]jsontext.Value `json:"data"`
}

func (s *Store) value(ctx context.Context, r reference, m mount, scope secret.Scope, b []byte) (secret.Value, error) {
	var a reply
	if json.Unmarshal(b, &a) != nil {
		return secret.Value{}, malformed()
	}
	defer wipe(a.Data)
	v := secret.Value{Scope: scope, Store: Scheme}
	if a.LeaseID != "" { // held first, so that it is revoked whatever fails next
		v.Leased = true
		v.Expires = s.leases.hold(ctx, a.LeaseID, time.Duration(a.Duration)*time.Second, a.Renewable)
	}
	data := a.Data
	if m.kv == 2 {
		var err error
		if data, v.Version, err = unversioned(r, a.Data); err != nil {
			return secret.Value{}, err
		}
		defer wipe(data)
	}
	field, err := pick(r, data, a.LeaseID != "")
	if err != nil {
		return secret.Value{}, err
	}
	if at, ok := expiry(data); ok && field.seed {
		if v.Expires = at; !s.config.Now().Before(at) {
			return secret.Value{Version: v.Version, Expires: at}, refuse(toolkeep.SecretAccessDenied, "the credential %s expired at %s; put a new one there", r, at.UTC().Format(time.RFC3339)).Because(errExpired)
		}
	}
	switch {
	case len(field.bytes) == 0:
		return secret.Value{}, refuse(toolkeep.SecretNotFound, "the secret %s is empty", r)
	case len(field.bytes) > secret.MaxBytes:
		clear(field.bytes)
		return secret.Value{}, refuse(toolkeep.SecretRetrievalFailed, "the secret %s is over the limit of 64 KiB", r)
	}
	v.Bytes = field.bytes
	return v, nil
}

var errExpired = errors.New("the credential's own expires_at has passed")

// unversioned unwraps the secret from a KV version 2 response.
func unversioned(r reference, wrapped map[string]jsontext.Value) (map[string]jsontext.Value, string, error) {
	var meta struct {
		Version int `json:"version"`
	}
	var data map[string]jsontext.Value
	if len(wrapped["metadata"]) > 0 && json.Unmarshal(wrapped["metadata"], &meta) != nil {
		return nil, "", malformed()
	}
	if len(wrapped["data"]) > 0 && json.Unmarshal(wrapped["data"], &data) != nil {
		return nil, "", malformed()
	}
	if data == nil {
		return nil, "", refuse(toolkeep.SecretNotFound, "version %d of %s was deleted", meta.Version, r)
	}
	return data, strconv.Itoa(meta.Version), nil
}

// field is the value of a reference.
type field struct {
	bytes []byte
	seed  bool // from a credential in Platform's form
}

// nameOf returns the field of a reference: the named one, the value of a credential in Platform's form (5.1.6), or
// the only one; "" for all.
func nameOf(r reference, data map[string]jsontext.Value) string {
	switch {
	case r.key != "":
		return r.key
	case seedForm(data):
		return "credential_value"
	case len(data) == 1:
		for name := range data {
			return name
		}
	}
	return ""
}

func seedForm(data map[string]jsontext.Value) bool {
	_, typed := data["credential_type"]
	_, valued := data["credential_value"]
	return typed && valued
}

// pick returns the referenced value; for an engine's response without a named field, that is all fields.
func pick(r reference, data map[string]jsontext.Value, leased bool) (field, error) {
	name := nameOf(r, data)
	if name == "" || leased && r.key == "" {
		return field{bytes: whole(data)}, nil
	}
	if first, second, ok := strings.Cut(name, ":"); ok && data[name] == nil {
		return joined(r, data, first, second)
	}
	b, err := textOf(r, data, name)
	return field{bytes: b, seed: name == "credential_value" && seedForm(data)}, err
}

// joined returns two fields with a colon between them, as auth of type basic needs.
func joined(r reference, data map[string]jsontext.Value, first, second string) (field, error) {
	a, err := textOf(r, data, first)
	if err != nil {
		return field{}, err
	}
	defer clear(a)
	b, err := textOf(r, data, second)
	if err != nil {
		return field{}, err
	}
	defer clear(b)
	if bytes.IndexByte(a, ':') >= 0 {
		return field{}, refuse(toolkeep.SecretNotFound, "the field %q of the secret %s holds a colon and cannot stand before one", first, r)
	}
	return field{bytes: slices.Concat(a, []byte(":"), b)}, nil
}

// textOf returns one field: text as is, a number or nested JSON as written.
func textOf(r reference, data map[string]jsontext.Value, name string) ([]byte, error) {
	raw, ok := data[name]
	if !ok || raw.Kind() == 'n' {
		return nil, refuse(toolkeep.SecretNotFound, "the secret %s has no field %q", r, name)
	}
	if raw.Kind() != '"' {
		return bytes.Clone(raw), nil
	}
	b, err := jsontext.AppendUnquote(nil, raw)
	if err != nil {
		clear(b)
		return nil, malformed()
	}
	return b, nil
}

// whole writes all fields as one JSON object, sorted by name.
func whole(data map[string]jsontext.Value) []byte {
	b, err := json.Marshal(data, json.Deterministic(true))
	if err != nil {
		return nil
	}
	return b
}

// expiry returns when a credential in Platform's form expires.
func expiry(data map[string]jsontext.Value) (time.Time, bool) {
	var text string
	if raw := data["expires_at"]; len(raw) == 0 || json.Unmarshal(raw, &text) != nil {
		return time.Time{}, false
	}
	at, err := time.Parse(time.RFC3339, text)
	return at, err == nil
}

func wipe(data map[string]jsontext.Value) {
	for _, raw := range data {
		clear(raw)
	}
}

// mayMake checks that the login may read what an engine would have to make.
func (s *Store) mayMake(ctx context.Context, r reference) error {
	b, err := s.client.do(ctx, "see its rights on "+r.String(), put(ctx, "sys/capabilities-self", map[string]any{"paths": []string{r.path}}))
	if err != nil {
		return err
	}
	defer clear(b)
	var a struct {
		Capabilities []string `json:"capabilities"`
	}
	if json.Unmarshal(b, &a) != nil {
		return malformed()
	}
	for _, c := range a.Capabilities {
		if c == "read" || c == "root" || c == "sudo" {
			return nil
		}
	}
	return refuse(toolkeep.SecretAccessDenied, "Vault does not let this server read %s: its policy must allow it", r)
}

// scope returns the scope of the secrets under a prefix.
func (p prefix) scope() secret.Scope {
	switch {
	case strings.Contains(p.text, "{subject}"):
		return "user"
	case strings.Contains(p.text, "{workspace}"):
		return "workspace"
	case strings.Contains(p.text, "{tenant}"):
		return "organisation"
	}
	return "server"
}
