package capability

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/Masterminds/semver/v3"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/access/jwt"
	"github.com/toolkeep/toolkeep/canon"
)

// Bounds of a token's claims.
const (
	MaxText    = 256 // bytes of a name, pattern, host, range or secret
	MaxPath    = 4096
	MaxEntries = 100 // of each list
	MaxDepth   = 8   // tokens that one was made from
)

// Claims are what a token says.
type Claims struct {
	Grant     toolkeep.Grant
	Audience  []string // nil if absent
	IssuedAt  time.Time
	NotBefore time.Time // zero if absent
	Expires   time.Time
}

// claimsError says what is wrong with claims whose signature is valid.
type claimsError struct {
	code toolkeep.Code
	text string
}

func (e *claimsError) Error() string { return e.text }

func missing(claim string) error {
	return &claimsError{toolkeep.TokenClaimsMissing, "the capability token has no claim " + claim}
}

func unreadable(claim, format string, args ...any) error {
	return &claimsError{toolkeep.TokenInvalid, "the capability token's claim " + claim + " cannot be read: " + fmt.Sprintf(format, args...)}
}

// readClaims reads a payload. signed is what was signed, for the name of a token without one.
func readClaims(payload []byte, signed string) (*Claims, error) {
	m, err := canon.ParseObject(payload, canon.Limits{Bytes: jwt.MaxToken, Depth: 16})
	if err != nil {
		return nil, &claimsError{toolkeep.TokenInvalid, "the capability token's claims are not a JSON object whose members are unique"}
	}
	r := &reader{m: m}
	c := &Claims{}
	g := &c.Grant
	g.Issuer, g.Tenant, g.ID = r.text("iss"), r.text("tenant_id"), r.text("jti")
	g.Agent = r.text("agent_did")
	if sub := r.text("sub"); g.Agent == "" {
		g.Agent = sub
	} else if sub != "" && sub != g.Agent {
		r.fail(unreadable("sub", "it names another agent than agent_did"))
	}
	g.Tools = r.list(m, "tool_id", "tool_id", true, checkPattern)
	if g.Version = r.text("tool_version"); g.Version != "" {
		if _, err := semver.NewConstraint(g.Version); err != nil {
			r.fail(unreadable("tool_version", "it is not a range of versions such as ^1.2.0"))
		}
	}
	g.Operations = r.list(m, "allowed_operations", "allowed_operations", true, checkText)
	g.Parents = r.list(m, "parent_jtis", "parent_jtis", false, checkText)
	if len(g.Parents) > MaxDepth {
		r.fail(unreadable("parent_jtis", "it has more than %d tokens", MaxDepth))
	}
	c.Audience = r.list(m, "aud", "aud", true, checkText)
	r.permissions(g)
	for _, t := range []struct {
		claim string
		at    *time.Time
	}{{"iat", &c.IssuedAt}, {"nbf", &c.NotBefore}, {"exp", &c.Expires}} {
		if *t.at, err = jwt.Moment(m, t.claim); err != nil && !errors.Is(err, jwt.ErrNoClaim) {
			r.fail(unreadable(t.claim, "it must be a number of seconds since 1970"))
		}
	}
	if r.err != nil {
		return nil, r.err
	}
	for _, need := range []struct {
		claim string
		there bool
	}{{"tool_id", g.Tools != nil}, {"agent_did", g.Agent != ""}, {"tenant_id", g.Tenant != ""}, {"iat", !c.IssuedAt.IsZero()}, {"exp", !c.Expires.IsZero()}} {
		if !need.there {
			return nil, missing(need.claim)
		}
	}
	if g.ID == "" {
		sum := sha256.Sum256([]byte(signed))
		g.ID = "sha256-" + hex.EncodeToString(sum[:])
	}
	return c, nil
}

// reader reads claims; the first fault stays.
type reader struct {
	m   map[string]any
	err error
}

func (r *reader) fail(err error) {
	if r.err == nil {
		r.err = err
	}
}

// text reads a claim that is a text; "" if it is absent.
func (r *reader) text(claim string) string {
	v, there := r.m[claim]
	if !there {
		return ""
	}
	s, ok := v.(string)
	if err := checkText(s); !ok || err != nil {
		r.fail(unreadable(claim, "it must be text of 1 to %d bytes, without control characters and outer spaces", MaxText))
	}
	return s
}

