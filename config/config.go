// Package config defines the server's settings: their names, their sources, and the
// values that this build refuses.
//
// A setting is read from the flags, the environment, the YAML file or the defaults, in
// this order of precedence. Every name in the configuration schemas of the source
// documents is accepted; docs/configuration.md, generated from the same table that Load
// uses, says what this build does with each. An unknown name, or a value that this
// build does not support, prevents the start.
package config

import (
	"io"
	"log/slog"
	"slices"
	"strings"
	"time"
)

// Config holds every setting. Load fills it; the zero value is not usable.
//
// The tags are the table of settings: key is the name in the file and for flags, env
// the name in the environment (TOOLKEEP_ and the key without it), kind:"size" accepts
// bytes with a unit, default, development and production are the defaults, min, max and
// choices the bounds, secret masks the value.
type Config struct {
	Data        string `key:"data" help:"directory of all that the server keeps; one process at a time; by default ./data if a server has its files there, else toolkeep in the user's own data ($XDG_DATA_HOME, or ~/.local/share)"`
	Service     Service
	Node        Node
	HTTP        HTTP
	MCP         MCP
	GRPC        GRPC
	Metrics     Metrics
	TLS         TLS
	Access      Access
	Signing     Signing
	Proxy       Proxy
	Policy      Policy
	OAuth       OAuth
	Tokens      Tokens
	Log         Log
	Limits      Limits
	Breaker     Breaker
	Calls       Calls
	Approvals   Approvals
	Idempotency Idempotency
	Audit       Audit
	Outbox      Outbox
	Tools       Tools
	Results     Results
	Cache       Cache
	Catalog     Catalog
	Store       Store
	Secrets     Secrets
	Search      Search
	Redis       Redis
	Egress      Egress
	Files       Files
	Context     Context
	Vault       Vault
	SQL         SQL
	Examples    Examples
	Console     Console
	Drain       Drain

	// Notes lists settings that were set and have no effect in this build, or another than one may
	// expect, a sentence each.
	Notes []string

	given map[string]given // values by key, with their sources; nil for a Config that was not loaded
}

// Console configures the web console and the sessions of browsers.
type Console struct {
	Enabled bool          `key:"console.enabled" default:"true" help:"the web console at / of http.addr, and sessions of browsers, which it needs; false: neither is there"`
	Session time.Duration `key:"console.session" default:"12h" min:"5m" max:"30d" help:"how long after the login a browser's session ends"`
	Idle    time.Duration `key:"console.idle" default:"2h" min:"5m" max:"30d" help:"how long after its last request it ends"`
}

// Service is the server's identity.
type Service struct {
	Name        string `key:"service.name" env:"L03_SERVICE_NAME" default:"l03-tool-executor" help:"name of the service in the metric toolkeep_build_info"`
	Version     string `key:"service.version" env:"L03_SERVICE_VERSION" help:"version shown by health; empty is the program's own"`
	Environment string `key:"service.environment" env:"L03_ENVIRONMENT" choices:",development,staging,production" help:"development, staging or production; changes the defaults that name it below"`
}

// Node is this process among those that share a PostgreSQL.
type Node struct {
	Name string `key:"node.name" help:"name of this node among those on the same PostgreSQL; each has its own and keeps it when it restarts; 1 to 50 letters, digits, dots, hyphens and underscores; empty is the one in the file node.name of the data directory, which the first start makes"`
}

// HTTP configures the HTTP face: REST, health and everything else over HTTP.
type HTTP struct {
	Addr          string   `key:"http.addr" default:"127.0.0.1:8080" help:"where REST and health listen; beyond loopback needs tls.cert, tls.key and access.method, oauth.issuer or oauth.issuers_file"`
	Hosts         []string `key:"http.hosts" help:"names, beside loopback and the address itself, under which the server is reached, such as that of a reverse proxy or of the certificate"`
	Proxies       []string `key:"http.trusted_proxies" help:"addresses and ranges, such as 10.0.0.0/8, of the reverse proxies before the server; from them alone, at HTTP and gRPC, Forwarded and X-Forwarded-For name the client: the rightmost address that is none of theirs"`
	MaxBody       int64    `key:"http.max_body" kind:"size" default:"1MiB" min:"1KiB" max:"1GiB" help:"largest body of a request"`
	MaxDepth      int      `key:"http.max_depth" default:"50" min:"1" max:"1000" help:"deepest nesting of JSON in a body"`
	MaxProperties int      `key:"http.max_properties" default:"1000" min:"1" max:"1000000" help:"most properties in all objects of a body"`
	MaxHeader     int      `key:"http.max_header" kind:"size" default:"64KiB" min:"4KiB" max:"1MiB" help:"most bytes of a request's headers"`
	MaxKey        int      `key:"http.max_key" kind:"size" default:"4KiB" min:"64" max:"64KiB" help:"longest idempotency key or id"`
	PublicURL     string   `key:"http.public_url" help:"address under which people and authorization servers reach the server, such as https://tools.example; empty is where it listens"`
	PeerURL       string   `key:"http.peer_url" help:"address under which the other nodes on the same PostgreSQL reach this one, such as https://10.0.0.7:8080; empty is where it listens, if that is one address"`
}

// MCP configures the face for MCP clients.
type MCP struct {
	View         string        `key:"mcp.view" default:"auto" choices:"auto,all,search" help:"what /mcp shows: all tools, the four tools that search, or auto: all while a caller sees few"`
	AutoTools    int           `key:"mcp.auto_tools" default:"40" min:"1" max:"10000" help:"tools that a caller may see before auto shows the search instead"`
	SetsFile     string        `key:"mcp.sets_file" help:"YAML file with the sets of tools at /mcp/sets/{name}"`
	Origins      []string      `key:"mcp.origins" help:"web origins, such as https://app.example, whose pages may use /mcp from a browser; * is any; none but the server's own by default"`
	StdioTenants []string      `key:"mcp.stdio_tenants" help:"tenants besides default whose administrators may add MCP servers by stdio, * for all; such a program runs as the server's user and can read what the server can, other tenants' secrets included"`
	SessionIdle  time.Duration `key:"mcp.session_idle" default:"30m" min:"1s" max:"7d" help:"an MCP session without a request or an open stream for this long ends"`
	Registry     string        `key:"mcp.registry" default:"https://registry.modelcontextprotocol.io" help:"registry of MCP servers that toolkeep registry asks: https, or http on the same machine"`
	Sessions     int           `key:"mcp.sessions" default:"10000" min:"1" max:"1000000" help:"MCP sessions of this node at once"`

	PrincipalSessions int `key:"mcp.principal_sessions" default:"100" min:"1" max:"1000000" help:"MCP sessions of one person or key at once, divided among the nodes; a further one ends the oldest idle one"`
}

// GRPC configures the gRPC face. The limits of HTTP apply to it too.
type GRPC struct {
	Addr string `key:"grpc.addr" default:"127.0.0.1:50053" help:"where gRPC listens, off for not at all; beyond loopback needs the same as http.addr; the limits http.max_… are its limits too"`
}

// Enabled reports whether the face is served.
func (g GRPC) Enabled() bool { return g.Addr != "" && g.Addr != "off" }

