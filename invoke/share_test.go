package invoke_test

import (
	"context"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/invoke"
	"github.com/toolkeep/toolkeep/redact"
	"github.com/toolkeep/toolkeep/resultcache"
)

// together is a result cache in which all callers share the first one's run, also on
// their next try.
type together struct {
	*resultcache.Cache
	once sync.Once
	done chan struct{}
	err  error
}

func (r *together) Do(ctx context.Context, _ resultcache.Key, fn func(context.Context) (*toolkeep.Result, error)) (res *toolkeep.Result, shared bool, err error) {
	shared = true
	r.once.Do(func() {
		shared = false
		res, r.err = fn(ctx)
		close(r.done)
	})
	<-r.done
	return res, shared, r.err
}

// TestUnsharedRunsAreBounded: callers of a run with a personal result do not all run at
// once, and each gets a result without their own secret and with other people's words.
func TestUnsharedRunsAreBounded(t *testing.T) {
	const people, most = 30, 4
	h := newHarness(t, func(c *invoke.Config) {
		c.Results = &together{Cache: resultcache.New(resultcache.Config{}), done: make(chan struct{})}
	})
	h.tool("read", func(m *toolkeep.Manifest) {
		m.Cache, m.Result = &toolkeep.CacheSpec{Policy: "ttl", TTLSeconds: 60}, &toolkeep.ResultSpec{Public: true}
	})
	text := ""
	who := make([]*toolkeep.Principal, people)
	for i := range who {
		who[i] = &toolkeep.Principal{Tenant: alice.Tenant, Subject: fmt.Sprint("person-", i)}
		word := fmt.Sprintf("word-%02d-own", i)
		text += word + " "
		defer h.redact.Hold(redact.PersonScope(who[i]), word)()
	}
	started, goOn := make(chan struct{}, people), make(chan struct{})
	var running, peak atomic.Int64
	h.executor.do = func(context.Context, *toolkeep.Execution) (*toolkeep.Output, error) {
		defer running.Add(-1)
		for n := running.Add(1); ; {
			old := peak.Load()
			if n <= old || peak.CompareAndSwap(old, n) {
				break
			}
		}
		started <- struct{}{}
		<-goOn
		return &toolkeep.Output{Value: text, HasValue: true}, nil
	}
	var all sync.WaitGroup
	for i, p := range who {
		all.Go(func() {
			res, err := h.pipeline.Invoke(context.Background(), p, &toolkeep.Call{Tool: "std.read"})
			want := ""
			for j := range people {
				if j == i {
					want += "[REDACTED] "
				} else {
					want += fmt.Sprintf("word-%02d-own ", j)
				}
			}
			if err != nil || string(res.Output) != `"`+want+`"` || res.Cached {
				t.Errorf("%s gets %+v %v, want %s", p.Subject, res, err, want)
			}
		})
	}
	<-started
	goOn <- struct{}{} // only this caller gets its result
	deadline := time.Now().Add(30 * time.Second)
	for h.pipeline.UnsharedRuns() != people-1 {
		if time.Now().After(deadline) {
			t.Fatalf("%d calls run alone or wait for that, want %d", h.pipeline.UnsharedRuns(), people-1)
		}
		runtime.Gosched()
	}
	for range people - 1 {
		<-started
		goOn <- struct{}{}
	}
	all.Wait()
	if n := peak.Load(); n > most {
		t.Errorf("%d ran at once, want at most %d", n, most)
	}
	if n := h.pipeline.UnsharedRuns(); n != 0 {
		t.Errorf("%d calls are still counted", n)
	}
	if n := h.executor.calls.Load(); n != people {
		t.Errorf("executed %d times, want %d", n, people)
	}
}
