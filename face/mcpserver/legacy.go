package mcpserver

import (
	"context"
	"net/http"
	"slices"
	"sync"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/canon"
	"github.com/toolkeep/toolkeep/face/gate"
	"github.com/toolkeep/toolkeep/mcp"
)

// exchange holds what the messages of one HTTP request share.
type exchange struct {
	s       *Server
	v       *view
	p       *toolkeep.Principal
	ses     *session // nil without a session
	header  http.Header
	url     string // of the server as the client reached it, without a path
	version string
	modern  bool
	caps    []byte  // of the client, raw; nil if unknown
	reply   *reply  // carries notifications and the answer of the request; nil in a parked call
	park    *parked // nil if the request cannot be parked
	byID    bool    // the tool is called through call_tool, which has no outputSchema
}

// count is gate.Count; the headers tell what is left.
func (x *exchange) count(ctx context.Context, p *toolkeep.Principal) error {
	left, err := x.s.gate.Count(ctx, p)
	if x.reply != nil {
		x.reply.leaves(left)
	}
	return err
}

// send sends a notification that belongs to the request.
func (x *exchange) send(method string, params []byte, key string) bool {
	data := (&mcp.Message{Method: method, Params: params}).Bytes()
	if x.park != nil {
		return x.park.send(data, key)
	}
	return x.reply != nil && x.reply.send(data, false, key)
}

// post handles one message, or a batch of messages.
func (s *Server) post(w http.ResponseWriter, r *http.Request, v *view, p *toolkeep.Principal) {
	body, err := gate.ReadBody(r, s.limits.BodyBytes, false)
	if err != nil {
		s.refuse(w, r, err, 0)
		return
	}
	list, batch, err := mcp.ParseBatch(body, canon.Limits{Bytes: s.limits.BodyBytes, Depth: messageDepth})
	if err != nil {
		var id []byte
		if len(list) == 1 {
			id = list[0].ID
		}
		s.refuseMessage(w, http.StatusBadRequest, id, unreadable(body, s.rpcError(err)))
		return
	}
	whole := p
	noCall := func(m *mcp.Message) bool { return m.Method != mcp.MethodCallTool }
	if slices.ContainsFunc(list, noCall) {
		p, err = s.gate.Acting(gate.HTTP(r.Header), p, func(c *toolkeep.Call) {
			for _, m := range list {
				if noCall(m) {
					gate.TakeMeta(c, mcp.Get(m.Params, "_meta"))
				}
			}
		})
		whole = widened(p, whole)
		if err == nil && p.Narrowed != nil {
			v, err = s.viewAt(r.URL.Path, p)
		}
		if err != nil {
			s.refuse(w, r, err, 0)
			return
		}
	}
	version := r.Header.Get(mcp.HeaderVersion)
	first := list[0]
	if mcp.Modern(version) || version == "" && !batch && first.IsRequest() && mcp.Modern(first.Version()) {
		s.postModern(w, r, v, p, whole, list, batch, body)
		return
	}
	if version != "" && !mcp.Known(version) {
		s.refuseMessage(w, http.StatusBadRequest, first.ID, unsupported(version))
		return
	}
	if version == "" {
		version = mcp.V20250326 // the default for clients that send no version, per 2025-06-18
	}
	x := &exchange{s: s, v: v, p: p, header: r.Header, url: s.reachedAt(r), version: version}
	if id := r.Header.Get(mcp.HeaderSession); id != "" {
		if x.ses = s.sessionOf(w, r, id, whole, v, body, list); x.ses == nil {
			return
		}
		defer x.ses.leave()
		x.version, x.caps = x.ses.version, x.ses.caps
	}
	if batch && x.version >= mcp.V20250618 {
		s.refuseMessage(w, http.StatusBadRequest, nil, mcp.NewError(mcp.CodeInvalidRequest, "revision "+x.version+" has no batches; send one message a POST"))
		return
	}
	if first.Method == mcp.MethodInitialize && !batch {
		s.initialize(w, r, x, whole, first)
		return
	}
	x.run(w, r, list, batch)
}

// sessionOf enters a request's session. nil: another node answered, or the session is gone
// and the request was refused. p is the caller without a capability token, body is the part of the request that was read, list its messages.
func (s *Server) sessionOf(w http.ResponseWriter, r *http.Request, id string, p *toolkeep.Principal, v *view, body []byte, list []*mcp.Message) *session {
	ses := s.enter(id, p, v)
	if ses == nil && !s.elsewhere(w, r, p, sessionNode(id), body, list) {
		s.refuse(w, r, toolkeep.NewError(toolkeep.ResourceNotFound, "there is no such MCP session here; begin a new one with initialize"), http.StatusNotFound)
	}
	return ses
}

// refuseMessage answers with a JSON-RPC error before any part of the body has run.
func (s *Server) refuseMessage(w http.ResponseWriter, status int, id []byte, e *mcp.Error) {
	s.sendBody(w, status, mcp.Refuse(id, e).Bytes())
}

