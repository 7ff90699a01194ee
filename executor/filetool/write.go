package filetool

import (
	"crypto/rand"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"io/fs"
	"os"
	"path"
	"syscall"

	"github.com/toolkeep/toolkeep"
)

// temporary is the name prefix of files being written. They are not listed and cannot
// be named; a server that dies during a write leaves one behind.
const temporary = ".toolkeep-tmp-"

// Modes of a write.
const (
	modeReplace = "replace" // create the file or replace its content
	modeCreate  = "create"  // only if the file does not exist
	modeAppend  = "append"  // create the file or append to it
)

// prepare reads the content and the mode.
func (c *call) prepare() (err *toolkeep.Error) {
	c.mode = c.b.text(c.x.Args, "mode", modeReplace)
	if c.mode != modeReplace && c.mode != modeCreate && c.mode != modeAppend {
		return badInput(c.b.name("mode"), "enum", "mode must be replace, create or append")
	}
	c.body, err = c.given()
	return err
}

func (c *call) write() (*toolkeep.Output, *toolkeep.Error) {
	folder, name := path.Split(c.t.name)
	if name == "." || name == "" {
		return nil, badInput(c.b.name("path"), "file", "%s is a folder", shown(c.t.shown))
	}
	dir, err := c.parent(path.Clean(folder))
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	w := &writing{call: c, dir: dir, name: name}
	if err := w.look(); err != nil {
		return nil, err
	}
	size := int64(len(c.body))
	switch {
	case c.mode == modeAppend:
		size, err = w.append()
	default:
		err = w.put(c.mode == modeCreate)
	}
	if err != nil {
		return nil, err
	}
	out := output(map[string]any{"path": c.t.shown, "size": number(size), "created": w.old == nil, "bytes_written": number(int64(len(c.body)))})
	out.BytesSent = int64(len(c.body))
	return out, nil
}

// given decodes the content.
func (c *call) given() ([]byte, *toolkeep.Error) {
	text := c.b.text(c.x.Args, "content", "")
	content := []byte(text)
	switch encoding := c.b.text(c.x.Args, "encoding", encText); encoding {
	case encText:
	case encBase64:
		var err error
		if content, err = base64.StdEncoding.Strict().DecodeString(text); err != nil {
			return nil, badInput(c.b.name("content"), "contentEncoding", "the content is not base64 with padding")
		}
	default:
		return nil, badInput(c.b.name("encoding"), "enum", "encoding must be utf-8 or base64")
	}
	if int64(len(content)) > c.b.max {
		return nil, badInput(c.b.name("content"), "maxLength", "the content has %d bytes; this tool writes at most %d", len(content), c.b.max)
	}
	return content, nil
}

// parent opens the file's folder, so that all further steps happen there even if the
// path changes.
func (c *call) parent(folder string) (*os.Root, *toolkeep.Error) {
	dir, err := c.root.OpenRoot(folder)
	if errors.Is(err, fs.ErrNotExist) && c.b.makeDirs {
		if err = c.root.MkdirAll(folder, 0o700); err == nil {
			dir, err = c.root.OpenRoot(folder)
		}
	}
	if errors.Is(err, fs.ErrNotExist) {
		return nil, badInput(c.b.name("path"), "exists", "the folder of %s does not exist", shown(c.t.shown))
	}
	if err != nil {
		return nil, c.failed(err)
	}
	return dir, nil
}

// writing is one file being written.
type writing struct {
	*call
	dir  *os.Root
	name string
	old  fs.FileInfo // nil if there is no file yet
}

// look refuses to write to anything but a regular file. A file that replaces it before
// the write is replaced too, or appended to within the folder.
func (w *writing) look() *toolkeep.Error {
	fi, err := w.dir.Lstat(w.name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return w.failed(err)
	}
	w.old = fi
	if fi.Mode()&fs.ModeSymlink != 0 {
		return denied("%s is a symbolic link; write to the file that it points to", shown(w.t.shown))
	}
	return w.regular(fi)
}

// put writes a file next to the target and renames it into place.
func (w *writing) put(exclusive bool) *toolkeep.Error {
	if exclusive && w.old != nil {
		return w.failed(fs.ErrExist)
	}
	f, err := w.temporary()
	if err != nil {
		return w.failed(err)
	}
	name := path.Base(f.Name())
	defer w.dir.Remove(name) // already gone after a rename
	defer f.Close()
	if e := w.fill(f); e != nil {
		e.NothingSent = true
		return e
	}
	if w.old != nil {
		if err := f.Chmod(w.old.Mode().Perm()); err != nil {
			return w.failed(err)
		}
	}
	if err := f.Sync(); err != nil {
		return w.failed(err)
	}
	if w.ctx.Err() != nil {
		return ended(w.ctx, true)
	}
	if exclusive {
		err = w.dir.Link(name, w.name) // unlike a rename, it fails if the name exists
		if errors.Is(err, syscall.EPERM) || errors.Is(err, syscall.ENOTSUP) || errors.Is(err, syscall.EMLINK) {
			return w.create()
		}
	} else {
		err = w.dir.Rename(name, w.name)
	}
	if err != nil {
		return w.failed(err)
	}
	return w.syncFolder()
}

