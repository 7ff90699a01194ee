package facetest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/toolkeep/toolkeep"
)

// Tools is the executor behind the transcripts' tools. It takes the kind code, which no real
// executor has.
type Tools struct {
	mu sync.Mutex
	// Mint makes a capability token that allows a tool to the subject agent.
	Mint    func(t testing.TB, tool string) string
	runs    map[string]int
	started map[string]chan struct{}
	opened  map[string]chan struct{}
}

// NewTools creates the executor.
func NewTools() *Tools {
	return &Tools{runs: map[string]int{}, started: map[string]chan struct{}{}, opened: map[string]chan struct{}{}}
}

// Kind implements toolkeep.Executor.
func (*Tools) Kind() string { return "code" }

// Check implements toolkeep.Executor.
func (*Tools) Check(*toolkeep.Manifest) []toolkeep.Fault { return nil }

// Runs returns how often a tool was executed with this name.
func (x *Tools) Runs(name string) int {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.runs[name]
}

func channel(m map[string]chan struct{}, name string) chan struct{} {
	if m[name] == nil {
		m[name] = make(chan struct{})
	}
	return m[name]
}

// Await waits until a call of face.gate with this name runs.
func (x *Tools) Await(t *testing.T, name string) {
	t.Helper()
	x.mu.Lock()
	c := channel(x.started, name)
	x.mu.Unlock()
	select {
	case <-c:
	case <-time.After(time.Minute):
		t.Fatalf("the call %s did not start", name)
	}
}

// Open lets the calls of face.gate with this name end.
func (x *Tools) Open(name string) {
	x.mu.Lock()
	defer x.mu.Unlock()
	shut(channel(x.opened, name))
}

func shut(c chan struct{}) {
	select {
	case <-c:
	default:
		close(c)
	}
}

// Execute implements toolkeep.Executor.
func (x *Tools) Execute(ctx context.Context, e *toolkeep.Execution) (*toolkeep.Output, error) {
	name, _ := e.Args["name"].(string)
	x.mu.Lock()
	x.runs[name]++
	n, opened := x.runs[name], channel(x.opened, name)
	if e.Tool.ID == "face.gate" {
		shut(channel(x.started, name))
	}
	x.mu.Unlock()
	switch e.Tool.ID {
	case "face.fails", "face.writes":
		return nil, toolkeep.NewError(toolkeep.UpstreamServerError, "the upstream answered 500").With("status", 500)
	case "face.client":
		return nil, toolkeep.NewError(toolkeep.UpstreamClientError, "the upstream answered 404").With("status", 404)
	case "face.limits":
		err := toolkeep.NewError(toolkeep.RateLimitExceeded, "the upstream answered 429").After(7 * time.Second)
		err.NothingSent = true
		return nil, err
	case "face.forbids":
		err := toolkeep.NewError(toolkeep.DestinationForbidden, "the address is forbidden")
		err.NothingSent = true
		return nil, err
	case "face.panics":
		panic("as the transcript wants it")
	case "face.slow":
		<-ctx.Done()
		return nil, stopped(ctx)
	case "face.gate":
		select {
		case <-opened:
		case <-ctx.Done():
			return nil, stopped(ctx)
		}
	case "face.bare":
		return &toolkeep.Output{Value: e.Args["any"], HasValue: true}, nil
	case "face.count", "face.cached":
		return &toolkeep.Output{Value: map[string]any{"run": json.Number(fmt.Sprint(n))}, HasValue: true}, nil
	}
	return &toolkeep.Output{Value: map[string]any(e.Args), HasValue: true}, nil
}

func stopped(ctx context.Context) error {
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return toolkeep.NewError(toolkeep.UpstreamTimeout, "the tool took too long")
	}
	return toolkeep.NewError(toolkeep.Cancelled, "the tool was stopped")
}

// Manifests returns the tools of the transcripts. face.echo 0.9.0 must be deprecated and
// face.blocked blocked.
func Manifests() []string {
	const any = `{"type":"object","properties":{"text":{"type":"string"},"n":{"type":"integer"},"any":{},"name":{"type":"string"}}}`
	tool := func(id, version, parameters string, more ...string) string {
		return fmt.Sprintf(`{"schema_version":1,"tool_id":%q,"version":%q,"description":"Part of the transcripts that every face runs.",
			"side_effects":"reads","retry":{"policy":"none"},"parameters_schema":%s,"execution":{"kind":"code","binding":{}%s}`,
			id, version, parameters, strings.Join(more, "")) + "}"
	}
	reading := func(id string, more ...string) string { return tool(id, "1.0.0", any, more...) }
	return []string{
		tool("face.echo", "0.9.0", any), reading("face.echo"), reading("face.bare"), reading("face.gate"), reading("face.count"),
		reading("face.fails"), reading("face.client"), reading("face.limits"), reading("face.forbids"), reading("face.panics"), reading("face.blocked"),
		reading("face.slow", `,"timeout_ms":60`),
		tool("face.strict", "1.0.0", `{"type":"object","required":["text"],"properties":{"text":{"type":"string","maxLength":3},"n":{"type":"integer","minimum":0}}}`),
		strings.Replace(reading("face.cached"), `"retry"`, `"cache":{"policy":"ttl","ttl_s":300},"retry"`, 1),
		strings.Replace(reading("face.risky"), `"retry"`, `"risk":"high","retry"`, 1),
		strings.Replace(reading("face.writes"), `"reads"`, `"writes"`, 1),
	}
}

// unmarshal parses JSON and keeps the text of numbers.
func unmarshal(text string, to *any) error {
	d := json.NewDecoder(strings.NewReader(text))
	d.UseNumber()
	return d.Decode(to)
}
