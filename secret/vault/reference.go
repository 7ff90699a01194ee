package vault

import (
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/toolkeep/toolkeep"
)

// reference is a parsed vault:// reference.
type reference struct {
	path    string // mount and path, decoded, without slashes at the ends
	key     string // field, "" is all
	version int    // of a KV version 2 secret, 0 is the latest
	ttl     string // passed to engines that accept it, such as aws/sts
}

const maxReference = 1024

// parseReference parses the text after vault://.
func parseReference(rest, prefix string, p *toolkeep.Principal) (reference, error) {
	var r reference
	if len(rest) > maxReference {
		return r, refuse(toolkeep.SecretNotFound, "the Vault reference is longer than %d bytes", maxReference)
	}
	rest, key, hasKey := strings.Cut(rest, "#")
	rest, query, _ := strings.Cut(rest, "?")
	bad := func() (reference, error) {
		return reference{}, refuse(toolkeep.SecretNotFound, "a Vault reference must look like vault://mount/path#field, with ?version=3 before the # for one version; this one does not")
	}
	if below, ok := strings.CutPrefix(rest, "./"); ok {
		top, ok := expand(strings.Trim(prefix, "/"), p)
		if !ok {
			return r, refuse(toolkeep.SecretAccessDenied, "the prefix of Vault references contains a tenant, workspace or subject, and the caller has none that can be part of a path")
		}
		rest = escapePath(top) + "/" + below
	}
	decoded, err := url.PathUnescape(rest)
	if err != nil {
		return bad()
	}
	if r.path = cleanPath(decoded); r.path == "" || !strings.Contains(r.path, "/") || strings.Count(decoded, "/") != strings.Count(rest, "/") {
		return bad()
	}
	if r.key, err = url.PathUnescape(key); err != nil || hasKey && !printable(r.key) {
		return bad()
	}
	if err := r.options(query); err != nil {
		return bad()
	}
	return r, nil
}

func (r *reference) options(query string) error {
	values, err := url.ParseQuery(query)
	if err != nil {
		return err
	}
	for name, v := range values {
		switch {
		case len(v) != 1:
			return strconv.ErrSyntax
		case name == "version":
			if r.version, err = strconv.Atoi(v[0]); err != nil || r.version < 1 {
				return strconv.ErrSyntax
			}
		case name == "ttl":
			if _, err := time.ParseDuration(v[0]); err != nil {
				return err
			}
			r.ttl = v[0]
		default:
			return strconv.ErrSyntax
		}
	}
	return nil
}

// String returns the reference without its field, for messages.
func (r reference) String() string { return "vault://" + escapePath(r.path) }

func escapePath(p string) string {
	parts := strings.Split(p, "/")
	for i := range parts {
		parts[i] = url.PathEscape(parts[i])
	}
	return strings.Join(parts, "/")
}

// cleanPath returns p if Vault and every proxy in between read each of its segments alike, else "".
func cleanPath(p string) string {
	if p == "" || !printable(p) {
		return ""
	}
	for s := range strings.SplitSeq(p, "/") {
		// Servers normalise trailing space and the other characters.
		if s == "" || s == "." || s == ".." || s != strings.TrimSpace(s) || strings.ContainsAny(s, `\*+?#%`) {
			return ""
		}
	}
	return p
}

func printable(s string) bool {
	return s != "" && !strings.ContainsFunc(s, func(r rune) bool { return !unicode.IsPrint(r) })
}

// prefix is one entry of Config.Paths.
type prefix struct {
	text  string // without a slash at its end
	below bool   // covers only paths below it
}

// never lists the mounts that hold no tool secrets.
var never = []string{"sys", "auth", "identity", "cubbyhole"}

func parsePrefix(text string) (prefix, error) {
	p := prefix{text: strings.TrimSuffix(text, "/"), below: strings.HasSuffix(text, "/")}
	plain := strings.NewReplacer("{tenant}", "t", "{workspace}", "w", "{subject}", "s").Replace(p.text)
	top, _, _ := strings.Cut(plain, "/")
	switch {
	case cleanPath(plain) == "" || strings.ContainsAny(plain, "{}"):
		return prefix{}, wrong("%q is not a path that tools may read in Vault; write such as secret/data/{tenant}/, with {tenant}, {workspace} and {subject} for the caller's", text)
	case strings.HasPrefix(p.text, "{"):
		return prefix{}, wrong("%q would let callers choose the mount; begin paths of Vault with a mount, such as secret/data/{tenant}/", text)
	case slices.Contains(never, top):
		return prefix{}, wrong("%q opens Vault's own %s/ to tools; it holds none of their secrets", text, top)
	}
	return p, nil
}

// covers reports whether the caller may read the API path.
func (p prefix) covers(apiPath string, caller *toolkeep.Principal) bool {
	text, ok := expand(p.text, caller)
	if !ok {
		return false
	}
	rest, ok := strings.CutPrefix(apiPath, text)
	return ok && (rest == "" && !p.below || strings.HasPrefix(rest, "/"))
}

// expand fills in the placeholders. ok is false if the caller lacks one of them, or its value is more than one path
// segment.
func expand(text string, caller *toolkeep.Principal) (string, bool) {
	if !strings.Contains(text, "{") {
		return text, true
	}
	var c toolkeep.Principal
	if caller != nil {
		c = *caller
	}
	for _, e := range []struct{ name, value string }{{"{tenant}", c.Tenant}, {"{workspace}", c.Workspace}, {"{subject}", c.Subject}} {
		if !strings.Contains(text, e.name) {
			continue
		}
		if cleanPath(e.value) == "" || strings.ContainsAny(e.value, "/{}") {
			return "", false
		}
		text = strings.ReplaceAll(text, e.name, e.value)
	}
	return text, true
}

func refuse(code toolkeep.Code, format string, args ...any) *toolkeep.Error {
	e := toolkeep.NewError(code, format, args...)
	e.NothingSent = true
	return e
}
