//go:build linux

package upstream

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/mcp"
)

// fakeSecrets resolves its entries, each for its tenant.
type fakeSecrets map[string]string

func (f fakeSecrets) Resolve(_ context.Context, _ *Spec, p *toolkeep.Principal, ref string) (Value, error) {
	if v, ok := f[p.Tenant+" "+ref]; ok {
		return Value{Text: v, Held: []string{v}}, nil
	}
	e := toolkeep.NewError(toolkeep.SecretNotFound, "there is no secret %s", ref)
	e.NothingSent = true
	return Value{}, e
}

func TestEnvironmentIsScrubbed(t *testing.T) {
	t.Setenv("AWS_SECRET_ACCESS_KEY", "do-not-show")
	t.Setenv("LANG", "de_DE.UTF-8")
	c := testConfig(t)
	c.Secrets = fakeSecrets{"acme env://KEY": "s3cr3t-value"}
	spec := stdioSpec(t, "")
	spec.Env["KEY"], spec.Env["PLAIN"], spec.Env["LITERAL"], spec.Env["BEARER"] = "env://KEY", "x y", "text:env://KEY", "Bearer env://KEY"
	s := start(t, c, spec)
	env := strings.Split(call(t, s, toolCall(alice(), "env", "")), "\n")
	slices.Sort(env)
	own := filepath.Join(c.Dir, "acme", "s")
	want := []string{
		"BEARER=Bearer s3cr3t-value", "HOME=" + own + "/home", "KEY=s3cr3t-value", "LANG=de_DE.UTF-8", "LITERAL=env://KEY", "MODE=",
		"PATH=" + os.Getenv("PATH"), "PLAIN=x y", "TERM=dumb", "TMPDIR=" + own + "/tmp", "UPSTREAM_TEST_PROGRAM=server",
	}
	if !slices.Equal(env, want) {
		t.Errorf("the server sees\n%s\nwant\n%s", strings.Join(env, "\n"), strings.Join(want, "\n"))
	}
	for _, d := range []string{"home", "tmp", "work"} {
		if fi, err := os.Stat(filepath.Join(own, d)); err != nil || fi.Mode().Perm() != 0o700 {
			t.Errorf("%s: %v, %v", d, fi, err)
		}
	}
	// Another tenant lacks the secret: its session does not start.
	e := fails(t, s, toolCall(carol(), "env", ""), toolkeep.SecretNotFound)
	if !e.NothingSent {
		t.Errorf("%v", e)
	}
	if st := status(t, s, carol()); st.State != StateIdle || st.Sessions != 0 || !strings.Contains(st.LastError, "env://KEY") {
		t.Errorf("%+v", st)
	}
}

func TestSecretsAreNotInLogs(t *testing.T) {
	c := testConfig(t)
	c.Secrets = fakeSecrets{"acme env://KEY": "s3cr3t-value", "globex env://KEY": "s3cr3t-value"}
	spec := stdioSpec(t, "")
	spec.Env["SECRET"] = "env://KEY"
	s := start(t, c, spec)
	call(t, s, toolCall(alice(), "secret", ""))
	eventually(t, "the line is in the log", func() bool { return strings.Contains(logs(t, s, alice()), "my key is [REDACTED]") })
	spec.Env["MODE"] = "flap"
	s.Set([]Spec{spec})
	fails(t, s, toolCall(alice(), "echo", ""), toolkeep.MCPUnavailable)
	text := logs(t, s, alice()) + status(t, s, alice()).LastError
	if strings.Contains(text, "s3cr3t") || !strings.Contains(text, "the key is [REDACTED]") {
		t.Error(text)
	}
}

func TestWorkingDirectory(t *testing.T) {
	spec := stdioSpec(t, "")
	spec.Dir = t.TempDir()
	spec.Command = []string{"sh", "-c", "pwd >&2; exec \"$0\"", self(t)}
	s := start(t, testConfig(t), spec)
	call(t, s, toolCall(alice(), "echo", ""))
	eventually(t, "it runs there", func() bool { return strings.Contains(logs(t, s, alice()), spec.Dir) })
}

