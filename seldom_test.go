package toolkeep_test

import (
	"bytes"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/toolkeep/toolkeep"
)

// TestSeldom: of each kind a few lines a minute are written, and the next one counts the rest.
func TestSeldom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		base := slog.New(slog.NewTextHandler(&out, nil))
		log := toolkeep.Seldom(base, 2, nil)
		lines := func() []string {
			defer out.Reset()
			return strings.Split(strings.TrimSuffix(out.String(), "\n"), "\n")
		}
		for range 1000 {
			log.With("component", "a").Warn("refused", "cause", "timeout", "invocation_id", time.Now())
			log.Warn("refused", "cause", "service")
			log.Warn("another")
		}
		if got := lines(); len(got) != 6 || strings.Contains(strings.Join(got, ""), "left_out") || !strings.Contains(got[0], "component=a") {
			t.Errorf("%d lines: %q", len(got), got)
		}
		time.Sleep(time.Minute)
		log.Warn("refused", "cause", "service")
		log.Warn("refused", "cause", "service")
		if got := lines(); len(got) != 2 || !strings.Contains(got[0], "left_out=998") || strings.Contains(got[1], "left_out") {
			t.Errorf("after a minute %q", got)
		}
		for i := range 10_000 { // each a kind of its own
			log.Warn(fmt.Sprint("line ", i))
		}
		if got := lines(); len(got) > 150 {
			t.Errorf("%d lines of 10,000 kinds", len(got))
		}
	})
}

// TestSeldomForgets: errors with ports and the like are one kind, each code and secret is one of its own, and kinds of
// an earlier minute leave no later kind without a count of its own.
func TestSeldomForgets(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		log := toolkeep.Seldom(slog.New(slog.NewTextHandler(&out, nil)), 1, nil)
		lines := func(want int) {
			t.Helper()
			if got := strings.Count(out.String(), "\n"); got != want {
				t.Errorf("%d lines, want %d: %s", got, want, out.String())
			}
			out.Reset()
		}
		for port := range 1000 { // an outage
			log.Error("failed", "code", toolkeep.RecordUnavailable, "cause", fmt.Errorf("read 127.0.0.1:%d: refused", port))
		}
		lines(1)
		log.Error("failed", "code", toolkeep.InternalError, "cause", error(nil))
		log.Error("failed", "code", toolkeep.InternalError, "cause", fmt.Errorf("another"))
		lines(1)
		for range 2 {
			log.Warn("kept", "secret_hash", "a")
			log.Warn("kept", "secret_hash", "b")
		}
		lines(2)
		for range 3 {
			time.Sleep(time.Minute)
			for i := range 50 {
				log.Warn(fmt.Sprint("line ", i, time.Now()))
			}
			lines(50)
		}
	})
}
