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
	// maxReread is how many open sessions one Recheck reads: those that were read, or tried,
	// the longest ago. rereadAtOnce is how many of them it reads at once.
	maxReread    = 32
	rereadAtOnce = 2
	// rereadTime is how long one of them may take at most; a session that hangs must not
	// delay for long what the others show.
	rereadTime = 10 * time.Second
)

// Recheck reads the tools of a server again in the background. It reads them in the
// tenant's open sessions that belong to persons, each with the credentials that it was
// opened with; such a session is not kept open for that, and no login begins. With alone
// it also reads the server in a session of the tenant, which has no person's credentials;
// err is why that failed. That session is opened only where no other has to end for it,
// and its failures do not count against the server. A tool that no session shows stays as
// it was, except at a server whose sessions are shared. What is known then is announced,
// also if it is not new, and returned.
func (s *Servers) Recheck(ctx context.Context, tenant, name string, alone bool) (d Definitions, err error) {
	p := &toolkeep.Principal{Tenant: tenant}
	srv, err := s.open(p, name)
	if err != nil {
		return Definitions{}, err
	}
	ctx = context.WithValue(ctx, backgroundKey{}, true)
	looked := make(chan struct{}) // the persons' sessions were read
	var all sync.WaitGroup
	if alone {
		all.Go(func() { err = srv.recheckAlone(ctx, p, looked) })
	}
	srv.recheckPersons(ctx, tenant)
	close(looked)
	all.Wait()
	return srv.tellAgain(srv.state(tenant)), err
}

// backgroundKey marks the context of a read that no caller waits for.
type backgroundKey struct{}

// inBackground reports whether no caller waits for what ctx is for.
func inBackground(ctx context.Context) bool { return ctx.Value(backgroundKey{}) != nil }

// recheckAlone reads the server in a session of the tenant, and stores it once looked is
// closed: then what the persons' sessions show is known.
func (s *server) recheckAlone(ctx context.Context, p *toolkeep.Principal, looked <-chan struct{}) error {
	where := s.readingSelector(p)
	where.background = true
	sl, e := s.acquire(ctx, where, p)
	if e != nil {
		return e
	}
	defer s.release(sl)
	got, err := s.readSettled(ctx, sl.sess)
	if err != nil {
		return err
	}
	<-looked
	s.keep(sl.sess, got, false)
	return nil
}

// recheckPersons reads the tools in the open sessions of persons, and stores them once all
// of them are read: one that shows another definition than the accepted one is known then.
func (s *server) recheckPersons(ctx context.Context, tenant string) {
	type reading struct {
		sess *session
		got  Definitions
	}
	var (
		all   sync.WaitGroup
		mu    sync.Mutex
		reads []reading
		held  int64 // bytes of reads
		turn  = make(chan struct{}, rereadAtOnce)
	)
	for _, sess := range s.personalSessions(tenant, maxReread) {
		turn <- struct{}{}
		all.Go(func() {
			defer func() { <-turn }()
			got, err := s.relist(ctx, sess)
			if err != nil {
				s.config.Log.Debug("a session cannot be read again", "server", s.spec.Name, "tenant", tenant, "code", toolkeep.AsError(err).Code)
				return
			}
			got.Tools = s.news(sess.state.defs, got)
			var size int64
			for _, def := range got.Tools {
				size += int64(len(def))
			}
			mu.Lock()
			fits := held+size <= s.spec.MaxResultBytes
			if fits {
				held += size
				reads = append(reads, reading{sess, got})
			}
			mu.Unlock()
			if !fits {
				s.keep(sess, got, false)
			}
		})
	}
	all.Wait()
	slices.SortFunc(reads, func(a, b reading) int { return a.got.read.Compare(b.got.read) })
	for _, r := range reads {
		s.keep(r.sess, r.got, false)
	}
}

// relist reads the tools in one session and notes what it shows.
func (s *server) relist(ctx context.Context, sess *session) (Definitions, error) {
	sess.mu.Lock()
	sess.tried = time.Now()
	sess.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, min(s.spec.CallTimeout, rereadTime))
	defer cancel()
	got, err := s.read(ctx, sess, true)
	if err != nil {
		return got, err
	}
	got.Settled = time.Since(sess.began) >= settleTime
	sess.showed(&got)
	return got, nil
}