// remember stores a text in the server's memory and returns the previous one.
func remember(t *testing.T, s *Servers, p *toolkeep.Principal, text string) string {
	return call(t, s, toolCall(p, "remember", text))
}

func TestSessionsAreKeptApart(t *testing.T) {
	t.Run("shared", func(t *testing.T) {
		s := start(t, testConfig(t), stdioSpec(t, ""))
		remember(t, s, alice(), "a")
		if got := remember(t, s, bob(), "b"); got != "a" {
			t.Errorf("the tenant's session is not shared: %q", got)
		}
		if got := remember(t, s, carol(), "c"); got != "" {
			t.Errorf("another tenant sees %q", got)
		}
	})
	t.Run("principal", func(t *testing.T) {
		spec := stdioSpec(t, "")
		spec.Session = SessionPrincipal
		s := start(t, testConfig(t), spec)
		remember(t, s, alice(), "a")
		if got := remember(t, s, bob(), "b"); got != "" {
			t.Errorf("another principal sees %q", got)
		}
		same := carol()
		same.Subject = "alice"
		if got := remember(t, s, same, "c"); got != "" {
			t.Errorf("a namesake in another tenant sees %q", got)
		}
		if got := remember(t, s, alice(), "a2"); got != "a" {
			t.Errorf("her own session is gone: %q", got)
		}
	})
	t.Run("call", func(t *testing.T) {
		spec := stdioSpec(t, "")
		spec.Session = SessionCall
		s := start(t, testConfig(t), spec)
		remember(t, s, alice(), "a")
		if got := remember(t, s, alice(), "b"); got != "" {
			t.Errorf("the next call sees %q", got)
		}
		eventually(t, "sessions end after their call", func() bool { return status(t, s, alice()).Sessions == 0 })
	})
}

func TestServersOfTenants(t *testing.T) {
	all, own := stdioSpec(t, ""), stdioSpec(t, "")
	own.Tenant, own.Env["MODE"] = "acme", "modern"
	s := start(t, testConfig(t), all, own)
	if spec, ok := s.Get(alice(), "s"); !ok || spec.Tenant != "acme" {
		t.Error("the tenant's own server is not found first")
	}
	if spec, ok := s.Get(carol(), "s"); !ok || spec.Tenant != "" {
		t.Error("the server of all is not found")
	}
	if _, ok := s.Get(carol(), "none"); ok {
		t.Error("there is a server of no name")
	}
	fails(t, s, &Request{Principal: alice(), Server: "none", Method: mcp.MethodListTools}, toolkeep.MCPUnavailable)
	if err := s.Restart(alice(), "none"); !toolkeep.IsCode(err, toolkeep.ResourceNotFound) {
		t.Error(err)
	}
	if n := len(s.Status(alice())); n != 1 {
		t.Errorf("%d servers", n)
	}
	// A tenant's status and log contain nothing of another tenant's.
	call(t, s, toolCall(carol(), "echo", ""))
	if st := status(t, s, alice()); st.Sessions != 0 || st.State != StateIdle {
		t.Errorf("%+v", st)
	}
	if logs(t, s, alice()) != "" {
		t.Error("alice reads carol's log")
	}
}

func TestDisabled(t *testing.T) {
	spec := stdioSpec(t, "")
	spec.Disabled = true
	s := start(t, testConfig(t), spec)
	e := fails(t, s, toolCall(alice(), "echo", ""), toolkeep.MCPUnavailable)
	if !strings.Contains(e.Message, "switched off") || !e.NothingSent {
		t.Error(e)
	}
	if st := status(t, s, alice()); st.State != StateDisabled {
		t.Errorf("%+v", st)
	}
}

