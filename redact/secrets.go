package redact

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
	"unicode/utf8"
	"unsafe"
)

const (
	// Marker replaces redacted text.
	Marker = "[REDACTED]"

	// linger is how long a value is still redacted after its last release, because an upstream's late response or a
	// queued log line may contain it.
	linger = 60 * time.Second

	// minLength excludes values that are frequent in ordinary text. A secret of three characters protects nothing,
	// and redacting it would break words, numbers and structure.
	minLength = 4
)

// Secrets is a set of values to redact. Use NewSecrets; the zero value is not ready. All methods are safe for
// concurrent use, and those that clean do not lock.
type Secrets struct {
	clock func() time.Time
	snap  atomic.Pointer[snapshot]
	lapse atomic.Int64 // when the first released value expires, in Unix nanoseconds; 0 is never

	mu    sync.Mutex // guards the fields below and replacing snap
	held  map[string]*hold
	old   *snapshot // with the values held when it was made
	fresh []*value  // added since
	dead  int       // number of expired values in both
}

// mostFresh is how many added values trigger a rebuild.
const mostFresh = 64

type hold struct {
	*value
	refs  int
	until time.Time // when to forget it, if refs is 0
}

// NewSecrets makes an empty Secrets; a nil clock is time.Now.
func NewSecrets(clock func() time.Time) *Secrets {
	if clock == nil {
		clock = time.Now
	}
	s := &Secrets{clock: clock, held: map[string]*hold{}, old: &nothing}
	s.snap.Store(s.old)
	return s
}

// Hold redacts values until 60 s after their last release. Values of fewer than 4 characters are ignored (see
// minLength), and so are parts of the marker. Whitespace around a value, such as the line end of a file, does not
// count. release may be called more than once and never blocks for long.
func (s *Secrets) Hold(values ...string) (release func()) {
	keys := worth(values)
	if len(keys) == 0 {
		return func() {}
	}
	s.mu.Lock()
	changed := s.forget()
	var added []*value
	for _, k := range keys {
		h := s.held[k]
		if h == nil {
			h = &hold{value: newValue(k)}
			s.held[k] = h
			added = append(added, h.value)
		}
		h.refs++
	}
	if changed || added != nil {
		s.publish(added)
	}
	s.mu.Unlock()
	var once sync.Once
	return func() { once.Do(func() { s.release(keys) }) }
}

// worth returns the values to hold, each once.
func worth(values []string) []string {
	keys := make([]string, 0, len(values))
	for _, v := range values {
		v = strings.TrimSpace(v)
		if utf8.RuneCountInString(v) < minLength || strings.Contains(Marker, v) || slices.Contains(keys, v) {
			continue
		}
		keys = append(keys, v)
	}
	return keys
}

func (s *Secrets) release(keys []string) {
	until := s.clock().Add(linger)
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, k := range keys {
		h := s.held[k]
		if h.refs--; h.refs == 0 {
			h.until = until
			if due := s.lapse.Load(); due == 0 || until.UnixNano() < due {
				s.lapse.Store(until.UnixNano())
			}
		}
	}
}

// forget drops expired values and reports whether there were any. The caller holds mu.
func (s *Secrets) forget() bool {
	due := s.lapse.Load()
	if due == 0 || s.clock().UnixNano() < due {
		return false
	}
	now, next, dropped := s.clock(), int64(0), false
	for k, h := range s.held {
		switch {
		case h.refs > 0:
		case !now.Before(h.until):
			delete(s.held, k)
			h.gone.Store(true)
			s.dead++
			dropped = true
		case next == 0 || h.until.UnixNano() < next:
			next = h.until.UnixNano()
		}
	}
	s.lapse.Store(next)
	return dropped
}

// nothing is the empty snapshot.
var nothing snapshot

// publish makes added values visible to readers. Expired values are already invisible and are cleared occasionally.
// The caller holds mu.
func (s *Secrets) publish(added []*value) {
	switch {
	case len(s.held) == 0:
		s.old, s.fresh, s.dead = &nothing, nil, 0
		s.snap.Store(s.old)
	case len(s.fresh)+len(added) > mostFresh || s.dead > max(mostFresh, len(s.held)):
		all := make([]*value, 0, len(s.held))
		for _, h := range s.held {
			all = append(all, h.value)
		}
		s.old, s.fresh, s.dead = nothing.with(0, all), nil, 0
		s.snap.Store(s.old)
	case len(added) > 0:
		s.fresh = append(s.fresh, added...)
		s.snap.Store(s.old.with(1, s.fresh))
	}
}

// current returns the snapshot to clean with. It forgets expired values if no other goroutine is doing so.
func (s *Secrets) current() *snapshot {
	if due := s.lapse.Load(); due != 0 && s.clock().UnixNano() >= due && s.mu.TryLock() {
		if s.forget() {
			s.publish(nil)
		}
		s.mu.Unlock()
	}
	return s.snap.Load()
}

