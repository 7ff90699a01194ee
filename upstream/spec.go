package upstream

import (
	"fmt"
	"maps"
	"math"
	"net/url"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/canon"
)

// DocumentKind is the kind of stored items whose bodies are specs; the item's id is the
// server's name, its tenant the owner.
const DocumentKind = "mcp_server"

// Transports of a server.
const (
	Stdio = "stdio" // a local program, lines over stdin and stdout
	HTTP  = "http"  // streamable HTTP
	SSE   = "sse"   // HTTP with server-sent events of revision 2024-11-05
)

// Session sharing of a server.
const (
	SessionShared    = "shared"    // one for each tenant
	SessionPrincipal = "principal" // one for each principal
	SessionCall      = "call"      // one for each call
)

// Reactions to a changed definition.
const (
	OnChangeHold     = "hold"     // the tool waits for review
	OnChangeAdditive = "additive" // a change that only adds is accepted
)

// Client capabilities that a server may use.
const (
	CapSampling    = "sampling"
	CapElicitation = "elicitation"
	CapRoots       = "roots"
)

// Defaults and limits of a Spec.
const (
	DefaultStartTimeout = 30 * time.Second
	DefaultCallTimeout  = 30 * time.Second
	DefaultIdleStop     = 10 * time.Minute
	DefaultPingEvery    = 30 * time.Second
	DefaultMaxSessions  = 32 // of stdio: each is a process
	DefaultMaxHTTP      = 1000
	DefaultMaxTools     = 10_000
	DefaultMaxBytes     = 100 << 20

	maxTimeout  = time.Hour
	maxIdle     = 30 * 24 * time.Hour
	maxSessions = 10_000
	maxTools    = 100_000
	maxBytes    = 1 << 30
	maxEntries  = 200     // of env, headers, network, roots, command
	maxValue    = 8 << 10 // bytes of one of them
	maxName     = 256     // bytes of the name of a variable or a header
)

// Spec says how to reach one server and what it may do. It does not change after Set.
type Spec struct {
	Name   string // ^[a-z][a-z0-9-]{0,31}$; also the namespace of its tools
	Tenant string // owner; "" belongs to all tenants. Not part of the body.

	Transport string // stdio, http or sse

	// For stdio. Values of Env are literals or secrets, see Secret.
	Command []string
	Env     map[string]string
	Dir     string // absolute working directory; "" is a private one

	// For http and sse. Values of Headers are literals or secrets, see Secret.
	URL     string
	Headers map[string]string
	Network []toolkeep.HostPort // inner addresses it may be reached at
	OAuth   *OAuth              // nil: the server's metadata suffices
	// Auth makes requests act for the caller, by a token that its own is exchanged for (AuthSpec.NeedsCaller); nil
	// for logins or headers.
	Auth *toolkeep.AuthSpec

	Session      string   // shared (default), principal, call
	Capabilities []string // of sampling, elicitation, roots; default none
	Roots        []Root   // answer to roots/list if roots is configured; empty: the downstream session's own
	OnChange     string   // hold (default), additive

	StartTimeout time.Duration // including the handshake; default 30 s, at most 1 h
	CallTimeout  time.Duration // of one request; default 30 s, at most 1 h
	IdleStop     time.Duration // a session ends after so long without work; default 10 min, negative never
	PingEvery    time.Duration // interval of pings in a quiet session; default 30 s, negative never

	MaxSessions    int   // at once, for all tenants together; one principal gets half of them; default 32 for stdio, 1000 for HTTP
	MaxResultBytes int64 // of one message; default 100 MB, at most 1 GiB
	MaxTools       int   // in each list; default 10,000

	Disabled bool
	Folder   string // name of the folder of configuration that it was applied from; "" without one

	// Registry is the entry of a registry that the definition was made from; nil for one that was written by hand.
	Registry *RegistryEntry
}

// RegistryEntry names a version of a server in a registry of MCP servers, and what the registry said of it then.
type RegistryEntry struct {
	URL     string `json:"url"`     // of the registry
	Name    string `json:"name"`    // of the server there
	Version string `json:"version"` // of the server
	Digest  string `json:"digest"`  // SHA-256 of the entry, "sha256:…"
}