func TestManyCallsAtOnceStartOneProcess(t *testing.T) {
	s := start(t, testConfig(t), stdioSpec(t, ""))
	var wg sync.WaitGroup
	var mu sync.Mutex
	seen := map[string]bool{}
	for i := range 100 {
		wg.Go(func() {
			if got := call(t, s, toolCall(alice(), "echo", fmt.Sprint(i))); got != fmt.Sprint(i) {
				t.Errorf("call %d got %s", i, got)
			}
			pid := call(t, s, toolCall(bob(), "pid", ""))
			mu.Lock()
			seen[pid] = true
			mu.Unlock()
		})
	}
	wg.Wait()
	if len(seen) != 1 {
		t.Errorf("%d processes answered", len(seen))
	}
	st := status(t, s, alice())
	if st.State != StateReady || st.Sessions != 1 || st.InUse != 0 || st.PID == 0 || st.RSS < 1<<20 || st.Transport != Stdio || st.Version != mcp.V20251125 {
		t.Errorf("%+v", st)
	}
}

func TestMaxSessions(t *testing.T) {
	spec := stdioSpec(t, "")
	spec.Session, spec.MaxSessions = SessionPrincipal, 2
	s := start(t, testConfig(t), spec)
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	hang := func(p *toolkeep.Principal) {
		wg.Go(func() { _, _ = s.Do(ctx, toolCall(p, "hang", "")) })
	}
	hang(alice())
	call(t, s, toolCall(bob(), "echo", ""))
	// Bob's idle session is closed for Carol's.
	dora := &toolkeep.Principal{Tenant: "acme", Subject: "dora"}
	hang(dora)
	eventually(t, "two calls hang", func() bool { return pending(s) == 2 })
	e := fails(t, s, toolCall(bob(), "echo", ""), toolkeep.ConcurrencyLimitExceeded)
	if !e.NothingSent || e.RetryAfter == 0 {
		t.Errorf("%+v", e)
	}
	cancel()
	wg.Wait()
	call(t, s, toolCall(bob(), "echo", ""))
}

// A principal whose calls all wait leaves half of the sessions to others.
func TestSessionsOfOnePrincipal(t *testing.T) {
	spec := stdioSpec(t, "")
	spec.Session, spec.MaxSessions = SessionCall, 4
	s := start(t, testConfig(t), spec)
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	for range 2 {
		wg.Go(func() { _, _ = s.Do(ctx, toolCall(alice(), "hang", "")) })
	}
	eventually(t, "two calls hang", func() bool { return pending(s) == 2 })
	e := fails(t, s, toolCall(alice(), "echo", ""), toolkeep.ConcurrencyLimitExceeded)
	if !e.NothingSent || !strings.Contains(e.Message, "half") {
		t.Errorf("%+v", e)
	}
	call(t, s, toolCall(bob(), "echo", ""))
	cancel()
	wg.Wait()
	call(t, s, toolCall(alice(), "echo", ""))
}

func TestProgressReachesItsCallerInOrderAndBeforeTheAnswer(t *testing.T) {
	s := start(t, testConfig(t), stdioSpec(t, ""))
	var wg sync.WaitGroup
	for i := range 20 {
		wg.Go(func() {
			l := &listener{}
			r := toolCall(alice(), "progress", "")
			token := fmt.Sprintf(`"token-%d"`, i)
			r.Params = mcp.Set(r.Params, []byte(token), "_meta", "progressToken")
			r.Peer = l
			call(t, s, r)
			got := l.heard()
			if len(got) != 5 {
				t.Errorf("%d notifications: %v", len(got), got)
				return
			}
			for n, line := range got {
				want := fmt.Sprintf(`notifications/progress {"progressToken":%s,"progress":%d,"total":5}`, token, n+1)
				if line != want {
					t.Errorf("got %s, want %s", line, want)
				}
			}
		})
	}
	wg.Wait()
	eventually(t, "progress of nobody is counted", func() bool { return status(t, s, alice()).Stray == 40 })
	// Without a peer, or without a token, no progress is requested.
	r := toolCall(alice(), "params", "")
	r.Params = mcp.Set(r.Params, []byte(`"x"`), "_meta", "progressToken")
	if got := call(t, s, r); strings.Contains(got, "_meta") {
		t.Error(got)
	}
}