// count returns the number of known values.
func (s *Secrets) count() int {
	s.current()
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.held)
}

// Holds reports whether any value is held or still lingers.
func (s *Secrets) Holds() bool { return !s.current().empty() }

// Clean returns text with every secret replaced by Marker, or text itself if there is none. It knows no syntax
// beyond escapes: a secret that is a bare number in serialised JSON leaves invalid JSON. CleanValue keeps trees
// valid.
func (s *Secrets) Clean(text string) string {
	l := s.look()
	spans := l.find(text)
	if len(spans) == 0 {
		return text
	}
	return replace(text, spans)
}

// CleanBytes is Clean for bytes. It returns b itself if there is no secret and new bytes otherwise; b is not
// modified.
func (s *Secrets) CleanBytes(b []byte) []byte {
	// The string does not outlive b: find only compares, and replace copies.
	text := unsafe.String(unsafe.SliceData(b), len(b))
	l := s.look()
	spans := l.find(text)
	if len(spans) == 0 {
		return b
	}
	return []byte(replace(text, spans))
}

// CleanValue redacts the strings, names and numbers of a JSON tree. It returns v itself if there is no secret;
// changed parts are copied, v is not modified. A number that is a secret becomes the string Marker.
func (s *Secrets) CleanValue(v any) any {
	l := s.look()
	v, _ = l.value(v)
	return v
}

func (s *Secrets) look() (l look) {
	l.add(s)
	l.personal = l.n
	return l
}

// look is one search in one or several Secrets.
type look struct {
	snaps    [8]*snapshot // an array, because a slice would be on the heap
	n        int
	more     []*snapshot // those that do not fit into snaps
	personal int         // from this index on they are persons'
	bare     bool        // tokens are not looked for
	found    bool        // a person's value was found
}

func (l *look) add(s *Secrets) {
	snap := s.current()
	switch {
	case snap.empty():
		return
	case l.n < len(l.snaps):
		l.snaps[l.n] = snap
	default:
		l.more = append(l.more, snap)
	}
	l.n++
}

func (l *look) snap(i int) *snapshot {
	if i < len(l.snaps) {
		return l.snaps[i]
	}
	return l.more[i-len(l.snaps)]
}

// value returns v itself, not a copy of its interface, if nothing changes.
func (l *look) value(v any) (any, bool) {
	switch t := v.(type) {
	case string:
		if spans := l.find(t); len(spans) > 0 {
			return replace(t, spans), true
		}
	case json.Number:
		if len(l.find(string(t))) > 0 {
			return Marker, true
		}
	case map[string]any:
		if out := l.object(t); out != nil {
			return out, true
		}
	case []any:
		var out []any
		for i, e := range t {
			if w, ok := l.value(e); ok {
				if out == nil {
					out = slices.Clone(t)
				}
				out[i] = w
			}
		}
		if out != nil {
			return out, true
		}
	}
	return v, false
}

// object returns nil if nothing changes.
func (l *look) object(obj map[string]any) map[string]any {
	var out map[string]any
	var dirty []string
	for k, e := range obj {
		if w, ok := l.value(e); ok {
			if out == nil {
				out = maps.Clone(obj)
			}
			out[k] = w
		}
		if len(l.find(k)) > 0 {
			dirty = append(dirty, k)
		}
	}
	if len(dirty) == 0 {
		return out
	}
	if out == nil {
		out = maps.Clone(obj)
	}
	slices.Sort(dirty)
	for _, k := range dirty {
		e := out[k]
		delete(out, k)
		name := replace(k, l.find(k))
		for _, taken := out[name]; taken; _, taken = out[name] {
			name += "'" // two names must not merge
		}
		out[name] = e
	}
	return out
}

// span is a part of a text, end exclusive.
type span struct{ start, end int }

func (l *look) find(text string) []span {
	spans, _ := l.search(text, false)
	return spans
}

// search is find in a text that may go on; more and open are those of findTokens.
func (l *look) search(text string, more bool) (spans []span, open func(byte) bool) {
	if !l.bare {
		spans, open = findTokens(text, nil, more)
	}
	if len(text) < minLength {
		return spans, open
	}
	for i := range l.n {
		if i < l.personal {
			spans = l.snap(i).find(text, spans)
			continue
		}
		own := l.snap(i).find(text, nil)
		l.found = l.found || len(own) > 0
		spans = append(spans, own...)
	}
	return spans, open
}

func replace(text string, spans []span) string {
	slices.SortFunc(spans, func(a, b span) int { return a.start - b.start })
	var b strings.Builder
	b.Grow(len(text) + len(Marker)*min(len(spans), 8))
	at := 0
	for i := 0; i < len(spans); {
		start, end := spans[i].start, spans[i].end
		for i++; i < len(spans) && spans[i].start <= end; i++ {
			end = max(end, spans[i].end)
		}
		b.WriteString(text[at:start])
		b.WriteString(Marker)
		at = end
	}
	b.WriteString(text[at:])
	return b.String()
}
