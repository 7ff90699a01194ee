package mcpserver

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"io"
	"log/slog"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/face/gate"
	"github.com/toolkeep/toolkeep/reload"
)

// pair is a node, and another one that answers as a test has it.
type pair struct {
	*system
	peers   *Peers
	other   *httptest.Server
	session []string // headers of a session that the other node has
	hung    chan struct{}
	probes  atomic.Int64
	handed  atomic.Int64
	mu      sync.Mutex
	live    []string
	answer  http.HandlerFunc
}

const peerTool = `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"demo__echo","arguments":{"text":"a"}}}`

// long is a limit that no test reaches.
const long = time.Hour

func (p *pair) Documents(context.Context, string) ([]toolkeep.Document, int64, error) {
	return nil, 0, nil
}

// Names implements Members. It would wait for ever if Peers asked while it holds its own lock.
func (p *pair) Names() ([]string, time.Duration) {
	p.peers.mu.Lock()
	defer p.peers.mu.Unlock()
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.live, time.Second
}

// newPair starts a node whose other one has a session. Without an answer it hangs, also for probes.
func newPair(t *testing.T, l handoverLimits, answer http.HandlerFunc) *pair {
	t.Helper()
	p := &pair{system: newSystem(t), hung: make(chan struct{}), answer: answer}
	p.live = []string{"front", "other"}
	p.other = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body) // else the server does not see that the other side leaves
		probe := r.URL.Path == "/health/live"
		if probe {
			p.probes.Add(1)
		} else {
			p.handed.Add(1)
		}
		if p.answer == nil {
			select {
			case <-p.hung:
			case <-r.Context().Done():
				return
			}
		}
		if probe || p.answer == nil {
			w.WriteHeader(http.StatusForbidden) // any answer will do
			return
		}
		p.answer(w, r)
	}))
	p.front.Log = p.Log
	p.Node = "front"
	p.peers = NewPeers(PeersConfig{Store: struct {
		*memory
		documents
	}{p.store, p}, Node: "front", Members: p, Limits: gateLimits, Log: p.Log, limits: l})
	p.Forward = p.peers.Forward
	if err := p.peers.Start(t.Context(), ""); err != nil {
		t.Fatal(err)
	}
	p.peers.learn(toolkeep.Document{Kind: peerKind, ID: "other", Body: []byte(`{"url":` + strconv.Quote(p.other.URL) + `}`)})
	p.session = []string{"Mcp-Session-Id: " + Tag("other") + ".x", "Mcp-Protocol-Version: 2025-11-25"}
	p.start()
	t.Cleanup(func() {
		p.other.CloseClientConnections()
		p.other.Close()
		p.peers.Stop()
	})
	return p
}

type documents interface {
	Documents(context.Context, string) ([]toolkeep.Document, int64, error)
}

var gateLimits = gate.New(gate.Config{Auth: fakeAuth(nil)}).Limits()

// open is how many requests are handed over.
func (p *pair) open() int {
	p.peers.mu.Lock()
	defer p.peers.mu.Unlock()
	if n := len(p.peers.handed); n != p.peers.open {
		p.t.Errorf("%d requests are counted, %d are there", p.peers.open, n)
	}
	return p.peers.open
}

func (p *pair) unavailable(a answer, code toolkeep.Code) {
	p.t.Helper()
	a.problem(p.t, http.StatusServiceUnavailable, code)
	if a.header.Get("Retry-After") == "" || !strings.Contains(a.body, `"retryable":true`) {
		p.t.Errorf("it does not say when to try again: %v %s", a.header, a.body)
	}
}

// unknown expects the answer to a call that may have been carried out: nothing in it asks to repeat.
func (p *pair) unknown(a answer) {
	p.t.Helper()
	a.problem(p.t, http.StatusInternalServerError, toolkeep.OutcomeUnknown)
	if a.header.Get("Retry-After") != "" || strings.Contains(a.body, `"retryable":true`) || strings.Contains(a.body, "retry_after_s") {
		p.t.Errorf("it asks to repeat a call that may have been carried out: %v %s", a.header, a.body)
	}
}

