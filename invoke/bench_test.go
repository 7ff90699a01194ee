package invoke_test

import (
	"context"
	"encoding/json"
	"testing"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/inspect"
	"github.com/toolkeep/toolkeep/invoke"
	"github.com/toolkeep/toolkeep/limit/breaker"
	"github.com/toolkeep/toolkeep/limit/bulkhead"
	"github.com/toolkeep/toolkeep/redact"
	"github.com/toolkeep/toolkeep/resultcache"
	"github.com/toolkeep/toolkeep/schema"
	"github.com/toolkeep/toolkeep/secret"
	"github.com/toolkeep/toolkeep/store/blob"
)

// discard is a store that keeps nothing, so that the benchmarks measure the pipeline alone.
type discard struct{ toolkeep.Invocations }

func (discard) Apply(context.Context, ...toolkeep.Change) error { return nil }
func (discard) ByKey(context.Context, string, string, string) (*toolkeep.Invocation, error) {
	return nil, toolkeep.ErrNotFound
}

func (discard) Marks(context.Context, []toolkeep.CallRef) (map[toolkeep.CallRef]toolkeep.CallMark, error) {
	return nil, nil
}
func (discard) CancelRequested(context.Context, string) ([]toolkeep.CallRef, error) { return nil, nil }

// BenchmarkInvoke carries calls through the twelve steps: one that reads, one that
// writes, one whose result is cached, and one whose arguments do not fit.
func BenchmarkInvoke(b *testing.B) {
	dir := b.TempDir()
	blobs, err := blob.Open(dir)
	if err != nil {
		b.Fatal(err)
	}
	sealer, err := secret.OpenSealer(dir + "/seal.key")
	if err != nil {
		b.Fatal(err)
	}
	parameters := json.RawMessage(`{"type":"object","properties":{"n":{"type":"integer"},"s":{"type":"string"}},"additionalProperties":false}`)
	tools := map[string]*toolkeep.Tool{}
	for name, m := range map[string]*toolkeep.Manifest{
		"reads":  {SideEffects: "reads"},
		"writes": {SideEffects: "writes"},
		"cached": {SideEffects: "reads", Cache: &toolkeep.CacheSpec{Policy: "ttl", TTLSeconds: 3600}},
	} {
		m.ToolID, m.Version, m.Risk, m.ParametersSchema = "std."+name, "1.0.0", "low", parameters
		m.Execution.Kind = "builtin"
		tools[m.ToolID] = &toolkeep.Tool{ID: m.ToolID, Version: m.Version, Digest: "sha256:" + name, Manifest: m}
	}
	schemas := schema.NewCache(0)
	p, err := invoke.New(invoke.Config{
		Catalog: &fakeCatalog{tools: tools}, Access: &fakeAccess{}, Limits: newLimits(), Results: resultcache.New(resultcache.Config{}),
		Secrets: fakeSecrets{}, Sealer: sealer, Blobs: blobs, Store: discard{}, Invocations: discard{}, Marks: discard{},
		Executors: map[string]toolkeep.Executor{"builtin": &fakeExecutor{do: func(context.Context, *toolkeep.Execution) (*toolkeep.Output, error) {
			return &toolkeep.Output{Value: "done", HasValue: true}, nil
		}}},
		Schemas: schemas, Inspector: inspect.New(inspect.Config{Schemas: schemas}), Redact: redact.NewRedactor(nil), Node: "node-1", Breakers: breaker.New(breaker.Config{}), Bulkheads: bulkhead.New(bulkhead.Config{}),
	})
	if err != nil {
		b.Fatal(err)
	}
	for _, c := range []struct{ name, tool, arguments string }{
		{"reads", "std.reads", `{"n":1,"s":"x"}`},
		{"writes", "std.writes", `{"n":1,"s":"x"}`},
		{"cached", "std.cached", `{"n":1,"s":"x"}`},
		{"refused", "std.reads", `{"n":"x"}`},
	} {
		b.Run(c.name, func(b *testing.B) {
			call := &toolkeep.Call{Tool: c.tool, Arguments: []byte(c.arguments), Face: "rest"}
			b.ReportAllocs()
			for b.Loop() {
				_, err := p.Invoke(context.Background(), alice, call)
				if (err != nil) != (c.name == "refused") {
					b.Fatal(err)
				}
			}
		})
	}
}