// run runs the messages of a POST and answers.
func (x *exchange) run(w http.ResponseWriter, r *http.Request, list []*mcp.Message, batch bool) {
	requests := 0
	for _, m := range list {
		switch {
		case m.IsRequest():
			requests++
		case m.IsNotification():
			x.notified(r.Context(), m)
		case x.ses != nil:
			x.ses.answer(detach(m))
		}
	}
	if requests == 0 {
		w.WriteHeader(http.StatusAccepted)
		return
	}
	ctx, cancel := context.WithCancelCause(context.WithoutCancel(r.Context()))
	defer cancel(nil)
	rep := &reply{s: x.s, w: w, ctx: r.Context(), p: x.p, over: func() { cancel(context.Canceled) }, ses: x.ses, version: x.version, batch: batch}
	if !rep.accept(r.Header) {
		x.s.refuse(w, r, toolkeep.NewError(toolkeep.MalformedRequest, "Accept must name application/json, text/event-stream or both"), http.StatusNotAcceptable)
		return
	}
	x.reply = rep
	stop := context.AfterFunc(r.Context(), func() {
		if !rep.resumable() {
			cancel(context.Canceled)
		}
	})
	defer stop()
	rep.begin()
	if requests == 1 {
		for _, m := range list {
			if m.IsRequest() {
				x.serve(ctx, cancel, m)
			}
		}
	} else {
		var all sync.WaitGroup
		for _, m := range list {
			if m.IsRequest() {
				all.Go(func() {
					own, cancelOwn := context.WithCancelCause(ctx)
					defer cancelOwn(nil)
					x.serve(own, cancelOwn, m)
				})
			}
		}
		all.Wait()
	}
	rep.end()
}

// serve runs one request and adds its answer to the reply.
func (x *exchange) serve(ctx context.Context, cancel context.CancelCauseFunc, m *mcp.Message) {
	if x.ses != nil {
		if e := x.ses.start(m.ID, cancel); e != nil {
			x.reply.respond(mcp.Refuse(m.ID, e).Bytes())
			return
		}
		defer x.ses.finish(m.ID)
	}
	data, _ := x.answer(ctx, m)
	x.reply.respond(data)
}

// answer runs one request and returns its answer, and for revisions that map JSON-RPC errors to
// HTTP the status.
func (x *exchange) answer(ctx context.Context, m *mcp.Message) (data []byte, status int) {
	defer func() {
		if v := recover(); v != nil {
			data, status = mcp.Refuse(m.ID, x.s.rpcError(x.s.panicked(v))).Bytes(), 0
		}
	}()
	dst := append(make([]byte, 0, 1024), `{"jsonrpc":"2.0","id":`...)
	dst = append(append(dst, m.ID...), `,"result":`...)
	data, err := x.dispatch(ctx, m, dst)
	if err != nil {
		e := x.s.rpcError(err)
		return mcp.Refuse(m.ID, e).Bytes(), statusOf(e)
	}
	return append(data, '}'), 0
}

// statusOf returns the HTTP status of a JSON-RPC error in 2026-07-28.
func statusOf(e *mcp.Error) int {
	switch e.Code {
	case mcp.CodeMethodNotFound:
		return http.StatusNotFound
	case mcp.CodeInvalidParams, mcp.CodeHeaderMismatch, mcp.CodeMissingCapability, mcp.CodeUnsupportedVersion, mcp.CodeInvalidRequest:
		return http.StatusBadRequest
	}
	return 0
}

// detach copies the parts of a message that alias the request body.
func detach(m *mcp.Message) *mcp.Message {
	out := &mcp.Message{ID: clone(m.ID), Method: m.Method, Params: clone(m.Params), Result: clone(m.Result)}
	if m.Err != nil {
		out.Err = &mcp.Error{Code: m.Err.Code, Message: m.Err.Message, Data: clone(m.Err.Data)}
	}
	return out
}

func clone(b []byte) []byte {
	if b == nil {
		return nil
	}
	return append([]byte(nil), b...)
}

// notified handles a notification from a client.
func (x *exchange) notified(ctx context.Context, m *mcp.Message) {
	if x.ses == nil {
		return
	}
	switch m.Method {
	case mcp.NotificationCancelled:
		x.ses.cancel(mcp.Get(m.Params, "requestId"))
	case mcp.NotificationInitialized, mcp.NotificationProgress:
	default:
		x.ses.forward(ctx, m)
	}
}

