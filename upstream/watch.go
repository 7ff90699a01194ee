package upstream

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/mcp"
)

const (
	// ackTime is how long a modern server may take to accept a subscription.
	ackTime = 10 * time.Second
	// relistenMin and relistenMax bound the pause before a closed subscription stream
	// is opened again.
	relistenMin = time.Second
	relistenMax = 30 * time.Second
	// maxQuick is how often in a row it may close early.
	maxQuick = 20
)

// turn keeps the messages about one resource in order: a subscribe that overtakes an
// earlier unsubscribe would be undone by it.
type turn struct {
	users int // holders and waiters; at 0 it is dropped
	one   chan struct{}
}

// take waits for the turn of a resource and returns its release; the error is that of
// ctx.
func (s *session) take(ctx context.Context, uri string) (free func(), err error) {
	s.mu.Lock()
	t := s.turns[uri]
	if t == nil {
		t = &turn{one: make(chan struct{}, 1)}
		s.turns[uri] = t
	}
	t.users++
	s.mu.Unlock()
	leave := func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if t.users--; t.users == 0 {
			delete(s.turns, uri)
		}
	}
	select {
	case t.one <- struct{}{}:
		return func() { <-t.one; leave() }, nil
	case <-ctx.Done():
		leave()
		return nil, context.Cause(ctx)
	}
}

// watch subscribes to a resource, unless another binding already has: with
// resources/subscribe at a legacy server, with a stream at a modern one.
func (s *session) watch(ctx context.Context, b *Binding, uri string) error {
	free, err := s.take(ctx, uri)
	if err != nil {
		return &failure{cause: err, unsent: true}
	}
	defer free()
	s.mu.Lock()
	w := s.watched[uri]
	if w != nil {
		if !slices.Contains(w.users, b) {
			w.users = append(w.users, b)
		}
		s.mu.Unlock()
		return nil
	}
	s.mu.Unlock()
	w = &watch{users: []*Binding{b}}
	if s.modern {
		cancel, err := s.listen(ctx, mcp.Set(nil, append(append([]byte{'['}, mcp.Quote(uri)...), ']'), "resourceSubscriptions"))
		if err != nil {
			return err
		}
		w.cancel = cancel
	} else if _, err := s.request(ctx, &outgoing{method: mcp.MethodSubscribe, params: mcp.Set(nil, mcp.Quote(uri), "uri")}); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.watched[uri] = w
	return nil
}

// unwatch ends a binding's subscription, and the server's after the last one.
func (s *session) unwatch(b *Binding, uri string) {
	s.mu.Lock()
	w := s.watched[uri]
	last := false
	if w != nil {
		w.users = slices.DeleteFunc(w.users, func(x *Binding) bool { return x == b })
		if last = len(w.users) == 0; last {
			delete(s.watched, uri)
		}
	}
	s.mu.Unlock()
	switch {
	case !last:
	case w.cancel != nil:
		w.cancel()
	default:
		s.srv.spawn(func() {
			ctx, cancel := context.WithTimeout(s.link.ctx, postTimeout)
			defer cancel()
			free, err := s.take(ctx, uri)
			if err != nil {
				return // the session has ended, or nearly so
			}
			defer free()
			s.mu.Lock()
			again := s.watched[uri] != nil
			s.mu.Unlock()
			if again {
				return
			}
			_, _ = s.request(ctx, &outgoing{method: mcp.MethodUnsubscribe, params: mcp.Set(nil, mcp.Quote(uri), "uri")})
		})
	}
}

// listenLists subscribes to list changes at a modern server that supports it.
func (s *session) listenLists() {
	var want []byte
	for _, l := range [][2]string{{"tools", "toolsListChanged"}, {"prompts", "promptsListChanged"}, {"resources", "resourcesListChanged"}} {
		if string(mcp.Get(s.info.Capabilities, l[0], "listChanged")) == "true" {
			want = mcp.Set(want, []byte("true"), l[1])
		}
	}
	if want == nil {
		return
	}
	s.srv.spawn(func() {
		ctx, cancel := context.WithTimeout(s.link.ctx, ackTime)
		defer cancel()
		if _, err := s.listen(ctx, want); err != nil && s.link.ctx.Err() == nil {
			s.state.log.note("the server does not announce list changes: " + err.Error())
		}
	})
}

// listen opens a subscriptions/listen stream and returns once the server accepted it.
// The stream is reopened when it closes, until cancel or the end of the session. ctx
// bounds only the wait.
func (s *session) listen(ctx context.Context, want []byte) (cancel context.CancelFunc, err error) {
	params := mcp.Set(nil, want, "notifications")
	life, cancel := context.WithCancel(s.link.ctx)
	acked, refused := make(chan struct{}), make(chan error, 1)
	if !s.srv.spawn(func() { s.hold(life, params, acked, refused) }) {
		cancel()
		return nil, down(s.srv.spec.Name, "it is being stopped or changed", true)
	}
	t := time.NewTimer(ackTime)
	defer t.Stop()
	select {
	case <-acked:
		return cancel, nil
	case err = <-refused:
	case <-t.C:
		err = &failure{cause: errQuiet}
	case <-ctx.Done():
		err = &failure{cause: context.Cause(ctx)}
	}
	cancel()
	return nil, err
}

// hold keeps the stream open. It gives up if the first attempt closes before the server
// accepted it.
func (s *session) hold(ctx context.Context, params []byte, acked chan struct{}, refused chan<- error) {
	for wait, quick := relistenMin, 0; quick < maxQuick; {
		f := &pendingRequest{method: mcp.MethodListen, ctx: ctx, held: true, acked: acked}
		err := s.link.begin(f)
		if err != nil {
			if refused != nil {
				refused <- &failure{cause: err, unsent: true, dead: true}
			}
			return
		}
		began := time.Now()
		m, fail := s.link.call(ctx, f, s.dress(params, f, ""), 0, s.tells())
		select {
		case <-acked:
		default:
			if refused != nil {
				refused <- ending(m, fail)
				return
			}
		}
		if quick++; time.Since(began) > relistenMax {
			wait, quick = relistenMin, 0
		}
		if !toolkeep.Sleep(ctx, wait) {
			return
		}
		wait = min(2*wait, relistenMax)
		acked, refused = make(chan struct{}), nil
	}
	s.state.log.note("a subscription ends as soon as it is made; it is not made again")
}

// ending returns why a stream closed before the server accepted it.
func ending(m *mcp.Message, fail *failure) error {
	switch {
	case fail != nil:
		return fail
	case m.Err != nil:
		return m.Err
	}
	return errors.New("the subscription ended at once")
}
