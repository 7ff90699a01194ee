package invoke

import (
	"context"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/redact"
)

// progressStore notes the progress that is written.
type progressStore struct {
	toolkeep.Applier
	mu  sync.Mutex
	got []string
}

func (s *progressStore) Apply(_ context.Context, changes ...toolkeep.Change) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range changes {
		if r, ok := c.(toolkeep.ReportProgress); ok {
			s.got = append(s.got, r.Progress.Message)
		}
	}
	return nil
}

// The last progress of a burst is written, at most one a second, and none after the
// call's end.
func TestProgressOfAWaitingCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &progressStore{}
		p := &Pipeline{Config: Config{Store: s, Redact: redact.NewRedactor(nil), Clock: time.Now, Log: slog.New(slog.DiscardHandler)}}
		r := &reporter{p: p}
		begin := time.Now()
		say := func(text string) { r.Progress(toolkeep.Progress{Message: text}) }
		for _, text := range []string{"1", "2", "3"} {
			say(text)
		}
		time.Sleep(1500 * time.Millisecond)
		synctest.Wait()
		say("4") // half a second after 3 was written
		say("5")
		time.Sleep(time.Second)
		synctest.Wait()
		say("6")
		r.stop()
		time.Sleep(5 * time.Second)
		p.done.Wait()
		if want := []string{"1", "3", "5"}; len(s.got) != 3 || s.got[0] != want[0] || s.got[1] != want[1] || s.got[2] != want[2] {
			t.Errorf("written is %v after %s, want %v", s.got, time.Since(begin), want)
		}
	})
}
