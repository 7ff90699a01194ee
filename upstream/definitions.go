package upstream

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/mcp"
)

const (
	// maxPages bounds the pages of one list.
	maxPages = 1000
	// refreshEvery is the least time between two reads that a server triggers, and the
	// age at which a new session reads the lists again.
	refreshEvery = time.Second
	refreshAfter = time.Minute
)

// Definitions are what a server offers, from the latest complete read. The elements are
// raw, in the server's order; secrets that the server was given are replaced by
// redact.Marker.
type Definitions struct {
	Tools, Prompts, Resources, Templates [][]byte

	Info
	Owner string    // the server's: the tenant that it belongs to, "" all
	At    time.Time // time of the read
	Since time.Time // when the session that was read began
	// Settled is false if the server may offer more: the read came so soon after its
	// start that it may still add to its lists, or only sessions were read that may not
	// show everything.
	Settled bool
	// Stale is why a later read failed; nil if the latest one worked.
	Stale error
	// Withheld gives, by name, why some of Tools must not be used.
	Withheld map[string]string

	partial bool      // only the tools were read
	read    time.Time // when the tools came
	noted   bool      // what the session shows was noted
	// lacks is the person whose secret was redacted from them, because they were read
	// in that person's session; the zero value is no person.
	lacks reader
}

// reader is the person that lists are read for.
type reader struct{ subject, behalf string }

// definitions keeps a server's definitions for one tenant.
type definitions struct {
	telling sync.Mutex // one read at a time is stored and announced; taken before mu

	mu        sync.Mutex
	seen      bool // the tools were read
	have      bool // all lists were read
	whole     bool // a session was read that shows every tool
	doubted   bool // a session was lost since
	last      Definitions
	params    map[string][]mcp.HeaderParam // by tool; nil until needed
	digests   map[string][sha256.Size]byte // by tool, those that were needed
	reading   *reading
	scheduled bool
	dirty     bool // a list changed since the scheduled read began
	ended     time.Time
	took      time.Duration
}

// reading is one read that several callers wait for; all: see keep.
type reading struct {
	done chan struct{}
	all  bool
	err  error
}

// get returns the current definitions.
func (d *definitions) get() (Definitions, bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.last, d.have
}

// tools returns the number of tools.
func (d *definitions) tools() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return len(d.last.Tools)
}

// headerParams returns the arguments of a tool that are sent as headers.
func (d *definitions) headerParams(tool string) []mcp.HeaderParam {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.params == nil {
		d.params = make(map[string][]mcp.HeaderParam)
		for _, def := range d.last.Tools {
			// Tools with an invalid header mark are left out, see callable.
			name := mcp.Text(def, "name")
			if _, twice := d.params[name]; twice {
				continue // the first one stands
			}
			if list, err := mcp.HeaderParams(mcp.Get(def, "inputSchema")); err == nil {
				d.params[name] = list
			}
		}
	}
	return d.params[tool]
}

// digest is that of the tool's definition that is stored, the first of its name; zero for none.
func (d *definitions) digest(tool string) (sum [sha256.Size]byte) {
	d.mu.Lock()
	defer d.mu.Unlock()
	sum, known := d.digests[tool]
	if known {
		return sum
	}
	i := slices.IndexFunc(d.last.Tools, func(def []byte) bool { return mcp.Text(def, "name") == tool })
	if i < 0 {
		return sum
	}
	if d.digests == nil {
		d.digests = make(map[string][sha256.Size]byte)
	}
	sum = digest(d.last.Tools[i])
	d.digests[tool] = sum
	return sum
}

// definitionsFor returns the known definitions, and reads them first if there are none.
func (s *server) definitionsFor(ctx context.Context, p *toolkeep.Principal, fresh bool) (Definitions, error) {
	st := s.state(p.Tenant)
	where := s.readingSelector(p)
	// If text was redacted for one person's secret, read again for others.
	if d, ok := st.defs.get(); ok && !fresh && (d.lacks == reader{} || d.lacks == where.key.reader()) {
		return d, nil
	}
	sl, e := s.acquire(ctx, where, p)
	if e != nil {
		_ = st.defs.failed(e)
		d, ok := st.defs.get()
		if ok && !fresh {
			return d, nil
		}
		return d, e
	}
	err := s.reread(ctx, sl.sess, fresh)
	s.release(sl)
	d, ok := st.defs.get()
	if err != nil && (!ok || fresh) {
		return d, err
	}
	return d, nil
}

// readingSelector selects the session for reading the lists for a principal.
func (s *server) readingSelector(p *toolkeep.Principal) sessionSelector {
	where := selectSession(s.spec, &Request{Principal: p})
	if asksClient(s.spec) {
		// Servers offer more tools to a client that answers requests. None is answered
		// in this session, which ends after the read.
		where.caps, where.lease, where.once = declared(s.spec, nil), true, true
	}
	where.reads = true
	return where
}