// Root is one folder or address announced to a server.
type Root struct {
	URI  string `json:"uri"`
	Name string `json:"name,omitempty"`
}

// OAuth is what a login needs beyond the server's own metadata.
type OAuth struct {
	// ClientID and ClientSecret are a manual registration. The secret is a literal or a
	// reference, see Secret.
	ClientID     string `json:"client_id,omitempty"`
	ClientSecret string `json:"client_secret,omitempty"`
	// Scopes replace those that the server names.
	Scopes []string `json:"scopes,omitempty"`
}

// body is the JSON form. Durations are seconds, fractions allowed.
type body struct {
	Name           string              `json:"name,omitempty"`
	Transport      string              `json:"transport"`
	Command        []string            `json:"command,omitempty"`
	Env            map[string]string   `json:"env,omitempty"`
	Dir            string              `json:"dir,omitempty"`
	URL            string              `json:"url,omitempty"`
	Headers        map[string]string   `json:"headers,omitempty"`
	Network        []toolkeep.HostPort `json:"network,omitempty"`
	OAuth          *OAuth              `json:"oauth,omitempty"`
	Auth           *toolkeep.AuthSpec  `json:"auth,omitempty"`
	Session        string              `json:"session,omitempty"`
	Capabilities   []string            `json:"capabilities,omitempty"`
	Roots          []Root              `json:"roots,omitempty"`
	OnChange       string              `json:"on_change,omitempty"`
	StartTimeoutS  float64             `json:"start_timeout_s,omitzero"`
	CallTimeoutS   float64             `json:"call_timeout_s,omitzero"`
	IdleStopS      float64             `json:"idle_stop_s,omitzero"`
	PingS          float64             `json:"ping_s,omitzero"`
	MaxSessions    int                 `json:"max_sessions,omitzero"`
	MaxResultBytes int64               `json:"max_result_bytes,omitzero"`
	MaxTools       int                 `json:"max_tools,omitzero"`
	Disabled       bool                `json:"disabled,omitzero"`
	Folder         string              `json:"folder,omitempty"`
	Registry       *RegistryEntry      `json:"registry,omitempty"`
}

// ParseSpec reads the body of an item. It refuses unknown members; unset members keep
// their zero value, see Filled. The error is E3008 with details.errors, or that of
// canon.Parse if the text is not JSON.
func ParseSpec(name, tenant string, data []byte) (*Spec, error) {
	if _, err := canon.ParseObject(data, canon.Limits{}); err != nil {
		return nil, err
	}
	var b body
	if err := json.Unmarshal(data, &b, json.RejectUnknownMembers(true)); err != nil {
		return nil, toolkeep.FaultsError(toolkeep.InvalidManifest, "the definition of the MCP server cannot be read",
			[]toolkeep.Fault{decodeFault(err)})
	}
	s := &Spec{
		Name: name, Tenant: tenant, Transport: b.Transport, Command: b.Command, Env: b.Env, Dir: b.Dir,
		URL: b.URL, Headers: b.Headers, Network: b.Network, OAuth: b.OAuth, Auth: b.Auth,
		Session: b.Session, Capabilities: b.Capabilities, Roots: b.Roots, OnChange: b.OnChange,
		StartTimeout: seconds(b.StartTimeoutS), CallTimeout: seconds(b.CallTimeoutS),
		IdleStop: seconds(b.IdleStopS), PingEvery: seconds(b.PingS),
		MaxSessions: b.MaxSessions, MaxResultBytes: b.MaxResultBytes, MaxTools: b.MaxTools, Disabled: b.Disabled, Folder: b.Folder, Registry: b.Registry,
	}
	faults := s.Validate()
	if b.Name != "" && b.Name != name {
		faults = append(faults, toolkeep.Fault{Pointer: "/name", Rule: "const", Message: "the name must be that of the item, " + strconv.Quote(name)})
	}
	if len(faults) > 0 {
		return nil, toolkeep.FaultsError(toolkeep.InvalidManifest, "the definition of the MCP server is not valid", faults)
	}
	return s, nil
}

