package resultcache

import (
	"context"
	"errors"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/sharedcache"
)

// feed is a store's feed, which nodes follow when a test says so, or at once.
type feed struct {
	mu    sync.Mutex
	all   []toolkeep.Committed
	nodes []*Cache // that follow at once
	fails atomic.Bool
}

func (f *feed) Apply(_ context.Context, changes ...toolkeep.Change) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, ch := range changes {
		c := toolkeep.Committed{Seq: int64(len(f.all) + 1), Change: ch}
		f.all = append(f.all, c)
		for _, n := range f.nodes {
			n.Follow(c)
		}
	}
	return nil
}

func (f *feed) Head(context.Context) (int64, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.fails.Load() {
		return 0, errors.New("away")
	}
	return int64(len(f.all)), nil
}

// catchUp has a node follow the feed to its head.
func (f *feed) catchUp(c *Cache) {
	f.mu.Lock()
	all := f.all
	f.mu.Unlock()
	for _, ch := range all[c.sharing.position.Applied():] {
		c.Follow(ch)
	}
}

// remote is a Redis in memory.
type remote struct {
	mu     sync.Mutex
	values map[string][]byte
	gets   int
	err    error
	slow   time.Duration // of each answer
}

func (r *remote) Get(ctx context.Context, name string) ([]byte, error) {
	r.mu.Lock()
	slow := r.slow
	r.mu.Unlock()
	if slow > 0 {
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(slow):
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.gets++
	return r.values[name], r.err
}

func (r *remote) Put(_ context.Context, name string, value []byte, _ time.Duration) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.values == nil {
		r.values = map[string][]byte{}
	}
	if r.err == nil {
		r.values[name] = value
	}
	return r.err
}

func (r *remote) answers(slow time.Duration, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.slow, r.err = slow, err
}

func (r *remote) asked() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.gets
}

// cluster is what nodes of a test share.
type cluster struct {
	feed   feed
	remote remote
	nodes  int
}

// node starts a cache; until it stops with the test it follows the feed only in catchUp.
func (s *cluster) node(t *testing.T, change ...func(*Config)) *Cache {
	t.Helper()
	shared, err := sharedcache.New(sharedcache.Config{Remote: &s.remote, Secret: make([]byte, 32), Use: "results"})
	if err != nil {
		t.Fatal(err)
	}
	s.nodes++
	config := Config{Store: &s.feed, Shared: shared, Warm: 10, Node: strconv.Itoa(s.nodes)}
	for _, f := range change {
		f(&config)
	}
	c := New(config)
	if _, err := c.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Stop)
	s.feed.catchUp(c)
	return c
}

// call is what a call does: it asks memory, then in a shared run what nodes share, then the tool.
func call(c *Cache, n int, tool string, spec *toolkeep.CacheSpec, run func() string) (text, from string) {
	k := keyOf(n)
	if r, ok := c.Get(k); ok {
		return string(r.Output), "memory"
	}
	from = "tool"
	r, _, _ := c.Do(context.Background(), k, func(ctx context.Context) (*toolkeep.Result, error) {
		if r, ok := c.Fetch(ctx, k, "t", tool); ok {
			from = "shared"
			return r, nil
		}
		r := output(run())
		if c.Put(k, "t", tool, r, spec) {
			c.Share(k)
		}
		return r, nil
	})
	return string(r.Output), from
}

func want(t *testing.T, c *Cache, n int, text, from string) {
	t.Helper()
	synctest.Wait() // results are sent, and the feed was followed
	got, whence := call(c, n, "x.y", ttl, func() string { return "run" })
	if got != text || whence != from {
		t.Errorf("key %d gives %q from %s, want %q from %s", n, got, whence, text, from)
	}
}

func always(text string) func() string { return func() string { return text } }

