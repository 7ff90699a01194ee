package mcpserver

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/canon"
	"github.com/toolkeep/toolkeep/mcp"
	"github.com/toolkeep/toolkeep/upstream"
)

// attachment ties the session of a relay view to its upstream.
type attachment struct{ binding Binding }

func (a *attachment) close() { a.binding.Close() }

// relayListing returns the upstream's tools from the catalogue, under their own names.
func (x *exchange) relayListing() listing {
	var l listing
	for name, e := range x.s.index(x.p.Tenant).ofUpstream(x.v.relay) {
		if t := e.pick(x.sees); t != nil {
			l.tools = append(l.tools, listed{name, t})
		}
	}
	slices.SortFunc(l.tools, func(a, b listed) int { return strings.Compare(a.name, b.name) })
	return l
}

// upstreamRequest builds a request to the view's upstream.
func (x *exchange) upstreamRequest(server string, peer upstream.Peer) *upstream.Request {
	r := &upstream.Request{Principal: x.p, Server: server, Peer: peer, PeerCapabilities: x.caps, Legacy: !x.modern}
	if r.PeerCapabilities == nil {
		r.PeerCapabilities = []byte("{}") // nil would mean all capabilities
	}
	if x.ses != nil {
		r.Session = x.ses.public
	}
	return r
}

// relayGreeting returns the upstream's own greeting. If the upstream is down, the view shows only
// its tools, from the catalogue.
func (x *exchange) relayGreeting(ctx context.Context) (*greeting, error) {
	var peer upstream.Peer
	if x.ses != nil {
		peer = sessionPeer{x.ses}
	}
	g := &greeting{info: append(append([]byte(`{"name":`), mcp.Quote(x.v.relay)...), `,"version":"unknown"}`...)}
	b, err := x.s.c.Upstreams.Bind(ctx, x.upstreamRequest(x.v.relay, peer))
	var info upstream.Info
	if err == nil {
		if info, err = b.Info(ctx); err != nil {
			b.Close()
		}
	}
	tools := len(x.s.index(x.p.Tenant).ofUpstream(x.v.relay)) > 0
	if err != nil {
		if !tools {
			return nil, err
		}
		x.s.failed.Warn("an MCP server is down; its relay view shows its tools alone", "server", x.v.relay, "error", err)
		g.capabilities = []byte(`{"tools":{"listChanged":true}}`)
		return g, nil
	}
	if x.ses == nil || !x.ses.attach(&attachment{b}) {
		b.Close()
	}
	caps := info.Capabilities
	if !mcp.IsObject(caps) {
		caps = []byte("{}")
	}
	// Tool calls go through the pipeline, which has waiting calls but no MCP tasks.
	caps = mcp.Delete(caps, "tasks")
	if tools || mcp.Get(caps, "tools") != nil {
		caps = mcp.Set(caps, []byte("true"), "tools", "listChanged")
	}
	g.capabilities = caps
	if mcp.IsObject(info.Server) {
		g.info = info.Server
	}
	g.instructions = info.Instructions
	return g, nil
}

// attach ties a session to its upstream; false if the session has ended or is already tied.
func (ses *session) attach(a *attachment) bool {
	ses.mu.Lock()
	defer ses.mu.Unlock()
	if ses.gone || ses.relay != nil {
		return false
	}
	ses.relay = a
	return true
}

// forward passes on client notifications that the face does not handle.
func (ses *session) forward(ctx context.Context, m *mcp.Message) {
	ses.mu.Lock()
	a := ses.relay
	ses.mu.Unlock()
	if a == nil {
		return
	}
	if err := a.binding.Notify(ctx, m.Method, clone(m.Params)); err != nil {
		ses.s.log.Debug("a notification could not be passed on", "server", ses.view.relay, "method", toolkeep.ClipBytes(m.Method, 100), "error", err)
	}
}

// relayed forwards a request to the view's upstream, if what it names exists for the caller.
func (x *exchange) relayed(ctx context.Context, m *mcp.Message, dst []byte) ([]byte, error) {
	if err := x.mayRelay(ctx, m); err != nil {
		return nil, err
	}
	if x.ses != nil && (m.Method == mcp.MethodSubscribe || m.Method == mcp.MethodUnsubscribe || m.Method == mcp.MethodSetLevel) {
		// Results of these arrive later, outside any request.
		x.ses.mu.Lock()
		a := x.ses.relay
		x.ses.mu.Unlock()
		if a == nil {
			return nil, mcp.NewError(mcp.CodeInternal, "the server was down when the session began; begin a new session")
		}
		answer, err := a.binding.Do(ctx, m.Method, m.Params)
		if err != nil {
			return nil, err
		}
		return x.bridged(dst, m.Method, answer.Result), nil
	}
	result, err := x.passOn(ctx, x.v.relay, m, m.Params)
	if err != nil {
		return nil, err
	}
	return append(dst, x.relayedList(m.Method, result)...), nil
}

