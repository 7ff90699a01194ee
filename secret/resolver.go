package secret

import (
	"context"
	"log/slog"
	"os"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/toolkeep/toolkeep"
)

// envPrefix marks variables that tools may read.
const envPrefix = "TOOLKEEP_SECRET_"

// MaxBytes is the size limit of a secret.
const MaxBytes = 64 << 10

// Config says what references may reach. The zero value allows variables whose
// name starts with TOOLKEEP_SECRET_ and nothing else.
type Config struct {
	// EnvPrefix lists patterns of further variables that tools may read, such as "GITHUB_TOKEN" or "SHOP_*"
	// (path.Match syntax). Default none.
	EnvPrefix []string
	// Dirs lists absolute folders below which file references may read, each with one folder per tenant and
	// _shared. Default none; the server passes <data>/secrets.
	Dirs []string
	// LookupEnv reads a variable; nil is os.LookupEnv.
	LookupEnv func(name string) (string, bool)
	// Stores resolve the references of further schemes.
	Stores []Store
	// Minter exchanges secrets for access tokens; nil refuses the types that need it.
	Minter Minter
	// KeepLast, if set, seals values from stores, so that they serve for 24 h while the store is unreachable. nil
	// keeps nothing.
	KeepLast Sealing
	// Rotated is called when a call sees another version of a secret than the previous call ("picked_up"), and when
	// a rotated refresh token could not be stored ("failure").
	Rotated func(status string)
	Clock   func() time.Time // default time.Now
	Log     *slog.Logger     // default none
}

// Validate returns the first invalid setting as an error.
func (c Config) Validate() error {
	for _, p := range c.EnvPrefix {
		if _, err := path.Match(p, ""); err != nil || p == "" {
			return toolkeep.NewError(toolkeep.InvalidParameters, "the pattern %q of allowed environment variables cannot be read; use names such as GITHUB_TOKEN or SHOP_*", p)
		}
		if strings.Trim(p, "*?") == "" {
			return toolkeep.NewError(toolkeep.InvalidParameters, "the pattern %q would open every environment variable to tools; name them, for example SHOP_*", p)
		}
	}
	for _, d := range c.Dirs {
		if !path.IsAbs(d) {
			return toolkeep.NewError(toolkeep.InvalidParameters, "the secrets folder %q is not an absolute path", d)
		}
	}
	return nil
}

// Resolver resolves secret references. It is safe for concurrent use.
type Resolver struct {
	c        Config
	patterns []string
	dirs     []string
	lookup   func(string) (string, bool)
	stores   map[string]Store
	seen     *memory
	seldom   *slog.Logger // for lines that each call can cause
}