func TestNodesShareResults(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &cluster{}
		a, b := s.node(t), s.node(t)
		synctest.Wait()
		r := output(`{"n":1}`)
		r.Warnings = []toolkeep.Warning{{Code: toolkeep.FieldIgnored, Message: "w"}}
		r.Attachments = []toolkeep.Attachment{{Kind: "blob", URL: "/api/v1/blobs/1"}}
		_, _, _ = a.Do(t.Context(), keyOf(1), func(context.Context) (*toolkeep.Result, error) {
			if a.Put(keyOf(1), "t", "x.y", r, &toolkeep.CacheSpec{Policy: "ttl", TTLSeconds: 10, StaleIfErrorS: 20}) {
				a.Share(keyOf(1))
			}
			return r, nil
		})
		synctest.Wait()
		<-time.After(4 * time.Second)
		asked := s.remote.asked()
		got, ok := b.Fetch(t.Context(), keyOf(1), "t", "x.y")
		if !ok || string(got.Output) != `{"n":1}` || !got.Cached || got.Age != 4*time.Second || got.Warnings[0].Message != "w" || got.Attachments[0] != r.Attachments[0] {
			t.Fatalf("%+v, %t", got, ok)
		}
		if _, ok := b.Get(keyOf(1)); !ok || s.remote.asked() != asked+1 {
			t.Errorf("the second hit: %t, and %d requests", ok, s.remote.asked()-asked)
		}
		if _, ok := s.node(t).Fetch(t.Context(), keyOf(1), "other", "x.y"); ok {
			t.Error("another tenant got the result")
		}
		<-time.After(7 * time.Second) // past the TTL
		late := s.node(t)
		synctest.Wait()
		if _, ok := late.Fetch(t.Context(), keyOf(1), "t", "x.y"); ok {
			t.Error("a result past its TTL was given")
		}
		if r, ok := late.Stale(keyOf(1)); !ok || r.Age != 11*time.Second {
			t.Errorf("stale: %+v, %t", r, ok)
		}
		<-time.After(19 * time.Second)
		if _, ok := late.Stale(keyOf(1)); ok {
			t.Error("a shared result stands in for longer than its rule says")
		}
		if st := b.Stats(); st.SharedHits != 1 || st.Corruptions != 0 {
			t.Errorf("%+v", st)
		}
	})
}

// TestAppendingToSharedResults: what a call appends to a result that came from another node is its own, as for one of memory.
func TestAppendingToSharedResults(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &cluster{}
		a, b := s.node(t), s.node(t)
		synctest.Wait()
		for n := range 6 {
			r := output("[1]")
			for range n {
				r.Warnings = append(r.Warnings, toolkeep.Warning{Message: "w"})
				r.Attachments = append(r.Attachments, toolkeep.Attachment{URL: "w"})
			}
			_, _, _ = a.Do(t.Context(), keyOf(n), func(context.Context) (*toolkeep.Result, error) {
				if a.Put(keyOf(n), "t", "x.y", r, ttl) {
					a.Share(keyOf(n))
				}
				return r, nil
			})
			synctest.Wait()
			one, ok := b.Fetch(t.Context(), keyOf(n), "t", "x.y")
			two, _ := b.Get(keyOf(n))
			if !ok {
				t.Fatal("it was not shared")
			}
			one.Warnings, one.Attachments, one.Output = append(one.Warnings, toolkeep.Warning{Message: "one"}), append(one.Attachments, toolkeep.Attachment{URL: "one"}), append(one.Output, '1')
			_, _, _ = append(two.Warnings, toolkeep.Warning{Message: "two"}), append(two.Attachments, toolkeep.Attachment{URL: "two"}), append(two.Output, '2')
			if one.Warnings[n].Message != "one" || one.Attachments[n].URL != "one" || string(one.Output) != "[1]1" {
				t.Errorf("of %d warnings: another call changed %+v, %s", n, one, one.Output)
			}
		}
	})
}