// TestHandoverToANodeThatHangs: the caller is told, later callers are told at once, and when the node
// goes on it is used again. While the nodes count it as gone, its sessions are gone.
func TestHandoverToANodeThatHangs(t *testing.T) {
	t.Parallel()
	var unknown int64
	p := newPair(t, handoverLimits{begin: long, quiet: 20 * time.Millisecond, probe: 20 * time.Millisecond, look: time.Millisecond}, nil)
	for _, accept := range []string{"application/json", "application/json, text/event-stream"} {
		answers := make(chan answer, 5)
		for range cap(answers) {
			go func() { answers <- p.post("/mcp", peerTool, append(slices.Clip(p.session), "Accept: "+accept)...) }()
		}
		for range cap(answers) {
			if a := <-answers; a.status == http.StatusInternalServerError {
				p.unknown(a)
				unknown++
			} else { // it came after the node was found silent
				p.unavailable(a, toolkeep.NodeUnavailable)
			}
		}
	}
	handed := p.handed.Load()
	if unknown < handed || handed == 0 {
		t.Errorf("the outcome of %d calls is unknown, and %d were handed over", unknown, handed)
	}
	p.unavailable(p.post("/mcp", peerTool, p.session...), toolkeep.NodeUnavailable)
	p.unavailable(p.do("GET", "/mcp", "", append(p.session, "Accept: text/event-stream")...), toolkeep.NodeUnavailable)
	p.unavailable(p.do("DELETE", "/mcp", "", p.session...), toolkeep.NodeUnavailable)
	if p.handed.Load() != handed {
		t.Error("a node that is silent was asked for sessions")
	}
	p.mu.Lock()
	p.live = p.live[:1]
	p.mu.Unlock()
	p.post("/mcp", peerTool, p.session...).problem(t, http.StatusNotFound, toolkeep.ResourceNotFound)
	close(p.hung)
	until(t, "the node is used again", func() bool { return p.post("/mcp", peerTool, p.session...).status == http.StatusForbidden })
	until(t, "nothing is open", func() bool { return p.open() == 0 })
}

// TestHandoverThatBreaks: what was sent to a node that then goes away may be repeated, and a call may not.
func TestHandoverThatBreaks(t *testing.T) {
	t.Parallel()
	p := newPair(t, handoverLimits{begin: long, quiet: long}, func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) })
	ping, list := `{"jsonrpc":"2.0","id":2,"method":"ping"}`, `{"jsonrpc":"2.0","id":3,"method":"tools/list"}`
	for body, isCall := range map[string]bool{peerTool: true, ping: false, list: false, `{"jsonrpc":"2.0","method":"notifications/cancelled"}`: false,
		"[" + ping + "," + peerTool + "]": true, "[" + ping + "," + list + "]": false} {
		handed := p.handed.Load()
		a := p.post("/mcp", body, p.session...)
		if p.handed.Load() == handed {
			t.Errorf("%s was not handed over", body)
		}
		if isCall {
			p.unknown(a)
		} else {
			p.unavailable(a, toolkeep.NodeUnavailable)
		}
	}
	p.unavailable(p.do("GET", "/mcp", "", append(p.session, "Accept: text/event-stream")...), toolkeep.NodeUnavailable)
	p.unavailable(p.do("DELETE", "/mcp", "", p.session...), toolkeep.NodeUnavailable)
}