// compare reads the current definitions without storing them.
func (s *server) compare(ctx context.Context, p *toolkeep.Principal) (Definitions, error) {
	sl, e := s.acquire(ctx, s.readingSelector(p), p)
	if e != nil {
		return Definitions{}, e
	}
	defer s.release(sl)
	got, err := s.readSettled(ctx, sl.sess)
	if err != nil {
		return Definitions{}, err
	}
	d := sl.sess.state.defs
	got = s.undisputed(sl.sess, got, true, false)
	d.mu.Lock()
	defer d.mu.Unlock()
	return s.complete(sl.sess, got, true), nil
}

// failed records why the definitions are stale, and returns the error that may be
// shown.
func (d *definitions) failed(err error) error {
	if toolkeep.IsCode(err, toolkeep.LoginRequired) {
		// The whole tenant sees this error; the login URL is for one principal.
		err = toolkeep.NewError(toolkeep.LoginRequired, "a principal has to log in")
	}
	d.mu.Lock()
	d.last.Stale = err
	d.mu.Unlock()
	return err
}

// refresh reads the lists over a session, or waits for a read under way.
func (s *server) refresh(ctx context.Context, sess *session) error { return s.reread(ctx, sess, false) }

// reread is refresh; with all it serves a request for the definitions.
func (s *server) reread(ctx context.Context, sess *session, all bool) error {
	d := sess.state.defs
	for {
		d.mu.Lock()
		r := d.reading
		if r == nil {
			r = &reading{done: make(chan struct{}), all: all}
			d.reading = r
			d.mu.Unlock()
			r.err = s.readAll(ctx, sess, all)
			d.mu.Lock()
			d.reading = nil
			d.mu.Unlock()
			close(r.done)
			return r.err
		}
		d.mu.Unlock()
		select {
		case <-r.done:
			// A cancelled read proves nothing.
			if (r.all || !all) && (r.err == nil || !toolkeep.IsCode(r.err, toolkeep.Cancelled)) {
				return r.err
			}
		case <-ctx.Done():
			return s.explain(ctx, &failure{cause: ctx.Err()})
		}
	}
}

// readAll reads and stores all lists.
func (s *server) readAll(ctx context.Context, sess *session, all bool) error {
	d := sess.state.defs
	began := time.Now()
	var got Definitions
	var err error
	if all {
		got, err = s.readSettled(ctx, sess)
	} else {
		got, err = s.read(ctx, sess, false)
		got.Settled = time.Since(sess.began) >= settleTime
	}
	d.mu.Lock()
	d.ended, d.took = time.Now(), time.Since(began)
	d.mu.Unlock()
	if err != nil {
		s.unreadable(sess, err)
		return err
	}
	more := s.keep(sess, got, all)
	sess.unread.Store(false)
	if more && !got.Settled {
		s.later(sess)
	}
	return nil
}

func sameDefinitions(a, b *Definitions) bool {
	same := func(x, y [][]byte) bool { return slices.EqualFunc(x, y, bytes.Equal) }
	return same(a.Tools, b.Tools) && same(a.Prompts, b.Prompts) && same(a.Resources, b.Resources) &&
		same(a.Templates, b.Templates) && bytes.Equal(a.Server, b.Server) && bytes.Equal(a.Capabilities, b.Capabilities) &&
		a.Instructions == b.Instructions && a.Version == b.Version && maps.Equal(a.Withheld, b.Withheld)
}

// read reads all lists, or only the tools. If the tools fail, or the connection, the whole
// read fails: a partial list must not look like removed tools. Another list that the
// server refuses keeps what it had.
func (s *server) read(ctx context.Context, sess *session, tools bool) (Definitions, error) {
	d := Definitions{Info: sess.info, Owner: s.spec.Tenant, Since: sess.began, partial: tools}
	for _, l := range []struct {
		method, member, capability string
		in                         func(*Definitions) *[][]byte
	}{
		{mcp.MethodListTools, "tools", "tools", func(d *Definitions) *[][]byte { return &d.Tools }},
		{mcp.MethodListPrompts, "prompts", "prompts", func(d *Definitions) *[][]byte { return &d.Prompts }},
		{mcp.MethodListResources, "resources", "resources", func(d *Definitions) *[][]byte { return &d.Resources }},
		{mcp.MethodListResourceTemplates, "resourceTemplates", "resources", func(d *Definitions) *[][]byte { return &d.Templates }},
	} {
		// Some servers do not declare tools but have them.
		if l.capability != "tools" && (tools || mcp.Get(sess.info.Capabilities, l.capability) == nil) {
			continue
		}
		list, err := s.list(ctx, sess, l.method, l.member)
		switch {
		case err == nil:
			*l.in(&d) = list
			if l.capability == "tools" {
				d.read = time.Now()
			}
		case l.capability != "tools" && toolkeep.IsCode(err, toolkeep.MCPError) && ctx.Err() == nil && sess.link.ended() == nil:
			sess.state.log.note("a list cannot be read: " + err.Error())
			known, _ := sess.state.defs.get()
			*l.in(&d) = *l.in(&known)
		default:
			return d, err
		}
	}
	if sess.modern && sess.proc == nil {
		d.Tools = s.callable(sess, d.Tools)
	}
	d.Tools, d.Withheld = s.taken(sess, d.Tools)
	s.doubled(d.Tools)
	d.At = s.config.Clock()
	return s.ownTaken(sess, d), nil
}

