package filetool

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/canon"
	"github.com/toolkeep/toolkeep/executor/executortest"
)

const anySchema = `{"type":"object","properties":{"path":{"type":"string"},"content":{"type":"string"},"name":{"type":"string"}}}`

// folderOf is one entry of permissions.filesystem.
type folderOf struct{ path, mode string }

func manifest(binding string, folders ...folderOf) *toolkeep.Manifest {
	m := &toolkeep.Manifest{
		SchemaVersion: 1, ToolID: "test.file", Version: "1.0.0", Description: "A tool of the tests.",
		ParametersSchema: []byte(anySchema), SideEffects: "writes",
		Execution: toolkeep.ExecutionSpec{Kind: "file", Binding: []byte(binding)}, Permissions: &toolkeep.Permissions{},
	}
	list := make([]any, 0, len(folders))
	for _, f := range folders {
		list = append(list, map[string]any{"path": f.path, "mode": f.mode})
	}
	if err := json.Unmarshal(canon.Append(nil, map[string]any{"filesystem": list}), m.Permissions); err != nil {
		panic(err)
	}
	return m
}

func executor(t testing.TB, c Config) *Executor {
	t.Helper()
	e, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	return e
}

func execution(m *toolkeep.Manifest, args map[string]any) *toolkeep.Execution {
	return &toolkeep.Execution{Tool: executortest.Tool(m), Args: args, Principal: &toolkeep.Principal{Tenant: "acme", Subject: "agent"}, Attempt: 1, MaxBytes: 10 << 20}
}

// world is an executor over one folder that it may write.
type world struct {
	t   testing.TB
	dir string
	e   *Executor
}

func newWorld(t testing.TB) *world {
	dir := t.TempDir()
	return &world{t: t, dir: dir, e: executor(t, Config{Roots: []Root{{Path: dir, Write: true}}})}
}

func (w *world) tool(op string, more ...string) *toolkeep.Manifest {
	return manifest(fmt.Sprintf(`{"operation":%q%s}`, op, strings.Join(more, "")), folderOf{w.dir, "rw"})
}

// do carries out an operation; args alternate names and values.
func (w *world) do(m *toolkeep.Manifest, args ...any) (map[string]any, *toolkeep.Error) {
	w.t.Helper()
	a := map[string]any{}
	for i := 0; i < len(args); i += 2 {
		v := args[i+1]
		if n, ok := v.(int); ok {
			v = json.Number(strconv.Itoa(n))
		}
		a[args[i].(string)] = v
	}
	out, err := w.e.Execute(w.t.Context(), execution(m, a))
	if err != nil {
		return nil, toolkeep.AsError(err)
	}
	return out.Value.(map[string]any), nil
}

func (w *world) must(m *toolkeep.Manifest, args ...any) map[string]any {
	w.t.Helper()
	v, err := w.do(m, args...)
	if err != nil {
		w.t.Fatalf("%v (because of %v)", err, err.Cause)
	}
	return v
}

// refused wants a failure with a code.
func (w *world) refused(code toolkeep.Code, m *toolkeep.Manifest, args ...any) *toolkeep.Error {
	w.t.Helper()
	v, err := w.do(m, args...)
	if err == nil {
		w.t.Fatalf("%v worked: %v", args, v)
	}
	if err.Code != code {
		w.t.Fatalf("%v: %v (because of %v), want %s", args, err, err.Cause, code)
	}
	return err
}

func (w *world) put(name, content string) string {
	w.t.Helper()
	p := filepath.Join(w.dir, name)
	check(w.t, os.MkdirAll(filepath.Dir(p), 0o755))
	check(w.t, os.WriteFile(p, []byte(content), 0o644))
	return p
}

func (w *world) has(name string) string {
	w.t.Helper()
	raw, err := os.ReadFile(filepath.Join(w.dir, name))
	check(w.t, err)
	return string(raw)
}