// TestHandoverToASlowNode: a node that lives may take as long as a call does where only the end is
// an answer. What has an answer at once, and an event stream without its comments, have a limit.
func TestHandoverToASlowNode(t *testing.T) {
	t.Parallel()
	release := make(chan struct{})
	slow := func(w http.ResponseWriter, r *http.Request) {
		select {
		case <-release:
		case <-r.Context().Done():
		}
	}
	p := newPair(t, handoverLimits{begin: 10 * time.Millisecond, quiet: time.Millisecond, probe: long, look: time.Millisecond}, slow)
	p.unavailable(p.post("/mcp", `{"jsonrpc":"2.0","id":1,"method":"ping"}`, p.session...), toolkeep.NodeUnavailable)
	if a := p.post("/mcp", peerTool, p.session...); p.handed.Load() > 1 {
		p.unknown(a)
	}
	p.unavailable(p.do("GET", "/mcp", "", append(p.session, "Accept: text/event-stream")...), toolkeep.NodeUnavailable)
	p.unavailable(p.do("DELETE", "/mcp", "", p.session...), toolkeep.NodeUnavailable)
	before := p.probes.Load()
	ended := make(chan answer, 1)
	go func() { ended <- p.post("/mcp", peerTool, append(p.session, "Accept: application/json")...) }()
	until(t, "the node was asked whether it lives", func() bool { return p.probes.Load() > before+3 })
	close(release)
	if a := <-ended; a.status != http.StatusOK {
		t.Errorf("a call that takes its time: %d %s", a.status, a.body)
	}

	silent := newPair(t, handoverLimits{begin: long, quiet: long, idle: 10 * time.Millisecond, look: time.Millisecond}, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = io.WriteString(w, ": ok\n\n")
		w.(http.Flusher).Flush()
		<-r.Context().Done()
	})
	resp, err := http.DefaultClient.Do(silent.request("GET", "/mcp", "", append(silent.session, "Accept: text/event-stream")...))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if _, err := io.ReadAll(resp.Body); err == nil {
		t.Error("a stream without comments ends as if it were over")
	}
	until(t, "nothing is open", func() bool { return p.open()+silent.open() == 0 })
}

// TestHandoverLimits: so many at once to one node and to all, one hop, no body but a POST's, and the
// headers of one node.
func TestHandoverLimits(t *testing.T) {
	t.Parallel()
	var seen atomic.Pointer[http.Request]
	p := newPair(t, handoverLimits{each: 1, begin: long, quiet: long}, func(w http.ResponseWriter, r *http.Request) {
		seen.Store(r)
		w.Header().Set("X-Request-Id", r.Header.Get("X-Request-Id"))
		w.Header().Set("X-Content-Type-Options", "nosniff")
		if r.Header.Get("Accept") != "text/event-stream" {
			return
		}
		w.Header().Set("Content-Type", "text/event-stream")
		w.(http.Flusher).Flush()
		<-r.Context().Done()
	})
	stream := append(p.session, "Accept: text/event-stream")
	_, stop := p.events("GET", "/mcp", "", p.session...)
	p.unavailable(p.post("/mcp", peerTool, p.session...), toolkeep.Backpressure)
	stop()
	until(t, "the stream has ended", func() bool { return p.open() == 0 })
	p.peers.mu.Lock()
	p.peers.c.limits.each, p.peers.c.limits.all = 2, 1
	p.peers.mu.Unlock()
	_, stop = p.events("GET", "/mcp", "", p.session...)
	p.unavailable(p.post("/mcp", peerTool, p.session...), toolkeep.Backpressure)
	stop()
	until(t, "the stream has ended", func() bool { return p.open() == 0 })

	handed := p.handed.Load()
	p.post("/mcp", peerTool, append(p.session, forwardedBy+": x")...).problem(t, http.StatusNotFound, toolkeep.ResourceNotFound)
	p.post("/mcp", peerTool, "Mcp-Session-Id: "+Tag("third")+".x").problem(t, http.StatusNotFound, toolkeep.ResourceNotFound)
	if p.handed.Load() != handed {
		t.Error("a request was handed on that is handed over already, or to a wrong node")
	}
	a := p.post("/mcp", peerTool, append(p.session, "X-Request-Id: mine")...)
	for _, name := range []string{"X-Request-Id", "X-Content-Type-Options"} {
		if n := len(a.header.Values(name)); a.status != http.StatusOK || n != 1 {
			t.Errorf("%d: %s is there %d times", a.status, name, n)
		}
	}
	if r := seen.Load(); r.Header.Get("X-Request-Id") != "mine" || r.Header.Get(forwardedBy) == "" || r.ContentLength != int64(len(peerTool)) {
		t.Errorf("the other node gets %v", r.Header)
	}
	_, stop = p.events("GET", "/mcp", peerTool, stream...)
	if r := seen.Load(); r.ContentLength != 0 || len(r.TransferEncoding) != 0 {
		t.Errorf("the other node gets a body of %d with a GET", r.ContentLength)
	}
	stop()
}

