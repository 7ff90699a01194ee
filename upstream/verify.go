package upstream

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"time"

	"github.com/toolkeep/toolkeep/mcp"
)

const (
	// settleTime is how long after its start a server may still be adding to its
	// lists: many register tools when they have learned who their client is, and say
	// so by list_changed a moment later.
	settleTime = 2 * time.Second
	// lingerTime is how long a request for the definitions of a new session waits for
	// the server to add more, where nothing seems to be missing.
	lingerTime = 250 * time.Millisecond
	// gatherTime lets list changes that follow each other come to one reading.
	gatherTime = 20 * time.Millisecond
)

// verifyPinned refuses a tools/call whose tool is not offered as it was accepted. In a
// session whose tools were not compared yet it waits until they are read.
func (s *server) verifyPinned(ctx context.Context, sess *session, o *outgoing) error {
	if sess.first == nil || o.method != mcp.MethodCallTool {
		return nil
	}
	select {
	case <-sess.first:
	default:
		select {
		case <-sess.first:
		case <-ctx.Done():
			return &failure{cause: ctx.Err(), unsent: true}
		}
	}
	if sess.unread.Load() {
		if err := s.refresh(ctx, sess); err != nil {
			if gone := sess.link.ended(); gone != nil {
				return &failure{cause: gone, unsent: true, dead: true}
			}
			// The reading's own failure may have been sent; the call was not.
			e := unsentError(err)
			e.Cause = errors.New(sess.state.clean(err.Error()))
			return e
		}
		sess.unread.Store(false)
	}
	if s.config.VerifyPinned == nil {
		return nil
	}
	return s.config.VerifyPinned(s.spec.Tenant, s.spec.Name, sess.state.tenant, mcp.Text(o.params, "name"))
}

// begin has the tools read before the session's first call. A program that was
// started again may be another one than before, so it is always asked; a server
// over HTTP goes on while sessions come and go, so a recent reading will do, unless
// a session was lost since. In a session that was made to read the lists, the reader
// reads them; if that fails or is not kept (Compare), the first call does.
func (s *server) begin(sess *session, sl *slot) {
	if s.config.OnDefinitions == nil {
		return
	}
	sess.first = make(chan struct{})
	if sl.reads {
		sess.unread.Store(true)
		close(sess.first)
		return
	}
	if sess.proc == nil && sess.state.defs.recent() {
		close(sess.first)
		return
	}
	s.work.Go(func() {
		defer close(sess.first)
		ctx, cancel := context.WithTimeout(sess.link.ctx, s.spec.CallTimeout)
		defer cancel()
		got, err := s.read(ctx, sess, true)
		if err != nil {
			sess.unread.Store(true)
			s.unreadable(sess, err)
			return
		}
		got.Settled = time.Since(sess.began) >= settleTime
		if s.keep(sess, got, false) && !sl.once {
			s.later(sess)
		}
	})
}

// later has all lists read when the server has had time to complete them.
func (s *server) later(sess *session) {
	sess.settling.Do(func() {
		time.AfterFunc(max(settleTime-time.Since(sess.began), 0), func() {
			if sess.link.ctx.Err() == nil {
				s.changed(sess)
			}
		})
	})
}

// recent tells whether the tools were read whole not long ago.
func (d *definitions) recent() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.have && !d.doubted && d.last.Stale == nil && time.Since(d.ended) < refreshAfter
}

// doubt: what was read may be what a server offered that is no more.
func (d *definitions) doubt() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.doubted = true
}

// keep makes what was read in a session the definitions, and tells of it where it
// is news before it returns. all: it answers a request for the definitions, and is not
// what one caller's session shows. more: it is news, or not yet everything.
func (s *server) keep(sess *session, got Definitions, all bool) (more bool) {
	d := sess.state.defs
	d.telling.Lock()
	defer d.telling.Unlock()
	d.mu.Lock()
	next := s.complete(sess, got, all)
	same := d.seen && sameDefinitions(&d.last, &next)
	news := !same || next.Settled && !d.last.Settled
	next.Settled = next.Settled || same && d.last.Settled
	d.last, d.seen, d.doubted, d.params = next, true, false, nil
	d.have = d.have || !got.partial
	more = !same || !d.have || !next.Settled
	d.mu.Unlock()
	if news && s.config.OnDefinitions != nil {
		next.partial = false
		s.config.OnDefinitions(s.spec.Name, sess.state.tenant, next)
	}
	return more
}

