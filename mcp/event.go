package mcp

import (
	"bytes"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Event is one server-sent event (WHATWG HTML, 9.2).
type Event struct {
	ID    string        // "" if the event has none
	Name  string        // "" means "message"
	Data  []byte        // nil if the data field is missing or empty
	Retry time.Duration // reconnect delay; 0 if the event has none
}

// AppendEvent appends e to dst. Data with line breaks becomes several data lines; line
// breaks in ID and Name, which cannot be written, are dropped.
func AppendEvent(dst []byte, e Event) []byte {
	dst = slices.Grow(dst, len(e.ID)+len(e.Name)+len(e.Data)+64)
	if e.Name != "" {
		dst = append(appendField(append(dst, "event: "...), e.Name), '\n')
	}
	if e.ID != "" {
		dst = append(appendField(append(dst, "id: "...), e.ID), '\n')
	}
	if e.Retry > 0 {
		dst = strconv.AppendInt(append(dst, "retry: "...), max(1, e.Retry.Milliseconds()), 10)
		dst = append(dst, '\n')
	}
	rest := e.Data
	for {
		i := bytes.IndexAny(rest, "\r\n")
		dst = append(dst, "data: "...)
		if i < 0 {
			dst = append(dst, rest...)
			return append(dst, "\n\n"...)
		}
		dst = append(append(dst, rest[:i]...), '\n')
		if rest[i] == '\r' && i+1 < len(rest) && rest[i+1] == '\n' {
			i++
		}
		rest = rest[i+1:]
	}
}

func appendField(dst []byte, s string) []byte {
	if !strings.ContainsAny(s, "\r\n\x00") {
		return append(dst, s...)
	}
	for i := 0; i < len(s); i++ {
		if c := s[i]; c != '\r' && c != '\n' && c != 0 {
			dst = append(dst, c)
		}
	}
	return dst
}

// DefaultMaxEvent is the size limit if NewEventReader is given 0.
const DefaultMaxEvent = DefaultMaxBytes

// EventReader reads server-sent events. It buffers and is not safe for concurrent use.
type EventReader struct {
	r      io.Reader
	max    int64
	buf    []byte
	at, to int   // buf[at:to] is read but unused
	err    error // of r
	began  bool
	skipLF bool // the last line ended with CR; a following LF belongs to it

	// The current event.
	e       Event
	data    []byte
	hasData bool
	seen    bool
	size    int64
	tooBig  bool
}

// NewEventReader reads events of at most max bytes from r, including field names and
// line breaks; 0 is 100 MB.
func NewEventReader(r io.Reader, max int64) *EventReader {
	if max <= 0 {
		max = DefaultMaxEvent
	}
	return &EventReader{r: r, max: max, buf: make([]byte, 4096)}
}

// Next returns the next event, also one that has only an id or a retry time. The caller
// owns its Data.
//
// io.EOF: the stream ended; an incomplete event is dropped, as the standard requires.
// An error that wraps ErrTooLarge: an event was over the limit and is skipped; the
// returned event has what was read of its id, and Next can be called again. Any other
// error is the reader's.
func (r *EventReader) Next() (Event, error) {
	r.e, r.data, r.hasData, r.seen, r.size, r.tooBig = Event{}, nil, false, false, 0, false
	for {
		line, owned, err := r.line()
		if err != nil {
			return Event{}, err
		}
		if len(line) > 0 {
			r.field(line, owned)
			continue
		}
		if r.tooBig {
			return Event{ID: r.e.ID, Name: r.e.Name}, fmt.Errorf("a server-sent event has more than %d bytes: %w", r.max, ErrTooLarge)
		}
		if !r.seen {
			r.size = 0
			continue
		}
		if len(r.data) > 0 {
			r.e.Data = r.data
		}
		return r.e, nil
	}
}

func (r *EventReader) field(line []byte, owned bool) {
	name, value, _ := bytes.Cut(line, []byte{':'})
	if len(value) > 0 && value[0] == ' ' {
		value = value[1:]
	}
	switch string(name) {
	case "":
		r.size -= int64(len(line)) + 1 // a comment; a quiet stream may consist of comments
		return
	case "event":
		r.e.Name = string(value)
	case "id":
		if bytes.IndexByte(value, 0) >= 0 {
			return
		}
		r.e.ID = string(value)
	case "retry":
		ms, err := strconv.ParseUint(string(value), 10, 31)
		if err != nil || value[0] == '+' {
			return
		}
		r.e.Retry = time.Duration(ms) * time.Millisecond
	case "data":
		switch {
		case r.hasData:
			r.data = append(append(r.data, '\n'), value...)
		case owned:
			r.data = value
		default:
			r.data = append(make([]byte, 0, len(value)), value...)
		}
		r.hasData = true
	default:
		return
	}
	r.seen = true
}

// line reads one line without its end. A line longer than the buffer is copied, and the
// caller owns it (owned). Once the event is over the limit, only whether a line is
// empty is kept.
func (r *EventReader) line() (line []byte, owned bool, err error) {
	var (
		long  []byte
		empty = true
	)
	for {
		chunk, end := r.chunk()
		empty = empty && len(chunk) == 0
		if r.size > r.max && !r.tooBig {
			r.tooBig, r.data, long = true, nil, nil
		}
		switch {
		case end && r.tooBig && !empty:
			return discarded, false, nil
		case end && long == nil:
			return r.bom(chunk), false, nil
		case end:
			return r.bom(append(long, chunk...)), true, nil
		case !r.tooBig && len(chunk) > 0:
			long = append(long, chunk...)
		}
		if err := r.fill(len(long) > 0); err != nil {
			return nil, false, err
		}
	}
}

var (
	discarded = []byte(":") // parsed as a comment
	bom       = []byte("\xef\xbb\xbf")
)

// chunk takes bytes from the buffer up to the line's end, if it is there.
func (r *EventReader) chunk() (chunk []byte, end bool) {
	if r.skipLF && r.at < r.to {
		r.skipLF = false
		if r.buf[r.at] == '\n' {
			r.at++
		}
	}
	chunk = r.buf[r.at:r.to]
	n := bytes.IndexByte(chunk, '\n')
	if n >= 0 {
		chunk = chunk[:n]
	}
	if cr := bytes.IndexByte(chunk, '\r'); cr >= 0 {
		n, chunk = cr, chunk[:cr]
		r.skipLF = true
	}
	r.size += int64(len(chunk))
	if n < 0 {
		r.at = r.to
		return chunk, false
	}
	r.size++
	r.at += n + 1
	return chunk, true
}

// bom strips the byte order mark from the first line.
func (r *EventReader) bom(line []byte) []byte {
	if !r.began {
		r.began = true
		return bytes.TrimPrefix(line, bom)
	}
	return line
}

// fill reads more. The buffer grows for a long line.
func (r *EventReader) fill(long bool) error {
	if r.err != nil {
		return r.err
	}
	if long && len(r.buf) < longBuffer {
		r.buf = make([]byte, longBuffer)
	}
	for range 100 {
		n, err := r.r.Read(r.buf)
		r.at, r.to, r.err = 0, n, err
		if n > 0 {
			return nil
		}
		if err != nil {
			return err
		}
	}
	return io.ErrNoProgress
}

const longBuffer = 64 << 10
