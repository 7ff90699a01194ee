package config

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/toolkeep/toolkeep"
)

var update = flag.Bool("update", false, "write docs/configuration.md")

func file(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "toolkeep.yaml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func load(t *testing.T, s Sources) *Config {
	t.Helper()
	c, err := Load(s)
	if err != nil {
		t.Fatalf("%v\n%v", err, messages(err))
	}
	return c
}

func messages(err error) []string {
	var e *toolkeep.Error
	if !errors.As(err, &e) {
		return nil
	}
	list, _ := e.Details["errors"].([]toolkeep.Fault)
	out := make([]string, len(list))
	for i, f := range list {
		out[i] = f.Pointer + " " + f.Rule + ": " + f.Message
	}
	return out
}

// refused checks that Load fails with E3008 and exactly these faults, each given as
// part of its text.
func refused(t *testing.T, s Sources, want ...string) {
	t.Helper()
	c, err := Load(s)
	if err == nil {
		t.Fatalf("taken: %+v", c)
	}
	var e *toolkeep.Error
	if !errors.As(err, &e) || e.Code != toolkeep.InvalidManifest {
		t.Fatalf("not E3008: %v", err)
	}
	got := messages(err)
	if len(got) != len(want) {
		t.Fatalf("%d faults, want %d:\n%s", len(got), len(want), strings.Join(got, "\n"))
	}
	for i := range want {
		if !strings.Contains(got[i], want[i]) {
			t.Errorf("fault %d is %q, want %q in it", i, got[i], want[i])
		}
	}
}

// limits are those with these of agents and of all, and the defaults of the others.
func limits(agent, tool, all, concurrent int) Limits {
	return Limits{AgentPerMinute: agent, AgentToolPerMinute: tool, GlobalPerMinute: all, ConsolePerMinute: 600, Algorithm: "token_bucket", Shared: true, AgentConcurrent: concurrent,
		Concurrent: 1000, HTTPConcurrent: 300, SQLConcurrent: 50, GRPCConcurrent: 200, MCPConcurrent: 300, CostlyConcurrent: 10, CostlyUSD: 0.1, Queue: 100, QueueWait: time.Minute}
}

func TestDefaults(t *testing.T) {
	c := load(t, Sources{})
	c.given = nil
	want := &Config{
		Data:    "data",
		Service: Service{Name: "l03-tool-executor"},
		HTTP:    HTTP{Addr: "127.0.0.1:8080", MaxBody: 1 << 20, MaxDepth: 50, MaxProperties: 1000, MaxHeader: 64 << 10, MaxKey: 4096},
		MCP:     MCP{View: "auto", AutoTools: 40, Registry: "https://registry.modelcontextprotocol.io", SessionIdle: 30 * time.Minute, Sessions: 10_000, PrincipalSessions: 100},
		GRPC:    GRPC{Addr: "127.0.0.1:50053"},
		Metrics: Metrics{Addr: "127.0.0.1:9090", TLS: "same", MaxTools: 10_000},
		TLS:     TLS{Min: "1.3", Clients: "required"},
		Access:  Access{Mode: "rbac", AgentFailures: 10, AgentBlock: 5 * time.Minute, AddressFailures: 100, AddressBlock: 15 * time.Minute, FailureAlarm: 10_000},
		Signing: Signing{Skew: 30 * time.Second},
		Proxy:   Proxy{Tenants: []string{"default"}},
		Policy:  Policy{BundlePoll: 30 * time.Second, Timeout: 100 * time.Millisecond, RemoteTimeout: 500 * time.Millisecond, CacheTTL: 5 * time.Minute, Poll: 250 * time.Millisecond},
		OAuth:   OAuth{SubjectClaim: "sub", TenantClaim: "tenant"},
		Tokens:  Tokens{Algorithm: "RS256", MaxLife: 24 * time.Hour},
		Log:     Log{Level: slog.LevelInfo, Format: "auto", Buffer: 1 << 20},
		Limits:  limits(10_000, 1000, 1_000_000, 64),
		Breaker: Breaker{Enabled: true, Window: "time", WindowSize: 60, MinimumCalls: 10, FailureRate: 5, ConsecutiveFailures: 10, SlowCall: 5 * time.Second,
			Open: 30 * time.Second, HalfOpen: "fixed", HalfOpenCalls: 1},
		Calls: Calls{SyncLimit: 30 * time.Second, RetryShare: 20, RetryFloor: 10, WaitLimit: 24 * time.Hour, ResultLifetime: 24 * time.Hour, Workers: 50, Poll: 100 * time.Millisecond, Lease: 10 * time.Second, RecordWait: 50 * time.Millisecond, MaxResult: 100_000_000, MaxCPUWait: 250 * time.Millisecond, MaxInFlight: 5000},
		Approvals: Approvals{Wait: 300 * time.Second, Escalate: time.Hour, EscalateAgain: 4 * time.Hour, Expire: 24 * time.Hour, MaxPending: 10_000, MaxPendingAgent: 100,
			EndpointTimeout: 5 * time.Second, EndpointFailure: "wait", EndpointDeny: 300 * time.Second},
		Idempotency: Idempotency{MaxBytes: 10_000_000, TTL: 24 * time.Hour},
		Audit:       Audit{Erasable: true, Reads: "all", Inputs: "hash", ResultSummary: true, Personal: []string{"email", "phone", "card", "ssn", "iban", "ip"}, ArchiveKeep: 2557 * 24 * time.Hour, ArchiveWait: 7 * 24 * time.Hour},
		Tools:       Tools{Timeout: 30 * time.Second, Strict: true, CoerceTo: []string{"number", "integer", "boolean", "date"}, Retry: ToolRetry{MaxAttempts: 3, BaseDelay: time.Second, MaxDelay: 32 * time.Second, Jitter: "full"}},
		Cache:       Cache{Enabled: true, TTL: 5 * time.Minute, Entries: 10_000, Bytes: 100 << 20, Shared: true, SharedEntries: 20_000, Warm: 1000},
		Catalog:     Catalog{StaleFor: 5 * time.Minute, KeepActive: 5, RemovalAfter: 90 * 24 * time.Hour},
		Store:       Store{MaxConns: 10, Synchronous: "NORMAL", MaxStaleness: 10 * time.Second, GroupDelay: 500 * time.Microsecond, MaxWait: 2 * time.Second, WALBytes: 64 << 20, KeepCalls: 90 * 24 * time.Hour, KeepEvents: 90 * 24 * time.Hour, KeepFeed: 7 * 24 * time.Hour},
		Search: Search{Model: "auto", Vectors: "memory", SemanticWeight: 0.4, KeywordWeight: 0.3, HistoryWeight: 0.2, SuccessWeight: 0.1, ComplexityWeight: 0.1, History: "on", HistoryKeep: 30 * 24 * time.Hour, Learning: "on", Budgets: SearchBudgets{3000, 5000, 4000, 5000}, Context: SearchContext{0.5, 0.2},
			Cache: SearchCache{Enabled: true, Entries: 20_000, Bytes: 100 << 20, TTL: 5 * time.Minute, SharedEntries: 20_000, SharedTTL: time.Hour, Wait: 50 * time.Millisecond}},
		Redis: Redis{Prefix: "toolkeep:", MaxConns: 16, Timeout: time.Second},
		Egress: Egress{ProxyNames: "checked", TLSMin: "1.2", MaxConns: 256, IdleConns: 32, IdleTimeout: 90 * time.Second,
			ConnectTimeout: 10 * time.Second, MaxHeader: 256 << 10},
		Vault:    Vault{Auth: "token", Prefix: "secret/tool-execution", Timeout: 2 * time.Second, TransitMount: "transit"},
		SQL:      SQL{MaxConns: 64, PoolConns: 8, Wait: 5 * time.Second, IdleTimeout: time.Minute},
		Files:    Files{Roots: []string{"{tenant}:rw"}},
		Context:  Context{Required: true, Timeout: 500 * time.Millisecond, TTL: 5 * time.Minute},
		Examples: Examples{Addr: "127.0.0.1:8090"}, Console: Console{Enabled: true, Session: 12 * time.Hour, Idle: 2 * time.Hour},
		Drain: Drain{Timeout: 30 * time.Second},
	}
	if !reflect.DeepEqual(c, want) {
		t.Fatalf("got  %+v\nwant %+v", c, want)
	}
}

