package upstream

import "strings"

// key names a session. Two callers share a session only if they share its key, and
// the tenant is part of every key.
type key struct {
	tenant  string
	subject string // "" in a session of the whole tenant
	// behalf and workspace are the caller's where the server's secrets may depend on
	// them: those of one person must not serve another.
	behalf, workspace string
	// session is the downstream session that it is bound to, "" for none.
	session string
	// exclusive numbers sessions that serve one call at a time; 0 is a shared one.
	exclusive int64
	// caps is what an exclusive session told the server that its client can do; those
	// of a bound session are what its first caller could.
	caps string
	// older tells sessions apart that were opened for callers of the older revisions.
	older bool
}

func (k key) reader() reader { return reader{k.subject, k.behalf} }

// sessionSelector says which session serves a request.
type sessionSelector struct {
	key key
	// lease: any free session of the key's tenant, subject and caps will do, and it
	// serves this call alone.
	lease bool
	// once: the session is made for this call and ends with it.
	once bool
	// bound: questions of the server reach the caller.
	bound bool
	caps  []byte // what the client can do, raw JSON object
	// reads: it is for reading the lists, which is then not begun by itself.
	reads bool
	// older: the handshake is initialize where the server knows it, so that what it
	// asks and tells comes as its caller's revision has it.
	older bool
}

// selectSession chooses the session of a request. A server that may ask its client something
// gets a session of its own for each caller that can be asked: a question must never
// reach another caller than the one whose call caused it.
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
	if p.key.subject != "" && personal(s) {
		p.key.behalf, p.key.workspace = r.Principal.OnBehalf, r.Principal.Workspace
	}
	return p
}

// personal tells whether a value of the definition may differ from person to person.
func personal(s *Spec) bool {
	for _, values := range []map[string]string{s.Env, s.Headers} {
		for _, v := range values {
			if _, ref, ok := Secret(v); ok && (strings.HasPrefix(ref, "secret://") || strings.HasPrefix(ref, "vault://")) {
				return true
			}
		}
	}
	return false
}