// Metrics configures the Prometheus face.
type Metrics struct {
	Addr     string `key:"metrics.addr" default:"127.0.0.1:9090" help:"where Prometheus reads /metrics, and probes /health/…; beyond loopback needs the same as http.addr"`
	TLS      string `key:"metrics.tls" default:"same" choices:"same,server,off" help:"TLS of metrics.addr: same as the other listeners, server (their certificate, and no client certificate although tls.client_ca is set), or off (plain HTTP, on loopback only)"`
	MaxTools int    `key:"metrics.max_tools" default:"10000" min:"1" max:"1000000" help:"tool ids with series of their own; further ones are dropped and counted"`
}

// TLS has the certificate and key files of all listeners.
type TLS struct {
	Cert     string `key:"tls.cert" help:"PEM file with the certificate chain of all listeners; a changed file is used for new connections within ten seconds, and logged if it cannot be taken"`
	Key      string `key:"tls.key" help:"PEM file with the private key"`
	Min      string `key:"tls.min" default:"1.3" choices:"1.2,1.3" help:"oldest version of TLS that the listeners speak"`
	ClientCA string `key:"tls.client_ca" help:"PEM file with the authorities whose client certificates are let in (mTLS); every listener then refuses a client without one, health and metrics too unless metrics.tls says otherwise; a changed file holds for new connections within ten seconds; empty asks for none"`
	Clients  string `key:"tls.clients" default:"required" choices:"required,optional" help:"whether every client must show a certificate of tls.client_ca, or one without it may come in with a key or token"`
}

// Enabled reports whether the listeners use TLS.
func (t TLS) Enabled() bool { return t.Cert != "" && t.Key != "" }

// Access configures authentication and roles.
type Access struct {
	Method          string        `key:"access.method" choices:",api_key,oauth" help:"how callers authenticate: api_key, or oauth, which needs an issuer of tokens and accepts API keys too; this, oauth.issuer or oauth.issuers_file must be set where the server listens beyond loopback"`
	Mode            string        `key:"access.mode" env:"L03_PERMISSION_MANAGER_MODE" default:"rbac" choices:"rbac,token+rbac,rbac+abac,token+rbac+abac" help:"which checks must pass besides risk: rbac (roles), with token+ also a capability token on each call (E3211), with +abac then also the attribute policy of policy.path, policy.opa_url or policy.abac_url; a token that was sent narrows in every mode"`
	AgentFailures   int           `key:"access.agent_failures" default:"10" min:"-1" max:"1000000" help:"failed authentications of one agent at one address, or denied calls of one agent, a minute, after which further ones are refused for a while (E3810); a valid key or token always authenticates; -1 is no limit, 0 the default"`
	AgentBlock      time.Duration `key:"access.agent_block" default:"5m" min:"1s" max:"1d" help:"how long"`
	AddressFailures int           `key:"access.address_failures" default:"100" min:"-1" max:"1000000" help:"failed authentications from one address, for IPv6 one /64, a minute, after which requests from it without a valid key or token are refused for a while (E3810); -1 is no limit, 0 the default"`
	AddressBlock    time.Duration `key:"access.address_block" default:"15m" min:"1s" max:"1d" help:"how long"`
	FailureAlarm    int           `key:"access.failure_alarm" default:"10000" min:"-1" max:"100000000" help:"failures in all a minute that are logged as an error; -1 is none, 0 the default"`

	RolesFile string `key:"access.roles_file" help:"YAML file with roles besides the built-in ones, read again within a second of a change; in this file they may stand under roles"`

	CertificatesFile string `key:"access.certificates_file" help:"YAML file that says whom a client certificate of tls.client_ca stands for where no key or token is sent, and which certificates are denied; read again within ten seconds of a change; empty: no certificate names a caller"`
	SameSubject      bool   `key:"access.same_subject" default:"false" help:"a key or token must come over a connection with a client certificate, and belong to the subject and tenant that access.certificates_file gives the certificate"`
	Roles            []byte // YAML under roles in the configuration file, nil if absent
}

// Signing configures signatures of requests.
type Signing struct {
	Required []string      `key:"signing.required" help:"faces at which every request must be signed: rest, mcp, grpc; a key made with require_signature must sign at each, and none is demanded by default"`
	Keys     []string      `key:"signing.keys" help:"secret references, such as secret://signing/shared, of what callers sign with whose key has no signing secret of its own; at least 32 bytes; the newest first, each verifies; without one their signatures are refused"`
	Skew     time.Duration `key:"signing.skew" default:"30s" min:"1s" max:"5m" help:"how far the timestamp of a signed request may be from this server's clock (E3405)"`
}

// Proxy configures trusted proxies that name the caller in signed headers.
type Proxy struct {
	Keys    []string `key:"proxy.keys" help:"secret references, such as secret://signing/runtime, of what trusted proxies sign with that name the caller in X-Caller-Subject; at least 32 bytes; the newest first, each verifies; if http.trusted_proxies is set, they must come from there; empty: no proxy names callers"`
	Roles   []string `key:"proxy.roles" help:"roles that they may give; no others"`
	Tenants []string `key:"proxy.tenants" default:"default" help:"tenants that they may speak for; no others"`
}

// Policy configures the attribute policy that decides calls after the roles.
type Policy struct {
	Path          string        `key:"policy.path" help:"directory or gzipped tar archive with a policy in Rego, whose own tests must pass; changed files are taken while the server runs"`
	BundleURL     string        `key:"policy.bundle_url" help:"address of such an archive instead, https://… or in an OCI registry, such as oci://registry.example/policies:stable; a changed one is taken while the server runs"`
	BundlePoll    time.Duration `key:"policy.bundle_poll" default:"30s" min:"1s" max:"1d" help:"pause between two looks at policy.bundle_url; a node that takes a change tells the others"`
	BundleKeyFile string        `key:"policy.bundle_key_file" help:"file with public keys in PEM; with it, a policy of policy.path or policy.bundle_url is taken only where one of them has signed it (opa build --signing-key, opa sign)"`
	OPAURL        string        `key:"policy.opa_url" help:"decision of an OPA server that is asked instead, such as http://127.0.0.1:8181/v1/data/toolkeep"`
	ABACURL       string        `key:"policy.abac_url" help:"service that is asked instead with POST {url}/api/v1/abac/check-permission, such as https://l01.example"`
	Token         string        `key:"policy.token" help:"secret reference of the bearer token for policy.bundle_url, policy.opa_url or policy.abac_url, for a registry user:password too, such as env://TOOLKEEP_SECRET_POLICY; empty sends none"`
	Timeout       time.Duration `key:"policy.timeout" default:"100ms" min:"1ms" max:"10s" help:"how long one evaluation of policy.path or policy.bundle_url may take (then E3206)"`
	RemoteTimeout time.Duration `key:"policy.remote_timeout" default:"500ms" min:"10ms" max:"30s" help:"how long policy.opa_url or policy.abac_url may take (then E3206)"`
	CacheTTL      time.Duration `key:"policy.cache_ttl" default:"5m" max:"1d" help:"how long a policy's answer is kept for equal calls; 0 keeps none; of a remote policy only what its answers say, and no longer"`
	Poll          time.Duration `key:"policy.poll" default:"250ms" min:"10ms" max:"1h" help:"pause between two looks at policy.path; a change is taken when two looks have seen it"`
}

