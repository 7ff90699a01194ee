package invoke

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/canon"
	"github.com/toolkeep/toolkeep/inspect"
	"github.com/toolkeep/toolkeep/limit/breaker"
	"github.com/toolkeep/toolkeep/limit/bulkhead"
	"github.com/toolkeep/toolkeep/limit/overload"
	"github.com/toolkeep/toolkeep/redact"
	"github.com/toolkeep/toolkeep/schema"
)

// Config configures a Pipeline. The ports are required; the rest has defaults.
type Config struct {
	Catalog     Catalog
	Access      Access
	Limits      Limits
	Results     Results
	Secrets     Secrets
	Sealer      Sealer
	Blobs       Blobs
	Store       toolkeep.Applier
	Invocations toolkeep.Invocations
	Marks       toolkeep.CallMarks // what other nodes change in calls; not needed with Alone
	Executors   map[string]toolkeep.Executor
	Schemas     *schema.Cache
	Inspector   *inspect.Inspector
	Redact      *redact.Redactor
	Observer    Observer  // optional
	Overlays    Overlays  // overlays of agents; nil: none
	Knowledge   Knowledge // nil where no other process changes anything
	Approvals   Approvals // nil: calls that owe an approval are refused
	// Breakers refuses calls of tools that failed too often; nil: none are.
	Breakers *breaker.Breakers
	// Bulkheads bounds the attempts that run at once; nil: nothing does.
	Bulkheads *bulkhead.Bulkheads

	Node       string        // name of this process in leases; required
	SyncLimit  time.Duration // longest synchronous call; default 30 s
	WaitLimit  time.Duration // longest a waiting call may wait and run; default 24 h
	ResultLife time.Duration // answer of a waiting call; default 24 h
	// ApprovalWait is how long a synchronous caller waits for a person, at most; default 300 s.
	ApprovalWait time.Duration
	// HedgeAfter is how long a reading attempt may take, at least, before a second one is sent beside it; 0: none is.
	HedgeAfter time.Duration
	Lease      time.Duration // of a running call that has a row, renewed at a third; default 10 s
	// KeptBytes bounds the output, as JSON, of a call whose answer is kept for who asks again: one
	// with an idempotency key, and an asynchronous one; what is longer is cut, and whole in a blob.
	// 0 is the bound of the manifest alone.
	KeptBytes int64
	// RecordWait is how long a reading call waits for the store; default 50 ms. Then its
	// record goes to the spool, and the store counts as away until it commits and reads again.
	RecordWait time.Duration
	// StoreWait is how long a change may be expected to wait for the store before new calls that need
	// a row are refused with E3811, without a record; default no limit.
	StoreWait time.Duration
	// Load bounds what this node takes at once; beyond it new calls are refused with E3811, without a record. Default no bound.
	Load overload.Config
	// OnStoreAway is called when the store begins to count as away; it must not block. Optional.
	OnStoreAway func()
	HardBytes   int64 // largest raw result; default 100 MB
	KeyBytes    int   // longest key or id; default 4096
	// ResultMemory bounds in bytes what all results take together while they are read and
	// inspected; default no limit.
	ResultMemory   int64
	Arguments      canon.Limits
	QuoteArguments bool            // records have their arguments, redacted, beside the hash
	NoSummaries    bool            // records have nothing of results but their size
	Personal       redact.Personal // what is replaced in what records quote
	SpoolPath      string          // file for records while the store is down; "" keeps none
	Alone          bool            // no other process shares the store: foreign leases are dead at start
	// Earlier is the Node of an earlier run of this node that is certainly dead: its leases
	// are taken up at start. "" if there was none.
	Earlier string
	// Leads tells whether this node sweeps for all nodes of the store (see Sweep); default
	// it does.
	Leads func() bool
	Clock func() time.Time
	// StoreClock is how far the clock of the store is ahead of Clock, and how far that may be
	// wrong; known is false until the store has told its time. Leases follow the store's clock,
	// and while it is not known within 2 s this node gives up no calls of others. nil, and
	// with Alone: leases follow Clock.
	StoreClock func() (ahead, within time.Duration, known bool)
	Log        *slog.Logger
	// Hook is called at the start of each step with its name and the call's id, and
	// at these points between them: "answered" when the record is committed and the
	// caller is about to get the answer; in a worker "lease" before the row is
	// leased, "leased" after, and "ended" when its end is committed; "release" before and
	// "released" after an approval is committed. Crash tests use
	// it; nil in production.
	Hook func(step, id string)
}

