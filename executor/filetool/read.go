package filetool

import (
	"container/heap"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"strings"
	"syscall"
	"time"
	"unicode/utf8"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/datadir"
)

const (
	chunk      = 256 << 10 // bytes between context checks
	maxEntries = 1_000_000 // of one folder
	overhead   = 64        // bytes of an entry or answer besides its strings
)

// encodings of content.
const (
	encText   = "utf-8"
	encBase64 = "base64"
	encAuto   = "auto"
)

// openFile opens a regular file. The type is checked before opening, because opening a
// device may have an effect, and again after, because it may have changed.
func (c *call) openFile(name string, flags int) (*os.File, fs.FileInfo, *toolkeep.Error) {
	fi, err := c.root.Stat(name)
	if err != nil {
		return nil, nil, c.failed(err)
	}
	if e := c.regular(fi); e != nil {
		return nil, nil, e
	}
	f, err := c.root.OpenFile(name, flags|syscall.O_NONBLOCK|syscall.O_NOCTTY, 0)
	if err != nil {
		return nil, nil, c.failed(err)
	}
	if fi, err = f.Stat(); err != nil {
		f.Close()
		return nil, nil, c.failed(err)
	}
	if e := c.regular(fi); e != nil {
		f.Close()
		return nil, nil, e
	}
	return f, fi, nil
}

func (c *call) regular(fi fs.FileInfo) *toolkeep.Error {
	switch {
	case fi.Mode().IsRegular():
		return nil
	case fi.IsDir():
		return badInput(c.b.name("path"), "file", "%s is a folder", shown(c.t.shown))
	}
	return denied("%s is not a regular file but a %s", shown(c.t.shown), typeOf(fi.Mode()))
}

func (c *call) read() (*toolkeep.Output, *toolkeep.Error) {
	offset, err := c.b.number(c.x.Args, "offset", 0, 0)
	if err != nil {
		return nil, err
	}
	limit, err := c.b.number(c.x.Args, "limit", c.b.max, 1)
	if err != nil {
		return nil, err
	}
	encoding := c.b.text(c.x.Args, "encoding", encAuto)
	if encoding != encText && encoding != encBase64 && encoding != encAuto {
		return nil, badInput(c.b.name("encoding"), "enum", "encoding must be utf-8, base64 or auto")
	}
	f, fi, err := c.openFile(c.t.name, os.O_RDONLY)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	raw, more, err := c.take(f, offset, min(limit, c.b.max), fi.Size())
	if err != nil {
		return nil, err
	}
	out, content, err := c.content(raw, more, encoding)
	if err != nil {
		return nil, err
	}
	out["path"], out["offset"] = c.t.shown, number(offset)
	out["size"], out["modified"] = number(fi.Size()), stamp(fi)
	out["truncated"] = more
	if more {
		out["next_offset"] = number(offset + content)
	}
	result := output(out)
	result.BytesRecv = int64(len(raw))
	return result, nil
}

// take reads up to n bytes from offset, and reports whether there are more. size is the
// file's claimed size, which only determines the first piece.
func (c *call) take(f *os.File, offset, n, size int64) ([]byte, bool, *toolkeep.Error) {
	if offset > 0 {
		_, err := f.Seek(offset, io.SeekStart)
		if errors.Is(err, syscall.EINVAL) { // behind what a file of this file system can hold
			return nil, false, nil
		}
		if err != nil {
			return nil, false, c.late(c.failed(err))
		}
	}
	want := n + 1 // one more byte shows whether the file goes on
	if want > c.limit+1 {
		want = c.limit + 1
	}
	var raw []byte
	piece := min(max(size-offset+1, 4<<10), chunk)
	for int64(len(raw)) < want {
		if c.ctx.Err() != nil {
			return nil, false, ended(c.ctx, false)
		}
		k := int(min(want-int64(len(raw)), piece))
		raw = slices.Grow(raw, k)
		got, err := f.Read(raw[len(raw) : len(raw)+k])
		raw, piece = raw[:len(raw)+got], min(2*piece, chunk)
		if late := c.x.Arrived(int64(got)); late != nil {
			return nil, false, late
		}
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, false, c.late(c.failed(err))
		}
	}
	if int64(len(raw)) > c.limit {
		return nil, false, c.tooLarge()
	}
	if int64(len(raw)) > n {
		return raw[:n], true, nil
	}
	return raw, false, nil
}

// late marks an error of a call that has started to read.
func (c *call) late(e *toolkeep.Error) *toolkeep.Error {
	e.NothingSent = false
	return e
}

func (c *call) tooLarge() *toolkeep.Error {
	return toolkeep.NewError(toolkeep.ResultTooLarge, "the result is over the limit of %d bytes; ask for less with limit", c.limit)
}

// content encodes bytes as text or base64, and returns how many it used: truncated text
// ends before a split character.
func (c *call) content(raw []byte, more bool, encoding string) (map[string]any, int64, *toolkeep.Error) {
	text := raw
	if more {
		text = wholeRunes(raw)
	}
	isText := encoding != encBase64 && utf8.Valid(text) && (len(text) > 0 || len(raw) == 0) &&
		(encoding == encText || !slices.Contains(text, 0))
	if !isText && encoding == encText {
		return nil, 0, c.late(toolkeep.NewError(toolkeep.InvalidResponse, "%s is not UTF-8 text here; read it with the encoding base64", shown(c.t.shown)))
	}
	out := map[string]any{"encoding": encText, "content": string(text)}
	n := len(text)
	if !isText {
		out["encoding"], out["content"] = encBase64, base64.StdEncoding.EncodeToString(raw)
		n = len(raw)
	}
	if int64(len(out["content"].(string))+overhead) > c.limit {
		return nil, 0, c.tooLarge()
	}
	return out, int64(n), nil
}