// news are the tools that are stored otherwise, or not at all.
func (s *server) news(d *definitions, got Definitions) [][]byte {
	known, why := d.byName()
	seen := make(map[string]bool, len(got.Tools))
	return slices.DeleteFunc(slices.Clone(got.Tools), func(def []byte) bool {
		name := mcp.Text(def, "name")
		if seen[name] {
			return true // the first one stands
		}
		seen[name] = true
		return bytes.Equal(known[name], def) && why[name] == got.Withheld[name]
	})
}

// tellAgain announces what is stored for a tenant, and returns it.
func (s *server) tellAgain(st *tenantState) Definitions {
	d := st.defs
	d.telling.Lock()
	defer d.telling.Unlock()
	d.mu.Lock()
	last, seen := d.last, d.seen
	d.mu.Unlock()
	if seen && s.config.OnDefinitions != nil {
		last.partial = false
		s.config.OnDefinitions(s.spec.Name, st.tenant, last)
	}
	return last
}

// personalSessions returns the tenant's open sessions that belong to persons, those first
// that were read, or tried, the longest ago. most 0 is all.
func (s *server) personalSessions(tenant string, most int) (list []*session) {
	s.mu.Lock()
	for _, sl := range s.slots {
		if sl.key.tenant != tenant || sl.key.subject == "" {
			continue
		}
		select {
		case <-sl.ready:
			if sl.sess != nil && sl.sess.link.ended() == nil && !sl.outdated.Load() {
				list = append(list, sl.sess)
			}
		default:
		}
	}
	s.mu.Unlock()
	if most > 0 && len(list) > most {
		at := make(map[*session]time.Time, len(list))
		for _, sess := range list {
			at[sess] = sess.triedAt()
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

// showed notes which definitions the session shows, the first of each name, and reports
// whether a later read of it was noted before.
func (s *session) showed(got *Definitions) (stale bool) {
	if got.noted {
		s.mu.Lock()
		defer s.mu.Unlock()
		return got.read.Before(s.listed)
	}
	var shown map[string][sha256.Size]byte
	if s.key.subject != "" {
		shown = make(map[string][sha256.Size]byte, len(got.Tools))
		for _, def := range got.Tools {
			name := mcp.Text(def, "name")
			if _, twice := shown[name]; !twice {
				shown[name] = digest(def)
			}
		}
	}
	got.noted = true
	s.mu.Lock()
	defer s.mu.Unlock()
	if got.read.Before(s.listed) {
		return true
	}
	s.shown, s.listed = shown, got.read
	return false
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

// triedAt is when the session was read last, or when that was tried.
func (s *session) triedAt() time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.tried.After(s.listed) {
		return s.tried
	}
	return s.listed
}

// doubled puts a definition that is not accepted before an accepted one of the same name:
// the first of a name stands, and which of them the server runs is unknown.
func (s *server) doubled(tools [][]byte) {
	if s.config.Accepted == nil {
		return
	}
	first := make(map[string]int, len(tools))
	for i, def := range tools {
		name := mcp.Text(def, "name")
		at, twice := first[name]
		if !twice {
			first[name] = i
			continue
		}
		if bytes.Equal(tools[at], def) {
			continue
		}
		if accepted := s.accepted(name); slices.Contains(accepted, digest(tools[at])) && !slices.Contains(accepted, digest(def)) {
			tools[at], tools[i] = def, tools[at]
		}
	}
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
// replace another one that such a session shows. A tool that such a session shows is not
// gone because another person is not shown it. While its definition there is not an
// accepted one, it is not gone because the tenant is not shown it either. late says that
// a later read than got is stored: an accepted definition does not replace that one.
func (s *server) undisputed(sess *session, got Definitions, all, late bool) Definitions {
	if s.config.Accepted == nil {
		return got
	}
	others := slices.DeleteFunc(s.personalSessions(sess.state.tenant, 0), func(o *session) bool { return o == sess })
	if len(others) == 0 && !late {
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
		if !late && !slices.ContainsFunc(others, func(o *session) bool { return o.showsOther(name, accepted) }) {
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
		if here[name] {
			continue
		}
		accepted := s.accepted(name)
		if !late && !slices.ContainsFunc(others, func(o *session) bool {
			_, has := o.shows(name)
			return has && sess.key.subject != "" || o.showsOther(name, accepted)
		}) {
			continue
		}
		clone()
		here[name] = true
		got.Tools = append(got.Tools, old)
		withhold(name)
	}
	return got
}
