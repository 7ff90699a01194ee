package filetool

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/toolkeep/toolkeep"
)

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

	// A tool may request more than is open, and gets what is open.
	wide := manifest(`{"operation":"read"}`, folderOf{base, "rw"})
	if v := w.must(wide, "path", at("data/in/f")); v["content"] != "in" {
		t.Errorf("%v", v)
	}
	w.refused(toolkeep.FilesystemDenied, wide, "path", at("other/f"))
	write := manifest(`{"operation":"write"}`, folderOf{base, "rw"})
	w.refused(toolkeep.FilesystemDenied, write, "path", at("data/in/f"), "content", "x")
	w.must(write, "path", "data/out/g", "content", "g")
	// A link in one folder does not lead to the other.
	check(t, os.Symlink("../in/f", at("data/out/link")))
	w.refused(toolkeep.FilesystemDenied, wide, "path", "data/out/link")

	// Without an open folder a tool can do nothing.
	w.refused(toolkeep.FilesystemDenied, manifest(`{"operation":"read"}`, folderOf{at("other"), "ro"}), "path", "f")
	closed := &world{t: t, e: executor(t, Config{})}
	closed.refused(toolkeep.FilesystemDenied, wide, "path", at("data/in/f"))
	closed.refused(toolkeep.FilesystemDenied, manifest(`{"operation":"read"}`, folderOf{"notes", "ro"}), "path", "f")

	// Relative folders belong to the tenant and are created on first use.
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

// TestFolderBehindLink: a manifest's folder path contains a link that leads out of the
// operator's folders.
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

func TestMeet(t *testing.T) {
	roots := func(s ...string) (out []Root) {
		for _, r := range s {
			out = append(out, parseRoot(r))
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
		var folders []folder
		for _, r := range c.a {
			folders = append(folders, folder{Root: r})
		}
		var got []Root
		for _, f := range meet(folders, c.b, false) {
			got = append(got, f.Root)
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%v meet %v in %v, want %v", c.a, c.b, got, c.want)
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

// TestReadConfig: folders of files.roots that would open more than files, or that cannot be
// read, are refused.
func TestReadConfig(t *testing.T) {
	toProc := filepath.Join(t.TempDir(), "toproc")
	check(t, os.Symlink("/proc/1", toProc))
	for _, c := range []struct {
		roots []string
		want  string // "" is right
	}{
		{[]string{"{tenant}:rw", "/srv/reports"}, ""},
		{[]string{"none"}, ""},
		{[]string{"/srv:rw", "/srv/x:ro"}, "/srv/x cannot be ro"},
		{[]string{"/srv/{tenat}:rw"}, `"/srv/{tenat}"`},
		{[]string{"../../x:rw"}, `files.roots.*".."`},
		{[]string{"/proc"}, `files.roots.*"/proc"`},
		{[]string{"/srv", "/proc/self/:rw"}, `files.roots.*"/proc/self/"`},
		{[]string{"/proc/{tenant}"}, `files.roots.*"/proc/{tenant}"`},
		{[]string{"//"}, `files.roots.*"//" cannot be used: it holds /proc`},
		{[]string{toProc}, "files.roots.*toproc"},
	} {
		got, err := ReadConfig("/data/files", c.roots)
		if c.want == "" {
			if err != nil || got.Home != "/data/files/{tenant}" {
				t.Errorf("%q: %+v, %v", c.roots, got, err)
			}
			continue
		}
		head, tail, _ := strings.Cut(c.want, ".*")
		if e := toolkeep.AsError(err); e == nil || e.Code != toolkeep.InvalidManifest || !strings.Contains(e.Message, head) || !strings.Contains(e.Message, tail) {
			t.Errorf("%q: %v, want %q", c.roots, err, c.want)
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

// TestLinksThatChange replaces a folder by a link that leads out, while files are read
// and written through it.
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

// FuzzPaths resolves paths in a tree full of links; nothing outside may be readable.
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

// TestArguments uses a schema without constraints: missing or mistyped arguments are
// refused, whatever the operation, and nothing is touched.
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
	// The message uses a renamed argument's name.
	e := w.refused(toolkeep.MissingParameter, w.tool("write", `,"arguments":{"content":"name"}`), "path", "a.md", "content", "x")
	if !strings.Contains(e.Message, "name") || strings.Contains(e.Message, "content") {
		t.Error(e.Message)
	}
	if names := entriesOf(t, w.dir); fmt.Sprint(names) != "[a.md]" || w.has("a.md") != "kept" {
		t.Errorf("%v, a.md is %q", names, w.has("a.md"))
	}
}

// TestOwnFolder: a tool requests a missing folder.
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

	// Only a write with make_dirs creates it; the message names the folder and the
	// remedy.
	for _, m := range []*toolkeep.Manifest{tool(`{"operation":"write"}`, "notes/of", "rw"), tool(`{"operation":"read"}`, "notes/of", "rw"), tool(`{"operation":"delete"}`, "notes/of", "rw")} {
		e := w.refused(toolkeep.FilesystemDenied, m, "path", "a", "content", "x")
		if !strings.Contains(e.Message, `"notes/of"`) || !strings.Contains(e.Message, "make_dirs: true") || strings.Contains(e.Message, base) {
			t.Error(e.Message)
		}
	}
	// A call that is refused for another reason creates nothing either.
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

	// No link out of the folder is followed, and the operator must create their own
	// folder.
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

	// A tenant without a folder does not see a server path either.
	x := execution(tool(`{"operation":"read"}`, ".", "ro"), map[string]any{"path": "a"})
	x.Principal = &toolkeep.Principal{Tenant: "a/b"}
	_, err := e.Execute(t.Context(), x)
	if e := toolkeep.AsError(err); e == nil || e.Code != toolkeep.FilesystemDenied || strings.Contains(e.Message, base) || !strings.Contains(e.Message, "tenant") {
		t.Errorf("%v", err)
	}
}

// TestBelowFile checks the error for a path below a file.
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
				if !strings.Contains(e.Message, `"`+c.file+`" is not a folder`) {
					t.Errorf("%s %s: %s", op, c.path, e.Message)
				}
			}
		}
	}
	if w.has("n/a.md") != "x" {
		t.Error("the file changed")
	}
}

// TestFaultsOfFolders: a fault of the folders brings no other with it.
func TestFaultsOfFolders(t *testing.T) {
	for _, op := range []string{"read", "list", "stat"} {
		m := manifest(`{"operation":"` + op + `","root":"/srv/a"}`)
		_, faults := parse(m)
		if len(faults) != 1 || faults[0].Pointer != "/permissions/filesystem" {
			t.Errorf("%s without permissions.filesystem: %v", op, faults)
		}
	}
}

// endsSoon is a lack of descriptors that has ended when it is looked at again, as that of a resolver does.
type endsSoon struct{ asked int }

func (*endsSoon) Error() string { return "no descriptors" }

func (e *endsSoon) Is(target error) bool {
	if target == syscall.EMFILE {
		e.asked++
	}
	return target == syscall.EMFILE && e.asked == 1
}

func TestLackOfDescriptorsThatEnds(t *testing.T) {
	c := &call{b: &binding{}, t: &target{}}
	if e := c.failed(&endsSoon{}); e == nil || e.Code != toolkeep.Backpressure {
		t.Errorf("%v", e)
	}
}
