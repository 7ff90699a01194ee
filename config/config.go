// Package config holds the settings of the server: what they are, where they come
// from, and which of them this build refuses.
//
// A setting is looked for in the flags, the environment, the YAML file and the
// defaults, in this order. Every name of the configuration schemas of the source
// documents is accepted; what this build does with each is the table in
// docs/configuration.md, which is made from the same rows as the reading. An
// unknown name, and a value that asks for something this build cannot do, refuse
// the start.
package config

import (
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"net/url"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/access"
)

// Config is every setting. Load fills it; the zero value is not a usable one.
// docs/configuration.md has the defaults and names.
type Config struct {
	Data     string // directory of all that is kept
	Service  Service
	HTTP     HTTP
	GRPC     GRPC
	MCP      MCP
	Metrics  Metrics
	TLS      TLS
	Access   Access
	OAuth    OAuth
	Log      Log
	Limits   Limits
	Calls    Calls
	Cache    Cache
	Catalog  Catalog
	Store    Store
	Redis    Redis
	Secrets  Secrets
	Vault    Vault
	Search   Search
	Egress   Egress
	Files    Files
	SQL      SQL
	Context  Context
	Examples Examples
	Drain    Drain

	// Notes are settings that were set and have no effect in this build, a sentence each.
	Notes []string

	read *reading
}

// Service is what the server says about itself.
type Service struct {
	Name        string
	Version     string // "" is the version of the program
	Environment string // development, staging, production, or "" for none
}

// HTTP is the face for REST, health and all else over HTTP.
type HTTP struct {
	Addr          string   // host:port
	MaxBody       int64    // bytes of a request's body
	MaxDepth      int      // nesting of a body's JSON
	MaxProperties int      // properties in all objects of a body
	MaxHeader     int      // bytes of all headers of a request
	MaxKey        int      // bytes of a key or id
	Hosts         []string // further names under which the server is reached
	PublicURL     string   // where people and other machines reach it; "" is where it listens
	PeerURL       string   // where other nodes on the store reach it; "" is where it listens
}

// MCP is the face for MCP clients.
type MCP struct {
	View        string   // what /mcp shows: all, search or auto
	AutoTools   int      // visible tools that auto lists whole
	SetsFile    string   // YAML with the sets at /mcp/sets/{name}
	Origins     []string // web origins whose pages may use it from a browser
	SessionIdle time.Duration
	Sessions    int // in all
	// StdioTenants are those besides the home tenant that may have programs started.
	StdioTenants []string
}

// GRPC is the face for gRPC. The limits of HTTP are its limits too.
type GRPC struct {
	Addr string // host:port; "" or off opens no listener
}

// Enabled tells whether the face is opened.
func (g GRPC) Enabled() bool { return g.Addr != "" && g.Addr != "off" }

// Metrics is the face for Prometheus.
type Metrics struct {
	Addr     string
	MaxTools int // tool ids with series of their own
}

// TLS names the certificate and key files of all listeners, PEM.
type TLS struct {
	Cert, Key string
	ClientCA  string // of who may sign clients' certificates; "" asks for none
}

// Enabled tells whether the listeners speak TLS.
func (t TLS) Enabled() bool { return t.Cert != "" && t.Key != "" }

// Access says who may come in.
type Access struct {
	// Method is how callers authenticate; "" is api_key, and must be named where
	// the server listens beyond loopback.
	Method    string
	Mode      string // which checks must pass
	RolesFile string // YAML with own roles
	Roles     []byte // YAML of the configuration file's own roles, nil without any
}

// OAuth says whose access tokens are taken beside API keys.
type OAuth struct {
	Issuer         string   // "" takes none
	Audience       []string // none is the server's public URL
	JWKSURL        string   // "" is what the issuer's metadata says
	SubjectClaim   string
	TenantClaim    string
	DefaultTenant  string   // of tokens without TenantClaim; "" refuses them
	WorkspaceClaim string   // "" takes no workspace from tokens
	Scopes         []string // scope=role each, see Roles
}