// TestLimitsOnLoopback: the limits are the seed's where another machine can connect, and in every environment but
// development. On loopback they leave room for an ordinary session of one agent.
func TestLimitsOnLoopback(t *testing.T) {
	seed := limits(100, 10, 10_000, 4)
	room := limits(10_000, 1000, 1_000_000, 64)
	open := map[string]string{"tls.cert": "c", "tls.key": "k", "access.method": "apikey"}
	with := func(more ...string) map[string]string {
		out := maps.Clone(open)
		for i := 0; i < len(more); i += 2 {
			out[more[i]] = more[i+1]
		}
		return out
	}
	for name, c := range map[string]struct {
		s    Sources
		want Limits
	}{
		"nothing":                {Sources{}, room},
		"another port":           {Sources{Flags: map[string]string{"http.addr": "localhost:9999", "grpc.addr": "off"}}, room},
		"production on loopback": {Sources{Environ: []string{"L03_ENVIRONMENT=production"}}, seed},
		"staging on loopback":    {Sources{Environ: []string{"L03_ENVIRONMENT=staging"}}, seed},
		"open REST":              {Sources{Flags: with("http.addr", "0.0.0.0:8080")}, seed},
		"open gRPC":              {Sources{Flags: with("grpc.addr", "10.0.0.1:50053")}, seed},
		"open, development":      {Sources{Flags: with("http.addr", "0.0.0.0:8080", "service.environment", "development")}, room},
	} {
		var l loader
		flags := make(map[string]any, len(c.s.Flags))
		for k, v := range c.s.Flags {
			flags[k] = v
		}
		got := l.merge([]*layer{l.read(sourceEnv, environ(c.s.Environ, c.s.Ignore)), l.read("flag", flags)}, c.s)
		if len(l.faults) > 0 || !reflect.DeepEqual(got.Limits, c.want) {
			t.Errorf("%s: %+v %v", name, got.Limits, l.faults)
		}
	}
	own := load(t, Sources{Flags: map[string]string{"limits.agent_tool_per_minute": "10"}})
	rates := load(t, Sources{Flags: map[string]string{"limits.upstreams": "host:API.example.com:0443=60, mcp:search=-1, host:[::1]:80=5"}}).Limits.Rates()
	if want := map[string]int{"host:api.example.com:443": 60, "mcp:search": -1, "host:[::1]:80": 5}; !maps.Equal(rates.Upstreams, want) {
		t.Errorf("%v", rates.Upstreams)
	}
	if own.Limits.AgentToolPerMinute != 10 || own.Limits.AgentConcurrent != 64 {
		t.Errorf("%+v", own.Limits)
	}
}

