package filetool

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path"
	"strings"
	"syscall"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/datadir"
	"github.com/toolkeep/toolkeep/egress"
	"github.com/toolkeep/toolkeep/executor/bindings"
)

const kind = "file"

// Config configures an Executor. The zero value opens no folder, so every call is
// refused.
type Config struct {
	// Roots are the folders that the operator opens; default none.
	Roots []Root
	// Home is the absolute base of manifests' relative paths; "" means none.
	Home string
}

// Validate reports an invalid folder.
func (c Config) Validate() error {
	for _, r := range c.Roots {
		if why := checkRoot(r.Path, true); why != "" {
			return toolkeep.NewError(toolkeep.InvalidParameters, "the folder %q for tools of kind file cannot be used: %s", r.Path, why)
		}
		for _, outer := range c.Roots {
			if !r.Write && outer.Write && within(path.Clean(r.Path), path.Clean(outer.Path)) {
				return toolkeep.NewError(toolkeep.InvalidParameters,
					"the folder %s is rw, and that holds for all below it; %s cannot be ro", outer.Path, r.Path)
			}
		}
	}
	return nil
}

// Executor is the executor of kind "file". It is safe for concurrent use.
type Executor struct {
	roots    []Root
	home     string
	bindings bindings.Kept[binding]
}

var (
	_ toolkeep.Executor      = (*Executor)(nil)
	_ toolkeep.Reacher       = (*Executor)(nil)
	_ toolkeep.MachineReader = (*Executor)(nil)
)

// New returns an Executor, or an error that names the invalid folder.
func New(c Config) (*Executor, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	e := &Executor{home: c.Home}
	for _, r := range c.Roots {
		e.roots = append(e.roots, Root{Path: path.Clean(r.Path), Write: r.Write})
	}
	return e, nil
}

// Kind is "file".
func (e *Executor) Kind() string { return kind }

// ReadsMachine implements toolkeep.MachineReader: each node has its own folders.
func (e *Executor) ReadsMachine(*toolkeep.Principal, *toolkeep.Tool) bool { return true }

// Reach implements toolkeep.Reacher: calls use files alone, and resolver checks each path.
func (e *Executor) Reach(*toolkeep.Tool) (toolkeep.Reach, error) { return toolkeep.Reach{}, nil }

// Check requires an operation, folders for it, and arguments that are in the schema.
func (e *Executor) Check(m *toolkeep.Manifest) []toolkeep.Fault {
	_, faults := parse(m)
	return faults
}

// Execute runs the operation.
//
// Errors: E3302 a required argument is missing; E3203 the path is outside of what the
// tool or the call's capability token may use, is not a regular file, or the system denies it to the server; E3310 an
// argument has the wrong type, or only the file system can reject it, such as a file
// that does not exist; E3504 text was requested and the content is not text; E3710 the
// result is over MaxBytes (default 100 MiB); E3922 no space is left; E3902 ctx was
// cancelled, E3502 its deadline passed, both checked between pieces; E3999 the system
// failed in another way.
func (e *Executor) Execute(ctx context.Context, x *toolkeep.Execution) (*toolkeep.Output, error) {
	b, refused := e.bindings.Of(x.Tool, parse)
	if refused != nil {
		return nil, refused
	}
	if ctx.Err() != nil {
		return nil, ended(ctx, true)
	}
	if err := b.check(x.Args); err != nil {
		return nil, err
	}
	r, err := e.resolver(x, b)
	if err != nil {
		return nil, err
	}
	t, err := r.find(b.name("path"), b.text(x.Args, "path", fallbackPath(b.op)), b.writes())
	if err != nil {
		return nil, err
	}
	c := &call{ctx: ctx, x: x, b: b, t: t, limit: x.MaxBytes}
	if b.op == opWrite { // before any folder is created
		if err := c.prepare(); err != nil {
			return nil, err
		}
	}
	if c.root, err = e.enter(t, b.makeDirs); err != nil {
		return nil, err
	}
	defer c.root.Close()
	if c.limit <= 0 {
		c.limit = 100 << 20
	}
	var out *toolkeep.Output
	switch b.op {
	case opRead:
		out, err = c.read()
	case opWrite:
		out, err = c.write()
	case opList:
		out, err = c.list()
	case opStat:
		out, err = c.stat()
	case opDelete:
		out, err = c.remove()
	}
	if err != nil {
		return nil, err
	}
	return out, nil
}

func fallbackPath(op string) string {
	if op == opList {
		return "."
	}
	return ""
}

