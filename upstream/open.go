package upstream

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"net/http"
	"reflect"
	"sync"
	"time"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/canon"
	"github.com/toolkeep/toolkeep/mcp"
	"github.com/toolkeep/toolkeep/mcp/transport"
)

func shortSum(s string) string {
	sum := sha256.Sum256([]byte(s))
	return hex.EncodeToString(sum[:8])
}

// open makes a session: secrets, connection, handshake.
func (s *server) open(ctx context.Context, p sessionSelector, st *tenantState, who *toolkeep.Principal) (*session, error) {
	for {
		older := st.older.Load() || p.older && !st.mute.Load()
		sess, err := s.dial(ctx, p, st, who)
		if err != nil {
			return nil, err
		}
		err = sess.handshake(ctx, older)
		if err == nil && older && p.older && sess.mute() && !st.older.Load() {
			// In the older revisions it keeps no sessions, so it cannot send requests;
			// in 2026-07-28 it needs no session.
			st.mute.Store(true)
			sess.shut()
			continue
		}
		if err == nil {
			sess.began = time.Now()
			st.log.note("session ready: revision " + sess.info.Version)
			return sess, nil
		}
		// A failed write reports the end before the reader does.
		var f *failure
		gone := sess.link.ended() != nil || errors.As(err, &f) && f.dead
		if gone && sess.proc != nil {
			sess.proc.within(s.config.stopGrace)
		}
		sess.shut()
		if p.older && toolkeep.IsCode(err, toolkeep.MCPError) && ctx.Err() == nil {
			p.older = false // it has no initialize
			continue
		}
		if errors.Is(err, errOlder) && !older && ctx.Err() == nil {
			st.older.Store(true)
			continue
		}
		if gone && sess.proc != nil && ctx.Err() == nil {
			return nil, down(s.spec.Name, "its process ended before it was ready: "+sess.proc.why(), true)
		}
		return nil, err
	}
}

// mute reports whether an HTTP server of an older revision issued no session id,
// without which it cannot send requests.
func (s *session) mute() bool {
	c, ok := s.link.conn.(*transport.HTTPConn)
	return ok && !s.modern && c.Session() == ""
}

// dial opens the connection.
func (s *server) dial(ctx context.Context, p sessionSelector, st *tenantState, who *toolkeep.Principal) (*session, error) {
	sess := &session{
		srv: s, state: st, key: p.key, bound: p.bound, caps: p.caps, own: newOwn(),
		stopped: make(chan struct{}), questions: make(map[string]context.CancelFunc),
		changes: make(map[string]bool), watched: make(map[string]*watch), turns: make(map[string]*turn), newer: make(chan struct{}, 1),
	}
	junk := func(head []byte) {
		st.stray.Add(1)
		st.log.note("not MCP: " + string(head))
	}
	// The limit is on the message, which is larger than its result.
	most := s.spec.MaxResultBytes + 4<<10
	var conn mcp.Conn
	if s.spec.Transport == Stdio {
		env, err := s.prepare(ctx, p.key, who)
		if err != nil {
			return nil, err
		}
		sess.release = s.hold(p.key, env.secrets)
		sess.own.add(env.secrets)
		st.log.forgetError()
		sess.proc, err = startProcess(processConfig{
			reaper: s.config.Reaper, command: s.spec.Command, env: env.vars, dir: env.dir, grace: s.config.stopGrace,
		})
		if err != nil {
			sess.release()
			return nil, err
		}
		sess.errs = make(chan struct{})
		s.work.Go(func() {
			defer close(sess.errs)
			st.log.copyStderr(sess.proc.stderr)
		})
		conn = transport.Lines(sess.proc.stdout, sess.proc.stdin, transport.LinesConfig{MaxMessage: most, OnJunk: junk})
	} else {
		c, release, err := s.httpConfig(ctx, p.key, st, sess.own, who)
		if err != nil {
			return nil, err
		}
		sess.release = release
		c.Limits, c.OnJunk = canon.Limits{Bytes: most}, junk
		if s.spec.Transport == SSE {
			conn = transport.SSE(c)
		} else {
			conn = transport.HTTP(c)
		}
	}
	sess.link = newLink(conn, sess, &st.stray)
	return sess, nil
}

// httpConfig is the client side of an HTTP server: reachable addresses, request
// headers, and the response to 401 and 403.
func (s *server) httpConfig(ctx context.Context, k key, st *tenantState, given *own, who *toolkeep.Principal) (c transport.HTTPConfig, release func(), err error) {
	p := principalOf(k, who)
	var auth Authorizer
	if s.config.Authorize != nil {
		if auth, err = s.config.Authorize(ctx, s.spec, p); err != nil {
			return c, nil, err
		}
	}
	h := &headers{given: given}
	if err := h.load(ctx, s, k, who); err != nil {
		return c, nil, err
	}
	c.URL = s.spec.URL
	if s.config.HTTPClient != nil {
		c.Client = s.config.HTTPClient(k.tenant, s.spec.Network)
	}
	c.Header = func(ctx context.Context) (http.Header, error) {
		out := h.copy()
		if auth == nil {
			return out, nil
		}
		more, err := auth.Header(ctx)
		if err != nil {
			return nil, err
		}
		given.sent(more)
		for name, v := range more {
			out[name] = v
		}
		return out, nil
	}
	c.Unauthorized = func(ctx context.Context, r *http.Response) error {
		if auth != nil && inBackground(ctx) && k.subject != "" {
			// The person did not ask for a login.
			return toolkeep.NewError(toolkeep.SecretAccessDenied, "the MCP server %s refused the login (HTTP %d)", s.spec.Name, r.StatusCode).
				With("server", s.spec.Name).With("status", r.StatusCode)
		}
		if auth != nil {
			return auth.Unauthorized(ctx, r)
		}
		// The secret may have changed since the session began.
		before := h.copy()
		if err := h.load(ctx, s, k, who); err != nil {
			return err
		}
		if reflect.DeepEqual(before, h.copy()) {
			return toolkeep.NewError(toolkeep.SecretAccessDenied, "the MCP server %s refused the credentials (HTTP %d)", s.spec.Name, r.StatusCode).
				With("server", s.spec.Name).With("status", r.StatusCode)
		}
		return nil
	}
	c.Params = st.defs.headerParams
	return c, h.forget, nil
}

// headers are the spec's headers, resolved.
type headers struct {
	given *own

	mu      sync.Mutex
	values  http.Header
	release func()
}

func (h *headers) load(ctx context.Context, s *server, k key, who *toolkeep.Principal) error {
	values, secrets, err := s.headers(ctx, k, who)
	if err != nil {
		return err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.given.add(secrets)
	h.values = values
	before := h.release
	if h.release = s.hold(k, secrets); before != nil {
		before()
	}
	return nil
}

func (h *headers) copy() http.Header {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.values.Clone()
}

func (h *headers) forget() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.release()
}