// New makes a Resolver. The error names the invalid setting.
func New(c Config) (*Resolver, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	if c.Clock == nil {
		c.Clock = time.Now
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	if c.Rotated == nil {
		c.Rotated = func(string) {}
	}
	r := &Resolver{c: c, patterns: slices.Clone(c.EnvPrefix), lookup: c.LookupEnv, stores: map[string]Store{}, seen: newMemory(), seldom: toolkeep.Seldom(c.Log, 1, nil)}
	for _, d := range c.Dirs {
		r.dirs = append(r.dirs, path.Clean(d))
	}
	if r.lookup == nil {
		r.lookup = os.LookupEnv
	}
	for _, s := range c.Stores {
		r.stores[s.Scheme()] = s
	}
	return r, nil
}

// NeedsStore reports whether a reference is read from a store of secrets, so that it cannot be
// read before the stores are there. "" is no reference.
func NeedsStore(ref string) bool {
	return ref != "" && !strings.HasPrefix(ref, "env://") && !strings.HasPrefix(ref, "file://")
}

// Resolve returns the value of a reference for the principal as text; see Fetch.
func (r *Resolver) Resolve(ctx context.Context, p *toolkeep.Principal, ref string) (string, error) {
	v, err := r.Fetch(ctx, p, ref)
	if err != nil {
		return "", err
	}
	defer v.Wipe()
	return v.Text(), nil
}

// Fetch returns the value of a reference for the principal, and its scope. It always reads now. A credential that a
// store makes for the call ends with ctx.
//
// Errors, all before anything is sent: E3401 there is no such secret, or the kind of reference is not available;
// E3402 this server does not allow tools or this tenant to read it; E3403 it could not be read (retryable).
func (r *Resolver) Fetch(ctx context.Context, p *toolkeep.Principal, ref string) (Value, error) {
	scheme, rest, err := r.parse(ctx, ref)
	if err != nil {
		return Value{}, err
	}
	s, stored := r.stores[scheme]
	if !stored {
		text, err := r.readOwn(p, scheme, rest, true)
		if err != nil {
			return Value{}, err
		}
		return Value{Bytes: []byte(text), Scope: Server, Store: scheme}, nil
	}
	v, err := s.Read(ctx, p, rest)
	if err == nil {
		r.noticed(p, ref, v)
		return v, nil
	}
	return r.lastGood(ctx, p, ref, toolkeep.AsError(err))
}

// Look reports what Fetch would find, without the value. Only Fetch detects a file whose content is unusable, such
// as an empty one.
//
// A missing or expired secret is a Status, not an error; E3402 and E3403 are as for Fetch.
func (r *Resolver) Look(ctx context.Context, p *toolkeep.Principal, ref string) (Status, error) {
	scheme, rest, err := r.parse(ctx, ref)
	if err == nil {
		if s, stored := r.stores[scheme]; stored {
			return s.Look(ctx, p, rest)
		}
		_, err = r.readOwn(p, scheme, rest, false)
	}
	st := Status{State: Ready, Scope: Server, Store: scheme}
	if toolkeep.IsCode(err, toolkeep.SecretNotFound) {
		st.State, err = Missing, nil
	}
	return st, err
}

// Check reports whether Resolve would return a value, without returning it.
func (r *Resolver) Check(ctx context.Context, p *toolkeep.Principal, ref string) error {
	scheme, rest, err := r.parse(ctx, ref)
	if err != nil {
		return err
	}
	s, stored := r.stores[scheme]
	if !stored {
		_, err := r.readOwn(p, scheme, rest, false)
		return err
	}
	st, err := s.Look(ctx, p, rest)
	switch {
	case err != nil:
		return err
	case st.State == Expired:
		return refuse(toolkeep.SecretNotFound, "the secret %s (scope %s) has expired; set a new one", shown(ref), st.Scope)
	case st.State == Unreadable:
		return unopened(shown(ref), st.Scope)
	case st.State != Ready:
		return refuse(toolkeep.SecretNotFound, "there is no secret %s that the caller may use", shown(ref))
	}
	return nil
}

// shown shortens a reference for display; manifests show it too.
func shown(ref string) string { return ref[:min(len(ref), 200)] }

func (r *Resolver) parse(ctx context.Context, ref string) (scheme, rest string, err error) {
	if err := ctx.Err(); err != nil {
		return "", "", refuse(toolkeep.Cancelled, "the call ended before its secret was read").Because(err)
	}
	scheme, rest, ok := strings.Cut(ref, "://")
	if !ok {
		return "", "", refuse(toolkeep.SecretNotFound, "a secret reference must look like secret://name, env://NAME or file:///path; put the secret itself into such a place and not into the manifest")
	}
	if _, stored := r.stores[scheme]; stored {
		return scheme, rest, nil
	}
	switch scheme {
	case "env", "file":
		return scheme, rest, nil
	case "vault":
		return "", "", refuse(toolkeep.SecretNotFound, "vault:// references need a Vault, and this server has none: set vault.address and vault.paths")
	case "secret":
		return "", "", refuse(toolkeep.SecretNotFound, "secret:// references are not available here: use env:// or file://")
	}
	return "", "", refuse(toolkeep.SecretNotFound, "the secret reference has an unknown scheme: use secret://, vault://, env:// or file://")
}

// readOwn reads env:// and file://. Without want it only checks.
func (r *Resolver) readOwn(p *toolkeep.Principal, scheme, rest string, want bool) (string, error) {
	if scheme == "env" {
		return r.readEnv(rest)
	}
	return r.readFile(p, rest, want)
}

func (r *Resolver) readEnv(name string) (string, error) {
	if !r.mayReadEnv(name) {
		return "", refuse(toolkeep.SecretAccessDenied, "tools may not read the environment variable %q: rename it to start with %s, or let the operator add its name to the allowed variables (secrets.env)", name, envPrefix)
	}
	value, ok := r.lookup(name)
	if !ok {
		return "", refuse(toolkeep.SecretNotFound, "the environment variable %q is not set where the server runs", name)
	}
	return checkValue(value, "env://"+name)
}

func (r *Resolver) mayReadEnv(name string) bool {
	if name == "" || strings.ContainsAny(name, "=/\x00") {
		return false
	}
	if len(name) > len(envPrefix) && strings.HasPrefix(name, envPrefix) {
		return true
	}
	return slices.ContainsFunc(r.patterns, func(p string) bool {
		ok, err := path.Match(p, name)
		return err == nil && ok
	})
}

// checkValue refuses values that can only be a mistake.
func checkValue(value, ref string) (string, error) {
	switch {
	case value == "":
		return "", refuse(toolkeep.SecretNotFound, "the secret %s is empty", ref)
	case len(value) > MaxBytes:
		return "", refuse(toolkeep.SecretRetrievalFailed, "the secret %s is over the limit of 64 KiB", ref)
	case strings.ContainsRune(value, 0):
		return "", refuse(toolkeep.SecretRetrievalFailed, "the secret %s holds a NUL byte; secrets are text", ref)
	}
	return value, nil
}

// Allowed reports whether the manifest may use the reference: if it lists permissions.credentials, the reference
// must be in the list (E3205). An empty list allows none.
func Allowed(m *toolkeep.Manifest, ref string) error {
	if m.Permissions == nil || m.Permissions.Credentials == nil || slices.Contains(m.Permissions.Credentials, ref) {
		return nil
	}
	return refuse(toolkeep.CredentialDenied, "the tool uses the secret %s, which its manifest's permissions.credentials does not list", ref)
}

func refuse(code toolkeep.Code, format string, args ...any) *toolkeep.Error {
	e := toolkeep.NewError(code, format, args...)
	e.NothingSent = true
	return e
}
