package mcpserver

import (
	"context"
	"net/http"
	"sync"
	"time"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/canon"
	"github.com/toolkeep/toolkeep/face/gate"
	"github.com/toolkeep/toolkeep/mcp"
)

// changed handles each new catalogue snapshot. Changes in a burst are announced together.
func (s *Server) changed() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed || s.spread != nil || len(s.sessions) == 0 && s.listens.none() {
		return
	}
	s.background.Add(1)
	s.spread = time.AfterFunc(s.limits.listDelay, s.announce)
}

// announce notifies the clients whose list differs from the one they last saw.
func (s *Server) announce() {
	defer s.background.Done()
	s.announcing.Lock() // a change that comes meanwhile is announced after this one
	defer s.announcing.Unlock()
	s.mu.Lock()
	s.spread = nil
	all := s.all()
	s.mu.Unlock()
	for _, ses := range all {
		ses.mu.Lock()
		shown, listed, p, gone := ses.shown, ses.listed, *ses.p, ses.gone
		if p.Narrowed = ses.narrowed; p.Narrowed != nil {
			p.Permissions = nil
		}
		ses.mu.Unlock()
		if !listed || gone {
			continue
		}
		x := &exchange{s: s, v: ses.view, p: &p, ses: ses, version: ses.version}
		if now := x.listing().fingerprint(); now != shown {
			ses.mu.Lock()
			ses.shown = now
			ses.mu.Unlock()
			ses.notify(mcp.NotificationToolsChanged, nil, mcp.NotificationToolsChanged)
		}
	}
	for _, l := range s.listens.list() {
		if l.tools {
			if now := l.x.listing().fingerprint(); now != l.shown {
				l.shown = now // under announcing
				l.tell(mcp.NotificationToolsChanged, nil, mcp.NotificationToolsChanged)
			}
		}
	}
}

// UpstreamChanged notifies clients that the prompts and resources of a server may have changed;
// tenant "" means all tenants. Tool changes are announced from the catalogue.
func (s *Server) UpstreamChanged(server, tenant string) {
	s.mu.Lock()
	all := s.all()
	s.mu.Unlock()
	methods := []string{mcp.NotificationPromptsChanged, mcp.NotificationResourcesChanged}
	for _, ses := range all {
		// Clients of relay views get notifications from the upstream itself, including those about
		// tools.
		if ses.view.kind == viewRelay || tenant != "" && ses.owner.tenant != tenant {
			continue
		}
		for _, m := range methods {
			ses.notify(m, nil, m)
		}
	}
	for _, l := range s.listens.list() {
		if l.x.v.kind == viewRelay || tenant != "" && l.x.p.Tenant != tenant {
			continue
		}
		if l.prompts {
			l.tell(methods[0], nil, methods[0])
		}
		if l.resources {
			l.tell(methods[1], nil, methods[1])
		}
	}
}

// listening is one open subscriptions/listen of 2026-07-28.
type listening struct {
	x                         *exchange
	id                        []byte
	tools, prompts, resources bool
	shown                     uint64
}

// tell sends a notification with its subscription id.
func (l *listening) tell(method string, params []byte, key string) {
	if !l.x.s.gate.Still(l.x.p) {
		return // listen sees it too, and ends
	}
	l.x.send(method, mcp.Set(params, l.id, "_meta", mcp.MetaSubscriptionID), key)
}

// listens holds the open subscriptions.
type listens struct {
	mu   sync.Mutex
	over chan struct{} // closed by end
	done bool
	all  map[*listening]struct{}
	of   map[owner]int
}

func (g *listens) init() {
	g.over, g.all, g.of = make(chan struct{}), map[*listening]struct{}{}, map[owner]int{}
}

func (g *listens) none() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return len(g.all) == 0
}

func (g *listens) list() []*listening {
	g.mu.Lock()
	defer g.mu.Unlock()
	out := make([]*listening, 0, len(g.all))
	for l := range g.all {
		out = append(out, l)
	}
	return out
}

func (g *listens) enter(l *listening, most int) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	o := ownerOf(l.x.p)
	if g.done || g.of[o] >= most {
		return false
	}
	g.all[l] = struct{}{}
	g.of[o]++
	return true
}

func (g *listens) leave(l *listening) {
	g.mu.Lock()
	defer g.mu.Unlock()
	o := ownerOf(l.x.p)
	delete(g.all, l)
	if g.of[o]--; g.of[o] == 0 {
		delete(g.of, o)
	}
}