func check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func TestConformance(t *testing.T) {
	executortest.Run(t, func(t *testing.T) executortest.Harness {
		w := newWorld(t)
		w.put("greeting.txt", "Good morning, käse.\n")
		w.put("large.txt", strings.Repeat("x", 4096))
		w.put("binary", "\xff\xfe")
		call := func(name, op, path string, code toolkeep.Code, more ...string) *executortest.Case {
			return &executortest.Case{Name: name, Tool: executortest.Tool(w.tool(op, more...)), Args: map[string]any{"path": path, "content": "x"}, Code: code}
		}
		bad := func(name, binding, pointer string, folders ...folderOf) executortest.Bad {
			if folders == nil {
				folders = []folderOf{{w.dir, "rw"}}
			}
			return executortest.Bad{Name: name, Manifest: manifest(binding, folders...), Pointer: pointer}
		}
		reading := manifest(`{"operation":"write"}`, folderOf{w.dir, "rw"})
		reading.SideEffects = "reads"
		keyed := w.tool("read")
		keyed.Auth = []toolkeep.AuthSpec{{Type: "bearer", Secret: "env://X"}}
		const b = "/execution/binding"
		return executortest.Harness{
			Executor: w.e, Kind: "file", Good: w.tool("read", `,"max_bytes":1000`),
			Bad: []executortest.Bad{
				bad("no operation", `{}`, b+"/operation"),
				bad("unknown operation", `{"operation":"chmod"}`, b+"/operation"),
				bad("not JSON", `nope`, b),
				bad("unknown field", `{"operation":"read","x":1}`, b+"/x"),
				bad("field of another operation", `{"operation":"read","make_dirs":true}`, b+"/make_dirs"),
				bad("limit too large", `{"operation":"read","max_bytes":67108865}`, b+"/max_bytes"),
				bad("limit is a text", `{"operation":"read","max_bytes":"1"}`, b+"/max_bytes"),
				bad("root that is not listed", `{"operation":"read","root":"/elsewhere"}`, b+"/root"),
				bad("mode without write", `{"operation":"write","new_mode":"0444"}`, b+"/new_mode"),
				bad("setuid", `{"operation":"write","new_mode":"4755"}`, b+"/new_mode"),
				bad("no folder", `{"operation":"read"}`, "/permissions/filesystem", []folderOf{}...),
				bad("folder with dots", `{"operation":"read"}`, "/permissions/filesystem/0/path", folderOf{"/srv/../etc", "ro"}),
				bad("folder with a tenant's prefix", `{"operation":"read"}`, "/permissions/filesystem/0/path", folderOf{"/srv/x{tenant}", "ro"}),
				bad("ro within rw", `{"operation":"read"}`, "/permissions/filesystem/1", folderOf{"/srv", "rw"}, folderOf{"/srv/a", "ro"}),
				bad("write to ro", `{"operation":"write"}`, "/permissions/filesystem", folderOf{w.dir, "ro"}),
				bad("unknown input", `{"operation":"read","arguments":{"content":"content"}}`, b+"/arguments/content"),
				bad("argument that the schema lacks", `{"operation":"read","arguments":{"path":"file"}}`, b+"/arguments/path"),
				bad("fixed of another type", `{"operation":"read","fixed":{"limit":"1"}}`, b+"/fixed/limit"),
				bad("fixed and argument", `{"operation":"read","arguments":{"path":"path"},"fixed":{"path":"a"}}`, b+"/fixed/path"),
				{Name: "writes and says reads", Manifest: reading, Pointer: "/side_effects"},
				{Name: "credentials", Manifest: keyed, Pointer: "/auth"},
			},
			Works: call("read", "read", "greeting.txt", ""),
			Large: call("large", "read", "large.txt", ""),
			Unsent: []*executortest.Case{
				call("absent", "read", "nope", toolkeep.InputValidationFailed),
				call("outside", "read", "/etc/hostname", toolkeep.FilesystemDenied),
				call("upwards", "read", "../x", toolkeep.FilesystemDenied),
			},
			Sent:      []*executortest.Case{call("not text", "read", "binary", toolkeep.InvalidResponse, `,"fixed":{"encoding":"utf-8"}`)},
			Permanent: []*executortest.Case{call("absent", "read", "nope", toolkeep.InputValidationFailed)},
			Malformed: []*executortest.Case{call("not text", "read", "binary", toolkeep.InvalidResponse, `,"fixed":{"encoding":"utf-8"}`)},
			Lacks: map[string]string{
				"Retryable": "what the file system refuses it refuses again",
				"Told":      "files take no credentials",
				"Slow":      "no file operation waits: pipes and devices are refused; what the deadline does between pieces is in TestEnds",
				"Leaky":     "files take no credentials",
			},
		}
	})
}

func TestReads(t *testing.T) {
	w := newWorld(t)
	w.put("a/käse.txt", "ä€𝄞")
	w.put("bin", "a\x00\xff")
	w.put("empty", "")
	read := w.tool("read")

	v := w.must(read, "path", "a/käse.txt")
	if v["content"] != "ä€𝄞" || v["encoding"] != "utf-8" || v["truncated"] != false || v["size"] != json.Number("9") {
		t.Errorf("%v", v)
	}
	if v := w.must(read, "path", filepath.Join(w.dir, "a", ".", "käse.txt")); v["content"] != "ä€𝄞" {
		t.Errorf("by its absolute path: %v", v)
	}
	if v := w.must(read, "path", "bin"); v["encoding"] != "base64" || v["content"] != base64.StdEncoding.EncodeToString([]byte("a\x00\xff")) {
		t.Errorf("bytes: %v", v)
	}
	if v := w.must(read, "path", "empty"); v["content"] != "" || v["encoding"] != "utf-8" {
		t.Errorf("an empty file: %v", v)
	}
	w.refused(toolkeep.InvalidResponse, read, "path", "bin", "encoding", "utf-8")
	w.refused(toolkeep.InputValidationFailed, read, "path", "bin", "encoding", "latin1")
	w.refused(toolkeep.InputValidationFailed, read, "path", "a")
	w.refused(toolkeep.InputValidationFailed, read, "path", "bin/x")

	// A text read in pieces comes together, whatever characters the limit cuts.
	var text string
	for offset, rounds := json.Number("0"), 0; ; rounds++ {
		v := w.must(read, "path", "a/käse.txt", "offset", offset, "limit", 4)
		text += v["content"].(string)
		if v["encoding"] != "utf-8" {
			t.Fatalf("a piece of text came as %v", v)
		}
		if v["truncated"] != true {
			break
		}
		if offset = v["next_offset"].(json.Number); rounds > 9 {
			t.Fatal("reading in pieces does not come to an end")
		}
	}
	if text != "ä€𝄞" {
		t.Errorf("the pieces make %q", text)
	}
	// A limit below the size of a character gives bytes, so that reading goes on.
	if v := w.must(read, "path", "a/käse.txt", "limit", 1); v["encoding"] != "base64" || v["next_offset"] != json.Number("1") {
		t.Errorf("%v", v)
	}
	if v := w.must(w.tool("read", `,"max_bytes":2`), "path", "a/käse.txt", "limit", 100); v["content"] != "ä" {
		t.Errorf("a limit over the tool's own: %v", v)
	}
	if v := w.must(read, "path", "bin", "offset", 100); v["content"] != "" || v["truncated"] != false {
		t.Errorf("past the end: %v", v)
	}
	w.refused(toolkeep.InputValidationFailed, read, "path", "bin", "offset", -1)
	w.refused(toolkeep.InputValidationFailed, read, "path", "bin", "limit", 0)
}