// Attributes reports whether an attribute policy is asked.
func (a Access) Attributes() bool { return strings.HasSuffix(a.Mode, "+abac") }

// TokenRequired reports whether each call must carry a capability token.
func (a Access) TokenRequired() bool { return slices.Contains(strings.Split(a.Mode, "+"), "token") }

// Tokens configures capability tokens.
type Tokens struct {
	KeysFile  string        `key:"tokens.keys_file" help:"file with the public keys of others that issue capability tokens: PEM (RSA, P-256, Ed25519; at most ten) or a JWK set; read again within five seconds of a change; empty accepts only tokens that this server made"`
	Issuers   []string      `key:"tokens.issuers" help:"accepted values of iss of tokens that these keys verify; empty accepts each"`
	Audience  []string      `key:"tokens.audience" help:"values of aud of which a token must have one; tokens made here have the first; by default none is needed, and one that is there must be the server's public URL"`
	Algorithm string        `key:"tokens.algorithm" default:"RS256" choices:"RS256,ES256,EdDSA" help:"signature of tokens that this server makes; a key of others verifies the algorithm of its type"`
	MaxLife   time.Duration `key:"tokens.max_life" default:"1d" min:"1m" max:"30d" help:"longest time between iat and exp of a token"`
}

// OAuth configures the issuer whose access tokens are accepted besides API keys.
type OAuth struct {
	Issuer         string   `key:"oauth.issuer" help:"URL of the authorization server whose access tokens are accepted besides API keys, as in the tokens' iss; empty accepts none"`
	IssuersFile    string   `key:"oauth.issuers_file" help:"YAML file with further issuers, each with the tenants that its tokens may name and the roles of its scopes; read at the start"`
	Tenants        []string `key:"oauth.tenants" help:"the only tenants that tokens of oauth.issuer may name; by default all that oauth.issuers_file gives to no other issuer"`
	Audience       []string `key:"oauth.audience" help:"values of aud of which a token must have one; by default the server's public URL or an MCP endpoint below it"`
	JWKSURL        string   `key:"oauth.jwks_url" help:"where the issuer's keys are; empty is what its metadata says"`
	SubjectClaim   string   `key:"oauth.subject_claim" default:"sub" help:"claim that names the caller"`
	TenantClaim    string   `key:"oauth.tenant_claim" default:"tenant" help:"claim that names the caller's tenant"`
	DefaultTenant  string   `key:"oauth.default_tenant" help:"tenant of tokens without that claim, such as default; empty refuses them"`
	WorkspaceClaim string   `key:"oauth.workspace_claim" help:"claim that names the caller's workspace, whose secrets come before the tenant's own; empty reads none from tokens"`
	Scopes         []string `key:"oauth.scopes" help:"role of each scope, as scope=role, such as tools:call=agent; other scopes grant nothing"`
}

// Enabled reports whether tokens are accepted.
func (o OAuth) Enabled() bool { return o.Issuer != "" || o.IssuersFile != "" }

// Roles returns the role of each scope. Scope names may contain =, role names may not.
// Entries that Validate refuses are omitted.
func (o OAuth) Roles() map[string]string {
	m := make(map[string]string, len(o.Scopes))
	for _, s := range o.Scopes {
		if i := strings.LastIndexByte(s, '='); i > 0 && i < len(s)-1 {
			m[s[:i]] = s[i+1:]
		}
	}
	return m
}

// Log configures logging.
type Log struct {
	Level      slog.Level            `key:"log.level" env:"L03_LOG_LEVEL" default:"INFO" development:"DEBUG" production:"WARN" help:"DEBUG, INFO, WARN or ERROR; changeable at run time"`
	Components map[string]slog.Level // levels of individual components
	Format     string                `key:"log.format" default:"auto" production:"json" choices:"auto,json,text" help:"json lines, text (short lines for people), or auto: text where standard error is a terminal, else json"`
	Buffer     int                   `key:"log.buffer" kind:"size" default:"1MiB" min:"4KiB" max:"1GiB" help:"lines that wait to be written; past it they are dropped and counted"`
}

// Limits configures rate and concurrency limits.
type Limits struct {
	AgentPerMinute     int      `key:"limits.agent_per_minute" env:"L03_RATE_LIMITER_PER_AGENT_RPM" default:"100" development:"10000" min:"-1" max:"100000000" help:"requests of one agent a minute, on all nodes together; -1 is no limit, 0 the default"`
	AgentToolPerMinute int      `key:"limits.agent_tool_per_minute" env:"L03_RATE_LIMITER_PER_TOOL_RPM" default:"10" development:"1000" min:"-1" max:"100000000" help:"calls of one agent on one tool a minute, on all nodes together; -1 is no limit, 0 the default"`
	GlobalPerMinute    int      `key:"limits.global_per_minute" env:"L03_RATE_LIMITER_GLOBAL_RPM" default:"10000" development:"1000000" min:"-1" max:"100000000" help:"requests of all agents a minute, on all nodes together; -1 is no limit, 0 the default"`
	TenantPerMinute    int      `key:"limits.tenant_per_minute" default:"0" min:"-1" max:"100000000" help:"requests of all agents of a tenant a minute, on all nodes together; 0 and -1 are no limit"`
	ConsolePerMinute   int      `key:"limits.console_per_minute" default:"600" min:"-1" max:"100000000" help:"requests without calls that one subject's browsers send a minute, on all nodes together; they do not count for limits.agent_per_minute; -1 is no limit, 0 the default"`
	UpstreamPerMinute  int      `key:"limits.upstream_per_minute" default:"0" min:"-1" max:"100000000" help:"calls a minute of all tools of a tenant that one upstream answers, on all nodes together, an upstream being what has a breaker of its own: a host and port, or an MCP server; 0 and -1 are no limit"`
	Upstreams          []string `key:"limits.upstreams" help:"upstreams with another limit than limits.upstream_per_minute, such as host:api.example.com:443=600 or mcp:search=60, named as toolkeep breakers names them; -1 is no limit"`
	Algorithm          string   `key:"limits.algorithm" default:"token_bucket" choices:"token_bucket,leaky_bucket,fixed_window,sliding_window" help:"how requests of an agent and its calls of one tool are counted; the other limits here are token buckets, and a tool's manifest names its own"`
	Burst              int      `key:"limits.burst" default:"0" max:"100000000" help:"how many of them may come at once: requests of an agent, calls of an agent on a tool, calls that an upstream answers, and calls of a tool whose rate_limit is a token bucket without burst; at most those of a minute, which 0 is too, but 1 with leaky_bucket. Windows have no burst, nor has what all agents of a tenant or of the server send"`
	// Shared has Redis count for all nodes.
	Shared          bool `key:"limits.shared" default:"true" help:"where nodes share PostgreSQL and redis.url is set, Redis counts the limits of all of them, with one question for a request and one for a call; else, and while Redis does not answer, each node admits its share"`
	AgentConcurrent int  `key:"limits.agent_concurrent" default:"4" development:"64" min:"-1" max:"100000" help:"calls of one agent at once, on all nodes together; -1 is no limit, 0 the default"`

	Concurrent       int           `key:"limits.concurrent" default:"1000" min:"-1" max:"1000000" help:"attempts of calls that this node has running at once; past it they wait. -1 is no limit, 0 the default"`
	HTTPConcurrent   int           `key:"limits.http_concurrent" default:"300" min:"-1" max:"1000000" help:"of them those of http tools"`
	SQLConcurrent    int           `key:"limits.sql_concurrent" default:"50" min:"-1" max:"1000000" help:"of them those of sql tools"`
	GRPCConcurrent   int           `key:"limits.grpc_concurrent" default:"200" min:"-1" max:"1000000" help:"of them those of grpc tools"`
	MCPConcurrent    int           `key:"limits.mcp_concurrent" default:"300" min:"-1" max:"1000000" help:"of them those of mcp tools"`
	CostlyConcurrent int           `key:"limits.costly_concurrent" default:"10" min:"-1" max:"1000000" help:"of them those of costly tools"`
	CostlyUSD        float64       `key:"limits.costly_usd" default:"0.1" max:"1000000" help:"from which cost.estimated_usd of its manifest on a tool is costly; 0: none is"`
	Queue            int           `key:"limits.queue" default:"100" min:"-1" max:"100000" help:"attempts that wait for a place of one of these limits, those of one agent at most a quarter of them; further ones are refused (E3802). -1: none wait, 0 is the default"`
	QueueWait        time.Duration `key:"limits.queue_wait" default:"60s" min:"1ms" max:"1h" help:"how long they wait at most; never so long that the call's deadline would pass before its tool answers, by the time that it usually takes"`
}

