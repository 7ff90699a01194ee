package secret

import (
	"context"
	"os"
	"path"
	"slices"
	"strings"

	"github.com/toolkeep/toolkeep"
)

// envPrefix opens the variables that are meant for tools by their name.
const envPrefix = "TOOLKEEP_SECRET_"

// MaxBytes is the largest secret that is read.
const MaxBytes = 64 << 10

// Config says what references may reach. The zero value allows variables whose
// name starts with TOOLKEEP_SECRET_ and no files.
type Config struct {
	// EnvPrefix are patterns of further variables that tools may use, such as
	// "GITHUB_TOKEN" or "SHOP_*" (path.Match syntax). Default none.
	EnvPrefix []string
	// Dirs are absolute folders below which file references may read, each with
	// one folder a tenant and _shared. Default none; the server passes
	// <data>/secrets.
	Dirs []string
	// LookupEnv reads a variable; nil is os.LookupEnv.
	LookupEnv func(name string) (string, bool)
}

// Validate tells what is wrong with the settings.
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

// Resolver reads secrets. It is safe for concurrent use.
type Resolver struct {
	patterns []string
	dirs     []string
	lookup   func(string) (string, bool)
}

// New makes a Resolver, or says which setting is wrong.
func New(c Config) (*Resolver, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	r := &Resolver{patterns: slices.Clone(c.EnvPrefix), lookup: c.LookupEnv}
	for _, d := range c.Dirs {
		r.dirs = append(r.dirs, path.Clean(d))
	}
	if r.lookup == nil {
		r.lookup = os.LookupEnv
	}
	return r, nil
}

// Resolve gives the value of a reference for the principal.
//
// Errors, all before anything is sent: E3401 there is no such secret, or the
// kind of reference is not available; E3402 this server does not let tools or
// this tenant have it; E3403 it could not be read.
func (r *Resolver) Resolve(ctx context.Context, p *toolkeep.Principal, ref string) (string, error) {
	return r.read(ctx, p, ref, true)
}

// Check tells whether Resolve would give a value, without reading it. A file
// that is there but cannot be used for its content (such as an empty one) is
// found only by Resolve.
func (r *Resolver) Check(ctx context.Context, p *toolkeep.Principal, ref string) error {
	_, err := r.read(ctx, p, ref, false)
	return err
}

func (r *Resolver) read(ctx context.Context, p *toolkeep.Principal, ref string, want bool) (string, error) {
	if err := ctx.Err(); err != nil {
		return "", refuse(toolkeep.Cancelled, "the call ended before its secret was read").Because(err)
	}
	scheme, rest, ok := strings.Cut(ref, "://")
	if !ok {
		return "", refuse(toolkeep.SecretNotFound, "a secret reference must look like env://NAME or file:///path; put the secret itself into such a place and not into the manifest")
	}
	switch scheme {
	case "env":
		return r.readEnv(rest)
	case "file":
		return r.readFile(p, rest, want)
	case "secret", "vault":
		return "", refuse(toolkeep.SecretNotFound, "%s:// references are not available in this build: use env:// or file://", scheme)
	}
	return "", refuse(toolkeep.SecretNotFound, "the secret reference has an unknown scheme: use env:// or file://")
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

// checkValue refuses what can only be a mistake.
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

// Allowed tells whether the manifest may use the reference: where it lists
// permissions.credentials, the reference must be one of them (E3205). An empty
// list allows none.
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