// ownTaken redacts the session owner's secrets from everything but the tools: other
// people see these lists too, and after the session has ended.
func (s *server) ownTaken(sess *session, d Definitions) Definitions {
	if sess.key.subject == "" {
		return d
	}
	cleaner := s.config.Redact.For(principalOf(sess.key, nil)).From(s.spec.upstream())
	d = d.cleaned(cleaner)
	if cleaner.TookPersonal() {
		d.lacks = sess.key.reader()
	}
	return d
}

// callable drops tools whose arguments cannot be sent as the headers they ask for, as
// the revision requires, and logs it.
func (s *server) callable(sess *session, tools [][]byte) [][]byte {
	return slices.DeleteFunc(tools, func(def []byte) bool {
		_, err := mcp.HeaderParams(mcp.Get(def, "inputSchema"))
		if err != nil {
			sess.state.log.note("tool left out: " + toolkeep.ClipBytes(mcp.Text(def, "name"), 100) + ": " + toolkeep.ClipBytes(err.Error(), 300))
		}
		return err != nil
	})
}

// list reads every page of one list. A server without the method has an empty one.
func (s *server) list(ctx context.Context, sess *session, method, name string) ([][]byte, error) {
	var (
		out    [][]byte
		size   int64
		cursor []byte
		seen   = make(map[string]bool)
	)
	for range maxPages {
		var params []byte
		if cursor != nil {
			params = mcp.Set(nil, cursor, "cursor")
		}
		a, err := sess.request(ctx, &outgoing{method: method, params: params})
		var rpc *mcp.Error
		var f *failure
		switch {
		case errors.As(err, &rpc) && rpc.Code == mcp.CodeMethodNotFound && cursor == nil:
			return nil, nil
		case errors.As(err, &rpc):
			return nil, toolkeep.NewError(toolkeep.MCPError, "the MCP server %s answered %s with the error %d", s.spec.Name, method, rpc.Code).
				With("server", s.spec.Name).Because(rpc)
		case errors.As(err, &f):
			return nil, s.explain(ctx, f)
		case err != nil:
			return nil, err
		}
		list := mcp.Get(a.Result, name)
		if len(list) == 0 || list[0] != '[' {
			return nil, broken(s.spec.Name, "its answer to "+method+" has no list "+name)
		}
		if size += int64(len(list)); size > s.spec.MaxResultBytes {
			return nil, tooLarge(s.spec.Name, s.spec.MaxResultBytes)
		}
		for def := range mcp.Elements(list) {
			if len(out) >= s.spec.MaxTools {
				return nil, broken(s.spec.Name, fmt.Sprintf("its list %s has more than %d entries (max_tools)", name, s.spec.MaxTools))
			}
			out = append(out, bytes.Clone(def))
		}
		next := mcp.Get(a.Result, "nextCursor")
		if text, ok := mcp.Unquote(next); !ok || text == "" {
			return out, nil
		}
		if seen[string(next)] {
			return nil, broken(s.spec.Name, "the pages of its list "+name+" go in a circle")
		}
		seen[string(next)] = true
		cursor = bytes.Clone(next)
	}
	return nil, broken(s.spec.Name, fmt.Sprintf("its list %s has more than %d pages", name, maxPages))
}

// changed reads the lists again after a list change or in a new session. The pause
// between reads grows with their cost, however often the server asks.
func (s *server) changed(sess *session) {
	d := sess.state.defs
	if sess.outdated() {
		return
	}
	d.mu.Lock()
	d.dirty = true
	first := !d.scheduled
	d.scheduled = true
	d.mu.Unlock()
	if !first {
		return
	}
	if !s.spawn(func() { s.follow(sess) }) {
		d.mu.Lock()
		d.scheduled = false
		d.mu.Unlock()
	}
}

// spawn starts work that Stop waits for; it returns false once the server is closed.
func (s *server) spawn(f func()) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return false
	}
	s.work.Go(f)
	return true
}

func (s *server) follow(sess *session) {
	d := sess.state.defs
	for {
		d.mu.Lock()
		wait := max(refreshEvery, 10*d.took) - time.Since(d.ended)
		if !d.dirty || sess.link.ctx.Err() != nil || sess.outdated() {
			d.scheduled = false
			d.mu.Unlock()
			return
		}
		if wait <= 0 {
			d.dirty = false
		}
		d.mu.Unlock()
		if wait > 0 {
			toolkeep.Sleep(sess.link.ctx, wait)
			continue
		}
		ctx, cancel := context.WithTimeout(sess.link.ctx, 10*s.spec.CallTimeout)
		_ = s.refresh(ctx, sess)
		cancel()
	}
}
