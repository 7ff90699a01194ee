package breaker

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/store/sqlite"
	"github.com/toolkeep/toolkeep/store/storetest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// unsure is a store that can be away.
type unsure struct {
	*sqlite.Store
	away atomic.Bool
	read atomic.Pointer[func()] // called before a document is read
}

var errAway = errors.New("the store is away")

func (u *unsure) Apply(ctx context.Context, changes ...toolkeep.Change) error {
	if u.away.Load() {
		return errAway
	}
	return u.Store.Apply(ctx, changes...)
}

func (u *unsure) Document(ctx context.Context, kind, tenant, id string) (toolkeep.Document, error) {
	if read := u.read.Load(); read != nil {
		(*read)()
	}
	if u.away.Load() {
		return toolkeep.Document{}, errAway
	}
	return u.Store.Document(ctx, kind, tenant, id)
}

// nodes are breakers of several nodes on one store, with one clock.
type nodes struct {
	*unsure
	now atomic.Int64
	all []*Breakers
}

var tool = &toolkeep.Tool{ID: "shop.find", Tenant: "acme", Manifest: &toolkeep.Manifest{}}

func start(t *testing.T, n int, r Rule) *nodes {
	t.Helper()
	store, err := sqlite.Open(t.Context(), sqlite.Config{Path: filepath.Join(t.TempDir(), "db")})
	if err != nil {
		t.Fatal(err)
	}
	o := &nodes{unsure: &unsure{Store: store}}
	following := toolkeep.NewFollowing(store, nil)
	base := time.Now()
	for i := range n {
		s := New(Config{Rule: &r, Store: o.unsure, Node: fmt.Sprint("node", i), Clock: func() time.Time { return base.Add(time.Duration(o.now.Load())) }})
		s.renewal = 5 * time.Millisecond
		if err := following.Start(t.Context(), "", "", s); err != nil {
			t.Fatal(err)
		}
		o.all = append(o.all, s)
	}
	t.Cleanup(func() {
		following.Stop()
		for _, s := range o.all {
			s.Stop()
			s.Stop()
		}
		if err := store.Close(); err != nil {
			t.Error(err)
		}
	})
	return o
}

func (o *nodes) later(d time.Duration) { o.now.Add(int64(d)) }

// try makes a call on a node, and returns what refuses it.
func (o *nodes) try(node int, outcome Outcome) *toolkeep.Error {
	a, err := o.all[node].Of(tool, "host:shop.example").Take(context.Background())
	if err == nil {
		a.Done(outcome, Succeeded)
	}
	return toolkeep.AsError(err)
}

// await waits until a node has the breaker in a state.
func (o *nodes) await(t *testing.T, node int, what string, is func(Info) bool) Info {
	t.Helper()
	var info Info
	for end := time.Now().Add(30 * time.Second); time.Now().Before(end); time.Sleep(time.Millisecond) {
		if info, _ = o.all[node].Get("acme", "tool:shop.find"); is(info) {
			return info
		}
	}
	t.Fatalf("node %d never was %s: %+v", node, what, info)
	return info
}

func in(s State) func(Info) bool { return func(i Info) bool { return i.State == s } }

func refusedFor(t *testing.T, e *toolkeep.Error, reason string) {
	t.Helper()
	if e == nil || e.Code != toolkeep.CircuitBreakerOpen || e.Details["reason"] != reason || e.Details["breaker"] != "tool:shop.find" || e.RetryAfter <= 0 {
		t.Errorf("refused with %v, want E3903 for %s", e, reason)
	}
}

func quick() Rule {
	r := Defaults()
	r.Consecutive, r.HalfOpenCalls = 2, 2
	return r
}