// Breaker is the rule of circuit breakers: of tools, where their manifests do not say otherwise, and of upstreams.
type Breaker struct {
	Enabled             bool          `key:"breaker.enabled" default:"true" help:"calls of tools and upstreams that failed too often are refused for a while (E3903); false leaves only what operators force"`
	Window              string        `key:"breaker.window" default:"time" choices:"time,count" help:"what is counted: the calls of the last seconds (time) or the last calls (count)"`
	WindowSize          int           `key:"breaker.window_size" default:"60" min:"1" max:"10000" help:"its size in seconds, at most 3600, or in calls"`
	MinimumCalls        int           `key:"breaker.minimum_calls" default:"10" min:"1" max:"10000" help:"calls in the window before a rate counts"`
	FailureRate         float64       `key:"breaker.failure_rate" default:"5" max:"100" help:"percent of failed calls above which a breaker opens; 100 if all failed"`
	ConsecutiveFailures int           `key:"breaker.consecutive_failures" default:"10" max:"10000" help:"failures in a row after which it opens; 0 is off"`
	ErrorCount          int           `key:"breaker.error_count" default:"0" max:"10000" help:"failures in the window after which it opens; 0 is off"`
	SlowCallRate        float64       `key:"breaker.slow_call_rate" default:"0" max:"100" help:"percent of slow calls above which it opens; 100 if all were slow, 0 is off"`
	SlowCall            time.Duration `key:"breaker.slow_call" default:"5s" min:"1ms" max:"1d" help:"from when on a call is slow"`
	Open                time.Duration `key:"breaker.open" default:"30s" min:"1ms" max:"1d" help:"how long calls are refused before test calls"`
	HalfOpen            string        `key:"breaker.half_open" default:"fixed" choices:"fixed,canary" help:"how it is tested whether calls succeed again: with a number of calls (fixed), or with 1, 10, 50 and 100 % of them, one after the other (canary)"`
	IgnoreErrors        []string      `key:"breaker.ignore_errors" help:"codes of errors that count neither as a failure nor as a success, of those that count as a failure: E3501, E3502, E3503, E3504, E3520, E3530, E3541, E3601, E3603"`
	HalfOpenCalls       int           `key:"breaker.half_open_calls" default:"1" min:"1" max:"10000" help:"test calls that must succeed, with canary for each share"`
}

// Calls configures calls, mainly waiting ones.
type Calls struct {
	SyncLimit      time.Duration `key:"calls.sync_limit" default:"30s" development:"60s" min:"1s" max:"1h" help:"longest synchronous call; over MCP the tool's own limit rules"`
	RetryShare     float64       `key:"calls.retry_share" default:"20" max:"1000" help:"most retries of a tool on this node, in percent of its calls in the last 10 s; a call that finds them used up ends with what its last attempt brought"`
	RetryFloor     int           `key:"calls.retry_floor" default:"10" max:"100000" help:"retries of a tool in 10 s that it may have however few its calls are"`
	HedgeAfter     time.Duration `key:"calls.hedge_after" default:"0" max:"1h" help:"a tool of kind http, grpc, sql or mcp that only reads and does not answer within this time, and within the time in which 95 of 100 of its answers come, is asked a second time; the first answer is used. Counts as a retry. 0 is off"`
	WaitLimit      time.Duration `key:"calls.wait_limit" default:"24h" min:"1s" max:"30d" help:"longest that an asynchronous call may wait and run"`
	ResultLifetime time.Duration `key:"calls.result_lifetime" default:"24h" min:"1m" max:"365d" help:"how long the answer of an asynchronous call can be fetched (then E3704)"`
	Workers        int           `key:"calls.workers" default:"50" min:"1" max:"10000" help:"asynchronous calls that run at once"`
	Poll           time.Duration `key:"calls.poll" default:"100ms" min:"1ms" max:"1m" help:"pause between reads of the queue; new calls are noticed at once, the pause is for calls that become due"`
	Lease          time.Duration `key:"calls.lease" default:"10s" min:"3s" max:"1h" help:"a node that does not renew the lease of a running call for this long counts as dead; leases are renewed after a third of it"`
	MaxResult      int64         `key:"calls.max_result" kind:"size" default:"100MB" min:"1KiB" max:"4GiB" help:"largest raw result of a tool; past it the call fails (E3710)"`
	RecordWait     time.Duration `key:"calls.record_wait" default:"50ms" min:"1ms" max:"5s" help:"how long a reading call waits for the store; then its record goes to the spool file, from there to the store, and further reading calls do not wait until the store answers again; more where the store answers slowly as a rule"`
	MaxCPUWait     time.Duration `key:"calls.max_cpu_wait" default:"250ms" max:"1m" help:"how long requests may wait for the processor before new calls are refused with E3811 and without a record: a share of them that rises with the wait, of priority low first and of high last; 0 refuses none"`
	MaxInFlight    int           `key:"calls.max_in_flight" default:"5000" max:"1000000" help:"calls that this node has in flight at once, those that wait for a tool or a person among them; further ones are refused with E3811, those of priority low from three quarters of it on, those of high a quarter above it; 0 is no limit"`
	TraceURL       string        `key:"calls.trace_url" help:"where the trace of a call is shown, with {trace_id} in place of its id, such as https://traces.example/trace/{trace_id}; https, or http on loopback. The record of a call whose caller sent a traceparent has it as a link"`
	ResultMemory   int64         `key:"calls.result_memory" kind:"size" default:"0" max:"1TiB" help:"memory that all results take together while they are read and checked; a call over it waits, and is refused with E3811 if its time ends before it was sent. A result takes about three times its bytes. 0 is a quarter of the memory that the process may use (GOMEMLIMIT, the cgroup or the machine)"`
}

