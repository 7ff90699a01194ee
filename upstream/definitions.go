package upstream

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/mcp"
)

const (
	// maxPages bounds one list.
	maxPages = 1000
	// refreshEvery is the least time between two readings that a server asks for, and
	// after which a new session reads the lists again.
	refreshEvery = time.Second
	refreshAfter = time.Minute
)

// Definitions is what a server offers: the latest that could be read whole. The
// raw elements are as the server wrote them, in its order.
type Definitions struct {
	Tools, Prompts, Resources, Templates [][]byte

	Info
	At time.Time // when they were read
	// Stale says why a later reading failed; nil if the latest one worked.
	Stale error
}

// definitions keeps them for one tenant.
type definitions struct {
	mu        sync.Mutex
	have      bool
	last      Definitions
	params    map[string][]mcp.HeaderParam // by tool; nil until asked for
	reading   *reading
	scheduled bool
	dirty     bool // a change was told of since the scheduled reading began
	ended     time.Time
	took      time.Duration
}

// reading is one reading that several wait for.
type reading struct {
	done chan struct{}
	err  error
}

// get is what there is.
func (d *definitions) get() (Definitions, bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.last, d.have
}

// tools is how many there are.
func (d *definitions) tools() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return len(d.last.Tools)
}

// headerParams are the arguments of a tool that ride as headers.
func (d *definitions) headerParams(tool string) []mcp.HeaderParam {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.params == nil {
		d.params = make(map[string][]mcp.HeaderParam)
		for _, def := range d.last.Tools {
			// A tool with a broken mark gets no headers; its server refuses the call.
			if list, err := mcp.HeaderParams(mcp.Get(def, "inputSchema")); err == nil && list != nil {
				d.params[mcp.Text(def, "name")] = list
			}
		}
	}
	return d.params[tool]
}

// definitionsFor gives what is known, and reads it first where nothing is.
func (s *server) definitionsFor(ctx context.Context, p *toolkeep.Principal, anew bool) (Definitions, error) {
	st := s.state(p.Tenant)
	if d, ok := st.defs.get(); ok && !anew {
		return d, nil
	}
	sl, e := s.acquire(ctx, locate(s.spec, &Request{Principal: p}), p)
	if e != nil {
		st.defs.failed(e)
		d, ok := st.defs.get()
		if ok && !anew {
			return d, nil
		}
		return d, e
	}
	err := s.refresh(ctx, sl.sess)
	s.release(sl)
	d, ok := st.defs.get()
	if err != nil && (!ok || anew) {
		return d, err
	}
	return d, nil
}

func (d *definitions) failed(err error) {
	d.mu.Lock()
	d.last.Stale = err
	d.mu.Unlock()
}

// refresh reads the lists over a session, or waits for whoever is at it.
func (s *server) refresh(ctx context.Context, sess *session) error {
	d := sess.state.defs
	d.mu.Lock()
	r := d.reading
	mine := r == nil
	if mine {
		r = &reading{done: make(chan struct{})}
		d.reading = r
	}
	d.mu.Unlock()
	if !mine {
		select {
		case <-r.done:
			return r.err
		case <-ctx.Done():
			return s.explain(ctx, &failure{cause: ctx.Err()})
		}
	}
	began := time.Now()
	got, err := s.read(ctx, sess)
	d.mu.Lock()
	d.reading, d.ended, d.took = nil, time.Now(), time.Since(began)
	news := false
	if err != nil {
		d.last.Stale = err
	} else {
		news = !d.have || !sameDefinitions(&d.last, &got)
		d.last, d.have, d.params = got, true, nil
	}
	d.mu.Unlock()
	r.err = err
	close(r.done)
	if err != nil {
		sess.state.log.note("the lists cannot be read: " + s.clean(err.Error()))
	} else if news && s.config.OnDefinitions != nil {
		s.config.OnDefinitions(s.spec.Name, sess.state.tenant, got)
	}
	return err
}

func sameDefinitions(a, b *Definitions) bool {
	same := func(x, y [][]byte) bool { return slices.EqualFunc(x, y, bytes.Equal) }
	return same(a.Tools, b.Tools) && same(a.Prompts, b.Prompts) && same(a.Resources, b.Resources) &&
		same(a.Templates, b.Templates) && bytes.Equal(a.Server, b.Server) && bytes.Equal(a.Capabilities, b.Capabilities) &&
		a.Instructions == b.Instructions && a.Version == b.Version
}

// read reads all lists. One that fails fails the whole: half a list must not pass
// for tools that are gone.
func (s *server) read(ctx context.Context, sess *session) (Definitions, error) {
	d := Definitions{Info: sess.info}
	for _, l := range []struct {
		method, member, capability string
		to                         *[][]byte
	}{
		{mcp.MethodListTools, "tools", "tools", &d.Tools},
		{mcp.MethodListPrompts, "prompts", "prompts", &d.Prompts},
		{mcp.MethodListResources, "resources", "resources", &d.Resources},
		{mcp.MethodListResourceTemplates, "resourceTemplates", "resources", &d.Templates},
	} {
		// Servers that forget to declare tools have them all the same.
		if l.capability != "tools" && mcp.Get(sess.info.Capabilities, l.capability) == nil {
			continue
		}
		list, err := s.list(ctx, sess, l.method, l.member)
		if err != nil {
			return d, err
		}
		*l.to = list
	}
	d.At = s.config.Clock()
	return d, nil
}

// list reads every page of one list. A server without the method has none.
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

// changed reads the lists again because the server said so, or because a session
// is new. Readings follow each other at a distance that grows with what they cost,
// however often the server says it.
func (s *server) changed(sess *session) {
	d := sess.state.defs
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

// spawn starts work that Stop waits for; false once the server is closed.
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
		if !d.dirty || sess.link.ctx.Err() != nil {
			d.scheduled = false
			d.mu.Unlock()
			return
		}
		if wait <= 0 {
			d.dirty = false
		}
		d.mu.Unlock()
		if wait > 0 {
			pause(sess.link.ctx, wait)
			continue
		}
		ctx, cancel := context.WithTimeout(sess.link.ctx, 10*s.spec.CallTimeout)
		_ = s.refresh(ctx, sess)
		cancel()
	}
}

// fresh reads the lists for a new session, if the latest reading is old.
func (s *server) fresh(sess *session) {
	if s.config.OnDefinitions == nil {
		return
	}
	d := sess.state.defs
	d.mu.Lock()
	recent := d.have && time.Since(d.ended) < refreshAfter
	d.mu.Unlock()
	if !recent {
		s.changed(sess)
	}
}