// Pipeline runs calls. It implements toolkeep.Invoker.
type Pipeline struct {
	Config
	seldom       *slog.Logger // for lines that callers can cause at will
	running      running
	watchers     watchers
	live         live
	sequence     *sequence
	spool        *spool
	sensitive    sensitiveTools
	unsharedRuns keyedSemaphore
	prior        *priorTools
	memory       memory
	overload     *overload.Guard
	away         atomic.Bool // the store does not answer; see record
	draining     atomic.Bool
	interrupted  atomic.Bool     // Interrupt was called
	underway     atomic.Int64    // synchronous calls that began before Drain
	drain        chan struct{}   // closed by Drain
	idle         chan struct{}   // signals that underway fell to zero while draining
	contact      contact         // of the sweep
	interest     chan struct{}   // signals that there may be marks to ask for; nil with Alone
	run          context.Context // until Stop
	stop         context.CancelFunc
	done         sync.WaitGroup // goroutines of the pipeline
	spawning     sync.Mutex     // of stopped; see spawn
	stopped      bool
}

// New makes a Pipeline; Start must be called before waiting calls run.
func New(c Config) (*Pipeline, error) {
	switch {
	case c.Catalog == nil, c.Access == nil, c.Limits == nil, c.Results == nil, c.Secrets == nil, c.Sealer == nil, c.Blobs == nil,
		c.Store == nil, c.Invocations == nil, c.Marks == nil && !c.Alone, c.Schemas == nil, c.Inspector == nil, c.Redact == nil:
		return nil, errors.New("invoke: a port is missing from the configuration")
	case c.Node == "":
		return nil, errors.New("invoke: the node has no name")
	}
	setDefault(&c.SyncLimit, 30*time.Second)
	setDefault(&c.WaitLimit, 24*time.Hour)
	setDefault(&c.ResultLife, 24*time.Hour)
	setDefault(&c.ApprovalWait, 300*time.Second)
	setDefault(&c.Lease, 10*time.Second)
	setDefault(&c.RecordWait, 50*time.Millisecond)
	setDefault(&c.HardBytes, 100_000_000)
	setDefault(&c.KeyBytes, 4096)
	if c.Clock == nil {
		c.Clock = time.Now
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	p := &Pipeline{Config: c, seldom: toolkeep.Seldom(c.Log, 1, nil), sequence: newSequence(100_000), prior: newPriorTools(), drain: make(chan struct{}), idle: make(chan struct{}, 1), memory: memory{limit: c.ResultMemory},
		spool: newSpool(c.SpoolPath)}
	if !c.Alone {
		p.interest = make(chan struct{}, 1)
	}
	p.spool.ended = p.endLeftSpool
	p.running.interest, p.watchers.interest = p.interest, p.interest
	var err error
	if p.overload, err = overload.New(c.Load); err != nil {
		return nil, fmt.Errorf("invoke: the load of this node cannot be measured: %w", err)
	}
	p.run, p.stop = context.WithCancel(context.Background())
	return p, nil
}

func setDefault[T comparable](p *T, v T) {
	var zero T
	if *p == zero {
		*p = v
	}
}

// Invoke runs a call; see toolkeep.Invoker.
func (p *Pipeline) Invoke(ctx context.Context, pr *toolkeep.Principal, c *toolkeep.Call) (*toolkeep.Result, error) {
	if !p.draining.Load() {
		p.underway.Add(1)
		defer p.callEnded()
	}
	a := &activeCall{asked: asked{principal: pr, call: c, from: origin{addr: pr.Addr, userAgent: pr.UserAgent}, began: p.Clock(), composition: &composition{}}}
	res, err := p.carry(ctx, a)
	p.hook("answered", a.row.ID)
	return res, err
}

// carry runs a call's steps. A step that refuses ends it; the record is made unless it says unrecorded.
func (p *Pipeline) carry(ctx context.Context, a *activeCall) (res *toolkeep.Result, err error) {
	defer func() {
		if r := recover(); r != nil {
			p.Log.Error("panic in a call", "panic", r, "stack", string(debug.Stack()))
			res, err = nil, a.afterPanic(fmt.Errorf("panic: %v", r))
			if a.mode != modeDryRun {
				res, err = p.end(ctx, a, nil, err)
			}
		}
		a.free()
		a.tell()
	}()
	for _, s := range [...]struct {
		step Step
		do   func(context.Context, *activeCall) (*toolkeep.Result, error)
	}{
		{StepAdmit, p.admit},
		{StepResolve, p.resolve},
		{StepAuthorise, p.authorise},
		{StepValidate, p.validate},
		{StepLimit, p.limit},
		{StepRecall, p.recall},
		{StepApprove, p.approve},
		{StepClaim, p.claim},
	} {
		p.enter(a, s.step)
		res, err := s.do(ctx, a)
		a.leave(s.step)
		if a.verdict(s.step, res, err) {
			a.stopped = int(s.step) + 1
			return p.end(ctx, a, res, err)
		}
	}
	if a.mode == modeDryRun {
		return nil, p.explainSecrets(ctx, a)
	}
	a.claimed = true
	if a.mode != modeWorker && p.live.any() { // of what a worker runs the move to running tells
		row := a.row
		row.State = toolkeep.CallRunning
		p.live.tell(LiveStarted, &row)
	}
	held, leave := p.hold(ctx, a)
	defer leave()
	if res, err = p.recheck(held, a); res == nil && err == nil {
		res, err = p.perform(held, a)
	} else {
		a.stopped = int(StepClaim) + 1 // it is not its caller's any more, or was decided again
	}
	leave()
	return p.end(ctx, a, res, err)
}

// afterPanic returns E3999, or E3909 if a write may have been sent: the caller must not
// assume that nothing was done.
func (a *activeCall) afterPanic(cause error) error {
	if a.stored && a.row.Writes && a.row.Sent && !a.idempotent() {
		return toolkeep.NewError(toolkeep.OutcomeUnknown,
			"an internal error occurred after the call was sent; it may or may not have taken effect and is not repeated automatically").Because(cause)
	}
	return toolkeep.NewError(toolkeep.InternalError, "an internal error occurred; the server's log has the cause").Because(cause)
}

func (p *Pipeline) enter(a *activeCall, s Step) {
	a.stepBegan = time.Now()
	p.hook(s.String(), a.row.ID)
}

// once is one run of equip, execute and inspect. It does not modify the active call,
// because a shared run may outlive the call that began it.
func (p *Pipeline) once(ctx context.Context, w *prepared, steps *Steps) (*toolkeep.Result, error) {
	w.waited = 0
	began := time.Now()
	lap := func(s Step) {
		now := time.Now()
		steps.Durations[s] += now.Sub(began)
		began = now
	}
	p.hook(StepEquip.String(), w.id)
	k, err := p.equip(ctx, w)
	lap(StepEquip)
	if err != nil {
		return &toolkeep.Result{Secrets: k.uses}, err
	}
	defer func() { k.release() }()
	p.hook(StepExecute.String(), w.id)
	res := &toolkeep.Result{ToolID: w.tool.ID, ToolVersion: w.tool.Version}
	held := &resultMemory{of: &p.memory}
	defer held.free()
	out, err := p.execute(ctx, w, k, res, held)
	lap(StepExecute)
	res.Secrets, res.Warnings = slices.Clone(k.uses), append(res.Warnings, k.warnings...)
	res.ToolTime = max(0, steps.Durations[StepExecute]-w.waited)
	if err != nil {
		return failed(res, p.cleaned(toolkeep.AsError(err), w.cleaner))
	}
	p.hook(StepInspect.String(), w.id)
	err = p.inspect(ctx, w, out, res)
	lap(StepInspect)
	if err != nil {
		return failed(res, p.cleaned(toolkeep.AsError(err), w.cleaner))
	}
	return res, nil
}

func (p *Pipeline) hook(point, id string) {
	if p.Hook != nil {
		p.Hook(point, id)
	}
}

// failed puts an error where its kind belongs: into the result, or beside it.
func failed(res *toolkeep.Result, e *toolkeep.Error) (*toolkeep.Result, error) {
	if e.Code.Info().Kind != toolkeep.KindResult {
		return res, e
	}
	res.Error = e
	return res, nil
}