func TestEnvironments(t *testing.T) {
	dev := load(t, Sources{Environ: []string{"L03_ENVIRONMENT=development"}})
	if dev.Log.Level != slog.LevelDebug || dev.Cache.TTL != time.Minute || dev.Calls.SyncLimit != time.Minute || dev.Limits.AgentPerMinute != 10_000 {
		t.Errorf("development: %+v", dev)
	}
	stage := load(t, Sources{Environ: []string{"L03_ENVIRONMENT=staging"}})
	if stage.Log.Level != slog.LevelInfo || stage.Cache.TTL != 5*time.Minute || stage.Calls.SyncLimit != 30*time.Second {
		t.Errorf("staging: %+v", stage)
	}
	prod := load(t, Sources{File: file(t, "service: {environment: production}\n"), Flags: map[string]string{"cache.ttl": "1s"}})
	if prod.Log.Level != slog.LevelWarn || prod.Cache.TTL != time.Second || prod.Limits.AgentPerMinute != 100 {
		t.Errorf("production: %+v", prod)
	}
	own := load(t, Sources{Environ: []string{"L03_ENVIRONMENT=production", "L03_LOG_LEVEL=debug"}})
	if own.Log.Level != slog.LevelDebug {
		t.Error("a default of the environment won over a setting")
	}
	refused(t, Sources{Environ: []string{"L03_ENVIRONMENT=prod"}}, `service.environment is "prod", which is not in this build; use development, staging, production`)
}

func TestPrecedence(t *testing.T) {
	f := file(t, `
http: {addr: "127.0.0.1:1", max_depth: 20}
limits:
  agent_per_minute: 1
  global_per_minute: 1
log: {components: {store: DEBUG, queue: ERROR}}
L03_RATE_LIMITER_PER_TOOL_RPM: 7
`)
	s := Sources{File: f,
		Environ: []string{"L03_RATE_LIMITER_PER_AGENT_RPM=2", "L03_RATE_LIMITER_GLOBAL_RPM=2", "TOOLKEEP_DATA=/srv/x",
			"L03_STORE_LOG_LEVEL=WARN", "TOOLKEEP_SECRETS_ENV=A_*, B", "PATH=/bin", "TOOLKEEP_URL=x", "TOOLKEEP_KEY=y", "TOOLKEEP_CA_FILE=a", "TOOLKEEP_CLIENT_CERT=c", "TOOLKEEP_CLIENT_KEY=k", "TOOLKEEP_SECRET_SHOP=z",
			"TOOLKEEP_SERVICE_HOST=10.0.0.1", "TOOLKEEP_PORT_8080_TCP_ADDR=10.0.0.1", "TOOLKEEP_PORT=tcp://10.0.0.1:8080", "TOOLKEEP_MINE=1"},
		Flags:  map[string]string{"limits.global_per_minute": "3"},
		Ignore: []string{"TOOLKEEP_MINE"}}
	c := load(t, s)
	if c.HTTP.Addr != "127.0.0.1:1" || c.HTTP.MaxDepth != 20 || c.Data != "/srv/x" {
		t.Errorf("%+v", c)
	}
	if want := limits(2, 7, 3, 64); !reflect.DeepEqual(c.Limits, want) {
		t.Errorf("limits %+v, want %+v", c.Limits, want)
	}
	if want := map[string]slog.Level{"store": slog.LevelWarn, "queue": slog.LevelError}; !maps.Equal(c.Log.Components, want) {
		t.Errorf("components %v", c.Log.Components)
	}
	if !slices.Equal(c.Secrets.Env, []string{"A_*", "B"}) {
		t.Errorf("secrets %q", c.Secrets.Env)
	}
	if len(c.Notes) != 0 {
		t.Errorf("notes %q", c.Notes)
	}
}

func TestPorts(t *testing.T) {
	for _, c := range []struct {
		name, file string
		environ    []string
		flags      map[string]string
		want       string
	}{
		{"of the default address", "", []string{"L03_HEALTH_PORT=81"}, nil, "127.0.0.1:81"},
		{"of the file's address", `http: {addr: "[::1]:80"}`, []string{"L03_HEALTH_PORT=81"}, nil, "[::1]:81"},
		{"the flag's address wins", "", []string{"L03_HEALTH_PORT=81"}, map[string]string{"http.addr": "127.0.0.1:82"}, "127.0.0.1:82"},
		{"both agree", "service: {health_port: 80}\nhttp: {addr: 127.0.0.1:80}", nil, nil, "127.0.0.1:80"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := Sources{Environ: c.environ, Flags: c.flags}
			if c.file != "" {
				s.File = file(t, c.file)
			}
			if got := load(t, s).HTTP.Addr; got != c.want {
				t.Fatalf("%s, want %s", got, c.want)
			}
		})
	}
	refused(t, Sources{File: file(t, "service: {health_port: 81}\nhttp: {addr: 127.0.0.1:80}")},
		"/http/addr conflict: setting service.health_port: it contradicts http.addr")
	refused(t, Sources{Environ: []string{"L03_METRICS_PORT=70000"}}, "a port is between 0 and 65535")
	if got := load(t, Sources{Environ: []string{"L03_METRICS_PORT=0"}}).Metrics.Addr; got != "127.0.0.1:0" {
		t.Fatal(got)
	}
}

func TestUnknownNames(t *testing.T) {
	refused(t, Sources{File: file(t, "http: {adr: x}\nlimit: {}\nlog: {components: {stor: INFO}}\n")},
		"/http/adr unknown: setting http.adr: there is no such setting; the nearest is http.addr",
		"/limit unknown: setting limit:",
		"/log/components/stor unknown: setting log.components.stor: there is no component stor; the nearest is store")
	refused(t, Sources{Environ: []string{"L03_RATE_LIMITER_PER_AGENT_RPN=1", "TOOLKEEP_DAT=x", "L03_STORES_LOG_LEVEL=INFO", "XL03_A=1"}},
		"environment variable L03_RATE_LIMITER_PER_AGENT_RPN: there is no such setting; the nearest is L03_RATE_LIMITER_PER_AGENT_RPM",
		"environment variable L03_STORES_LOG_LEVEL: there is no component stores; the nearest is store",
		"environment variable TOOLKEEP_DAT: there is no such setting; the nearest is TOOLKEEP_DATA")
	refused(t, Sources{Flags: map[string]string{"htp.addr": "x"}}, "flag htp.addr: there is no such setting; the nearest is http.addr")
	load(t, Sources{File: file(t, "http:\nlog: {components: {}}\nsecrets: {env: }\n")}) // headings with nothing under them
}

