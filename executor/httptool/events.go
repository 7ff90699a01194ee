package httptool

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"strconv"
	"strings"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/canon"
	"github.com/toolkeep/toolkeep/egress"
)

// streamed reports whether a content type is an event stream, and returns its parser.
func streamed(contentType string) (next func(*lines) (*event, error), ok bool) {
	switch egress.MediaType(contentType) {
	case "text/event-stream":
		return (*lines).sse, true
	case "application/x-ndjson", "application/ndjson", "application/jsonl", "application/x-jsonl", "application/jsonlines",
		"application/x-jsonlines", "application/json-lines", "application/stream+json", "application/x-json-stream":
		return (*lines).json, true
	case "application/json-seq":
		return (*lines).sequence, true
	}
	return nil, false
}

// event is one element of a stream.
type event struct {
	value any    // added to the result
	data  any    // the part with the data
	text  string // data as received

	repairs canon.Repairs // of JSON that could not be read as it was
}

// lines reads a stream of lines.
type lines struct {
	r     *bufio.Reader
	limit int64 // bytes left to read
	line  int   // number of the latest line
	begun bool
	cr    bool // the last line ended in CR, an LF may follow
	open  bool // the last line has no end yet

	buf []byte
}

// errCap says that the byte limit was reached inside an event.
var errCap = errors.New("the stream is over its limit of bytes")

// brokenEvent says that an element is invalid for the stream's type.
type brokenEvent struct{ why string }

func (e brokenEvent) Error() string { return e.why }

// next reads one line without its end (CRLF, LF, or with cr also CR alone). The bytes
// are valid until the next call. io.EOF follows the last line.
func (l *lines) next(cr bool) ([]byte, error) {
	l.buf = l.buf[:0]
	for {
		if _, err := l.r.Peek(1); err != nil {
			if err == io.EOF && len(l.buf) > 0 {
				l.open = true
				l.line++
				return l.buf, nil
			}
			return nil, err
		}
		chunk, _ := l.r.Peek(l.r.Buffered())
		if l.cr {
			l.cr = false
			if chunk[0] == '\n' {
				l.r.Discard(1)
				continue
			}
		}
		end, n := bytes.IndexByte(chunk, '\n'), len(chunk)
		if cr {
			if i := bytes.IndexByte(chunk[:max(end, 0)], '\r'); i >= 0 {
				end = i
			} else if end < 0 {
				end = bytes.IndexByte(chunk, '\r')
			}
		}
		if end >= 0 {
			n = end
		}
		if l.limit -= int64(n) + 1; l.limit < 0 {
			return nil, errCap
		}
		l.buf = append(l.buf, chunk[:n]...)
		if end < 0 {
			l.limit++
			l.r.Discard(n)
			continue
		}
		l.cr = chunk[end] == '\r'
		l.r.Discard(n + 1)
		l.line++
		if !cr && len(l.buf) > 0 && l.buf[len(l.buf)-1] == '\r' {
			l.buf = l.buf[:len(l.buf)-1]
		}
		if !l.begun {
			l.begun = true
			l.buf = bytes.TrimPrefix(l.buf, []byte("\ufeff"))
		}
		return l.buf, nil
	}
}

// sse reads one event of a text/event-stream by the HTML standard, with one difference:
// a last event without an empty line after it counts if its last line is complete,
// because servers forget the empty line.
//
// The element is an object: data, parsed if it is JSON and text otherwise, and event
// and id if the server names them.
func (l *lines) sse() (*event, error) {
	var data []byte
	var name, id string
	seen := false
	for {
		line, err := l.next(true)
		if err == io.EOF && seen && !l.open {
			return sseEvent(data, name, id), nil
		}
		if err != nil {
			return nil, err
		}
		if len(line) == 0 {
			if seen {
				return sseEvent(data, name, id), nil
			}
			name = ""
			continue
		}
		field, value, _ := bytes.Cut(line, []byte(":"))
		value = bytes.TrimPrefix(value, []byte(" "))
		switch string(field) {
		case "data":
			if seen {
				data = append(data, '\n')
			}
			data, seen = append(data, value...), true
		case "event":
			name = string(value)
		case "id":
			if bytes.IndexByte(value, 0) < 0 {
				id = string(value)
			}
		}
	}
}

func sseEvent(data []byte, name, id string) *event {
	e := &event{text: string(data)}
	var err error
	if e.data, e.repairs, err = canon.ParseLoose(data, eventLimits); err != nil {
		e.data = readable(e.text)
	}
	object := map[string]any{"data": e.data}
	if name != "" {
		object["event"] = readable(name)
	}
	if id != "" {
		object["id"] = readable(id)
	}
	e.value = object
	return e
}

// readable replaces invalid UTF-8 and NUL.
func readable(s string) string {
	return strings.ReplaceAll(strings.ToValidUTF8(s, "\ufffd"), "\x00", "\ufffd")
}

var eventLimits = canon.Limits{Bytes: defaultMaxBytes, Depth: answerDepth, Properties: answerElements, Elements: answerElements}

// json reads one line of NDJSON or JSON Lines, skipping empty lines.
func (l *lines) json() (*event, error) {
	for {
		line, err := l.next(false)
		if err != nil {
			return nil, err
		}
		if text := bytes.TrimSpace(line); len(text) > 0 {
			return l.element(text)
		}
	}
}

// sequence reads one element of a JSON text sequence (RFC 7464): the record separator
// begins it, and anything before the first is skipped.
func (l *lines) sequence() (*event, error) {
	for {
		record, err := l.r.ReadSlice(recordSeparator)
		l.buf = append(l.buf, bytes.TrimSuffix(record, []byte{recordSeparator})...)
		if l.limit -= int64(len(record)); l.limit < 0 {
			return nil, errCap
		}
		if errors.Is(err, bufio.ErrBufferFull) {
			continue
		}
		if err != nil && err != io.EOF {
			return nil, err
		}
		text := bytes.TrimSpace(l.buf)
		l.buf = l.buf[:0]
		if begun := l.begun; begun && len(text) > 0 {
			l.line++
			return l.element(text)
		}
		if err == io.EOF {
			return nil, err
		}
		l.begun = true
	}
}

const recordSeparator = 0x1e

func (l *lines) element(text []byte) (*event, error) {
	v, repairs, err := canon.ParseLoose(text, eventLimits)
	if err != nil {
		// The sentinel is not JSON; the caller, which knows it, decides.
		return &event{text: string(text)}, brokenEvent{"element " + strconv.Itoa(l.line) + " of the stream is not JSON: " + toolkeep.AsError(err).Message}
	}
	return &event{value: v, data: v, text: string(text), repairs: repairs}, nil
}