// mayRelay refuses a request that names a prompt or resource which does not exist for the caller, or
// none where it must name one.
func (x *exchange) mayRelay(ctx context.Context, m *mcp.Message) error {
	of, named := m.Params, m.Method == mcp.MethodGetPrompt
	switch m.Method {
	case mcp.MethodGetPrompt, mcp.MethodReadResource, mcp.MethodSubscribe, mcp.MethodUnsubscribe:
	case mcp.MethodComplete:
		of = mcp.Get(m.Params, "ref")
		kind := mcp.Text(of, "type")
		if named = kind == refPrompt; !named && kind != refResource {
			return wrongRef()
		}
	default:
		return nil
	}
	if name, is := mcp.Unquote(mcp.Get(of, "name")); named && (!is || !x.mayUse(x.v.relay, name)) {
		return noPrompt()
	}
	if named {
		return nil
	}
	uri, is := mcp.Unquote(mcp.Get(of, "uri"))
	if !is {
		return x.noResource("")
	}
	_, _, err := x.resourceOf(ctx, prefixURI(x.v.relay, uri))
	if e := (*mcp.Error)(nil); errors.As(err, &e) {
		return x.noResource(uri) // without the prefix
	}
	return err
}

// checked are the members by which requests name what the caller must see.
var checked = []string{"name", "uri", "ref", "type"}

// inLowerCase refuses a request with a member that differs from a checked one by its case alone: a server that
// does not tell them apart would read that one.
func inLowerCase(params []byte) error {
	for _, of := range [][]byte{params, mcp.Get(params, "ref")} {
		for member := range mcp.Members(of) {
			for _, name := range checked {
				if member != name && strings.EqualFold(member, name) {
					return mcp.NewError(mcp.CodeInvalidParams, "params has a member "+toolkeep.ClipBytes(member, 20)+"; write "+name+", in lower case")
				}
			}
		}
	}
	return nil
}

// relayedList leaves out of an upstream's list what does not exist for the caller.
func (x *exchange) relayedList(method string, result []byte) []byte {
	member := map[string]string{mcp.MethodListPrompts: "prompts", mcp.MethodListResources: "resources", mcp.MethodListResourceTemplates: "resourceTemplates"}[method]
	list := mcp.Get(result, member)
	if member == "" || list == nil {
		return result
	}
	out := []byte{'['}
	for one := range mcp.Elements(list) {
		if !x.mayUse(x.v.relay, cmp.Or(mcp.Text(one, "name"), mcp.Text(one, "uri"), mcp.Text(one, "uriTemplate"))) {
			continue
		}
		if len(out) > 1 {
			out = append(out, ',')
		}
		out = append(out, one...)
	}
	return mcp.Set(result, append(out, ']'), member)
}

// passOn has an upstream run a client's request. The result is in the form of the client's
// revision.
func (x *exchange) passOn(ctx context.Context, server string, m *mcp.Message, params []byte) ([]byte, error) {
	if !x.modern {
		return x.do(ctx, server, m.Method, params)
	}
	for _, key := range []string{mcp.MetaProtocolVersion, mcp.MetaClientInfo, mcp.MetaClientCapabilities} {
		params = mcp.Delete(params, "_meta", key) // meant for the gateway, not for the upstream
	}
	params = mcp.Delete(mcp.Delete(params, "requestState"), "inputResponses")
	subject := mcp.Delete(params, "_meta")
	return x.askable(ctx, m, nil, server, subject, func(ctx context.Context, x *exchange, _ []byte) ([]byte, error) {
		return x.do(ctx, server, m.Method, params)
	})
}

func (x *exchange) do(ctx context.Context, server, method string, params []byte) ([]byte, error) {
	r := x.upstreamRequest(server, requestPeer{x})
	r.Method, r.Params = method, params
	answer, err := x.s.c.Upstreams.Do(ctx, r)
	if err != nil {
		return nil, err
	}
	return x.bridged(nil, method, answer.Result), nil
}