func TestUnsupported(t *testing.T) {
	for give, want := range map[string]string{
		"L03_TOOL_CACHE_BACKEND=disk":                                           "disk is not one of memory, redis",
		"L03_L08_ENABLED=true":                                                  "L08 supervision is not in this build",
		"L03_VAULT_ENDPOINT=https://vault:8200":                                 "vault.auth is token; that needs vault.token_file",
		"L03_VAULT_ENDPOINT=vault:8200":                                         "vault.address must be a URL",
		"L03_EXTERNAL_ADAPTER_VAULT_AUTH_METHOD=ldap":                           `vault.auth is "ldap", which is not in this build; use token, approle`,
		"TOOLKEEP_VAULT_PATHS=secret/data/":                                     "vault.paths is set; it needs vault.address",
		"L03_L01_ENDPOINT=grpc://l01:50051":                                     "L01 data layer is not in this build",
		"L03_PERMISSION_MANAGER_MODE=abac":                                      `access.mode is "abac", which is not in this build; use rbac, token+rbac, rbac+abac`,
		"L03_PERMISSION_MANAGER_MODE=rbac+abac":                                 `access.mode is rbac+abac; that needs a policy: policy.path`,
		"TOOLKEEP_POLICY_PATH=/etc/toolkeep/policy":                             `policy.path names a policy, and access.mode is rbac, which asks none`,
		"TOOLKEEP_POLICY_TOKEN=env://X":                                         `none is set`,
		"L03_EXECUTOR_ISOLATION_TECHNOLOGY=gvisor":                              "sandboxes are not in this build",
		"L03_DOCUMENT_BRIDGE_VERSION_PINNING_PIN_STORAGE=redis":                 "storage redis is not in this build; use checkpoint or local",
		"L03_STATE_BRIDGE_CHECKPOINTING_MICRO_CHECKPOINTS_STORAGE=redis":        "storage redis is not in this build",
		"L03_CIRCUIT_BREAKER_HALF_OPEN_STRATEGY=half":                           "half is not one of all_or_nothing, canary",
		"TOOLKEEP_CONTEXT_URL=http://sessions.example":                          "context.url must be https where the service is not on this machine",
		"TOOLKEEP_CONTEXT_URL=https://me@sessions.example":                      "context.url must be an http or https URL without user",
		"TOOLKEEP_REDIS_URL=http://127.0.0.1":                                   "redis.url must begin with",
		"TOOLKEEP_REDIS_URL=rediss://me:hunter2@host":                           "redis.url holds a password",
		"TOOLKEEP_REDIS_PASSWORD=env://X":                                       "it needs redis.url",
		"TOOLKEEP_CONTEXT_TOKEN=env://X":                                        "it needs context.url",
		"TOOLKEEP_ACCESS_METHOD=oidc":                                           `access.method is "oidc", which is not in this build; use api_key, oauth`,
		"L03_PERMISSION_CHECKER_OPA_ENDPOINT=http://localhost:8181/v1/data/x/y": "policy.opa_url names a policy, and access.mode is rbac",
	} {
		t.Run(give, func(t *testing.T) { refused(t, Sources{Environ: []string{give}}, want) })
	}
	t.Run("a connection string is not repeated", func(t *testing.T) {
		_, err := Load(Sources{File: file(t, "registry: {postgresql_connection_string: 'postgres://u:hunter2@db/x'}\n")})
		if err == nil || strings.Contains(err.Error()+strings.Join(messages(err), ""), "hunter2") {
			t.Fatalf("%v %v", err, messages(err))
		}
	})
	t.Run("a list of patterns", func(t *testing.T) {
		refused(t, Sources{File: file(t, "result_validator: {sanitization: {patterns: [{threat_type: xss}]}}\n")}, "own sanitization patterns")
	})
}

