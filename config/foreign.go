package config

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/canon/yaml"
	"github.com/toolkeep/toolkeep/discover/minilm"
)

// foreignSettings lists the names of Execution 10 and of the eight configuration
// schemas of Platform 3.3 that have no field of their own. Those with an equivalent
// here are aliases of its row. The others need a part that this build lacks (needs): they
// are accepted with a note, as long as their value does not require that part.
var foreignSettings = foreign([]setting{
	// Execution 10.1 and 10.2
	{key: "service.health_port", env: "L03_HEALTH_PORT", kind: whole, least: 0, most: 65535, means: "http.addr", port: true},
	{key: "service.metrics_port", env: "L03_METRICS_PORT", kind: whole, least: 0, most: 65535, means: "metrics.addr", port: true},
	{key: "service.port", env: "L03_GRPC_PORT", kind: whole, least: 0, most: 65535, means: "grpc.addr", port: true},
	{env: "L03_TOOL_REGISTRY_CACHE_ENABLED", kind: boolean, quiet: true, refuse: only(true, "the catalogue is always held in memory; set it to true or leave it out"),
		needs: catalogOutside, help: "the catalogue is always held in memory"},
	{env: "L03_TOOL_REGISTRY_CACHE_TTL_SECONDS", kind: whole, means: "catalog.stale_for", unit: time.Second},
	{env: "L03_TOOL_REGISTRY_CACHE_MAX_SIZE_ENTRIES", kind: whole, least: 1, needs: catalogOutside, help: "the catalogue is held whole, whatever its size"},
	{env: "L03_PERMISSION_MANAGER_CACHE_TTL_SECONDS", kind: whole, means: "policy.cache_ttl", unit: time.Second},
	{env: "L03_TOOL_CACHE_BACKEND", means: "cache.shared", convert: backend, help: "memory or redis: cache.shared false or true"},
	{env: "L03_TOOL_CACHE_TTL_SECONDS", kind: whole, means: "cache.ttl", unit: time.Second},
	{env: "L03_L01_ENDPOINT", refuse: never("a remote L01 data layer is not in this build; the server keeps its own store, leave the setting out"), needs: remoteStore, help: "refused unless empty: the server keeps its own store"},
	{env: "L03_L01_TIMEOUT_MS", kind: whole, needs: remoteStore},
	{env: "L03_VAULT_ENDPOINT", means: "vault.address"},
	{env: "L03_VAULT_TIMEOUT_MS", kind: whole, means: "vault.timeout", unit: time.Millisecond},
	{env: "L03_L08_ENDPOINT", means: "approvals.endpoint", choose: supervisor, help: "the same as approvals.endpoint, if it begins with https:// or http://; another address has no effect: " + string(supervision)},
	{env: "L03_L08_ENABLED", kind: boolean, def: "false", quiet: true, refuse: only(false, "L08 supervision is not in this build; set it to false or leave it out; approvals.endpoint asks a service over HTTP"), needs: supervision, help: "only false: L08 supervision over gRPC is not in this build; approvals.endpoint asks a service over HTTP"},
	{env: "L03_L08_ESCALATION_TIMEOUT_SECONDS", kind: whole, means: "approvals.endpoint_deny_after", unit: time.Second, help: "the same as approvals.endpoint_deny_after, in seconds; it has an effect with approvals.endpoint_failure deny alone"},

	// Platform 3.3.1 registry
	{key: "registry.postgresql_connection_string", secret: true, means: "store.dsn"},
	{key: "registry.ollama_base_url", means: "search.embeddings_url", convert: ollama, help: "the same as search.embeddings_url, without the /v1 at its end"},
	{key: "registry.embedding_model", means: "search.embeddings_model", choose: model, help: "the same as search.embeddings_model; without search.embeddings_url the same as search.model"},
	{key: "registry.embedding_dimensions", kind: whole, means: "search.embeddings_dimensions", choose: dimensions, quiet: true,
		help: "the same as search.embeddings_dimensions; without search.embeddings_url only " + strconv.Itoa(minilm.Dimensions) + ", which the built-in model has"},
	{key: "registry.semantic_search_threshold", kind: decimal, means: "search.threshold"},
	{key: "registry.version_retention_policy.max_versions_per_tool", kind: whole, means: "catalog.keep_active"},
	{key: "registry.version_retention_policy.deprecation_warning_days", kind: whole, means: "catalog.removal_after", unit: 24 * time.Hour},

	// Platform 3.3.2 executor
	{key: "executor.isolation_technology", refuse: never("sandboxes are not in this build; leave the setting out"), needs: sandboxes, help: "refused unless empty: sandboxes are not in this build"},
	{key: "executor.default_resource_limits.cpu_millicore_limit", kind: whole, least: 1, needs: sandboxes},
	{key: "executor.default_resource_limits.memory_mb_limit", kind: whole, least: 1, needs: sandboxes},
	{key: "executor.default_resource_limits.timeout_seconds", kind: whole, means: "tools.timeout", unit: time.Second},
	{key: "executor.concurrent_tools_per_agent", kind: whole, means: "limits.agent_concurrent"},
	{key: "executor.sandbox_warm_pool.enabled", kind: boolean, quiet: true, refuse: only(false, "sandboxes are not in this build; set it to false or leave it out"), needs: sandboxes, help: "only false: sandboxes are not in this build"},
	{key: "executor.sandbox_warm_pool.pool_size", kind: whole, needs: sandboxes},

	// Platform 3.3.3 permission checker
	{key: "permission_checker.jwt_public_key_path", means: "tokens.keys_file"},
	{key: "permission_checker.jwt_algorithm", means: "tokens.algorithm"},
	{key: "permission_checker.opa_endpoint", means: "policy.opa_url"},
	{key: "permission_checker.permission_cache.enabled", kind: boolean, needs: permissionCache},
	{key: "permission_checker.permission_cache.redis_connection_string", secret: true, needs: permissionCache, refuse: redisOnly, help: redisHelp},
	{key: "permission_checker.permission_cache.ttl_seconds", kind: whole, means: "policy.cache_ttl", unit: time.Second},
	{key: "permission_checker.permission_cache.invalidation_channel", needs: permissionCache},

	// Platform 3.3.4 external adapter
	{key: "external_adapter.vault.address", means: "vault.address"},
	{key: "external_adapter.vault.auth_method", means: "vault.auth"},
	{key: "external_adapter.vault.secret_path_prefix", means: "vault.prefix"},
	{key: "external_adapter.rate_limiting.algorithm", means: "limits.algorithm"},
	{key: "external_adapter.rate_limiting.redis_connection_string", secret: true, means: "redis.url"},
	{key: "external_adapter.rate_limiting.default_requests_per_minute", kind: whole, means: "limits.agent_per_minute"},
	{key: "external_adapter.rate_limiting.burst_size", kind: whole, means: "limits.burst"},
	{key: "external_adapter.retry.max_attempts", kind: whole, means: "tools.retry.max_attempts"},
	{key: "external_adapter.retry.base_delay_ms", kind: whole, means: "tools.retry.base_delay", unit: time.Millisecond},
	{key: "external_adapter.retry.max_delay_ms", kind: whole, means: "tools.retry.max_delay", unit: time.Millisecond},
	{key: "external_adapter.retry.jitter", means: "tools.retry.jitter"},
	{key: "external_adapter.retry.retryable_status_codes", kind: list, means: "tools.retry.status_codes"},

	// Platform 3.3.5 circuit breaker
	{key: "circuit_breaker.redis_connection_string", secret: true, needs: breakersInRedis, refuse: redisOnly, help: redisHelp},
	{key: "circuit_breaker.notification_channel", needs: breakersInRedis},
	{key: "circuit_breaker.default_config.failure_rate_threshold", kind: decimal, means: "breaker.failure_rate"},
	{key: "circuit_breaker.default_config.slow_call_rate_threshold", kind: decimal, means: "breaker.slow_call_rate"},
	{key: "circuit_breaker.default_config.slow_call_duration_threshold_ms", kind: whole, means: "breaker.slow_call", unit: time.Millisecond},
	{key: "circuit_breaker.default_config.sliding_window_type", means: "breaker.window", convert: oneFor(map[string]string{"count_based": "count", "time_based": "time"}), help: "count_based or time_based: breaker.window count or time"},
	{key: "circuit_breaker.default_config.sliding_window_size", kind: whole, means: "breaker.window_size"},
	{key: "circuit_breaker.default_config.minimum_number_of_calls", kind: whole, means: "breaker.minimum_calls"},
	{key: "circuit_breaker.default_config.wait_duration_in_open_state_seconds", kind: whole, means: "breaker.open", unit: time.Second},
	{key: "circuit_breaker.default_config.permitted_number_of_calls_in_half_open_state", kind: whole, means: "breaker.half_open_calls"},
	{key: "circuit_breaker.half_open_strategy", means: "breaker.half_open", convert: oneFor(map[string]string{"canary": "canary", "all_or_nothing": "fixed"}), help: "canary or all_or_nothing: breaker.half_open canary or fixed"},

	// Platform 3.3.6 result validator
	{key: "result_validator.strict_mode", kind: boolean, means: "tools.strict"},
	{key: "result_validator.type_coercion.enabled", kind: boolean, means: "tools.coerce"},
	{key: "result_validator.type_coercion.rules", kind: anything, means: "tools.coerce_to", convert: coercions, help: "the to_type of each rule is one of tools.coerce_to"},
	{key: "result_validator.sanitization.enabled", kind: boolean, needs: patterns, help: "secrets are always taken out of results; other rules are in each manifest (result.sanitize)"},
	{key: "result_validator.sanitization.patterns", kind: anything, refuse: never("own sanitization patterns are those of each manifest (result.sanitize); leave the setting out"), needs: patterns, help: "refused unless empty: rules are in each manifest (result.sanitize)"},

	// Platform 3.3.7 document bridge
	{key: "document_bridge.mcp_server.pm2_process_name", needs: documents},
	{key: "document_bridge.mcp_server.startup_timeout_ms", kind: whole, needs: documents},
	{key: "document_bridge.mcp_server.request_timeout_ms", kind: whole, needs: documents},
	{key: "document_bridge.mcp_server.max_retries", kind: whole, needs: documents},
	{key: "document_bridge.cache.enabled", kind: boolean, needs: documents},
	{key: "document_bridge.cache.redis_connection_string", secret: true, needs: documents, refuse: redisOnly, help: redisHelp},
	{key: "document_bridge.cache.hot_cache_ttl_seconds", kind: whole, most: daySeconds, needs: documents},
	{key: "document_bridge.cache.metadata_cache_ttl_seconds", kind: whole, most: daySeconds, needs: documents},
	{key: "document_bridge.cache.invalidation_channel", needs: documents},
	{key: "document_bridge.version_pinning.enabled", kind: boolean, needs: documents},
	{key: "document_bridge.version_pinning.pin_storage", refuse: storage("checkpoint", "local"), needs: documents},
	{key: "document_bridge.permissions.check_enabled", kind: boolean, needs: documents},
	{key: "document_bridge.permissions.abac_endpoint", needs: documents, refuse: never("the document bridge is not in this build; leave the setting out (policy.abac_url is the endpoint that decides calls)"), help: "refused unless empty: the document bridge is not in this build"},

	// Platform 3.3.8 state bridge
	{key: "state_bridge.mcp_server.pm2_process_name", needs: checkpoints},
	{key: "state_bridge.mcp_server.startup_timeout_ms", kind: whole, needs: checkpoints},
	{key: "state_bridge.mcp_server.request_timeout_ms", kind: whole, needs: checkpoints},
	{key: "state_bridge.checkpointing.micro_checkpoints.enabled", kind: boolean, needs: checkpoints},
	{key: "state_bridge.checkpointing.micro_checkpoints.interval_seconds", kind: whole, needs: checkpoints},
	{key: "state_bridge.checkpointing.micro_checkpoints.storage", refuse: storage(), needs: checkpoints, help: "refused unless empty: " + string(checkpoints)},
	{key: "state_bridge.checkpointing.micro_checkpoints.ttl_seconds", kind: whole, most: daySeconds, needs: checkpoints},
	{key: "state_bridge.checkpointing.macro_checkpoints.enabled", kind: boolean, needs: checkpoints},
	{key: "state_bridge.checkpointing.macro_checkpoints.storage", refuse: storage(), needs: checkpoints, help: "refused unless empty: " + string(checkpoints)},
	{key: "state_bridge.checkpointing.macro_checkpoints.retention_days", kind: whole, needs: checkpoints},
	{key: "state_bridge.checkpointing.macro_checkpoints.archive_storage", refuse: storage(), needs: checkpoints, help: "refused unless empty: " + string(checkpoints)},
	{key: "state_bridge.checkpointing.macro_checkpoints.archive_retention_years", kind: whole, needs: checkpoints},
	{key: "state_bridge.checkpointing.named_checkpoints.enabled", kind: boolean, needs: checkpoints},
	{key: "state_bridge.checkpointing.named_checkpoints.storage", refuse: storage(), needs: checkpoints, help: "refused unless empty: " + string(checkpoints)},
	{key: "state_bridge.checkpointing.named_checkpoints.retention", refuse: among("indefinite", "days", "manual"), needs: checkpoints},
	{key: "state_bridge.delta_encoding.enabled", kind: boolean, needs: checkpoints},
	{key: "state_bridge.delta_encoding.threshold_kb", kind: whole, needs: checkpoints},
	{key: "state_bridge.compression.enabled", kind: boolean, needs: checkpoints},
	{key: "state_bridge.compression.algorithm", refuse: among("gzip", "zstd"), needs: checkpoints},
	{key: "state_bridge.compression.threshold_kb", kind: whole, needs: checkpoints},
})

