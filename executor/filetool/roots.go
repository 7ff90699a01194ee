package filetool

import (
	"errors"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/canon"
	"github.com/toolkeep/toolkeep/datadir"
)

// Root is a folder and everything below it.
type Root struct {
	Path  string // absolute; an element may be {tenant}
	Write bool   // files may be created, changed and deleted
}

// ReadConfig reads the setting files.roots: base is the absolute folder of relative ones and of
// the tenants' homes, and "none" alone opens nothing. E3008 if a folder cannot be used.
func ReadConfig(base string, roots []string) (Config, error) {
	c := Config{Home: filepath.Join(base, datadir.TenantMark)}
	if slices.Equal(roots, []string{"none"}) {
		return c, nil
	}
	for _, text := range roots {
		r := parseRoot(text)
		if !filepath.IsAbs(r.Path) && r.Path != "" {
			r.Path = base + "/" + r.Path // not cleaned, so that ".." is seen
		}
		if holdsProc(r.Path) {
			return Config{}, toolkeep.NewError(toolkeep.InvalidManifest,
				"files.roots: the folder %q cannot be used: it holds /proc or lies in it, where files show the server's environment and memory; name the folders that tools need", r.Path)
		}
		c.Roots = append(c.Roots, r)
	}
	if err := c.Validate(); err != nil {
		return Config{}, toolkeep.NewError(toolkeep.InvalidManifest, "files.roots: %s", toolkeep.AsError(err).Message)
	}
	return c, nil
}

// holdsProc reports whether a folder is in the kernel's file system of processes, under
// whatever name, or contains it.
func holdsProc(path string) bool {
	path, _, _ = strings.Cut(path, "/"+datadir.TenantMark)
	real := filepath.Clean("/" + path)
	if found, err := filepath.EvalSymlinks(real); err == nil {
		real = found
	}
	var at syscall.Statfs_t
	const procMagic = 0x9fa0 // PROC_SUPER_MAGIC of Linux
	return real == "/" || real == "/proc" || strings.HasPrefix(real, "/proc/") || syscall.Statfs(real, &at) == nil && int64(at.Type) == procMagic
}

// parseRoot parses PATH, PATH:ro or PATH:rw; the default mode is ro.
func parseRoot(s string) Root {
	if p, ok := strings.CutSuffix(s, ":rw"); ok {
		return Root{Path: p, Write: true}
	}
	return Root{Path: strings.TrimSuffix(s, ":ro")}
}

// folder is a Root and how to open it: base is opened by its path, which the operator
// vouches for, and each step below the previous one.
type folder struct {
	Root
	base  string
	steps []string // absolute paths, each within the previous one; the last is Path
	// token says that the last step is a path of the call's capability token: a folder or a file.
	token bool
}

// meet intersects two lists of folders: each folder of one that is inside a folder of
// the other, writable if both are. Empty limits leave none; token says that they are a token's.
func meet(folders []folder, limits []Root, token bool) []folder {
	var out []folder
	for _, f := range folders {
		for _, l := range limits {
			switch {
			case within(f.Path, l.Path):
				both := f
				both.Write = f.Write && l.Write
				out = append(out, both)
			case within(l.Path, f.Path):
				out = append(out, folder{Root: Root{Path: l.Path, Write: f.Write && l.Write}, base: f.base, steps: append(slices.Clone(f.steps), l.Path), token: token})
			}
		}
	}
	return out
}

// within reports whether p is dir or below it; both are clean and absolute.
func within(p, dir string) bool {
	if dir == "/" || p == dir {
		return true
	}
	return len(p) > len(dir) && p[len(dir)] == '/' && p[:len(dir)] == dir
}

// below returns p relative to dir, "." for dir itself.
func below(p, dir string) string {
	if rest := strings.TrimPrefix(p[len(dir):], "/"); rest != "" {
		return rest
	}
	return "."
}

// open opens the folder. A step cannot lead out of the previous one; missing ones are
// created if mk is set and the folder is writable.
func (f *folder) open(mk bool) (*os.Root, error) {
	root, err := os.OpenRoot(f.base)
	if err != nil {
		return nil, err
	}
	at := f.base
	for _, step := range f.steps {
		name := below(step, at)
		next, err := root.OpenRoot(name)
		if mk && f.Write && errors.Is(err, fs.ErrNotExist) {
			if err = root.MkdirAll(name, 0o700); err == nil {
				next, err = root.OpenRoot(name)
			}
		}
		root.Close()
		if err != nil {
			return nil, err
		}
		root, at = next, step
	}
	return root, nil
}

// open opens the target's folder. A path of a token may be a file: if the target is that path
// itself and neither a folder nor a link, the folder around it is opened, and name is the file.
func (t *target) open(mk bool) (*os.Root, error) {
	f := t.folder
	if !f.token || t.name != "." {
		return f.open(mk)
	}
	around, at := *f, f.base
	if around.steps = f.steps[:len(f.steps)-1]; len(around.steps) > 0 {
		at = around.steps[len(around.steps)-1]
	}
	if dir := path.Dir(f.Path); dir != at {
		around.steps = append(slices.Clone(around.steps), dir)
	}
	root, err := around.open(mk)
	if err != nil {
		return nil, err
	}
	name := path.Base(f.Path)
	fi, err := root.Lstat(name)
	if errors.Is(err, fs.ErrNotExist) || err == nil && fi.Mode()&(fs.ModeDir|fs.ModeSymlink) == 0 {
		t.name = name
		return root, nil
	}
	defer root.Close()
	if err != nil {
		return nil, err
	}
	return root.OpenRoot(name)
}

