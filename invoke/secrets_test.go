package invoke_test

import (
	"context"
	"path"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/invoke"
	"github.com/toolkeep/toolkeep/redact"
	"github.com/toolkeep/toolkeep/resultcache"
	"github.com/toolkeep/toolkeep/secret"
	"github.com/toolkeep/toolkeep/store/blob"
)

// printedSecrets has values by reference, each with its mark.
type printedSecrets struct {
	fakeSecrets
	prints map[string]secret.Fingerprint
}

func (s *printedSecrets) Fingerprint(_ context.Context, _ *toolkeep.Principal, ref string) (secret.Fingerprint, bool) {
	m, ok := s.prints[ref]
	return m, ok
}

// rules records the cache rules of stored results.
type rules struct {
	*resultcache.Cache
	kept []toolkeep.CacheSpec
}

func (r *rules) Put(k resultcache.Key, tenant, id string, res *toolkeep.Result, spec *toolkeep.CacheSpec) bool {
	r.kept = append(r.kept, *spec)
	return r.Cache.Put(k, tenant, id, res, spec)
}

// TestCacheKnowsSecrets: a result is reused only with the same credential, and is
// stored for a limited time if the credential's changes are not visible.
func TestCacheKnowsSecrets(t *testing.T) {
	secrets := &printedSecrets{prints: map[string]secret.Fingerprint{}}
	kept := &rules{Cache: resultcache.New(resultcache.Config{})}
	h := newHarness(t, func(c *invoke.Config) { c.Secrets, c.Results = secrets, kept })
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
	secrets.prints["env://B"] = secret.Fingerprint{Sum: [32]byte{1}}
	call("the second alternative", true)
	call("the same", false)
	secrets.prints["env://A"] = secret.Fingerprint{Sum: [32]byte{1}}
	call("the first comes before it", true)
	secrets.prints["env://B"] = secret.Fingerprint{Sum: [32]byte{2}}
	call("what is not taken does not count", false)
	secrets.prints["env://A"] = secret.Fingerprint{Sum: [32]byte{3}}
	call("another value", true)
	if last := kept.kept[len(kept.kept)-1]; last.Policy != "forever" {
		t.Errorf("kept by %+v", last)
	}
	secrets.prints["env://A"] = secret.Fingerprint{Sum: [32]byte{4}, Blind: true}
	call("one whose changes do not show", true)
	if last := kept.kept[len(kept.kept)-1]; last.Policy != "ttl" || last.TTLSeconds != int(resultcache.DefaultTTL/time.Second) {
		t.Errorf("kept by %+v", last)
	}
	call("the same", false)
}

// TestKeyIsOfWorkspaceAndPerson: a key's stored answer is only for its workspace and
// person.
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

// asking signals a cache miss.
type asking struct {
	*resultcache.Cache
	got chan struct{}
}

func (a *asking) Do(ctx context.Context, k resultcache.Key, fn func(context.Context) (*toolkeep.Result, error)) (*toolkeep.Result, bool, error) {
	select {
	case a.got <- struct{}{}:
	default:
	}
	return a.Cache.Do(ctx, k, fn)
}