// TestSizeOfSharedResults: an output of nearly 100 KiB is shared as it is, and a larger one is counted, not queued.
func TestSizeOfSharedResults(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &cluster{}
		a, b := s.node(t), s.node(t)
		synctest.Wait()
		large := strings.Repeat("x", 99<<10)
		for n, text := range []string{large, large + large, large[:len(large)-1] + strings.Repeat("y", 900)} {
			call(a, n, "x.y", ttl, always(text))
			synctest.Wait()
		}
		want(t, b, 0, large, "shared")
		want(t, b, 1, "run", "tool")
		if st := a.Stats(); st.Oversize != 2 || st.Unsent != 0 {
			t.Errorf("%d results were too large, %d not sent; want 2 and 0", st.Oversize, st.Unsent)
		}
		idle := New(a.config) // sends nothing
		defer idle.Stop()
		if call(idle, 1, "x.y", ttl, always(large+large)); len(idle.sharing.queue) != 0 {
			t.Error("a result that is too large waits to be sent")
		}
	})
}

// TestRefusedCallsAskOnce: calls that are refused ask for a key once a second, and are no misses.
func TestRefusedCallsAskOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &cluster{}
		a, b := s.node(t), s.node(t)
		synctest.Wait()
		call(a, 1, "x.y", ttl, always("one"))
		synctest.Wait()
		asked := s.remote.asked()
		for range 100 {
			if r, ok := b.FetchOnce(t.Context(), keyOf(2), "t", "x.y"); ok {
				t.Fatalf("%+v", r)
			}
		}
		if n := s.remote.asked() - asked; n != 1 {
			t.Errorf("100 refused calls made %d requests", n)
		}
		if st := b.Stats(); st.Misses != 0 || st.Hits != 0 {
			t.Errorf("refusals count as %d misses", st.Misses)
		}
		s.remote.answers(20*time.Millisecond, nil)
		var got atomic.Int64
		var wg sync.WaitGroup
		for range 10 { // at once: all get what one asks for
			wg.Go(func() {
				if r, ok := b.FetchOnce(t.Context(), keyOf(1), "t", "x.y"); ok && string(r.Output) == "one" {
					got.Add(1)
				}
			})
		}
		wg.Wait()
		if n := s.remote.asked() - asked; n != 2 || got.Load() != 10 {
			t.Errorf("%d of 10 calls got the result, with %d requests", got.Load(), n)
		}
		if st := b.Stats(); st.Misses != 0 || st.SharedHits != 1 {
			t.Errorf("a result from Redis counts as %d misses and %d hits", st.Misses, st.SharedHits)
		}
		s.remote.answers(0, nil)
		asked = s.remote.asked()
		for n := range 2 * maxAsked {
			b.FetchOnce(t.Context(), keyOf(100+n), "t", "x.y")
		}
		if n := s.remote.asked() - asked; n > maxAsked {
			t.Errorf("refused calls with other arguments each made %d requests in a second", n)
		}
		call(a, 2, "x.y", ttl, always("two"))
		<-time.After(askAgain)
		if r, ok := b.FetchOnce(t.Context(), keyOf(2), "t", "x.y"); !ok || string(r.Output) != "two" {
			t.Errorf("after a second: %+v", r)
		}
	})
}

// TestHitsOfRedisAreHits: a look-up that memory did not answer and Redis did is no miss.
func TestHitsOfRedisAreHits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &cluster{}
		a, b := s.node(t), s.node(t)
		synctest.Wait()
		want(t, a, 1, "run", "tool")
		want(t, b, 1, "run", "shared")
		want(t, b, 1, "run", "memory")
		want(t, b, 2, "run", "tool")
		if st := b.Stats(); st.Hits != 1 || st.SharedHits != 1 || st.Misses != 1 {
			t.Errorf("%d hits of memory, %d of Redis, %d misses; want 1 each", st.Hits, st.SharedHits, st.Misses)
		}
	})
}

