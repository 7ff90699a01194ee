package rest

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/toolkeep/toolkeep"
)

// A 600-byte call, with its answer of about as much.
var benchCall = `{"tool_id":"demo.hash","tool_version":"^1.2","invocation_id":"01900000-0000-7000-8000-000000000001",` +
	`"agent_context":{"agent_did":"did:agent:0123456789","tenant_id":"tenant_acme","session_id":"sess_0123456789"},` +
	`"parameters":{"text":"` + strings.Repeat("lorem ipsum ", 20) + `","algorithm":"sha256","rounds":12},` +
	`"execution_options":{"priority":"normal","idempotency_key":null},"resource_limits":{"timeout_seconds":5}}`

// discard is a response writer that keeps nothing, so that the benchmark counts
// the route alone.
type discard struct{ h http.Header }

func (d *discard) Header() http.Header         { return d.h }
func (d *discard) Write(p []byte) (int, error) { return len(p), nil }
func (d *discard) WriteHeader(int)             {}

func benchFace() http.Handler {
	s := newSystem()
	s.Config.Log = slog.New(slog.DiscardHandler)
	p := &toolkeep.Principal{Subject: "admin", Tenant: "t"}
	s.Auth = fakeAuth(func(string, string) (*toolkeep.Principal, error) { return p, nil })
	r := succeeded()
	s.Invoker = fakeInvoker(func(_ context.Context, _ *toolkeep.Principal, c *toolkeep.Call) (*toolkeep.Result, error) {
		c.Told(toolkeep.RateLeft{Kind: "agent", PerMinute: 100, Left: 42, Reset: 1500 * time.Millisecond})
		return r, nil
	})
	return s.api()
}

// floor is what any JSON server does: read a body into a struct, write one.
func floor() http.Handler {
	type message struct {
		ToolID     string         `json:"tool_id"`
		Parameters map[string]any `json:"parameters"`
	}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /api/v1/tools/invoke", func(w http.ResponseWriter, r *http.Request) {
		var m message
		if err := json.NewDecoder(r.Body).Decode(&m); err != nil {
			http.Error(w, err.Error(), 400)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(m)
	})
	return mux
}

func benchHandler(b *testing.B, h http.Handler) {
	body := []byte(benchCall)
	rd := bytes.NewReader(body)
	r := httptest.NewRequest("POST", "/api/v1/tools/invoke", rd)
	r.Host = "127.0.0.1:8080"
	r.Header = http.Header{"Authorization": {"Bearer admin"}, "Content-Type": {"application/json"}, "Accept-Encoding": {"gzip"}, "User-Agent": {"bench"}, "Content-Length": {"600"}}
	r.ContentLength = int64(len(body))
	rc := io.NopCloser(rd)
	w := &discard{h: http.Header{}}
	b.ReportAllocs()
	for b.Loop() {
		rd.Reset(body)
		r.Body = rc
		clear(w.h)
		h.ServeHTTP(w, r)
	}
}

func BenchmarkInvokeRoute(b *testing.B) { benchHandler(b, benchFace()) }
func BenchmarkFloorRoute(b *testing.B)  { benchHandler(b, floor()) }

func benchServer(b *testing.B, h http.Handler) {
	srv := httptest.NewServer(h)
	defer srv.Close()
	tr := &http.Transport{MaxIdleConnsPerHost: 32}
	defer tr.CloseIdleConnections()
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			r, _ := http.NewRequest("POST", srv.URL+"/api/v1/tools/invoke", strings.NewReader(benchCall))
			r.Header.Set("Authorization", "Bearer admin")
			r.Header.Set("Content-Type", "application/json")
			res, err := tr.RoundTrip(r)
			if err != nil || res.StatusCode != 200 {
				b.Error(err, res)
				return
			}
			_, _ = io.Copy(io.Discard, res.Body)
			res.Body.Close()
		}
	})
}

func BenchmarkInvokeServer(b *testing.B) { benchServer(b, benchFace()) }
func BenchmarkFloorServer(b *testing.B)  { benchServer(b, floor()) }

func BenchmarkDecodeCall(b *testing.B) {
	body := []byte(benchCall)
	h := http.Header{"Authorization": {"Bearer admin"}, "Content-Type": {"application/json"}}
	decodeCall(body, h)
	b.ReportAllocs()
	for b.Loop() {
		if c, _ := decodeCall(body, h); c.Fault != nil {
			b.Fatal(c.Fault)
		}
	}
}

func BenchmarkAppendResponse(b *testing.B) {
	r := succeeded()
	var buf []byte
	b.ReportAllocs()
	for b.Loop() {
		buf = appendResponse(buf[:0], r)
	}
}
