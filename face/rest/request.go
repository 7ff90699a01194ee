package rest

// InvokeRequest is BC-2's ToolInvokeRequest with BC-6's names beside it. It
// documents what envelope.go reads; a test holds the two together.
type InvokeRequest struct {
	ToolID             string            `json:"tool_id" maxLength:"4096" doc:"namespace.name, or capability:NAME for the one tool that offers the capability"`
	ToolVersion        string            `json:"tool_version,omitempty" maxLength:"4096" doc:"exact version or range such as ^1.2; absent is the latest"`
	InvocationID       string            `json:"invocation_id,omitempty" maxLength:"4096" doc:"used if it is free; else a new one is made"`
	AgentContext       *AgentContext     `json:"agent_context,omitempty"`
	Parameters         object            `json:"parameters,omitempty" doc:"the tool's arguments, by its parameters_schema"`
	ResourceLimits     *ResourceLimits   `json:"resource_limits,omitempty"`
	DocumentContext    *DocumentContext  `json:"document_context,omitempty" doc:"not in this build: absent or empty"`
	CheckpointConfig   *CheckpointConfig `json:"checkpoint_config,omitempty" doc:"not in this build: absent or the defaults"`
	ExecutionOptions   *ExecutionOptions `json:"execution_options,omitempty"`
	DryRun             bool              `json:"dry_run,omitempty" doc:"explain instead of calling"`
	AgentID            string            `json:"agent_id,omitempty" maxLength:"4096" doc:"as agent_context.agent_did"`
	RequestID          string            `json:"request_id,omitempty" maxLength:"4096" doc:"as execution_options.idempotency_key"`
	SkipCache          bool              `json:"skip_cache,omitempty"`
	CacheOverrideTTL   float64           `json:"cache_override_ttl,omitempty" minimum:"0" maximum:"86400" doc:"seconds that the result may be given again; 0 is the tool's own lifetime"`
	TimeoutSeconds     float64           `json:"timeout_seconds,omitempty" minimum:"0.001" maximum:"604800" doc:"as resource_limits.timeout_seconds"`
	PlanID             string            `json:"plan_id,omitempty" maxLength:"4096" doc:"recorded only"`
	TaskID             string            `json:"task_id,omitempty" maxLength:"4096" doc:"recorded only"`
	Context            *ExecutionContext `json:"context,omitempty"`
	ParentInvocationID string            `json:"parent_invocation_id,omitempty" maxLength:"4096"`
	CapabilityToken    string            `json:"capability_token,omitempty" maxLength:"16384" doc:"a capability token, which narrows what this call may do; the same as the header X-Capability-Token"`
}

// ResourceLimits is BC-2's; of it this build has the timeout.
type ResourceLimits struct {
	CPUMillicoreLimit    any     `json:"cpu_millicore_limit,omitempty" doc:"not in this build: absent or null"`
	MemoryMBLimit        any     `json:"memory_mb_limit,omitempty" doc:"not in this build: absent or null"`
	TimeoutSeconds       float64 `json:"timeout_seconds,omitempty" minimum:"0.001" maximum:"604800" doc:"for the whole call; absent is the tool's own"`
	NetworkBandwidthMbps any     `json:"network_bandwidth_mbps,omitempty" doc:"not in this build: absent or null"`
}

// DocumentContext is BC-2's.
type DocumentContext struct {
	DocumentRefs   []string `json:"document_refs,omitempty" maxItems:"0"`
	VersionPinning bool     `json:"version_pinning,omitempty" enum:"false"`
	Query          string   `json:"query,omitempty" maxLength:"0"`
}

// CheckpointConfig is BC-2's.
type CheckpointConfig struct {
	EnableCheckpointing       bool `json:"enable_checkpointing,omitempty"`
	CheckpointIntervalSeconds int  `json:"checkpoint_interval_seconds,omitempty" enum:"30"`
	ResumeFromCheckpointID    any  `json:"resume_from_checkpoint_id,omitempty" doc:"absent or null"`
}

// ExecutionOptions is BC-2's.
type ExecutionOptions struct {
	AsyncMode       bool   `json:"async_mode,omitempty" doc:"answer at once and carry the call out afterwards"`
	Priority        string `json:"priority,omitempty" enum:"low,normal,high" doc:"among waiting calls; default normal"`
	IdempotencyKey  string `json:"idempotency_key,omitempty" maxLength:"4096" doc:"as the header Idempotency-Key"`
	RequireApproval bool   `json:"require_approval,omitempty" doc:"ask a person first"`
}

// ExecutionContext is BC-6's.
type ExecutionContext struct {
	PlanID string   `json:"plan_id,omitempty" maxLength:"4096"`
	TaskID string   `json:"task_id,omitempty" maxLength:"4096"`
	Env    struct{} `json:"env,omitempty" doc:"not in this build: absent or empty"`
}

// invokeExample stands in the document.
var invokeExample = map[string]any{
	"tool_id": "std.hash", "tool_version": "^1", "parameters": map[string]any{"text": "hello"},
	"execution_options": map[string]any{"idempotency_key": "order-17"},
}