// TestLateResultOfAnAbandonedRun: a run that its callers left stores its result after two later runs began, and a drop that
// came before the last of them holds for it.
func TestLateResultOfAnAbandonedRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &cluster{}
		c := s.node(t)
		s.feed.nodes = []*Cache{c}
		synctest.Wait()
		late, last, stored := make(chan struct{}), make(chan struct{}), make(chan bool, 1)
		left, leave := context.WithCancel(t.Context())
		go c.Do(left, keyOf(1), func(context.Context) (*toolkeep.Result, error) {
			<-late
			ok := c.Put(keyOf(1), "t", "x.y", output("old"), ttl)
			c.Share(keyOf(1))
			stored <- ok
			return output("old"), nil
		})
		synctest.Wait()
		leave()
		synctest.Wait()
		_, _, _ = c.Do(t.Context(), keyOf(1), func(context.Context) (*toolkeep.Result, error) { return output("second"), nil })
		synctest.Wait()
		if _, err := c.Drop(t.Context(), "t", "x.y", "ann"); err != nil {
			t.Fatal(err)
		}
		go c.Do(context.WithoutCancel(t.Context()), keyOf(1), func(context.Context) (*toolkeep.Result, error) { <-last; return output("third"), nil })
		synctest.Wait()
		close(late)
		if <-stored || c.Peek(keyOf(1)) {
			t.Error("a result of before a drop was stored")
		}
		close(last)
		synctest.Wait()
		if c.mu.Lock(); len(c.runs) != 0 {
			t.Errorf("%d runs are left", len(c.runs))
		}
		c.mu.Unlock()
		want(t, c, 1, "run", "tool")
	})
}

// TestDroppedResultsAreNotShared drops results before, while and after their run, with a node that is behind the feed.
func TestDroppedResultsAreNotShared(t *testing.T) {
	for name, drop := range map[string]func(c *Cache) error{
		"a tool":              func(c *Cache) error { _, err := c.Drop(context.Background(), "t", "x.y", "ann"); return err },
		"all":                 func(c *Cache) error { _, err := c.Drop(context.Background(), "t", "", "ann"); return err },
		"all of every tenant": func(c *Cache) error { _, err := c.Drop(context.Background(), "", "", "ann"); return err },
		"a lifecycle": func(c *Cache) error {
			return c.config.Store.Apply(context.Background(), toolkeep.SetLifecycle{ToolID: "x.y"})
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &cluster{}
				a, slow := s.node(t), s.node(t)
				s.feed.nodes = []*Cache{a}
				synctest.Wait()
				want(t, a, 1, "run", "tool")
				want(t, slow, 1, "run", "shared")
				call(slow, 2, "x.y", ttl, func() string { // its run goes on while the tool is dropped
					if err := drop(a); err != nil {
						t.Error(err)
					}
					return "old"
				})
				call(slow, 3, "x.y", ttl, always("old")) // begins after the drop, of which the node does not know
				synctest.Wait()
				if n := len(s.remote.values); n != 3 {
					t.Fatalf("%d results were shared", n)
				}
				fresh := s.node(t)
				for n := 1; n <= 3; n++ {
					want(t, a, n, "run", "tool")
					want(t, fresh, n, "run", "shared") // what a stored since
				}
				s.feed.catchUp(slow)
				for n := 1; n <= 3; n++ {
					want(t, slow, n, "run", "shared")
				}
			})
		})
	}
}

// TestDropWhileFetching: a shared result that is read while a drop is followed does not stay in memory.
func TestDropWhileFetching(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &cluster{}
		var during func() // runs once, when the cache next asks for the time
		a, b := s.node(t), s.node(t, func(c *Config) {
			c.Clock = func() time.Time {
				if run := during; run != nil {
					during = nil
					run()
				}
				return time.Now()
			}
		})
		synctest.Wait()
		call(a, 1, "x.y", ttl, always("old"))
		call(b, 2, "x.y", ttl, always("old"))
		synctest.Wait()
		if _, err := a.Drop(t.Context(), "t", "x.y", "ann"); err == nil {
			t.Fatal("the node did not follow, and no error says so")
		}
		fetched := false
		during = func() { _, fetched = b.Fetch(t.Context(), keyOf(1), "t", "x.y") } // while b looks at what it has of the tool
		s.feed.catchUp(b)
		if during != nil || fetched || b.Peek(keyOf(1)) || b.Peek(keyOf(2)) {
			t.Errorf("a dropped result was given: %t; it is in memory: %t", fetched, b.Peek(keyOf(1)))
		}
	})
}

