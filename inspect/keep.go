package inspect

import (
	"bytes"
	"io"
	"strings"
	"unicode/utf8"

	"github.com/toolkeep/toolkeep"
)

// keptFrom is a size in bytes; a binary of more bytes is kept as it arrives.
const keptFrom = 256 << 10

// Keeping says how a body is kept while it arrives.
type Keeping struct {
	ContentType string // of the whole
	From        int64  // a body of at most so many bytes is given to Inspect instead
	Text        bool   // it is text, of which Inspect needs the first From bytes
}

// Keep reports whether the whole of a result belongs in the blob store as it was sent, without its secrets: binaries
// and plain text in UTF-8 that the manifest does not inspect. Any other body must be read, parsed and checked as a whole.
// clean is for the content type.
func (i *Inspector) Keep(t *toolkeep.Tool, o *toolkeep.Output, clean toolkeep.Cleaner) (Keeping, bool) {
	m := t.Manifest
	if m.PublicResult() || len(m.ResultSchema) > 0 && !o.Undescribed || m.Result != nil && (m.Result.Transform != "" || len(m.Result.SensitiveFields) > 0 || len(m.Result.Sanitize) > 0) {
		return Keeping{}, false // who may fetch the whole of a public result is known when all of it was cleaned
	}
	media, params := parseType(clean.Clean(o.ContentType))
	switch kindOf(media) {
	case kindBinary:
		return Keeping{ContentType: media, From: keptFrom}, true
	case kindText:
		switch strings.ToLower(params["charset"]) {
		case "", "utf-8", "utf8", "us-ascii", "ascii":
			return Keeping{ContentType: media + "; charset=utf-8", From: m.MaxOutputBytes(), Text: true}, true
		}
	}
	return Keeping{}, false
}

// IsUTF16 reports whether a text without a declared charset begins with the byte order mark of UTF-16.
func IsUTF16(head []byte) bool {
	return bytes.HasPrefix(head, []byte("\xfe\xff")) || bytes.HasPrefix(head, []byte("\xff\xfe"))
}

// GoodText returns the text of r with what JSON or its readers cannot hold replaced, as in a result; changed is set once
// anything was.
func GoodText(r io.Reader, changed *bool) io.Reader { return &goodText{in: r, changed: changed} }

type goodText struct {
	in      io.Reader
	changed *bool
	raw     [32 << 10]byte
	kept    int // bytes of raw that begin a character
	out     string
	err     error
}

func (g *goodText) Read(p []byte) (int, error) {
	for g.out == "" {
		if g.err != nil {
			return 0, g.err
		}
		var n int
		n, g.err = g.in.Read(g.raw[g.kept:])
		n += g.kept
		end := n
		if g.err == nil {
			end -= begun(g.raw[:n])
		}
		g.out = string(g.raw[:end])
		if !isGoodText(g.out) {
			*g.changed = true
			g.out = replaced(g.out)
		}
		g.kept = copy(g.raw[:], g.raw[end:n])
	}
	n := copy(p, g.out)
	g.out = g.out[n:]
	return n, nil
}

// begun returns how many bytes at the end of b may be the beginning of a character.
func begun(b []byte) int {
	for n := 1; n < utf8.UTFMax && n <= len(b); n++ {
		if c := b[len(b)-n]; utf8.RuneStart(c) {
			if c >= utf8.RuneSelf && !utf8.FullRune(b[len(b)-n:]) {
				return n
			}
			return 0
		}
	}
	return 0
}
