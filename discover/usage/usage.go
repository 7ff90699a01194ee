package usage

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/discover"
)

// Store is what the package needs of a store.
type Store interface {
	toolkeep.Applier
	toolkeep.Watcher
	Documents(ctx context.Context, kind string) ([]toolkeep.Document, int64, error)
}

// Learning says how learned weights are used.
type Learning string

// Kinds of Learning.
const (
	LearnOn      Learning = "on"      // used
	LearnObserve Learning = "observe" // computed and shown, but not used
	LearnOff     Learning = "off"     // neither computed nor used
)

// Config of a Usage. Store is required.
type Config struct {
	Store Store
	// Clean removes what looks like a token from a query before it is stored; nil:
	// nothing is removed.
	Clean func(text string) string
	// NoHistory stores no queries: searches are recorded without them, and no query is learned.
	NoHistory bool
	// Learning of weights; "" is on.
	Learning Learning
	// Weights used without learning, which learned ones must beat. The zero value means discover's.
	Weights discover.Weights
	// Keep is how long an event counts; default 30 days, at least one.
	Keep time.Duration
	// Every is how often the daily job runs; default 24 h.
	Every time.Duration
	Node  string // of this process, in documents and events
	Clock func() time.Time
	Log   *slog.Logger // nil: nothing is logged
}

// Usage knows how tools are used. It implements discover.Usage and discover.Learned.
// All methods are safe for concurrent use.
type Usage struct {
	c      Config
	keep   int32 // days
	writer *writer

	seq    atomic.Int64  // of the last folded change
	caught chan struct{} // closed when the feed was read up to its head at the start

	// folding is held while a change is folded or the state is copied. It is taken before mu, which
	// readers of the state take.
	folding sync.Mutex

	mu       sync.RWMutex // guards the fields below
	tenants  lru[string, *tenant]
	rankings map[string]ranking
	head     toolkeep.Document // of the newest checkpoint, without its body
	rankedAt int64             // feed position up to which rankings were read from their documents
	moved    chan struct{}     // closed at the next change; nil if no goroutine waits

	cancel context.CancelFunc
	done   sync.WaitGroup
}

// New creates an empty Usage; Start reads the stored state.
func New(c Config) *Usage {
	if c.Clean == nil {
		c.Clean = func(text string) string { return text }
	}
	c.Learning = cmp.Or(c.Learning, LearnOn)
	c.Weights = cmp.Or(c.Weights, discover.DefaultWeights)
	if c.Keep <= 0 {
		c.Keep = 30 * day
	}
	if c.Every <= 0 {
		c.Every = day
	}
	if c.Clock == nil {
		c.Clock = time.Now
	}
	c.Log = cmp.Or(c.Log, slog.New(slog.DiscardHandler))
	return &Usage{c: c, keep: max(1, int32((c.Keep+day-1)/day)), caught: make(chan struct{}), rankings: map[string]ranking{},
		writer: &writer{store: c.Store, clock: c.Clock, log: c.Log, wake: make(chan struct{}, 1), writing: make(chan struct{}, 1)}}
}

// Start reads the newest checkpoint and follows the feed from there, in the background. ctx bounds
// only the reading of the checkpoint. If the checkpoint cannot be read, the feed is folded from its
// start.
func (u *Usage) Start(ctx context.Context) error {
	after, err := u.load(ctx)
	if err != nil {
		return err
	}
	head, err := u.c.Store.Head(ctx)
	if err != nil {
		return err
	}
	u.seq.Store(after)
	if after >= head {
		close(u.caught)
		head = -1
	}
	run, cancel := context.WithCancel(context.WithoutCancel(ctx))
	u.cancel = cancel
	u.done.Go(func() { u.follow(run, head) })
	u.done.Go(func() { u.writer.run(run) })
	u.done.Go(func() { u.publish(run) })
	u.done.Go(func() { u.daily(run) })
	return nil
}

// Stop writes the pending records and stops. It may be called twice, and before Start.
func (u *Usage) Stop() {
	if u.cancel != nil {
		u.cancel()
	}
	u.done.Wait()
}

