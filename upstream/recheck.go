package upstream

import (
	"bytes"
	"context"
	"crypto/sha256"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/canon"
	"github.com/toolkeep/toolkeep/mcp"
)

const (
	// maxReread is how many open sessions one Recheck reads: those that were read the
	// longest ago.
	maxReread = 32
	// rereadTime is how long one of them may take at most; a session that hangs must not
	// delay what the others show.
	rereadTime = 10 * time.Second
)

// Recheck reads the tools of a server whose sessions belong to persons. It reads them again
// in the tenant's open sessions, each with the credentials that it was opened with, and does
// not keep an idle session open. With alone it also reads them in a session of the tenant,
// which has no person's credentials; err is why that failed. A tool that no session shows
// stays as it was. What was read is stored and announced, and returned.
func (s *Servers) Recheck(ctx context.Context, tenant, name string, alone bool) (d Definitions, err error) {
	p := &toolkeep.Principal{Tenant: tenant}
	srv, err := s.open(p, name)
	if err != nil {
		return Definitions{}, err
	}
	var (
		all  sync.WaitGroup
		mu   sync.Mutex
		read = map[*session]Definitions{}
	)
	reread := func(sess *session) error {
		got, err := srv.relist(ctx, sess)
		if err != nil {
			return err
		}
		mu.Lock()
		defer mu.Unlock()
		read[sess] = got
		return nil
	}
	for _, sess := range srv.personalSessions(tenant, maxReread) {
		all.Go(func() { _ = reread(sess) })
	}
	if alone {
		all.Go(func() {
			sl, e := srv.acquire(ctx, srv.readingSelector(p), p)
			if e != nil {
				err = e
				return
			}
			defer srv.release(sl)
			err = reread(sl.sess)
		})
	}
	all.Wait()
	for sess, got := range read {
		srv.keep(sess, got, false)
	}
	d, _ = srv.state(tenant).defs.get()
	return d, err
}

// relist reads the tools in one session and notes what it shows.
func (s *server) relist(ctx context.Context, sess *session) (Definitions, error) {
	ctx, cancel := context.WithTimeout(ctx, min(s.spec.CallTimeout, rereadTime))
	defer cancel()
	got, err := s.read(ctx, sess, true)
	if err != nil {
		s.unreadable(sess, err)
		return got, err
	}
	got.Settled = time.Since(sess.began) >= settleTime
	sess.showed(got.Tools)
	return got, nil
}

// personalSessions returns the tenant's open sessions that belong to persons, those first that were
// read the longest ago. most 0 is all.
func (s *server) personalSessions(tenant string, most int) (list []*session) {
	s.mu.Lock()
	for _, sl := range s.slots {
		if sl.key.tenant != tenant || sl.key.subject == "" {
			continue
		}
		select {
		case <-sl.ready:
			if sl.sess != nil && sl.sess.link.ended() == nil {
				list = append(list, sl.sess)
			}
		default:
		}
	}
	s.mu.Unlock()
	if most > 0 && len(list) > most {
		at := make(map[*session]time.Time, len(list))
		for _, sess := range list {
			at[sess] = sess.readAt()
		}
		slices.SortFunc(list, func(a, b *session) int { return at[a].Compare(at[b]) })
		list = list[:most]
	}
	return list
}

// digest is the same for definitions that differ only in how their JSON is written.
func digest(def []byte) [sha256.Size]byte {
	if same, err := canon.JCS(def); err == nil {
		def = same
	}
	return sha256.Sum256(def)
}

// showed notes which definitions a person's session shows now.
func (s *session) showed(tools [][]byte) {
	if s.key.subject == "" {
		return
	}
	shown := make(map[string][sha256.Size]byte, len(tools))
	for _, def := range tools {
		shown[mcp.Text(def, "name")] = digest(def)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.shown, s.listed = shown, time.Now()
}

// showsOther reports whether a person's session shows a definition of the tool that is none
// of the accepted ones.
func (s *session) showsOther(name string, accepted [][sha256.Size]byte) bool {
	shown, has := s.shows(name)
	return has && !slices.Contains(accepted, shown)
}

// shows is the digest of the tool's definition that a person's session showed last.
func (s *session) shows(name string) (shown [sha256.Size]byte, has bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	shown, has = s.shown[name]
	return shown, has
}

func (s *session) readAt() time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.listed
}

// accepted are the digests of the accepted definitions of a tool.
func (s *server) accepted(name string) (list [][sha256.Size]byte) {
	for _, def := range s.config.Accepted(s.spec.Tenant, s.spec.Name, name) {
		list = append(list, digest(def))
	}
	return list
}

// undisputed is got as it may be stored while other persons' sessions are open, because
// one person's session does not answer for another's. An accepted definition does not
// replace another one that such a session shows, and a tool that such a session shows is
// not gone.
func (s *server) undisputed(sess *session, got Definitions, all bool) Definitions {
	if s.config.Accepted == nil {
		return got
	}
	others := slices.DeleteFunc(s.personalSessions(sess.state.tenant, 0), func(o *session) bool { return o == sess })
	if len(others) == 0 {
		return got
	}
	known, why := sess.state.defs.byName()
	cloned := false
	clone := func() {
		if !cloned {
			got.Tools, got.Withheld, cloned = slices.Clone(got.Tools), maps.Clone(got.Withheld), true
		}
	}
	withhold := func(name string) {
		if text := why[name]; text != "" {
			if got.Withheld == nil {
				got.Withheld = make(map[string]string)
			}
			got.Withheld[name] = text
		}
	}
	here := make(map[string]bool, len(got.Tools))
	for i, def := range got.Tools {
		name := mcp.Text(def, "name")
		here[name] = true
		old := known[name]
		if old == nil || bytes.Equal(old, def) {
			continue
		}
		accepted := s.accepted(name)
		if !slices.Contains(accepted, digest(def)) || slices.Contains(accepted, digest(old)) {
			continue
		}
		if !slices.ContainsFunc(others, func(o *session) bool { return o.showsOther(name, accepted) }) {
			continue
		}
		clone()
		got.Tools[i] = old
		delete(got.Withheld, name)
		withhold(name)
	}
	if !s.whole(sess, all) {
		return got // complete adds the known tools
	}
	last, _ := sess.state.defs.get()
	for _, old := range last.Tools {
		name := mcp.Text(old, "name")
		if here[name] || !slices.ContainsFunc(others, func(o *session) bool { _, has := o.shows(name); return has }) {
			continue
		}
		clone()
		here[name] = true
		got.Tools = append(got.Tools, old)
		withhold(name)
	}
	return got
}
