package crash_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/toolkeep/toolkeep/store/postgres"
	"github.com/toolkeep/toolkeep/store/storetest"
)

const (
	sinkBatch = 20
	sinkGrows = 200 // entries of the journal while the sink is down
)

// link names an entry of the journal.
type link struct{ writer, number int64 }

// receiver is a webhook of a test. It is down until it is told otherwise.
type receiver struct {
	mu   sync.Mutex
	up   bool
	got  []link        // of each event that it took in, in their order
	held chan struct{} // closed when a batch is taken in and not answered; nil: batches are answered
}

func (r *receiver) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	var batch []struct {
		Writer int64 `json:"chainwriter"`
		Number int64 `json:"chainnumber"`
	}
	if err := json.NewDecoder(req.Body).Decode(&batch); err != nil {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.up {
		w.WriteHeader(http.StatusServiceUnavailable)
		return
	}
	for _, e := range batch {
		r.got = append(r.got, link{e.Writer, e.Number})
	}
	if r.held == nil {
		return
	}
	close(r.held)
	r.held, r.up = nil, false
	r.mu.Unlock()
	<-req.Context().Done() // the sender is killed
	r.mu.Lock()
}

func (r *receiver) set(up bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.up = up
}

// hold closes the channel when the next batch is taken in, which is never answered; the receiver is down after it.
func (r *receiver) hold() <-chan struct{} {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.held = make(chan struct{})
	return r.held
}

// sinkTo gives the settings of a sink at an address; more is YAML of it.
func sinkTo(t *testing.T, url, more string) []string {
	t.Helper()
	dir := t.TempDir()
	file, secret := filepath.Join(dir, "sinks.yaml"), filepath.Join(dir, "_shared", "hook")
	if err := os.Mkdir(filepath.Dir(secret), 0o700); err != nil {
		t.Fatal(err)
	}
	sinks := fmt.Sprintf("sinks:\n- {name: hook, kind: webhook, url: %q, secret: %q, batch: %d, flush: 20ms, from: start, %s}\n", url, "file://"+secret, sinkBatch, more)
	for name, text := range map[string]string{file: sinks, secret: "whsec_MDEyMzQ1Njc4OWFiY2RlZg=="} {
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return []string{"outbox.sinks_file=" + file, "secrets.dirs=" + dir}
}

// sinkSurvives: while calls go on, the node that delivers to a webhook is killed amid a delivery; the sink is down while
// the journal grows; the next node is killed after a delivery, before its cursor moves. The sink gets every entry, each
// writer's in order, and twice at most the batch of each kill.
func sinkSurvives(t *testing.T, c *cluster) {
	r := &receiver{up: true}
	at := httptest.NewServer(r)
	defer at.Close()
	c.settings = append(c.settings, sinkTo(t, at.URL, "timeout: 1m")...)
	c.settings = append(c.settings, "calls.lease=3s")
	c.up(c.add(""), c.add(""))
	second := c.nodes[1].now.Swap(nil) // which is to die, once it delivers
	second.stop()
	c.nodes[1].crashAt = "deliver:5"
	c.up(c.nodes[1])
	c.tools()
	stop, ended := make(chan struct{}), make(chan []*waitingCall, 2)
	for client := range 2 {
		go func() { ended <- c.load(client, stop) }()
	}

	received := r.hold()
	select {
	case <-received:
	case <-time.After(waitLimit):
		t.Fatal("nothing was delivered")
	}
	first := c.nodes[0].now.Swap(nil)
	first.signal(syscall.SIGKILL)
	first.killed()
	state := func(i int) (state string, behind int64) {
		var list struct {
			Sinks []struct {
				State  string
				Behind int64
			}
		}
		c.p(i).must(http.MethodGet, "/api/v1/admin/sinks", "", http.StatusOK, &list)
		return list.Sinks[0].State, list.Sinks[0].Behind
	}
	took := within(t, waitLimit, "another node has the sink, which is down", func() bool {
		state, behind := state(1)
		return state == "failing" && behind > sinkGrows
	})
	t.Logf("the other node has the sink after %s", took.Round(time.Second))
	second = c.nodes[1].now.Load()
	c.up(c.nodes[0])
	r.set(true)
	second.killed() // at its fifth batch
	c.nodes[1].now.Store(nil)
	c.nodes[1].crashAt = ""
	c.up(c.nodes[1])
	within(t, waitLimit, "the sink is served again", func() bool { state, _ := state(0); return state == "ok" })
	close(stop)
	calls := append(<-ended, <-ended...)
	c.settle()
	// What is recorded from now on, as by nodes that stop, may wait for the next start.
	until := time.Now()
	within(t, waitLimit, "the sink has caught up", func() bool { state, behind := state(0); return state == "ok" && behind == 0 })
	c.down()
	c.nothingLeft()
	c.checkSink(r, until, calls)
	c.up(c.nodes[0]) // a node that stopped has signed where the chains are
	c.p(0).chainsAreWhole()
	c.down()
}

// load sends calls, one after the other, until it is stopped.
func (c *cluster) load(client int, stop <-chan struct{}) (calls []*waitingCall) {
	for i := 0; ; i++ {
		select {
		case <-stop:
			return calls
		case <-time.After(100 * time.Millisecond):
		}
		name := fmt.Sprintf("load-%d-%d", client, i)
		w := &waitingCall{name: name, to: []int{(client + i) % 2, (client + i + 1) % 2}}
		w.ask = ask{tool: []string{readTool, putTool, addTool}[i%3], args: named(name, 0)}
		if w.tool != readTool { // which is sent again as another call where its node dies
			w.key, w.async = "key of "+name, true
		}
		c.admit(w)
		calls = append(calls, w)
	}
}

// checkSink compares what the sink took in with the journal.
func (c *cluster) checkSink(r *receiver, until time.Time, calls []*waitingCall) {
	t := c.t
	ctx, cancel := context.WithTimeout(context.Background(), waitLimit)
	defer cancel()
	s, err := postgres.Open(ctx, postgres.Config{DSN: c.server.DSN(c.database), Node: "test", Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	times, newest, repeated := map[link]int{}, map[int64]int64{}, 0
	for _, l := range r.got {
		if times[l]++; times[l] > 1 {
			repeated++
		} else if l.number <= newest[l.writer] {
			t.Errorf("entry %v came first after entry %d of its writer", l, newest[l.writer])
		}
		newest[l.writer] = max(newest[l.writer], l.number)
	}
	if repeated > 2*sinkBatch {
		t.Errorf("%d events came again; the batches of two kills have %d at most", repeated, 2*sinkBatch)
	}
	all, left := map[link]bool{}, map[string]bool{}
	for _, w := range calls {
		left[w.id] = true
	}
	for _, e := range storetest.Entries(ctx, t, s) {
		l := link{e.Writer, e.Seq}
		if all[l] = true; times[l] == 0 && e.At.Before(until) {
			t.Errorf("the sink did not get entry %v", l)
		}
		if e.Call != nil && times[l] > 0 {
			delete(left, e.Call.ID)
		}
	}
	if len(left) > 0 {
		t.Errorf("the sink did not get the ends of %d calls", len(left))
	}
	for l := range maps.Keys(times) {
		if !all[l] {
			t.Errorf("the sink got entry %v, which is not in the journal", l)
		}
	}
	t.Logf("%d calls, %d entries, %d delivered again", len(calls), len(all), repeated)
}
