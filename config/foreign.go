package config

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// foreignSettings lists the names of Execution 10 and of the eight configuration
// schemas of Platform 3.3 that have no field of their own. Those with an equivalent
// here are aliases of its row. The others belong to later parts: they are accepted with
// a note, as long as they do not require something that this build lacks.
var foreignSettings = foreign([]setting{
	// Execution 10.1 and 10.2
	{key: "service.health_port", env: "L03_HEALTH_PORT", kind: whole, least: 0, most: 65535, means: "http.addr", port: true},
	{key: "service.metrics_port", env: "L03_METRICS_PORT", kind: whole, least: 0, most: 65535, means: "metrics.addr", port: true},
	{key: "service.port", env: "L03_GRPC_PORT", kind: whole, least: 0, most: 65535, means: "grpc.addr", port: true},
	{env: "L03_TOOL_REGISTRY_CACHE_ENABLED", kind: boolean, quiet: true, refuse: only(true, "the catalogue is always held in memory; set it to true or leave it out"),
		help: "the catalogue is always held in memory"},
	{env: "L03_TOOL_REGISTRY_CACHE_TTL_SECONDS", kind: whole, means: "catalog.stale_for", unit: time.Second},
	{env: "L03_TOOL_REGISTRY_CACHE_MAX_SIZE_ENTRIES", kind: whole, least: 1, help: "the catalogue is held whole, whatever its size"},
	{env: "L03_PERMISSION_MANAGER_CACHE_TTL_SECONDS", kind: whole, help: "decisions are made afresh for every call"},
	{env: "L03_TOOL_CACHE_BACKEND", def: "memory", quiet: true, refuse: only("memory", "cache backend %v is not in this build; use memory"), help: "memory; redis is not in this build"},
	{env: "L03_TOOL_CACHE_TTL_SECONDS", kind: whole, means: "cache.ttl", unit: time.Second},
	{env: "L03_L01_ENDPOINT", refuse: never("a remote L01 data layer is not in this build; the server keeps its own store, leave the setting out"), help: "refused unless empty: the server keeps its own store"},
	{env: "L03_L01_TIMEOUT_MS", kind: whole, help: "belongs to a remote data layer"},
	{env: "L03_VAULT_ENDPOINT", means: "vault.address"},
	{env: "L03_VAULT_TIMEOUT_MS", kind: whole, means: "vault.timeout", unit: time.Millisecond},
	{env: "L03_L08_ENDPOINT", help: "used once L03_L08_ENABLED can be true"},
	{env: "L03_L08_ENABLED", kind: boolean, def: "false", quiet: true, refuse: only(false, "L08 supervision is not in this build; set it to false or leave it out"), help: "only false: L08 supervision is not in this build"},
	{env: "L03_L08_ESCALATION_TIMEOUT_SECONDS", kind: whole, help: "belongs to L08 supervision"},

	// Platform 3.3.1 registry
	{key: "registry.postgresql_connection_string", secret: true, means: "store.dsn"},
	{key: "registry.ollama_base_url", refuse: never("this server speaks to Ollama in its OpenAI form: leave the setting out, and set search.embeddings_url to its address with /v1, such as http://127.0.0.1:11434/v1"), help: "refused unless empty: search.embeddings_url takes Ollama's address with /v1"},
	{key: "registry.embedding_model", refuse: never("leave the setting out, and name the model with search.embeddings_model, or the built-in one with search.model"), help: "refused unless empty: search.model and search.embeddings_model name the model"},
	{key: "registry.embedding_dimensions", kind: whole, least: 1, help: "belongs to embeddings"},
	{key: "registry.semantic_search_threshold", kind: decimal, help: "belongs to embeddings"},
	{key: "registry.version_retention_policy.max_versions_per_tool", kind: whole, means: "catalog.keep_active"},
	{key: "registry.version_retention_policy.deprecation_warning_days", kind: whole, means: "catalog.removal_after", unit: 24 * time.Hour},

	// Platform 3.3.2 executor
	{key: "executor.isolation_technology", refuse: never("sandboxes are not in this build; leave the setting out"), help: "refused unless empty: sandboxes are not in this build"},
	{key: "executor.default_resource_limits.cpu_millicore_limit", kind: whole, least: 1, help: "belongs to sandboxes"},
	{key: "executor.default_resource_limits.memory_mb_limit", kind: whole, least: 1, help: "belongs to sandboxes"},
	{key: "executor.default_resource_limits.timeout_seconds", kind: whole, quiet: true,
		refuse: only(int64(30), "a tool that names no timeout has 30 seconds; set execution.timeout_ms in the manifest of the tools that need another"),
		help:   "only 30: the manifest's execution.timeout_ms sets another"},
	{key: "executor.concurrent_tools_per_agent", kind: whole, means: "limits.agent_concurrent"},
	{key: "executor.sandbox_warm_pool.enabled", kind: boolean, quiet: true, refuse: only(false, "sandboxes are not in this build; set it to false or leave it out"), help: "only false: sandboxes are not in this build"},
	{key: "executor.sandbox_warm_pool.pool_size", kind: whole, help: "belongs to sandboxes"},

	// Platform 3.3.3 permission checker
	{key: "permission_checker.jwt_public_key_path", refuse: never("capability tokens are not in this build; leave the setting out"), help: "refused unless empty: capability tokens are not in this build"},
	{key: "permission_checker.jwt_algorithm", help: "belongs to capability tokens"},
	{key: "permission_checker.opa_endpoint", refuse: never("OPA is not in this build; roles decide (access.roles_file), leave the setting out"), help: "refused unless empty: roles decide"},
	{key: "permission_checker.permission_cache.enabled", kind: boolean, help: "decisions are made afresh for every call"},
	{key: "permission_checker.permission_cache.redis_connection_string", secret: true, refuse: noRedis, help: redisHelp},
	{key: "permission_checker.permission_cache.ttl_seconds", kind: whole, help: "decisions are made afresh for every call"},
	{key: "permission_checker.permission_cache.invalidation_channel", help: "belongs to Redis"},

	// Platform 3.3.4 external adapter
	{key: "external_adapter.vault.address", means: "vault.address"},
	{key: "external_adapter.vault.auth_method", means: "vault.auth"},
	{key: "external_adapter.vault.secret_path_prefix", means: "vault.prefix"},
	{key: "external_adapter.rate_limiting.algorithm", def: "token_bucket", quiet: true, refuse: only("token_bucket", "rate limiting by %v is not in this build; use token_bucket"), help: "token_bucket"},
	{key: "external_adapter.rate_limiting.redis_connection_string", secret: true, refuse: noRedis, help: redisHelp},
	{key: "external_adapter.rate_limiting.default_requests_per_minute", kind: whole, means: "limits.agent_per_minute"},
	{key: "external_adapter.rate_limiting.burst_size", kind: whole, help: "a bucket holds one minute's worth; a tool's manifest sets its own burst"},
	{key: "external_adapter.retry.max_attempts", kind: whole, help: manifestRetry},
	{key: "external_adapter.retry.base_delay_ms", kind: whole, help: manifestRetry},
	{key: "external_adapter.retry.max_delay_ms", kind: whole, help: manifestRetry},
	{key: "external_adapter.retry.jitter", refuse: among("none", "full", "equal", "decorrelated"), help: manifestRetry},
	{key: "external_adapter.retry.retryable_status_codes", kind: list, help: manifestRetry},

	// Platform 3.3.5 circuit breaker
	{key: "circuit_breaker.redis_connection_string", secret: true, refuse: noRedis, help: redisHelp},
	{key: "circuit_breaker.notification_channel", help: "belongs to Redis"},
	{key: "circuit_breaker.default_config.failure_rate_threshold", kind: decimal, help: noBreaker},
	{key: "circuit_breaker.default_config.slow_call_rate_threshold", kind: decimal, help: noBreaker},
	{key: "circuit_breaker.default_config.slow_call_duration_threshold_ms", kind: whole, help: noBreaker},
	{key: "circuit_breaker.default_config.sliding_window_type", refuse: among("count_based", "time_based"), help: noBreaker},
	{key: "circuit_breaker.default_config.sliding_window_size", kind: whole, help: noBreaker},
	{key: "circuit_breaker.default_config.minimum_number_of_calls", kind: whole, help: noBreaker},
	{key: "circuit_breaker.default_config.wait_duration_in_open_state_seconds", kind: whole, help: noBreaker},
	{key: "circuit_breaker.default_config.permitted_number_of_calls_in_half_open_state", kind: whole, help: noBreaker},
	{key: "circuit_breaker.half_open_strategy", refuse: among("canary", "all_or_nothing"), help: noBreaker},

	// Platform 3.3.6 result validator
	{key: "result_validator.strict_mode", kind: boolean, quiet: true, refuse: only(true, "results are checked strictly unless the tool's manifest says result.strict: false; set it there"), help: "only true: the manifest's result.strict says otherwise for single tools"},
	{key: "result_validator.type_coercion.enabled", kind: boolean, help: "the manifest's result.coerce says so for single tools"},
	{key: "result_validator.type_coercion.rules", kind: anything, help: "the rules are fixed: text to number, integer and boolean, whole text only"},
	{key: "result_validator.sanitization.enabled", kind: boolean, help: "secrets are always taken out of results; nothing else is"},
	{key: "result_validator.sanitization.patterns", kind: anything, refuse: never("own sanitization patterns are not in this build; leave the setting out"), help: "refused unless empty: own patterns are not in this build"},

	// Platform 3.3.7 document bridge
	{key: "document_bridge.mcp_server.pm2_process_name", help: noDocuments},
	{key: "document_bridge.mcp_server.startup_timeout_ms", kind: whole, help: noDocuments},
	{key: "document_bridge.mcp_server.request_timeout_ms", kind: whole, help: noDocuments},
	{key: "document_bridge.mcp_server.max_retries", kind: whole, help: noDocuments},
	{key: "document_bridge.cache.enabled", kind: boolean, help: noDocuments},
	{key: "document_bridge.cache.redis_connection_string", secret: true, refuse: noRedis, help: redisHelp},
	{key: "document_bridge.cache.hot_cache_ttl_seconds", kind: whole, help: noDocuments},
	{key: "document_bridge.cache.metadata_cache_ttl_seconds", kind: whole, help: noDocuments},
	{key: "document_bridge.cache.invalidation_channel", help: noDocuments},
	{key: "document_bridge.version_pinning.enabled", kind: boolean, help: noDocuments},
	{key: "document_bridge.version_pinning.pin_storage", refuse: storage("checkpoint", "local"), help: noDocuments},
	{key: "document_bridge.permissions.check_enabled", kind: boolean, help: noDocuments},
	{key: "document_bridge.permissions.abac_endpoint", refuse: never("a remote policy endpoint is not in this build; leave the setting out"), help: "refused unless empty: remote policies are not in this build"},

	// Platform 3.3.8 state bridge
	{key: "state_bridge.mcp_server.pm2_process_name", help: noState},
	{key: "state_bridge.mcp_server.startup_timeout_ms", kind: whole, help: noState},
	{key: "state_bridge.mcp_server.request_timeout_ms", kind: whole, help: noState},
	{key: "state_bridge.checkpointing.micro_checkpoints.enabled", kind: boolean, help: noState},
	{key: "state_bridge.checkpointing.micro_checkpoints.interval_seconds", kind: whole, help: noState},
	{key: "state_bridge.checkpointing.micro_checkpoints.storage", refuse: storage(), help: "refused unless empty: " + noState},
	{key: "state_bridge.checkpointing.micro_checkpoints.ttl_seconds", kind: whole, help: noState},
	{key: "state_bridge.checkpointing.macro_checkpoints.enabled", kind: boolean, help: noState},
	{key: "state_bridge.checkpointing.macro_checkpoints.storage", refuse: storage(), help: "refused unless empty: " + noState},
	{key: "state_bridge.checkpointing.macro_checkpoints.retention_days", kind: whole, help: noState},
	{key: "state_bridge.checkpointing.macro_checkpoints.archive_storage", refuse: storage(), help: "refused unless empty: " + noState},
	{key: "state_bridge.checkpointing.macro_checkpoints.archive_retention_years", kind: whole, help: noState},
	{key: "state_bridge.checkpointing.named_checkpoints.enabled", kind: boolean, help: noState},
	{key: "state_bridge.checkpointing.named_checkpoints.storage", refuse: storage(), help: "refused unless empty: " + noState},
	{key: "state_bridge.checkpointing.named_checkpoints.retention", refuse: among("indefinite", "days", "manual"), help: noState},
	{key: "state_bridge.delta_encoding.enabled", kind: boolean, help: noState},
	{key: "state_bridge.delta_encoding.threshold_kb", kind: whole, help: noState},
	{key: "state_bridge.compression.enabled", kind: boolean, help: noState},
	{key: "state_bridge.compression.algorithm", refuse: among("gzip", "zstd"), help: noState},
	{key: "state_bridge.compression.threshold_kb", kind: whole, help: noState},
})

const (
	redisHelp     = "refused unless empty: Redis is not in this build"
	manifestRetry = "each tool's manifest says so under retry; defaults 3 attempts, 1 s to 32 s, full jitter"
	noBreaker     = "circuit breakers are not in this build"
	noDocuments   = "the document bridge is not in this build"
	noState       = "checkpoints are not in this build"
)

// foreign sets the environment name, derived from the key, of rows without one.
func foreign(rows []setting) []setting {
	for i := range rows {
		if rows[i].env == "" {
			rows[i].env = envName("L03_", rows[i].key)
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

var noRedis = never("Redis is not in this build; everything is kept in process, leave the setting out")

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
