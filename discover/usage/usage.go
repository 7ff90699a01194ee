package usage

import (
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

// Learning says what becomes of weights that are learned from choices.
type Learning string

// Kinds of Learning.
const (
	LearnOn      Learning = "on"      // they are used
	LearnObserve Learning = "observe" // they are computed and shown, and not used
	LearnOff     Learning = "off"     // they are neither
)

// Config of a Usage. Store is required.
type Config struct {
	Store Store
	// Clean takes the secrets that a tenant and its people have out of a question before
	// it is kept; nil: nothing is taken out.
	Clean func(tenant, text string) string
	// NoHistory keeps no questions: retrievals are recorded without them, and none is
	// learned.
	NoHistory bool
	// Learning of weights; "" is on.
	Learning Learning
	// Weights that count without learning, which learned ones must beat. The zero value
	// is that of discover.
	Weights discover.Weights
	// Keep is for how long what happened counts; default 30 days, at least one.
	Keep time.Duration
	// Every is how often the daily job runs; default 24 h.
	Every time.Duration
	Node  string // of this process, in items and events
	Clock func() time.Time
	Log   *slog.Logger // nil: nothing is logged
}

// Usage knows how tools are used. It implements discover.Usage and discover.Learned.
// All methods are safe for concurrent use.
type Usage struct {
	c        Config
	keep     int32 // days
	tenants  table[string, *tenant]
	rankings table[string, *ranking]
	writer   *writer

	seq    atomic.Int64  // of the newest change that was folded
	caught chan struct{} // closed when the feed was read up to where it stood at the start

	saving sync.Mutex // one checkpoint at a time; taken before mu

	mu       sync.Mutex // one change at a time; guards all that is not atomic in tenants
	order    recency[*tenant]
	head     toolkeep.Document // the newest checkpoint's; where the feed told of it without its body
	claimed  toolkeep.Document // the newest claim of the job
	rankedAt int64             // up to where in the feed rankings were read from their items
	moved    chan struct{}     // closed at the next change; nil if nobody waits

	cancel context.CancelFunc
	done   sync.WaitGroup
	once   sync.Once
}

// New makes a Usage that knows nothing; Start reads what there is.
func New(c Config) *Usage {
	if c.Clean == nil {
		c.Clean = func(_, text string) string { return text }
	}
	if c.Learning == "" {
		c.Learning = LearnOn
	}
	if c.Weights == (discover.Weights{}) {
		c.Weights = discover.DefaultWeights
	}
	if c.Keep <= 0 {
		c.Keep = 30 * 24 * time.Hour
	}
	if c.Every <= 0 {
		c.Every = 24 * time.Hour
	}
	if c.Clock == nil {
		c.Clock = time.Now
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	u := &Usage{c: c, keep: max(1, int32((c.Keep+24*time.Hour-1)/(24*time.Hour))), caught: make(chan struct{})}
	u.writer = newWriter(c.Store, c.Clock, c.Log)
	return u
}

// Start reads the newest checkpoint and follows the feed from there, in the
// background. ctx bounds the reading of the checkpoint alone. A checkpoint that cannot
// be read is passed over: what the feed still has is folded then.
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

// Stop writes what waits to be written and ends. It may be called twice, and before
// Start.
func (u *Usage) Stop() {
	u.once.Do(func() {
		if u.cancel != nil {
			u.cancel()
		}
		u.done.Wait()
	})
}

// follow folds the feed until ctx ends. head is where the feed stood at the start, -1
// where that is reached.
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
		u.c.Log.Warn("the feed of calls broke and is taken up again", "error", broken, "after", u.seq.Load(), "pause", pause)
		timer := time.NewTimer(pause)
		select {
		case <-ctx.Done():
			timer.Stop()
			return
		case <-timer.C:
		}
		pause = min(2*pause, longest)
	}
}

// Await returns when the feed was folded up to seq, or with ctx's error.
func (u *Usage) Await(ctx context.Context, seq int64) error {
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

// catchUp awaits all that the feed has now.
func (u *Usage) catchUp(ctx context.Context) error {
	seq, err := u.c.Store.Head(ctx)
	if err != nil {
		return err
	}
	return u.Await(ctx, seq)
}

// CaughtUp is closed when all is folded that was in the feed at the start.
func (u *Usage) CaughtUp() <-chan struct{} { return u.caught }

// publishEvery is how often questions are shown that were learned; where there are
// many, whose readers have work with each showing, it is once in so many more seconds
// as there are thousands.
const publishEvery = time.Second

// publish shows what changed now and then, where showing each change costs too much.
func (u *Usage) publish(ctx context.Context) {
	t := time.NewTicker(publishEvery)
	defer t.Stop()
	for turn := 0; ; turn++ {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
			u.show(func(t *tenant) bool { return turn%(1+t.led.order.len()/1000) == 0 })
		}
	}
}

// refresh shows the questions that were learned since.
func (u *Usage) refresh() { u.show(func(*tenant) bool { return true }) }

func (u *Usage) show(which func(*tenant) bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	for t := range u.order.all() {
		if which(t) {
			t.showLed()
		}
	}
}

// History is what went before in a conversation.
func (u *Usage) History(s discover.Session) discover.History {
	var h discover.History
	t, ok := u.tenants.get(s.Tenant)
	if !ok {
		return h
	}
	if us, ok := t.users.get(short(s.Subject)); ok {
		h.Preferred = us.preferred()
	}
	if s.ID == "" {
		return h
	}
	ses, ok := t.sessions.get(sessionKey{short(s.Subject), short(s.ID)})
	if !ok {
		return h
	}
	v := ses.view.Load()
	if v == nil || u.c.Clock().Sub(v.last) > sessionLife {
		return h
	}
	h.Recent = v.recent
	h.Paired = t.pairedWith(v.recent)
	return h
}

// Fared is how a tool did for a tenant.
func (u *Usage) Fared(tenant, tool string) (discover.Fared, bool) {
	t, ok := u.tenants.get(tenant)
	if !ok {
		return discover.Fared{}, false
	}
	x, ok := t.tools.get(tool)
	if !ok {
		return discover.Fared{}, false
	}
	v := x.view.Load()
	if v == nil || v.calls == 0 {
		return discover.Fared{}, false
	}
	return t.fared(v), true
}

// Led are the newest questions of a tenant after which tools were chosen, each with a
// tool, the newest first. The slice is the same as long as nothing changed, and not to
// be modified. It is a second old at most, or a second more for each thousand.
func (u *Usage) Led(tenant string) []discover.Led {
	if t, ok := u.tenants.get(tenant); ok {
		if led := t.ledView.Load(); led != nil {
			return *led
		}
	}
	return nil
}

// Weights are those that were learned for a tenant, where Learning is on.
func (u *Usage) Weights(tenant string) (discover.Weights, bool) {
	if u.c.Learning != LearnOn {
		return discover.Weights{}, false
	}
	if r, ok := u.rankings.get(tenant); ok && r.training.Weights != nil {
		return *r.training.Weights, true
	}
	return discover.Weights{}, false
}

var (
	_ discover.Usage   = (*Usage)(nil)
	_ discover.Learned = (*Usage)(nil)
)