// initialize starts a session of the principal, which is x's without a capability token.
func (s *Server) initialize(w http.ResponseWriter, r *http.Request, x *exchange, p *toolkeep.Principal, m *mcp.Message) {
	if !m.IsRequest() {
		s.refuseMessage(w, http.StatusBadRequest, nil, mcp.NewError(mcp.CodeInvalidRequest, "initialize is a request; give it an id"))
		return
	}
	if x.ses != nil {
		s.refuseMessage(w, http.StatusBadRequest, m.ID, mcp.NewError(mcp.CodeInvalidRequest, "the session is initialized already; leave Mcp-Session-Id out to begin another"))
		return
	}
	asked := mcp.Get(m.Params, "protocolVersion")
	wish, ok := mcp.Unquote(asked)
	if !ok {
		s.refuseMessage(w, http.StatusBadRequest, m.ID, mcp.NewError(mcp.CodeInvalidParams, "initialize needs params.protocolVersion, a string"))
		return
	}
	caps := mcp.Get(m.Params, "capabilities")
	if !mcp.IsObject(caps) {
		caps = []byte("{}")
	}
	version := mcp.Negotiate(wish)
	var ses *session
	left, err := s.gate.Count(r.Context(), x.p)
	gate.RateHeaders(w.Header(), left)
	if err == nil {
		ses, err = s.newSession(p, x.v, version, clone(caps))
	}
	if err != nil {
		s.refuse(w, r, err, 0)
		return
	}
	defer ses.leave()
	x.ses, x.version, x.caps = ses, version, ses.caps
	result, err := x.greet(r.Context())
	if err != nil {
		s.drop(ses, "it could not begin")
		s.refuseMessage(w, http.StatusOK, m.ID, s.rpcError(err))
		return
	}
	w.Header()[mcp.HeaderSession] = []string{ses.id}
	rep := &reply{s: s, w: w, ctx: r.Context(), p: x.p, over: func() {}, ses: ses, version: version}
	if !rep.accept(r.Header) {
		rep.json = true
	}
	rep.respond(mcp.Reply(m.ID, result).Bytes())
	rep.end()
}

// greet returns the result of initialize.
func (x *exchange) greet(ctx context.Context) ([]byte, error) {
	g, err := x.v.greeting(ctx, x)
	if err != nil {
		return nil, err
	}
	b := canon.AppendString([]byte(`{"protocolVersion":`), x.version)
	b = append(append(b, `,"capabilities":`...), g.capabilities...)
	b = append(append(b, `,"serverInfo":`...), g.info...)
	b = appendText(b, `,"instructions":`, g.instructions)
	return append(b, '}'), nil
}

// get opens the session's own stream, or with Last-Event-ID resumes a lost one. The stream ends with the
// capability token and the client certificate of its request, the session with whole, which is the caller without the token.
func (s *Server) get(w http.ResponseWriter, r *http.Request, v *view, p, whole *toolkeep.Principal) {
	id := r.Header.Get(mcp.HeaderSession)
	if id == "" || mcp.Modern(r.Header.Get(mcp.HeaderVersion)) {
		s.refuseMethod(w, r, "POST")
		return
	}
	if _, ok := accepts(r.Header["Accept"]); !ok {
		s.refuse(w, r, toolkeep.NewError(toolkeep.MalformedRequest, "GET opens an event stream; Accept must name text/event-stream"), http.StatusNotAcceptable)
		return
	}
	ses := s.sessionOf(w, r, id, whole, v, nil, nil)
	if ses == nil {
		return
	}
	defer ses.leave()
	st, after, resumes := ses.own, 0, false
	if last := r.Header.Get(mcp.HeaderLastEventID); last != "" {
		name, seq, ok := parseEventID(last)
		if st = ses.find(name); !ok || st == nil {
			// 404 would mean that the session is gone.
			s.refuse(w, r, toolkeep.NewError(toolkeep.MalformedRequest, "the stream of this Last-Event-ID is no longer kept; send the request again"), http.StatusBadRequest)
			return
		}
		if seq > st.newest() { // of an earlier session: the client would get nothing until the stream reaches its number
			s.refuse(w, r, toolkeep.NewError(toolkeep.MalformedRequest, "this Last-Event-ID is none of the session's; leave it out"), http.StatusBadRequest)
			return
		}
		after, resumes = seq, true
	}
	s.mu.Lock()
	going := s.draining
	s.mu.Unlock()
	if going && st == ses.own {
		s.refuse(w, r, draining(), 0)
		return
	}
	if st == ses.own && !resumes {
		st.prime(ses.version)
		after = st.newestTaken()
	}
	rd, ok := st.attach(resumes)
	if !ok {
		s.refuse(w, r, toolkeep.NewError(toolkeep.StateConflict, "the session has an open event stream already; only one is served at a time"), http.StatusConflict)
		return
	}
	e := newEventWriter(w, s.limits.WriteTimeout)
	if !e.open() {
		st.detach(rd)
		return
	}
	opener := passing(p)
	s.pump(r.Context(), e, st, rd, after, func() bool {
		if !s.gate.Still(ses.principal()) {
			s.drop(ses, "its credential is not valid any more")
			return false
		}
		return opener == nil || s.gate.Still(opener)
	})
}

// delete ends a session.
func (s *Server) delete(w http.ResponseWriter, r *http.Request, v *view, p *toolkeep.Principal) {
	id := r.Header.Get(mcp.HeaderSession)
	if id == "" || mcp.Modern(r.Header.Get(mcp.HeaderVersion)) {
		s.refuseMethod(w, r, "POST")
		return
	}
	ses := s.sessionOf(w, r, id, p, v, nil, nil)
	if ses == nil {
		return
	}
	s.drop(ses, "the client ended it")
	ses.leave()
	w.WriteHeader(http.StatusNoContent)
}
