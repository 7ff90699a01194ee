package toolkeep

import (
	"encoding/json"
	"slices"
	"time"
)

// VersionState is the lifecycle state of a published version. docs/lifecycle.md has the
// table of what each state means for lists, ranges and execution.
type VersionState string

const (
	Active     VersionState = "active"
	Deprecated VersionState = "deprecated"
	Sunset     VersionState = "sunset"
	Blocked    VersionState = "blocked"
	Removed    VersionState = "removed"
)

// Tool is an immutable published version. A call keeps the Tool that it resolved to.
//
// It is whole, or an outline: then Raw is nil, Packed is not, and Manifest lacks the members that lists, searches and
// contexts do not need (pack.Outline), above all the schemas. Catalog.Resolve and Describe return whole tools;
// lists, snapshots, search and the feed have outlines.
type Tool struct {
	ID       string // namespace.name
	Version  string // full SemVer 2.0.0
	Tenant   string // owner; "" means all tenants
	Digest   string // "sha256:" and 64 hex digits over the RFC 8785 form of the manifest
	Manifest *Manifest
	Raw      []byte // the manifest as RFC 8785 JSON
	Packed   Packed // of an outline
}

// Packed has what an outline lacks.
type Packed interface {
	// Whole returns the whole tool of an outline.
	Whole(outline *Tool) (*Tool, error)
}

// Whole returns the whole tool. E3003 if the stored manifest cannot be unpacked.
func (t *Tool) Whole() (*Tool, error) {
	if t.Packed == nil {
		return t, nil
	}
	return t.Packed.Whole(t)
}

// Ref returns the exact reference, namespace.name@version.
func (t *Tool) Ref() string { return t.ID + "@" + t.Version }

// Writes reports whether the tool may have side effects that write.
func (t *Tool) Writes() bool { return t.Manifest.SideEffects == "writes" }

// Cause says what blocked or holds a version. The set is closed. Programs use it for
// decisions; Lifecycle.Reason and Hold.Why are for people.
type Cause string

const (
	CauseAdministrator     Cause = "administrator"      // a person, or a program on a person's behalf
	CauseServerRemoved     Cause = "server_removed"     // block: its MCP server was removed
	CauseDefinitionGone    Cause = "definition_gone"    // block and hold: its MCP server no longer offers it
	CauseDefinitionChanged Cause = "definition_changed" // hold: its MCP server offers another definition
	CauseDefinitionInvalid Cause = "definition_invalid" // hold: its MCP server offers an invalid definition
	CausePruned            Cause = "pruned"             // block: the folder that published it does not hold it any more
)

// Lifecycle is the mutable side of a version.
type Lifecycle struct {
	State        VersionState `json:"state"`
	Cause        Cause        `json:"cause,omitempty"` // of a blocked version
	Reason       string       `json:"reason,omitempty"`
	Successor    string       `json:"successor,omitempty"` // version to move to
	PublishedAt  time.Time    `json:"published_at"`
	PublishedBy  string       `json:"published_by,omitempty"`
	Forced       bool         `json:"forced,omitempty"` // published despite breaking changes
	Folder       string       `json:"folder,omitempty"` // name of the folder of configuration that it was applied from
	DeprecatedAt time.Time    `json:"deprecated_at,omitzero"`
	SunsetAt     time.Time    `json:"sunset_at,omitzero"` // end of execution of a sunset version
	RemoveAfter  time.Time    `json:"remove_after,omitzero"`
	// Held, if set, prevents the version from executing until it has been reviewed
	// (E3012). It stays listed.
	Held *Hold `json:"held,omitempty"`
}

// Hold says why a version waits for review: its upstream's definition no longer matches
// the pinned one.
type Hold struct {
	At     time.Time `json:"at"`
	Cause  Cause     `json:"cause"`
	Why    string    `json:"why"`
	Digest string    `json:"digest,omitempty"` // of the definition now offered, "" if it is gone
}

// Version is a Tool with its lifecycle, as stored in the catalogue.
type Version struct {
	Tool *Tool
	Life Lifecycle
}