// enter opens a target's folder. A tenant's own folder is created on first use; a
// folder that the manifest requests below it is created only with makeDirs.
func (e *Executor) enter(t *target, makeDirs bool) (*os.Root, *toolkeep.Error) {
	root, err := t.open(makeDirs)
	if errors.Is(err, fs.ErrNotExist) && e.tenants(t.folder.base) {
		if err = os.Mkdir(t.folder.base, 0o700); err == nil || errors.Is(err, fs.ErrExist) {
			root, err = t.open(makeDirs)
		}
	}
	if err == nil {
		return root, nil
	}
	switch {
	case errors.Is(err, fs.ErrNotExist) && t.asked != "":
		return nil, denied("%s lies in the tool's folder %s, which does not exist on the server: a tool that writes there with make_dirs: true makes it at its first write, or the operator makes it", shown(t.shown), shown(t.asked)).Because(err)
	case errors.Is(err, fs.ErrNotExist):
		return nil, denied("%s lies in a folder that files.roots opens and that does not exist on the server; the operator must make it", shown(t.shown)).Because(err)
	}
	return nil, denied("the folder of the tool in which %s would lie cannot be opened: it must be a folder, and links below what files.roots names must not lead out of it", shown(t.shown)).Because(err)
}

// tenants reports whether base is one tenant's part of an operator's folder.
func (e *Executor) tenants(base string) bool {
	for _, r := range e.roots {
		if dir, last := path.Split(r.Path); last == datadir.TenantMark && !strings.Contains(dir, datadir.TenantMark) && path.Dir(base) == path.Clean(dir) {
			return true
		}
	}
	return false
}

// call is one Execute.
type call struct {
	ctx   context.Context
	x     *toolkeep.Execution
	b     *binding
	t     *target
	root  *os.Root
	limit int64 // bytes of the result

	mode string // of a write, and
	body []byte // what it writes
}

func output(v map[string]any) *toolkeep.Output {
	return &toolkeep.Output{Value: v, HasValue: true}
}

// ended is the error of a call whose context has ended.
func ended(ctx context.Context, nothing bool) *toolkeep.Error {
	e := toolkeep.NewError(toolkeep.Cancelled, "the call was cancelled")
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		e = toolkeep.NewError(toolkeep.UpstreamTimeout, "the file operation did not end within the attempt's time limit")
	}
	e.NothingSent = nothing
	return e.Because(context.Cause(ctx))
}

// failed maps a system error. Its text contains server paths and is only for the
// operator.
func (c *call) failed(err error) *toolkeep.Error {
	var own *toolkeep.Error
	name, arg := shown(c.t.shown), c.b.name("path")
	inner := ""
	if errors.Is(err, syscall.ENOTDIR) || escapes(err) {
		inner = c.notFolder()
	}
	scarce := egress.OutOfDescriptors(err)
	switch {
	case errors.As(err, &own):
		return own
	case scarce != nil:
		return scarce
	case inner != "":
		own = badInput(arg, "exists", "%s is not a folder, so that nothing can lie in it as %s would", shown(inner), name)
	case errors.Is(err, fs.ErrNotExist):
		own = badInput(arg, "exists", "%s does not exist", name)
	case errors.Is(err, syscall.ENOTDIR):
		own = badInput(arg, "exists", "an element before the last of %s is not a folder", name)
	case errors.Is(err, syscall.EISDIR):
		own = badInput(arg, "file", "%s is a folder", name)
	case errors.Is(err, syscall.ENOTEMPTY):
		own = badInput(arg, "empty", "the folder %s is not empty", name)
	case errors.Is(err, fs.ErrExist):
		own = badInput(arg, "absent", "%s exists already", name)
	case errors.Is(err, syscall.ENAMETOOLONG):
		own = badInput(arg, "maxLength", "%s is longer than the file system allows", name)
	case errors.Is(err, fs.ErrPermission), errors.Is(err, syscall.EROFS):
		own = denied("the operating system does not permit this on %s", name)
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT):
		own = toolkeep.NewError(toolkeep.ResourceExhausted, "there is no space left for %s", name)
		own.NothingSent = true
	case escapes(err):
		own = denied("%s leads out of its folder by a symbolic link, or by too many of them", name)
	default:
		own = toolkeep.NewError(toolkeep.InternalError, "the file system failed at %s; the server's log has the cause", name)
		own.NothingSent = true
	}
	return own.Because(err)
}

// notFolder returns the first element before the last of the call's path that exists
// and is not a folder, or "". os.Root does not distinguish it from a link that leads
// out.
func (c *call) notFolder() string {
	for i, ch := range c.t.name {
		if ch != '/' {
			continue
		}
		fi, err := c.root.Stat(c.t.name[:i])
		if err != nil {
			return ""
		}
		if !fi.IsDir() {
			return c.t.name[:i]
		}
	}
	return ""
}

// escapes reports whether os.Root refused a path. That error is unexported and has no
// errno.
func escapes(err error) bool {
	var pe *fs.PathError
	if !errors.As(err, &pe) {
		return false
	}
	var no syscall.Errno
	return !errors.As(pe.Err, &no) || no == syscall.ELOOP || no == syscall.EXDEV
}