// TestSharedResultsOfOthers changes values in the store, as an attacker there could.
func TestSharedResultsOfOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &cluster{}
		a, b := s.node(t), s.node(t)
		synctest.Wait()
		call(a, 1, "x.y", ttl, always("one"))
		call(a, 2, "x.y", ttl, always("two"))
		synctest.Wait()
		one, two := a.config.Shared.Name(sliceOf(keyOf(1))), a.config.Shared.Name(sliceOf(keyOf(2)))
		s.remote.values[one], s.remote.values[two] = s.remote.values[two], []byte("garbage")
		want(t, b, 1, "run", "tool")
		want(t, b, 2, "run", "tool")
		if st := b.Stats(); st.Corruptions != 2 {
			t.Errorf("%+v", st)
		}
	})
}

// TestFeedIsLost: results are shared only while what drops them is known.
func TestFeedIsLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &cluster{}
		a, b := s.node(t), s.node(t)
		synctest.Wait()
		call(a, 1, "x.y", ttl, always("one"))
		call(b, 2, "x.y", ttl, always("two"))
		s.feed.fails.Store(true)
		b.Broke()
		want(t, b, 1, "run", "tool")
		want(t, b, 2, "run", "tool")
		b.Invalidate("", "")
		call(a, 1, "x.y", ttl, always("one"))
		call(a, 3, "x.y", ttl, always("three"))
		s.feed.fails.Store(false)
		<-time.After(10 * time.Second)
		want(t, b, 3, "three", "shared")
	})
}

func TestSharedStoreIsAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &cluster{}
		a := s.node(t)
		synctest.Wait()
		s.remote.err = errors.New("connection refused")
		asked := s.remote.asked()
		for n := range 5 {
			want(t, a, n, "run", "tool")
			want(t, a, n, "run", "memory")
		}
		if n := s.remote.asked() - asked; n != 1 {
			t.Errorf("it was asked %d times while it is away", n)
		}
		if st := a.Stats(); st.Unsent != 5 {
			t.Errorf("%d results were lost while it was away, and %d are counted", 5, st.Unsent)
		}
		s.remote.answers(0, nil)
		<-time.After(time.Second)
		want(t, a, 7, "run", "tool")
		want(t, s.node(t), 7, "run", "shared")
		if st := a.Stats(); st.SharedErrors == 0 {
			t.Errorf("%+v", st)
		}
	})
}

// TestDropAgainstSharing changes what a tool answers, drops its results and calls it again, on nodes that share them while
// they call, too. No call may get what was before a drop that was over when it began.
func TestDropAgainstSharing(t *testing.T) {
	s := &cluster{}
	nodes := []*Cache{s.node(t), s.node(t), s.node(t)}
	s.feed.nodes = nodes
	var now, dropped atomic.Int64
	done := make(chan struct{})
	var wg sync.WaitGroup
	for i, c := range nodes {
		wg.Go(func() {
			for n := 0; ; n++ {
				select {
				case <-done:
					return
				default:
				}
				least := dropped.Load()
				text, from := call(c, n%3, "x.y", ttl, func() string { return strconv.FormatInt(now.Load(), 10) })
				if got, _ := strconv.ParseInt(text, 10, 64); got < least {
					t.Errorf("node %d got %d from %s, and %d was dropped", i, got, from, least-1)
					return
				}
				if n%3 == 0 {
					c.Invalidate("", "x.y") // so that it asks for shared ones
				}
				runtime.Gosched()
			}
		})
	}
	hits := func() (n int64) {
		for _, c := range nodes {
			n += c.Stats().SharedHits
		}
		return n
	}
	began := time.Now()
	for i := int64(0); i < 400 || hits() == 0 && time.Since(began) < time.Minute; i++ { // the others may not have run yet
		runtime.Gosched()
		now.Store(i + 1)
		if _, err := nodes[i%3].Drop(t.Context(), "t", []string{"", "x.y"}[i%2], "ann"); err != nil {
			t.Fatal(err)
		}
		dropped.Store(i + 1)
	}
	close(done)
	wg.Wait()
	if hits() == 0 {
		t.Error("no result was shared")
	}
}

func sliceOf(k Key) []byte { return k[:] }