// Approvals configures calls that wait for a person.
type Approvals struct {
	RulesFile       string        `key:"approvals.rules_file" help:"YAML file with rules that say who approves which calls, and which calls need it besides those of high risk (docs/approvals.md); without one, those with the permission approvals:decide approve"`
	Wait            time.Duration `key:"approvals.wait" default:"300s" min:"1s" max:"300s" help:"how long a synchronous caller waits for a person's decision; then its answer is pending_approval, and the call goes on waiting"`
	Escalate        time.Duration `key:"approvals.escalate_after" default:"1h" min:"1s" max:"30d" help:"when a call without a decision is escalated for the first time, where no rule says otherwise"`
	EscalateAgain   time.Duration `key:"approvals.escalate_again_after" default:"4h" min:"1s" max:"30d" help:"when it is escalated for the second time"`
	Expire          time.Duration `key:"approvals.expire_after" default:"24h" min:"1s" max:"30d" help:"when it is refused (E3213); times of escalation after this one are left out"`
	MaxPending      int           `key:"approvals.max_pending" default:"10000" min:"1" max:"1000000" help:"calls of one tenant that may wait for a person; further ones are refused (E3216)"`
	MaxPendingAgent int           `key:"approvals.max_pending_per_agent" default:"100" min:"1" max:"1000000" help:"calls of one agent that may wait for a person; further ones are refused (E3216)"`
	Endpoint        string        `key:"approvals.endpoint" help:"service that decides too about calls which wait for a person; each is sent to it by POST, signed, until it has decided, such as https://supervision.example/escalations"`
	EndpointKey     string        `key:"approvals.endpoint_key" help:"secret reference of the key (32 bytes at least) that signs what is sent to approvals.endpoint, such as env://TOOLKEEP_SECRET_SUPERVISION"`
	EndpointTimeout time.Duration `key:"approvals.endpoint_timeout" default:"5s" min:"100ms" max:"30s" help:"how long one request to approvals.endpoint may take"`
	EndpointFailure string        `key:"approvals.endpoint_failure" default:"wait" choices:"wait,deny" help:"what becomes of a call about which approvals.endpoint gives no answer: wait lets it wait for those who approve here, until its deadline; deny refuses it after approvals.endpoint_deny_after (E3216)"`
	EndpointDeny    time.Duration `key:"approvals.endpoint_deny_after" default:"300s" min:"1s" max:"30d" help:"how long approvals.endpoint may give no answer about a call before it is refused, with approvals.endpoint_failure deny"`
}

// Audit configures what is recorded of what agents do, and the archive of that.
type Audit struct {
	Reads         string        `key:"audit.reads" default:"all" choices:"all,refused,off" help:"which reads of tools (manifests, versions, related tools, lists, exports, refused searches) are events of the audit: all, refused ones alone, or off (docs/audit.md); searches that were answered always are"`
	ResultSummary bool          `key:"audit.result_summary" default:"true" help:"keep the first 200 characters of each result, redacted, in the record of its call (docs/audit.md); false keeps its size alone"`
	Inputs        string        `key:"audit.inputs" default:"hash" choices:"hash,redacted" help:"what the record of a call has of its arguments: their hash alone, or beside it a copy without secrets, fields that the manifest redacts and personal data, of arguments up to 8 KiB"`
	Personal      []string      `key:"audit.personal" default:"email,phone,card,ssn,iban,ip" help:"kinds of personal data that are replaced in what a record quotes, such as its call's result: each by its kind, as [email]; empty replaces none; they are found by their form (docs/audit.md)"`
	Archive       string        `key:"audit.archive" help:"folder in which records of calls, events and checkpoints are archived, sealed, for longer than the store keeps them (docs/audit.md); empty is no archive. Nodes that share a store need a shared one, and all of them this setting"`
	ArchiveKeep   time.Duration `key:"audit.archive_keep" default:"2557d" min:"1d" max:"30000d" help:"how long what is archived stays after its day; 2557d are 7 years"`
	Erasable      bool          `key:"audit.erasable" default:"true" help:"seal what new records and events tell of a person with a key of that person, so that toolkeep audit erase can destroy it (docs/audit.md); what is sealed stays readable with either value. The same on all nodes"`
	ArchiveWait   time.Duration `key:"audit.archive_wait" default:"7d" min:"1h" max:"365d" help:"how much longer than store.keep_calls and store.keep_events what is not archived yet stays, such as while the folder's disk is full; then retention removes it, and /health tells"`
}

// Outbox configures where the journal is delivered.
type Outbox struct {
	SinksFile   string `key:"outbox.sinks_file" help:"YAML file with the sinks to which records and events are delivered: files, webhooks, Kafka, NATS (docs/outbox.md); without one they stay in the store alone"`
	DeadLetters string `key:"outbox.dead_letters" help:"folder of the events that sinks refused; empty is in the data directory"`
}

// Tools has what holds for tools whose manifests leave it out.
type Tools struct {
	Timeout  time.Duration `key:"tools.timeout" default:"30s" min:"1ms" max:"1d" help:"time limit of a call of a tool whose manifest names no execution.timeout_ms; calls.sync_limit bounds synchronous calls too"`
	Retry    ToolRetry
	Strict   bool     `key:"tools.strict" default:"true" help:"fail a call whose result breaks its tool's result schema, if the manifest names no result.strict; false warns; tools of kind mcp only warn unless their manifest says result.strict: true"`
	Coerce   bool     `key:"tools.coerce" default:"false" help:"turn texts of results into the numbers and booleans that the result schema asks for, if the manifest names no result.coerce"`
	CoerceTo []string `key:"tools.coerce_to" default:"number,integer,boolean,date" help:"types that texts of results are turned into, for every tool that has it done and names none itself (result.coerce_to); whole texts only; date is the form of RFC 3339, where the format is date or date-time"`
}

// ToolRetry has the members of retry in a manifest.
type ToolRetry struct {
	MaxAttempts int           `key:"tools.retry.max_attempts" default:"3" min:"1" max:"10" help:"attempts of a call, the first included, if the manifest names no retry.max_attempts; a call that may have changed something is not repeated"`
	BaseDelay   time.Duration `key:"tools.retry.base_delay" default:"1s" max:"1d" help:"pause after the first attempt, doubled after each further one, if the manifest names no retry.base_delay_ms"`
	MaxDelay    time.Duration `key:"tools.retry.max_delay" default:"32s" max:"1d" help:"longest pause, if the manifest names no retry.max_delay_ms"`
	Jitter      string        `key:"tools.retry.jitter" default:"full" choices:"none,full,equal,decorrelated,spread" help:"how the pauses vary, if the manifest names no retry.jitter: none, full, equal, decorrelated or spread"`
	StatusCodes []string      `key:"tools.retry.status_codes" help:"HTTP status codes after which a call is repeated besides those that pass by themselves, if the manifest names no retry.retryable_status_codes"`
}

// Results configures what callers get of calls.
type Results struct {
	SigningKey string `key:"results.signing_key" help:"secret reference, such as secret://signing/results, of the key that signs results; 32 bytes at least; the answer names the key, so that a new one may take its place at any time; empty signs none"`
}