// All of Execution 10.2, except what requires other layers.
func TestEnvironmentOfTheDocument(t *testing.T) {
	c := load(t, Sources{Environ: strings.Fields(`
L03_SERVICE_NAME=l03 L03_SERVICE_VERSION=1.0.0 L03_ENVIRONMENT=production L03_GRPC_PORT=50054 L03_METRICS_PORT=9091 L03_HEALTH_PORT=8081
L03_TOOL_REGISTRY_CACHE_ENABLED=true L03_TOOL_REGISTRY_CACHE_TTL_SECONDS=301 L03_TOOL_REGISTRY_CACHE_MAX_SIZE_ENTRIES=10000
L03_PERMISSION_MANAGER_MODE=rbac L03_PERMISSION_MANAGER_CACHE_TTL_SECONDS=300
L03_RATE_LIMITER_PER_AGENT_RPM=101 L03_RATE_LIMITER_PER_TOOL_RPM=11 L03_RATE_LIMITER_GLOBAL_RPM=10001
L03_TOOL_CACHE_ENABLED=false L03_TOOL_CACHE_BACKEND=memory L03_TOOL_CACHE_TTL_SECONDS=302 L03_TOOL_CACHE_MAX_SIZE_BYTES=104857600
L03_L01_ENDPOINT= L03_L01_TIMEOUT_MS=100 L03_VAULT_ENDPOINT=https://vault:8200 TOOLKEEP_VAULT_TOKEN=t L03_VAULT_TIMEOUT_MS=100
L03_L08_ENDPOINT=grpc://l08:50051 L03_L08_ENABLED=false L03_L08_ESCALATION_TIMEOUT_SECONDS=301 L03_LOG_LEVEL=ERROR
L03_TOOL_REGISTRY_LOG_LEVEL=DEBUG L03_PERMISSION_MANAGER_LOG_LEVEL=INFO L03_HTTP_EXECUTOR_LOG_LEVEL=WARN`)})
	if c.HTTP.Addr != "127.0.0.1:8081" || c.Metrics.Addr != "127.0.0.1:9091" || c.GRPC.Addr != "127.0.0.1:50054" || c.Catalog.StaleFor != 301*time.Second ||
		c.Cache.Enabled || c.Cache.TTL != 302*time.Second || c.Limits.AgentToolPerMinute != 11 ||
		c.Vault.Address != "https://vault:8200" || c.Vault.Timeout != 100*time.Millisecond || c.Log.Level != slog.LevelError ||
		len(c.Log.Components) != 3 {
		t.Errorf("%+v", c)
	}
	// Of the registry's cache, a time limit, L08's endpoint and its time limit.
	if len(c.Notes) != 4 || c.Policy.CacheTTL != 300*time.Second || c.Approvals.EndpointDeny != 301*time.Second || c.Approvals.Endpoint != "" {
		t.Errorf("%d notes: %s", len(c.Notes), strings.Join(c.Notes, "\n"))
	}
}

// TestResultsInRedisNeedRedis: the name of the document that asks for results in Redis says when there is none.
func TestResultsInRedisNeedRedis(t *testing.T) {
	for environ, notes := range map[string]int{"L03_TOOL_CACHE_BACKEND=redis": 1, "L03_TOOL_CACHE_BACKEND=memory": 0,
		"L03_TOOL_CACHE_BACKEND=redis TOOLKEEP_REDIS_URL=redis://127.0.0.1": 0} {
		c := load(t, Sources{Environ: strings.Fields(environ)})
		if len(c.Notes) != notes || notes == 1 && !strings.Contains(c.Notes[0], "L03_TOOL_CACHE_BACKEND is redis and has no effect") {
			t.Errorf("%s: %q", environ, c.Notes)
		}
	}
}

// The eight schemas of Platform 3.3 with their defaults, except what names PostgreSQL,
// Redis and the like.
const platformFile = `
registry:
  postgresql_connection_string: ""
  ollama_base_url: http://localhost:11434
  embedding_model: mistral:7b
  embedding_dimensions: 768
  semantic_search_threshold: 0.7
  version_retention_policy: {max_versions_per_tool: 6, deprecation_warning_days: 91}
executor:
  default_resource_limits: {cpu_millicore_limit: 500, memory_mb_limit: 1024, timeout_seconds: 31}
  concurrent_tools_per_agent: 5
  sandbox_warm_pool: {enabled: false, pool_size: 10}
permission_checker:
  jwt_public_key_path: keys.pem
  jwt_algorithm: ES256
  opa_endpoint: ""
  permission_cache: {enabled: true, ttl_seconds: 300, invalidation_channel: "policy:updates"}
external_adapter:
  vault: {address: "https://vault:8200", auth_method: kubernetes, secret_path_prefix: secret/tools}
  rate_limiting: {algorithm: leaky_bucket, redis_connection_string: "redis://localhost:6379/2", default_requests_per_minute: 60, burst_size: 10}
  retry: {max_attempts: 4, base_delay_ms: 1001, max_delay_ms: 60000, jitter: equal, retryable_status_codes: [429, 500, 502, 503, 504]}
circuit_breaker:
  notification_channel: "circuit:state:changes"
  default_config:
    failure_rate_threshold: 50
    slow_call_rate_threshold: 100.0
    slow_call_duration_threshold_ms: 5000
    sliding_window_type: count_based
    sliding_window_size: 100
    minimum_number_of_calls: 10
    wait_duration_in_open_state_seconds: 60
    permitted_number_of_calls_in_half_open_state: 10
  half_open_strategy: canary
result_validator:
  strict_mode: false
  type_coercion:
    enabled: true
    rules: [{from_type: string, to_type: number, coercion_function: parseFloat}, {from_type: string, to_type: date, coercion_function: new Date}]
  sanitization: {enabled: true, patterns: []}
document_bridge:
  mcp_server: {pm2_process_name: doc-bridge-mcp, startup_timeout_ms: 5000, request_timeout_ms: 30000, max_retries: 3}
  cache: {enabled: true, hot_cache_ttl_seconds: 300, metadata_cache_ttl_seconds: 600, invalidation_channel: "document:updates"}
  version_pinning: {enabled: true, pin_storage: checkpoint}
  permissions: {check_enabled: true}
state_bridge:
  mcp_server: {pm2_process_name: state-bridge-mcp, startup_timeout_ms: 5000, request_timeout_ms: 10000}
  checkpointing:
    micro_checkpoints: {enabled: true, interval_seconds: 30, ttl_seconds: 3600}
    macro_checkpoints: {enabled: true, retention_days: 90, archive_retention_years: 7}
    named_checkpoints: {enabled: true, retention: indefinite}
  delta_encoding: {enabled: true, threshold_kb: 100}
  compression: {enabled: true, algorithm: gzip, threshold_kb: 10}
`

