package mcpserver

import (
	"context"
	"net/http"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/canon"
	"github.com/toolkeep/toolkeep/mcp"
)

// postModern is a POST of revision 2026-07-28: one message, no session, and all
// that initialize used to say in the message's own _meta.
func (s *Server) postModern(w http.ResponseWriter, r *http.Request, v *view, p *toolkeep.Principal, list []*mcp.Message, batch bool, body []byte) {
	m := list[0]
	switch {
	case batch:
		s.refuseMessage(w, http.StatusBadRequest, nil, mcp.NewError(mcp.CodeInvalidRequest, "this revision has no batches; send one message a POST"))
		return
	case m.IsResponse():
		s.refuseMessage(w, http.StatusBadRequest, nil, mcp.NewError(mcp.CodeInvalidRequest,
			"this revision has no answers from clients; put them into inputResponses of the next request"))
		return
	case m.IsNotification():
		// Nothing that a client may tell here has a meaning without a session.
		w.WriteHeader(http.StatusAccepted)
		return
	}
	x := &exchange{s: s, v: v, p: p, header: r.Header, url: s.reachedAt(r), modern: true}
	if e := x.readMeta(m); e != nil {
		s.refuseMessage(w, statusOf(e), m.ID, e)
		return
	}
	if e := mcp.CheckHeaders(r.Header, m, x.headerParams(m)); e != nil {
		s.refuseMessage(w, http.StatusBadRequest, m.ID, e)
		return
	}
	if state := mcp.Get(m.Params, "requestState"); state != nil && s.elsewhere(w, r, s.stateNode(state), body) {
		return
	}
	rep := &reply{s: s, w: w, ctx: r.Context(), version: x.version}
	if !rep.accept(r.Header) {
		s.refuse(w, r, toolkeep.NewError(toolkeep.MalformedRequest, "Accept must name application/json, text/event-stream or both"), http.StatusNotAcceptable)
		return
	}
	x.reply = rep
	if m.Method == mcp.MethodListen {
		s.listen(r, x, m)
		return
	}
	rep.begin()
	data, status := x.answer(r.Context(), m)
	rep.status = status
	rep.respond(data)
	rep.end()
}

// readMeta reads what a request of 2026-07-28 says of itself, and checks that
// its header says the same.
func (x *exchange) readMeta(m *mcp.Message) *mcp.Error {
	meta := mcp.Get(m.Params, "_meta")
	header := x.header.Get(mcp.HeaderVersion)
	version, ok := mcp.Unquote(mcp.Get(meta, mcp.MetaProtocolVersion))
	switch {
	case header == "":
		return mcp.NewError(mcp.CodeHeaderMismatch, "header mismatch: the header "+mcp.HeaderVersion+" is missing; it must say what _meta says")
	case !ok:
		return mcp.NewError(mcp.CodeInvalidParams, `params._meta needs "`+mcp.MetaProtocolVersion+`", a string`)
	case version != header:
		return mcp.NewError(mcp.CodeHeaderMismatch, "header mismatch: the header "+mcp.HeaderVersion+" does not say what _meta says")
	case !mcp.Known(version):
		return unsupported(version)
	}
	x.version = version
	if x.caps = mcp.Get(meta, mcp.MetaClientCapabilities); !mcp.IsObject(x.caps) {
		return mcp.NewError(mcp.CodeInvalidParams, `params._meta needs "`+mcp.MetaClientCapabilities+`", an object`)
	}
	if info := mcp.Get(meta, mcp.MetaClientInfo); info != nil && !mcp.IsObject(info) {
		return mcp.NewError(mcp.CodeInvalidParams, `"`+mcp.MetaClientInfo+`" of params._meta must be an object`)
	}
	return nil
}

func unsupported(version string) *mcp.Error {
	data := []byte(`{"supported":[`)
	for i, v := range mcp.Supported() {
		if i > 0 {
			data = append(data, ',')
		}
		data = canon.AppendString(data, v)
	}
	data = append(canon.AppendString(append(data, `],"requested":`...), toolkeep.ClipBytes(version, 40)), '}')
	return &mcp.Error{Code: mcp.CodeUnsupportedVersion, Message: "the protocol version is not supported; data.supported lists those that are", Data: data}
}

// headerParams are the arguments that a called tool's schema wants as headers.
func (x *exchange) headerParams(m *mcp.Message) []mcp.HeaderParam {
	if m.Method != mcp.MethodCallTool {
		return nil
	}
	name, _ := m.Name()
	if e := x.named(name); e != nil {
		return e.headerParams()
	}
	return nil
}

// discover is server/discover: what initialize says to older clients.
func (x *exchange) discover(ctx context.Context, dst []byte) ([]byte, error) {
	g, err := x.v.greeting(ctx, x)
	if err != nil {
		return nil, err
	}
	dst = append(dst, `{"supportedVersions":[`...)
	for i, v := range mcp.Supported() {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = canon.AppendString(dst, v)
	}
	dst = append(append(dst, `],"capabilities":`...), g.capabilities...)
	dst = appendText(dst, `,"instructions":`, g.instructions)
	dst = append(append(append(dst, `,"_meta":{"`+mcp.MetaServerInfo+`":`...), g.info...), '}')
	return append(x.s.cacheable(dst, "private"), '}'), nil
}

// cacheable appends what lists and reads say in 2026-07-28 of how long they may
// be kept, and that they are whole.
func (s *Server) cacheable(dst []byte, scope string) []byte {
	dst = appendInt(dst, `,"ttlMs":`, s.limits.ListTTL.Milliseconds())
	return append(dst, `,"cacheScope":"`+scope+`","resultType":"complete"`...)
}