// TestSlowPeerHoldsUpItsOwnCallAlone floods a blocked caller.
func TestSlowPeerHoldsUpItsOwnCallAlone(t *testing.T) {
	s := start(t, testConfig(t), stdioSpec(t, ""))
	l := &listener{block: make(chan struct{})}
	r := toolCall(alice(), "many-progress", "")
	r.Params = mcp.Set(r.Params, []byte(`1`), "_meta", "progressToken")
	r.Peer = l
	done := make(chan string, 1)
	go func() { done <- call(t, s, r) }()
	eventually(t, "progress is dropped", func() bool { return status(t, s, alice()).Dropped >= manyProgress-maxQueued-1 })
	if got := call(t, s, toolCall(bob(), "echo", "quick")); got != "quick" {
		t.Error(got)
	}
	close(l.block)
	if got := <-done; got != "ok" {
		t.Error(got)
	}
	got := l.heard()
	if len(got) > maxQueued+1 || !strings.Contains(got[len(got)-1], fmt.Sprintf(`"progress":%d`, manyProgress)) {
		t.Errorf("%d notifications, the last is %s", len(got), got[len(got)-1])
	}
}

func TestMetaOfTheOtherEraIsTakenOut(t *testing.T) {
	s := start(t, testConfig(t), stdioSpec(t, ""))
	r := toolCall(alice(), "params", "x")
	r.Params = []byte(`{"name":"params","arguments":{"text":"x","n":9007199254740993},"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{},"io.modelcontextprotocol/clientInfo":{},"io.modelcontextprotocol/logLevel":"info","traceparent":"00-1","x/y":[1, 2]}}`)
	if got := call(t, s, r); got != `{"name":"params","arguments":{"text":"x","n":9007199254740993},"_meta":{"traceparent":"00-1","x/y":[1, 2]}}` {
		t.Error(got)
	}
	// Messages without it are forwarded byte for byte.
	r.Params = []byte(`{ "name" : "params", "arguments":{"b":1.10,"a":2} }`)
	if got := call(t, s, r); got != string(r.Params) {
		t.Error(got)
	}
}

func yes(context.Context, string, []byte) ([]byte, error) {
	return []byte(`{"action":"accept","content":{}}`), nil
}

func TestQuestionsReachWhoeverIsBound(t *testing.T) {
	spec := stdioSpec(t, "")
	spec.Capabilities = []string{CapElicitation}
	s := start(t, testConfig(t), spec)
	peers := map[string]*listener{}
	var wg sync.WaitGroup
	for _, who := range []string{"alice", "bob", "alice2"} {
		l := &listener{answer: func(_ context.Context, _ string, params []byte) ([]byte, error) {
			return []byte(`{"action":"accept","content":{"who":"` + who + `","asked":` + string(mcp.Get(params, "message")) + `}}`), nil
		}}
		peers[who] = l
		wg.Go(func() {
			for i := range 10 {
				r := toolCall(&toolkeep.Principal{Tenant: "acme", Subject: strings.TrimSuffix(who, "2")}, "elicit", fmt.Sprintf("%s-%d", who, i))
				r.Session, r.Peer = "session-"+who, l
				want := fmt.Sprintf(`{"action":"accept","content":{"who":"%s","asked":"%s-%d"}}`, who, who, i)
				if got := call(t, s, r); got != want {
					t.Errorf("got %s, want %s", got, want)
				}
			}
		})
	}
	wg.Wait()
	for who, l := range peers {
		for _, q := range l.asks {
			if !strings.Contains(q, `"`+who+"-") {
				t.Errorf("%s was asked %s", who, q)
			}
		}
		if len(l.asks) != 10 {
			t.Errorf("%s was asked %d times", who, len(l.asks))
		}
	}
	if n := status(t, s, alice()).Sessions; n != 3 {
		t.Errorf("%d sessions, want one for each downstream session", n)
	}
	// A capability that is not configured is refused even with a caller.
	r := toolCall(alice(), "roots", "")
	r.Session, r.Peer = "session-alice", peers["alice"]
	if got := call(t, s, r); !strings.Contains(got, "-32601") {
		t.Error(got)
	}
}