// list reads a list of texts, or with single one text; nil if it is absent.
func (r *reader) list(m map[string]any, member, claim string, single bool, check func(string) error) []string {
	v, there := m[member]
	if !there {
		return nil
	}
	list, ok := v.([]any)
	if s, text := v.(string); text && single {
		list, ok = []any{s}, true
	}
	if !ok || len(list) > MaxEntries {
		r.fail(unreadable(claim, "%s must be a list of at most %d texts", member, MaxEntries))
		return nil
	}
	out := make([]string, 0, len(list))
	for _, e := range list {
		s, ok := e.(string)
		if !ok {
			r.fail(unreadable(claim, "%s must be a list of texts", member))
			return nil
		}
		if err := check(s); err != nil {
			r.fail(unreadable(claim, "an entry of %s %s", member, err))
			return nil
		}
		out = append(out, s)
	}
	return out
}

// object reads a claim that is an object with known members; nil if it is absent.
func (r *reader) object(claim string, known ...string) map[string]any {
	v, there := r.m[claim]
	if !there {
		return nil
	}
	m, ok := v.(map[string]any)
	if !ok {
		r.fail(unreadable(claim, "it must be an object with %s", strings.Join(known, ", ")))
		return nil
	}
	for name := range m {
		if !slices.Contains(known, name) {
			r.fail(unreadable(claim, "it has a member other than %s, which may narrow in a way that this server does not know", strings.Join(known, ", ")))
			return nil
		}
	}
	if _, there := m[known[0]]; !there {
		r.fail(unreadable(claim, "it has no %s", known[0]))
		return nil
	}
	return m
}

// permissions reads what the token allows besides tools.
func (r *reader) permissions(g *toolkeep.Grant) {
	if m := r.object("filesystem_permissions", "allowed_paths", "mode"); m != nil {
		g.Files = &toolkeep.FileGrant{Paths: r.list(m, "allowed_paths", "filesystem_permissions", false, checkPath)}
		mode, there := m["mode"]
		switch {
		case !there || mode == "ro":
		case mode == "rw":
			g.Files.Mode = "rw"
		default:
			r.fail(unreadable("filesystem_permissions", "mode must be ro or rw"))
		}
	}
	if m := r.object("network_permissions", "allowed_hosts", "allowed_ports"); m != nil {
		g.Network = &toolkeep.NetworkGrant{Hosts: r.list(m, "allowed_hosts", "network_permissions", false, checkHost), Ports: r.ports(m)}
	}
	if m := r.object("credential_permissions", "allowed_secrets"); m != nil {
		g.Secrets = &toolkeep.CredentialGrant{Secrets: r.list(m, "allowed_secrets", "credential_permissions", false, checkText)}
	}
}

func (r *reader) ports(m map[string]any) []int {
	v, there := m["allowed_ports"]
	if !there {
		return nil
	}
	list, ok := v.([]any)
	if !ok || len(list) > MaxEntries {
		r.fail(unreadable("network_permissions", "allowed_ports must be a list of at most %d numbers", MaxEntries))
		return nil
	}
	out := make([]int, 0, len(list))
	for _, e := range list {
		n, _ := e.(json.Number)
		p, err := n.Int64()
		if err != nil || p < 1 || p > 65535 {
			r.fail(unreadable("network_permissions", "a port must be a whole number from 1 to 65535"))
			return nil
		}
		out = append(out, int(p))
	}
	return out
}

// CheckID says what is wrong with a token's id.
func CheckID(id string) error { return checkText(id) }

func checkText(s string) error {
	if s == "" || len(s) > MaxText || !utf8.ValidString(s) || strings.ContainsFunc(s, unicode.IsControl) || strings.TrimSpace(s) != s {
		return fmt.Errorf("must be text of 1 to %d bytes, without control characters and outer spaces", MaxText)
	}
	return nil
}

func checkPattern(s string) error {
	if _, err := path.Match(s, ""); err != nil || checkText(s) != nil {
		return errors.New("must be a pattern on tool ids such as weather.* or weather.current")
	}
	return nil
}

func checkPath(s string) error {
	if len(s) > MaxPath || !path.IsAbs(s) || path.Clean(s) != s || !utf8.ValidString(s) || strings.ContainsFunc(s, unicode.IsControl) || strings.ContainsAny(s, "*?[]{}\\") {
		return errors.New(`must be an absolute path without "..", wildcards and a slash at its end`)
	}
	return nil
}

func checkHost(s string) error {
	name := strings.TrimPrefix(s, "*.")
	if checkText(s) != nil || name == "" || strings.ContainsAny(name, "*?[]/@ \\") || strings.Count(name, ":") == 1 {
		return errors.New("must be a host name, an address, or *.NAME, without a port")
	}
	return nil
}
