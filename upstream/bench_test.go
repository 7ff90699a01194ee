//go:build linux

package upstream

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/toolkeep/toolkeep/mcp"
)

// loop is a connection whose server answers every request at once.
type loop struct {
	in   chan *mcp.Message
	done chan struct{}
}

func (l *loop) Read(ctx context.Context) (*mcp.Message, error) {
	select {
	case m := <-l.in:
		return m, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-l.done:
		return nil, errClosed
	}
}

func (l *loop) Write(_ context.Context, m *mcp.Message) error {
	l.in <- mcp.Reply(m.ID, []byte(`{"content":[]}`))
	return nil
}

func (l *loop) Close() error { close(l.done); return nil }

// BenchmarkRequest measures a request without its transport.
func BenchmarkRequest(b *testing.B) {
	for _, progress := range []bool{false, true} {
		b.Run(fmt.Sprintf("progress=%t", progress), func(b *testing.B) {
			spec := (&Spec{Name: "s", Transport: Stdio, Command: []string{"x"}}).Filled()
			s := New(Config{})
			srv := &server{config: s.config, spec: spec, work: &s.work, slots: map[key]*slot{}, states: map[string]*tenantState{}}
			st := srv.state("acme")
			sess := &session{srv: srv, state: st, key: key{tenant: "acme"}, caps: []byte(`{}`), release: func() {}, stopped: make(chan struct{})}
			var stray atomic.Int64
			sess.link = newLink(&loop{in: make(chan *mcp.Message, 64), done: make(chan struct{})}, sess, &stray)
			sl := &slot{key: sess.key, ready: make(chan struct{}), sess: sess}
			close(sl.ready)
			srv.slots[sess.key] = sl
			s.servers[ident{"", "s"}] = srv
			r := toolCall(alice(), "echo", "hello")
			if progress {
				r.Params = mcp.Set(r.Params, []byte("1"), "_meta", "progressToken")
				r.Peer = &listener{}
			}
			b.ReportAllocs()
			for b.Loop() {
				if _, err := s.Do(b.Context(), r); err != nil {
					b.Fatal(err)
				}
			}
			sess.shut()
		})
	}
}