// create writes a new file in place, on file systems without hard links.
func (w *writing) create() *toolkeep.Error {
	f, err := w.dir.OpenFile(w.name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, fs.FileMode(w.b.newMode))
	if err != nil {
		return w.failed(err)
	}
	defer f.Close()
	e := w.fill(f)
	if e == nil {
		if err := f.Sync(); err != nil {
			e = w.failed(err)
		}
	}
	if e != nil {
		_ = w.dir.Remove(w.name)
		return e
	}
	return w.syncFolder()
}

// temporary creates an empty file with an unused name.
func (w *writing) temporary() (*os.File, error) {
	var b [12]byte
	_, _ = rand.Read(b[:]) // never fails
	return w.dir.OpenFile(temporary+hex.EncodeToString(b[:]), os.O_WRONLY|os.O_CREATE|os.O_EXCL, fs.FileMode(w.b.newMode))
}

// fill writes the content in pieces.
func (w *writing) fill(f *os.File) *toolkeep.Error {
	for rest := w.body; len(rest) > 0; {
		if w.ctx.Err() != nil {
			return ended(w.ctx, false)
		}
		n := min(len(rest), chunk)
		if _, err := f.Write(rest[:n]); err != nil {
			return w.failed(err)
		}
		rest = rest[n:]
	}
	return nil
}

// append appends to the file and returns its new size. It is not atomic: a server that
// dies meanwhile may leave a part.
func (w *writing) append() (int64, *toolkeep.Error) {
	f, err := w.dir.OpenFile(w.name, os.O_WRONLY|os.O_APPEND|os.O_CREATE|syscall.O_NONBLOCK|syscall.O_NOCTTY, fs.FileMode(w.b.newMode))
	if err != nil {
		return 0, w.failed(err)
	}
	defer f.Close()
	fi, err := f.Stat()
	if err != nil {
		return 0, w.failed(err)
	}
	if e := w.regular(fi); e != nil {
		return 0, e
	}
	if fi.Size()+int64(len(w.body)) > w.b.maxFile {
		return 0, badInput(w.b.name("content"), "maxLength", "%s would have %d bytes; this tool lets a file grow to %d", shown(w.t.shown), fi.Size()+int64(len(w.body)), w.b.maxFile)
	}
	if e := w.fill(f); e != nil {
		return 0, w.late(e)
	}
	if err := f.Sync(); err != nil {
		return 0, w.late(w.failed(err))
	}
	if fi, err = f.Stat(); err != nil {
		return 0, w.late(w.failed(err))
	}
	if w.old == nil {
		if e := w.syncFolder(); e != nil {
			return 0, e
		}
	}
	return fi.Size(), nil
}

// syncFolder makes the new name durable.
func (w *writing) syncFolder() *toolkeep.Error { return syncDir(w.call, w.dir) }

func syncDir(c *call, dir *os.Root) *toolkeep.Error {
	f, err := dir.Open(".")
	if err != nil {
		return c.late(c.failed(err))
	}
	defer f.Close()
	// Some file systems cannot sync a folder and do not need to.
	if err := f.Sync(); err != nil && !errors.Is(err, syscall.EINVAL) && !errors.Is(err, syscall.ENOTSUP) {
		return c.late(c.failed(err))
	}
	return nil
}

// remove deletes a file, a link or an empty folder, never the root itself.
func (c *call) remove() (*toolkeep.Output, *toolkeep.Error) {
	folder, name := path.Split(c.t.name)
	if name == "." || name == "" {
		return nil, denied("%s is a folder of the tool itself and cannot be deleted", shown(c.t.shown))
	}
	dir, err := c.root.OpenRoot(path.Clean(folder))
	if err != nil {
		return nil, c.failed(err)
	}
	defer dir.Close()
	if err := dir.Remove(name); err != nil {
		return nil, c.failed(err)
	}
	if e := syncDir(c, dir); e != nil {
		return nil, e
	}
	return output(map[string]any{"path": c.t.shown, "deleted": true}), nil
}