func TestSparseFile(t *testing.T) {
	w := newWorld(t)
	f, err := os.Create(filepath.Join(w.dir, "sparse"))
	check(t, err)
	check(t, f.Truncate(1<<40))
	check(t, f.Close())
	v := w.must(w.tool("read", `,"max_bytes":1000`), "path", "sparse")
	if v["size"] != json.Number("1099511627776") || v["truncated"] != true || v["next_offset"] != json.Number("1000") {
		t.Errorf("%v", v)
	}
}

// TestProc reads a file whose size is said to be nothing.
func TestProc(t *testing.T) {
	if _, err := os.Stat("/proc/self/status"); err != nil {
		t.Logf("left out: no /proc here: %v", err)
		return
	}
	e := executor(t, Config{Roots: []Root{{Path: "/proc/self"}}})
	w := &world{t: t, dir: "/proc/self", e: e}
	read := manifest(`{"operation":"read"}`, folderOf{"/proc/self", "ro"})
	if v := w.must(read, "path", "status"); !strings.Contains(v["content"].(string), "Name:") {
		t.Errorf("%v", v)
	}
	// Its links to the root and to open files lead out.
	w.refused(toolkeep.FilesystemDenied, read, "path", "root/etc/hostname")
	w.refused(toolkeep.FilesystemDenied, read, "path", "cwd/go.mod")
}

func TestOddFiles(t *testing.T) {
	w := newWorld(t)
	check(t, syscall.Mkfifo(filepath.Join(w.dir, "pipe"), 0o600))
	l, err := net.Listen("unix", filepath.Join(w.dir, "s"))
	check(t, err)
	defer l.Close()
	for _, name := range []string{"pipe", "s"} {
		for _, op := range []string{"read", "write"} {
			w.refused(toolkeep.FilesystemDenied, w.tool(op), "path", name, "content", "x")
		}
		w.refused(toolkeep.FilesystemDenied, w.tool("write"), "path", name, "content", "x", "mode", "append")
	}
	if v := w.must(w.tool("stat"), "path", "pipe"); v["type"] != "pipe" {
		t.Errorf("%v", v)
	}
	e := executor(t, Config{Roots: []Root{{Path: "/dev", Write: true}}})
	d := &world{t: t, dir: "/dev", e: e}
	d.refused(toolkeep.FilesystemDenied, manifest(`{"operation":"read"}`, folderOf{"/dev", "rw"}), "path", "zero")
	d.refused(toolkeep.FilesystemDenied, manifest(`{"operation":"write"}`, folderOf{"/dev", "rw"}), "path", "null", "content", "x")
}

func TestPaths(t *testing.T) {
	w := newWorld(t)
	w.put("a", "x")
	outside := t.TempDir()
	check(t, os.WriteFile(filepath.Join(outside, "secret"), []byte("s"), 0o644))
	check(t, os.Symlink(filepath.Join(outside, "secret"), filepath.Join(w.dir, "out")))
	check(t, os.Symlink(outside, filepath.Join(w.dir, "outdir")))
	check(t, os.Symlink("a", filepath.Join(w.dir, "in")))
	check(t, os.Symlink("loop", filepath.Join(w.dir, "loop")))
	read, write := w.tool("read"), w.tool("write")
	for _, p := range []string{"../a", "a/..", "a/../a", "..", "/", "/etc/passwd", w.dir + "/../x", filepath.Dir(w.dir), w.dir + "x", "out", "outdir/secret", "loop", ".toolkeep-tmp-1"} {
		w.refused(toolkeep.FilesystemDenied, read, "path", p)
	}
	for _, p := range []string{"", "a\x00b", strings.Repeat("x/", 2048) + "x", strings.Repeat("x", 256)} {
		w.refused(toolkeep.InputValidationFailed, read, "path", p)
	}
	if v := w.must(read, "path", "in"); v["content"] != "x" {
		t.Errorf("through a link within: %v", v)
	}
	for _, p := range []string{"out", "outdir/new", "in", "loop", "../new", "."} {
		_, err := w.do(write, "path", p, "content", "changed")
		if err == nil {
			t.Errorf("%q was written", p)
		}
	}
	if raw, _ := os.ReadFile(filepath.Join(outside, "secret")); string(raw) != "s" {
		t.Error("a file outside was written")
	}
	if _, err := os.Stat(filepath.Join(outside, "new")); err == nil {
		t.Error("a file was made outside")
	}
	if w.has("a") != "x" {
		t.Error("a link was written through")
	}
	// A message names what was asked and no path of the server.
	e := w.refused(toolkeep.FilesystemDenied, read, "path", "out")
	if strings.Contains(e.Message, w.dir) || strings.Contains(e.Message, outside) || !strings.Contains(e.Message, `"out"`) {
		t.Error(e.Message)
	}
}

