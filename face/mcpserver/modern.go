package mcpserver

import (
	"context"
	"net/http"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/canon"
	"github.com/toolkeep/toolkeep/mcp"
)

// postModern handles a POST of revision 2026-07-28: one message, no session, and the content of
// initialize in the message's own _meta. whole is p without the request's capability token.
func (s *Server) postModern(w http.ResponseWriter, r *http.Request, v *view, p, whole *toolkeep.Principal, list []*mcp.Message, batch bool, body []byte) {
	m := list[0]
	switch {
	case batch:
		s.refuseMessage(w, http.StatusBadRequest, nil, mcp.NewError(mcp.CodeInvalidRequest, "this revision has no batches; send one message a POST"))
		return
	case m.IsResponse():
		s.refuseMessage(w, http.StatusBadRequest, nil, mcp.NewError(mcp.CodeInvalidRequest,
			"in this revision clients send no responses; put the answers into inputResponses of the next request"))
		return
	case m.IsNotification():
		// Without a session no client notification has a meaning.
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
	if state := mcp.Get(m.Params, "requestState"); state != nil && s.elsewhere(w, r, whole, s.stateNode(state), body, list) {
		return
	}
	ctx, over := context.WithCancel(r.Context())
	defer over()
	rep := &reply{s: s, w: w, ctx: r.Context(), p: p, over: over, version: x.version}
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
	data, status := x.answer(ctx, m)
	rep.status = status
	rep.respond(data)
	rep.end()
}

// readMeta reads the _meta of a 2026-07-28 request and checks that the headers agree with it.
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

// headerParams returns the arguments that the called tool's schema requires as headers.
func (x *exchange) headerParams(m *mcp.Message) []mcp.HeaderParam {
	if m.Method != mcp.MethodCallTool {
		return nil
	}
	name, _ := m.Name()
	exists := x.exists
	if x.p.May(toolkeep.PermActAs) { // others act for themselves alone
		exists = x.as(x.newCall(nil, mcp.Get(m.Params, "_meta"))).exists
	}
	if e := x.named(name); e.has(exists) {
		return e.headerParams()
	}
	return nil
}

// discover serves server/discover, the counterpart of initialize in older revisions.
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

// cacheable appends the 2026-07-28 members that say how long a list or read may be cached, and that
// it is complete.
func (s *Server) cacheable(dst []byte, scope string) []byte {
	dst = appendInt(dst, `,"ttlMs":`, listTTL.Milliseconds())
	return append(dst, `,"cacheScope":"`+scope+`","resultType":"complete"`...)
}