func TestNodesShareTheState(t *testing.T) {
	t.Parallel()
	o := start(t, 3, quick())
	for range 2 {
		if e := o.try(0, Failed); e != nil {
			t.Fatal(e)
		}
	}
	refusedFor(t, o.try(0, Failed), "open") // at once
	for i := range o.all {
		info := o.await(t, i, "open", in(Open))
		if info.Record.Reason != ReasonConsecutive || info.Record.Failures != 2 {
			t.Errorf("node %d knows %+v", i, info.Record)
		}
		refusedFor(t, o.try(i, Failed), "open")
	}
	o.await(t, 1, "told who opened it", func(i Info) bool { return i.Record.Node == "node0" })
	o.later(31 * time.Second)
	if e := o.try(1, Succeeded); e != nil { // the first test call, by another node
		t.Fatal(e)
	}
	o.await(t, 0, "half open", in(HalfOpen))
	o.await(t, 2, "half open", in(HalfOpen))
	refusedFor(t, o.try(0, Succeeded), "testing")
	// The node that tests is not heard of for a minute: another one goes on where it was.
	o.await(t, 2, "told of a test that passed", func(i Info) bool { return i.Record.Passed == 1 })
	o.later(61 * time.Second)
	if e := o.try(2, Succeeded); e != nil {
		t.Fatal(e)
	}
	for i := range o.all {
		o.await(t, i, "closed", in(Closed))
		if e := o.try(i, Succeeded); e != nil {
			t.Error(e)
		}
	}
	// A test call that fails opens it again.
	for range 2 {
		o.try(2, Failed)
	}
	o.await(t, 0, "open", in(Open))
	o.later(31 * time.Second)
	if e := o.try(0, Failed); e != nil {
		t.Fatal(e)
	}
	refusedFor(t, o.try(0, Failed), "open")
	o.await(t, 1, "open again", func(i Info) bool { return i.State == Open && i.Record.Reason == ReasonTestFailed })
	var kinds []string
	for _, e := range storetest.Entries(t.Context(), t, o.Store) {
		if e.Event != nil {
			kinds = append(kinds, strings.TrimPrefix(e.Event.Type, "ai.agent.circuit."))
			if e.Event.Tenant != "acme" || !strings.Contains(string(e.Event.Data), `"tool_id":"shop.find"`) {
				t.Errorf("an event of %s: %s", e.Event.Tenant, e.Event.Data)
			}
		}
	}
	if fmt.Sprint(kinds) != "[opened half_opened closed opened half_opened opened]" {
		t.Errorf("the events are %v", kinds)
	}
}

func TestStoreIsAway(t *testing.T) {
	t.Parallel()
	o := start(t, 2, quick())
	o.try(1, Succeeded)
	o.away.Store(true)
	for range 2 {
		if e := o.try(0, Failed); e != nil {
			t.Fatal(e) // what is closed goes on
		}
	}
	refusedFor(t, o.try(0, Failed), "open")
	o.later(31 * time.Second)
	refusedFor(t, o.try(0, Succeeded), "state_unavailable")
	if e := o.try(1, Succeeded); e != nil {
		t.Error(e)
	}
	o.away.Store(false)
	o.await(t, 1, "told that it opened", in(Open))
	for o.try(0, Succeeded) != nil { // keep may be reading
		time.Sleep(time.Millisecond)
	}
	o.away.Store(true)
	for { // the second test call, unless the first one's progress was written only now
		if e := o.try(0, Succeeded); e == nil {
			break
		}
		time.Sleep(time.Millisecond)
	}
	refusedFor(t, o.try(0, Succeeded), "state_unwritten")
	o.away.Store(false)
	o.await(t, 0, "closed", in(Closed))
	o.await(t, 1, "closed", in(Closed))
}

func TestOperators(t *testing.T) {
	t.Parallel()
	o := start(t, 2, quick())
	ctx := t.Context()
	force := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	force(o.all[0].Force(ctx, "acme", "tool:shop.find", ForcedOpen, "eve", "a migration"))
	refusedFor(t, o.try(0, Succeeded), "forced_open")
	info := o.await(t, 1, "forced open", in(ForcedOpen))
	if info.Record.By != "eve" || info.Record.Reason != "a migration" {
		t.Errorf("it has %+v", info.Record)
	}
	off := false
	spec := *tool
	spec.Manifest = &toolkeep.Manifest{Breaker: &toolkeep.BreakerSpec{Enabled: &off}}
	if o.all[1].Of(&spec, "").Look() == nil {
		t.Error("a tool without a breaker is not stopped by an operator")
	}
	o.later(time.Hour)
	refusedFor(t, o.try(1, Succeeded), "forced_open")
	force(o.all[1].Force(ctx, "acme", "tool:shop.find", ForcedClosed, "eve", ""))
	o.await(t, 0, "forced closed", in(ForcedClosed))
	for range 30 {
		if e := o.try(0, Failed); e != nil {
			t.Fatal(e)
		}
	}
	force(o.all[0].Reset(ctx, "acme", "tool:shop.find", "eve", "done"))
	o.await(t, 1, "closed", in(Closed))
	if e := o.try(0, Failed); e != nil {
		t.Error(e)
	}
	force(o.all[0].Reset(ctx, "acme", "tool:shop.find", "eve", "again"))
	if e := o.try(0, Failed); e != nil { // the first failure since
		t.Error(e)
	}
	if e := o.try(0, Succeeded); e != nil {
		t.Error(e)
	}
	// Another tenant's tool of that name has its own.
	force(o.all[0].Force(ctx, "other", "tool:shop.find", ForcedOpen, "eve", ""))
	if e := o.try(0, Succeeded); e != nil {
		t.Error(e)
	}
	// A document that cannot be read blocks.
	if err := o.Store.Apply(ctx, toolkeep.PutDocument{Document: toolkeep.Document{Kind: Kind, Tenant: "acme", ID: "tool:shop.find", Body: []byte(`{"state":"?"}`)}, Expect: toolkeep.AnyRevision}); err != nil {
		t.Fatal(err)
	}
	o.await(t, 1, "blocked", in(ForcedOpen))
	// A node that starts reads what is stored.
	late := New(Config{Store: o.Store})
	if _, err := late.Start(ctx); err != nil {
		t.Fatal(err)
	}
	defer late.Stop()
	if list := late.Changed(); len(list) != 2 || list[0].State != ForcedOpen || list[1].Tenant != "other" || len(late.List("acme")) != 1 {
		t.Errorf("it knows %+v", list)
	}
}

