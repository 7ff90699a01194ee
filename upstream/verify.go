package upstream

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/mcp"
)

const (
	// settleTime is how long after its start a server may still add to its lists: many
	// register tools once they know their client, and send list_changed a moment later.
	settleTime = 2 * time.Second
	// lingerTime is how long a request for a new session's definitions waits for
	// additions when nothing seems to be missing.
	lingerTime = 250 * time.Millisecond
	// gatherTime merges consecutive list changes into one read.
	gatherTime = 20 * time.Millisecond
)

// verifyPinned refuses a tools/call whose tool is not offered as it was accepted: to the
// tenant, or in this person's session. In a session whose tools were not compared yet, it
// waits until they are read.
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
			// The read's own failure may have been sent; the call was not.
			e := unsentError(err)
			e.Cause = errors.New(sess.state.clean(err.Error()))
			return e
		}
		sess.unread.Store(false)
	}
	name := mcp.Text(o.params, "name")
	if s.config.VerifyPinned != nil {
		if err := s.config.VerifyPinned(s.spec.Tenant, s.spec.Name, sess.state.tenant, name); err != nil {
			return err
		}
	}
	// VerifyPinned answered for the definition that is stored for the tenant.
	shown, has := sess.shows(name)
	if !has || s.config.Accepted == nil || shown == sess.state.defs.digest(name) || slices.Contains(s.accepted(name), shown) {
		return nil
	}
	return unsentError(toolkeep.NewError(toolkeep.DefinitionChanged, "the MCP server %s shows %s another definition of its tool %s than the accepted one; `toolkeep servers diff %s` shows what changed",
		s.spec.Name, sess.key.subject, strconv.Quote(toolkeep.ClipBytes(name, 100)), s.spec.Name).With("server", s.spec.Name))
}

// begin has the tools read before the session's first call. A restarted program may
// differ from the previous one, so it is always read, and so is a person's session, which
// may be shown something else. HTTP servers outlive sessions, so for the tenant's a recent
// read is enough, unless a session was lost since. In a session created to
// read the lists, the reader reads them; if that fails or is not stored (Compare), the
// first call does.
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
	if sess.proc == nil && sess.key.subject == "" && sess.state.defs.recent() {
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
		more := s.keep(sess, got, false)
		s.mu.Lock()
		more = more && !sl.once
		s.mu.Unlock()
		if more {
			s.later(sess)
		}
	})
}

// later has all lists read once the server had time to complete them.
func (s *server) later(sess *session) {
	sess.settling.Do(func() {
		time.AfterFunc(max(settleTime-time.Since(sess.began), 0), func() {
			if sess.link.ctx.Err() == nil {
				s.changed(sess)
			}
		})
	})
}

// recent reports whether the tools were completely read not long ago.
func (d *definitions) recent() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.have && !d.doubted && d.last.Stale == nil && time.Since(d.ended) < refreshAfter
}

// doubt marks the definitions as possibly those of a server that is gone.
func (d *definitions) doubt() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.doubted = true
}

// forget has the next read count as the first one.
func (d *definitions) forget() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.seen, d.whole, d.doubted = false, false, true
}

// keep stores what a session read and, if it is new, announces it before returning.
// all: the read serves a request for the definitions, not one caller's session. more:
// it is new, or not complete yet.
func (s *server) keep(sess *session, got Definitions, all bool) (more bool) {
	d := sess.state.defs
	d.telling.Lock()
	defer d.telling.Unlock()
	if sess.showed(&got) {
		return false // this session was read again since
	}
	d.mu.Lock()
	latest := d.last.read
	d.mu.Unlock()
	got = s.undisputed(sess, got, all, got.read.Before(latest))
	d.mu.Lock()
	if sess.outdated() {
		d.mu.Unlock()
		return false
	}
	next := s.complete(sess, got, all)
	if next.read.Before(latest) {
		next.read = latest
	}
	same := d.seen && sameDefinitions(&d.last, &next)
	d.whole = d.whole || s.whole(sess, all)
	next.Settled = d.whole && (next.Settled || same && d.last.Settled)
	news := !same || next.Settled && !d.last.Settled
	d.last, d.seen, d.doubted, d.params, d.digests = next, true, false, nil, nil
	d.have = d.have || !got.partial
	more = !same || !d.have || !next.Settled
	d.mu.Unlock()
	if news && s.config.OnDefinitions != nil {
		next.partial = false
		s.config.OnDefinitions(s.spec.Name, sess.state.tenant, next)
	}
	return more
}

// complete adds known definitions to what a session read: a principal's session, or one
// without all capabilities, may not show everything. It is called with the definitions
// locked.
func (s *server) complete(sess *session, got Definitions, all bool) Definitions {
	d := sess.state.defs
	if got.partial {
		got.Prompts, got.Resources, got.Templates = d.last.Prompts, d.last.Resources, d.last.Templates
		got.lacks = cmp.Or(got.lacks, d.last.lacks)
	}
	if d.seen && !s.whole(sess, all) {
		got.Withheld = withheldOf(&d.last, &got)
		got.Tools = merged(d.last.Tools, got.Tools)
	}
	return got
}

// whole reports whether a tool that the session does not show is one that the server
// does not offer.
func (s *server) whole(sess *session, all bool) bool {
	return s.full(sess) && (all || sess.key.subject == "" && s.spec.Session == SessionShared)
}

// full reports whether the session declares every capability the server may use: some
// servers offer tools only to clients that support what those need.
func (s *server) full(sess *session) bool {
	for _, name := range s.spec.Capabilities {
		if !sess.declares(name) {
			return false
		}
	}
	return true
}

// withheldOf merges the withheld names of the old and the new tools.
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

// merged is the old tools, with the new ones replacing or following them. Of a name that
// stands twice in one list, the first one counts.
func merged(old, now [][]byte) [][]byte {
	at := make(map[string]int, len(old)+len(now))
	out := make([][]byte, 0, len(old)+len(now))
	for _, list := range [][][]byte{old, now} {
		here := make(map[string]bool, len(list))
		for _, def := range list {
			name := mcp.Text(def, "name")
			i, has := at[name]
			switch {
			case name == "" || !has:
				at[name] = len(out)
				out = append(out, def)
			case !here[name]:
				out[i] = def
			}
			here[name] = true
		}
	}
	return out
}

func (s *server) unreadable(sess *session, err error) {
	shown := sess.state.defs.failed(err)
	sess.state.log.note("the lists cannot be read: " + shown.Error())
}

// readSettled reads the lists for a request for the definitions. In a new session it
// reads again while something seems to be missing or the server announces more.
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
			toolkeep.Sleep(ctx, gatherTime)
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

// lacks reports whether tools may be missing: there are none, and nothing else that
// explains the server's purpose, or a known one is gone.
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
