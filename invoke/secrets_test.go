package invoke_test

import (
	"context"
	"testing"
	"time"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/invoke"
	"github.com/toolkeep/toolkeep/recall"
	"github.com/toolkeep/toolkeep/secret"
)

// markedSecrets has values by reference, each with its mark.
type markedSecrets struct {
	fakeSecrets
	marks map[string]secret.Mark
}

func (s *markedSecrets) Mark(_ context.Context, _ *toolkeep.Principal, ref string) (secret.Mark, bool) {
	m, ok := s.marks[ref]
	return m, ok
}

// rules notes with which rules results are kept.
type rules struct {
	*recall.Cache
	kept []toolkeep.CacheSpec
}

func (r *rules) Put(k recall.Key, tenant, id string, res *toolkeep.Result, spec *toolkeep.CacheSpec) {
	r.kept = append(r.kept, *spec)
	r.Cache.Put(k, tenant, id, res, spec)
}

// TestCacheKnowsSecrets: a result is given again to the same credential only, and of
// one whose changes do not show it is kept for a time.
func TestCacheKnowsSecrets(t *testing.T) {
	secrets := &markedSecrets{marks: map[string]secret.Mark{}}
	kept := &rules{Cache: recall.New(recall.Config{})}
	h := newHarness(t, func(c *invoke.Config) { c.Secrets, c.Recall = secrets, kept })
	h.tool("read", func(m *toolkeep.Manifest) {
		m.Cache = &toolkeep.CacheSpec{Policy: "forever"}
		m.Auth = []toolkeep.AuthSpec{{Type: "bearer", Secret: "env://A"}, {Type: "bearer", Secret: "env://B"}}
	})
	runs := int64(0)
	call := func(what string, runsMore bool) {
		t.Helper()
		if _, err := h.call(&toolkeep.Call{Tool: "std.read"}); err != nil {
			t.Fatal(err)
		}
		if runsMore {
			runs++
		}
		if n := h.executor.calls.Load(); n != runs {
			t.Errorf("%s: executed %d times, want %d", what, n, runs)
		}
	}
	call("no secret at hand", true)
	call("nothing is kept without one", true)
	secrets.marks["env://B"] = secret.Mark{Sum: [32]byte{1}}
	call("the second alternative", true)
	call("the same", false)
	secrets.marks["env://A"] = secret.Mark{Sum: [32]byte{1}}
	call("the first comes before it", true)
	secrets.marks["env://B"] = secret.Mark{Sum: [32]byte{2}}
	call("what is not taken does not count", false)
	secrets.marks["env://A"] = secret.Mark{Sum: [32]byte{3}}
	call("another value", true)
	if last := kept.kept[len(kept.kept)-1]; last.Policy != "forever" {
		t.Errorf("kept by %+v", last)
	}
	secrets.marks["env://A"] = secret.Mark{Sum: [32]byte{4}, Blind: true}
	call("one whose changes do not show", true)
	if last := kept.kept[len(kept.kept)-1]; last.Policy != "ttl" || last.TTLSeconds != int(recall.DefaultTTL/time.Second) {
		t.Errorf("kept by %+v", last)
	}
	call("the same", false)
}

// TestKeyIsOfWorkspaceAndPerson: the kept answer of a key goes to the workspace and the
// person that it was for.
func TestKeyIsOfWorkspaceAndPerson(t *testing.T) {
	h := newHarness(t)
	h.tool("write", writes)
	in := func(workspace, person string) (*toolkeep.Result, *toolkeep.Error) {
		p := *alice
		p.Workspace, p.OnBehalf = workspace, person
		res, err := h.pipeline.Invoke(t.Context(), &p, &toolkeep.Call{Tool: "std.write", Key: "k", Arguments: []byte(`{"n":1}`)})
		return res, toolkeep.AsError(err)
	}
	first, err := in("a", "carol")
	if err != nil {
		t.Fatal(err)
	}
	again, err := in("a", "carol")
	if err != nil || !again.Replayed || again.InvocationID != first.InvocationID {
		t.Errorf("the same again: %+v %v", again, err)
	}
	for _, other := range [][2]string{{"b", "carol"}, {"a", "dave"}, {"a", ""}, {"", "carol"}, {"", ""}, {"ac", "arol"}, {"carol", "a"}} {
		_, err := in(other[0], other[1])
		wantCode(t, err, toolkeep.IdempotencyConflict)
	}
	if n := h.executor.calls.Load(); n != 1 {
		t.Errorf("executed %d times, want 1", n)
	}
}