// Manifest is the typed form of contracts/manifest.schema.json. catalog.ParseManifest
// fills in the defaults, so that a field's zero value never stands for a default.
type Manifest struct {
	SchemaVersion        int             `json:"schema_version"`
	ToolID               string          `json:"tool_id"`
	Version              string          `json:"version"`
	ToolName             string          `json:"tool_name,omitempty"`
	Verb                 string          `json:"verb,omitempty"`
	Description          string          `json:"description"`
	ShortDescription     string          `json:"short_description,omitempty"`
	Explanation          string          `json:"explanation,omitempty"`
	InputGuidance        string          `json:"input_guidance,omitempty"`
	Category             string          `json:"category,omitempty"`
	Tags                 []string        `json:"tags,omitempty"`
	Capabilities         []string        `json:"capabilities,omitempty"`
	Complexity           string          `json:"complexity,omitempty"`
	Icons                []any           `json:"icons,omitempty"`
	ParametersSchema     json.RawMessage `json:"parameters_schema"`
	ResultSchema         json.RawMessage `json:"result_schema,omitempty"`
	Result               *ResultSpec     `json:"result,omitempty"`
	SideEffects          string          `json:"side_effects,omitempty"` // none, reads, writes
	Idempotent           bool            `json:"idempotent,omitempty"`
	Risk                 string          `json:"risk,omitempty"` // low, medium, high
	RequiresApproval     bool            `json:"requires_approval,omitempty"`
	RequiredRoles        []string        `json:"required_roles,omitempty"`    // any of
	PermissionLevels     []string        `json:"permission_levels,omitempty"` // all of
	Permissions          *Permissions    `json:"permissions,omitempty"`
	Auth                 []AuthSpec      `json:"auth,omitempty"`
	Execution            ExecutionSpec   `json:"execution"`
	Retry                *RetrySpec      `json:"retry,omitempty"`
	Breaker              *BreakerSpec    `json:"breaker,omitempty"`
	RateLimit            *RateLimitSpec  `json:"rate_limit,omitempty"`
	Cache                *CacheSpec      `json:"cache,omitempty"`
	Fallback             string          `json:"fallback,omitempty"`
	Health               *HealthSpec     `json:"health,omitempty"`
	Checkpoint           json.RawMessage `json:"checkpoint,omitempty"`
	DocumentDependencies json.RawMessage `json:"document_dependencies,omitempty"`
	Cost                 *CostSpec       `json:"cost,omitempty"`
	Examples             []Example       `json:"examples,omitempty"`
	UseCases             []string        `json:"use_cases,omitempty"`
	CommonErrors         json.RawMessage `json:"common_errors,omitempty"`
	Relationships        json.RawMessage `json:"relationships,omitempty"`
	CompatibilityRange   string          `json:"compatibility_range,omitempty"`
	ReleaseNotes         string          `json:"release_notes,omitempty"`
	MigrationGuide       string          `json:"migration_guide,omitempty"`
	Redact               []string        `json:"redact,omitempty"` // JSON Pointers of parameters that are never recorded
	Source               *SourceSpec     `json:"source,omitempty"`
	Annotations          json.RawMessage `json:"annotations,omitempty"`
}

// ResultSpec says how a result is checked and transformed.
type ResultSpec struct {
	Strict          *bool    `json:"strict,omitempty"`           // default true
	Coerce          *bool    `json:"coerce,omitempty"`           // default false
	CoerceTo        []string `json:"coerce_to,omitempty"`        // types that coerce turns texts into; default the setting tools.coerce_to
	Transform       string   `json:"transform,omitempty"`        // jq program over the raw result
	MaxOutputBytes  int64    `json:"max_output_bytes,omitempty"` // default 2,000,000
	Public          bool     `json:"public,omitempty"`
	SensitiveFields []string `json:"sensitive_fields,omitempty"`
	// Sanitize has rules that each text of a result is held against, at most 16.
	Sanitize []SanitizeRule `json:"sanitize,omitempty"`
	// HTML says what of a page stays: basic (default: p, br, b, i, em, strong), markup (headings, lists, tables and
	// links too), or reject: basic, and E3712 if the page runs, loads or hides something.
	HTML string `json:"html,omitempty"`

	// StrictAsked is set if the manifest itself has strict: true: then a tool without a
	// result schema is refused (E3723).
	StrictAsked bool `json:"strict_asked,omitempty"`
}

