package mcpserver

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/toolkeep/toolkeep/face/gate"
	"github.com/toolkeep/toolkeep/mcp"
)

// stream is the log of one event stream: events sent or to be sent. The log is bounded by dropping
// progress and notices, oldest first; answers and questions stay.
type stream struct {
	id  string // within the session; "" if it cannot be resumed
	log *slog.Logger

	maxEvents int

	mu      sync.Mutex
	events  []event
	seq     int // of the newest event
	taken   int // newest event taken by a reader
	bytes   int // of events that may be dropped
	size    int // of all events
	dropped int
	done    bool
	reader  *reader // nil without a reader
}

type event struct {
	seq  int
	data []byte // nil: the event only carries its id
	keep bool
	key  string // an event not yet taken is replaced by the next with the same key
}

// reader is one HTTP request that the stream is written to.
type reader struct {
	wake chan struct{}
	gone chan struct{} // closed when another reader takes over
}

func (s *Server) newStream(id string) *stream {
	return &stream{id: id, log: s.log, maxEvents: s.limits.streamEvents}
}

// add appends an event; it never blocks. It returns false if the stream has ended.
func (st *stream) add(data []byte, keep bool, key string) bool {
	st.mu.Lock()
	defer st.mu.Unlock()
	if st.done {
		return false
	}
	if !st.replace(data, key) {
		st.seq++
		st.events = append(st.events, event{seq: st.seq, data: data, keep: keep, key: key})
		st.size += len(data)
		if !keep {
			st.bytes += len(data)
		}
		st.shrink()
	}
	st.poke()
	return true
}

// maxWaiting is how many events of one key may wait before the latest replaces the one before it. A
// reader that is briefly late misses nothing.
const maxWaiting = 8

// progressKey is the prefix of progress keys; for other notices the latest is enough.
const progressKey = "progress "

// replace replaces the newest untaken event of the same key with data, if enough of them wait.
func (st *stream) replace(data []byte, key string) bool {
	if key == "" {
		return false
	}
	newest, waiting := -1, 0
	for i := len(st.events) - 1; i >= 0 && st.events[i].seq > st.taken; i-- {
		if st.events[i].key == key {
			if waiting++; newest < 0 {
				newest = i
			}
		}
	}
	if waiting >= maxWaiting || waiting > 0 && !strings.HasPrefix(key, progressKey) {
		e := &st.events[newest]
		st.bytes += len(data) - len(e.data)
		st.size += len(data) - len(e.data)
		e.data = data
		return true
	}
	return false
}

// shrink drops the oldest droppable events until the log fits.
func (st *stream) shrink() {
	for len(st.events) > st.maxEvents || st.bytes > streamBytes {
		i := 0
		for i < len(st.events) && st.events[i].keep {
			i++
		}
		if i == len(st.events) {
			return
		}
		if st.events[i].seq > st.taken {
			if st.dropped == 0 {
				st.log.Warn("a reader of an event stream is too slow; events that it did not read in time are dropped, responses are kept", "stream", st.id)
			}
			st.dropped++
		}
		st.bytes -= len(st.events[i].data)
		st.size -= len(st.events[i].data)
		st.events = append(st.events[:i], st.events[i+1:]...)
	}
}

func (st *stream) poke() {
	if st.reader == nil {
		return
	}
	select {
	case st.reader.wake <- struct{}{}:
	default:
	}
}

// end marks the stream as complete.
func (st *stream) end() {
	st.mu.Lock()
	defer st.mu.Unlock()
	st.done = true
	st.poke()
}

// held reports whether a client has an event's id, or is about to get one.
func (st *stream) held() bool {
	st.mu.Lock()
	defer st.mu.Unlock()
	return st.taken > 0
}

// attach creates a reader. An existing reader is displaced, or with takeOver false the new one is
// refused.
func (st *stream) attach(takeOver bool) (*reader, bool) {
	st.mu.Lock()
	defer st.mu.Unlock()
	if st.reader != nil {
		if !takeOver {
			return nil, false
		}
		close(st.reader.gone)
	}
	st.reader = &reader{wake: make(chan struct{}, 1), gone: make(chan struct{})}
	st.reader.wake <- struct{}{} // there may already be events
	return st.reader, true
}

func (st *stream) detach(rd *reader) {
	st.mu.Lock()
	defer st.mu.Unlock()
	if st.reader == rd {
		st.reader = nil
	}
}

// take returns the events after a number, and whether the stream ends with them.
func (st *stream) take(rd *reader, after int, dst []event) (list []event, over bool) {
	st.mu.Lock()
	defer st.mu.Unlock()
	if st.reader != rd {
		return dst, false
	}
	for i := range st.events {
		if st.events[i].seq > after {
			dst = append(dst, st.events[i])
		}
	}
	st.taken = max(st.taken, st.seq)
	return dst, st.done
}