func TestWrites(t *testing.T) {
	w := newWorld(t)
	write := w.tool("write")
	v := w.must(write, "path", "new", "content", "one")
	if v["created"] != true || v["size"] != json.Number("3") || w.has("new") != "one" {
		t.Errorf("%v", v)
	}
	check(t, os.Chmod(filepath.Join(w.dir, "new"), 0o640))
	if v := w.must(write, "path", "new", "content", "two!"); v["created"] != false || w.has("new") != "two!" {
		t.Errorf("%v", v)
	}
	if fi, err := os.Stat(filepath.Join(w.dir, "new")); err != nil || fi.Mode().Perm() != 0o640 {
		t.Errorf("permissions were not kept: %v %v", fi.Mode(), err)
	}
	w.must(write, "path", "bytes", "content", base64.StdEncoding.EncodeToString([]byte{0, 255}), "encoding", "base64")
	if w.has("bytes") != "\x00\xff" {
		t.Errorf("%q", w.has("bytes"))
	}
	w.refused(toolkeep.InputValidationFailed, write, "path", "bytes", "content", "no base64", "encoding", "base64")
	w.refused(toolkeep.InputValidationFailed, write, "path", "new", "content", "x", "mode", "create")
	w.refused(toolkeep.InputValidationFailed, write, "path", "new", "content", "x", "mode", "truncate")
	w.refused(toolkeep.InputValidationFailed, w.tool("write", `,"max_bytes":2`), "path", "new", "content", "xyz")
	w.refused(toolkeep.InputValidationFailed, write, "path", "no/folder", "content", "x")
	w.must(write, "path", "fresh", "content", "f", "mode", "create")
	if v := w.must(write, "path", "new", "content", "+", "mode", "append"); v["size"] != json.Number("5") || w.has("new") != "two!+" {
		t.Errorf("%v", v)
	}
	if v := w.must(write, "path", "log", "content", "1\n", "mode", "append"); v["created"] != true {
		t.Errorf("%v", v)
	}
	w.refused(toolkeep.InputValidationFailed, w.tool("write", `,"max_file_bytes":4`), "path", "log", "content", "123", "mode", "append")
	if w.has("log") != "1\n" {
		t.Error("a refused append wrote")
	}
	w.must(w.tool("write", `,"make_dirs":true,"new_mode":"0644"`), "path", "x/y/z", "content", "deep")
	if fi, err := os.Stat(filepath.Join(w.dir, "x/y/z")); err != nil || fi.Mode().Perm()&0o600 != 0o600 {
		t.Error(err)
	}
	for _, name := range entriesOf(t, w.dir) {
		if strings.HasPrefix(name, temporary) {
			t.Errorf("%s was left behind", name)
		}
	}
	w.refused(toolkeep.InputValidationFailed, write, "path", "x", "content", "a folder")
}

func entriesOf(t testing.TB, dir string) (names []string) {
	list, err := os.ReadDir(dir)
	check(t, err)
	for _, e := range list {
		names = append(names, e.Name())
	}
	return names
}

// TestWritesAtOnce has many writers of one file and readers that must see one of
// the contents whole.
func TestWritesAtOnce(t *testing.T) {
	w := newWorld(t)
	write, read := w.tool("write"), w.tool("read")
	w.must(write, "path", "f", "content", strings.Repeat("0", 10_000))
	var wg sync.WaitGroup
	var stop atomic.Bool
	for i := range 4 {
		wg.Go(func() {
			for range 20 {
				if _, err := w.do(write, "path", "f", "content", strings.Repeat(strconv.Itoa(i), 10_000)); err != nil {
					t.Error(err)
				}
			}
		})
	}
	var readers sync.WaitGroup
	for range 2 {
		readers.Go(func() {
			for !stop.Load() {
				v, err := w.do(read, "path", "f")
				if err != nil {
					t.Error(err)
					return
				}
				s := v["content"].(string)
				if len(s) != 10_000 || strings.Trim(s, s[:1]) != "" {
					t.Errorf("a mixed content of %d bytes", len(s))
					return
				}
			}
		})
	}
	wg.Wait()
	stop.Store(true)
	readers.Wait()
}