func (g *listens) end() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.done {
		g.done = true
		close(g.over)
	}
}

// listen serves subscriptions/listen: it streams the requested notifications until the client
// leaves or the server stops.
func (s *Server) listen(r *http.Request, x *exchange, m *mcp.Message) {
	ctx := r.Context()
	want := mcp.Get(m.Params, "notifications")
	refuse := func(e *mcp.Error) {
		x.reply.json, x.reply.status = true, statusOf(e)
		x.reply.respond(mcp.Refuse(m.ID, e).Bytes())
		x.reply.end()
	}
	if err := x.count(ctx, x.p); err != nil {
		s.refuse(x.reply.w, r, err, 0)
		return
	}
	switch {
	case !x.reply.stream:
		s.refuse(x.reply.w, r, toolkeep.NewError(toolkeep.MalformedRequest, "subscriptions/listen opens an event stream; Accept must name text/event-stream"), http.StatusNotAcceptable)
		return
	case !mcp.IsObject(want):
		refuse(mcp.NewError(mcp.CodeInvalidParams, "subscriptions/listen needs params.notifications, an object"))
		return
	}
	x.reply.listens = true
	inner := *x
	l := &listening{x: &inner, id: m.ID}
	wanted := func(name string) bool { return string(mcp.Get(want, name)) == "true" }
	l.tools = wanted("toolsListChanged")
	if l.tools {
		l.shown = x.listing().fingerprint()
	}
	var uris []string
	var binding Binding
	if x.hasUpstreams() {
		l.prompts, l.resources = wanted("promptsListChanged"), wanted("resourcesListChanged")
		for v := range mcp.Elements(mcp.Get(want, "resourceSubscriptions")) {
			if u, ok := mcp.Unquote(v); ok && len(uris) < 1000 {
				uris = append(uris, u)
			}
		}
	}
	if !s.listens.enter(l, principalListens) {
		refuse(s.rpcError(toolkeep.NewError(toolkeep.ConcurrencyLimitExceeded,
			"there are too many open subscriptions/listen streams, or the server is shutting down").After(10 * time.Second)))
		return
	}
	defer s.listens.leave(l)
	if x.v.kind == viewRelay && (l.tools || l.prompts || l.resources || len(uris) > 0) {
		var err error
		binding, uris, err = x.relayListen(ctx, l, uris)
		switch {
		case err == nil:
			defer binding.Close()
		case l.prompts || l.resources || len(uris) > 0:
			refuse(s.rpcError(err))
			return
		default: // catalogue changes are still sent
		}
	} else {
		uris = nil // combined views do not support subscriptions
	}
	l.tell(mcp.NotificationSubscriptionsAck, append(append([]byte(`{"notifications":`), l.agreed(uris)...), '}'), "")
	if l.tools || l.prompts || l.resources || len(uris) > 0 {
		s.await(ctx, x.p)
	}
	result := append(append([]byte(`{"_meta":{"`+mcp.MetaSubscriptionID+`":`), m.ID...), `},"resultType":"complete"}`...)
	x.reply.respond(mcp.Reply(m.ID, result).Bytes())
	x.reply.end()
}

// await returns when the client leaves, the server stops, or the principal's access ends.
func (s *Server) await(ctx context.Context, p *toolkeep.Principal) {
	tick := time.NewTicker(gate.StillEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
		case <-s.listens.over:
		case <-s.closing:
		case <-tick.C:
			if s.gate.Still(p) {
				continue
			}
		}
		return
	}
}

// agreed returns the part of the request that the server will send.
func (l *listening) agreed(uris []string) []byte {
	b := []byte(`{`)
	flag := func(on bool, name string) {
		if !on {
			return
		}
		if len(b) > 1 {
			b = append(b, ',')
		}
		b = append(canon.AppendString(b, name), ":true"...)
	}
	flag(l.tools, "toolsListChanged")
	flag(l.prompts, "promptsListChanged")
	flag(l.resources, "resourcesListChanged")
	if len(uris) > 0 {
		if len(b) > 1 {
			b = append(b, ',')
		}
		b = append(b, `"resourceSubscriptions":[`...)
		for i, u := range uris {
			if i > 0 {
				b = append(b, ',')
			}
			b = canon.AppendString(b, u)
		}
		b = append(b, ']')
	}
	return append(b, '}')
}
