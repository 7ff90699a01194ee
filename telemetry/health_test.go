package telemetry

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

type answer struct {
	code int
	raw  string
	report
}

func probe(t *testing.T, h http.Handler, path string) answer {
	t.Helper()
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, nil))
	a := answer{code: w.Code, raw: w.Body.String()}
	if err := json.Unmarshal(w.Body.Bytes(), &a.report); err != nil {
		t.Fatalf("%s: %v in %s", path, err, a.raw)
	}
	return a
}

func TestHealth(t *testing.T) {
	now := time.Date(2026, 11, 28, 12, 0, 0, 0, time.UTC)
	var log bytes.Buffer
	h := NewHealth(HealthConfig{Version: "1.2.3", Clock: func() time.Time { return now },
		Log: slog.New(slog.NewTextHandler(&log, nil))})
	var storeErr, cacheErr error
	h.Add(Component{Name: "store", Required: true, Grace: 5 * time.Minute, Check: func(context.Context) error { return storeErr }})
	h.Add(Component{Name: "cache", Check: func(context.Context) error { return cacheErr }})
	mux := h.Handler()

	expect := func(path string, code int, status string) answer {
		t.Helper()
		a := probe(t, mux, path)
		if a.code != code || a.Status != status {
			t.Fatalf("%s: %d %s, want %d %s", path, a.code, a.Status, code, status)
		}
		if a.Version != "1.2.3" || a.Timestamp != now.Format(stampFormat) {
			t.Fatalf("%s: version %q, timestamp %q", path, a.Version, a.Timestamp)
		}
		return a
	}
	expect("/health/startup", 503, Down)
	expect("/health/ready", 503, Down)
	expect("/health/live", 200, Up)

	h.SetStarted()
	expect("/health/startup", 200, Up)
	for _, path := range []string{"/health/ready", "/health", "/ready"} {
		a := expect(path, 200, Up)
		if len(a.Components) != 2 || a.Components["store"].Status != Up {
			t.Fatalf("components %v", a.Components)
		}
	}

	cacheErr = errors.New("secret detail")
	expect("/ready", 200, Up) // the result is reused
	now = now.Add(time.Second)
	a := expect("/ready", 200, Degraded)
	if a.Components["cache"].Status != Down || a.Components["store"].Status != Up {
		t.Fatalf("components %v", a.Components)
	}
	if strings.Contains(a.raw, "secret detail") {
		t.Fatalf("the answer tells what is wrong: %s", a.raw)
	}
	if !strings.Contains(log.String(), "secret detail") {
		t.Fatalf("the log does not tell what is wrong: %s", log.String())
	}

	cacheErr, storeErr = nil, errors.New("gone")
	now = now.Add(time.Second)
	expect("/ready", 200, Degraded) // within its grace period
	now = now.Add(4*time.Minute + 59*time.Second)
	expect("/ready", 200, Degraded)
	now = now.Add(time.Second)
	expect("/ready", 503, Down)
	storeErr = nil
	now = now.Add(time.Second)
	expect("/ready", 200, Up)

	h.SetDraining()
	expect("/ready", 503, Down)
	expect("/health/live", 200, Up)

	w := httptest.NewRecorder()
	mux.ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/ready", nil))
	if w.Code != http.StatusMethodNotAllowed {
		t.Fatalf("POST: %d", w.Code)
	}
}

func TestHealthOfPartsThatMisbehave(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := NewHealth(HealthConfig{keep: time.Nanosecond})
		var asked atomic.Int32
		goOn := make(chan struct{})
		h.Add(Component{Name: "hangs", Check: func(context.Context) error { asked.Add(1); <-goOn; return nil }})
		h.Add(Component{Name: "panics", Check: func(context.Context) error { panic("no") }})
		h.SetStarted()
		mux := h.Handler()
		for range 3 {
			a := probe(t, mux, "/ready")
			if a.Components["hangs"].Status != Down || a.Components["panics"].Status != Down {
				t.Fatalf("components %v", a.Components)
			}
			time.Sleep(time.Millisecond) // on the bubble's clock
		}
		if n := asked.Load(); n != 1 {
			t.Fatalf("the hanging part was asked %d times at once", n)
		}
		close(goOn)
		synctest.Wait()
		if a := probe(t, mux, "/ready"); a.Components["hangs"].Status != Up {
			t.Fatalf("components %v", a.Components)
		}
	})
}

func TestHealthHammer(t *testing.T) {
	h := NewHealth(HealthConfig{keep: time.Nanosecond})
	h.Add(Component{Name: "a", Required: true, Check: func(context.Context) error { return nil }})
	mux := h.Handler()
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 50 {
				probe(t, mux, "/ready")
			}
		})
	}
	h.SetStarted()
	h.SetDraining()
	wg.Wait()
}
