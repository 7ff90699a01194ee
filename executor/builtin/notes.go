package builtin

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/canon"
	"github.com/toolkeep/toolkeep/datadir"
)

const (
	maxNotebook = 16 << 20 // bytes
	maxNote     = 8 << 10  // bytes
)

// notebook returns the file of a notebook of the caller's tenant:
// <dir>/<folder of the tenant>/<notebook>.jsonl.
func (e *Executor) notebook(x *toolkeep.Execution) (string, *toolkeep.Error) {
	if e.dir == "" {
		err := toolkeep.NewError(toolkeep.FilesystemDenied, "notes are switched off: this server has no folder for them")
		err.NothingSent = true
		return "", err
	}
	name := text(x.Args, "notebook", "default")
	if !datadir.PlainName(name) {
		return "", bad("/notebook", "pattern", "a notebook's name has small letters, digits, _ and -, at most 64")
	}
	tenant := ""
	if x.Principal != nil {
		tenant = x.Principal.Tenant
	}
	return filepath.Join(e.dir, datadir.TenantFolder(tenant), name+".jsonl"), nil
}

// noteAppend appends one line in one write, so that a crash keeps or loses the whole
// line, as far as the file system guarantees it.
func (e *Executor) noteAppend(_ context.Context, x *toolkeep.Execution) (any, *toolkeep.Error) {
	file, terr := e.notebook(x)
	if terr != nil {
		return nil, terr
	}
	note := text(x.Args, "text", "")
	if note == "" || len(note) > maxNote {
		return nil, bad("/text", "maxLength", "a note has 1 to 8192 bytes")
	}
	subject := ""
	if x.Principal != nil {
		subject = x.Principal.Subject
	}
	line := append(canon.Append(nil, map[string]any{
		"at":            e.clock().UTC().Format(time.RFC3339Nano),
		"by":            subject,
		"invocation_id": x.InvocationID,
		"text":          note,
	}), '\n')

	e.notes.Lock()
	defer e.notes.Unlock()
	size, err := appendLine(file, line)
	if errors.Is(err, errFull) {
		e := toolkeep.NewError(toolkeep.ResourceExhausted, "the notebook is full (16 MiB); use another one")
		e.NothingSent = true
		return nil, e
	}
	if err != nil {
		return nil, toolkeep.NewError(toolkeep.InternalError, "the note could not be written; the server's log has the cause").Because(err)
	}
	return map[string]any{"notebook": text(x.Args, "notebook", "default"), "bytes": number(size)}, nil
}

var errFull = errors.New("the notebook is full")

func appendLine(file string, line []byte) (size int64, err error) {
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		return 0, err
	}
	f, err := os.OpenFile(file, os.O_RDWR|os.O_APPEND|os.O_CREATE, 0o600)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	fi, err := f.Stat()
	if err != nil {
		return 0, err
	}
	if fi.Size()+int64(len(line)) > maxNotebook {
		return 0, errFull
	}
	last := []byte{'\n'}
	if fi.Size() > 0 {
		if _, err := f.ReadAt(last, fi.Size()-1); err != nil {
			return 0, err
		}
	}
	if last[0] != '\n' { // a truncated line must not spoil this one
		line = append([]byte{'\n'}, line...)
	}
	n, err := f.Write(line)
	return fi.Size() + int64(n), err
}

func (e *Executor) noteList(ctx context.Context, x *toolkeep.Execution) (any, *toolkeep.Error) {
	file, terr := e.notebook(x)
	if terr != nil {
		return nil, terr
	}
	limit := min(max(integer(x.Args, "limit", 50), 1), 500)
	offset := max(integer(x.Args, "offset", 0), 0)
	notes := []any{}
	total := int64(0)
	raw, err := os.ReadFile(file)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, toolkeep.NewError(toolkeep.InternalError, "the notebook could not be read; the server's log has the cause").Because(err)
	}
	lines := bufio.NewScanner(bytes.NewReader(raw))
	lines.Buffer(nil, 8*maxNote) // a note's JSON can be longer than the note
	for lines.Scan() {
		if ctx.Err() != nil {
			return nil, ended(ctx)
		}
		note, err := canon.ParseObject(lines.Bytes(), canon.Limits{})
		if err != nil {
			continue // a line truncated by a crash
		}
		if total >= offset && int64(len(notes)) < limit {
			notes = append(notes, note)
		}
		total++
	}
	return map[string]any{"notes": notes, "total": number(total)}, nil
}
