package config

import (
	"fmt"
	"log/slog"
	"strings"
	"time"
)

// kind is what a value must be.
type kind int

const (
	text kind = iota
	whole
	size    // bytes: 1048576, 64KiB, 1MiB
	boolean // true or false
	span    // 300ms, 30s, 24h, 7d
	list    // a YAML list, or words parted by commas
	level   // DEBUG, INFO, WARN, ERROR
	decimal
	anything // accepted as it is
)

var kindNames = map[kind]string{text: "text", whole: "number", size: "size", boolean: "true/false", span: "duration",
	list: "list", level: "level", decimal: "number", anything: "any"}

// setting is one row of the table that reading, printing and documentation share.
//
// There are three sorts: rows with bind have a field; rows with means are other
// names of such a row; the rest are accepted for the sake of the documents they
// come from, unless judge refuses the value.
type setting struct {
	key     string // dotted name in the file and for flags; "" has none
	env     string // name in the environment, also taken in the file
	kind    kind
	def     string            // default, as one would write it
	in      map[string]string // defaults that differ in an environment
	choices []string
	least   int64 // smallest number, size or duration (ns)
	most    int64 // largest; 0 is none
	help    string
	secret  bool
	bind    func(*Config) any // pointer to the field

	means string        // key of the row that this is another name of
	unit  time.Duration // a whole number of these, where the row meant is a duration
	port  bool          // the number replaces the port of the address meant

	judge func(v any) string // why this build refuses the value; "" takes it
	quiet bool               // has no effect and needs no note
}

const (
	development = "development"
	staging     = "staging"
	production  = "production"
)

// settings are all rows, in the order of the documentation.
var settings = append(append([]setting{}, ownSettings...), foreignSettings...)