// TestCreateOnce lets exactly one of many creators win.
func TestCreateOnce(t *testing.T) {
	w := newWorld(t)
	write := w.tool("write")
	var won atomic.Int32
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			_, err := w.do(write, "path", "once", "content", strconv.Itoa(i), "mode", "create")
			if err == nil {
				won.Add(1)
			} else if err.Code != toolkeep.InputValidationFailed {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if won.Load() != 1 {
		t.Errorf("%d won", won.Load())
	}
}

func TestStatAndDelete(t *testing.T) {
	w := newWorld(t)
	w.put("d/f", "abc")
	check(t, os.Symlink("d/f", filepath.Join(w.dir, "l")))
	stat, del := w.tool("stat"), w.tool("delete")
	if v := w.must(stat, "path", "d/f"); v["exists"] != true || v["type"] != "file" || v["size"] != json.Number("3") || v["permissions"] != "0644" {
		t.Errorf("%v", v)
	}
	if v := w.must(stat, "path", "."); v["type"] != "folder" {
		t.Errorf("%v", v)
	}
	if v := w.must(stat, "path", "l"); v["type"] != "link" {
		t.Errorf("%v", v)
	}
	if v := w.must(stat, "path", "d/f/x"); v["exists"] != false {
		t.Errorf("%v", v)
	}
	w.refused(toolkeep.InputValidationFailed, del, "path", "d")
	w.refused(toolkeep.FilesystemDenied, del, "path", ".")
	w.refused(toolkeep.FilesystemDenied, del, "path", w.dir)
	w.must(del, "path", "l")
	if w.has("d/f") != "abc" {
		t.Error("deleting a link deleted its file")
	}
	w.must(del, "path", "d/f")
	w.must(del, "path", "d")
	w.refused(toolkeep.InputValidationFailed, del, "path", "d")
}

func TestLists(t *testing.T) {
	w := newWorld(t)
	w.put("b", "1")
	w.put("a/x", "1")
	check(t, os.Symlink("/etc", filepath.Join(w.dir, "c")))
	check(t, os.WriteFile(filepath.Join(w.dir, temporary+"1"), nil, 0o600))
	odd := os.WriteFile(filepath.Join(w.dir, "\xff"), nil, 0o600) == nil // some file systems take UTF-8 only
	list := w.tool("list")
	v := w.must(list)
	var got []string
	for _, e := range v["entries"].([]any) {
		m := e.(map[string]any)
		got = append(got, m["name"].(string)+":"+m["type"].(string))
	}
	if fmt.Sprint(got) != "[a:folder b:file c:link]" || v["truncated"] != false {
		t.Errorf("%v %v", got, v)
	}
	if odd && v["unnameable"] != json.Number("1") {
		t.Errorf("a name that is no text is not counted: %v", v)
	}
	w.refused(toolkeep.FilesystemDenied, list, "path", "c")
	w.refused(toolkeep.InputValidationFailed, list, "path", "b")
	w.refused(toolkeep.InputValidationFailed, list, "path", "none")
	w.refused(toolkeep.InputValidationFailed, list, "cursor", "!")
}

// TestLargeFolder lists a folder of 100,000 names page by page.
func TestLargeFolder(t *testing.T) {
	w := newWorld(t)
	first := w.put("big/00000000", "")
	const n = 100_000
	for i := 1; i < n; i++ {
		check(t, os.WriteFile(filepath.Join(filepath.Dir(first), fmt.Sprintf("%08d", i)), nil, 0o600))
	}
	list := w.tool("list")
	v := w.must(list, "path", "big")
	if len(v["entries"].([]any)) != defaultPage || v["truncated"] != true {
		t.Fatalf("%d entries, truncated %v", len(v["entries"].([]any)), v["truncated"])
	}
	for page := range 3 {
		v := w.must(list, "path", "big", "limit", 1000, "cursor", base64.RawURLEncoding.EncodeToString(fmt.Appendf(nil, "%08d", n-1-2500+page*1000)))
		entries := v["entries"].([]any)
		if got := entries[0].(map[string]any)["name"]; got != fmt.Sprintf("%08d", n-2500+page*1000) {
			t.Errorf("page %d begins with %v", page, got)
		}
		if more := page < 2; v["truncated"] != more || len(entries) != map[bool]int{true: 1000, false: 500}[more] {
			t.Errorf("page %d has %d entries, truncated %v", page, len(entries), v["truncated"])
		}
	}
	x := execution(list, map[string]any{"path": "big", "limit": json.Number("1000")})
	x.MaxBytes = 5000
	if _, err := w.e.Execute(t.Context(), x); toolkeep.AsError(err).Code != toolkeep.ResultTooLarge {
		t.Errorf("over the limit of bytes: %v", err)
	}
}

// TestEnds wants a context that ends to be noticed between pieces.
func TestEnds(t *testing.T) {
	w := newWorld(t)
	w.put("f", strings.Repeat("x", 3*chunk))
	ends := func(do func(c *call) *toolkeep.Error) {
		t.Helper()
		b, faults := parse(w.tool("write"))
		if len(faults) > 0 {
			t.Fatal(faults)
		}
		root, err := os.OpenRoot(w.dir)
		check(t, err)
		defer root.Close()
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		c := &call{ctx: ctx, x: execution(w.tool("write"), map[string]any{"content": "y"}), b: b, root: root, limit: 1 << 20,
			t: &target{name: "f", shown: "f"}}
		if e := do(c); e == nil || e.Code != toolkeep.Cancelled {
			t.Errorf("got %v, want E3902", e)
		}
	}
	ends(func(c *call) *toolkeep.Error { _, err := c.read(); return err })
	ends(func(c *call) *toolkeep.Error { c.t.name = "."; _, err := c.list(); return err })
	ends(func(c *call) *toolkeep.Error { _, err := c.write(); return err })
	if w.has("f") != strings.Repeat("x", 3*chunk) || len(entriesOf(t, w.dir)) != 1 {
		t.Error("a write that was cancelled left something")
	}
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		<-ctx.Done()
		if e := ended(ctx, false); e.Code != toolkeep.UpstreamTimeout {
			t.Errorf("%v", e)
		}
	})
}

func TestFolders(t *testing.T) {
	base := t.TempDir()
	for _, d := range []string{"data/in", "data/out", "data/files", "other"} {
		check(t, os.MkdirAll(filepath.Join(base, d), 0o755))
	}
	at := func(p string) string { return filepath.Join(base, p) }
	check(t, os.WriteFile(at("data/in/f"), []byte("in"), 0o644))
	check(t, os.WriteFile(at("other/f"), []byte("other"), 0o644))
	e := executor(t, Config{Home: at("data/files/{tenant}"), Roots: []Root{
		{Path: at("data/in")}, {Path: at("data/out"), Write: true}, {Path: at("data/files/{tenant}"), Write: true}}})
	w := &world{t: t, dir: base, e: e}

	// A tool may ask for more than is open, and gets what is open.
	wide := manifest(`{"operation":"read"}`, folderOf{base, "rw"})
	if v := w.must(wide, "path", at("data/in/f")); v["content"] != "in" {
		t.Errorf("%v", v)
	}
	w.refused(toolkeep.FilesystemDenied, wide, "path", at("other/f"))
	write := manifest(`{"operation":"write"}`, folderOf{base, "rw"})
	w.refused(toolkeep.FilesystemDenied, write, "path", at("data/in/f"), "content", "x")
	w.must(write, "path", "data/out/g", "content", "g")
	// A link in the one folder does not lead to the other.
	check(t, os.Symlink("../in/f", at("data/out/link")))
	w.refused(toolkeep.FilesystemDenied, wide, "path", "data/out/link")

	// Without a folder that is open a tool can do nothing.
	w.refused(toolkeep.FilesystemDenied, manifest(`{"operation":"read"}`, folderOf{at("other"), "ro"}), "path", "f")
	closed := &world{t: t, e: executor(t, Config{})}
	closed.refused(toolkeep.FilesystemDenied, wide, "path", at("data/in/f"))
	closed.refused(toolkeep.FilesystemDenied, manifest(`{"operation":"read"}`, folderOf{"notes", "ro"}), "path", "f")

	// Relative folders are the tenant's own, made when they are first used.
	notes := manifest(`{"operation":"write","make_dirs":true}`, folderOf{"notes", "rw"})
	mk := manifest(`{"operation":"write","make_dirs":true}`, folderOf{".", "rw"})
	w.must(mk, "path", "notes/a", "content", "acme's")
	w.must(notes, "path", "b", "content", "acme's")
	if raw, err := os.ReadFile(at("data/files/acme/notes/b")); err != nil || string(raw) != "acme's" {
		t.Errorf("%q %v", raw, err)
	}
	as := func(tenant, path string) error {
		x := execution(manifest(`{"operation":"read"}`, folderOf{".", "ro"}), map[string]any{"path": path})
		x.Principal = &toolkeep.Principal{Tenant: tenant}
		_, err := e.Execute(t.Context(), x)
		return err
	}
	for _, c := range []struct {
		tenant, path string
		code         toolkeep.Code
	}{
		{"other", "notes/b", toolkeep.InputValidationFailed},
		{"other", at("data/files/acme/notes/b"), toolkeep.FilesystemDenied},
		{"", "notes/b", toolkeep.FilesystemDenied},
		{"..", "notes/b", toolkeep.FilesystemDenied},
		{"../files/acme", "notes/b", toolkeep.FilesystemDenied},
		{"a/b", "notes/b", toolkeep.FilesystemDenied},
		{"acme", "notes/b", ""},
	} {
		if e := toolkeep.AsError(as(c.tenant, c.path)); e != nil && e.Code != c.code || e == nil && c.code != "" {
			t.Errorf("tenant %q, %s: %v, want %q", c.tenant, c.path, e, c.code)
		}
	}
	if names := entriesOf(t, at("data/files")); fmt.Sprint(names) != "[acme other]" {
		t.Errorf("folders of tenants: %v", names)
	}
}

