package mcpserver

import (
	"context"
	"crypto/x509"
	"io"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/face/gate"
	"github.com/toolkeep/toolkeep/mcp"
)

// revocable is an Auth whose one caller can be revoked.
type revocable struct {
	gate.Auth
	revoked atomic.Bool
	until   time.Time // expiry of the credential; zero means never
}

func (r *revocable) Authenticate(ctx context.Context, bearer, addr string) (*toolkeep.Principal, error) {
	p, err := r.Auth.Authenticate(ctx, bearer, addr)
	if err != nil {
		return nil, err
	}
	own := *p
	own.Until = r.until
	return &own, nil
}

func (r *revocable) Refresh(_ context.Context, p *toolkeep.Principal) (*toolkeep.Principal, error) {
	if r.revoked.Load() {
		return nil, toolkeep.NewError(toolkeep.Unauthenticated, "the key is not valid any more")
	}
	return p, nil
}

// TestRevokedCredentialEndsStreams: an open stream ends with the credential that opened it: before
// the next event, or if none comes, at the next heartbeat.
func TestRevokedCredentialEndsStreams(t *testing.T) {
	for name, alive := range map[string]time.Duration{"before an event": time.Hour, "by itself": 5 * time.Millisecond} {
		t.Run(name, func(t *testing.T) {
			s := newSystem(t)
			a := &revocable{Auth: s.front.Auth}
			s.front.Auth = a
			s.Limits.listDelay, s.front.Limits.KeepAlive = time.Millisecond, alive
			s.publish(manifest("demo.echo"))
			s.start()
			h := s.session("/mcp", "2025-11-25", "{}")
			s.post("/mcp", `{"jsonrpc":"2.0","id":1,"method":"tools/list"}`, h...)
			own, _ := s.events("GET", "/mcp", "", h...)
			if e, err := own.Next(); err != nil || len(e.Data) != 0 {
				t.Fatalf("no priming event: %+v %v", e, err)
			}
			body, mh := modern("subscriptions/listen", `{"notifications":{"toolsListChanged":true}}`, "{}")
			listens, stop := s.events("POST", "/mcp", body, mh...)
			if m, _ := next(t, listens); m.Method != mcp.NotificationSubscriptionsAck {
				t.Fatalf("%s", m.Bytes())
			}

			a.revoked.Store(true)
			if alive == time.Hour {
				s.publish(manifest("demo.more"))
			}
			if e, err := own.Next(); err != io.EOF {
				t.Errorf("the session's stream: %s %v", e.Data, err)
			}
			a.revoked.Store(false) // the session is gone for every caller
			s.post("/mcp", `{"jsonrpc":"2.0","id":2,"method":"ping"}`, h...).problem(t, 404, toolkeep.ResourceNotFound)
			if alive == time.Hour {
				stop() // its timer would fire in an hour
				return
			}
			a.revoked.Store(true)
			if m, _ := next(t, listens); string(m.ID) != "7" || m.Result == nil {
				t.Errorf("the subscription goes on with %s", m.Bytes())
			}
			if _, err := listens.Next(); err != io.EOF {
				t.Error(err)
			}
		})
	}
}

// TestCredentialThatEndsEndsStreams: streams end when the credential expires.
func TestCredentialThatEndsEndsStreams(t *testing.T) {
	s := newSystem(t)
	s.front.Auth = &revocable{Auth: s.front.Auth, until: time.Now().Add(2 * time.Second)}
	s.front.Limits.KeepAlive = 5 * time.Millisecond
	s.publish(manifest("demo.echo"))
	s.start()
	own, _ := s.events("GET", "/mcp", "", s.session("/mcp", "2025-11-25", "{}")...)
	if e, err := own.Next(); err != nil || len(e.Data) != 0 {
		t.Fatalf("no priming event: %+v %v", e, err)
	}
	if e, err := own.Next(); err != io.EOF {
		t.Errorf("the stream goes on: %s %v", e.Data, err)
	}
}

// TestEventIDOfAnotherSession: an event number beyond the session's own would hold back its events
// until it is reached.
func TestEventIDOfAnotherSession(t *testing.T) {
	s := newSystem(t)
	s.publish(manifest("demo.echo"))
	s.start()
	h := s.session("/mcp", "2025-11-25", "{}")
	s.do("GET", "/mcp", "", append(h, "Accept: text/event-stream", "Last-Event-Id: 0-57")...).problem(t, 400, toolkeep.MalformedRequest)
	rd, _ := s.events("GET", "/mcp", "", h...)
	if e, err := rd.Next(); err != nil || e.ID != "0-1" {
		t.Errorf("%+v %v", e, err)
	}
}

// tokened is an Auth that takes every capability token, until they are revoked.
type tokened struct {
	gate.Auth
	revoked atomic.Bool
}

type narrowing struct{}

func (narrowing) Key() string               { return "all" }
func (narrowing) Shows(*toolkeep.Tool) bool { return true }

func (a *tokened) WithToken(p *toolkeep.Principal, _ toolkeep.CapabilityToken) (*toolkeep.Principal, error) {
	own := *p
	own.Narrowed = narrowing{}
	return &own, nil
}

func (a *tokened) Refresh(_ context.Context, p *toolkeep.Principal) (*toolkeep.Principal, error) {
	if p.Narrowed != nil && a.revoked.Load() {
		return nil, toolkeep.NewError(toolkeep.TokenRevoked, "the token was revoked")
	}
	return p, nil
}

