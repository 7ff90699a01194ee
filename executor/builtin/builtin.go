// Package builtin executes tools of kind "builtin": small functions inside the server
// that need no network, for examples, tests and everyday glue. Each has its manifest in
// manifests/, in the namespace std.
//
// The binding is {"name": "clock.now"}; the name selects the function.
//
// Only note_append has an effect: it appends lines to files below Config.Dir,
// separately per tenant, which note_list reads. It is a real effect that a test can
// count.
package builtin

import (
	"context"
	"embed"
	"io/fs"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/canon"
	"github.com/toolkeep/toolkeep/executor/bindings"
)

//go:embed manifests/*.json
var manifests embed.FS

// Manifests returns the manifests of all functions, sorted by name.
func Manifests() [][]byte {
	names, err := fs.Glob(manifests, "manifests/*.json")
	if err != nil {
		panic(err) // the pattern is constant
	}
	out := make([][]byte, 0, len(names))
	for _, name := range names {
		raw, err := manifests.ReadFile(name)
		if err != nil {
			panic(err) // the file is embedded
		}
		out = append(out, raw)
	}
	return out
}

// Config configures an Executor. The zero value works, without the note tools.
type Config struct {
	// Clock returns the time; nil is time.Now.
	Clock func() time.Time
	// Dir is the folder of the note tools' files, created on demand. If empty, their
	// calls are refused.
	Dir string
}

// Executor is the executor of kind "builtin". It is safe for concurrent use.
type Executor struct {
	clock     func() time.Time
	dir       string
	functions map[string]function
	names     map[string]string // of functions, by the binding's canonical text, which need not be read
	notes     sync.Mutex        // one writer of note files at a time
}

// function executes one tool. It returns a JSON tree.
type function func(ctx context.Context, x *toolkeep.Execution) (any, *toolkeep.Error)

var (
	_ toolkeep.Executor = (*Executor)(nil)
	_ toolkeep.Reacher  = (*Executor)(nil)
)

// New returns an Executor.
func New(c Config) *Executor {
	e := &Executor{clock: c.Clock, dir: c.Dir}
	if e.clock == nil {
		e.clock = time.Now
	}
	e.functions = map[string]function{
		"base64":      base64Text,
		"clock.now":   e.clockNow,
		"date.diff":   dateDiff,
		"echo":        echo,
		"fail":        fail,
		"hash":        hashText,
		"json.query":  jsonQuery,
		"math":        arithmetic,
		"note.append": e.noteAppend,
		"note.list":   e.noteList,
		"regex.find":  regexFind,
		"text.stats":  textStats,
		"uuid":        newUUIDs,
		"wait":        wait,
	}
	e.names = make(map[string]string, len(e.functions))
	for name := range e.functions {
		e.names[`{"name":"`+name+`"}`] = name
	}
	return e
}

// Kind is "builtin".
func (e *Executor) Kind() string { return "builtin" }

// Reach implements toolkeep.Reacher: functions compute, but for the notes, which are files.
func (e *Executor) Reach(t *toolkeep.Tool) (toolkeep.Reach, error) {
	name, ok := e.names[string(t.Manifest.Execution.Binding)]
	if !ok {
		var r bindings.Reader
		o, ok := r.Read(t.Manifest)
		if !ok {
			return toolkeep.Reach{}, bindings.Error(r.Faults)
		}
		name = o.Text("name", false)
	}
	return toolkeep.Reach{OtherFiles: strings.HasPrefix(name, "note.")}, nil
}

// Check requires a binding with the name of a function and no other member.
func (e *Executor) Check(m *toolkeep.Manifest) []toolkeep.Fault {
	var r bindings.Reader
	o, ok := r.Read(m)
	if !ok {
		return r.Faults
	}
	if name := o.Text("name", false); e.functions[name] == nil {
		o.Fault("name", "enum", "name must be one of %s", strings.Join(slices.Sorted(maps.Keys(e.functions)), ", "))
	}
	o.Done()
	return r.Faults
}

// Execute runs the function. Arguments that only the function can check, such as a time
// zone name, fail with E3310; a result over MaxBytes (default 100 MiB) with E3710, a
// cancelled ctx with E3902, a passed deadline with E3502. With E3310 nothing was done.
func (e *Executor) Execute(ctx context.Context, x *toolkeep.Execution) (*toolkeep.Output, error) {
	name, ok := e.names[string(x.Tool.Manifest.Execution.Binding)]
	if !ok {
		if faults := e.Check(x.Tool.Manifest); len(faults) > 0 {
			return nil, bindings.Error(faults)
		}
		tree, _ := canon.ParseObject(x.Tool.Manifest.Execution.Binding, canon.Limits{}) // Check has parsed it
		name, _ = tree["name"].(string)
	}
	if ctx.Err() != nil {
		return nil, ended(ctx)
	}
	v, err := e.functions[name](ctx, x)
	if err != nil {
		return nil, err
	}
	limit := x.MaxBytes
	if limit <= 0 {
		limit = 100 << 20
	}
	if size := atLeast(v, limit); size > limit {
		return nil, toolkeep.NewError(toolkeep.ResultTooLarge, "the result is over the limit of %d bytes; ask for less", limit).With("limit_bytes", limit)
	}
	return &toolkeep.Output{Value: v, HasValue: true}, nil
}

// ended is the error of a call that timed out or was cancelled before it did anything.
func ended(ctx context.Context) *toolkeep.Error {
	e := toolkeep.NewError(toolkeep.Cancelled, "the call was cancelled")
	if ctx.Err() == context.DeadlineExceeded {
		e = toolkeep.NewError(toolkeep.UpstreamTimeout, "the function did not end within the attempt's time limit")
	}
	e.NothingSent = true
	return e.Because(context.Cause(ctx))
}

// bad refuses an argument; nothing was done.
func bad(pointer, rule, message string) *toolkeep.Error {
	e := toolkeep.FaultsError(toolkeep.InputValidationFailed, message, []toolkeep.Fault{{Pointer: pointer, Rule: rule, Message: message}})
	e.NothingSent = true
	return e
}