// SanitizeRule is a rule of sanitising. The names sql_injection, xss and command_injection have their own pattern, and an
// action of their own where none is given.
type SanitizeRule struct {
	Name    string `json:"name"`
	Pattern string `json:"pattern,omitempty"` // RE2
	Action  string `json:"action,omitempty"`  // reject, redact or escape
}

// HasTags reports whether the manifest has all of these tags.
func (m *Manifest) HasTags(tags []string) bool {
	for _, tag := range tags {
		if !slices.Contains(m.Tags, tag) {
			return false
		}
	}
	return true
}

// Permissions lists what the tool may access outside itself.
type Permissions struct {
	Filesystem []struct {
		Path string `json:"path"`
		Mode string `json:"mode,omitempty"`
	} `json:"filesystem,omitempty"`
	Network     []HostPort `json:"network,omitempty"`
	Credentials []string   `json:"credentials,omitempty"`
}

// HostPort is a network destination; port 0 is any.
type HostPort struct {
	Host string `json:"host"`
	Port int    `json:"port,omitempty"`
}

// AuthSpec is one alternative for authenticating upstream.
type AuthSpec struct {
	Type     string         `json:"type"`
	Secret   string         `json:"secret,omitempty"` // secret://, vault://, env:// or file:// reference
	In       string         `json:"in,omitempty"`     // header, query, cookie, body, env
	Name     string         `json:"name,omitempty"`
	Prefix   string         `json:"prefix,omitempty"`
	Scopes   []string       `json:"scopes,omitempty"`
	TokenURL string         `json:"token_url,omitempty"`
	Settings map[string]any `json:"settings,omitempty"`
}

// Minted reports whether the secret is exchanged for an access token, which is sent as a bearer.
func (s AuthSpec) Minted() bool {
	switch s.Type {
	case "oauth2_client_credentials", "oauth2_refresh", "google_service_account", "azure_ad":
		return true
	}
	return s.NeedsCaller()
}

// NeedsCaller reports whether the access token is the caller's own, got for the token that it came with.
func (s AuthSpec) NeedsCaller() bool {
	return s.Type == "oauth2_token_exchange" || s.Type == "oauth2_identity_assertion"
}

// ExecutionSpec names the executor and its binding.
type ExecutionSpec struct {
	Kind             string          `json:"kind"`
	Binding          json.RawMessage `json:"binding,omitempty"`
	TimeoutMS        int64           `json:"timeout_ms,omitempty"` // default 30,000
	AttemptTimeoutMS int64           `json:"attempt_timeout_ms,omitempty"`
	Sandbox          string          `json:"sandbox,omitempty"`
	CPUMillicores    int             `json:"cpu_millicores,omitempty"`
	MemoryMB         int             `json:"memory_mb,omitempty"`
	DiskMB           int             `json:"disk_mb,omitempty"`
	BandwidthMbps    int             `json:"bandwidth_mbps,omitempty"`
}

// RetrySpec says which failures are retried, and when.
type RetrySpec struct {
	Policy               string `json:"policy,omitempty"` // exponential, linear, none
	MaxAttempts          int    `json:"max_attempts,omitempty"`
	BaseDelayMS          *int64 `json:"base_delay_ms,omitempty"`
	MaxDelayMS           *int64 `json:"max_delay_ms,omitempty"`
	Jitter               string `json:"jitter,omitempty"` // none, full, equal, decorrelated, spread
	RetryableErrors      []Code `json:"retryable_errors,omitempty"`
	RetryableStatusCodes []int  `json:"retryable_status_codes,omitempty"`
}