func decodeFault(err error) toolkeep.Fault {
	f := toolkeep.Fault{Rule: "type", Message: "a member is unknown or has the wrong type; docs/mcp-servers.md lists the members"}
	if s, ok := err.(*json.SemanticError); ok {
		f.Pointer = string(s.JSONPointer)
	}
	return f
}

// Body returns the JSON form that ParseSpec reads.
func (s *Spec) Body() []byte {
	b := body{
		Transport: s.Transport, Command: s.Command, Env: s.Env, Dir: s.Dir, URL: s.URL, Headers: s.Headers, Network: s.Network, OAuth: s.OAuth, Auth: s.Auth,
		Session: s.Session, Capabilities: s.Capabilities, Roots: s.Roots, OnChange: s.OnChange,
		StartTimeoutS: s.StartTimeout.Seconds(), CallTimeoutS: s.CallTimeout.Seconds(),
		IdleStopS: s.IdleStop.Seconds(), PingS: s.PingEvery.Seconds(),
		MaxSessions: s.MaxSessions, MaxResultBytes: s.MaxResultBytes, MaxTools: s.MaxTools, Disabled: s.Disabled, Folder: s.Folder, Registry: s.Registry,
	}
	// Maps are sorted, so that equal specs have equal bodies.
	data, err := json.Marshal(b, json.Deterministic(true))
	if err != nil {
		panic("upstream: a Spec holds text that is not UTF-8: " + err.Error()) // refused by Validate
	}
	return data
}

// seconds maps what no duration can hold to a value outside every limit.
func seconds(f float64) time.Duration {
	const most = float64(math.MaxInt64 / int64(time.Second))
	return time.Duration(min(max(f, -most), most) * float64(time.Second))
}

// Filled returns a copy with all defaults set.
func (s *Spec) Filled() *Spec {
	f := *s
	f.Env, f.Headers = maps.Clone(s.Env), maps.Clone(s.Headers)
	f.Command, f.Capabilities = slices.Clone(s.Command), slices.Clone(s.Capabilities)
	f.Network, f.Roots = slices.Clone(s.Network), slices.Clone(s.Roots)
	if s.OAuth != nil {
		o := *s.OAuth
		o.Scopes = slices.Clone(o.Scopes)
		f.OAuth = &o
	}
	orText(&f.Session, SessionShared)
	orText(&f.OnChange, OnChangeHold)
	orZero(&f.StartTimeout, DefaultStartTimeout)
	orZero(&f.CallTimeout, DefaultCallTimeout)
	orZero(&f.IdleStop, DefaultIdleStop)
	orZero(&f.PingEvery, DefaultPingEvery)
	if f.Transport == Stdio {
		orZero(&f.MaxSessions, DefaultMaxSessions)
	}
	orZero(&f.MaxSessions, DefaultMaxHTTP)
	orZero(&f.MaxResultBytes, DefaultMaxBytes)
	orZero(&f.MaxTools, DefaultMaxTools)
	return &f
}

func orText(v *string, otherwise string) {
	if *v == "" {
		*v = otherwise
	}
}

func orZero[T int | int64 | time.Duration](v *T, otherwise T) {
	if *v == 0 {
		*v = otherwise
	}
}

// may reports whether the server may use the client capability.
func (s *Spec) may(capability string) bool { return slices.Contains(s.Capabilities, capability) }

var (
	nameForm   = regexp.MustCompile(`^[a-z][a-z0-9-]{0,31}$`)
	envForm    = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)
	digestForm = regexp.MustCompile(`^sha256:[a-f0-9]{64}$`)
	headerForm = regexp.MustCompile("^[!#$%&'*+.^_`|~0-9A-Za-z-]+$")
)