// bridged adds the result members that the client's revision requires, and removes those it does
// not know.
func (x *exchange) bridged(dst []byte, method string, result []byte) []byte {
	if !mcp.IsObject(result) {
		result = []byte("{}")
	}
	if !x.modern {
		for _, name := range []string{"resultType", "ttlMs", "cacheScope"} {
			result = mcp.Delete(result, name)
		}
		return append(dst, result...)
	}
	set := func(name, value string) {
		if mcp.Get(result, name) == nil {
			result = mcp.Set(result, []byte(value), name)
		}
	}
	set("resultType", `"complete"`)
	switch method {
	case mcp.MethodListTools, mcp.MethodListPrompts, mcp.MethodListResources, mcp.MethodListResourceTemplates, mcp.MethodReadResource:
		set("ttlMs", "0")
		set("cacheScope", `"private"`)
	}
	return append(dst, result...)
}

// requestPeer is the client of one request.
type requestPeer struct{ x *exchange }

// Ask implements upstream.Peer.
func (p requestPeer) Ask(ctx context.Context, method string, params []byte) ([]byte, error) {
	return askingCaller{caller{x: p.x}}.Ask(ctx, method, params)
}

// AskAll is like askingCaller's.
func (p requestPeer) AskAll(ctx context.Context, inputRequests []byte) ([]byte, error) {
	return askingCaller{caller{x: p.x}}.AskAll(ctx, inputRequests)
}

// Notify implements upstream.Peer.
func (p requestPeer) Notify(method string, params []byte) {
	if method == mcp.NotificationToolsChanged {
		return // not part of this request; sessionPeer gets it too
	}
	if !p.x.send(method, params, noticeKey(method, params)) && p.x.ses != nil {
		p.x.ses.notify(method, params, noticeKey(method, params))
	}
}

// noticeKey returns a key for notifications of which only the latest matters.
func noticeKey(method string, params []byte) string {
	switch method {
	case mcp.NotificationToolsChanged, mcp.NotificationPromptsChanged, mcp.NotificationResourcesChanged:
		return method
	case mcp.NotificationResourceUpdated:
		return method + " " + mcp.Text(params, "uri")
	}
	return ""
}

// sessionPeer is the client of a session, outside any request.
type sessionPeer struct{ ses *session }

// Ask implements upstream.Peer.
func (p sessionPeer) Ask(ctx context.Context, method string, params []byte) ([]byte, error) {
	x := &exchange{s: p.ses.s, v: p.ses.view, p: p.ses.principal(), ses: p.ses, version: p.ses.version, caps: p.ses.caps}
	return x.askClient(ctx, method, params)
}

// Notify implements upstream.Peer.
func (p sessionPeer) Notify(method string, params []byte) {
	p.ses.notify(method, params, noticeKey(method, params))
}

// relayListen attaches a subscriptions/listen to the view's upstream and returns the resources it
// could subscribe to.
func (x *exchange) relayListen(ctx context.Context, l *listening, uris []string) (Binding, []string, error) {
	b, err := x.s.c.Upstreams.Bind(ctx, x.upstreamRequest(x.v.relay, listenPeer{l, uris}))
	if err != nil {
		return nil, nil, err
	}
	var agreed []string
	for _, u := range uris {
		if _, _, err := x.resourceOf(ctx, prefixURI(x.v.relay, u)); err != nil {
			continue
		}
		params := append(canon.AppendString([]byte(`{"uri":`), u), '}')
		if _, err := b.Do(ctx, mcp.MethodSubscribe, params); err != nil {
			x.s.log.Debug("a resource cannot be subscribed to", "server", x.v.relay, "error", err)
			continue
		}
		agreed = append(agreed, u)
	}
	return b, agreed, nil
}

// listenPeer is the client of a subscriptions/listen stream.
type listenPeer struct {
	l    *listening
	uris []string
}

// Ask implements upstream.Peer: outside a request 2026-07-28 cannot ask.
func (listenPeer) Ask(context.Context, string, []byte) ([]byte, error) {
	return nil, noAnswer("the client can only be asked within a request")
}

// Notify implements upstream.Peer.
func (p listenPeer) Notify(method string, params []byte) {
	switch method {
	case mcp.NotificationToolsChanged:
		if !p.l.tools {
			return
		}
	case mcp.NotificationPromptsChanged:
		if !p.l.prompts {
			return
		}
	case mcp.NotificationResourcesChanged:
		if !p.l.resources {
			return
		}
	case mcp.NotificationResourceUpdated:
		if !slices.Contains(p.uris, mcp.Text(params, "uri")) {
			return
		}
	default:
		return
	}
	p.l.tell(method, params, noticeKey(method, params))
}
