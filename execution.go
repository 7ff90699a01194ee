package toolkeep

import (
	"context"
	"errors"
	"io"
)

// Executor executes tools of one kind.
type Executor interface {
	// Kind returns the execution.kind it serves.
	Kind() string
	// Check returns the faults of a manifest's binding before it is published, with
	// pointers from the manifest's root; nil if there are none.
	Check(m *Manifest) []Fault
	// Execute makes one attempt. When ctx ends it tells the upstream to stop, then
	// returns. The error is an *Error; its NothingSent is exact.
	Execute(ctx context.Context, x *Execution) (*Output, error)
}

// UpstreamNamer is an Executor whose tools share upstreams.
type UpstreamNamer interface {
	// UpstreamOf names the upstream that gets a tool's credentials and sends its results,
	// as redact.Host and its siblings do; "" is the tool itself. Secrets are looked for in
	// the results of their own upstream.
	UpstreamOf(p *Principal, t *Tool) string
}

// CallerActor is an Executor whose tools may act with the token that their caller came with, besides those whose
// manifest says so (AuthSpec.NeedsCaller).
type CallerActor interface {
	ActsForCaller(p *Principal, t *Tool) bool
}

// MachineReader is an Executor of which some tools answer from what each node has by itself, such as files, so that the answer
// of one node is not that of another.
type MachineReader interface {
	ReadsMachine(p *Principal, t *Tool) bool
}

// Reacher is an Executor that knows what a tool reaches before it is called. The tools of one
// that does not are refused to calls whose capability token narrows files, network or secrets.
type Reacher interface {
	// Reach returns what calls of a tool reach. An error means that it is not known.
	Reach(t *Tool) (Reach, error)
}

// Prober is an Executor that probes the health of tools, by health.endpoint of their manifests.
type Prober interface {
	// CheckProbe returns the faults of a manifest's health.endpoint. The manifest can be of another kind.
	CheckProbe(m *Manifest) []Fault
	// Probe asks the endpoint, without any credential, until ctx ends. The error is an *Error; nil is an answer that the
	// endpoint is well.
	Probe(ctx context.Context, t *Tool) error
}

// Reach is what calls of a tool reach outside of this process.
type Reach struct {
	// Hosts are what calls connect to. The executor itself checks others, such as those of
	// redirects.
	Hosts []HostPort
	// Socket says that calls connect to a socket of this machine.
	Socket bool
	// OtherFiles says that calls use files which the executor does not check against
	// Execution.Grant, such as that of a database.
	OtherFiles bool
}

// Execution is one attempt of one call.
type Execution struct {
	Tool         *Tool
	Args         map[string]any // validated and coerced; the executor must not modify it
	Credentials  []Credential   // resolved secrets
	Principal    *Principal
	InvocationID string
	Attempt      int    // from 1
	Session      string // the caller's session, "" without one
	Key          string // the caller's idempotency key, for upstreams that accept one
	Traceparent  string
	Tracestate   string
	Caller       Caller // nil without a connected client
	// Facts are facts about the caller's session, from its context; nil without any.
	// They may be personal and are for requests only: never for records, logs or
	// errors.
	Facts map[string]string
	// Grant is what the call's capability token allows, nil without one. An executor refuses
	// hosts and paths that it does not allow (E3204, E3203), see Reacher.
	Grant    *Grant
	Child    Invoker // for tools that call tools: same principal, deadline and budget
	MaxBytes int64   // hard limit of the raw result
	// Grow is told of bytes of the result as they arrive, by the goroutine that called
	// Execute, and waits until the process has room for them; its error, that of the
	// context, ends the attempt. Nil counts nothing; see Arrived. An executor that does not call it
	// has its result counted when it is whole.
	Grow func(bytes int64) error
	// Keep reads body to its end if the whole of a result of the type o.ContentType belongs in the blob store. It puts a
	// short body into o.Body. A long one goes into the store while it arrives, and o.Kept describes it. Grow is told of
	// what is held.
	// It reports false and has read nothing if the executor must read the body itself. The error is that of reading the
	// body, or of Grow. Nil keeps nothing.
	Keep  func(o *Output, body io.Reader) (bool, error)
	Clean Cleaner // removes the call's secrets from text
}

// Arrived tells Grow, if it is set, of bytes of the result that arrived. The error, after which
// the attempt ends, is E3502 or E3902. It is for a result of which more may arrive: a wait for one that is whole frees no
// memory, and its error would lose the answer of a finished call.
func (x *Execution) Arrived(bytes int64) *Error {
	if x.Grow == nil {
		return nil
	}
	err := x.Grow(bytes)
	switch {
	case err == nil:
		return nil
	case errors.Is(err, context.DeadlineExceeded):
		return NewError(UpstreamTimeout, "the attempt's time ended while its result waited for memory (calls.result_memory)").Because(err)
	}
	return NewError(Cancelled, "the call was cancelled while its result waited for memory").Because(err)
}

// Credential is a secret and where it is sent.
type Credential struct {
	Spec  AuthSpec
	Value string
	// Leased means that the secret was made for this call and is revoked after it: no
	// connection outlives the call with it.
	Leased bool
}

// Cleaner removes secrets from text.
type Cleaner interface {
	Clean(s string) string
}

// Kept is a body that went to the blob store while it arrived, without the call's secrets.
type Kept struct {
	Blob Blob   // its ID is "" if it could not be stored; Bytes is known all the same
	Head string // the beginning of a text, at least as much as a result shows of it
}

// Output is an executor's raw result. Value takes precedence; if it is unset, Body has
// the bytes and ContentType their format.
type Output struct {
	Value       any // a JSON tree
	HasValue    bool
	Body        []byte
	Kept        *Kept // the body, if Execution.Keep stored it
	ContentType string
	BytesSent   int64
	BytesRecv   int64
	CostUSD     float64
	Warnings    []Warning // accompany the result; must contain no secrets
	// Location is where the upstream says that what it made or took is, "" for nowhere. It becomes the
	// member location of a result that is null or an object.
	Location string
	// Undescribed means that the body is of a type that the tool declares beside the type which
	// result_schema describes. It is not compared with the schema.
	Undescribed bool
}
