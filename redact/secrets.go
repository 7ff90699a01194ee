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
	// Marker stands in the place of what was taken out.
	Marker = "[REDACTED]"

	// linger is how long a value stays known after its last release, because an
	// upstream's late answer or a log line behind a queue may still hold it.
	linger = 60 * time.Second

	// minLength keeps out values that ordinary text is full of. A secret of three
	// characters protects nothing, while taking it out would tear words, numbers
	// and structure apart.
	minLength = 4
)

// Secrets knows what to take out. The zero value is not ready; use NewSecrets.
// All methods are safe for concurrent use, and those that clean do not lock.
type Secrets struct {
	clock func() time.Time
	snap  atomic.Pointer[snapshot]
	lapse atomic.Int64 // when the first released value is due, in Unix nanoseconds; 0 is never

	mu   sync.Mutex // guards held and who replaces snap
	held map[string]*hold
}

type hold struct {
	refs  int
	until time.Time // when to forget it, once refs is 0
}

// NewSecrets makes an empty Secrets; clock is time.Now where nil.
func NewSecrets(clock func() time.Time) *Secrets {
	if clock == nil {
		clock = time.Now
	}
	s := &Secrets{clock: clock, held: map[string]*hold{}}
	s.snap.Store(&snapshot{})
	return s
}

// Hold makes values known until 60 s after their last release. Values of fewer
// than 4 characters are ignored (see minLength), and so are parts of the marker.
// Space around a value, such as the line end of a file, does not count. release
// may be called more than once and never blocks for long.
func (s *Secrets) Hold(values ...string) (release func()) {
	keys := make([]string, 0, len(values))
	for _, v := range values {
		v = strings.TrimSpace(v)
		if utf8.RuneCountInString(v) < minLength || strings.Contains(Marker, v) || slices.Contains(keys, v) {
			continue
		}
		keys = append(keys, v)
	}
	if len(keys) == 0 {
		return func() {}
	}
	s.mu.Lock()
	changed := s.forget()
	for _, k := range keys {
		h := s.held[k]
		if h == nil {
			h = &hold{}
			s.held[k] = h
			changed = true
		}
		h.refs++
	}
	if changed {
		s.rebuild()
	}
	s.mu.Unlock()
	var once sync.Once
	return func() { once.Do(func() { s.release(keys) }) }
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

// forget drops values that are past their time and tells whether there were any.
// The caller holds mu.
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
			dropped = true
		case next == 0 || h.until.UnixNano() < next:
			next = h.until.UnixNano()
		}
	}
	s.lapse.Store(next)
	return dropped
}

func (s *Secrets) rebuild() {
	s.snap.Store(newSnapshot(slices.Sorted(maps.Keys(s.held))))
}

// current is the snapshot to clean with. Where a value is due to be forgotten
// and nobody else is at it, it is forgotten now.
func (s *Secrets) current() *snapshot {
	if due := s.lapse.Load(); due != 0 && s.clock().UnixNano() >= due && s.mu.TryLock() {
		if s.forget() {
			s.rebuild()
		}
		s.mu.Unlock()
	}
	return s.snap.Load()
}

// Holds tells whether any value is held or was until a short while ago.
func (s *Secrets) Holds() bool { return len(s.current().index) > 0 }

// Clean gives text with every secret replaced by Marker, or text itself where
// there is none. It knows nothing of the text's syntax beyond escapes: a secret
// that stands as a bare number in serialised JSON leaves text that is no JSON.
// CleanValue keeps trees whole.
func (s *Secrets) Clean(text string) string {
	spans := find(text, s.current())
	if len(spans) == 0 {
		return text
	}
	return replace(text, spans)
}

// CleanBytes is Clean for bytes. It gives b itself where there is no secret and
// new bytes otherwise; b is not modified.
func (s *Secrets) CleanBytes(b []byte) []byte {
	// The string is not kept: find only compares, and replace copies.
	text := unsafe.String(unsafe.SliceData(b), len(b))
	spans := find(text, s.current())
	if len(spans) == 0 {
		return b
	}
	return []byte(replace(text, spans))
}

// CleanValue cleans the strings, names and numbers of a JSON tree. It gives v
// itself where there is no secret; what changes is copied, v is not modified. A
// number that is a secret becomes the string Marker.
func (s *Secrets) CleanValue(v any) any {
	v, _ = cleanValue(v, s.current())
	return v
}

// cleanValue gives v itself, and not a copy of its interface, where nothing changes.
func cleanValue(v any, snap *snapshot) (any, bool) {
	switch t := v.(type) {
	case string:
		if spans := find(t, snap); len(spans) > 0 {
			return replace(t, spans), true
		}
	case json.Number:
		if len(find(string(t), snap)) > 0 {
			return Marker, true
		}
	case map[string]any:
		if out := cleanObject(t, snap); out != nil {
			return out, true
		}
	case []any:
		var out []any
		for i, e := range t {
			if w, ok := cleanValue(e, snap); ok {
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

// cleanObject gives nil where nothing changes.
func cleanObject(obj map[string]any, snap *snapshot) map[string]any {
	var out map[string]any
	var dirty []string
	for k, e := range obj {
		if w, ok := cleanValue(e, snap); ok {
			if out == nil {
				out = maps.Clone(obj)
			}
			out[k] = w
		}
		if len(find(k, snap)) > 0 {
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
		name := replace(k, find(k, snap))
		for _, taken := out[name]; taken; _, taken = out[name] {
			name += "'" // two names must not become one
		}
		out[name] = e
	}
	return out
}

// span is a part of a text, end exclusive.
type span struct{ start, end int }

func find(text string, snap *snapshot) []span {
	spans := findTokens(text, nil)
	if len(snap.index) == 0 || len(text) < minLength {
		return spans
	}
	return snap.find(text, spans)
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
