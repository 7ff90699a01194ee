package grpctool

import (
	"context"
	"encoding/json"
	"maps"
	"net"
	"strconv"
	"testing"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/canon"
	"github.com/toolkeep/toolkeep/catalog"
	"github.com/toolkeep/toolkeep/catalog/source/grpc"
	"github.com/toolkeep/toolkeep/executor/executortest"
	"github.com/toolkeep/toolkeep/executor/grpctool/grpctest"
)

// tools are the tools of a server as its importer creates them.
type tools map[string]*toolkeep.Manifest

func importTools(t testing.TB, s *grpctest.Server, edit ...func(*grpc.Options)) tools {
	t.Helper()
	o := grpc.Options{Target: s.Addr, Namespace: "kinds", Protoset: s.Set, Plaintext: true}
	for _, f := range edit {
		f(&o)
	}
	plan, err := grpc.Read(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	if len(plan.Refused) > 0 {
		t.Fatalf("refused: %v", plan.Refused)
	}
	out := tools{}
	for _, p := range plan.Tools {
		tool, err := catalog.ParseManifest(p.Manifest)
		if err != nil {
			t.Fatal(err)
		}
		out[tool.ID[len("kinds."):]] = tool.Manifest
	}
	return out
}

// with returns the manifest with changed binding members; nil removes one.
func (ts tools) with(t testing.TB, name string, members map[string]any, edit ...func(*toolkeep.Manifest)) *toolkeep.Manifest {
	t.Helper()
	m := ts[name]
	if m == nil {
		t.Fatalf("there is no tool %s", name)
	}
	copied := *m
	tree, err := canon.ParseObject(m.Execution.Binding, canon.Limits{})
	if err != nil {
		t.Fatal(err)
	}
	maps.Copy(tree, members)
	for k, v := range members {
		if v == nil {
			delete(tree, k)
		}
	}
	copied.Execution.Binding = canon.Append(nil, tree)
	if target, ok := members["target"].(string); ok {
		if host, port, err := net.SplitHostPort(target); err == nil {
			n, _ := strconv.Atoi(port)
			copied.Permissions = &toolkeep.Permissions{Network: []toolkeep.HostPort{{Host: host, Port: n}}}
		}
	}
	for _, f := range edit {
		f(&copied)
	}
	return &copied
}

func args(t testing.TB, s string) map[string]any {
	t.Helper()
	v, err := canon.ParseObject([]byte(s), canon.Limits{Bytes: 16 << 20})
	if err != nil {
		t.Fatalf("%v in %.500s", err, s)
	}
	return v
}

func execution(m *toolkeep.Manifest, args map[string]any) *toolkeep.Execution {
	return &toolkeep.Execution{Tool: executortest.Tool(m), Args: args, Principal: &toolkeep.Principal{Subject: "agent", Tenant: "acme"},
		Attempt: 1, MaxBytes: 10 << 20}
}

func newExecutor(t testing.TB) *Executor {
	e := New(Config{})
	t.Cleanup(e.Close)
	return e
}

// run makes a call and returns the result as canonical JSON.
func run(t testing.TB, e *Executor, x *toolkeep.Execution) (string, *toolkeep.Output, *toolkeep.Error) {
	t.Helper()
	return runWith(t.Context(), e, x)
}

func runWith(ctx context.Context, e *Executor, x *toolkeep.Execution) (string, *toolkeep.Output, *toolkeep.Error) {
	out, err := e.Execute(ctx, x)
	if err != nil {
		return "", nil, toolkeep.AsError(err)
	}
	return string(canon.Append(nil, out.Value)), out, nil
}

func number(n int) json.Number { return json.Number(strconv.Itoa(n)) }

func wantCode(t testing.TB, e *toolkeep.Error, code toolkeep.Code) {
	t.Helper()
	if e == nil || e.Code != code {
		cause := error(nil)
		if e != nil {
			cause = e.Cause
		}
		t.Fatalf("the error is %v (because of %v), want %s", e, cause, code)
	}
}