// part is a part that this build lacks, as a sentence of what that means. A test fails
// once the tree has one.
type part string

const (
	breakersInRedis part = "the states of circuit breakers are in the store, which tells all nodes of them"
	catalogOutside  part = "the catalogue is always held whole in memory"
	checkpoints     part = "checkpoints are not in this build"
	documents       part = "the document bridge is not in this build"
	patterns        part = "rules of sanitization are in each manifest (result.sanitize)"
	permissionCache part = "decisions are remembered in the process until roles or tools change"
	remoteStore     part = "a remote data layer is not in this build"
	sandboxes       part = "sandboxes are not in this build"
	supervision     part = "L08 supervision over gRPC is not in this build; approvals.endpoint asks a service over HTTP"
)

// daySeconds bounds what lives for a time (TTL), as everywhere.
const daySeconds = int64(toolkeep.MaxCacheTTL / time.Second)

const redisHelp = "refused unless empty: Redis is for cached results and for limits (redis.url)"

// oneFor takes a value by another name.
func oneFor(names map[string]string) func(any) (any, string) {
	return func(v any) (any, string) {
		text, _ := v.(string)
		name, ok := names[text]
		if !ok && text != "" {
			return nil, fmt.Sprintf("%s is not one of %s", text, strings.Join(slices.Sorted(maps.Keys(names)), ", "))
		}
		return name, ""
	}
}

