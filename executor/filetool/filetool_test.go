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

// world is an executor over one writable folder.
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

// do runs an operation; args alternate names and values.
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

// refused asserts that the call fails with a code.
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
				bad("over 64 KiB", `{"operation":"read"}`+strings.Repeat(" ", 64<<10), b),
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

	// A text read in pieces joins up, whichever characters the limit splits.
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
	// A limit below the size of a character returns bytes, so that reading proceeds.
	if v := w.must(read, "path", "a/käse.txt", "limit", 1); v["encoding"] != "base64" || v["next_offset"] != json.Number("1") {
		t.Errorf("%v", v)
	}
	if v := w.must(w.tool("read", `,"max_bytes":2`), "path", "a/käse.txt", "limit", 100); v["content"] != "ä" {
		t.Errorf("a limit over the tool's own: %v", v)
	}
	for _, n := range []json.Number{"100", "17592186044416", "9007199254740993", "9223372036854775807"} { // the last are more than ext4 and xfs can hold
		if v := w.must(read, "path", "bin", "offset", n, "limit", n); v["content"] != "" || v["truncated"] != false || v["offset"] != n {
			t.Errorf("from %s: %v", n, v)
		}
		if v := w.must(read, "path", "bin", "limit", n); v["content"] == "" || v["truncated"] != false {
			t.Errorf("up to %s: %v", n, v)
		}
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

// TestProc reads a file whose reported size is 0.
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
	// Its links to the root and to open files lead out of the folder.
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
	// The message contains the requested path, not a server path.
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

// TestWritesAtOnce: with concurrent writers of a file, readers always see one complete
// content.
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

// TestCreateOnce: exactly one of many creators wins.
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
	odd := os.WriteFile(filepath.Join(w.dir, "\xff"), nil, 0o600) == nil // some file systems accept only UTF-8
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
		t.Errorf("a name that is not text is not counted: %v", v)
	}
	w.refused(toolkeep.FilesystemDenied, list, "path", "c")
	w.refused(toolkeep.InputValidationFailed, list, "path", "b")
	w.refused(toolkeep.InputValidationFailed, list, "path", "none")
	w.refused(toolkeep.InputValidationFailed, list, "cursor", "!")
}

// TestLargeFolder lists a folder of 100,000 entries page by page.
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
	if _, err := w.e.Execute(t.Context(), x); !toolkeep.IsCode(err, toolkeep.ResultTooLarge) {
		t.Errorf("over the limit of bytes: %v", err)
	}
}

// TestEnds: the end of a context is noticed between pieces.
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