// Validate returns the faults, with pointers into the body; nil if there are none.
func (s *Spec) Validate() []toolkeep.Fault {
	c := &checker{}
	if !nameForm.MatchString(s.Name) {
		c.fault("/name", "pattern", "a server's name is 1 to 32 small letters, digits and hyphens and begins with a letter")
	}
	switch s.Transport {
	case Stdio:
		c.stdio(s)
	case HTTP, SSE:
		c.http(s)
	default:
		c.fault("/transport", "enum", "the transport is stdio, http or sse")
	}
	c.choice("/session", s.Session, SessionShared, SessionPrincipal, SessionCall)
	c.choice("/on_change", s.OnChange, OnChangeHold, OnChangeAdditive)
	for i, k := range s.Capabilities {
		at := "/capabilities/" + strconv.Itoa(i)
		if k != CapSampling && k != CapElicitation && k != CapRoots {
			c.fault(at, "enum", "a capability is sampling, elicitation or roots")
		} else if slices.Index(s.Capabilities, k) != i {
			c.fault(at, "uniqueItems", "the capability stands twice")
		}
	}
	if err := toolkeep.CheckFolder(s.Folder); s.Folder != "" && err != nil {
		c.fault("/folder", "pattern", "%s", toolkeep.AsError(err).Message)
	}
	c.roots(s)
	if r := s.Registry; r != nil {
		for member, v := range map[string]string{"url": r.URL, "name": r.Name, "version": r.Version} {
			if v == "" || len(v) > maxName || strings.ToValidUTF8(v, "") != v {
				c.fault("/registry/"+member, "maxLength", "this must be 1 to %d bytes of UTF-8", maxName)
			}
		}
		if !digestForm.MatchString(r.Digest) {
			c.fault("/registry/digest", "pattern", "a digest is sha256: and 64 hex digits")
		}
	}
	c.duration("/start_timeout_s", s.StartTimeout, 0, maxTimeout)
	c.duration("/call_timeout_s", s.CallTimeout, 0, maxTimeout)
	c.duration("/idle_stop_s", s.IdleStop, -maxIdle, maxIdle)
	c.duration("/ping_s", s.PingEvery, -maxIdle, maxIdle)
	c.number("/max_sessions", int64(s.MaxSessions), maxSessions)
	c.number("/max_tools", int64(s.MaxTools), maxTools)
	c.number("/max_result_bytes", s.MaxResultBytes, maxBytes)
	return c.faults
}

type checker struct{ faults []toolkeep.Fault }

func (c *checker) fault(pointer, rule, format string, args ...any) {
	msg := format
	if len(args) > 0 {
		msg = fmt.Sprintf(format, args...)
	}
	c.faults = append(c.faults, toolkeep.Fault{Pointer: pointer, Rule: rule, Message: msg})
}

func (c *checker) absent(pointer, transport string, there bool) {
	if there {
		c.fault(pointer, "not", "this has no place in a server of the transport %s", transport)
	}
}

func (c *checker) choice(pointer, v string, of ...string) {
	if v != "" && !slices.Contains(of, v) {
		c.fault(pointer, "enum", "this must be one of %s", strings.Join(of, ", "))
	}
}

func (c *checker) duration(pointer string, d, least, most time.Duration) {
	if d < least || d > most {
		c.fault(pointer, "range", "this must be %g to %g seconds", least.Seconds(), most.Seconds())
	}
}

func (c *checker) number(pointer string, n, most int64) {
	if n < 0 || n > most {
		c.fault(pointer, "range", "this must be 1 to %d, or 0 for the default", most)
	}
}

// text refuses characters that are invalid in programs, headers and log lines.
func (c *checker) text(pointer, v string) {
	if len(v) > maxValue || strings.ContainsAny(v, "\x00") {
		c.fault(pointer, "maxLength", "this must have at most %d bytes and no NUL", maxValue)
	} else if strings.ToValidUTF8(v, "") != v {
		c.fault(pointer, "utf8", "this must be UTF-8")
	}
}

func (c *checker) count(pointer string, n int) {
	if n > maxEntries {
		c.fault(pointer, "maxItems", "at most %d entries are allowed", maxEntries)
	}
}