// complete adds to what was read in a session what is known of the server beside it.
// What one principal's session, or one with less than all capabilities, does not show
// may be there all the same. It is called with the definitions locked.
func (s *server) complete(sess *session, got Definitions, all bool) Definitions {
	d := sess.state.defs
	if got.partial {
		got.Prompts, got.Resources, got.Templates = d.last.Prompts, d.last.Resources, d.last.Templates
		got.lacks = cmp.Or(got.lacks, d.last.lacks)
	}
	if d.seen && (!s.full(sess) || sess.key.subject != "" && !all) {
		got.Withheld = withheldOf(&d.last, &got)
		got.Tools = merged(d.last.Tools, got.Tools)
	}
	return got
}

// full tells whether the session declares all that the server may ask for: some
// servers offer tools only to clients that can answer what those ask.
func (s *server) full(sess *session) bool {
	for _, name := range s.spec.Capabilities {
		if !sess.declares(name) {
			return false
		}
	}
	return true
}

// withheldOf is what is withheld of the old tools and the new ones in their place.
func withheldOf(old, now *Definitions) map[string]string {
	if len(old.Withheld) == 0 {
		return now.Withheld
	}
	out := maps.Clone(old.Withheld)
	for _, def := range now.Tools {
		delete(out, mcp.Text(def, "name"))
	}
	maps.Copy(out, now.Withheld)
	return out
}

// merged is the old tools with the new ones in their place or behind them.
func merged(old, now [][]byte) [][]byte {
	at := make(map[string]int, len(old)+len(now))
	out := make([][]byte, 0, len(old)+len(now))
	for _, list := range [][][]byte{old, now} {
		for _, def := range list {
			name := mcp.Text(def, "name")
			if i, has := at[name]; has && name != "" {
				out[i] = def
				continue
			}
			at[name] = len(out)
			out = append(out, def)
		}
	}
	return out
}

func (s *server) unreadable(sess *session, err error) {
	shown := sess.state.defs.failed(err)
	sess.state.log.note("the lists cannot be read: " + shown.Error())
}

// readSettled reads the lists for a request for the definitions: of a new session once
// more, as long as something seems to be missing or the server says that there is more.
func (s *server) readSettled(ctx context.Context, sess *session) (Definitions, error) {
	for last := false; ; {
		got, err := s.read(ctx, sess, false)
		if err != nil {
			return got, err
		}
		wait := lingerTime
		lacks := s.lacks(sess, &got)
		if lacks {
			wait = settleTime
		}
		left := wait - time.Since(sess.began)
		if last || left <= 0 {
			got.Settled = true
			return got, nil
		}
		t := time.NewTimer(left)
		select {
		case <-sess.newer:
			pause(ctx, gatherTime)
		case <-t.C:
			if !lacks {
				got.Settled = true
				return got, nil
			}
			last = true
		case <-ctx.Done():
		}
		t.Stop()
		if ctx.Err() != nil {
			return got, s.explain(ctx, &failure{cause: ctx.Err()})
		}
	}
}

// lacks tells whether tools may be missing: there are none, and nothing else that
// would explain what the server is for, or one that was there is not.
func (s *server) lacks(sess *session, got *Definitions) bool {
	if len(got.Tools) == 0 {
		caps := sess.info.Capabilities
		return mcp.Get(caps, "tools") != nil || mcp.Get(caps, "prompts") == nil && mcp.Get(caps, "resources") == nil
	}
	here := make(map[string]bool, len(got.Tools))
	for _, def := range got.Tools {
		here[mcp.Text(def, "name")] = true
	}
	known, _ := sess.state.defs.get()
	for _, def := range known.Tools {
		if !here[mcp.Text(def, "name")] {
			return true
		}
	}
	return false
}