// TestLeasesWithoutADownstreamSession: concurrent calls never share a session in which
// a server request could reach the wrong one; consecutive calls do.
func TestLeasesWithoutADownstreamSession(t *testing.T) {
	spec := stdioSpec(t, "")
	spec.Capabilities = []string{CapElicitation}
	s := start(t, testConfig(t), spec)
	both := make(chan struct{})
	var wg sync.WaitGroup
	var n sync.WaitGroup
	n.Add(2)
	go func() { n.Wait(); close(both) }()
	for i := range 2 {
		wg.Go(func() {
			r := toolCall(alice(), "elicit", fmt.Sprint(i))
			r.Peer = &listener{answer: func(_ context.Context, _ string, params []byte) ([]byte, error) {
				n.Done()
				<-both
				return params, nil
			}}
			if got := call(t, s, r); got != fmt.Sprintf(`{"message":"%d"}`, i) {
				t.Error(got)
			}
		})
	}
	wg.Wait()
	for range 5 {
		r := toolCall(alice(), "elicit", "again")
		r.Peer = &listener{answer: yes}
		call(t, s, r)
	}
	if n := status(t, s, alice()).Sessions; n != 2 {
		t.Errorf("%d sessions", n)
	}
	r := toolCall(bob(), "remember", "b")
	r.Peer = &listener{}
	call(t, s, r)
	if n := status(t, s, alice()).Sessions; n != 3 {
		t.Errorf("another principal got a used session: %d", n)
	}
	// A caller with fewer capabilities gets a session that declares fewer.
	r = toolCall(alice(), "elicit", "no")
	r.Peer, r.PeerCapabilities = &listener{answer: yes}, []byte(`{"sampling":{}}`)
	if got := call(t, s, r); !strings.Contains(got, "-32601") {
		t.Error(got)
	}
}

func TestQuestionStopsTheClockAndEndsWithItsCall(t *testing.T) {
	spec := stdioSpec(t, "")
	spec.Capabilities, spec.CallTimeout = []string{CapElicitation}, 2*time.Second
	s := start(t, testConfig(t), spec)
	r := toolCall(alice(), "elicit", "slow")
	r.Session = "d"
	r.Peer = &listener{answer: func(ctx context.Context, _ string, _ []byte) ([]byte, error) {
		toolkeep.Sleep(ctx, 2500*time.Millisecond)
		return []byte(`{"action":"decline"}`), nil
	}}
	if got := call(t, s, r); got != `{"action":"decline"}` {
		t.Error(got)
	}
	ended := make(chan struct{})
	ctx, cancel := context.WithCancel(t.Context())
	r.Peer = &listener{answer: func(ctx context.Context, _ string, _ []byte) ([]byte, error) {
		cancel()
		<-ctx.Done()
		close(ended)
		return nil, ctx.Err()
	}}
	r.Params = toolCall(alice(), "elicit", "abandoned").Params
	failsIn(t, ctx, s, r, toolkeep.Cancelled)
	<-ended
}

func TestRoots(t *testing.T) {
	spec := stdioSpec(t, "")
	spec.Capabilities, spec.Roots = []string{CapRoots}, []Root{{URI: "file:///srv/data", Name: "data"}, {URI: "file:///tmp"}}
	s := start(t, testConfig(t), spec)
	got := call(t, s, toolCall(alice(), "roots", ""))
	if got != `{"jsonrpc":"2.0","id":"r","result":{"roots":[{"uri":"file:///srv/data","name":"data"},{"uri":"file:///tmp"}]}}` {
		t.Error(got)
	}
	spec.Roots = nil
	s.Set([]Spec{spec})
	r := toolCall(alice(), "roots", "")
	r.Session = "d"
	r.Peer = &listener{answer: func(_ context.Context, method string, _ []byte) ([]byte, error) {
		return []byte(`{"roots":[{"uri":"file:///home/alice"}]}`), nil
	}}
	if got := call(t, s, r); !strings.Contains(got, "file:///home/alice") {
		t.Error(got)
	}
}