var ownSettings = named([]setting{
	{key: "data", env: "TOOLKEEP_DATA", def: "data", bind: func(c *Config) any { return &c.Data },
		help: "directory of all that the server keeps; one process at a time"},

	{key: "service.name", env: "L03_SERVICE_NAME", def: "l03-tool-executor", bind: func(c *Config) any { return &c.Service.Name },
		help: "name of the service in the metric toolkeep_build_info"},
	{key: "service.version", env: "L03_SERVICE_VERSION", bind: func(c *Config) any { return &c.Service.Version },
		help: "version shown by health; empty is the program's own"},
	{key: "service.environment", env: "L03_ENVIRONMENT", choices: []string{"", development, staging, production},
		bind: func(c *Config) any { return &c.Service.Environment },
		help: "development, staging or production; changes the defaults that name it below"},

	{key: "http.addr", def: "127.0.0.1:8080", bind: func(c *Config) any { return &c.HTTP.Addr },
		help: "where REST and health listen; beyond loopback needs tls.cert, tls.key and access.method or oauth.issuer"},
	{key: "http.hosts", kind: list, bind: func(c *Config) any { return &c.HTTP.Hosts },
		help: "names, beside loopback and the address itself, under which the server is reached, such as that of a reverse proxy or of the certificate"},
	{key: "http.max_body", kind: size, def: "1MiB", least: 1 << 10, most: 1 << 30, bind: func(c *Config) any { return &c.HTTP.MaxBody },
		help: "largest body of a request"},
	{key: "http.max_depth", kind: whole, def: "50", least: 1, most: 1000, bind: func(c *Config) any { return &c.HTTP.MaxDepth },
		help: "deepest nesting of JSON in a body"},
	{key: "http.max_properties", kind: whole, def: "1000", least: 1, most: 1_000_000, bind: func(c *Config) any { return &c.HTTP.MaxProperties },
		help: "most properties in all objects of a body"},
	{key: "http.max_header", kind: size, def: "64KiB", least: 4 << 10, most: 1 << 20, bind: func(c *Config) any { return &c.HTTP.MaxHeader },
		help: "most bytes of a request's headers"},
	{key: "http.max_key", kind: size, def: "4KiB", least: 64, most: 64 << 10, bind: func(c *Config) any { return &c.HTTP.MaxKey },
		help: "longest idempotency key or id"},

	{key: "http.public_url", bind: func(c *Config) any { return &c.HTTP.PublicURL },
		help: "address under which people and authorization servers reach the server, such as https://tools.example; empty is where it listens"},

	{key: "http.peer_url", bind: func(c *Config) any { return &c.HTTP.PeerURL },
		help: "address under which the other nodes on the same PostgreSQL reach this one, such as https://10.0.0.7:8080; empty is where it listens, if that is one address"},

	{key: "mcp.view", def: "auto", choices: []string{"auto", "all", "search"}, bind: func(c *Config) any { return &c.MCP.View },
		help: "what /mcp shows: all tools, the four tools that search, or auto: all while a caller sees few"},
	{key: "mcp.auto_tools", kind: whole, def: "40", least: 1, most: 10_000, bind: func(c *Config) any { return &c.MCP.AutoTools },
		help: "tools that a caller may see before auto shows the search instead"},
	{key: "mcp.sets_file", bind: func(c *Config) any { return &c.MCP.SetsFile },
		help: "YAML file with the sets of tools at /mcp/sets/{name}"},
	{key: "mcp.origins", kind: list, bind: func(c *Config) any { return &c.MCP.Origins },
		help: "web origins, such as https://app.example, whose pages may use /mcp from a browser; * is any; none but the server's own by default"},
	{key: "mcp.stdio_tenants", kind: list, bind: func(c *Config) any { return &c.MCP.StdioTenants },
		help: "tenants besides default whose administrators may add MCP servers by stdio, * for all; such a program runs as the server's user and can read what the server can, other tenants' secrets included"},
	{key: "mcp.session_idle", kind: span, def: "30m", least: int64(time.Second), most: int64(7 * 24 * time.Hour), bind: func(c *Config) any { return &c.MCP.SessionIdle },
		help: "an MCP session without a request or an open stream for so long ends"},
	{key: "mcp.sessions", kind: whole, def: "10000", least: 1, most: 1_000_000, bind: func(c *Config) any { return &c.MCP.Sessions },
		help: "MCP sessions at once"},

	{key: "grpc.addr", def: "127.0.0.1:50053", bind: func(c *Config) any { return &c.GRPC.Addr },
		help: "where gRPC listens, off for not at all; beyond loopback needs the same as http.addr; the limits http.max_… are its limits too"},

	{key: "metrics.addr", def: "127.0.0.1:9090", bind: func(c *Config) any { return &c.Metrics.Addr },
		help: "where Prometheus reads /metrics; beyond loopback needs the same as http.addr"},
	{key: "metrics.max_tools", kind: whole, def: "10000", least: 1, most: 1_000_000, bind: func(c *Config) any { return &c.Metrics.MaxTools },
		help: "tool ids with series of their own; further ones are dropped and counted"},

	{key: "tls.cert", bind: func(c *Config) any { return &c.TLS.Cert }, help: "PEM file with the certificate chain of all listeners"},
	{key: "tls.key", bind: func(c *Config) any { return &c.TLS.Key }, help: "PEM file with the private key"},
	{key: "tls.client_ca", bind: func(c *Config) any { return &c.TLS.ClientCA },
		help: "PEM file with the authorities whose client certificates are let in (mTLS); every listener then refuses a client without one, health and metrics too; empty asks for none"},

	{key: "access.method", bind: func(c *Config) any { return &c.Access.Method }, choices: []string{"", "api_key", "oauth"},
		help: "how callers authenticate: api_key, or oauth, which needs oauth.issuer and takes API keys too; this or oauth.issuer must be set where the server listens beyond loopback"},
	{key: "access.mode", env: "L03_PERMISSION_MANAGER_MODE", def: "rbac", bind: func(c *Config) any { return &c.Access.Mode }, choices: []string{"rbac"},
		help: "which checks must pass besides risk: rbac (roles); attribute policies (abac) and capability tokens are not in this build"},
	{key: "access.roles_file", bind: func(c *Config) any { return &c.Access.RolesFile },
		help: "YAML file with roles besides the built-in ones; in this file they may stand under `roles`"},

	{key: "oauth.issuer", bind: func(c *Config) any { return &c.OAuth.Issuer },
		help: "URL of the authorization server whose access tokens are taken beside API keys, as the tokens' iss says it; empty takes none"},
	{key: "oauth.audience", kind: list, bind: func(c *Config) any { return &c.OAuth.Audience },
		help: "values of aud of which a token must have one; by default the server's public URL or an MCP endpoint below it"},
	{key: "oauth.jwks_url", bind: func(c *Config) any { return &c.OAuth.JWKSURL },
		help: "where the issuer's keys are; empty is what its metadata says"},
	{key: "oauth.subject_claim", def: "sub", bind: func(c *Config) any { return &c.OAuth.SubjectClaim }, help: "claim that names the caller"},
	{key: "oauth.tenant_claim", def: "tenant", bind: func(c *Config) any { return &c.OAuth.TenantClaim }, help: "claim that names the caller's tenant"},
	{key: "oauth.default_tenant", bind: func(c *Config) any { return &c.OAuth.DefaultTenant },
		help: "tenant of tokens without that claim, such as default; empty refuses them"},
	{key: "oauth.workspace_claim", bind: func(c *Config) any { return &c.OAuth.WorkspaceClaim },
		help: "claim that names the caller's workspace, whose secrets come before the tenant's own; empty takes none from tokens"},
	{key: "oauth.scopes", kind: list, bind: func(c *Config) any { return &c.OAuth.Scopes },
		help: "role of each scope, as scope=role, such as tools:call=agent; other scopes grant nothing"},

	{key: "log.level", env: "L03_LOG_LEVEL", kind: level, def: "INFO", in: map[string]string{development: "DEBUG", production: "WARN"},
		bind: func(c *Config) any { return &c.Log.Level }, help: "DEBUG, INFO, WARN or ERROR; changeable at run time"},
	{key: "log.format", def: "json", choices: []string{"json", "text"}, bind: func(c *Config) any { return &c.Log.Format }, help: "json lines, or text for people"},
	{key: "log.buffer", kind: size, def: "1MiB", least: 4 << 10, most: 1 << 30, bind: func(c *Config) any { return &c.Log.Buffer },
		help: "lines that wait to be written; past it they are dropped and counted"},

	{key: "limits.agent_per_minute", env: "L03_RATE_LIMITER_PER_AGENT_RPM", kind: whole, def: "100", in: map[string]string{development: "10000"},
		least: -1, most: 100_000_000, bind: func(c *Config) any { return &c.Limits.AgentPerMinute }, help: "requests of one agent a minute; -1 is no limit, 0 the default"},
	{key: "limits.agent_tool_per_minute", env: "L03_RATE_LIMITER_PER_TOOL_RPM", kind: whole, def: "10", in: map[string]string{development: "1000"},
		least: -1, most: 100_000_000, bind: func(c *Config) any { return &c.Limits.AgentToolPerMinute }, help: "calls of one agent on one tool a minute; -1 is no limit, 0 the default"},
	{key: "limits.global_per_minute", env: "L03_RATE_LIMITER_GLOBAL_RPM", kind: whole, def: "10000", in: map[string]string{development: "1000000"},
		least: -1, most: 100_000_000, bind: func(c *Config) any { return &c.Limits.GlobalPerMinute }, help: "requests of all a minute; -1 is no limit, 0 the default"},
	{key: "limits.agent_concurrent", kind: whole, def: "4", least: -1, most: 100_000, bind: func(c *Config) any { return &c.Limits.AgentConcurrent },
		help: "calls of one agent at once; -1 is no limit, 0 the default"},

	{key: "calls.sync_limit", kind: span, def: "30s", in: map[string]string{development: "60s"}, least: int64(time.Second), most: int64(time.Hour),
		bind: func(c *Config) any { return &c.Calls.SyncLimit }, help: "longest synchronous call"},
	{key: "calls.wait_limit", kind: span, def: "24h", least: int64(time.Second), most: int64(30 * 24 * time.Hour),
		bind: func(c *Config) any { return &c.Calls.WaitLimit }, help: "longest that an asynchronous call may wait and run"},
	{key: "calls.result_lifetime", kind: span, def: "24h", least: int64(time.Minute), most: int64(365 * 24 * time.Hour),
		bind: func(c *Config) any { return &c.Calls.ResultLifetime }, help: "how long the answer of an asynchronous call can be fetched (then E3704)"},
	{key: "calls.workers", kind: whole, def: "8", least: 1, most: 10_000, bind: func(c *Config) any { return &c.Calls.Workers },
		help: "asynchronous calls that run at once"},
	{key: "calls.poll", kind: span, def: "100ms", least: int64(time.Millisecond), most: int64(time.Minute), bind: func(c *Config) any { return &c.Calls.Poll },
		help: "pause between looks at the queue; new calls are noticed at once, this is for those that become due"},
	{key: "calls.lease", kind: span, def: "10s", least: int64(3 * time.Second), most: int64(time.Hour), bind: func(c *Config) any { return &c.Calls.Lease },
		help: "a worker that does not renew its lease for so long is taken for dead; renewed at a third of it"},
	{key: "calls.max_result", kind: size, def: "100MB", least: 1 << 10, most: 4 << 30, bind: func(c *Config) any { return &c.Calls.MaxResult },
		help: "largest raw result of a tool; past it the call fails (E3710)"},

	{key: "cache.enabled", env: "L03_TOOL_CACHE_ENABLED", kind: boolean, def: "true", bind: func(c *Config) any { return &c.Cache.Enabled },
		help: "keep results of tools that allow it"},
	{key: "cache.ttl", kind: span, def: "300s", in: map[string]string{development: "60s"}, least: int64(time.Second), most: int64(365 * 24 * time.Hour),
		bind: func(c *Config) any { return &c.Cache.TTL }, help: "how long a result is kept where the tool's manifest names no time"},
	{key: "cache.entries", env: "L03_TOOL_CACHE_MAX_ENTRIES", kind: whole, def: "10000", least: 1, most: 100_000_000, bind: func(c *Config) any { return &c.Cache.Entries },
		help: "most results kept"},
	{key: "cache.bytes", env: "L03_TOOL_CACHE_MAX_SIZE_BYTES", kind: size, def: "100MiB", least: 1 << 10, most: 1 << 40,
		bind: func(c *Config) any { return &c.Cache.Bytes }, help: "most bytes of results kept"},

	{key: "catalog.stale_for", kind: span, def: "300s", most: int64(24 * time.Hour), bind: func(c *Config) any { return &c.Catalog.StaleFor },
		help: "how long reading calls are served from the definitions that the node knows while the store is down; then they are E3003 and the node is not ready"},
	{key: "catalog.keep_active", kind: whole, def: "5", least: 1, most: 1000, bind: func(c *Config) any { return &c.Catalog.KeepActive },
		help: "versions of a tool kept active; the oldest beyond becomes deprecated"},
	{key: "catalog.removal_after", kind: span, def: "90d", most: int64(3650 * 24 * time.Hour), bind: func(c *Config) any { return &c.Catalog.RemovalAfter },
		help: "between a version's deprecation and its earliest removal"},

	{key: "store.dsn", secret: true, bind: func(c *Config) any { return &c.Store.DSN },
		help: "PostgreSQL that several nodes share, as a URL or keywords; empty is the embedded SQLite in the data directory"},
	{key: "store.max_conns", kind: whole, def: "16", least: 4, most: 1000, bind: func(c *Config) any { return &c.Store.MaxConns },
		help: "connections of this node to PostgreSQL"},
	{key: "store.blobs", bind: func(c *Config) any { return &c.Store.Blobs },
		help: "folder of results that were cut; empty is in the data directory, nodes that share a store need a shared one"},
	{key: "store.synchronous", def: "NORMAL", choices: []string{"NORMAL", "FULL"}, bind: func(c *Config) any { return &c.Store.Synchronous },
		help: "NORMAL survives the death of the process, FULL also loss of power"},
	{key: "store.group_delay", kind: span, def: "500us", most: int64(time.Second), bind: func(c *Config) any { return &c.Store.GroupDelay },
		help: "how long the writer gathers changes while more than one call is in flight"},
	{key: "store.wal_bytes", kind: size, def: "64MiB", least: 1 << 20, most: 1 << 40, bind: func(c *Config) any { return &c.Store.WALBytes },
		help: "size from which the write-ahead log is cut"},
	{key: "store.keep_calls", kind: span, def: "30d", least: int64(time.Hour), bind: func(c *Config) any { return &c.Store.KeepCalls },
		help: "how long records of ended calls stay"},
	{key: "store.keep_events", kind: span, def: "90d", least: int64(time.Hour), bind: func(c *Config) any { return &c.Store.KeepEvents },
		help: "how long events stay"},
	{key: "store.keep_feed", kind: span, def: "7d", least: int64(time.Hour), bind: func(c *Config) any { return &c.Store.KeepFeed },
		help: "how long changes of calls stay in the feed"},

	{key: "secrets.seal_key", bind: func(c *Config) any { return &c.Secrets.SealKey },
		help: "file of the keys that seal secrets, logins and arguments of waiting calls, made if absent; empty is in the data directory, nodes that share a store need the same"},
	{key: "secrets.seal_keys", env: "TOOLKEEP_SEAL_KEY", secret: true, bind: func(c *Config) any { return &c.Secrets.SealKeys },
		help: "the keys themselves instead of that file, 32 bytes each as base64 or hex; the first one seals, those after it, separated by spaces, still open"},
	{key: "secrets.last_known_good", kind: boolean, def: "false", bind: func(c *Config) any { return &c.Secrets.LastKnownGood },
		help: "let what a store of secrets gave within the last 24 hours serve, with a warning, while it cannot be reached; it is kept sealed in memory"},
	{key: "secrets.env", kind: list, bind: func(c *Config) any { return &c.Secrets.Env },
		help: "patterns of environment variables that env:// references may name, such as SHOP_*"},
	{key: "secrets.dirs", kind: list, bind: func(c *Config) any { return &c.Secrets.Dirs },
		help: "absolute folders below which file:// references may read, besides secrets in the data directory"},

	{key: "search.model", def: "auto", choices: []string{"auto", "all-MiniLM-L6-v2", "none"}, bind: func(c *Config) any { return &c.Search.Model },
		help: "embedding model that search compares meanings with; auto takes all-MiniLM-L6-v2 where it is installed (toolkeep models), and words alone where it is not"},
	{key: "search.models_dir", bind: func(c *Config) any { return &c.Search.ModelsDir },
		help: "folder of installed models; default models in the data directory"},
	{key: "search.embeddings_url", bind: func(c *Config) any { return &c.Search.EmbeddingsURL },
		help: "base address of an OpenAI-compatible service that embeds instead of the own model, such as http://127.0.0.1:11434/v1 of Ollama"},
	{key: "search.embeddings_model", bind: func(c *Config) any { return &c.Search.EmbeddingsModel },
		help: "the service's name of the model"},
	{key: "search.embeddings_dimensions", kind: whole, def: "0", most: 8192, bind: func(c *Config) any { return &c.Search.EmbeddingsDimensions },
		help: "how many numbers its vectors have"},
	{key: "search.embeddings_key", bind: func(c *Config) any { return &c.Search.EmbeddingsKey },
		help: "reference of the service's API key, such as env://TOOLKEEP_SECRET_EMBEDDINGS"},
	{key: "search.vectors", def: "memory", choices: []string{"memory", "pgvector"}, bind: func(c *Config) any { return &c.Search.Vectors },
		help: "what keeps the vectors of tools and compares them: memory, with files in the data directory, or pgvector, a PostgreSQL whose vectors nodes share"},
	{key: "search.vectors_dsn", secret: true, bind: func(c *Config) any { return &c.Search.VectorsDSN },
		help: "PostgreSQL of search.vectors: pgvector, as a URL or keywords; empty is store.dsn"},
	{key: "search.semantic_weight", kind: decimal, def: "0.4", most: 1, bind: func(c *Config) any { return &c.Search.SemanticWeight },
		help: "how much likeness of meaning counts in a score, beside search.keyword_weight"},
	{key: "search.keyword_weight", kind: decimal, def: "0.3", most: 1, bind: func(c *Config) any { return &c.Search.KeywordWeight },
		help: "how much the fit of the words counts in a score"},
	{key: "search.history_weight", kind: decimal, def: "0.2", most: 1, bind: func(c *Config) any { return &c.Search.HistoryWeight },
		help: "how much it counts that the conversation or the user called a tool before; three times as much in the strategy session"},
	{key: "search.success_weight", kind: decimal, def: "0.1", most: 1, bind: func(c *Config) any { return &c.Search.SuccessWeight },
		help: "how much the share of a tool's calls that succeeded counts in a score"},
	{key: "search.complexity_weight", kind: decimal, def: "0.1", most: 1, bind: func(c *Config) any { return &c.Search.ComplexityWeight },
		help: "what a tool of complexity high loses of its score; one of medium loses half of it"},
	{key: "search.threshold", kind: decimal, def: "0", most: 1, bind: func(c *Config) any { return &c.Search.Threshold },
		help: "what a tool must have in common with the question to be found: the cosine of their meanings or the share of the question's words, whichever is more; 0 leaves nothing out"},
	{key: "search.history", def: "on", choices: []string{"on", "off"}, bind: func(c *Config) any { return &c.Search.History },
		help: "whether questions are kept and learned from; off records searches without what was asked"},
	{key: "search.history_keep", kind: span, def: "30d", least: int64(24 * time.Hour), most: int64(365 * 24 * time.Hour), bind: func(c *Config) any { return &c.Search.HistoryKeep },
		help: "for how long calls and searches count in what is learned; all nodes of a store need the same"},
	{key: "search.learning", def: "on", choices: []string{"on", "observe", "off"}, bind: func(c *Config) any { return &c.Search.Learning },
		help: "weights that are learned from which tools were chosen: on uses them, observe computes and shows them, off does neither"},
	{key: "search.budgets.initial_planning", kind: whole, def: "3000", least: 500, most: 100_000, bind: func(c *Config) any { return &c.Search.Budgets.InitialPlanning },
		help: "tokens at most of a context in the phase initial_planning, where the request names none"},
	{key: "search.budgets.tool_selection", kind: whole, def: "5000", least: 500, most: 100_000, bind: func(c *Config) any { return &c.Search.Budgets.ToolSelection },
		help: "the same for tool_selection"},
	{key: "search.budgets.execution_preparation", kind: whole, def: "4000", least: 500, most: 100_000, bind: func(c *Config) any { return &c.Search.Budgets.ExecutionPreparation },
		help: "the same for execution_preparation"},
	{key: "search.budgets.error_recovery", kind: whole, def: "5000", least: 500, most: 100_000, bind: func(c *Config) any { return &c.Search.Budgets.ErrorRecovery },
		help: "the same for error_recovery"},
	{key: "search.context.near", kind: decimal, def: "0.5", most: 1, bind: func(c *Config) any { return &c.Search.Context.Near },
		help: "the share of the best tool's score from which a context may show a tool whole, or with its parameters in the index; 0 is any tool"},
	{key: "search.context.listed", kind: decimal, def: "0.2", most: 1, bind: func(c *Config) any { return &c.Search.Context.Listed },
		help: "the share of the best tool's score from which a tool is in the index of tool_selection; 0 lists tools for as long as the budget has room"},

	{key: "search.cache.enabled", kind: boolean, def: "true", bind: func(c *Config) any { return &c.Search.Cache.Enabled },
		help: "give answers of search again while nothing that they were made from has changed"},
	{key: "search.cache.entries", kind: whole, def: "20000", least: 1, most: 10_000_000, bind: func(c *Config) any { return &c.Search.Cache.Entries },
		help: "most answers kept in the process"},
	{key: "search.cache.bytes", kind: size, def: "100MiB", least: 64 << 10, most: 1 << 40, bind: func(c *Config) any { return &c.Search.Cache.Bytes },
		help: "most bytes of them"},
	{key: "search.cache.ttl", kind: span, def: "5m", least: int64(time.Second), most: int64(24 * time.Hour), bind: func(c *Config) any { return &c.Search.Cache.TTL },
		help: "how long they are kept there"},
	{key: "search.cache.shared_entries", kind: whole, def: "20000", least: 1, most: 100_000_000, bind: func(c *Config) any { return &c.Search.Cache.SharedEntries },
		help: "most answers kept in Redis, where redis.url names one; one takes 1 KiB or so and 100 KiB at most, all together 2 GB"},
	{key: "search.cache.shared_ttl", kind: span, def: "1h", least: int64(time.Second), most: int64(7 * 24 * time.Hour), bind: func(c *Config) any { return &c.Search.Cache.SharedTTL },
		help: "how long they are kept there"},
	{key: "search.cache.wait", kind: span, def: "50ms", least: int64(time.Millisecond), most: int64(5 * time.Second), bind: func(c *Config) any { return &c.Search.Cache.Wait },
		help: "how long a search waits for Redis, once to read and once to write; after a failure Redis is left alone for a second"},

	{key: "redis.url", bind: func(c *Config) any { return &c.Redis.URL },
		help: "Redis that several nodes share: rediss://user@host:6379/0, redis:// on this machine alone, or unix:///path?db=0; empty is none"},
	{key: "redis.password", bind: func(c *Config) any { return &c.Redis.Password },
		help: "secret reference of its password, such as env://TOOLKEEP_SECRET_REDIS; asked for at each connection"},
	{key: "redis.ca_file", bind: func(c *Config) any { return &c.Redis.CAFile }, help: "PEM file of the authorities of its certificate; empty is the system's"},
	{key: "redis.server_name", bind: func(c *Config) any { return &c.Redis.ServerName }, help: "name in its certificate, where the URL has another"},
	{key: "redis.client_cert", bind: func(c *Config) any { return &c.Redis.ClientCert }, help: "PEM file with the certificate that it is shown"},
	{key: "redis.client_key", bind: func(c *Config) any { return &c.Redis.ClientKey }, help: "PEM file with its private key"},
	{key: "redis.prefix", def: "toolkeep:", bind: func(c *Config) any { return &c.Redis.Prefix }, help: "stands before every key; deployments that share a database each need their own"},
	{key: "redis.max_conns", kind: whole, def: "16", least: 1, most: 1000, bind: func(c *Config) any { return &c.Redis.MaxConns }, help: "connections of this node to it"},
	{key: "redis.timeout", kind: span, def: "1s", least: int64(10 * time.Millisecond), most: int64(time.Minute), bind: func(c *Config) any { return &c.Redis.Timeout },
		help: "longest for connecting to it, and for an answer where nothing shorter is said"},

	{key: "egress.proxy", secret: true, bind: func(c *Config) any { return &c.Egress.Proxy },
		help: "proxy that HTTP and gRPC tools, MCP servers and documents to import are reached through: http://, https:// or socks5:// with host and port, and user:password@ where it wants them; HTTP_PROXY and its like are not read"},
	{key: "egress.proxy_bypass", kind: list, bind: func(c *Config) any { return &c.Egress.ProxyBypass },
		help: "hosts, .domains, addresses and ranges such as 10.0.0.0/8, each with :port if need be, that are reached without the proxy"},
	{key: "egress.proxy_names", def: "checked", choices: []string{"checked", "trusted"}, bind: func(c *Config) any { return &c.Egress.ProxyNames },
		help: "checked resolves each name here before the proxy is asked for it, and refuses inner addresses; trusted leaves names to the proxy, for hosts whose DNS does not know the outside"},
	{key: "egress.ca_files", kind: list, bind: func(c *Config) any { return &c.Egress.CAFiles },
		help: "PEM files of authorities that are trusted besides the system's for them"},
	{key: "egress.tls_min", def: "1.2", choices: []string{"1.2", "1.3"}, bind: func(c *Config) any { return &c.Egress.TLSMin },
		help: "oldest version of TLS towards tools' servers"},
	{key: "egress.max_conns", kind: whole, def: "256", least: 1, most: 100_000, bind: func(c *Config) any { return &c.Egress.MaxConns },
		help: "connections to one host for one tenant and allow-list; requests beyond them wait"},
	{key: "egress.idle_conns", kind: whole, def: "32", least: 1, most: 100_000, bind: func(c *Config) any { return &c.Egress.IdleConns },
		help: "of them kept while idle"},
	{key: "egress.idle_timeout", kind: span, def: "90s", least: int64(time.Second), most: int64(time.Hour), bind: func(c *Config) any { return &c.Egress.IdleTimeout },
		help: "how long an idle connection is kept"},
	{key: "egress.connect_timeout", kind: span, def: "10s", least: int64(100 * time.Millisecond), most: int64(5 * time.Minute), bind: func(c *Config) any { return &c.Egress.ConnectTimeout },
		help: "longest for finding the name and connecting, and again for TLS"},
	{key: "egress.max_header", kind: size, def: "256KiB", least: 4 << 10, most: 16 << 20, bind: func(c *Config) any { return &c.Egress.MaxHeader },
		help: "most bytes of the headers of a tool's answer"},

	{key: "files.roots", kind: list, def: "{tenant}:rw", bind: func(c *Config) any { return &c.Files.Roots },
		help: "folders that tools of kind file may use, each PATH (to read), PATH:ro or PATH:rw; {tenant} is the caller's tenant, relative ones lie in the folder files of the data directory; none opens nothing"},

	{key: "context.url", bind: func(c *Config) any { return &c.Context.URL },
		help: "service that is asked GET {url}/api/v1/context/agent/{agent}/tool/{tool} for what an agent adds to a tool, such as https://sessions.example; empty asks none"},
	{key: "context.token", bind: func(c *Config) any { return &c.Context.Token },
		help: "secret reference of the bearer token for that service, such as env://TOOLKEEP_SECRET_SESSIONS; empty sends none"},
	{key: "context.required", kind: boolean, def: "true", bind: func(c *Config) any { return &c.Context.Required },
		help: "refuse calls (E3206) while that service gives no answer; false lets them go on with what the store says"},
	{key: "context.timeout", kind: span, def: "500ms", least: int64(10 * time.Millisecond), most: int64(30 * time.Second), bind: func(c *Config) any { return &c.Context.Timeout },
		help: "how long that service may take"},
	{key: "context.ttl", kind: span, def: "5m", least: int64(time.Second), most: int64(time.Hour), bind: func(c *Config) any { return &c.Context.TTL },
		help: "how long its answer holds; that it has none holds for 30s at most"},

	{key: "vault.address", bind: func(c *Config) any { return &c.Vault.Address },
		help: "URL of HashiCorp Vault or OpenBao, such as https://vault.example:8200, or unix:///path of an agent; empty is none"},
	{key: "vault.namespace", bind: func(c *Config) any { return &c.Vault.Namespace }, help: "namespace of all requests"},
	{key: "vault.ca_file", bind: func(c *Config) any { return &c.Vault.CAFile }, help: "PEM file of the authorities of Vault's certificate; empty is the system's"},
	{key: "vault.server_name", bind: func(c *Config) any { return &c.Vault.ServerName }, help: "name in Vault's certificate, where the address has another"},
	{key: "vault.client_cert", bind: func(c *Config) any { return &c.Vault.ClientCert }, help: "PEM file with the certificate that Vault is shown"},
	{key: "vault.client_key", bind: func(c *Config) any { return &c.Vault.ClientKey }, help: "PEM file with its private key"},
	{key: "vault.auth", def: "token", choices: []string{"token", "approle", "kubernetes", "aws-iam", "aws-ec2", "gcp-iam", "gcp-gce", "azure"},
		bind: func(c *Config) any { return &c.Vault.Auth },
		help: "how the server logs in to Vault: token, approle, kubernetes, aws-iam, aws-ec2, gcp-iam, gcp-gce or azure"},
	{key: "vault.auth_mount", bind: func(c *Config) any { return &c.Vault.AuthMount }, help: "where that method is mounted below auth/; empty is its usual name"},
	{key: "vault.role", bind: func(c *Config) any { return &c.Vault.Role }, help: "role to log in with, for approle the role id; empty is toolkeep for kubernetes, gcp and azure"},
	{key: "vault.token", secret: true, bind: func(c *Config) any { return &c.Vault.Token }, help: "token for vault.auth token; better in vault.token_file"},
	{key: "vault.token_file", bind: func(c *Config) any { return &c.Vault.TokenFile }, help: "file with that token, read again when it changes"},
	{key: "vault.secret_id", secret: true, bind: func(c *Config) any { return &c.Vault.SecretID }, help: "secret id for approle; better in vault.secret_id_file"},
	{key: "vault.secret_id_file", bind: func(c *Config) any { return &c.Vault.SecretIDFile }, help: "file with the secret id, read at each login"},
	{key: "vault.secret_id_wrapped", kind: boolean, def: "false", bind: func(c *Config) any { return &c.Vault.Wrapped }, help: "what is there is a response-wrapping token of the secret id"},
	{key: "vault.jwt_file", bind: func(c *Config) any { return &c.Vault.JWTFile }, help: "file with the token for kubernetes; empty is the pod's service account"},
	{key: "vault.service_account", bind: func(c *Config) any { return &c.Vault.ServiceAccount }, help: "e-mail of the service account for gcp-iam"},
	{key: "vault.region", bind: func(c *Config) any { return &c.Vault.Region }, help: "region for aws-iam and aws-ec2; empty is us-east-1"},
	{key: "vault.server_id", bind: func(c *Config) any { return &c.Vault.ServerID }, help: "what Vault's aws method wants in iam_server_id_header_value, for aws-iam; empty for none"},
	{key: "vault.resource", bind: func(c *Config) any { return &c.Vault.Resource }, help: "resource of the token for azure; empty is the management API"},
	{key: "vault.paths", kind: list, bind: func(c *Config) any { return &c.Vault.Paths },
		help: "prefixes of API paths that tools may read, such as secret/data/{tenant}/; {tenant}, {workspace} and {subject} are the caller's; empty opens nothing"},
	{key: "vault.prefix", def: "secret/tool-execution", bind: func(c *Config) any { return &c.Vault.Prefix },
		help: "stands before vault://./ references; it opens nothing by itself"},
	{key: "vault.mounts", kind: list, bind: func(c *Config) any { return &c.Vault.Mounts },
		help: "version of KV mounts where the login may not ask for it, such as secret=2; 0 for other engines"},
	{key: "vault.timeout", kind: span, def: "2s", least: int64(10 * time.Millisecond), most: int64(time.Minute), bind: func(c *Config) any { return &c.Vault.Timeout },
		help: "longest for one attempt of a request to Vault; there are three"},
	{key: "vault.transit_key", bind: func(c *Config) any { return &c.Vault.TransitKey },
		help: "key of Vault's transit engine that seals instead of secrets.seal_key; empty is none"},
	{key: "vault.transit_mount", def: "transit", bind: func(c *Config) any { return &c.Vault.TransitMount }, help: "where that engine is mounted"},

	{key: "sql.sqlite_roots", kind: list, bind: func(c *Config) any { return &c.SQL.SQLiteRoots },
		help: "absolute folders below which tools of kind sql may open SQLite files, {tenant} is the caller's tenant; none by default"},
	{key: "sql.socket_dirs", kind: list, bind: func(c *Config) any { return &c.SQL.SocketDirs },
		help: "absolute folders in which tools of kind sql may open the Unix sockets of databases, {tenant} is the caller's tenant; none by default"},
	{key: "sql.max_conns", kind: whole, def: "64", least: 1, most: 10_000, bind: func(c *Config) any { return &c.SQL.MaxConns },
		help: "connections to all databases of tools; an idle one gives way to one that is needed"},
	{key: "sql.pool_conns", kind: whole, def: "8", least: 1, most: 1000, bind: func(c *Config) any { return &c.SQL.PoolConns },
		help: "of them with the same connection, login and tenant"},
	{key: "sql.wait", kind: span, def: "5s", least: int64(10 * time.Millisecond), most: int64(5 * time.Minute), bind: func(c *Config) any { return &c.SQL.Wait },
		help: "how long a call waits for one of them (then E3601)"},
	{key: "sql.idle_timeout", kind: span, def: "60s", least: int64(time.Second), most: int64(time.Hour), bind: func(c *Config) any { return &c.SQL.IdleTimeout },
		help: "how long an idle connection to a database is kept"},

	{key: "examples.enabled", kind: boolean, def: "false", bind: func(c *Config) any { return &c.Examples.Enabled },
		help: "publish the example catalogue and run its bookshop"},
	{key: "examples.addr", def: "127.0.0.1:8090", bind: func(c *Config) any { return &c.Examples.Addr }, help: "where the example bookshop listens; loopback only"},

	{key: "drain.timeout", kind: span, def: "30s", most: int64(time.Hour), bind: func(c *Config) any { return &c.Drain.Timeout },
		help: "how long running calls may go on after the first signal to stop"},
}, "TOOLKEEP_")