// Enabled tells whether tokens are taken.
func (o OAuth) Enabled() bool { return o.Issuer != "" }

// Roles gives the role of each scope. Names of scopes may hold =, those of roles
// do not. What Validate refuses is left out.
func (o OAuth) Roles() map[string]string {
	m := make(map[string]string, len(o.Scopes))
	for _, s := range o.Scopes {
		if i := strings.LastIndexByte(s, '='); i > 0 && i < len(s)-1 {
			m[s[:i]] = s[i+1:]
		}
	}
	return m
}

// oauth checks the settings of tokens.
func (f *faults) oauth(c *Config) {
	o := &c.OAuth
	if !o.Enabled() {
		switch {
		case c.Access.Method == "oauth":
			f.add("oauth.issuer", "required", "access.method is oauth; that needs oauth.issuer")
		case len(o.Audience)+len(o.Scopes) > 0 || o.JWKSURL+o.DefaultTenant != "":
			f.add("oauth.issuer", "required", "there are settings of oauth; they need oauth.issuer")
		}
		return
	}
	if err := access.CheckIssuerURL(o.Issuer); err != nil {
		f.add("oauth.issuer", "format", "oauth.issuer: "+err.Error())
	}
	if o.JWKSURL != "" {
		if err := access.CheckIssuerURL(o.JWKSURL); err != nil {
			f.add("oauth.jwks_url", "format", "oauth.jwks_url: "+err.Error())
		}
	}
	if o.SubjectClaim == "" || o.TenantClaim == "" {
		f.add("oauth", "required", "oauth.subject_claim and oauth.tenant_claim must not be empty")
	}
	if len(o.Scopes) == 0 {
		f.add("oauth.scopes", "required", "oauth.scopes is empty; no token could do anything. Give at least one scope its role, such as tools:call=agent")
	}
	if roles := o.Roles(); len(roles) != len(o.Scopes) {
		f.add("oauth.scopes", "format", "oauth.scopes must be scope=role each, every scope once, such as tools:call=agent")
	}
}

// Log says what is logged and how.
type Log struct {
	Level      slog.Level
	Components map[string]slog.Level // levels of single components
	Format     string                // json or text
	Buffer     int                   // bytes of lines that wait to be written
}

// Limits refuse for load.
type Limits struct {
	AgentPerMinute     int // requests of one agent
	AgentToolPerMinute int // calls of one agent on one tool
	GlobalPerMinute    int // requests of all
	AgentConcurrent    int // calls of one agent at once
}

// Calls are about single calls, waiting ones above all.
type Calls struct {
	SyncLimit      time.Duration // longest synchronous call
	WaitLimit      time.Duration // longest that a waiting call may wait and run
	ResultLifetime time.Duration // how long the answer of a waiting call can be fetched
	Workers        int           // waiting calls that run at once
	Poll           time.Duration // pause between looks at the queue
	Lease          time.Duration // a worker that says nothing for so long is taken for dead; renewed at a third
	MaxResult      int64         // bytes of a raw result, past which the call fails
}

// Cache keeps results.
type Cache struct {
	Enabled bool
	TTL     time.Duration // of a tool that wants caching and names no time
	Entries int
	Bytes   int64
}

// Catalog is about tool versions.
type Catalog struct {
	StaleFor     time.Duration // how long known definitions serve reading calls while the store is down
	KeepActive   int           // versions of a tool kept active
	RemovalAfter time.Duration // between deprecation and the earliest removal
}

// Store is the database.
type Store struct {
	DSN         string        // of PostgreSQL, "" is the embedded SQLite
	MaxConns    int           // connections to PostgreSQL
	Blobs       string        // folder of blobs, "" is in the data directory
	Synchronous string        // NORMAL or FULL
	GroupDelay  time.Duration // how long the writer gathers
	WALBytes    int64
	KeepCalls   time.Duration // records of ended calls
	KeepEvents  time.Duration
	KeepFeed    time.Duration // changes of calls in the feed
}