func TestLogMessagesReachOnlyWhoTheyAreFor(t *testing.T) {
	s := start(t, testConfig(t), stdioSpec(t, ""))
	// With no other call pending, the message belongs to this call.
	l := &listener{}
	r := toolCall(alice(), "log", "mine")
	r.Peer = l
	call(t, s, r)
	if !l.has("working on mine") {
		t.Errorf("%v", l.heard())
	}
	// With another pending call the receiver is not certain, and it goes to the log.
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	other := &listener{}
	hang := toolCall(bob(), "hang", "")
	hang.Peer = other
	var wg sync.WaitGroup
	wg.Go(func() { _, _ = s.Do(ctx, hang) })
	eventually(t, "bob's call is in the air", func() bool { return pending(s) == 1 })
	r.Params = toolCall(alice(), "log", "private").Params
	call(t, s, r)
	cancel()
	wg.Wait()
	if l.has("private") || other.has("private") {
		t.Error("a message was given to somebody by guess")
	}
	if !strings.Contains(logs(t, s, alice()), "working on private") {
		t.Error("it is not in the log either")
	}
}

func TestBinding(t *testing.T) {
	s := start(t, testConfig(t), stdioSpec(t, ""))
	la, lb := &listener{}, &listener{}
	bind := func(p *toolkeep.Principal, id string, l *listener) *Binding {
		b, err := s.Bind(t.Context(), &Request{Principal: p, Server: "s", Session: id, Peer: l})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(b.Close)
		return b
	}
	a, b := bind(alice(), "da", la), bind(bob(), "db", lb)
	info, err := a.Info(t.Context())
	if err != nil || info.Version != mcp.V20251125 || info.Instructions != "hello" || mcp.Text(info.Server, "name") != "bad" || string(mcp.Get(info.Capabilities, "logging")) != "{}" {
		t.Errorf("%+v, %v", info, err)
	}
	ans, err := a.Do(t.Context(), mcp.MethodCallTool, toolCall(alice(), "echo", "bound").Params)
	if err != nil || textOf(ans) != "bound" {
		t.Errorf("%v, %v", ans, err)
	}
	do := func(b *Binding, method, params string) error {
		_, err := b.Do(t.Context(), method, []byte(params))
		return err
	}
	if err := do(a, mcp.MethodSubscribe, `{"uri":"test://a"}`); err != nil {
		t.Fatal(err)
	}
	eventually(t, "alice hears of her resource", func() bool { return la.has(`resources/updated {"uri":"test://a"}`) })
	if lb.has("updated") {
		t.Error("bob hears of it too")
	}
	for params, code := range map[string]int64{`{}`: mcp.CodeInvalidParams, `{"uri":7}`: mcp.CodeInvalidParams} {
		var rpc *mcp.Error
		if err := do(a, mcp.MethodSubscribe, params); !errors.As(err, &rpc) || rpc.Code != code {
			t.Errorf("%s: %v", params, err)
		}
	}
	if err := do(b, mcp.MethodSetLevel, `{"level":"loud"}`); err == nil {
		t.Error("a level that there is not")
	}
	if err := do(a, mcp.MethodSetLevel, `{"level":"error"}`); err != nil {
		t.Error(err)
	}
	if err := do(b, mcp.MethodSetLevel, `{"level":"debug"}`); err != nil {
		t.Error(err)
	}
	if err := a.Notify(t.Context(), mcp.NotificationRootsChanged, nil); err != nil {
		t.Error(err)
	}
	if err := do(a, mcp.MethodInitialize, `{}`); err == nil {
		t.Error("initialize is passed on")
	}
	// The process dies; the settings are restored in the next one.
	before := len(la.heard())
	fails(t, s, toolCall(alice(), "die", ""), toolkeep.MCPUnavailable)
	eventually(t, "the subscription is renewed", func() bool { return len(la.heard()) > before && la.has("test://a") })
	a.Close()
	a.Close()
	if err := do(a, mcp.MethodPing, ``); err == nil {
		t.Error("it works after Close")
	}
	b.Close()
	eventually(t, "the session is free", func() bool { return status(t, s, alice()).InUse == 0 })
}