// Components are those whose log level can be set: log.components.NAME or
// L03_NAME_LOG_LEVEL.
var Components = []string{"tool_registry", "permission_manager", "rate_limiter", "tool_cache", "secret_manager",
	"input_validator", "result_validator", "tool_executor", "http_executor", "builtin_executor", "discovery",
	"store", "queue", "rest", "grpc", "invoke", "health", "server"}

const (
	componentKey  = "log.components."
	componentEnv  = "L03_"
	componentTail = "_LOG_LEVEL"
	rolesKey      = "roles"
)

// named gives the rows without a name in the environment the one that follows
// from their key.
func named(rows []setting, prefix string) []setting {
	for i := range rows {
		if rows[i].env == "" {
			rows[i].env = prefix + strings.ToUpper(strings.ReplaceAll(rows[i].key, ".", "_"))
		}
	}
	return rows
}

// check tells why the value behind a field's pointer is out of range.
func (s *setting) check(p any) string {
	switch p := p.(type) {
	case *string:
		return s.checkChoice(*p)
	case *int:
		return s.checkNumber(int64(*p), "%d", func(n int64) any { return n })
	case *int64:
		return s.checkNumber(*p, "%d", func(n int64) any { return n })
	case *float64:
		if *p < float64(s.least) || s.most > 0 && *p > float64(s.most) {
			return fmt.Sprintf("is %g, which is not between %d and %d", *p, s.least, s.most)
		}
		return ""
	case *time.Duration:
		return s.checkNumber(int64(*p), "%s", func(n int64) any { return time.Duration(n) })
	case *slog.Level, *bool, *[]string:
		return ""
	}
	return "has a field of an unknown type"
}

func (s *setting) checkChoice(v string) string {
	if s.choices == nil {
		return ""
	}
	var named []string
	for _, c := range s.choices {
		if c == v {
			return ""
		}
		if c != "" {
			named = append(named, c)
		}
	}
	return fmt.Sprintf("is %q, which is not in this build; use %s", v, strings.Join(named, ", "))
}

func (s *setting) checkNumber(n int64, verb string, show func(int64) any) string {
	switch {
	case n < s.least:
		return fmt.Sprintf("is "+verb+", below the least of "+verb, show(n), show(s.least))
	case s.most > 0 && n > s.most:
		return fmt.Sprintf("is "+verb+", above the most of "+verb, show(n), show(s.most))
	}
	return ""
}