// Cache configures the result cache.
type Cache struct {
	Enabled bool          `key:"cache.enabled" env:"L03_TOOL_CACHE_ENABLED" default:"true" help:"keep results of tools that allow it"`
	TTL     time.Duration `key:"cache.ttl" default:"300s" development:"60s" min:"1s" max:"1d" help:"how long a result is kept where the tool's manifest names no time"`
	Entries int           `key:"cache.entries" env:"L03_TOOL_CACHE_MAX_ENTRIES" default:"10000" min:"1" max:"100000000" help:"most results kept"`
	Bytes   int64         `key:"cache.bytes" env:"L03_TOOL_CACHE_MAX_SIZE_BYTES" kind:"size" default:"100MiB" min:"1KiB" max:"1TiB" help:"most bytes of results kept"`
	// Shared has Redis keep results for all nodes.
	Shared        bool `key:"cache.shared" default:"true" help:"where redis.url is set, keep results of tools in Redis too, sealed, for all nodes and for the time after a restart; a call that finds none in memory waits 50 ms for Redis at most"`
	SharedEntries int  `key:"cache.shared_entries" default:"20000" min:"1" max:"100000000" help:"most results of tools kept in Redis, each of 100 KiB at most; those that end soonest go first, of all tenants alike"`
	Warm          int  `key:"cache.warm" default:"1000" min:"0" max:"3000" help:"how many results of tools whose manifest has cache.warm are read from Redis before they are asked for: at the start, after the feed of changes was lost, and when Redis answers again; those used most; 0 is none"`
}

// Idempotency configures the keys under which a call is carried out once.
type Idempotency struct {
	MaxBytes int64         `key:"idempotency.max_bytes" kind:"size" default:"10MB" min:"64KiB" max:"100MB" help:"largest result that is kept for the repeats of a call with an idempotency key, and for an asynchronous call; a larger one is cut for the first answer too, and is whole in the blob that the answer names; result.max_output_bytes of a manifest (2 MB) can be less"`
	TTL      time.Duration `key:"idempotency.ttl" default:"24h" min:"1h" max:"24h" help:"how long an idempotency key gets the answer of its call, from when that call was made; then the key is free, even if the call should still run. With more than store.keep_calls the record of the call is gone first, and the key is free then; an asynchronous answer that was not fetched within calls.result_lifetime is E3704. The same on all nodes"`
}

// Catalog configures tool versions.
type Catalog struct {
	StaleFor     time.Duration `key:"catalog.stale_for" default:"300s" max:"1d" help:"how long reading calls are served from the definitions in the node's memory while the store is down; then they are E3003 and the node is not ready"`
	KeepActive   int           `key:"catalog.keep_active" default:"5" min:"1" max:"1000" help:"versions of a tool kept active; the oldest beyond becomes deprecated"`
	RemovalAfter time.Duration `key:"catalog.removal_after" default:"90d" max:"3650d" help:"time between a version's deprecation and its earliest removal"`
}

// Store configures the database.
type Store struct {
	DSN         string        `key:"store.dsn" secret:"true" help:"PostgreSQL that several nodes share, as a URL or keywords; empty is the embedded SQLite in the data directory"`
	DirectDSN   string        `key:"store.direct_dsn" secret:"true" help:"the same PostgreSQL without a pooler before it, such as PgBouncer, for the one connection that listens for other nodes' changes; empty is store.dsn, where a pooler makes nodes ask every 500 ms instead"`
	MaxConns    int           `key:"store.max_conns" default:"10" min:"6" max:"1000" help:"connections of this node to PostgreSQL in all, those of search.vectors on the same database among them; 6 at least, 8 with them"`
	Blobs       string        `key:"store.blobs" help:"folder of results that were cut; empty is in the data directory, nodes that share a store need a shared one"`
	Synchronous string        `key:"store.synchronous" default:"NORMAL" choices:"NORMAL,FULL" help:"NORMAL survives the death of the process, FULL also loss of power"`
	GroupDelay  time.Duration `key:"store.group_delay" default:"500us" max:"1s" help:"how long the writer gathers changes while more than one call is in flight; with PostgreSQL times the number of live nodes, at most 8"`
	MaxWait     time.Duration `key:"store.max_wait" default:"2s" max:"1h" help:"how long a change may be expected to wait for the database, by those before it and what the last ones took, before new calls that write, have an idempotency key or wait in the queue are refused with E3811 and without a record, so that the calls under way keep their time; while more than 32 calls are in flight a share of them is refused from a quarter of that on, those of priority low first; 0 refuses none"`
	WALBytes    int64         `key:"store.wal_bytes" kind:"size" default:"64MiB" min:"1MiB" max:"1TiB" help:"size from which the write-ahead log is cut"`
	KeepCalls   time.Duration `key:"store.keep_calls" default:"90d" min:"1h" help:"how long records of ended calls stay; PostgreSQL drops them by periods, so there up to a period longer"`
	KeepEvents  time.Duration `key:"store.keep_events" default:"90d" min:"1h" help:"how long events stay; on PostgreSQL up to a period longer"`
	KeepFeed    time.Duration `key:"store.keep_feed" default:"7d" min:"1h" help:"how long the ends of calls stay in the journal of SQLite, from which usage is counted again if its checkpoint cannot be read"`

	MaxStaleness time.Duration `key:"store.max_staleness" default:"10s" min:"2s" max:"1h" help:"how long a node of several (store.dsn) decides requests by the keys, tools and rules that it knows while it cannot see what other nodes change; then it refuses them (E3003) and is not ready"`
}

// Secrets configures which secrets references may name, and the sealing.
type Secrets struct {
	SealKey       string   `key:"secrets.seal_key" help:"file of the keys that seal secrets, logins and arguments of waiting calls, made if absent; empty is in the data directory, nodes that share a store need the same"`
	SealKeys      string   `key:"secrets.seal_keys" env:"TOOLKEEP_SEAL_KEY" secret:"true" help:"the keys themselves instead of that file, 32 bytes each as base64 or hex; the first one seals, those after it, separated by spaces, still open"`
	LastKnownGood bool     `key:"secrets.last_known_good" default:"false" help:"while a secret store cannot be reached, use the value that it returned within the last 24 hours, with a warning; the value is kept sealed in memory"`
	Env           []string `key:"secrets.env" help:"patterns of environment variables that env:// references may name, such as SHOP_*"`
	Dirs          []string `key:"secrets.dirs" help:"absolute folders below which file:// references may read, besides secrets in the data directory"`
}

