package transport

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"sync"

	"github.com/toolkeep/toolkeep/canon"
	"github.com/toolkeep/toolkeep/mcp"
)

// LinesConfig configures Lines. The zero value works.
type LinesConfig struct {
	// MaxMessage bounds a line in bytes; 0 is 100 MB.
	MaxMessage int64
	// OnJunk receives the first 200 bytes of a line that is not a valid message.
	OnJunk func(head []byte)
	// Answer sends the JSON-RPC error for a line that is no message, as a server does:
	// with the request's id if one can be read, else null. A broken response gets none.
	Answer bool
	// maxJunk is how many lines in a row may be no message; 0 is 10,000. That many, and
	// at most four times MaxMessage bytes of them, are skipped; more ends the
	// connection.
	maxJunk int
}

// LinesConn is a connection over a pair of byte streams, one message per line, as stdio
// servers use it. It is an mcp.Conn.
type LinesConn struct {
	config LinesConfig
	limits canon.Limits
	r      io.Reader
	w      io.Writer

	in   chan *mcp.Message
	out  chan *line
	done chan struct{} // closed by Close
	gone chan struct{} // closed when the reader has stopped
	err  error         // why it stopped; set before gone is closed

	closing sync.Once
	work    sync.WaitGroup
}

// line is one outgoing message.
type line struct {
	data    []byte
	written chan struct{} // closed when err and sent are set
	err     error
	sent    int
}

var _ mcp.Conn = (*LinesConn)(nil)

// Lines returns a connection that reads from r and writes to w. It starts at once, so
// that a peer is blocked by at most one unread message. Close closes r and w if they
// are io.Closers; if r or w blocks for ever in a Close or a Write, so does Close.
func Lines(r io.Reader, w io.Writer, c LinesConfig) *LinesConn {
	if c.MaxMessage <= 0 {
		c.MaxMessage = mcp.DefaultMaxBytes
	}
	if c.maxJunk <= 0 {
		c.maxJunk = 10_000
	}
	l := &LinesConn{
		config: c, limits: canon.Limits{Bytes: c.MaxMessage}, r: r, w: w,
		in: make(chan *mcp.Message), out: make(chan *line), done: make(chan struct{}), gone: make(chan struct{}),
	}
	l.work.Go(l.read)
	l.work.Go(l.write)
	return l
}

// Read implements mcp.Conn. A batch is returned as single messages. The end of r is
// io.EOF; ErrJunk says that the peer writes too much that is not a message. A response
// that is too large or broken, but whose id can be found, is returned with Lost set.
func (l *LinesConn) Read(ctx context.Context) (*mcp.Message, error) {
	select {
	case m := <-l.in:
		return m, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-l.done:
		return nil, io.EOF
	case <-l.gone:
		return nil, l.err
	}
}

// Write writes the message as one line. If ctx ends before its turn, it is not sent;
// after that it is written to its end, because half a line would break the next one.
// The error is a *SendError.
func (l *LinesConn) Write(ctx context.Context, m *mcp.Message) error {
	// Including the line break, so that one call writes it all.
	x := &line{data: append(m.Bytes(), '\n'), written: make(chan struct{})}
	select {
	case <-l.done:
		return &SendError{NothingSent: true, Err: ErrClosed}
	default:
	}
	select {
	case l.out <- x:
	case <-ctx.Done():
		return &SendError{NothingSent: true, Err: ctx.Err()}
	case <-l.done:
		return &SendError{NothingSent: true, Err: ErrClosed}
	}
	select {
	case <-x.written:
	case <-ctx.Done():
		return &SendError{Err: ctx.Err()}
	}
	if x.err != nil {
		return &SendError{NothingSent: x.sent == 0, Err: x.err}
	}
	return nil
}

// write is the only writing goroutine. After a failure it writes nothing more: the pipe
// may hold half a line.
func (l *LinesConn) write() {
	var broken error
	for {
		select {
		case x := <-l.out:
			if x.err = broken; broken == nil {
				x.sent, x.err = l.w.Write(x.data)
				broken = x.err
			}
			close(x.written)
		case <-l.done:
			return
		}
	}
}

// Close ends the connection. Queued messages are not sent.
func (l *LinesConn) Close() error {
	var errs []error
	l.closing.Do(func() {
		close(l.done)
		for _, side := range []any{l.w, l.r} {
			if c, ok := side.(io.Closer); ok {
				errs = append(errs, c.Close())
			}
		}
	})
	l.work.Wait()
	return errors.Join(errs...)
}

// read is the only reading goroutine.
func (l *LinesConn) read() {
	defer close(l.gone)
	s := scanner{r: bufio.NewReaderSize(l.r, 64<<10), max: l.config.MaxMessage}
	junk, junkBytes := 0, int64(0)
	for {
		data, over, err := s.next()
		if err != nil {
			select {
			case <-l.done: // errors of a closed reader do not matter
				err = io.EOF
			default:
			}
			l.err = err
			return
		}
		list := l.messages(data, over)
		for _, m := range list {
			select {
			case l.in <- m:
			case <-l.done:
				l.err = io.EOF
				return
			}
		}
		if list != nil {
			junk, junkBytes = 0, 0
			continue
		}
		junk++
		junkBytes += s.size
		if junk > l.config.maxJunk || junkBytes > junkFactor*l.config.MaxMessage {
			l.err = ErrJunk
			return
		}
	}
}