// TestFolderBehindLink has a manifest name a folder by a path with a link that
// leads out of what the operator opens.
func TestFolderBehindLink(t *testing.T) {
	base := t.TempDir()
	check(t, os.MkdirAll(filepath.Join(base, "open/real"), 0o755))
	check(t, os.MkdirAll(filepath.Join(base, "closed"), 0o755))
	check(t, os.WriteFile(filepath.Join(base, "closed/f"), nil, 0o644))
	check(t, os.WriteFile(filepath.Join(base, "open/real/f"), nil, 0o644))
	check(t, os.Symlink("../closed", filepath.Join(base, "open/out")))
	check(t, os.Symlink("real", filepath.Join(base, "open/in")))
	check(t, os.Symlink("open", filepath.Join(base, "way")))
	w := &world{t: t, e: executor(t, Config{Roots: []Root{{Path: filepath.Join(base, "way")}}})}
	read := func(folder string) *toolkeep.Manifest {
		return manifest(`{"operation":"read"}`, folderOf{filepath.Join(base, folder), "ro"})
	}
	w.refused(toolkeep.FilesystemDenied, read("way/out"), "path", "f")
	w.must(read("way/in"), "path", "f")
	w.refused(toolkeep.FilesystemDenied, read("open/real"), "path", "f") // another path than the operator's
}

func TestNarrow(t *testing.T) {
	roots := func(s ...string) (out []Root) {
		for _, r := range s {
			out = append(out, ParseRoot(r))
		}
		return out
	}
	for _, c := range []struct{ a, b, want []Root }{
		{roots("/a:rw"), roots("/a"), roots("/a:ro")},
		{roots("/a:rw"), roots("/a:rw"), roots("/a:rw")},
		{roots("/a:rw"), roots("/a/b:rw", "/c:rw"), roots("/a/b:rw")},
		{roots("/a/b"), roots("/:rw"), roots("/a/b")},
		{roots("/a"), roots("/ab"), nil},
		{roots("/a"), nil, nil},
		{nil, roots("/a"), nil},
		{roots("/a", "/a/b:rw"), roots("/a:rw"), roots("/a", "/a/b:rw")},
	} {
		if got := Narrow(c.a, c.b); fmt.Sprint(got) != fmt.Sprint(c.want) {
			t.Errorf("Narrow(%v, %v) = %v, want %v", c.a, c.b, got, c.want)
		}
	}
}

func TestConfig(t *testing.T) {
	for _, roots := range [][]Root{
		{{Path: "relative"}}, {{Path: ""}}, {{Path: "/a/../b"}}, {{Path: "/a\x00"}}, {{Path: "/a{tenant}"}},
		{{Path: "/a", Write: true}, {Path: "/a/b"}},
	} {
		if _, err := New(Config{Roots: roots}); err == nil {
			t.Errorf("%v is taken", roots)
		}
	}
}

func TestMapping(t *testing.T) {
	w := newWorld(t)
	w.put("reports/may.txt", "May")
	read := w.tool("read", `,"arguments":{"path":"name"},"fixed":{"limit":2}`)
	if v := w.must(read, "name", "reports/may.txt", "limit", 100, "path", "nope"); v["content"] != "Ma" {
		t.Errorf("%v", v)
	}
	fixed := w.tool("read", `,"fixed":{"path":"reports/may.txt"}`)
	if v := w.must(fixed, "path", "/etc/passwd"); v["content"] != "May" {
		t.Errorf("%v", v)
	}
}

// TestLinksThatChange swaps a folder for a link that leads out while files are
// read and written through it.
func TestLinksThatChange(t *testing.T) {
	w := newWorld(t)
	outside := t.TempDir()
	check(t, os.WriteFile(filepath.Join(outside, "f"), []byte("outside"), 0o644))
	w.put("real/f", "inside")
	way, spare := filepath.Join(w.dir, "way"), filepath.Join(w.dir, "spare")
	check(t, os.Symlink("real", way))
	check(t, os.Symlink(outside, spare))
	var stop atomic.Bool
	var wg sync.WaitGroup
	wg.Go(func() {
		for !stop.Load() {
			third := filepath.Join(w.dir, "third")
			for _, move := range [][2]string{{way, third}, {spare, way}, {third, spare}} {
				if err := os.Rename(move[0], move[1]); err != nil {
					t.Error(err)
					return
				}
			}
		}
	})
	read, write := w.tool("read"), w.tool("write")
	for range 2000 {
		if v, err := w.do(read, "path", "way/f"); err == nil && v["content"] == "outside" {
			t.Fatal("a file outside was read")
		}
		_, _ = w.do(write, "path", "way/new", "content", "x")
	}
	stop.Store(true)
	wg.Wait()
	if names := entriesOf(t, outside); len(names) != 1 {
		t.Fatalf("files were made outside: %v", names)
	}
}