// Search says how tools are found.
type Search struct {
	Model          string // auto, all-MiniLM-L6-v2, none
	ModelsDir      string // "" is models in the data directory
	SemanticWeight float64
	KeywordWeight  float64
	HistoryWeight  float64
	SuccessWeight  float64
	// ComplexityWeight is what a complex tool loses.
	ComplexityWeight float64
	Threshold        float64       // what a tool must have in common with the question
	History          string        // on, off
	HistoryKeep      time.Duration // how long calls and searches count
	Learning         string        // on, observe, off
	// An OpenAI-compatible service that embeds; "" is the own model.
	EmbeddingsURL        string
	EmbeddingsModel      string
	EmbeddingsDimensions int
	EmbeddingsKey        string // secret reference
	Vectors              string // what keeps vectors: memory, pgvector
	VectorsDSN           string // of pgvector; "" is Store.DSN
	Cache                SearchCache
	Budgets              SearchBudgets
	Context              SearchContext
}

// SearchContext says how near a tool must be to be in a context, as a share of the best
// tool's score.
type SearchContext struct {
	Near   float64 // with its parameters, or whole
	Listed float64 // in the index of tool_selection
}

// SearchCache bounds what is kept of answers.
type SearchCache struct {
	Enabled       bool
	Entries       int // in the process
	Bytes         int64
	TTL           time.Duration
	SharedEntries int // in Redis
	SharedTTL     time.Duration
	Wait          time.Duration // for Redis, in one search
}

// SearchBudgets are the tokens at most of a context in each phase.
type SearchBudgets struct {
	InitialPlanning      int
	ToolSelection        int
	ExecutionPreparation int
	ErrorRecovery        int
}

// Secrets says what secret references may name.
type Secrets struct {
	Env  []string // patterns of environment variables
	Dirs []string // folders of secret files
	// SealKey is the file of the key that seals arguments of waiting calls; "" is in
	// the data directory. Nodes that share a store must share it.
	SealKey string
	// SealKeys are keys instead of that file, base64 or hex, the first one seals.
	SealKeys string
	// LastKnownGood lets what a store gave within 24 hours serve while it is away.
	LastKnownGood bool
}

// Egress is how tools' servers are reached.
type Egress struct {
	Proxy          string        // URL, "" is none; may hold a password
	ProxyBypass    []string      // reached without it
	ProxyNames     string        // checked or trusted
	CAFiles        []string      // PEM files trusted besides the system's authorities
	TLSMin         string        // 1.2 or 1.3
	MaxConns       int           // to one host
	IdleConns      int           // of them kept while idle
	IdleTimeout    time.Duration // after which an idle one is closed
	ConnectTimeout time.Duration // longest for name and connection, and again for TLS
	MaxHeader      int64         // bytes of an answer's headers
}

// Files says which folders tools of kind file may use.
type Files struct {
	// Roots are PATH, PATH:ro or PATH:rw each, relative ones below the folder files
	// of the data directory; {tenant} stands for the caller's tenant. The one word
	// none opens nothing.
	Roots []string
}

// Context is the service that says what agents add to tools.
type Context struct {
	URL      string        // "" asks none; contexts in the store count in any case
	Token    string        // secret reference of the bearer token, "" sends none
	Required bool          // calls are refused while the service gives no answer
	Timeout  time.Duration // for one answer
	TTL      time.Duration // how long an answer holds
}

