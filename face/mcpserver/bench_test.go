package mcpserver

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/toolkeep/toolkeep"
)

// A 600-byte call with an answer of about the same size.
var benchCall = `{"jsonrpc":"2.0","id":17,"method":"tools/call","params":{"_meta":{"progressToken":17},"name":"demo__echo","arguments":{"text":"` +
	strings.Repeat("lorem ipsum ", 35) + `","n":12}}}`

// discard is a response writer that keeps nothing, so the benchmark measures only the face.
type discard struct{ h http.Header }

func (d *discard) Header() http.Header         { return d.h }
func (d *discard) Write(p []byte) (int, error) { return len(p), nil }
func (d *discard) WriteHeader(int)             {}

func benchSystem(b *testing.B) *system {
	s := newSystem(b)
	s.Log = slog.New(slog.DiscardHandler)
	p := &toolkeep.Principal{Subject: "alice", Tenant: "t"}
	s.front.Auth = fakeAuth(func(string) (*toolkeep.Principal, error) { return p, nil })
	r, _ := echo(context.Background(), p, &toolkeep.Call{Arguments: []byte(`{"text":"` + strings.Repeat("lorem ipsum ", 35) + `"}`)})
	s.Invoker = answering(r, nil)
	s.publish(manifest("demo.echo"))
	return s
}

func benchCalls(b *testing.B, s *system, header http.Header, body string) {
	s.server = s.face()
	defer s.server.Close()
	raw := []byte(body)
	rd := bytes.NewReader(raw)
	r := httptest.NewRequest("POST", "/mcp", rd)
	r.Host, r.Header, r.ContentLength = "127.0.0.1:8080", header, int64(len(raw))
	header["Authorization"], header["Content-Type"] = []string{"Bearer alice"}, []string{"application/json"}
	header["Accept"] = []string{"application/json, text/event-stream"}
	if header.Get("Mcp-Session-Id") == "new" {
		ses, err := s.server.newSession(&toolkeep.Principal{Subject: "alice", Tenant: "t"}, s.server.views["all"], "2025-11-25", []byte("{}"))
		if err != nil {
			b.Fatal(err)
		}
		header.Set("Mcp-Session-Id", ses.id)
	}
	rc := io.NopCloser(rd)
	w := &discard{h: http.Header{}}
	b.ReportAllocs()
	for b.Loop() {
		rd.Reset(raw)
		r.Body = rc
		clear(w.h)
		s.server.ServeHTTP(w, r)
	}
}

func BenchmarkCallLegacy(b *testing.B) {
	benchCalls(b, benchSystem(b), http.Header{"Mcp-Session-Id": {"new"}, "Mcp-Protocol-Version": {"2025-11-25"}}, benchCall)
}

func BenchmarkCallModern(b *testing.B) {
	body := strings.Replace(benchCall, `{"progressToken":17}`, `{"progressToken":17,"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}`, 1)
	benchCalls(b, benchSystem(b), http.Header{"Mcp-Protocol-Version": {"2026-07-28"}, "Mcp-Method": {"tools/call"}, "Mcp-Name": {"demo__echo"}}, body)
}

func BenchmarkListTools(b *testing.B) {
	s := benchSystem(b)
	for i := range 40 {
		s.publish(manifest("demo.tool" + string(rune('a'+i%26)) + string(rune('a'+i/26))))
	}
	benchCalls(b, s, http.Header{"Mcp-Session-Id": {"new"}, "Mcp-Protocol-Version": {"2025-11-25"}}, listCall)
}

// The same call over loopback, with net/http and its client in the same process.
func BenchmarkCallServer(b *testing.B) {
	s := benchSystem(b).start()
	h := s.session("/mcp", "2025-11-25", "{}")
	tr := &http.Transport{MaxIdleConnsPerHost: 32}
	defer tr.CloseIdleConnections()
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			res, err := tr.RoundTrip(s.request("POST", "/mcp", benchCall, h...))
			if err != nil || res.StatusCode != 200 {
				b.Error(err, res)
				return
			}
			_, _ = io.Copy(io.Discard, res.Body)
			res.Body.Close()
		}
	})
}