// FuzzPaths resolves paths in a tree full of links; nothing outside may be read.
func FuzzPaths(f *testing.F) {
	base, err := os.MkdirTemp("", "filetool")
	check(f, err)
	f.Cleanup(func() { _ = os.RemoveAll(base) })
	for _, d := range []string{"root/a/b", "root/c", "out/a"} {
		check(f, os.MkdirAll(filepath.Join(base, d), 0o755))
	}
	for name, content := range map[string]string{"root/f": "in", "root/a/f": "in", "root/a/b/f": "in", "out/f": "out", "out/a/f": "out", "f": "out"} {
		check(f, os.WriteFile(filepath.Join(base, name), []byte(content), 0o644))
	}
	for link, to := range map[string]string{
		"root/up": "..", "root/a/up": "..", "root/a/b/up2": "../../..", "root/abs": filepath.Join(base, "out"), "root/c/side": "../../out",
		"root/self": ".", "root/c/loop": "loop", "root/chain": "c/side/a", "root/a/in": "../c", "root/dot": "./a/./b",
	} {
		check(f, os.Symlink(to, filepath.Join(base, link)))
	}
	e := executor(f, Config{Roots: []Root{{Path: filepath.Join(base, "root"), Write: true}}})
	w := &world{t: f, dir: filepath.Join(base, "root"), e: e}
	m := w.tool("read")
	for _, s := range []string{"f", "a/f", "up/f", "a/up/f", "abs/f", "c/side/a/f", "chain/f", "self/self/f", "a/b/up2/out/f", "dot/f", "c/loop",
		"a//f", "./f", "a/./f", "../root/f", "up/root/f", base + "/root/f", base + "/out/f", "a/in/side/f", "f/", "/", "~/f", "f\x00", "%2e%2e/f", "..\\f"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, p string) {
		x := execution(m, map[string]any{"path": p})
		out, err := e.Execute(t.Context(), x)
		if err != nil {
			own := toolkeep.AsError(err)
			if own.Code == toolkeep.InternalError {
				t.Fatalf("%q: %v because of %v", p, own, own.Cause)
			}
			return
		}
		if v := out.Value.(map[string]any); v["content"] != "in" {
			t.Fatalf("%q gives %v", p, v["content"])
		}
	})
}

// TestArguments has a schema that leaves all open: what is missing or of another
// type is refused, whatever the operation would take for it, and nothing is touched.
func TestArguments(t *testing.T) {
	w := newWorld(t)
	w.put("a.md", "kept")
	type args = map[string]any
	for _, c := range []struct {
		op, arg string
		args    args
		code    toolkeep.Code
	}{
		{"write", "content", args{"path": "a.md"}, toolkeep.MissingParameter},
		{"write", "path", args{"content": "x"}, toolkeep.MissingParameter},
		{"read", "path", args{}, toolkeep.MissingParameter},
		{"stat", "path", args{}, toolkeep.MissingParameter},
		{"delete", "path", args{}, toolkeep.MissingParameter},
		{"write", "content", args{"path": "a.md", "content": json.Number("5")}, toolkeep.InputValidationFailed},
		{"write", "content", args{"path": "a.md", "content": args{"a": json.Number("1")}}, toolkeep.InputValidationFailed},
		{"write", "content", args{"path": "a.md", "content": []any{"x"}}, toolkeep.InputValidationFailed},
		{"write", "content", args{"path": "a.md", "content": nil}, toolkeep.InputValidationFailed},
		{"write", "content", args{"path": "a.md", "content": true, "mode": "append"}, toolkeep.InputValidationFailed},
		{"write", "path", args{"path": json.Number("1"), "content": "x"}, toolkeep.InputValidationFailed},
		{"write", "encoding", args{"path": "a.md", "content": "x", "encoding": false}, toolkeep.InputValidationFailed},
		{"write", "mode", args{"path": "a.md", "content": "x", "mode": []any{}}, toolkeep.InputValidationFailed},
		{"read", "path", args{"path": []any{"a.md"}}, toolkeep.InputValidationFailed},
		{"read", "encoding", args{"path": "a.md", "encoding": json.Number("8")}, toolkeep.InputValidationFailed},
		{"read", "limit", args{"path": "a.md", "limit": "1"}, toolkeep.InputValidationFailed},
		{"read", "limit", args{"path": "a.md", "limit": nil}, toolkeep.InputValidationFailed},
		{"read", "offset", args{"path": "a.md", "offset": json.Number("1.5")}, toolkeep.InputValidationFailed},
		{"list", "path", args{"path": false}, toolkeep.InputValidationFailed},
		{"list", "cursor", args{"cursor": json.Number("3")}, toolkeep.InputValidationFailed},
		{"list", "limit", args{"limit": []any{}}, toolkeep.InputValidationFailed},
		{"stat", "path", args{"path": nil}, toolkeep.InputValidationFailed},
		{"delete", "path", args{"path": args{"a.md": true}}, toolkeep.InputValidationFailed},
	} {
		_, err := w.e.Execute(t.Context(), execution(w.tool(c.op), c.args))
		e := toolkeep.AsError(err)
		if e == nil || e.Code != c.code || !e.NothingSent {
			t.Errorf("%s %v: %v, want %s", c.op, c.args, err, c.code)
			continue
		}
		if f := e.Details["errors"].([]toolkeep.Fault); f[0].Pointer != "/"+c.arg {
			t.Errorf("%s %v: the fault is at %s", c.op, c.args, f[0].Pointer)
		}
	}
	// By another name the message says that one.
	e := w.refused(toolkeep.MissingParameter, w.tool("write", `,"arguments":{"content":"name"}`), "path", "a.md", "content", "x")
	if !strings.Contains(e.Message, "name") || strings.Contains(e.Message, "content") {
		t.Error(e.Message)
	}
	if names := entriesOf(t, w.dir); fmt.Sprint(names) != "[a.md]" || w.has("a.md") != "kept" {
		t.Errorf("%v, a.md is %q", names, w.has("a.md"))
	}
}