// backend says whether results of tools are kept in Redis too.
func backend(v any) (any, string) {
	switch v {
	case "redis", "memory":
		return v == "redis", ""
	case "":
		return nil, ""
	}
	return nil, fmt.Sprintf("%v is not one of memory, redis", v)
}

// ollama makes the address of Ollama's OpenAI form of its base address.
func ollama(v any) (any, string) {
	base := strings.TrimRight(v.(string), "/")
	if base == "" || strings.HasSuffix(base, "/v1") {
		return base, ""
	}
	return base + "/v1", ""
}

// builtModels are the choices of search.model; a test compares them.
var builtModels = []string{"auto", minilm.Name, "none"}

// model finds the row of an embedding model's name.
func model(v any, remote bool) (key, why string) {
	switch {
	case v == "":
		return "", ""
	case remote:
		return "search.embeddings_model", ""
	case slices.Contains(builtModels, v.(string)):
		return "search.model", ""
	default:
		return "", fmt.Sprintf("%s is a model of an embedding service, and none is set; set search.embeddings_url, or use a built-in model (%s)", quote(v.(string)), strings.Join(builtModels, ", "))
	}
}

// supervisor finds the row of the address of a service that supervises.
func supervisor(v any, _ bool) (key, why string) {
	address := strings.ToLower(v.(string))
	if strings.HasPrefix(address, "https://") || strings.HasPrefix(address, "http://") {
		return "approvals.endpoint", ""
	}
	return "", ""
}