func (c *checker) stdio(s *Spec) {
	c.absent("/url", s.Transport, s.URL != "")
	c.absent("/headers", s.Transport, len(s.Headers) > 0)
	c.absent("/network", s.Transport, len(s.Network) > 0)
	c.absent("/oauth", s.Transport, s.OAuth != nil)
	c.absent("/auth", s.Transport, s.Auth != nil)
	if len(s.Command) == 0 || s.Command[0] == "" {
		c.fault("/command", "required", "a stdio server needs a command: the program and its arguments")
	}
	c.count("/command", len(s.Command))
	for i, arg := range s.Command {
		c.text("/command/"+strconv.Itoa(i), arg)
	}
	c.count("/env", len(s.Env))
	for name, v := range s.Env {
		at := "/env/" + canon.Escape(name)
		if !envForm.MatchString(name) || len(name) > maxName {
			c.fault(at, "pattern", "the name of a variable is letters, digits and underscores and begins with no digit")
		}
		c.value(at, v)
	}
	if s.Dir != "" && (!path.IsAbs(s.Dir) || path.Clean(s.Dir) != s.Dir) {
		c.fault("/dir", "format", "the working directory must be an absolute path without . and ..")
	}
	c.text("/dir", s.Dir)
}

func (c *checker) http(s *Spec) {
	c.absent("/command", s.Transport, len(s.Command) > 0)
	c.absent("/env", s.Transport, len(s.Env) > 0)
	c.absent("/dir", s.Transport, s.Dir != "")
	c.text("/url", s.URL)
	u, err := url.Parse(s.URL)
	switch {
	case err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "":
		c.fault("/url", "format", "the address must be an http or https URL with a host")
	case u.User != nil:
		c.fault("/url", "format", "the address must hold no user and no password; put them under headers as a secret")
	case u.Fragment != "":
		c.fault("/url", "format", "the address must have no fragment")
	}
	c.count("/headers", len(s.Headers))
	seen := make(map[string]bool, len(s.Headers))
	for name, v := range s.Headers {
		at := "/headers/" + canon.Escape(name)
		lower := strings.ToLower(name)
		switch {
		case !headerForm.MatchString(name) || len(name) > maxName:
			c.fault(at, "pattern", "this is not a name of an HTTP header")
		case reserved(lower):
			c.fault(at, "not", "this header is the transport's own")
		case seen[lower]:
			c.fault(at, "uniqueItems", "the header stands twice")
		case strings.ContainsAny(v, "\r\n"):
			c.fault(at, "pattern", "the value of a header must be one line")
		}
		seen[lower] = true
		c.value(at, v)
	}
	c.count("/network", len(s.Network))
	for i, h := range s.Network {
		if h.Host == "" || h.Port < 0 || h.Port > 65535 {
			c.fault("/network/"+strconv.Itoa(i), "format", "an address is a host and a port of 0 (any) to 65535")
		}
	}
	if s.OAuth != nil {
		c.oauth(s.OAuth, seen["authorization"])
	}
	if s.Auth != nil {
		c.auth(s, seen["authorization"])
	}
}

// auth checks what does not depend on the kind of exchange.
func (c *checker) auth(s *Spec, header bool) {
	a := s.Auth
	if !a.NeedsCaller() {
		c.fault("/auth/type", "enum", "the auth of a server is oauth2_token_exchange or oauth2_identity_assertion; other credentials belong under headers, or are logins")
	}
	if header || s.OAuth != nil {
		c.fault("/auth", "not", "a server has auth, or an Authorization header, or oauth")
	}
	if s.Session != SessionPrincipal && s.Session != SessionCall {
		c.fault("/session", "enum", "a server with auth acts for each caller: session must be principal or call")
	}
	if prefix, ref, ok := Secret(a.Secret); !ok || prefix != "" || strings.HasPrefix(ref, SealedScheme) || strings.HasPrefix(ref, KeptScheme) {
		c.fault("/auth/secret", "format", "the secret is a reference: secret://, vault://, env:// or file://")
	}
	c.value("/auth/secret", a.Secret)
	if a.In != "" || a.Name != "" || a.Prefix != "" {
		c.fault("/auth", "not", "the token goes into Authorization as a bearer; leave in, name and prefix out")
	}
	if _, also := a.Settings["also"]; also {
		c.fault("/auth/settings/also", "not", "a server has one credential")
	}
}