// TestOwnFolder has a tool ask for a folder that is not there.
func TestOwnFolder(t *testing.T) {
	base := t.TempDir()
	at := func(p string) string { return filepath.Join(base, p) }
	check(t, os.MkdirAll(at("files"), 0o755))
	check(t, os.MkdirAll(at("srv"), 0o755))
	check(t, os.MkdirAll(at("outside"), 0o755))
	check(t, os.Symlink("../outside", at("srv/out")))
	check(t, os.Symlink("../absent", at("srv/dangling")))
	e := executor(t, Config{Home: at("files/{tenant}"), Roots: []Root{
		{Path: at("files/{tenant}"), Write: true}, {Path: at("srv"), Write: true}, {Path: at("gone"), Write: true}}})
	w := &world{t: t, dir: base, e: e}
	tool := func(binding, folder, mode string) *toolkeep.Manifest {
		return manifest(binding, folderOf{folder, mode})
	}
	const makes = `{"operation":"write","make_dirs":true}`

	// Nobody but who writes with make_dirs makes it; the message names it and the remedy.
	for _, m := range []*toolkeep.Manifest{tool(`{"operation":"write"}`, "notes/of", "rw"), tool(`{"operation":"read"}`, "notes/of", "rw"), tool(`{"operation":"delete"}`, "notes/of", "rw")} {
		e := w.refused(toolkeep.FilesystemDenied, m, "path", "a", "content", "x")
		if !strings.Contains(e.Message, `"notes/of"`) || !strings.Contains(e.Message, "make_dirs: true") || strings.Contains(e.Message, base) {
			t.Error(e.Message)
		}
	}
	// A call that is refused for another reason makes nothing either.
	w.refused(toolkeep.InputValidationFailed, tool(makes, "notes/of", "rw"), "path", "a", "content", "x", "encoding", "latin1")
	w.refused(toolkeep.InputValidationFailed, tool(makes, "notes/of", "rw"), "path", "a", "content", 5)
	if names := entriesOf(t, at("files/acme")); len(names) != 0 {
		t.Errorf("made: %v", names)
	}
	w.must(tool(makes, "notes/of", "rw"), "path", "a", "content", "acme's")
	if v := w.must(tool(`{"operation":"read"}`, "notes/of", "ro"), "path", "a"); v["content"] != "acme's" {
		t.Errorf("%v", v)
	}
	w.must(tool(makes, at("srv/x/y"), "rw"), "path", "z/a", "content", "deep")
	if raw, err := os.ReadFile(at("srv/x/y/z/a")); err != nil || string(raw) != "deep" {
		t.Errorf("%q %v", raw, err)
	}

	// No link is followed out, and the operator's own folder is the operator's to make.
	for _, folder := range []string{"srv/out/new", "srv/dangling", "srv/dangling/new"} {
		w.refused(toolkeep.FilesystemDenied, tool(makes, at(folder), "rw"), "path", "a", "content", "x")
	}
	gone := w.refused(toolkeep.FilesystemDenied, tool(makes, at("gone"), "rw"), "path", "a", "content", "x")
	if !strings.Contains(gone.Message, "files.roots") || strings.Contains(gone.Message, base) {
		t.Error(gone.Message)
	}
	if names := fmt.Sprint(entriesOf(t, base), entriesOf(t, at("outside"))); names != "[files outside srv] []" {
		t.Errorf("made: %s", names)
	}

	// Neither is a server's path told to a tenant without a folder.
	x := execution(tool(`{"operation":"read"}`, ".", "ro"), map[string]any{"path": "a"})
	x.Principal = &toolkeep.Principal{Tenant: "a/b"}
	_, err := e.Execute(t.Context(), x)
	if e := toolkeep.AsError(err); e == nil || e.Code != toolkeep.FilesystemDenied || strings.Contains(e.Message, base) || !strings.Contains(e.Message, "tenant") {
		t.Errorf("%v", err)
	}
}

// TestBelowFile names what would lie in a file.
func TestBelowFile(t *testing.T) {
	w := newWorld(t)
	w.put("n/a.md", "x")
	check(t, os.Symlink("a.md", filepath.Join(w.dir, "n/in")))
	for _, op := range []string{"write", "read", "delete", "list"} {
		for _, c := range []struct{ path, file string }{{"n/a.md/x", "n/a.md"}, {"n/a.md/x/y", "n/a.md"}, {"n/in/x", "n/in"}} {
			for _, more := range []string{"", `,"make_dirs":true`} {
				if more != "" && op != "write" {
					continue
				}
				e := w.refused(toolkeep.InputValidationFailed, w.tool(op, more), "path", c.path, "content", "x")
				if !strings.Contains(e.Message, `"`+c.file+`" is no folder`) {
					t.Errorf("%s %s: %s", op, c.path, e.Message)
				}
			}
		}
	}
	if w.has("n/a.md") != "x" {
		t.Error("the file changed")
	}
}