// follow folds the feed until ctx ends. head is the feed's head at the start, -1 once reached.
func (u *Usage) follow(ctx context.Context, head int64) {
	const shortest, longest = 50 * time.Millisecond, 5 * time.Second
	pause := shortest
	for ctx.Err() == nil {
		broken := errors.New("the feed ended")
		for c, err := range u.c.Store.Watch(ctx, u.seq.Load()) {
			if err != nil {
				broken = err
				break
			}
			pause = shortest
			u.fold(c)
			if head >= 0 && c.Seq >= head {
				u.refresh()
				close(u.caught)
				head = -1
			}
		}
		if ctx.Err() != nil {
			return
		}
		u.c.Log.Warn("the feed of calls broke; it is read again", "error", broken, "after", u.seq.Load(), "pause", pause)
		select {
		case <-ctx.Done():
		case <-time.After(pause):
		}
		pause = min(2*pause, longest)
	}
}

// await returns when the feed has been folded up to seq, or with ctx's error.
func (u *Usage) await(ctx context.Context, seq int64) error {
	for {
		u.mu.Lock()
		if u.moved == nil {
			u.moved = make(chan struct{})
		}
		moved := u.moved
		u.mu.Unlock()
		if u.seq.Load() >= seq {
			u.refresh()
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-moved:
		}
	}
}

// catchUp waits until the feed's head is folded.
func (u *Usage) catchUp(ctx context.Context) error {
	seq, err := u.c.Store.Head(ctx)
	if err != nil {
		return err
	}
	return u.await(ctx, seq)
}

// publish publishes learned queries to searches every second, plus one second per thousand queries,
// since publishing costs the searches work.
func (u *Usage) publish(ctx context.Context) {
	t := time.NewTicker(time.Second)
	defer t.Stop()
	for turn := 0; ; turn++ {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
			u.show(func(t *tenant) bool { return turn%(1+t.Questions.len()/1000) == 0 })
		}
	}
}

// refresh publishes all learned queries.
func (u *Usage) refresh() { u.show(func(*tenant) bool { return true }) }

func (u *Usage) show(which func(*tenant) bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	for t := range u.tenants.all() {
		if which(t) {
			t.showExamples()
		}
	}
}

// find returns a tenant and one of its tools, nil if unknown; u.mu is held.
func (u *Usage) find(tenant, tool string) (*tenant, *tool) {
	t, ok := u.tenants.get(tenant)
	if !ok {
		return nil, nil
	}
	x, _ := t.Tools.get(tool)
	return t, x
}

// History returns the earlier calls of a conversation.
func (u *Usage) History(s discover.Session) (h discover.History) {
	user, id := short(s.Subject), short(s.ID)
	u.mu.RLock()
	defer u.mu.RUnlock()
	t, ok := u.tenants.get(s.Tenant)
	if !ok {
		return h
	}
	if us, ok := t.Users.get(user); ok {
		h.Preferred = t.preferred(us)
	}
	ses, ok := t.Sessions.get(sessionKey{user, id})
	if ok && len(ses.Calls) > 0 && u.c.Clock().UnixMicro()-ses.Calls[0].At <= sessionLife.Microseconds() {
		h.Recent, h.Paired = t.recent(ses), t.pairedWith(ses)
	}
	return h
}

// SuccessRates returns the success rates of a tenant's calls of the tools, smoothed towards the
// mean of all tools if there are few; -1 for a tool without calls.
func (u *Usage) SuccessRates(tenant string, tools []string) []float64 {
	out := make([]float64, len(tools))
	u.mu.RLock()
	defer u.mu.RUnlock()
	for i, id := range tools {
		out[i] = -1
		if t, x := u.find(tenant, id); x != nil && x.Total > 0 {
			out[i] = t.success(x)
		}
	}
	return out
}

// Examples returns a tenant's newest queries after which tools were chosen, each with a tool,
// newest first. The slice is the same until something changes, and must not be modified. It is at
// most a second old, plus a second per thousand queries.
func (u *Usage) Examples(tenant string) []discover.Example {
	u.mu.RLock()
	defer u.mu.RUnlock()
	if t, ok := u.tenants.get(tenant); ok {
		return t.examples
	}
	return nil
}

// Weights returns the weights learned for a tenant, if Learning is on.
func (u *Usage) Weights(tenant string) (w discover.Weights, ok bool) {
	if u.c.Learning != LearnOn {
		return w, false
	}
	u.mu.RLock()
	defer u.mu.RUnlock()
	if r := u.rankings[tenant]; r.Weights != nil {
		return *r.Weights, true
	}
	return w, false
}

var (
	_ discover.Usage   = (*Usage)(nil)
	_ discover.Learned = (*Usage)(nil)
)