func TestSchemasOfTheDocument(t *testing.T) {
	c := load(t, Sources{File: file(t, platformFile)})
	if c.Limits.AgentPerMinute != 60 || c.Limits.AgentConcurrent != 5 || c.Catalog.KeepActive != 6 || c.Catalog.RemovalAfter != 91*24*time.Hour ||
		c.Vault.Address != "https://vault:8200" || c.Vault.Auth != "kubernetes" || c.Vault.Prefix != "secret/tools" || c.Redis.URL != "redis://localhost:6379/2" {
		t.Errorf("%+v", c)
	}
	if s := c.Search; s.EmbeddingsURL != "http://localhost:11434/v1" || s.EmbeddingsModel != "mistral:7b" || s.EmbeddingsDimensions != 768 || s.Threshold != 0.7 {
		t.Errorf("%+v", s)
	}
	want := Tools{Timeout: 31 * time.Second, Coerce: true, CoerceTo: []string{"number", "date"}, Retry: ToolRetry{MaxAttempts: 4, BaseDelay: 1001 * time.Millisecond,
		MaxDelay: time.Minute, Jitter: "equal", StatusCodes: []string{"429", "500", "502", "503", "504"}}}
	if !reflect.DeepEqual(c.Tools, want) || c.Limits.Burst != 10 || c.Limits.Algorithm != "leaky_bucket" {
		t.Errorf("%+v, burst %d", c.Tools, c.Limits.Burst)
	}
	if b := c.Breaker; b.FailureRate != 50 || b.SlowCallRate != 100 || b.SlowCall != 5*time.Second || b.Window != "count" || b.WindowSize != 100 || b.MinimumCalls != 10 ||
		b.Open != time.Minute || b.HalfOpen != "canary" || b.HalfOpenCalls != 10 {
		t.Errorf("%+v", b)
	}
	for _, want := range []string{"circuit_breaker.notification_channel has no effect", "executor.sandbox_warm_pool.pool_size has no effect"} {
		if !slices.ContainsFunc(c.Notes, func(n string) bool { return strings.Contains(n, want) }) {
			t.Errorf("no note that %s", want)
		}
	}
	// Every key of the tables is in the file or requires another server, and no others
	// are.
	var tree map[string]any
	if err := yaml.Unmarshal([]byte(platformFile), &tree); err != nil {
		t.Fatal(err)
	}
	for i := range foreignSettings {
		s := &foreignSettings[i]
		if s.key == "" || strings.HasPrefix(s.key, "service.") || s.refuse != nil {
			continue
		}
		at := any(tree)
		for part := range strings.SplitSeq(s.key, ".") {
			at = at.(map[string]any)[part]
		}
		if at == nil {
			t.Errorf("%s is not in the file of the test", s.key)
		}
	}
	refused(t, Sources{File: file(t, "limits: {agent_per_minute: 7}\nexternal_adapter: {rate_limiting: {default_requests_per_minute: 8}}\n")},
		"it contradicts external_adapter.rate_limiting.default_requests_per_minute, which sets the same")
}

func TestBadValues(t *testing.T) {
	refused(t, Sources{File: file(t, `
http: {max_body: lots, max_depth: 0, addr: nowhere}
calls: {sync_limit: 30, lease: 1s, workers: 1.5}
cache: {enabled: maybe, bytes: 99999999999GiB}
log: {level: LOUD, format: xml, components: {store: LOUD}}
secrets: {dirs: [relative], env: {a: b}}
tls: {cert: only.pem, client_ca: clients.pem}
examples: {enabled: true, addr: "0.0.0.0:1"}
`)},
		"/cache/bytes type: setting cache.bytes: ",
		`/cache/enabled type: setting cache.enabled: "maybe" is not true or false`,
		"/calls/sync_limit type: setting calls.sync_limit: the value must be a duration with its unit, such as 300ms",
		"/calls/workers type: setting calls.workers: the value must be a whole number",
		`/http/max_body type: setting http.max_body: "lots" is not a size`,
		`/log/components/store type: setting log.components.store: "LOUD" is not a level`,
		`/log/level type: setting log.level: "LOUD" is not a level`,
		"/secrets/env/a unknown: setting secrets.env.a: there is no such setting; the nearest is secrets.env",
		`/http/addr format: http.addr: "nowhere" is not an address`,
		"/tls/key required: tls.cert and tls.key go together",
		"/tls/client_ca required: tls.client_ca asks clients for certificates",
		`/secrets/dirs format: the secrets folder "relative" is not an absolute path`,
		"/examples/addr loopback: ",
		"/http/max_depth range: http.max_depth is 0, below the least of 1",
		`/log/format range: log.format is "xml", which is not in this build; use auto, json, text`,
		"/calls/lease range: calls.lease is 1s, below the least of 3s",
	)
}

func TestBadFiles(t *testing.T) {
	refused(t, Sources{File: filepath.Join(t.TempDir(), "none.yaml")}, "no such file")
	refused(t, Sources{File: file(t, "a: [\n")}, "is not the YAML of one mapping")
	refused(t, Sources{File: file(t, "- a\n")}, "is not the YAML of one mapping")
	refused(t, Sources{File: file(t, "http: {addr: a}\nhttp: {addr: b}\n")}, "line 2, column 1: the key \"http\" stands twice")
	refused(t, Sources{File: file(t, "#"+strings.Repeat(" ", maxFile))}, "larger than 1 MiB")
	load(t, Sources{File: file(t, "")})
	load(t, Sources{File: file(t, "# nothing\n")})
}