// context checks the service's address.
func (f *faults) context(c *Config) {
	s := &c.Context
	if s.URL == "" {
		if s.Token != "" {
			f.add("context.url", "required", "context.token is set; it needs context.url")
		}
		return
	}
	u, err := url.Parse(s.URL)
	switch {
	case err != nil || u.Host == "" || u.Scheme != "https" && u.Scheme != "http" || u.User != nil || u.RawQuery != "" || u.Fragment != "":
		f.add("context.url", "format", "context.url must be an http or https URL without user, query and fragment, such as https://sessions.example")
	case u.Scheme == "http" && !loopback(net.JoinHostPort(u.Hostname(), "80")):
		f.add("context.url", "format", "context.url must be https where the service is not on this machine")
	}
	f.reference("context.token", s.Token, "env://TOOLKEEP_SECRET_SESSIONS")
}

// SQL says how tools of kind sql reach their databases.
type SQL struct {
	SQLiteRoots []string      // folders below which SQLite files may be opened
	SocketDirs  []string      // folders in which Unix sockets of servers may be opened
	MaxConns    int           // connections to all databases
	PoolConns   int           // of them with one login of one tenant
	Wait        time.Duration // longest wait for one of them
	IdleTimeout time.Duration // after which an idle one is closed
}

// Examples is the example catalogue with its small HTTP service.
type Examples struct {
	Enabled bool
	Addr    string // of the example bookshop
}

// Drain is about the end.
type Drain struct {
	Timeout time.Duration // how long running calls may go on after the first signal
}

// Validate tells everything that is wrong at once, as E3008 with details.errors.
func (c *Config) Validate() error {
	f := c.faults()
	if len(f) == 0 {
		return nil
	}
	return refuse(f)
}

func (c *Config) faults() []toolkeep.Fault {
	var f faults
	if c.Data == "" {
		f.add("data", "required", "the data directory is not named; set data or TOOLKEEP_DATA")
	}
	f.listener(c, "http.addr", c.HTTP.Addr)
	f.listener(c, "metrics.addr", c.Metrics.Addr)
	if c.GRPC.Enabled() {
		f.listener(c, "grpc.addr", c.GRPC.Addr)
		f.apart("grpc.addr", c.GRPC.Addr, "http.addr", c.HTTP.Addr)
		f.apart("grpc.addr", c.GRPC.Addr, "metrics.addr", c.Metrics.Addr)
	}
	f.apart("metrics.addr", c.Metrics.Addr, "http.addr", c.HTTP.Addr)
	if (c.TLS.Cert == "") != (c.TLS.Key == "") {
		f.add("tls", "required", "tls.cert and tls.key go together; set both or neither")
	}
	if c.TLS.ClientCA != "" && !c.TLS.Enabled() {
		f.add("tls.client_ca", "required", "tls.client_ca asks clients for certificates, which only TLS can; that needs tls.cert and tls.key")
	}
	if c.Store.DSN != "" && c.Secrets.SealKey == "" && c.Secrets.SealKeys == "" {
		f.add("secrets.seal_key", "required", "store.dsn names a database that nodes share; that needs secrets.seal_key, a file with the same content on every node, or the keys in the variable TOOLKEEP_SEAL_KEY")
	}
	if c.Secrets.SealKey != "" && c.Secrets.SealKeys != "" {
		f.add("secrets.seal_keys", "contradiction", "secrets.seal_key names a file with keys, and secrets.seal_keys (TOOLKEEP_SEAL_KEY) holds keys; leave one out")
	}
	f.oauth(c)
	f.vault(c)
	f.search(c)
	f.context(c)
	f.redis(c)
	if c.Calls.Lease < 3*time.Second {
		f.add("calls.lease", "minimum", "calls.lease is "+c.Calls.Lease.String()+"; it is renewed at a third and must be at least 3s")
	}
	if c.Calls.WaitLimit < c.Calls.SyncLimit {
		f.add("calls.wait_limit", "minimum", "calls.wait_limit is shorter than calls.sync_limit")
	}
	for _, d := range c.Secrets.Dirs {
		if !filepath.IsAbs(d) {
			f.add("secrets.dirs", "format", fmt.Sprintf("the secrets folder %q is not an absolute path", d))
		}
	}
	if c.Examples.Enabled {
		if _, _, err := hostPort(c.Examples.Addr); err != nil {
			f.add("examples.addr", "format", err.Error())
		} else if !loopback(c.Examples.Addr) {
			f.add("examples.addr", "loopback", "the example bookshop has no authentication and listens on loopback only; "+c.Examples.Addr+" is not loopback")
		}
	}
	return append(f, c.ranges()...)
}

