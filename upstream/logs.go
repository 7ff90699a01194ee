package upstream

import (
	"bufio"
	"bytes"
	"io"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/toolkeep/toolkeep"
)

const (
	maxLogLine = 4 << 10  // of one stored line
	maxRawLine = 16 << 10 // of one line read; the rest is dropped
	stderrRate = 1 << 20  // bytes of stderr a second that are kept and redacted
	noteRate   = 50       // lines a second from other sources
)

// ring keeps the latest lines of one server for one tenant: stderr, session events, and
// log messages that belong to no caller. Secrets are redacted on arrival.
type ring struct {
	clock  func() time.Time
	clean  toolkeep.Cleaner
	max    int
	stderr bucket
	notes  bucket

	mu    sync.Mutex
	lines [][]byte
	size  int
	last  string // the latest line of stderr
}

func newRing(max int, clean toolkeep.Cleaner, clock func() time.Time) *ring {
	return &ring{
		clock: clock, clean: clean, max: max,
		stderr: bucket{rate: stderrRate, burst: 4 * stderrRate}, notes: bucket{rate: noteRate, burst: 4 * noteRate},
	}
}

// note adds a line about the server.
func (r *ring) note(text string) {
	if ok, lost := r.notes.take(r.clock(), 1); ok {
		r.add("--", text, lost, "lines")
	}
}

// add redacts and stores a line. lost is the amount left out before it.
func (r *ring) add(mark, text string, lost int64, unit string) {
	text = r.clean.Clean(strings.ToValidUTF8(text, "\uFFFD"))
	text = strings.Map(printable, toolkeep.ClipBytes(text, maxLogLine))
	b := r.clock().UTC().AppendFormat(nil, "2006-01-02T15:04:05.000Z ")
	b = append(append(b, mark...), ' ')
	if lost > 0 {
		b = append(b, "("...)
		b = append(b, number(lost)...)
		b = append(append(b, ' '), unit+" left out) "...)
	}
	b = append(append(b, text...), '\n')
	r.mu.Lock()
	defer r.mu.Unlock()
	if mark == "2>" && strings.TrimSpace(text) != "" {
		r.last = text
	}
	r.lines = append(r.lines, b)
	for r.size += len(b); r.size > r.max && len(r.lines) > 1; {
		r.size -= len(r.lines[0])
		r.lines[0] = nil
		r.lines = r.lines[1:]
	}
}

func number(n int64) []byte { return strconv.AppendInt(nil, n, 10) }

// printable removes line breaks and terminal escapes.
func printable(c rune) rune {
	if c == '\t' || c >= ' ' && c != 0x7f && (c < 0x80 || c > 0x9f) {
		return c
	}
	return -1
}

// bytes returns all stored lines.
func (r *ring) bytes() []byte {
	r.mu.Lock()
	defer r.mu.Unlock()
	return bytes.Join(r.lines, nil)
}

// lastError takes the latest line of stderr, the best hint at why a program exited.
func (r *ring) lastError() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.last
}

// forgetError stops a line of an earlier process from serving as a hint.
func (r *ring) forgetError() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.last = ""
}

// copyStderr reads to the end without ever pausing, so that writing never blocks the
// server; what exceeds the rate is counted and dropped.
func (r *ring) copyStderr(src io.Reader) {
	br := bufio.NewReaderSize(src, maxRawLine)
	for {
		line, err := br.ReadSlice('\n')
		long := err == bufio.ErrBufferFull
		if len(bytes.TrimSpace(line)) > 0 {
			if ok, lost := r.stderr.take(r.clock(), int64(len(line))); ok {
				r.add("2>", strings.TrimRight(string(line), "\r\n"), lost, "bytes")
			}
		}
		for long {
			var rest []byte
			rest, err = br.ReadSlice('\n')
			long = err == bufio.ErrBufferFull
			r.stderr.drop(int64(len(rest)))
		}
		if err != nil {
			return
		}
	}
}

// bucket lets through rate units a second and counts the rest.
type bucket struct {
	rate, burst int64

	mu    sync.Mutex
	level int64
	at    time.Time
	lost  int64
}

// take asks for n units. With ok it returns the loss since the last ok.
func (b *bucket) take(now time.Time, n int64) (ok bool, lost int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.at.IsZero() {
		b.level, b.at = b.burst, now
	}
	if gained := int64(now.Sub(b.at).Seconds() * float64(b.rate)); gained > 0 {
		b.level, b.at = min(b.level+gained, b.burst), now
	}
	if b.level < n {
		b.lost += n
		return false, 0
	}
	b.level -= n
	lost, b.lost = b.lost, 0
	return true, lost
}

func (b *bucket) drop(n int64) {
	b.mu.Lock()
	b.lost += n
	b.mu.Unlock()
}