func TestOAuth(t *testing.T) {
	c := load(t, Sources{File: file(t, `
access: {method: oauth}
oauth:
  issuer: https://issuer.example/realms/a
  audience: [api://tools]
  default_tenant: default
  scopes: ["tools:call=agent", "https://a.example/x=y=admin"]
`)}).OAuth
	roles := c.Roles()
	if !c.Enabled() || c.SubjectClaim != "sub" || c.TenantClaim != "tenant" || c.DefaultTenant != "default" || !slices.Equal(c.Audience, []string{"api://tools"}) ||
		len(roles) != 2 || roles["tools:call"] != "agent" || roles["https://a.example/x=y"] != "admin" {
		t.Errorf("%+v, %v", c, roles)
	}
	if c := load(t, Sources{}).OAuth; c.Enabled() || c.DefaultTenant != "" {
		t.Errorf("%+v", c)
	}
	for text, want := range map[string]string{
		"access: {method: oauth}":                                                   "/oauth/issuer required: access.method is oauth; that needs oauth.issuer",
		"oauth: {scopes: [a=agent]}":                                                "/oauth/issuer required: oauth.scopes is set; it needs oauth.issuer",
		"oauth: {default_tenant: default}":                                          "/oauth/issuer required: ",
		"oauth: {issuer: 'http://issuer.example', scopes: [a=agent]}":               "/oauth/issuer format: oauth.issuer: the URL must begin with https://",
		"oauth: {issuer: 'https://a.example', jwks_url: keys, scopes: [a=agent]}":   "/oauth/jwks_url format: ",
		"oauth: {issuer: 'https://a.example'}":                                      "/oauth/scopes required: ",
		"oauth: {issuer: 'https://a.example', scopes: [agent]}":                     "/oauth/scopes format: ",
		"oauth: {issuer: 'https://a.example', scopes: [a=agent, a=admin]}":          "every scope once",
		"oauth: {issuer: 'https://a.example', scopes: [a=agent], tenant_claim: ''}": "must not be empty",
	} {
		t.Run(text, func(t *testing.T) { refused(t, Sources{File: file(t, text)}, want) })
	}
}

func TestOpeningToANetwork(t *testing.T) {
	open := []string{"TOOLKEEP_HTTP_ADDR=0.0.0.0:8080"}
	refused(t, Sources{Environ: open},
		"/tls/cert required: http.addr is 0.0.0.0:8080, which is not loopback; that needs tls.cert",
		"that needs tls.key", "that needs access.method")
	open = append(open, "TOOLKEEP_TLS_CERT=c.pem", "TOOLKEEP_TLS_KEY=k.pem")
	refused(t, Sources{Environ: open}, "/access/method required: ")
	load(t, Sources{Environ: append(open, "TOOLKEEP_ACCESS_METHOD=api_key")})
	load(t, Sources{Environ: append(open, "TOOLKEEP_OAUTH_ISSUER=https://issuer.example", "TOOLKEEP_OAUTH_SCOPES=tools:call=agent")})
	for _, addr := range []string{":9090", "192.168.1.1:9090", "[::]:9090", "host.example:9090", "127.0.0.1.example:1"} {
		if _, err := Load(Sources{Environ: []string{"TOOLKEEP_METRICS_ADDR=" + addr}}); err == nil {
			t.Errorf("%s was taken for loopback", addr)
		}
	}
	for _, addr := range []string{"localhost:1", "127.0.0.9:1", "[::1]:1", "[::ffff:127.0.0.1]:1"} {
		if !loopback(addr) {
			t.Errorf("%s was not taken for loopback", addr)
		}
	}
	refused(t, Sources{Environ: []string{"TOOLKEEP_METRICS_ADDR=127.0.0.1:8080"}}, "metrics.addr")
	refused(t, Sources{Environ: []string{"TOOLKEEP_METRICS_ADDR=10.0.0.1:9090", "TOOLKEEP_METRICS_TLS=off", "TOOLKEEP_TLS_CERT=c", "TOOLKEEP_TLS_KEY=k",
		"TOOLKEEP_ACCESS_METHOD=api_key"}}, "metrics.tls")
}

func TestRoles(t *testing.T) {
	c := load(t, Sources{File: file(t, "roles:\n  reader:\n    allow:\n      - tools: ['shop.*']\n")})
	var roles map[string]any
	if err := yaml.Unmarshal(c.Access.Roles, &roles); err != nil || roles["reader"] == nil || len(roles) != 1 {
		t.Fatalf("%s (%v)", c.Access.Roles, err)
	}
}

func TestPrint(t *testing.T) {
	s := Sources{File: file(t, platformFile+"roles: {reader: {allow: []}}\nlog: {components: {store: DEBUG}}\nsecrets: {env: ['A_*', 'B, C']}\n"),
		Environ: []string{"L03_HEALTH_PORT=81", "L03_GRPC_PORT=50053", "L03_ENVIRONMENT=development"},
		Flags:   map[string]string{"calls.lease": "10s", "service.name": "x # y"}}
	c := load(t, s)
	var out bytes.Buffer
	if err := c.Print(&out); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"http:\n  addr: 127.0.0.1:81 # environment L03_HEALTH_PORT\n",
		"  lease: 10s # flag calls.lease\n",
		"  max_body: 1MiB # default\n",
		"  level: DEBUG # default in development\n",
		"  components:\n    store: DEBUG # file log.components.store\n",
		"roles: # file roles\n  reader:\n",
		"  half_open: canary # file circuit_breaker.half_open_strategy\n",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %q in\n%s", want, out.String())
		}
	}
	// The printed configuration reads back the same.
	again := load(t, Sources{File: file(t, out.String())})
	a, b := *c, *again
	a.given, b.given, a.Notes, b.Notes = nil, nil, nil, nil
	if !reflect.DeepEqual(a, b) {
		t.Errorf("printed %+v\nread back %+v\n%s", a, b, out.String())
	}
}