// ranges checks the numbers by the rows of the table.
func (c *Config) ranges() faults {
	var f faults
	for i := range settings {
		s := &settings[i]
		if s.bind == nil {
			continue
		}
		if why := s.check(s.bind(c)); why != "" {
			f.add(s.key, "range", s.key+" "+why)
		}
	}
	return f
}

type faults []toolkeep.Fault

func (f *faults) add(key, rule, message string) {
	*f = append(*f, toolkeep.Fault{Pointer: pointer(key), Rule: rule, Message: message})
}

// listener checks an address: outside of loopback it needs TLS and a named way to
// authenticate.
func (f *faults) listener(c *Config, key, addr string) {
	if _, _, err := hostPort(addr); err != nil {
		f.add(key, "format", key+": "+err.Error())
		return
	}
	if loopback(addr) {
		return
	}
	for _, need := range []struct{ key, value string }{
		{"tls.cert", c.TLS.Cert}, {"tls.key", c.TLS.Key}, {"access.method", c.Access.Method + c.OAuth.Issuer},
	} {
		if need.value == "" {
			f.add(need.key, "required", fmt.Sprintf("%s is %s, which is not loopback; that needs %s", key, addr, need.key))
		}
	}
}

// apart checks that two listeners do not ask for one port.
func (f *faults) apart(key, addr, other, otherAddr string) {
	if addr == otherAddr && addr != "" && !endsInZero(addr) {
		f.add(key, "conflict", other+" and "+key+" are both "+addr+"; give each its own port")
	}
}

func refuse(f []toolkeep.Fault) error {
	first := f[0].Message
	if len(f) > 1 {
		first += fmt.Sprintf(" (and %d more)", len(f)-1)
	}
	return toolkeep.FaultsError(toolkeep.InvalidManifest, "the configuration is refused: "+first, f)
}

// pointer turns a dotted key into a JSON Pointer.
func pointer(key string) string {
	b := make([]byte, 0, len(key)+1)
	b = append(b, '/')
	for i := range len(key) {
		switch key[i] {
		case '.':
			b = append(b, '/')
		case '~':
			b = append(b, "~0"...)
		case '/':
			b = append(b, "~1"...)
		default:
			b = append(b, key[i])
		}
	}
	return string(b)
}

func hostPort(addr string) (host string, port int, err error) {
	host, p, err := net.SplitHostPort(addr)
	if err != nil {
		return "", 0, fmt.Errorf("%q is not an address; write host:port, such as 127.0.0.1:8080", addr)
	}
	port, err = strconv.Atoi(p)
	if err != nil || port < 0 || port > 65535 {
		return "", 0, fmt.Errorf("%q has no port between 0 and 65535", addr)
	}
	return host, port, nil
}

func endsInZero(addr string) bool {
	_, p, err := hostPort(addr)
	return err == nil && p == 0
}

// loopback tells whether only this machine can reach the address. A name other
// than localhost may resolve to anything.
func loopback(addr string) bool {
	host, _, err := hostPort(addr)
	if err != nil {
		return false
	}
	if host == "localhost" {
		return true
	}
	ip, err := netip.ParseAddr(host)
	return err == nil && ip.Unmap().IsLoopback()
}

// Print writes the configuration as YAML, the source of each value as a comment.
// Secret values are masked.
func (c *Config) Print(w io.Writer) error { return printYAML(w, c) }