// dimensions finds the row of a number of dimensions.
func dimensions(v any, remote bool) (key, why string) {
	switch {
	case remote:
		return "search.embeddings_dimensions", ""
	case v != int64(minilm.Dimensions):
		return "", fmt.Sprintf("it is %d, and vectors of the built-in model have %d numbers; set search.embeddings_url to use a service's model, or leave the setting out", v, minilm.Dimensions)
	}
	return "", ""
}

// coercion is a rule of the source documents, with the function that they write it with.
type coercion struct{ from, to, by string }

var knownCoercions = []coercion{{"string", "number", "parseFloat"}, {"string", "integer", "parseInt"}, {"string", "boolean", "Boolean"}, {"string", "date", "new Date"}}

// coercions are the types that a list of rules converts to; nil for null and empty text, which say nothing.
func coercions(v any) (any, string) {
	if text, ok := v.(string); ok {
		doc, err := yaml.One([]byte(text), yaml.Options{Bytes: maxFile, Values: maxFile, Depth: maxDepth})
		if err != nil {
			return nil, "the value is no list of rules"
		}
		if doc == nil {
			return nil, ""
		}
		if v, err = doc.Tree(); err != nil {
			return nil, "the value is no list of rules"
		}
	}
	if v == nil {
		return nil, ""
	}
	list, ok := v.([]any)
	if !ok || len(list) > maxItems {
		return nil, "the value is no list of rules"
	}
	to := []string{}
	for _, x := range list {
		m, _ := x.(map[string]any)
		var c coercion
		c.from, _ = m["from_type"].(string)
		c.to, _ = m["to_type"].(string)
		c.by, _ = m["coercion_function"].(string)
		i := slices.IndexFunc(knownCoercions, func(k coercion) bool {
			return k.from == c.from && k.to == c.to && (k.by == c.by || m["coercion_function"] == nil)
		})
		switch {
		case i < 0:
			return nil, fmt.Sprintf("there is no rule from %s to %s by %s; there are %s", quote(c.from), quote(c.to), quote(c.by), ruleNames())
		case !slices.Contains(to, c.to):
			to = append(to, c.to)
		}
	}
	return to, ""
}