// BreakerSpec is the tool's own rule of its circuit breaker; what it leaves out is as the settings say.
type BreakerSpec struct {
	Enabled             *bool    `json:"enabled,omitempty"`
	Window              string   `json:"window,omitempty"`        // count or time
	WindowSize          *int     `json:"window_size,omitempty"`   // calls or seconds
	MinimumCalls        *int     `json:"minimum_calls,omitempty"` // before a rate counts
	FailureRate         *float64 `json:"failure_rate,omitempty"`  // percent
	ConsecutiveFailures *int     `json:"consecutive_failures,omitempty"`
	ErrorCount          *int     `json:"error_count,omitempty"`
	SlowCallRate        *float64 `json:"slow_call_rate,omitempty"` // percent
	SlowCallMS          *int64   `json:"slow_call_ms,omitempty"`
	OpenMS              *int64   `json:"open_ms,omitempty"`
	HalfOpen            string   `json:"half_open,omitempty"` // canary or fixed
	HalfOpenCalls       *int     `json:"half_open_calls,omitempty"`
	IgnoreErrors        []Code   `json:"ignore_errors,omitempty"` // that count as nothing; nil is as the settings say
}

// RateLimitSpec is the tool's own rate limit.
type RateLimitSpec struct {
	Algorithm     string `json:"algorithm,omitempty"`
	PerMinute     int    `json:"per_minute,omitempty"`
	Burst         int    `json:"burst,omitempty"`
	MaxConcurrent int    `json:"max_concurrent,omitempty"`
}

// CacheSpec says how long a result may be reused.
type CacheSpec struct {
	Policy        string `json:"policy,omitempty"` // none, ttl, forever
	TTLSeconds    int    `json:"ttl_s,omitempty"`
	StaleIfErrorS int    `json:"stale_if_error_s,omitempty"`
	Warm          bool   `json:"warm,omitempty"`
}

// HealthSpec says where a tool's health is probed.
type HealthSpec struct {
	Endpoint  string `json:"endpoint,omitempty"`   // URL, or a path on the tool's server
	IntervalS int    `json:"interval_s,omitempty"` // default 30
}

// CostSpec is the cost of one call.
type CostSpec struct {
	EstimatedUSD float64 `json:"estimated_usd,omitempty"`
	Model        string  `json:"model,omitempty"`
	Unit         string  `json:"unit,omitempty"`
}

// Example is an example call.
type Example struct {
	Scenario    string          `json:"scenario"`
	Input       json.RawMessage `json:"input,omitempty"`
	Output      json.RawMessage `json:"output,omitempty"`
	Explanation string          `json:"explanation,omitempty"`
}

// SourceSpec is the origin of the definition.
type SourceSpec struct {
	Type     string         `json:"type,omitempty"`
	URI      string         `json:"uri,omitempty"`
	Digest   string         `json:"digest,omitempty"`
	Metadata map[string]any `json:"metadata,omitempty"`
}

// StrictResult reports whether a result that violates the result schema fails.
func (m *Manifest) StrictResult() bool {
	return m.Result == nil || m.Result.Strict == nil || *m.Result.Strict
}

// CoerceResult reports whether texts of a result become the numbers and booleans that its schema asks for.
func (m *Manifest) CoerceResult() bool {
	return m.Result != nil && m.Result.Coerce != nil && *m.Result.Coerce
}

// MaxOutputBytes returns the size above which the output is cut; default 2,000,000.
func (m *Manifest) MaxOutputBytes() int64 {
	if m.Result == nil || m.Result.MaxOutputBytes == 0 {
		return 2_000_000
	}
	return m.Result.MaxOutputBytes
}

// PublicResult reports whether other principals of the tenant may get a cached result.
func (m *Manifest) PublicResult() bool { return m.Result != nil && m.Result.Public }

// Timeout returns the tool's limit for a whole call; default 30 s.
func (m *Manifest) Timeout() time.Duration {
	if m.Execution.TimeoutMS == 0 {
		return 30 * time.Second
	}
	return time.Duration(m.Execution.TimeoutMS) * time.Millisecond
}

// AttemptTimeout returns the limit of one attempt; default the whole call's.
func (m *Manifest) AttemptTimeout() time.Duration {
	if m.Execution.AttemptTimeoutMS == 0 {
		return m.Timeout()
	}
	return time.Duration(m.Execution.AttemptTimeoutMS) * time.Millisecond
}
