package crash_test

import (
	"net/http"
	"strings"
	"syscall"
	"testing"

	"github.com/google/uuid"

	"github.com/toolkeep/toolkeep"
)

// answer is what a caller got.
type answer struct {
	row
	err error
}

// waitFor starts a call of std.wait in the background and waits until its tool
// runs, which the record of a keyed or waiting call shows.
func (s *process) waitFor(a ask) <-chan answer {
	s.t.Helper()
	got := make(chan answer, 1)
	go func() {
		r, err := s.call(a)
		got <- answer{r, err}
	}()
	until(s.t, "the call runs", func() bool { return s.record(a.id).State == string(toolkeep.CallRunning) })
	return got
}

func waitAsk(ms, key string, async bool) ask {
	return ask{id: uuid.NewString(), tool: "std.wait", args: `{"duration_ms":` + ms + `}`, key: key, async: async}
}

// refusesNew waits until the server drains: new calls get E3912, also on new connections, and the readiness probe
// fails.
func (s *process) refusesNew() {
	s.t.Helper()
	until(s.t, "new calls are refused", func() bool {
		s.client.CloseIdleConnections()
		got, err := s.call(kinds[0].ask("too late"))
		if err != nil {
			s.t.Fatalf("the listener closed while a call was under way: %v", err)
		}
		if got.http == http.StatusServiceUnavailable && got.Code == string(toolkeep.Draining) {
			return true
		}
		if got.Status != "success" {
			s.t.Fatalf("a new call is answered %s", got)
		}
		return false
	})
	s.must("GET", "/health/ready", "", http.StatusServiceUnavailable, nil)
}

func (l *lab) drained(t *testing.T) {
	for name, async := range map[string]bool{"a synchronous call": false, "a waiting call": true} {
		t.Run(name, func(t *testing.T) {
			dir := l.dir(t)
			s := l.start(t, dir, "")
			a := waitAsk("5000", "the key", async) // it has to last until a new call was refused
			got := s.waitFor(a)
			s.signal(syscall.SIGTERM)
			s.refusesNew()
			if r := <-got; r.err != nil || !async && r.Status != "success" {
				t.Errorf("the running call was answered %s %v", r, r.err)
			}
			if how := s.ended(); how != "exit status 0" {
				t.Errorf("the process ended with %q", how)
			}
			if files := leftovers(t, dir); len(files) > 0 {
				t.Errorf("files are left over: %v", files)
			}
			storeIsSound(t, dir)
			s = l.start(t, dir, "")
			if is := s.record(a.id); !is.is(toolkeep.CallSucceeded, "") {
				t.Errorf("the record is %s", is)
			}
			s.stop()
		})
	}
}

// drainedForTooLong interrupts calls: the waiting one returns to the queue and the next process executes it; the
// synchronous one's caller is told to send it again, and its key is free.
func (l *lab) drainedForTooLong(t *testing.T) {
	dir := l.dir(t)
	s := l.start(t, dir, "", "drain.timeout=100ms")
	waiting, keyed := waitAsk("3000", "", true), waitAsk("60000", "the key", false)
	accepted, cut := s.waitFor(waiting), s.waitFor(keyed)
	plain := make(chan answer, 1)
	go func() {
		r, err := s.call(waitAsk("60000", "", false))
		plain <- answer{r, err}
	}()
	if r := <-accepted; r.err != nil || r.http != http.StatusAccepted {
		t.Fatalf("the waiting call was answered %s %v", r, r.err)
	}
	s.signal(syscall.SIGTERM)
	for name, got := range map[string]<-chan answer{"the keyed call": cut, "the call without a key": plain} {
		if r := <-got; r.err != nil || r.http != http.StatusServiceUnavailable || r.Code != string(toolkeep.Draining) {
			t.Errorf("%s was answered %s %v", name, r, r.err)
		}
	}
	if how := s.ended(); how != "exit status 0" {
		t.Errorf("the process ended with %q", how)
	}

	s = l.start(t, dir, "")
	if is := s.record(keyed.id); !is.is(toolkeep.CallRefused, toolkeep.Draining) {
		t.Errorf("the keyed call is %s", is)
	}
	b := waitAsk("1", "the key", false)
	if got, err := s.call(b); err != nil || got.Status != "success" || got.ID != b.id {
		t.Errorf("its key is not free: %s %v", got, err)
	}
	s.settled()
	if is := s.record(waiting.id); !is.is(toolkeep.CallSucceeded, "") {
		t.Errorf("the waiting call is %s", is)
	}
	s.stop()
	storeIsSound(t, dir)
}

func (l *lab) signalledTwice(t *testing.T) {
	dir := l.dir(t)
	s := l.start(t, dir, "")
	a := waitAsk("60000", "the key", false)
	got := s.waitFor(a)
	s.signal(syscall.SIGTERM)
	s.refusesNew()
	s.signal(syscall.SIGTERM)
	if how := s.ended(); how != "signal: terminated" {
		t.Errorf("the process ended with %q", how)
	}
	if r := <-got; r.err == nil {
		t.Errorf("the running call was answered %s", r)
	}
	if !strings.Contains(s.stderr.String(), "a second signal ends at once") {
		t.Errorf("nobody was told of the second signal: %s", s.stderr.String())
	}
	s = l.start(t, dir, "")
	if is := s.record(a.id); !is.is(toolkeep.CallRefused, toolkeep.Draining) {
		t.Errorf("the record is %s", is)
	}
	s.stop()
	storeIsSound(t, dir)
}
