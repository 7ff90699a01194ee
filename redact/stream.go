package redact

import (
	"io"
	"slices"
	"strings"
	"unsafe"
)

const (
	// streamPiece is how much of a stream is cleaned at once.
	streamPiece = 512 << 10
	// streamReach is how long a written secret may at least be to be found as a whole; see Cleaner.Reader.
	streamReach = 128 << 10
	// reachFactor is how many times longer than its longest form a held value may be written, in nested escapes and with
	// line ends in it.
	reachFactor = 8
)

// Reader returns the text of r cleaned as Clean does, while it is read and with a buffer of less than 1 MiB. A secret
// is found wherever the pieces of the stream are cut if it takes at most 128 KiB as it is written, or eight times the
// longest form of a held value if that is more. Of a longer one, as of a token that never ends, everything is removed
// that a token may consist of.
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
	skip bool  // the text at past goes on with a token that was longer than a window
	out  []byte
}

func (c *cleanReader) Read(p []byte) (int, error) {
	for len(c.out) == 0 {
		if c.err != nil && (c.err != io.EOF || c.past == len(c.buf)) {
			return 0, c.err
		}
		c.clean()
	}
	n := copy(p, c.out)
	c.out = c.out[n:]
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
	if c.skip {
		for c.past < len(c.buf) && inToken(c.buf[c.past]) {
			c.past++
		}
		if c.skip = c.past == len(c.buf); c.skip {
			c.drop()
			return
		}
	}
	text := unsafe.String(unsafe.SliceData(c.buf), len(c.buf)) // the string does not outlive this call
	end := len(text)
	if c.err == nil {
		end = max(c.past, end-c.reach)
	}
	spans := l.find(text)
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
		c.out = append(append(c.out, text[at:s.start]...), Marker...)
		if at = s.end; at > end { // it is longer than a piece
			end = at
			c.skip = end == len(text)
		}
	}
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

// inToken reports whether a token of unlimited length may contain c.
func inToken(c byte) bool {
	return isTokenByte(c) || strings.IndexByte(".~+/=%\\\r\n\t ", c) >= 0
}