func TestStopRefusesAndDrains(t *testing.T) {
	s := start(t, testConfig(t), stdioSpec(t, ""))
	r := toolCall(alice(), "slow-progress", "")
	r.Params = mcp.Set(r.Params, []byte(`1`), "_meta", "progressToken")
	r.Peer = &listener{}
	done := make(chan string, 1)
	go func() { done <- call(t, s, r) }()
	eventually(t, "it is in the air", func() bool { return pending(s) == 1 })
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	stopped := make(chan struct{})
	go func() { _ = s.Stop(ctx); close(stopped) }()
	eventually(t, "new calls are refused", func() bool {
		_, err := s.Do(t.Context(), toolCall(alice(), "echo", ""))
		return err != nil && toolkeep.IsCode(err, toolkeep.Draining)
	})
	if got := <-done; got != "ok" {
		t.Error(got)
	}
	<-stopped
	if err := s.Stop(t.Context()); err != nil {
		t.Error(err)
	}
	if _, err := s.Bind(t.Context(), r); !toolkeep.IsCode(err, toolkeep.Draining) {
		t.Error(err)
	}
	s.Set([]Spec{stdioSpec(t, "")}) // no effect
}

func TestStopCutsOffWhatDoesNotEnd(t *testing.T) {
	s := start(t, testConfig(t), stdioSpec(t, "stubborn"))
	done := make(chan error, 1)
	go func() {
		_, err := s.Do(context.Background(), toolCall(alice(), "hang", ""))
		done <- err
	}()
	eventually(t, "it is in the air", func() bool { return pending(s) == 1 })
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_ = s.Stop(ctx)
	if e := toolkeep.AsError(<-done); e.Code != toolkeep.MCPUnavailable || e.NothingSent {
		t.Errorf("%v", e)
	}
}

func TestSetKeepsWhatDidNotChange(t *testing.T) {
	spec := stdioSpec(t, "")
	s := start(t, testConfig(t), spec)
	pid := call(t, s, toolCall(alice(), "pid", ""))
	if _, err := s.Definitions(t.Context(), alice(), "s"); err != nil {
		t.Fatal(err)
	}
	other := stdioSpec(t, "")
	other.Name = "other"
	s.Set([]Spec{spec, other})
	if got := call(t, s, toolCall(alice(), "pid", "")); got != pid {
		t.Error("it was restarted")
	}
	spec.MaxTools = 7
	s.Set([]Spec{spec, other})
	if st := status(t, s, alice()); st.Tools != 2 {
		t.Errorf("the definitions are gone: %+v", st)
	}
	if got := call(t, s, toolCall(alice(), "pid", "")); got == pid {
		t.Error("the changed one was not restarted")
	}
	old := pids(t, pid)[0]
	eventually(t, "the old process ends", func() bool { return !alive(old) })
}

// TestHammer runs everything concurrently under the race detector.
func TestHammer(t *testing.T) {
	spec := stdioSpec(t, "")
	spec.Capabilities, spec.MaxSessions, spec.IdleStop, spec.PingEvery = []string{CapElicitation}, 6, 50*time.Millisecond, 20*time.Millisecond
	c := testConfig(t)
	c.restartLimit = 1 << 30
	c.backoffMax = time.Millisecond
	s := start(t, c, spec)
	var wg sync.WaitGroup
	until := time.Now().Add(2 * time.Second)
	for i := range 8 {
		wg.Go(func() {
			p := &toolkeep.Principal{Tenant: "acme", Subject: fmt.Sprint("p", i%3)}
			for n := 0; time.Now().Before(until); n++ {
				tool := []string{"echo", "elicit", "die", "twice", "exit-later", "log", "progress"}[(i+n)%7]
				r := toolCall(p, tool, fmt.Sprint(i, "-", n))
				if n%2 == 0 {
					r.Peer = &listener{answer: yes}
				}
				if n%4 == 0 {
					r.Session = fmt.Sprint("d", i%2)
				}
				ctx, cancel := context.WithTimeout(t.Context(), limit)
				a, err := s.Do(ctx, r)
				cancel()
				switch {
				case err == nil && tool == "echo" && textOf(a) != fmt.Sprint(i, "-", n):
					t.Errorf("an answer for somebody else: %s", textOf(a))
				case err != nil && !slices.Contains([]toolkeep.Code{toolkeep.MCPUnavailable, toolkeep.ConcurrencyLimitExceeded}, toolkeep.AsError(err).Code):
					t.Errorf("%s: %v (%v)", tool, err, errors.Unwrap(err))
				}
			}
		})
	}
	wg.Go(func() {
		for time.Now().Before(until) {
			b, err := s.Bind(t.Context(), &Request{Principal: alice(), Server: "s", Session: "d0", Peer: &listener{answer: yes}})
			if err != nil {
				continue
			}
			_, _ = b.Do(t.Context(), mcp.MethodSubscribe, []byte(`{"uri":"test://a"}`))
			_, _ = s.Definitions(t.Context(), alice(), "s")
			s.Status(alice())
			b.Close()
		}
	})
	wg.Go(func() {
		for i := 0; time.Now().Before(until); i++ {
			switch i % 3 {
			case 0:
				_ = s.Restart(alice(), "s")
			case 1:
				_ = s.Renew("acme", "s")
			default:
				changed := spec
				changed.MaxTools = 1000 + i
				s.Set([]Spec{changed})
			}
			toolkeep.Sleep(t.Context(), 200*time.Millisecond)
		}
	})
	wg.Wait()
}