func TestHammer(t *testing.T) {
	t.Parallel()
	r := quick()
	r.Open = time.Millisecond
	o := start(t, 2, r)
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			for n := range 100 {
				outcome := Succeeded
				if n%10 < 3 {
					outcome = Failed
				}
				_ = o.try(i%2, outcome)
				o.later(100 * time.Microsecond)
				o.all[i%2].List("acme")
			}
		})
	}
	wg.Wait()
	o.later(time.Hour)
	for i := range o.all { // whatever happened, it can be used again
		for range 1000 {
			if first := o.try(i, Succeeded); first == nil && o.try(i, Succeeded) == nil {
				break
			}
			o.later(time.Second)
			time.Sleep(time.Millisecond)
		}
		o.await(t, i, "closed", in(Closed))
	}
	raw, err := json.Marshal(o.all[0].List("acme"))
	if err != nil || !strings.Contains(string(raw), "host:shop.example") {
		t.Errorf("the list is %s, %v", raw, err)
	}
}

// TestFewerTestsAreEnough lets a version of the tool that asks for fewer test calls than have passed be called: one more closes
// the breaker, on the node that tests and on one that goes on after it.
func TestFewerTestsAreEnough(t *testing.T) {
	t.Parallel()
	for node := range 2 {
		o := start(t, 2, quick())
		for range 2 {
			o.try(0, Failed)
		}
		o.await(t, 1, "open", in(Open))
		o.later(31 * time.Second)
		if e := o.try(0, Succeeded); e != nil {
			t.Fatal(e)
		}
		o.await(t, 1, "told of a test that passed", func(i Info) bool { return i.Record.Passed == 1 })
		o.later(time.Duration(node) * 61 * time.Second)
		one := 1
		newer := *tool
		newer.Manifest = &toolkeep.Manifest{Breaker: &toolkeep.BreakerSpec{HalfOpenCalls: &one}}
		guard := o.all[node].Of(&newer, "")
		a, err := guard.Take(t.Context())
		if err != nil {
			t.Fatalf("node %d: %v", node, err)
		}
		if guard.Look() == nil {
			t.Errorf("node %d makes two test calls at once, and one is enough", node)
		}
		a.Done(Succeeded, Ignored)
		o.await(t, 0, "closed", in(Closed))
		o.await(t, 1, "closed", in(Closed))
	}
}