// TestTokenEndsItsStreamAlone: a stream ends with the capability token of the request that opened it,
// whichever requests follow, and no token of a request ends the session or its calls.
func TestTokenEndsItsStreamAlone(t *testing.T) {
	for name, opened := range map[string]bool{"token of a list": false, "token of the stream": true} {
		t.Run(name, func(t *testing.T) {
			s := newSystem(t)
			a := &tokened{Auth: s.front.Auth}
			s.front.Auth = a
			s.Limits.listDelay, s.front.Limits.KeepAlive = time.Millisecond, time.Hour
			goes, began := make(chan struct{}), make(chan struct{})
			s.Invoker = fakeInvoker(func(ctx context.Context, _ *toolkeep.Principal, c *toolkeep.Call) (*toolkeep.Result, error) {
				close(began)
				select {
				case <-goes:
				case <-ctx.Done():
					return nil, ctx.Err()
				}
				return &toolkeep.Result{State: toolkeep.CallSucceeded, Output: []byte(`"done"`)}, nil
			})
			s.publish(manifest("demo.echo"))
			s.start()
			const token = "X-Capability-Token: x"
			h := s.session("/mcp", "2025-11-25", "{}", token)[:2]
			of := h
			if opened {
				of = append(slices.Clone(h), token)
			}
			stream, _ := s.events("GET", "/mcp", "", of...)
			if e, err := stream.Next(); err != nil || len(e.Data) != 0 {
				t.Fatalf("no priming event: %+v %v", e, err)
			}
			called := make(chan answer, 1)
			go func() { called <- s.post("/mcp", callEcho, h...) }()
			<-began
			list := h
			if !opened {
				list = append(slices.Clone(h), token)
			}
			s.post("/mcp", `{"jsonrpc":"2.0","id":51,"method":"tools/list"}`, list...)

			a.revoked.Store(true)
			s.publish(manifest("demo.more"))
			switch e, err := stream.Next(); {
			case opened && err != io.EOF:
				t.Errorf("the stream of the token goes on: %s %v", e.Data, err)
			case !opened && err != nil:
				t.Errorf("the stream, which was opened without a token, ends: %v", err)
			}
			if got := s.post("/mcp", `{"jsonrpc":"2.0","id":52,"method":"ping"}`, h...); got.status != 200 {
				t.Errorf("the session is gone: %s", got.body)
			}
			close(goes)
			if got := <-called; !strings.Contains(got.body, "done") {
				t.Errorf("the call under way ends with %s", got.body)
			}
		})
	}
}

// certified is an Auth whose callers show the certificate now, until it is the one that is denied.
type certified struct {
	gate.Auth
	now, denied atomic.Pointer[x509.Certificate]
}

func (a *certified) Authenticate(ctx context.Context, bearer, addr string) (*toolkeep.Principal, error) {
	p, err := a.Auth.Authenticate(ctx, bearer, addr)
	if err != nil {
		return nil, err
	}
	own := *p
	own.Certificate = a.now.Load()
	own.Until = own.Certificate.NotAfter
	return &own, nil
}

func (a *certified) Refresh(_ context.Context, p *toolkeep.Principal) (*toolkeep.Principal, error) {
	if p.Certificate != nil && p.Certificate == a.denied.Load() {
		return nil, toolkeep.NewError(toolkeep.Unauthenticated, "the certificate is denied")
	}
	return p, nil
}

// TestCertificateEndsItsStreamAlone: a stream ends with the client certificate of the request that opened it, whichever
// requests follow.
func TestCertificateEndsItsStreamAlone(t *testing.T) {
	for _, opened := range []bool{false, true} {
		t.Run(map[bool]string{false: "of a later request", true: "of the stream"}[opened], func(t *testing.T) {
			s := newSystem(t)
			a := &certified{Auth: s.front.Auth}
			first, second := &x509.Certificate{NotAfter: time.Now().Add(time.Hour)}, &x509.Certificate{NotAfter: time.Now().Add(time.Hour)}
			a.now.Store(first)
			s.front.Auth = a
			s.Limits.listDelay, s.front.Limits.KeepAlive = time.Millisecond, time.Hour
			s.publish(manifest("demo.echo"))
			s.start()
			h := s.session("/mcp", "2025-11-25", "{}")
			stream, _ := s.events("GET", "/mcp", "", h...)
			if e, err := stream.Next(); err != nil || len(e.Data) != 0 {
				t.Fatalf("no priming event: %+v %v", e, err)
			}
			a.now.Store(second)
			s.post("/mcp", `{"jsonrpc":"2.0","id":51,"method":"tools/list"}`, h...)
			if opened {
				a.denied.Store(first)
			} else {
				a.denied.Store(second)
			}
			s.publish(manifest("demo.more"))
			switch e, err := stream.Next(); {
			case opened && err != io.EOF:
				t.Errorf("the stream of the certificate goes on: %s %v", e.Data, err)
			case !opened && err != nil:
				t.Errorf("the stream, which another certificate opened, ends: %v", err)
			}
			if got := s.post("/mcp", `{"jsonrpc":"2.0","id":52,"method":"ping"}`, h...); got.status != 200 {
				t.Errorf("the session is gone: %s", got.body)
			}
		})
	}
}
