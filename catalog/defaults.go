package catalog

import (
	"slices"
	"time"

	"github.com/toolkeep/toolkeep"
)

// Defaults hold for what a manifest leaves out. A zero field is the default of contracts/manifest.schema.json. They are
// settings of the node: they enter no digest, and a change of them holds for published tools too.
type Defaults struct {
	Timeout  time.Duration      // execution.timeout_ms
	Retry    toolkeep.RetrySpec // all but policy and retryable_errors
	CacheTTL time.Duration      // cache.ttl_s, in whole seconds
	Lenient  bool               // result.strict is false, also for kinds other than mcp
	Coerce   bool               // result.coerce
}

// fill fills in what the manifest leaves out: what d sets, else the defaults of the manifest's schema. It changes m
// alone, not what m points to.
func (d Defaults) fill(m *toolkeep.Manifest) {
	orElse(&m.Category, "utility")
	orElse(&m.Complexity, "low")
	orElse(&m.SideEffects, "writes")
	orElse(&m.Risk, "low")

	x := &m.Execution
	orElse(&x.TimeoutMS, d.Timeout.Milliseconds())
	orElse(&x.TimeoutMS, 30_000)
	orElse(&x.CPUMillicores, 500)
	orElse(&x.MemoryMB, 1024)

	m.Result = own(m.Result)
	m.Result.StrictAsked = m.Result.Strict != nil && *m.Result.Strict
	if d.Lenient {
		orElse(&m.Result.Strict, new(false))
	}
	orElse(&m.Result.Strict, new(x.Kind != "mcp")) // MCP servers break their own schemas, and the call was made
	if d.Coerce {
		orElse(&m.Result.Coerce, new(true))
	}
	orElse(&m.Result.MaxOutputBytes, 2_000_000)

	m.Retry = own(m.Retry)
	r := m.Retry
	orElse(&r.MaxAttempts, d.Retry.MaxAttempts)
	orElse(&r.BaseDelayMS, d.Retry.BaseDelayMS)
	orElse(&r.MaxDelayMS, d.Retry.MaxDelayMS)
	orElse(&r.Jitter, d.Retry.Jitter)
	if r.RetryableStatusCodes == nil { // an empty list is one that the manifest names
		r.RetryableStatusCodes = d.Retry.RetryableStatusCodes
	}
	orElse(&r.Policy, "exponential")
	orElse(&r.MaxAttempts, 3)
	orElse(&r.BaseDelayMS, new(int64(1000)))
	orElse(&r.MaxDelayMS, new(int64(32_000)))
	orElse(&r.Jitter, "full")

	m.Cache = own(m.Cache)
	orElse(&m.Cache.Policy, "none")
	orElse(&m.Cache.TTLSeconds, int(d.CacheTTL/time.Second))
	orElse(&m.Cache.TTLSeconds, 300)

	if m.RateLimit != nil {
		m.RateLimit = own(m.RateLimit)
		orElse(&m.RateLimit.Algorithm, "token_bucket")
	}
	if m.Cost != nil {
		m.Cost = own(m.Cost)
		orElse(&m.Cost.Model, "fixed")
	}
	if m.Health != nil {
		m.Health = own(m.Health)
		orElse(&m.Health.IntervalS, 30)
	}
	if m.Permissions != nil {
		m.Permissions = own(m.Permissions)
		m.Permissions.Filesystem = slices.Clone(m.Permissions.Filesystem)
		for i := range m.Permissions.Filesystem {
			orElse(&m.Permissions.Filesystem[i].Mode, "ro")
		}
	}
}

// own returns a copy of *p, or a zero value: a manifest's outline shares its members with others.
func own[T any](p *T) *T {
	if p == nil {
		return new(T)
	}
	c := *p
	return &c
}

func orElse[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}
