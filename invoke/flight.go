package invoke

import (
	"sync/atomic"
	"time"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/access"
	"github.com/toolkeep/toolkeep/overlay"
	"github.com/toolkeep/toolkeep/redact"
	"github.com/toolkeep/toolkeep/resultcache"
)

// flight is one call under way. Only the goroutine that carries it touches it.
type flight struct {
	p         *Pipeline
	gate      gate
	principal *toolkeep.Principal
	call      *toolkeep.Call
	root      *composition
	chain     []string // tools above this one, from the root
	began     time.Time
	stepBegan time.Time
	steps     Steps
	explained *Explanation // set while looking

	asked     map[string]any   // parsed arguments
	args      map[string]any   // after coercion and defaults
	faults    []toolkeep.Fault // of the arguments
	version   toolkeep.Version
	decision  access.Decision
	context   *overlay.Context // what the agent adds, from limit on
	warnings  []toolkeep.Warning
	kept      *toolkeep.Invocation // the call that holds the key
	cacheable bool
	cacheKey  resultcache.Key
	blind     bool            // a change of the tool's secrets would not show in cacheKey
	release   func()          // gives back the limits' slots
	clean     *redact.Cleaner // see view; for a child its parent's until it is performed

	row     toolkeep.Invocation
	claimed bool // the row is in the store
	worker  bool // a worker carries an admitted waiting call
	unsent  bool // the error says that nothing reached the upstream
	again   bool // the node's end cut it off and it may be repeated: its key is let go
	putOff  bool // the worker gives the call back to the queue
	sealed  bool // what opens the stored arguments cannot be reached
}

// composition is what a root call and all below it share.
type composition struct{ calls atomic.Int32 }

// maxComposition is how many invocations one composition may have (E3907).
const maxComposition = 100

// job is what steps 9 to 11 need; nothing changes it.
type job struct {
	id        string
	tool      *toolkeep.Tool
	args      map[string]any
	principal *toolkeep.Principal
	context   *overlay.Context
	call      *toolkeep.Call
	caller    toolkeep.Caller
	clean     *redact.Cleaner
	child     func() toolkeep.Invoker // a new one for each attempt
}

func (f *flight) tool() *toolkeep.Tool { return f.version.Tool }

func (f *flight) looks() bool { return f.explained != nil }

func (f *flight) job() *job {
	f.clean = f.p.hiding(f.tool(), f.args, f.view())
	j := &job{id: f.row.ID, tool: f.tool(), args: f.args, principal: f.principal, context: f.context, call: f.call, caller: f.call.Caller, clean: f.clean}
	j.child = func() toolkeep.Invoker { return &child{p: f.p, parent: f} }
	return j
}

// private tells whether the result is not for others although the tool says that it is
// public: it lacks a word that only one person's results must not have.
func (j *job) private() bool { return j.tool.Manifest.PublicResult() && j.clean.TookPersonal() }

func (f *flight) leave(s Step) { f.steps.Durations[s] = time.Since(f.stepBegan) }

func (f *flight) free() {
	if f.release != nil {
		f.release()
		f.release = nil
	}
}

// waits tells whether the call is to be carried out by a worker.
func (f *flight) waits() bool { return f.call.Async && !f.worker }