// Search configures tool search.
type Search struct {
	Model                string        `key:"search.model" default:"auto" choices:"auto,all-MiniLM-L6-v2,none" help:"embedding model that search compares meanings with; auto uses all-MiniLM-L6-v2 if it is installed (toolkeep models), else only words"`
	ModelsDir            string        `key:"search.models_dir" help:"folder of installed models; default models in the data directory"`
	EmbeddingsURL        string        `key:"search.embeddings_url" help:"base address of an OpenAI-compatible service that embeds instead of the built-in model, such as http://127.0.0.1:11434/v1 of Ollama"`
	EmbeddingsModel      string        `key:"search.embeddings_model" help:"the service's name of the model"`
	EmbeddingsDimensions int           `key:"search.embeddings_dimensions" default:"0" max:"8192" help:"how many numbers its vectors have"`
	EmbeddingsKey        string        `key:"search.embeddings_key" help:"reference of the service's API key, such as env://TOOLKEEP_SECRET_EMBEDDINGS"`
	Vectors              string        `key:"search.vectors" default:"memory" choices:"memory,pgvector" help:"where the vectors of tools are stored and compared: memory, with files in the data directory, or pgvector, a PostgreSQL whose vectors nodes share"`
	VectorsDSN           string        `key:"search.vectors_dsn" secret:"true" help:"PostgreSQL of search.vectors: pgvector, as a URL or keywords; empty is store.dsn"`
	SemanticWeight       float64       `key:"search.semantic_weight" default:"0.4" max:"1" help:"how much similarity of meaning counts in a score, beside search.keyword_weight"`
	KeywordWeight        float64       `key:"search.keyword_weight" default:"0.3" max:"1" help:"how much the fit of the words counts in a score"`
	HistoryWeight        float64       `key:"search.history_weight" default:"0.2" max:"1" help:"how much it counts that the conversation or the user called a tool before; three times as much in the strategy session"`
	SuccessWeight        float64       `key:"search.success_weight" default:"0.1" max:"1" help:"how much the share of a tool's calls that succeeded counts in a score"`
	ComplexityWeight     float64       `key:"search.complexity_weight" default:"0.1" max:"1" help:"what a tool of complexity high loses of its score; one of medium loses half of it"`
	Threshold            float64       `key:"search.threshold" default:"0" max:"1" help:"how similar a tool must be to the query to be found: the cosine of their meanings or the share of the query's words, the larger of the two; 0 leaves nothing out"`
	History              string        `key:"search.history" default:"on" choices:"on,off" help:"whether queries are stored and learned from; off records searches without their text"`
	HistoryKeep          time.Duration `key:"search.history_keep" default:"30d" min:"1d" max:"365d" help:"for how long calls and searches count in what is learned; all nodes of a store need the same"`
	Learning             string        `key:"search.learning" default:"on" choices:"on,observe,off" help:"whether weights are learned from which tools were chosen: on uses them, observe computes and shows them, off does neither"`
	Budgets              SearchBudgets
	Context              SearchContext
	Cache                SearchCache
}

// SearchBudgets holds the token limit of a context in each phase.
type SearchBudgets struct {
	InitialPlanning      int `key:"search.budgets.initial_planning" default:"3000" min:"500" max:"100000" help:"most tokens of a context in the phase initial_planning, if the request sets no limit, and about the most of the index of a search"`
	ToolSelection        int `key:"search.budgets.tool_selection" default:"5000" min:"500" max:"100000" help:"the same for tool_selection"`
	ExecutionPreparation int `key:"search.budgets.execution_preparation" default:"4000" min:"500" max:"100000" help:"the same for execution_preparation"`
	ErrorRecovery        int `key:"search.budgets.error_recovery" default:"5000" min:"500" max:"100000" help:"the same for error_recovery"`
}

// SearchContext sets how closely a tool must match to be in a context.
type SearchContext struct {
	Near   float64 `key:"search.context.near" default:"0.5" max:"1" help:"the share of the best tool's score from which a context may show a tool whole, or with its parameters in the index; 0 is any tool"`
	Listed float64 `key:"search.context.listed" default:"0.2" max:"1" help:"the share of the best tool's score from which a tool is in the index of tool_selection; 0 lists tools for as long as the budget has room"`
}

// SearchCache bounds the search cache.
type SearchCache struct {
	Enabled       bool          `key:"search.cache.enabled" default:"true" help:"reuse search results while nothing that they were made from has changed"`
	Entries       int           `key:"search.cache.entries" default:"20000" min:"1" max:"10000000" help:"most results kept in the process"`
	Bytes         int64         `key:"search.cache.bytes" kind:"size" default:"100MiB" min:"64KiB" max:"1TiB" help:"most bytes of them"`
	TTL           time.Duration `key:"search.cache.ttl" default:"5m" min:"1s" max:"1d" help:"how long they are kept there"`
	SharedEntries int           `key:"search.cache.shared_entries" default:"20000" min:"1" max:"100000000" help:"most results kept in Redis, if redis.url is set; one takes 1 KiB or so and 100 KiB at most, all together 2 GB"`
	SharedTTL     time.Duration `key:"search.cache.shared_ttl" default:"1h" min:"1s" max:"1d" help:"how long they are kept there"`
	Wait          time.Duration `key:"search.cache.wait" default:"50ms" min:"1ms" max:"5s" help:"how long a search waits for Redis, once to read and once to write; after a failure Redis is left alone for a second"`
}

// Redis is a server that the nodes share besides the store. It only speeds work up:
// without it the same work is done more slowly.
type Redis struct {
	URL        string        `key:"redis.url" help:"Redis that several nodes share: rediss://user@host:6379/0, redis:// on this machine alone, or unix:///path?db=0; empty is none"`
	Password   string        `key:"redis.password" help:"secret reference of its password, such as env://TOOLKEEP_SECRET_REDIS; asked for at each connection"`
	CAFile     string        `key:"redis.ca_file" help:"PEM file of the authorities of its certificate; empty is the system's"`
	ServerName string        `key:"redis.server_name" help:"name in its certificate, where the URL has another"`
	ClientCert string        `key:"redis.client_cert" help:"PEM file with the client certificate for Redis"`
	ClientKey  string        `key:"redis.client_key" help:"PEM file with its private key"`
	Prefix     string        `key:"redis.prefix" default:"toolkeep:" help:"stands before every key; deployments that share a database each need their own"`
	MaxConns   int           `key:"redis.max_conns" default:"16" min:"1" max:"1000" help:"connections of this node to it"`
	Timeout    time.Duration `key:"redis.timeout" default:"1s" min:"10ms" max:"1m" help:"time limit of connecting to it, and of an answer where no shorter limit applies"`
}

// Egress configures outbound connections of tools.
type Egress struct {
	Proxy          string        `key:"egress.proxy" secret:"true" help:"proxy that HTTP and gRPC tools, MCP servers and documents to import are reached through: http://, https:// or socks5:// with host and port, and user:password@ if it requires them; HTTP_PROXY and its like are not read"`
	ProxyBypass    []string      `key:"egress.proxy_bypass" help:"hosts, .domains, addresses and ranges such as 10.0.0.0/8, each with :port if need be, that are reached without the proxy"`
	ProxyNames     string        `key:"egress.proxy_names" default:"checked" choices:"checked,trusted" help:"checked resolves each name here before the proxy is asked for it, and refuses inner addresses; trusted leaves names to the proxy, for hosts whose DNS cannot resolve external names"`
	CAFiles        []string      `key:"egress.ca_files" help:"PEM files of authorities that are trusted besides the system's for them"`
	TLSMin         string        `key:"egress.tls_min" default:"1.2" choices:"1.2,1.3" help:"oldest version of TLS towards tools' servers"`
	MaxConns       int           `key:"egress.max_conns" default:"256" min:"1" max:"100000" help:"connections to one host for one tenant and allow-list; requests beyond them wait"`
	IdleConns      int           `key:"egress.idle_conns" default:"32" min:"1" max:"100000" help:"of them kept while idle"`
	IdleTimeout    time.Duration `key:"egress.idle_timeout" default:"90s" min:"1s" max:"1h" help:"how long an idle connection is kept"`
	ConnectTimeout time.Duration `key:"egress.connect_timeout" default:"10s" min:"100ms" max:"5m" help:"time limit of resolving the name and connecting, and again of the TLS handshake"`
	MaxHeader      int64         `key:"egress.max_header" kind:"size" default:"256KiB" min:"4KiB" max:"16MiB" help:"most bytes of the headers of a tool's answer"`
}