func (st *stream) weight() int {
	st.mu.Lock()
	defer st.mu.Unlock()
	return st.size + 64*len(st.events)
}

// eventID returns the id of an event of a resumable stream.
func eventID(stream string, seq int) string { return stream + "-" + strconv.Itoa(seq) }

// parseEventID parses an eventID.
func parseEventID(id string) (stream string, seq int, ok bool) {
	stream, number, ok := strings.Cut(id, "-")
	if !ok || stream == "" {
		return "", 0, false
	}
	seq, err := strconv.Atoi(number)
	return stream, seq, err == nil && seq >= 0
}

// eventWriter writes events to one HTTP response. Only one goroutine uses it.
type eventWriter struct {
	w      http.ResponseWriter
	rc     *http.ResponseController
	within time.Duration
	buf    []byte
}

func newEventWriter(w http.ResponseWriter, within time.Duration) *eventWriter {
	return &eventWriter{w: w, rc: http.NewResponseController(w), within: within}
}

var (
	typeEvents = []string{"text/event-stream"}
	noCache    = []string{"no-cache, no-transform"}
	noBuffer   = []string{"no"}
)

// open sends the headers, and a comment so that proxies forward them at once.
func (e *eventWriter) open() bool {
	h := e.w.Header()
	h["Content-Type"], h["Cache-Control"], h["X-Accel-Buffering"] = typeEvents, noCache, noBuffer
	e.buf = append(e.buf[:0], ": ok\n\n"...)
	return e.flush()
}

func (e *eventWriter) flush() bool {
	// A writer without deadlines (a test's recorder) has no slow client either.
	_ = e.rc.SetWriteDeadline(time.Now().Add(e.within))
	_, err := e.w.Write(e.buf)
	if err == nil {
		if err = e.rc.Flush(); errors.Is(err, errors.ErrUnsupported) {
			err = nil // the wrapping writer flushes on its own
		}
	}
	_ = e.rc.SetWriteDeadline(time.Time{})
	e.buf = e.buf[:0]
	return err == nil
}

func (e *eventWriter) comment(text string) bool {
	e.buf = append(append(append(e.buf[:0], ": "...), text...), "\n\n"...)
	return e.flush()
}

func (e *eventWriter) events(stream string, list []event) bool {
	e.buf = e.buf[:0]
	for _, ev := range list {
		out := mcp.Event{Data: ev.data}
		if ev.data == nil {
			out.Retry = reconnectAfter
		}
		if stream != "" {
			out.ID = eventID(stream, ev.seq)
		}
		e.buf = mcp.AppendEvent(e.buf, out)
		if len(e.buf) > 64<<10 && !e.flush() {
			return false
		}
	}
	return len(e.buf) == 0 || e.flush()
}

// reconnectAfter is how long a client that lost a stream should wait; the priming event carries it.
const reconnectAfter = 500 * time.Millisecond

// pump writes a stream to one client until the stream is over, the client is gone, the reader is
// displaced, the server closes, or may returns false. The caller opens the writer.
func (s *Server) pump(ctx context.Context, e *eventWriter, st *stream, rd *reader, after int, may func() bool) {
	defer st.detach(rd)
	tick := time.NewTicker(s.limits.KeepAlive)
	defer tick.Stop()
	check := time.NewTicker(gate.StillEvery)
	defer check.Stop()
	var list []event
	for {
		select {
		case <-ctx.Done():
			return
		case <-rd.gone:
			return
		case <-s.closing:
			// Existing events are written first.
			if list, _ = st.take(rd, after, list[:0]); len(list) > 0 {
				e.events(st.id, list)
			}
			return
		case <-check.C:
			if !may() {
				return
			}
		case <-tick.C:
			if !e.comment("keep-alive") {
				return
			}
		case <-rd.wake:
			if !may() {
				return
			}
			var over bool
			list, over = st.take(rd, after, list[:0])
			if len(list) > 0 {
				after = list[len(list)-1].seq
				if !e.events(st.id, list) {
					return
				}
				clear(list)
			}
			if over {
				return
			}
		}
	}
}

// prime adds to a session's own stream, once, the event whose id a client can resume from; clients
// before 2025-11-25 do not support events without data.
func (st *stream) prime(version string) {
	st.mu.Lock()
	defer st.mu.Unlock()
	if st.seq > 0 || st.done || version < mcp.V20251125 {
		return
	}
	st.seq++
	st.events = append(st.events, event{seq: st.seq, keep: true})
}

// newest returns the number of the latest event.
func (st *stream) newest() int {
	st.mu.Lock()
	defer st.mu.Unlock()
	return st.seq
}

// newestTaken returns where a reader that lost nothing starts.
func (st *stream) newestTaken() int {
	st.mu.Lock()
	defer st.mu.Unlock()
	return st.taken
}
