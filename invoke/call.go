package invoke

import (
	"sync/atomic"
	"time"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/access"
	"github.com/toolkeep/toolkeep/approval"
	"github.com/toolkeep/toolkeep/limit"
	"github.com/toolkeep/toolkeep/limit/breaker"
	"github.com/toolkeep/toolkeep/limit/bulkhead"
	"github.com/toolkeep/toolkeep/overlay"
	"github.com/toolkeep/toolkeep/redact"
	"github.com/toolkeep/toolkeep/resultcache"
)

// activeCall is one call under way. Only the goroutine that runs it accesses it. Its
// parts are filled in the order of the steps: a step reads the parts before its own.
type activeCall struct {
	asked
	resolved
	checked
	record
}

// mode says what runs a call, and for what.
type mode int

const (
	modeLive   mode = iota // a face: its caller waits, or has the call queued
	modeChild              // a tool that calls another
	modeWorker             // a worker: the call waited in the queue
	modeDryRun             // Explain: nothing is taken, claimed or sent
)

// asked is the request as admit read it.
type asked struct {
	mode      mode
	principal *toolkeep.Principal // the caller; from admit on the principal it acts as
	call      *toolkeep.Call
	from      origin
	began     time.Time
	arguments map[string]any       // parsed, not yet coerced
	kept      *toolkeep.Invocation // the call that holds the idempotency key, or nil
	knew      int64                // the feed position that was applied when the call came
	verified  bool                 // the signature of the call alone is right
	// unrecorded is a refusal without a record, of which callers may cause any number.
	unrecorded bool
	least      toolkeep.RateLeft // the limit with the fewest left, or that refuses
	told       bool              // the caller is told of it

	composition *composition    // of the root call and all calls below it
	ancestors   []string        // the tools above this one, from the root
	above       *limit.Slots    // of the parent; nil for a root call
	within      *bulkhead.Hold  // the places of the parent's attempt; nil for a root call
	cleaner     *redact.Cleaner // removes secrets from what the call shows; see clean
	instead     bool            // the call is that of a fallback, or a dry run of it
	// asker is who a dry run of another principal's call is for, nil for none; hidden says that the tool exists for
	// the asker alone.
	asker  *toolkeep.Principal
	hidden bool
}

// origin is where a call came from, as its record says it. A worker has it from the row, a child call
// from its parent. actor is Invocation.Actor.
type origin struct{ addr, userAgent, actor string }

// composition is shared by a root call and all calls below it.
type composition struct{ calls atomic.Int32 }

// maxComposition is how many invocations one composition may have (E3907).
const maxComposition = 100

// resolved is the call's tool, and whether it is allowed.
type resolved struct {
	tool     *toolkeep.Tool // nil before resolve
	warnings []toolkeep.Warning
	decision access.Decision
	denied   *toolkeep.Error // why a call was refused, where the caller is not told; see unseen and decided
}

// checked is the result of validate, limit and recall.
type checked struct {
	args    map[string]any   // after coercion and defaults
	faults  []toolkeep.Fault // of the arguments, if invalid
	overlay *overlay.Context // what the agent adds to the tool, nil for nothing
	service string           // what answers the tool's calls; see ServiceOf
	guard   breaker.Guard    // the breakers of the tool and of its upstream
	slots   *limit.Slots     // nil before they are taken and after they are released
	cache   caching

	owed      *approval.Need // nil for none, and before need
	needKnown bool
	standing  *approval.Grant // the standing approval that lets the call pass
	parks     bool            // in a dry run: a person would be asked
}

// caching is how the call uses the result cache.
type caching struct {
	rule toolkeep.CacheSpec // the tool's, with the lifetime that the call requested; no policy: no caching
	key  resultcache.Key
	hit  bool // in a dry run: the cache has a result
}

func (c *caching) on() bool { return c.rule.Policy != "" }

// record is the call's record and its progress.
type record struct {
	row       toolkeep.Invocation
	stored    bool // the row is in the store
	claimed   bool // the call came past its claim, so it may have been sent
	parked    bool // the row waited for a person: a worker makes its record
	next      next
	stopped   int // number of the step, from 1, that ended the call before it was carried out; 0 for none
	stepBegan time.Time
	steps     Steps
	explained *Explanation // of a dry run
}

// next says who continues the call when carry returns.
type next int

const (
	nextNobody      next = iota // the call has ended and its record is made
	nextQueue                   // a worker returns it to the queue
	nextOtherWorker             // another worker holds its lease and will end it
)

// prepared is the input of equip, execute and inspect. It is immutable: a shared run
// may outlive the call that began it.
type prepared struct {
	id          string
	call        *toolkeep.Call
	principal   *toolkeep.Principal
	from        origin
	tool        *toolkeep.Tool
	args        map[string]any
	overlay     *overlay.Context
	upstream    string // whose secrets are redacted, see upstreamOf
	cleaner     *redact.Cleaner
	composition *composition
	ancestors   []string
	guard       breaker.Guard
	slots       *limit.Slots   // released when that call ends
	within      *bulkhead.Hold // see asked
	waited      time.Duration  // of the run, for places of its bulkheads
	kept        bool           // the answer is kept for who asks again
	forCaller   bool           // the result is for its caller alone, see mayActForCaller
}

// prepare gathers the input of the remaining steps. From here on the secrets of the tool's
// upstream and the call's secret arguments are also redacted.
func (p *Pipeline) prepare(a *activeCall) *prepared {
	upstream := p.upstreamOf(a.principal, a.tool)
	a.cleaner = p.withSensitive(p.clean(a).From(upstream), a.tool, a.args)
	return &prepared{upstream: upstream, id: a.row.ID, call: a.call, principal: a.principal, from: a.from, tool: a.tool, args: a.args, overlay: a.overlay,
		cleaner: a.cleaner, composition: a.composition, ancestors: a.ancestors, guard: a.guard, slots: a.slots, within: a.within,
		forCaller: p.mayActForCaller(a), kept: a.keeps()}
}

// keeps reports whether the answer is kept for who asks again.
func (a *activeCall) keeps() bool { return a.row.Key != "" || a.call.Async || a.mode == modeWorker }

// personal reports whether the result is only for its caller although the tool declares
// its results public: one person's secret was redacted from it.
func (w *prepared) personal() bool { return w.tool.Manifest.PublicResult() && w.cleaner.TookPersonal() }

// waits reports whether the call is to be queued for a worker.
func (a *activeCall) waits() bool { return a.call.Async && a.mode != modeWorker }

func (a *activeCall) idempotent() bool { return a.tool != nil && a.tool.Manifest.Idempotent }

func (a *activeCall) free() {
	if a.slots != nil {
		a.slots.Release()
		a.slots = nil
	}
}

func (a *activeCall) leave(s Step) { a.steps.Durations[s] = time.Since(a.stepBegan) }