// Files configures the directories that tools of kind file may use.
type Files struct {
	Roots []string `key:"files.roots" default:"{tenant}:rw" help:"folders that tools of kind file may use, each PATH (to read), PATH:ro or PATH:rw; {tenant} is the caller's tenant, relative ones lie in the folder files of the data directory; none opens nothing"`
}

// Context configures the service that supplies agents' contexts for tools.
type Context struct {
	URL      string        `key:"context.url" help:"service that is called with GET {url}/api/v1/context/agent/{agent}/tool/{tool} for what an agent adds to a tool, such as https://sessions.example; empty asks none"`
	Token    string        `key:"context.token" help:"secret reference of the bearer token for that service, such as env://TOOLKEEP_SECRET_SESSIONS; empty sends none"`
	Required bool          `key:"context.required" default:"true" help:"refuse calls (E3206) while that service does not answer; false executes them with the stored contexts"`
	Timeout  time.Duration `key:"context.timeout" default:"500ms" min:"10ms" max:"30s" help:"how long that service may take"`
	TTL      time.Duration `key:"context.ttl" default:"5m" min:"1s" max:"1h" help:"how long its answer is cached; the answer that there is no context is cached for at most 30s"`
}

// Vault configures the server of vault:// references. Package secret/vault checks the
// rest.
type Vault struct {
	Address        string        `key:"vault.address" help:"URL of HashiCorp Vault or OpenBao, such as https://vault.example:8200, or unix:///path of an agent; empty is none"`
	Namespace      string        `key:"vault.namespace" help:"namespace of all requests"`
	CAFile         string        `key:"vault.ca_file" help:"PEM file of the authorities of Vault's certificate; empty is the system's"`
	ServerName     string        `key:"vault.server_name" help:"name in Vault's certificate, where the address has another"`
	ClientCert     string        `key:"vault.client_cert" help:"PEM file with the client certificate for Vault"`
	ClientKey      string        `key:"vault.client_key" help:"PEM file with its private key"`
	Auth           string        `key:"vault.auth" default:"token" choices:"token,approle,kubernetes,aws-iam,aws-ec2,gcp-iam,gcp-gce,azure" help:"how the server logs in to Vault: token, approle, kubernetes, aws-iam, aws-ec2, gcp-iam, gcp-gce or azure"`
	AuthMount      string        `key:"vault.auth_mount" help:"where that method is mounted below auth/; empty is its usual name"`
	Role           string        `key:"vault.role" help:"role to log in with, for approle the role id; empty is toolkeep for kubernetes, gcp and azure"`
	Token          string        `key:"vault.token" secret:"true" help:"token for vault.auth token; better in vault.token_file"`
	TokenFile      string        `key:"vault.token_file" help:"file with that token, read again when it changes"`
	SecretID       string        `key:"vault.secret_id" secret:"true" help:"secret id for approle; better in vault.secret_id_file"`
	SecretIDFile   string        `key:"vault.secret_id_file" help:"file with the secret id, read at each login"`
	Wrapped        bool          `key:"vault.secret_id_wrapped" default:"false" help:"the configured secret id is a response-wrapping token"`
	JWTFile        string        `key:"vault.jwt_file" help:"file with the token for kubernetes; empty is the pod's service account"`
	ServiceAccount string        `key:"vault.service_account" help:"e-mail of the service account for gcp-iam"`
	Region         string        `key:"vault.region" help:"region for aws-iam and aws-ec2; empty is us-east-1"`
	ServerID       string        `key:"vault.server_id" help:"value that Vault's aws method requires in iam_server_id_header_value, for aws-iam; empty for none"`
	Resource       string        `key:"vault.resource" help:"resource of the token for azure; empty is the management API"`
	Paths          []string      `key:"vault.paths" help:"prefixes of API paths that tools may read, such as secret/data/{tenant}/; {tenant}, {workspace} and {subject} are the caller's; empty opens nothing"`
	Prefix         string        `key:"vault.prefix" default:"secret/tool-execution" help:"stands before vault://./ references; it opens nothing by itself"`
	Mounts         []string      `key:"vault.mounts" help:"version of KV mounts where the login may not ask for it, such as secret=2; 0 for other engines"`
	Timeout        time.Duration `key:"vault.timeout" default:"2s" min:"10ms" max:"1m" help:"time limit of one attempt of a request to Vault; there are three attempts"`
	TransitKey     string        `key:"vault.transit_key" help:"key of Vault's transit engine that seals instead of secrets.seal_key; empty is none"`
	TransitMount   string        `key:"vault.transit_mount" default:"transit" help:"where that engine is mounted"`
}

// Enabled reports whether Vault is configured.
func (v Vault) Enabled() bool { return v.Address != "" }

// SQL configures the database access of tools of kind sql.
type SQL struct {
	SQLiteRoots []string      `key:"sql.sqlite_roots" help:"absolute folders below which tools of kind sql may open SQLite files, {tenant} is the caller's tenant; none by default"`
	SocketDirs  []string      `key:"sql.socket_dirs" help:"absolute folders in which tools of kind sql may open the Unix sockets of databases, {tenant} is the caller's tenant; none by default"`
	MaxConns    int           `key:"sql.max_conns" default:"64" min:"1" max:"10000" help:"connections to all databases of tools; an idle one is closed when another is needed"`
	PoolConns   int           `key:"sql.pool_conns" default:"8" min:"1" max:"1000" help:"of them with the same connection, login and tenant"`
	Wait        time.Duration `key:"sql.wait" default:"5s" min:"10ms" max:"5m" help:"how long a call waits for one of them (then E3601)"`
	IdleTimeout time.Duration `key:"sql.idle_timeout" default:"60s" min:"1s" max:"1h" help:"how long an idle connection to a database is kept"`
}

// Examples configures the example catalogue with its small HTTP service.
type Examples struct {
	Enabled bool   `key:"examples.enabled" default:"false" help:"publish the example tools, std.* and bookshop.*, and run the bookshop; tools that an earlier start published stay"`
	Tools   bool   `key:"examples.tools" default:"false" help:"publish the example tools std.* alone, such as std.hash and std.wait, which run in the server; examples.enabled publishes them too"`
	Addr    string `key:"examples.addr" default:"127.0.0.1:8090" help:"where the example bookshop listens; loopback only"`
}

// Std reports whether the tools std.* are published.
func (e Examples) Std() bool { return e.Enabled || e.Tools }

// Drain configures the shutdown.
type Drain struct {
	Grace   time.Duration `key:"drain.grace" default:"5s" development:"0s" max:"10m" help:"how long new calls are still taken after the first signal to stop, while /health/ready says no and load balancers learn it; on loopback 0"`
	Timeout time.Duration `key:"drain.timeout" default:"30s" max:"1h" help:"how long running calls may go on after drain.grace"`
}

// Print writes the configuration as YAML, with the source of each value as a comment.
// Secret values are masked.
func (c *Config) Print(w io.Writer) error { return printYAML(w, c) }