// TestOwnSecretInAPublicResult: one person's redacted secret is not missing from other
// people's results, cached or shared.
func TestOwnSecretInAPublicResult(t *testing.T) {
	asked := &asking{Cache: resultcache.New(resultcache.Config{}), got: make(chan struct{}, 10)}
	h := newHarness(t, func(c *invoke.Config) { c.Results = asked })
	h.tool("read", func(m *toolkeep.Manifest) {
		m.Cache, m.Result = &toolkeep.CacheSpec{Policy: "ttl", TTLSeconds: 60}, &toolkeep.ResultSpec{Public: true}
	})
	bob := &toolkeep.Principal{Tenant: alice.Tenant, Subject: "bob"}
	release := h.redact.Hold(redact.PersonScope(alice), "the word")
	defer release()
	started, goOn := make(chan struct{}, 10), make(chan struct{})
	h.executor.do = func(context.Context, *toolkeep.Execution) (*toolkeep.Output, error) {
		started <- struct{}{}
		<-goOn
		return &toolkeep.Output{Value: "the word", HasValue: true}, nil
	}
	call := func(p *toolkeep.Principal, want string) (cached bool) {
		t.Helper()
		res, err := h.pipeline.Invoke(context.Background(), p, &toolkeep.Call{Tool: "std.read"})
		if err != nil || string(res.Output) != want {
			t.Errorf("%s gets %+v %v, want %s", p.Subject, res, err, want)
			return false
		}
		return res.Cached
	}
	var both sync.WaitGroup
	both.Go(func() { call(alice, `"[REDACTED]"`) })
	<-started
	<-asked.got
	both.Go(func() { call(bob, `"the word"`) })
	<-asked.got // joins alice's run, or makes its own if that is faster
	close(goOn)
	both.Wait()
	if n := h.executor.calls.Load(); n != 2 {
		t.Errorf("executed %d times, want 2", n)
	}
	call(alice, `"[REDACTED]"`)
	call(bob, `"the word"`)
	if !call(bob, `"the word"`) || !call(alice, `"[REDACTED]"`) {
		t.Error("what bob's call brought is not kept")
	}
}

// TestWholeOfAPublicResult: the truncated part is as public as the result.
func TestWholeOfAPublicResult(t *testing.T) {
	h := newHarness(t)
	h.tool("read", func(m *toolkeep.Manifest) {
		m.Result = &toolkeep.ResultSpec{Public: true, MaxOutputBytes: 100}
	})
	h.executor.do = func(context.Context, *toolkeep.Execution) (*toolkeep.Output, error) {
		return &toolkeep.Output{Value: "the word " + strings.Repeat("x", 1000), HasValue: true}, nil
	}
	whose := func() string {
		t.Helper()
		res, err := h.call(&toolkeep.Call{Tool: "std.read"})
		if err != nil || !res.Truncated || len(res.Attachments) != 1 {
			t.Fatalf("it was not cut: %v", err)
		}
		b, r, oerr := h.config.Blobs.(*blob.Dir).Open(t.Context(), path.Base(res.Attachments[0].URL))
		if oerr != nil {
			t.Fatal(oerr)
		}
		defer r.Close()
		return b.Subject
	}
	if got := whose(); got != "" {
		t.Errorf("it is %s's", got)
	}
	defer h.redact.Hold(redact.PersonScope(alice), "the word")()
	if got := whose(); got != alice.Subject {
		t.Errorf("without alice's word it is %q's", got)
	}
}

// TestPasswordOverAPublicResult: a caller cannot redact a word from everyone's results
// of a child tool by passing it as a password to the parent.
func TestPasswordOverAPublicResult(t *testing.T) {
	h := newHarness(t)
	h.tool("login", login)
	h.tool("read", func(m *toolkeep.Manifest) {
		m.Cache, m.Result = &toolkeep.CacheSpec{Policy: "ttl", TTLSeconds: 60}, &toolkeep.ResultSpec{Public: true}
	})
	h.executor.do = func(ctx context.Context, x *toolkeep.Execution) (*toolkeep.Output, error) {
		if x.Tool.ID == "std.read" {
			return &toolkeep.Output{Value: "the word", HasValue: true}, nil
		}
		below, err := x.Child.Invoke(ctx, nil, &toolkeep.Call{Tool: "std.read"})
		if err != nil {
			return nil, err
		}
		return &toolkeep.Output{Value: string(below.Output), HasValue: true}, nil
	}
	res, err := h.call(&toolkeep.Call{Tool: "std.login", Arguments: []byte(`{"login":{"password":"the word"}}`)})
	if err != nil || strings.Contains(string(res.Output), "word") {
		t.Fatalf("%+v %v", res, err)
	}
	bob := &toolkeep.Principal{Tenant: alice.Tenant, Subject: "bob"}
	for _, cached := range []bool{false, true} {
		res, err := h.pipeline.Invoke(context.Background(), bob, &toolkeep.Call{Tool: "std.read"})
		if err != nil || string(res.Output) != `"the word"` || res.Cached != cached {
			t.Errorf("bob gets %+v, %v; want the word, cached %t", res, err, cached)
		}
	}
}