// wholeRunes drops an incomplete last character.
func wholeRunes(b []byte) []byte {
	for i := len(b) - 1; i >= 0 && i >= len(b)-utf8.UTFMax; i-- {
		if utf8.RuneStart(b[i]) {
			if !utf8.FullRune(b[i:]) {
				return b[:i]
			}
			break
		}
	}
	return b
}

func stamp(fi fs.FileInfo) string { return fi.ModTime().UTC().Format(time.RFC3339Nano) }

func typeOf(m fs.FileMode) string {
	switch {
	case m.IsRegular():
		return "file"
	case m.IsDir():
		return "folder"
	case m&fs.ModeSymlink != 0:
		return "link"
	case m&fs.ModeNamedPipe != 0:
		return "pipe"
	case m&fs.ModeSocket != 0:
		return "socket"
	case m&fs.ModeDevice != 0:
		return "device"
	}
	return "other"
}

// stat describes a path; one that does not exist is a result, not an error.
func (c *call) stat() (*toolkeep.Output, *toolkeep.Error) {
	fi, err := c.root.Lstat(c.t.name)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR) {
		return output(map[string]any{"path": c.t.shown, "exists": false}), nil
	}
	if err != nil {
		return nil, c.failed(err)
	}
	out := describe(fi)
	out["path"], out["exists"] = c.t.shown, true
	if int64(len(c.t.shown)+overhead) > c.limit {
		return nil, c.tooLarge()
	}
	return output(out), nil
}

func describe(fi fs.FileInfo) map[string]any {
	out := map[string]any{"type": typeOf(fi.Mode()), "modified": stamp(fi), "permissions": fmt.Sprintf("%04o", fi.Mode().Perm())}
	if fi.Mode().IsRegular() {
		out["size"] = number(fi.Size())
	}
	return out
}

// list returns one page of a folder's entries, sorted by the bytes of their names. It
// reads the whole folder for each page, but keeps only one page.
func (c *call) list() (*toolkeep.Output, *toolkeep.Error) {
	limit, err := c.b.number(c.x.Args, "limit", defaultPage, 1)
	if err != nil {
		return nil, err
	}
	limit = min(limit, c.b.max)
	var after string
	if cursor := c.b.text(c.x.Args, "cursor", ""); cursor != "" {
		raw, bad := base64.RawURLEncoding.DecodeString(cursor)
		if bad != nil || len(raw) > datadir.MaxElement {
			return nil, badInput(c.b.name("cursor"), "format", "the cursor did not come from a list; start without it")
		}
		after = string(raw)
	}
	dir, e := c.root.OpenRoot(c.t.name)
	if e != nil {
		if fi, err := c.root.Stat(c.t.name); err == nil && !fi.IsDir() {
			return nil, badInput(c.b.name("path"), "folder", "%s is not a folder", shown(c.t.shown))
		}
		return nil, c.failed(e)
	}
	defer dir.Close()
	names, odd, err := c.names(dir, after, int(limit)+1)
	if err != nil {
		return nil, err
	}
	return c.page(dir, names, int(limit), odd)
}

// names returns the first n names after a name, sorted, and how many names are not
// UTF-8 and so cannot be written in JSON.
func (c *call) names(dir *os.Root, after string, n int) ([]string, int64, *toolkeep.Error) {
	f, err := dir.Open(".")
	if err != nil {
		return nil, 0, c.failed(err)
	}
	defer f.Close()
	var first largest
	var odd, seen int64
	for {
		if c.ctx.Err() != nil {
			return nil, 0, ended(c.ctx, false)
		}
		some, err := f.Readdirnames(1024)
		for _, name := range some {
			switch {
			case strings.HasPrefix(name, temporary):
			case !utf8.ValidString(name):
				odd++
			case name > after:
				if len(first) == n && name >= first[0] {
					continue
				}
				if heap.Push(&first, name); len(first) > n {
					heap.Pop(&first)
				}
			}
		}
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, 0, c.late(c.failed(err))
		}
		if seen += int64(len(some)); seen > maxEntries {
			return nil, 0, toolkeep.NewError(toolkeep.ResultTooLarge, "%s has more than %d entries; it is too large to be listed", shown(c.t.shown), maxEntries)
		}
	}
	slices.Sort(first)
	return first, odd, nil
}

// largest is a max-heap of names.
type largest []string

func (l largest) Len() int           { return len(l) }
func (l largest) Less(i, j int) bool { return l[i] > l[j] }
func (l largest) Swap(i, j int)      { l[i], l[j] = l[j], l[i] }
func (l *largest) Push(v any)        { *l = append(*l, v.(string)) }
func (l *largest) Pop() any {
	old := *l
	v := old[len(old)-1]
	*l = old[:len(old)-1]
	return v
}

func (c *call) page(dir *os.Root, names []string, limit int, odd int64) (*toolkeep.Output, *toolkeep.Error) {
	more := len(names) > limit
	if more {
		names = names[:limit]
	}
	entries := make([]any, 0, len(names))
	size := int64(overhead)
	for _, name := range names {
		fi, err := dir.Lstat(name)
		if err != nil {
			continue // deleted meanwhile
		}
		entry := describe(fi)
		entry["name"] = name
		entries = append(entries, entry)
		if size += int64(len(name)) + 2*overhead; size > c.limit {
			return nil, c.tooLarge()
		}
	}
	out := map[string]any{"path": c.t.shown, "entries": entries, "truncated": more}
	if more {
		out["next_cursor"] = base64.RawURLEncoding.EncodeToString([]byte(names[len(names)-1]))
	}
	if odd > 0 {
		out["unnameable"] = number(odd)
	}
	return output(out), nil
}