func (c *checker) oauth(o *OAuth, header bool) {
	if header {
		c.fault("/oauth", "not", "a server whose headers hold Authorization has no logins")
	}
	c.text("/oauth/client_id", o.ClientID)
	c.value("/oauth/client_secret", o.ClientSecret)
	if o.ClientSecret != "" && o.ClientID == "" {
		c.fault("/oauth/client_id", "required", "a client secret belongs to a client id")
	}
	c.count("/oauth/scopes", len(o.Scopes))
	for i, v := range o.Scopes {
		if v == "" || len(v) > maxName || strings.ContainsFunc(v, func(r rune) bool { return r <= ' ' || r >= 0x7f || r == '"' || r == '\\' }) {
			c.fault("/oauth/scopes/"+strconv.Itoa(i), "pattern", "a scope is visible ASCII without spaces, quotes and backslashes")
		}
	}
}

// value also refuses a secret reference that cannot be resolved.
func (c *checker) value(pointer, v string) {
	c.text(pointer, v)
	if _, ref, ok := Secret(v); ok && strings.HasSuffix(ref, "://") {
		c.fault(pointer, "format", "the secret reference names nothing")
	}
}

func (c *checker) roots(s *Spec) {
	if len(s.Roots) > 0 && !s.may(CapRoots) {
		c.fault("/roots", "dependentRequired", "roots are sent only to a server whose capabilities include roots")
	}
	c.count("/roots", len(s.Roots))
	for i, r := range s.Roots {
		at := "/roots/" + strconv.Itoa(i)
		if u, err := url.Parse(r.URI); err != nil || u.Scheme == "" {
			c.fault(at+"/uri", "format", "a root is a URI, such as file:///srv/data")
		}
		c.text(at+"/uri", r.URI)
		c.text(at+"/name", r.Name)
	}
}

// reserved reports headers that the protocol or HTTP itself sets.
func reserved(lower string) bool {
	switch lower {
	case "host", "content-length", "content-type", "accept", "connection", "transfer-encoding", "te", "trailer", "upgrade", "last-event-id":
		return true
	}
	return strings.HasPrefix(lower, "mcp-")
}

// sealed:// and kept:// stand for literals in stored definitions.
var schemes = []string{"env://", "file://", "secret://", "vault://", SealedScheme, KeptScheme}

// Secret reports whether a value of Env or Headers is a secret reference (env://,
// file://, secret://, vault://, sealed:// or kept://), alone or after one word and a
// space, as in "Bearer env://TOKEN"; prefix is then the word with its space. A literal
// that looks like a reference is written with "text:" before it, see literal.
func Secret(v string) (prefix, ref string, ok bool) {
	if strings.HasPrefix(v, literalMark) {
		return "", "", false
	}
	if i := strings.LastIndexByte(v, ' '); i > 0 && strings.IndexByte(v, ' ') == i {
		prefix, v = v[:i+1], v[i+1:]
	}
	for _, s := range schemes {
		if strings.HasPrefix(v, s) {
			return prefix, v, true
		}
	}
	return "", "", false
}

// SecretName reports whether a variable or header is named as secrets are. A value with such a name is taken out of results and
// logs even where it is short or a common word.
func SecretName(name string) bool { return secretName.MatchString(name) }

var secretName = regexp.MustCompile(`(?i)key|token|secret|passw|passphrase|(^|_)pass(_|$)|(^|_)pat(_|$)|pwd|auth|cred|cookie|session|signature|private|bearer|dsn|database_url|conn`)

const literalMark = "text:"

// literal returns the value of a literal.
func literal(v string) string { return strings.TrimPrefix(v, literalMark) }