func ruleNames() string {
	var all []string
	for _, k := range knownCoercions {
		all = append(all, fmt.Sprintf("%s to %s by %s", k.from, k.to, k.by))
	}
	return strings.Join(all, ", ")
}

// foreign sets the environment name, derived from the key, of rows without one, and the
// help of those that only need a part.
func foreign(rows []setting) []setting {
	for i := range rows {
		if rows[i].env == "" {
			rows[i].env = envName("L03_", rows[i].key)
		}
		if rows[i].help == "" {
			rows[i].help = string(rows[i].needs)
		}
	}
	return rows
}

// only accepts a single value. A %v in the reason stands for the given value.
func only(value any, why string) func(any) string {
	return func(v any) string {
		switch {
		case v == value:
			return ""
		case strings.Contains(why, "%v"):
			return fmt.Sprintf(why, v)
		}
		return why
	}
}

// never accepts only the empty value.
func never(why string) func(any) string {
	return func(v any) string {
		if empty(v) {
			return ""
		}
		return why
	}
}

var redisOnly = never("Redis is for cached results and for limits (redis.url), and this is kept in each process; leave the setting out")

func among(choices ...string) func(any) string {
	return func(v any) string {
		if slices.Contains(choices, v.(string)) {
			return ""
		}
		return fmt.Sprintf("%v is not one of %s", v, strings.Join(choices, ", "))
	}
}

// storage refuses storage names that this build lacks.
func storage(has ...string) func(any) string {
	return func(v any) string {
		switch {
		case empty(v) || slices.Contains(has, v.(string)):
			return ""
		case len(has) == 0:
			return fmt.Sprintf("storage %v is not in this build; leave the setting out", v)
		}
		return fmt.Sprintf("storage %v is not in this build; use %s", v, strings.Join(has, " or "))
	}
}
