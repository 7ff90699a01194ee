package usage

import (
	"cmp"
	"context"
	"fmt"
	"hash/fnv"
	"log/slog"
	"sync"
	"time"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/discover"
)

// Store is what the package needs of a store.
type Store interface {
	toolkeep.Applier
	toolkeep.Watcher
	toolkeep.Journal
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
	// Every is how often checkpoints are written; default 24 h.
	Every time.Duration
	// Lead calls run while this process leads, until ctx ends; nil: it always leads.
	Lead func(work string, run func(ctx context.Context))
	// Shared says whether other nodes need the leader's checkpoints, which are then written about
	// every minute; nil: never. It must not block.
	Shared func() bool
	Node   string // of this process, in documents and events
	Clock  func() time.Time
	Log    *slog.Logger // nil: nothing is logged
}

// Usage knows how tools are used. It implements discover.Usage and discover.Learned.
// All methods are safe for concurrent use.
type Usage struct {
	c      Config
	writer *writer
	feed   toolkeep.FeedPosition
	newer  chan struct{} // another node wrote a checkpoint

	// reading holds a token while the journal or a checkpoint is read.
	reading chan struct{}
	// folding is held while the state is changed or copied. It is taken after reading and before
	// mu, which readers of the state take.
	folding sync.Mutex

	mu       sync.RWMutex // guards the fields below
	state    *state
	rankings map[string]ranking
	head     toolkeep.Document // of the newest checkpoint that the state has, without its body

	cancel  context.CancelFunc
	done    sync.WaitGroup
	leading sync.Mutex // held while this process leads
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
	if c.Shared == nil {
		c.Shared = func() bool { return false }
	}
	if c.Clock == nil {
		c.Clock = time.Now
	}
	c.Log = cmp.Or(c.Log, slog.New(slog.DiscardHandler))
	u := &Usage{c: c, newer: make(chan struct{}, 1), reading: make(chan struct{}, 1), rankings: map[string]ranking{},
		writer: &writer{store: c.Store, clock: c.Clock, log: c.Log, wake: make(chan struct{}, 1), writing: make(chan struct{}, 1)}}
	u.state = u.newState()
	return u
}

func (u *Usage) newState() *state {
	return &state{keep: max(1, int32((u.c.Keep+day-1)/day)), noHistory: u.c.NoHistory, position: toolkeep.JournalPosition{}}
}

// Start reads the newest checkpoint and follows the journal from there, in the background. ctx
// bounds only the reading of the checkpoint. If the checkpoint cannot be read, the journal is folded
// from its start.
func (u *Usage) Start(ctx context.Context) error {
	// Weights first: a change of them after this place in the feed is applied once more.
	weights, after, err := u.c.Store.Documents(ctx, KindWeights)
	if err != nil {
		return err
	}
	for i := range weights {
		u.ranked(&weights[i])
	}
	if err := u.take(ctx); err != nil {
		return err
	}
	run, cancel := context.WithCancel(context.WithoutCancel(ctx))
	u.cancel = cancel
	u.feed.Reach(after)
	u.done.Go(func() {
		toolkeep.Follow(run, u.c.Store, after, u.document, func(err error) {
			u.c.Log.Warn("the feed of learned weights broke; it is read again", "error", err)
		})
	})
	u.done.Go(func() { u.takeNewer(run) })
	u.done.Go(func() { u.foldOwn(run) })
	u.done.Go(func() { u.writer.run(run) })
	u.done.Go(func() { u.publish(run) })
	if u.c.Lead == nil {
		u.done.Go(func() { u.lead(run) })
		return nil
	}
	u.c.Lead(Work, func(ctx context.Context) {
		ctx, end := context.WithCancel(ctx)
		defer end()
		defer context.AfterFunc(run, end)()
		u.leading.Lock()
		defer u.leading.Unlock()
		if run.Err() == nil {
			u.lead(ctx)
		}
	})
	return nil
}

// Stop writes the pending records and stops. It may be called twice, and before Start.
func (u *Usage) Stop() {
	if u.cancel != nil {
		u.cancel()
	}
	u.done.Wait()
	u.leading.Lock()
	defer u.leading.Unlock()
}

// document applies a change of the feed.
func (u *Usage) document(c toolkeep.Committed) {
	u.mu.Lock()
	defer u.mu.Unlock()
	switch ch := c.Change.(type) {
	case toolkeep.PutDocument:
		switch it := &ch.Document; {
		case it.Kind == KindWeights:
			u.ranked(it)
		case it.Kind == KindState && it.ID == headID && it.Revision > u.head.Revision:
			select {
			case u.newer <- struct{}{}:
			default:
			}
		}
	case toolkeep.DeleteDocument:
		if ch.Kind == KindWeights && ch.ID == weightsID {
			delete(u.rankings, ch.Tenant)
		}
	}
	u.feed.Reach(c.Seq)
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
	for t := range u.state.tenants.all() {
		if which(t) {
			t.showExamples()
		}
	}
}

// find returns a tenant and one of its tools, nil if unknown; u.mu is held.
func (u *Usage) find(tenant, tool string) (*tenant, *tool) {
	t, ok := u.state.tenants.get(tenant)
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
	t, ok := u.state.tenants.get(s.Tenant)
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
	if t, ok := u.state.tenants.get(tenant); ok {
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

// MapsQuestions reports whether Learning is on, and a sum over the users of the tenant that are remembered as forgotten: the
// clocks of nodes differ, so the latest time may stay the same.
func (u *Usage) MapsQuestions(tenant string) (on bool, forgotten int64) {
	u.mu.RLock()
	defer u.mu.RUnlock()
	if t, ok := u.state.tenants.get(tenant); ok {
		for f := range t.Forgotten.all() {
			h := fnv.New64a()
			_, _ = fmt.Fprintf(h, "%s %d", f.Mark, f.At)
			forgotten += int64(h.Sum64())
		}
	}
	return u.c.Learning == LearnOn, forgotten
}

var (
	_ discover.Usage   = (*Usage)(nil)
	_ discover.Learned = (*Usage)(nil)
	_ discover.Mapping = (*Usage)(nil)
)
