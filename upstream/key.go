package upstream

import (
	"crypto/sha256"
	"strings"
)

// key names a session. Two callers share a session only if they share its key, and
// the tenant is part of every key.
type key struct {
	tenant  string
	subject string // "" in a session of the whole tenant
	// behalf and workspace are set if the server's secrets may depend on them: one
	// person's secrets must not serve another.
	behalf, workspace string
	// caller identifies the caller's token where the server acts for callers: a session belongs to the token that
	// it was opened with.
	caller [sha256.Size]byte
	// session is the downstream session it is bound to, or "".
	session string
	// exclusive numbers sessions that serve one call at a time; 0 is a shared session.
	exclusive int64
	// caps are the client capabilities that an exclusive session declared; a bound
	// session declares those of its first caller.
	caps string
	// older separates sessions opened for callers of older revisions.
	older bool
}

func (k key) reader() reader { return reader{k.subject, k.behalf} }

// sessionSelector says which session serves a request.
type sessionSelector struct {
	key key
	// lease: use any free session with the key's tenant, subject and caps, for this
	// call alone.
	lease bool
	// once: open a session for this call and end it afterwards.
	once bool
	// bound: requests of the server reach the caller.
	bound bool
	caps  []byte // client capabilities, raw JSON object
	// reads: the session reads the lists itself, so begin need not.
	reads bool
	// background: no caller waits for it. It ends no other session to have room, and its
	// failures do not count against the server.
	background bool
	// older: use initialize if the server supports it, so that its requests and
	// notifications match the caller's revision.
	older bool
}

// selectSession chooses the session of a request. A server that may send requests to
// its client gets one session per caller that can answer: such a request must reach
// only the caller whose call caused it.
func selectSession(s *Spec, r *Request) sessionSelector {
	p := sessionSelector{key: key{tenant: r.Principal.Tenant}, caps: ownCapabilities(s)}
	if s.Session == SessionPrincipal {
		p.key.subject = r.Principal.Subject
	}
	if r.Peer != nil && asksClient(s) {
		p.bound, p.caps = true, declared(s, r.PeerCapabilities)
		p.older, p.key.older = r.Legacy, r.Legacy
		p.key.subject = r.Principal.Subject
		switch {
		case s.Session == SessionCall:
		case r.Session != "":
			p.key.session = r.Session
		default:
			p.lease, p.key.caps = true, string(p.caps)
		}
	}
	if s.Session == SessionCall {
		p.once, p.lease = true, true
		p.key.subject = r.Principal.Subject
	}
	if s.Auth != nil && r.Principal.Token != nil {
		p.key.caller = r.Principal.Token.Sum()
	}
	if p.key.subject != "" && personal(s) {
		p.key.behalf, p.key.workspace = r.Principal.OnBehalf, r.Principal.Workspace
	}
	return p
}

// personal reports whether a value of the spec may differ between people.
func personal(s *Spec) bool {
	if s.Auth != nil {
		return true
	}
	for _, values := range []map[string]string{s.Env, s.Headers} {
		for _, v := range values {
			if _, ref, ok := Secret(v); ok && (strings.HasPrefix(ref, "secret://") || strings.HasPrefix(ref, "vault://")) {
				return true
			}
		}
	}
	return false
}