// messages parses one line; nil means that it holds no message.
func (l *LinesConn) messages(data []byte, over bool) []*mcp.Message {
	var why error
	var asked []byte // the id of a request
	bad := mcp.NewError(mcp.CodeInvalidRequest, "")
	if !over {
		if len(data) == 0 {
			return []*mcp.Message{}
		}
		canon.MendSurrogates(data)
		list, _, err := mcp.ParseBatch(data, l.limits)
		if err == nil {
			return list
		}
		what := err.Error()
		if e, ok := errors.AsType[*mcp.Error](err); ok {
			what, bad.Code = e.Message, e.Code
		}
		if len(list) == 1 {
			asked = list[0].ID
		}
		bad.Message = what
		why = fmt.Errorf("%w: %s", ErrUnreadable, what)
	} else {
		why = fmt.Errorf("a line has more than %d bytes: %w", l.config.MaxMessage, mcp.ErrTooLarge)
		asked, bad.Message = askedID(data), why.Error()
	}
	id := answeredID(data)
	if l.config.OnJunk != nil && (id == nil || !over) {
		l.config.OnJunk(data[:min(len(data), maxHead)])
	}
	if id != nil { // fail the pending request
		return []*mcp.Message{{ID: id, Lost: why, Err: mcp.NewError(mcp.CodeLost, "the answer was lost: "+why.Error())}}
	}
	if l.config.Answer {
		_ = l.Write(context.Background(), mcp.Refuse(asked, bad)) // where it fails, the peer does not read any more
	}
	return nil
}

// scanner splits a stream into lines.
type scanner struct {
	r    *bufio.Reader
	max  int64
	size int64 // of the latest line
}

const (
	// junkFactor times the message limit is how much consecutive junk is skipped.
	junkFactor = 4
	// slack is the space allowed around a message.
	slack = 64
)

// ends is how much of the beginning and of the end of an oversized line is kept: a
// response has its id in one of them.
const ends = 512

// next reads a line without its break and surrounding space. over: it was longer than
// max and is skipped; data is then its beginning and its end. A last line without a
// break counts. io.EOF is the end; ErrJunk says that the line has no end.
func (s *scanner) next() (data []byte, over bool, err error) {
	var tail []byte
	s.size = 0
	for {
		part, err := s.r.ReadSlice('\n')
		s.size += int64(len(part))
		if s.size > junkFactor*s.max+slack {
			return nil, false, ErrJunk
		}
		if !over && s.size > s.max+slack {
			over = true
			data = append(data, part...)
			tail = last(data, ends)
			data = bytes.Clone(data[:min(len(data), ends)])
		} else if over {
			tail = last(append(tail, part...), ends)
		} else {
			data = append(data, part...)
		}
		switch {
		case err == bufio.ErrBufferFull:
			continue
		case err == io.EOF && s.size > 0:
		case err != nil:
			return nil, false, err
		}
		if over {
			return append(append(data, ' '), bytes.TrimSpace(tail)...), true, nil
		}
		data = bytes.TrimSpace(data)
		if int64(len(data)) <= s.max {
			return data, false, nil
		}
		return data[:min(len(data), 2*ends)], true, nil
	}
}

func last(b []byte, n int) []byte { return bytes.Clone(b[max(0, len(b)-n):]) }

// answeredID finds the id of a broken response, or of one of which only the beginning
// and the end are known. The peer's requests have ids of their own and must not be
// taken for responses, so "result" or "error" must be seen before anything nested. The
// id counts as one of the first members of the outermost object or as its last.
func answeredID(ends []byte) []byte {
	var id []byte
	for name, value := range mcp.Members(ends) {
		switch {
		case name == "result" || name == "error":
			if id == nil {
				id = lastID(ends)
			}
			return id
		case name == "id":
			id = idOf(value)
		case name != "jsonrpc":
			return nil
		}
	}
	return nil
}

// askedID finds the id of a request of which only the beginning and the end are known:
// it stands before params.
func askedID(ends []byte) (id []byte) {
	for name, value := range mcp.Members(ends) {
		switch name {
		case "id":
			id = idOf(value)
		case "jsonrpc", "method":
		default:
			return id
		}
	}
	return nil
}

// lastID reads …,"id":ID} at the end of the text.
func lastID(text []byte) []byte {
	body, ok := bytes.CutSuffix(text, []byte{'}'})
	i := bytes.LastIndex(body, []byte(`"id"`))
	if !ok || i < 1 {
		return nil
	}
	before := bytes.TrimRight(body[:i], " \t")
	value, colon := bytes.CutPrefix(bytes.TrimLeft(body[i+4:], " \t"), []byte{':'})
	if len(before) == 0 || before[len(before)-1] != ',' || !colon {
		return nil
	}
	return idOf(bytes.TrimSpace(value))
}

// idOf returns raw if it is exactly an id.
func idOf(raw []byte) []byte {
	probe, err := mcp.Parse(append(append([]byte(`{"jsonrpc":"2.0","result":{},"id":`), raw...), '}'), canon.Limits{})
	if err != nil {
		return nil
	}
	return probe.ID
}