// TestHandoverEnds: a node that drains ends the streams handed over as its own, and takes no new
// one; a client that does not read holds nothing; a process that has ended has no sessions.
func TestHandoverEnds(t *testing.T) {
	t.Parallel()
	flood := make([]byte, 1<<20)
	p := newPair(t, handoverLimits{begin: long, quiet: long, write: 20 * time.Millisecond}, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		w.(http.Flusher).Flush()
		for r.Method == http.MethodPost && r.Context().Err() == nil {
			if _, err := w.Write(flood); err != nil {
				return
			}
		}
		<-r.Context().Done()
	})
	stream, _ := p.events("GET", "/mcp", "", p.session...)
	p.peers.Drain()
	if _, err := stream.Next(); !errors.Is(err, io.EOF) {
		t.Errorf("the stream of a node that drains ends with %v", err)
	}
	p.unavailable(p.do("GET", "/mcp", "", append(p.session, "Accept: text/event-stream")...), toolkeep.Draining)
	until(t, "the stream has ended", func() bool { return p.open() == 0 })

	resp, err := http.DefaultClient.Do(p.request("POST", "/mcp", peerTool, p.session...))
	if err != nil {
		t.Fatal(err)
	}
	until(t, "the node let go of a client that does not read", func() bool { return p.open() == 0 })
	if err := resp.Body.Close(); err != nil {
		t.Error(err)
	}

	p.other.CloseClientConnections()
	p.other.Close()
	p.post("/mcp", peerTool, p.session...).problem(t, http.StatusNotFound, toolkeep.ResourceNotFound)
}

// A renewed certificate is shown to other nodes and trusted of them without a restart.
func TestPeersFollowTheirCertificate(t *testing.T) {
	dir, now := t.TempDir(), time.Now()
	cert, key := filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	renew := func(name string) tls.Certificate {
		t.Helper()
		private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		if err != nil {
			t.Fatal(err)
		}
		c := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
			NotBefore: now.Add(-time.Hour), NotAfter: now.Add(time.Hour)}
		der, err := x509.CreateCertificate(rand.Reader, c, c, private.Public(), private)
		if err != nil {
			t.Fatal(err)
		}
		raw, err := x509.MarshalPKCS8PrivateKey(private)
		if err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(os.WriteFile(cert, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o600),
			os.WriteFile(key, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: raw}), 0o600)); err != nil {
			t.Fatal(err)
		}
		return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: private}
	}
	renew("first")
	p := NewPeers(PeersConfig{Cert: cert, Key: key, Clock: func() time.Time { return now }, Log: slog.New(slog.DiscardHandler)})
	transport, err := p.transport()
	if err != nil {
		t.Fatal(err)
	}
	defer transport.CloseIdleConnections()
	second := renew("number two")
	now = now.Add(reload.Every)
	shown := make(chan string, 1)
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { shown <- r.TLS.PeerCertificates[0].Subject.CommonName }))
	s.TLS = &tls.Config{Certificates: []tls.Certificate{second}, ClientAuth: tls.RequireAnyClientCert}
	s.StartTLS()
	defer s.Close()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.URL, nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := transport.RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if got := <-shown; got != "number two" {
		t.Errorf("%q was shown", got)
	}
}
