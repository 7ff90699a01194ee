package upstream

import (
	"bytes"
	"context"
	"errors"
	"strconv"
	"time"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/mcp"
	"github.com/toolkeep/toolkeep/mcp/transport"
)

const (
	// probeTime bounds server/discover, which an older server may ignore; it is shorter
	// if the whole start has less time.
	probeTime = 5 * time.Second
	// maxInstructions bounds a server's instructions for models.
	maxInstructions = 64 << 10
)

// errOlder says that the server exited on server/discover: start it again and use
// initialize.
var errOlder = errors.New("the server does not survive server/discover")

// handshake negotiates the revision: server/discover first (2026-07-28), then
// initialize if the answer is not of that revision. With older it goes straight to
// initialize.
func (s *session) handshake(ctx context.Context, older bool) error {
	if older || s.srv.spec.Transport == SSE {
		return s.initialize(ctx)
	}
	answered, err := s.discover(ctx)
	if s.modern || err != nil {
		return err
	}
	if err = s.initialize(ctx); err == nil {
		s.state.older.Store(true) // later sessions skip the probe
		return nil
	}
	if answered || ctx.Err() != nil || s.link.ended() != nil {
		return err
	}
	// It was slow, not old: it was still starting when the first probe came.
	if _, again := s.discover(ctx); again == nil && s.modern {
		return nil
	}
	return err
}

// ask sends a handshake request, which has no caller.
func (s *session) ask(ctx context.Context, method string, params []byte, limit time.Duration) (*mcp.Message, *failure) {
	f := &pendingRequest{method: method, ctx: ctx, held: true}
	if err := s.link.begin(f); err != nil {
		return nil, &failure{cause: err, unsent: true, dead: true}
	}
	m, fail := s.link.call(ctx, f, params, limit, false)
	if fail == nil && m.Lost != nil {
		return nil, &failure{cause: m.Lost}
	}
	return m, fail
}

// discover sets modern if the server speaks a modern revision, and reports whether it
// answered at all. An error means that there is no point in going on.
func (s *session) discover(ctx context.Context) (answered bool, err error) {
	limit := probeTime
	if deadline, ok := toolkeep.Deadline(ctx); ok {
		limit = min(limit, time.Until(deadline)/3)
	}
	s.meta = modernMeta(mcp.Latest, s.srv.config.client(), s.caps)
	params := append(append([]byte(`{"_meta":{`), s.meta...), "}}"...)
	m, fail := s.ask(ctx, mcp.MethodDiscover, params, limit)
	if fail == nil && m.Err != nil && speaksLatest(m.Err) {
		m, fail = s.ask(ctx, mcp.MethodDiscover, params, limit) // it refused the revision and names another
	}
	switch {
	case fail != nil && ctx.Err() != nil:
		return false, fail
	case fail != nil && fail.dead:
		return false, errOlder
	case fail != nil && hopeless(fail):
		return false, fail
	case fail != nil:
		return !errors.Is(fail.cause, errQuiet), nil
	case m.Err != nil:
		return true, nil
	}
	for v := range mcp.Elements(mcp.Get(m.Result, "supportedVersions")) {
		if text, ok := mcp.Unquote(v); ok && text == mcp.Latest {
			s.modern = true
		}
	}
	if !s.modern {
		return true, nil
	}
	s.learn(mcp.Latest, m.Result, mcp.Get(m.Result, "_meta", mcp.MetaServerInfo))
	return true, nil
}

// speaksLatest reports whether a server that refused the revision speaks the latest one
// after all.
func speaksLatest(e *mcp.Error) bool {
	if e.Code != mcp.CodeUnsupportedVersion {
		return false
	}
	for v := range mcp.Elements(mcp.Get(e.Data, "supported")) {
		if text, ok := mcp.Unquote(v); ok && text == mcp.Latest {
			return true
		}
	}
	return false
}

// hopeless reports whether initialize would fail for the same reason.
func hopeless(f *failure) bool {
	var send *transport.SendError
	if !errors.As(f.cause, &send) {
		return false
	}
	switch send.Status {
	case 0:
		return send.NothingSent
	case 401, 403, 429, 503:
		return true
	}
	return false
}

// modernMeta is the client's part of _meta in every 2026-07-28 request.
func modernMeta(version string, client, caps []byte) []byte {
	var b []byte
	for _, x := range []struct {
		name  string
		value []byte
	}{
		{mcp.MetaProtocolVersion, mcp.Quote(version)}, {mcp.MetaClientInfo, client}, {mcp.MetaClientCapabilities, caps},
	} {
		if b != nil {
			b = append(b, ',')
		}
		b = append(append(append(b, mcp.Quote(x.name)...), ':'), x.value...)
	}
	return b
}

// initialize is the handshake of the revisions up to 2025-11-25.
func (s *session) initialize(ctx context.Context) error {
	name := s.srv.spec.Name
	params := append([]byte(`{"protocolVersion":`), mcp.Quote(mcp.LatestLegacy)...)
	params = append(append(params, `,"capabilities":`...), s.caps...)
	params = append(append(append(params, `,"clientInfo":`...), s.srv.config.client()...), '}')
	m, fail := s.ask(ctx, mcp.MethodInitialize, params, 0)
	if fail != nil {
		return fail
	}
	if m.Err != nil {
		return broken(name, "it refused initialize with the code "+strconv.FormatInt(m.Err.Code, 10)).Because(m.Err)
	}
	version := mcp.Text(m.Result, "protocolVersion")
	if !mcp.Known(version) || mcp.Modern(version) {
		return broken(name, "it speaks a revision of MCP that is not supported here: "+strconv.Quote(toolkeep.ClipBytes(version, 40)))
	}
	s.learn(version, m.Result, mcp.Get(m.Result, "serverInfo"))
	if err := s.link.deliver(ctx, &mcp.Message{Method: mcp.NotificationInitialized}); err != nil {
		return unwritten(err)
	}
	return nil
}

// learn keeps copies of the server's info, independent of the message.
func (s *session) learn(version string, result, server []byte) {
	s.info = Info{Version: version, Instructions: toolkeep.ClipBytes(mcp.Text(result, "instructions"), maxInstructions)}
	if mcp.IsObject(server) {
		s.info.Server = bytes.Clone(server)
	}
	s.info.Capabilities = []byte(`{}`)
	if caps := mcp.Get(result, "capabilities"); mcp.IsObject(caps) {
		s.info.Capabilities = bytes.Clone(caps)
	}
}