func TestPrintMasksSecrets(t *testing.T) {
	c := load(t, Sources{})
	c.given["circuit_breaker.redis_connection_string"] = given{value: "redis://u:hunter2@x"}
	var out bytes.Buffer
	if err := c.Print(&out); err != nil {
		t.Fatal(err)
	}
	if strings.Contains(out.String(), "hunter2") || !strings.Contains(out.String(), "redis_connection_string: "+masked) {
		t.Fatal(out.String())
	}
	out.Reset()
	if err := (&Config{}).Print(&out); err != nil || !strings.Contains(out.String(), "# set by the program") {
		t.Fatal(out.String(), err)
	}
}

func TestTrustedProxies(t *testing.T) {
	for text, want := range map[string]string{
		"": "[]", "10.0.0.1": "[10.0.0.1/32]", "10.1.2.3/8, ::1": "[10.0.0.0/8 ::1/128]", "::ffff:10.0.0.1": "[10.0.0.1/32]",
		"2001:db8::/32": "[2001:db8::/32]",
	} {
		got, err := load(t, Sources{Flags: map[string]string{"http.trusted_proxies": text}}).HTTP.TrustedProxies()
		if err != nil || fmt.Sprint(got) != want {
			t.Errorf("%s: %v %v, want %s", text, got, err, want)
		}
	}
	for _, text := range []string{"proxy.example", "10.0.0.1/33", "fe80::1%eth0", "::ffff:10.0.0.0/104"} {
		refused(t, Sources{Flags: map[string]string{"http.trusted_proxies": text}}, "neither an address nor a range")
	}
	refused(t, Sources{Flags: map[string]string{"http.trusted_proxies": "0.0.0.0/0"}}, "trusts every client")
}

func TestRegistryIsAskedSafely(t *testing.T) {
	refused(t, Sources{Flags: map[string]string{"mcp.registry": "http://registry.example"}}, "mcp.registry: the registry at registry.example would be asked without TLS")
	refused(t, Sources{Flags: map[string]string{"mcp.registry": ""}}, "mcp.registry")
	for _, at := range []string{"https://traces.example/trace", "http://traces.example/{trace_id}", "https://u:p@traces.example/{trace_id}", "javascript:{trace_id}", "/{trace_id}"} {
		refused(t, Sources{Flags: map[string]string{"calls.trace_url": at}}, "calls.trace_url is an address with https")
	}
	for _, at := range []string{"https://traces.example/{trace_id}", "http://127.0.0.1:16686/trace/{trace_id}", "http://[::1]/#{trace_id}"} {
		load(t, Sources{Flags: map[string]string{"calls.trace_url": at}})
	}
}

func TestValidateOfAChangedConfig(t *testing.T) {
	c := load(t, Sources{})
	if err := c.Validate(); err != nil {
		t.Fatal(err)
	}
	c.Calls.Workers, c.HTTP.Addr = 0, ":80"
	if got := messages(c.Validate()); len(got) != 4 {
		t.Fatalf("%q", got)
	}
}

// TestTable checks the table: names are unique, aliases lead to fields, every field of
// Config is a setting, and every row has a text.
func TestTable(t *testing.T) {
	keys, envs := map[string]bool{}, map[string]bool{}
	for _, s := range settings {
		if s.key != "" && keys[s.key] || envs[s.env] || s.env == "" {
			t.Errorf("%s / %s is there twice or has no name", s.key, s.env)
		}
		keys[s.key], envs[s.env] = true, true
	}
	for _, s := range settings {
		if s.means != "" && !keys[s.means] {
			t.Errorf("%s means %s, which is not there", s.key, s.means)
		}
		if s.help == "" && s.means == "" {
			t.Errorf("%s %s has no text", s.key, s.env)
		}
	}
	// Everything in the file, except roles and component levels, is one field each.
	var walk func(t reflect.Type, name string) (without []string)
	walk = func(t reflect.Type, name string) (without []string) {
		for i := range t.NumField() {
			f := t.Field(i)
			switch {
			case f.Type.Kind() == reflect.Struct:
				without = append(without, walk(f.Type, name+f.Name+".")...)
			case f.Tag.Get("key") == "":
				without = append(without, name+f.Name)
			}
		}
		return without
	}
	if got := walk(reflect.TypeFor[Config](), ""); !slices.Equal(got, []string{"Access.Roles", "Log.Components", "Notes", "given"}) {
		t.Errorf("fields without a setting: %q", got)
	}
}

func TestDocs(t *testing.T) {
	path := filepath.Join("..", "docs", "configuration.md")
	var want bytes.Buffer
	if err := WriteDocs(&want); err != nil {
		t.Fatal(err)
	}
	if *update {
		if err := os.WriteFile(path, want.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want.Bytes()) {
		t.Fatal("docs/configuration.md is not what the table says; run make generate")
	}
}

// FuzzFile: for any file Load returns a Config or E3008, and an accepted Config can be
// printed and loaded again.
func FuzzFile(f *testing.F) {
	f.Add(platformFile)
	f.Add("http: {addr: 127.0.0.1:1}\nroles: {a: [1]}\n")
	f.Add("a: &a [*a]")
	f.Add("? [x]\n: y\n")
	f.Add("http: 3\nlog: {components: [a]}\n1: 2\n")
	f.Add("service: {name: \"a\\u2028b\"}\nL03_L08_ENDPOINT: 'x: y'\n")
	dir := f.TempDir()
	f.Fuzz(func(t *testing.T, text string) {
		path := filepath.Join(dir, "f.yaml")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		c, err := Load(Sources{File: path})
		if err != nil {
			if e := toolkeep.AsError(err); e.Code != toolkeep.InvalidManifest {
				t.Fatal(err)
			}
			return
		}
		var out bytes.Buffer
		if err := c.Print(&out); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, out.Bytes(), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := Load(Sources{File: path}); err != nil {
			t.Fatalf("%v %q\n%s", err, messages(err), out.String())
		}
	})
}
