package toolkeep

import "context"

// Executor carries out one kind of tool.
type Executor interface {
	// Kind is the execution.kind it serves.
	Kind() string
	// Check looks at a manifest before it is published and returns what is wrong
	// with its binding, pointers from the manifest's root; nil if all is well.
	Check(m *Manifest) []Fault
	// Execute makes one attempt. It returns when ctx ends, after it has told the
	// upstream to stop. The error is an *Error; its NothingSent is exact.
	Execute(ctx context.Context, x *Execution) (*Output, error)
}

// Execution is one attempt of one call.
type Execution struct {
	Tool         *Tool
	Args         map[string]any // checked and coerced; the executor must not modify it
	Credentials  []Credential   // secrets, already resolved
	Principal    *Principal
	InvocationID string
	Attempt      int    // from 1
	Session      string // the caller's session, "" without one
	Key          string // the caller's idempotency key, for upstreams that take one
	Traceparent  string
	Caller       Caller // nil where nobody is connected
	// Facts about the caller's session, from its context; nil without any. They may be
	// about people and are for requests alone: never for records, logs or errors.
	Facts    map[string]string
	Child    Invoker // for tools that call tools: same principal, deadline and budget
	MaxBytes int64   // hard limit of the raw result
	Clean    Cleaner // removes the call's secrets from text
}

// Credential is one secret with the place it goes to.
type Credential struct {
	Spec  AuthSpec
	Value string
}

// Cleaner removes secrets from text.
type Cleaner interface {
	Clean(s string) string
}

// Output is what an executor brought back. Value wins; where it is unset, Body
// holds the bytes and ContentType says how to read them.
type Output struct {
	Value       any // a JSON tree
	HasValue    bool
	Body        []byte
	ContentType string
	BytesSent   int64
	BytesRecv   int64
	CostUSD     float64
	Warnings    []Warning // ride with the result; their words must hold no secrets
}