// checkRoot returns what is wrong with a folder's path, or "".
func checkRoot(p string, absolute bool) string {
	switch {
	case p == "":
		return "the path is empty"
	case len(p) > maxPath:
		return "the path is over 4096 bytes"
	case strings.ContainsRune(p, 0):
		return "the path holds a NUL byte"
	case absolute && !path.IsAbs(p):
		return "the path is not absolute"
	}
	for el := range strings.SplitSeq(p, "/") {
		if el == ".." {
			return `the path has an element ".."`
		}
		if el != datadir.TenantMark && strings.ContainsAny(el, "{}") {
			return "braces may only stand in an element that is {tenant}"
		}
	}
	return ""
}

// resolver maps a call's paths to folders.
type resolver struct {
	folders []folder
	from    string            // base of relative paths
	asked   map[string]string // folders of the manifest -> as written there
}

// resolver returns the folders that the call may use.
func (e *Executor) resolver(x *toolkeep.Execution, b *binding) (*resolver, *toolkeep.Error) {
	tenant := ""
	if x.Principal != nil {
		tenant = x.Principal.Tenant
	}
	own := func(p string) (string, *toolkeep.Error) {
		if at, ok := datadir.ForTenant(p, tenant); ok {
			return at, nil
		}
		return "", denied("the name of the caller's tenant cannot be the name of a folder, and files are kept here in a folder for each tenant; use a key of another tenant")
	}
	var open []folder
	for _, r := range e.roots {
		at, err := own(r.Path)
		if err != nil {
			return nil, err
		}
		open = append(open, folder{Root: Root{Path: at, Write: r.Write}, base: at})
	}
	asked, written := make([]Root, 0, len(b.roots)), make(map[string]string, len(b.roots))
	for _, r := range b.roots {
		at, err := own(e.absolute(r.Path))
		if err != nil {
			return nil, err
		}
		asked = append(asked, Root{Path: at, Write: r.Write})
		written[at] = r.Path
	}
	from, err := own(e.absolute(b.root))
	if err != nil {
		return nil, err
	}
	folders := meet(open, asked, false)
	if x.Grant != nil && x.Grant.Files != nil {
		limits := make([]Root, 0, len(x.Grant.Files.Paths))
		for _, p := range x.Grant.Files.Paths {
			limits = append(limits, Root{Path: path.Clean(p), Write: x.Grant.Files.Write()})
		}
		folders = meet(folders, limits, true)
	}
	return &resolver{folders: folders, from: from, asked: written}, nil
}

// absolute makes a manifest's path absolute.
func (e *Executor) absolute(p string) string {
	if path.IsAbs(p) {
		return path.Clean(p)
	}
	if e.home == "" { // no folder is open, so nothing is below it
		return path.Join("/", "\x00", p)
	}
	return path.Join(e.home, p)
}

// target is a checked path; name is relative to folder.
type target struct {
	folder *folder
	name   string
	shown  string // as the caller wrote it
	asked  string // the folder as written in the manifest, "" for the operator's own
}

// find checks a path and finds the innermost folder that permits its use.
func (r *resolver) find(arg, p string, write bool) (*target, *toolkeep.Error) {
	switch {
	case p == "":
		return nil, badInput(arg, "minLength", "the path is empty")
	case len(p) > maxPath:
		return nil, badInput(arg, "maxLength", "the path has %d bytes; at most %d are allowed", len(p), maxPath)
	case strings.ContainsRune(p, 0):
		return nil, badInput(arg, "format", "the path holds a NUL byte")
	}
	for el := range strings.SplitSeq(p, "/") {
		switch {
		case el == "..":
			return nil, denied(`%s has an element ".."; name the file by its path from the folder`, shown(p))
		case len(el) > datadir.MaxElement:
			return nil, badInput(arg, "maxLength", "an element of the path has %d bytes; at most %d are allowed", len(el), datadir.MaxElement)
		case strings.HasPrefix(el, temporary):
			return nil, denied("%s is the name of a file that is being written", shown(p))
		}
	}
	whole := path.Clean(p)
	if !path.IsAbs(p) {
		whole = path.Join(r.from, p)
	}
	var best *folder
	readable := false
	for i := range r.folders {
		f := &r.folders[i]
		if !within(whole, f.Path) {
			continue
		}
		readable = true
		if (f.Write || !write) && (best == nil || len(f.Path) > len(best.Path)) {
			best = f
		}
	}
	switch {
	case best != nil:
		t := &target{folder: best, name: below(whole, best.Path), shown: p}
		if len(best.steps) > 0 {
			t.asked = r.asked[best.Path]
		}
		return t, nil
	case readable:
		return nil, denied("%s may be read only: permissions.filesystem of the tool and the setting files.roots must both say rw", shown(p))
	}
	return nil, denied("%s lies outside of the folders that this tool may use here", shown(p))
}

// shown formats a path for messages.
func shown(p string) string {
	return `"` + toolkeep.ClipBytes(p, 200) + `"`
}

func denied(format string, args ...any) *toolkeep.Error {
	e := toolkeep.NewError(toolkeep.FilesystemDenied, format, args...)
	e.NothingSent = true
	return e
}

// badInput is E3310 for one argument; nothing was done.
func badInput(arg, rule, format string, args ...any) *toolkeep.Error {
	return badArgument(toolkeep.InputValidationFailed, arg, rule, format, args...)
}

func badArgument(code toolkeep.Code, arg, rule, format string, args ...any) *toolkeep.Error {
	e := toolkeep.NewError(code, format, args...)
	pointer := ""
	if arg != "" {
		pointer = canon.Pointer(arg)
	}
	e.NothingSent = true
	return e.With("errors", []toolkeep.Fault{{Pointer: pointer, Rule: rule, Message: e.Message}})
}
