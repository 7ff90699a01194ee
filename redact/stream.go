package redact

import (
	"io"
	"runtime"
	"slices"
	"unsafe"
)

const (
	// streamPiece is how much of a stream is cleaned at once.
	streamPiece = 128 << 10
	// streamReach is a length in bytes: secrets up to this length, as written, are always found whole; see Cleaner.Reader.
	streamReach = 128 << 10
	// reachFactor is how many times longer than its longest form a held value may be written, in nested escapes and with
	// line ends in it.
	reachFactor = 8
)

// searches bounds how many windows are searched at once. A search makes up to 32 MiB of garbage if a window
// is full of escapes, so that it must not be done for every stream at the same time.
var searches = make(chan struct{}, runtime.GOMAXPROCS(0))

// Reader returns the text of r cleaned as Clean does, while it is read. A secret is found wherever the pieces of the
// stream are cut if it takes at most 128 KiB as it is written, or eight times the longest form of a held value if that
// is more. Of a longer token, also of one that never ends and of what becomes a token only later, every byte is removed
// that such a token may consist of.
//
// Its buffers take less than 1 MiB; more only with held values whose longest form is over 16 KiB. A search of one
// window takes up to 32 MiB besides if values are held and the text consists of escapes, pluses or line ends; at most
// GOMAXPROCS of them run at once.
func (v *Cleaner) Reader(r io.Reader) io.Reader {
	return &cleanReader{of: v, in: r, piece: streamPiece, reach: streamReach}
}

// cleanReader cleans in windows: what was given already, a piece to give, and what is only looked at because a secret
// may reach into it.
type cleanReader struct {
	of    *Cleaner
	in    io.Reader
	piece int
	reach int

	buf  []byte
	past int   // bytes of buf that were given
	err  error // of in
	out  []byte
	read int // bytes of out that were read

	// skip tells which bytes go on with the token that was longer than a window and ends at past; nil without one.
	skip   func(byte) bool
	marked bool // what was given ends with a marker
}

func (c *cleanReader) Read(p []byte) (int, error) {
	for c.read == len(c.out) {
		c.out, c.read = c.out[:0], 0
		if c.err != nil && (c.err != io.EOF || c.past == len(c.buf)) {
			return 0, c.err
		}
		c.clean()
	}
	n := copy(p, c.out[c.read:])
	c.read += n
	return n, nil
}

// clean reads to the end of a window and cleans its piece.
func (c *cleanReader) clean() {
	l := c.of.look()
	for i := range l.n {
		c.reach = max(c.reach, reachFactor*l.snap(i).longest)
	}
	c.fill(c.past + c.piece + c.reach)
	if c.err != nil && c.err != io.EOF {
		return // a part of it could be a part of a secret
	}
	if c.skip != nil {
		for c.past < len(c.buf) && c.skip(c.buf[c.past]) {
			c.past++
		}
		if c.past == len(c.buf) {
			c.drop()
			return
		}
		c.skip = nil
	}
	text := unsafe.String(unsafe.SliceData(c.buf), len(c.buf)) // the string does not outlive this call
	end := len(text)
	if c.err == nil {
		end = max(c.past, end-c.reach)
	}
	searches <- struct{}{}
	spans, open := l.search(text, c.err == nil)
	<-searches
	if len(spans) > 0 {
		c.of.note(&l)
	}
	slices.SortFunc(spans, func(a, b span) int { return a.start - b.start })
	at := c.past
	for i := 0; i < len(spans); {
		s := spans[i]
		for i++; i < len(spans) && spans[i].start <= s.end; i++ {
			s.end = max(s.end, spans[i].end)
		}
		if s.end <= at {
			continue
		}
		s.start = max(s.start, at)
		if s.start >= end {
			break
		}
		if s.end > end && s.start > c.past {
			end = s.start // the next window has it as a whole
			break
		}
		if s.start > at || !c.marked { // else it goes on with the last one, which Clean makes one as well
			c.out = append(append(c.out, text[at:s.start]...), Marker...)
		}
		c.marked = true
		if at = s.end; at > end { // it is longer than a piece
			if end = at; end == len(text) {
				c.skip = open
			}
		}
	}
	c.marked = c.marked && at == end
	c.out = append(c.out, text[at:end]...)
	c.past = end
	c.drop()
}

// fill reads until there are n bytes or the stream ends.
func (c *cleanReader) fill(n int) {
	c.buf = slices.Grow(c.buf, max(0, n-len(c.buf)))
	for len(c.buf) < n && c.err == nil {
		var got int
		got, c.err = c.in.Read(c.buf[len(c.buf):n])
		c.buf = c.buf[:len(c.buf)+got]
	}
}

// drop forgets what was given, except what a secret may begin in.
func (c *cleanReader) drop() {
	if old := c.past - c.reach; old > 0 {
		c.buf = c.buf[:copy(c.buf, c.buf[old:])]
		c.past = c.reach
	}
}