// TestSlowTests has a test call take longer than a minute: the other node does not take over, and the test closes the breaker.
func TestSlowTests(t *testing.T) {
	t.Parallel()
	r := quick()
	r.HalfOpenCalls = 1
	o := start(t, 2, r)
	for range 2 {
		o.try(0, Failed)
	}
	o.await(t, 1, "open", in(Open))
	o.later(31 * time.Second)
	a, err := o.all[0].Of(tool, "").Take(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	was := o.await(t, 1, "half open", in(HalfOpen))
	for range 2 {
		o.later(45 * time.Second)
		was = o.await(t, 1, "told that it is still tested", func(i Info) bool { return i.Record.Until.After(was.Record.Until) })
	}
	refusedFor(t, o.try(1, Succeeded), "testing")
	a.Done(Succeeded, Ignored)
	o.await(t, 0, "closed", in(Closed))
	o.await(t, 1, "closed", in(Closed))
}

// TestSlowStoreIsNoSlowTool has the store take longer than a slow call does when a test call asks it.
func TestSlowStoreIsNoSlowTool(t *testing.T) {
	t.Parallel()
	r := quick()
	r.HalfOpenCalls, r.SlowRate = 1, 100
	o := start(t, 1, r)
	for range 2 {
		o.try(0, Failed)
	}
	o.await(t, 0, "written as open", func(i Info) bool { return i.Record.Node != "" })
	o.later(31 * time.Second)
	slow := func() { o.later(6 * time.Second) }
	o.read.Store(&slow)
	a, err := o.all[0].Of(tool, "").Take(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	o.read.Store(nil)
	a.Done(Succeeded, Ignored)
	o.await(t, 0, "closed", in(Closed))
}

// TestClaimWaitsNoLongerThanItsCall: a call that is to be a test call, while the store hangs for another reader of the document, ends
// with its context; an operator's decision too.
func TestClaimWaitsNoLongerThanItsCall(t *testing.T) {
	t.Parallel()
	o := start(t, 1, quick())
	for range 2 {
		o.try(0, Failed)
	}
	o.await(t, 0, "written as open", func(i Info) bool { return i.Record.Node != "" })
	o.later(31 * time.Second)
	reads, goOn := make(chan struct{}, 100), make(chan struct{})
	hangs := func() {
		reads <- struct{}{}
		<-goOn
	}
	o.read.Store(&hangs)
	defer close(goOn)
	s := o.all[0]
	s.mark(s.known(key{"acme", "shop.find", true}))
	<-reads
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	ended := make(chan error, 2)
	go func() {
		_, err := s.Of(tool, "").Take(ctx)
		ended <- err
		ended <- s.Reset(ctx, "acme", "tool:shop.find", "eve", "done")
	}()
	for range 2 {
		select {
		case err := <-ended:
			if err == nil {
				t.Error("it succeeded")
			}
		case <-time.After(30 * time.Second):
			t.Fatal("it waits for the store")
		}
	}
}

// TestResetBeforeItIsWritten resets a breaker that is open here and not in the store yet, and one that is closed: both are closed
// then, and an event says who did it.
func TestResetBeforeItIsWritten(t *testing.T) {
	t.Parallel()
	store, err := sqlite.Open(t.Context(), sqlite.Config{Path: filepath.Join(t.TempDir(), "db")})
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	r := quick()
	s := New(Config{Rule: &r, Store: store}) // it is not started, and writes nothing by itself
	for range 2 {
		a, err := s.Of(tool, "").Take(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		a.Done(Failed, Ignored)
	}
	if info, _ := s.Get("acme", "tool:shop.find"); info.State != Open {
		t.Fatalf("it is %s", info.State)
	}
	for range 2 {
		if err := s.Reset(t.Context(), "acme", "tool:shop.find", "eve", "done"); err != nil {
			t.Fatal(err)
		}
		if info, _ := s.Get("acme", "tool:shop.find"); info.State != Closed || info.InARow != 0 {
			t.Errorf("after the reset it is %+v", info)
		}
	}
	events := 0
	for _, e := range storetest.Entries(t.Context(), t, store) {
		if e.Event != nil && e.Event.Type == eventClosed && strings.Contains(string(e.Event.Data), `"agent_did":"eve"`) {
			events++
		}
	}
	if events != 2 {
		t.Errorf("%d events tell of two resets", events)
	}
}

// What is forced holds also where the node takes no more breakers: one that it reads, one that another node forces and one
// that it forces itself.
func TestForcedBeyondTheBound(t *testing.T) {
	t.Parallel()
	store, err := sqlite.Open(t.Context(), sqlite.Config{Path: filepath.Join(t.TempDir(), "db")})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = store.Close() })
	full := func() *Breakers {
		s := New(Config{Most: shardCount, Store: store, Node: "n"})
		for i := range 40 * shardCount {
			s.Of(&toolkeep.Tool{ID: fmt.Sprint("a.", i), Manifest: &toolkeep.Manifest{}}, "")
		}
		return s
	}
	refused := func(s *Breakers, id string) bool {
		return s.Of(&toolkeep.Tool{ID: id, Manifest: &toolkeep.Manifest{}}, "").Look() != nil
	}
	s, late := full(), full()
	if err := s.Force(t.Context(), "", "tool:b.own", ForcedOpen, "eve", ""); err != nil || !refused(s, "b.own") {
		t.Errorf("forced here: %v", err)
	}
	if _, err := late.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	defer late.Stop()
	if !refused(late, "b.own") {
		t.Error("what was read at the start is called")
	}
	late.Follow(toolkeep.Committed{Change: toolkeep.PutDocument{Document: toolkeep.Document{Kind: Kind, ID: "tool:b.followed"}}})
	if _, ok := late.Get("", "tool:b.followed"); !ok {
		t.Error("what another node forces is not taken")
	}
	if n := len(late.List("")); n > shardCount+2 {
		t.Errorf("%d breakers are kept", n)
	}
}