// TestEndSession: what was started for a downstream session ends with it, that of others stays, and a
// call that is under way ends first.
func TestEndSession(t *testing.T) {
	spec := stdioSpec(t, "")
	spec.Capabilities = []string{CapElicitation}
	s := start(t, testConfig(t), spec)
	in := func(session, text string) *Request {
		r := toolCall(alice(), "elicit", text)
		r.Session = session
		r.Peer = &listener{answer: func(context.Context, string, []byte) ([]byte, error) { return []byte(`{"action":"accept"}`), nil }}
		return r
	}
	call(t, s, in("one", "x"))
	call(t, s, in("two", "x"))
	asked, goOn := make(chan struct{}), make(chan struct{})
	r := in("three", "x")
	r.Peer = &listener{answer: func(context.Context, string, []byte) ([]byte, error) {
		close(asked)
		<-goOn
		return []byte(`{"action":"accept"}`), nil
	}}
	done := make(chan string, 1)
	go func() {
		a, err := s.Do(t.Context(), r)
		if err != nil {
			done <- err.Error()
			return
		}
		done <- textOf(a)
	}()
	<-asked
	if n := status(t, s, alice()).Sessions; n != 3 {
		t.Fatalf("%d sessions", n)
	}
	s.EndSession("globex", "one") // another tenant's
	s.EndSession("acme", "")
	s.EndSession("acme", "one")
	s.EndSession("acme", "three")
	eventually(t, "one session has ended", func() bool { return status(t, s, alice()).Sessions == 2 })
	close(goOn)
	if got := <-done; got != `{"action":"accept"}` {
		t.Errorf("the call under way: %s", got)
	}
	eventually(t, "the session of the call has ended", func() bool { return status(t, s, alice()).Sessions == 1 })
}

// endsSoon is a lack of descriptors that has ended when it is looked at again, as that of a resolver does.
type endsSoon struct{ asked int }

func (*endsSoon) Error() string { return "no descriptors" }

func (e *endsSoon) Is(target error) bool {
	if target == syscall.EMFILE {
		e.asked++
	}
	return target == syscall.EMFILE && e.asked == 1
}

func TestStartErrorOfALackThatEnds(t *testing.T) {
	servers := start(t, testConfig(t), stdioSpec(t, ""))
	for _, s := range servers.servers {
		if e := s.startError(t.Context(), &endsSoon{}, s.state("acme"), &slot{}); e == nil || e.Code != toolkeep.Backpressure {
			t.Errorf("%v", e)
		}
	}
}

// TestLocal: a server by stdio is a program of this node, one by HTTP is not.
func TestLocal(t *testing.T) {
	s := start(t, testConfig(t), stdioSpec(t, "ok"), Spec{Name: "h", Transport: "http", URL: "https://mcp.example/"})
	if !s.Local(alice(), "s") || s.Local(alice(), "h") || s.Local(alice(), "none") {
		t.Errorf("stdio %t, HTTP %t, none %t; want true, false, false", s.Local(alice(), "s"), s.Local(alice(), "h"), s.Local(alice(), "none"))
	}
}
