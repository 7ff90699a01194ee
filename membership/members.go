package membership

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/toolkeep/toolkeep"
)

const (
	beatEvery = 3 * time.Second
	// beatLimit bounds a beat, and the goodbye.
	beatLimit = 5 * time.Second
	// coarse is the longest answer whose time says something of the store's clock, if
	// a better one is known that is not older than clockAge.
	coarse   = 500 * time.Millisecond
	clockAge = time.Minute
)

// Config configures Members. Self needs Name, Run and Version.
type Config struct {
	Self toolkeep.NodeState
	// Place names the data directory and the machine, if a process there is certainly the
	// only one that is alive (datadir.Identity); "" if that is not known.
	Place string
	// URL is where peers reach this node, "" while they do not; nil if they never do.
	URL   func() string
	Clock func() time.Time // of the node; default time.Now
	Log   *slog.Logger     // default: nothing is logged
}

// Members is this node among the nodes of its store. It is safe for concurrent use.
type Members struct {
	c     Config
	store toolkeep.Members

	run    context.Context // ends at Stop
	end    context.CancelFunc
	beats  sync.WaitGroup
	works  sync.WaitGroup
	yield  context.CancelFunc // ends the works
	leader context.Context    // ends with yield

	mu      sync.Mutex
	facts   func() any // see Tell
	beaten  func()
	nodes   []toolkeep.NodeState // of the last beat
	heard   time.Time            // when that was sent
	ahead   time.Duration        // of the store's clock
	within  time.Duration
	known   bool      // ahead is
	read    time.Time // when it was asked for, by the monotonic clock
	stale   error
	silent  bool // the last beat failed
	earlier string
	held    map[string]time.Time // works that this node leads, and when the store was asked
}

// New returns Members that have not joined.
func New(c Config) *Members {
	if c.Clock == nil {
		c.Clock = time.Now
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	return &Members{c: c, held: make(map[string]time.Time)}
}

// place is the member of a node's data by which its next run knows that it is dead.
const place = "place"

// Start joins and keeps beating until Stop. ctx bounds only the start.
func (m *Members) Start(ctx context.Context, store toolkeep.Members) error {
	m.store = store
	before, err := store.Join(ctx, m.self())
	if err != nil {
		return fmt.Errorf("join the nodes of the store: %w", err)
	}
	if before != nil {
		if err := m.succeed(ctx, before); err != nil {
			return err
		}
	}
	m.run, m.end = context.WithCancel(context.WithoutCancel(ctx))
	m.leader, m.yield = context.WithCancel(m.run)
	m.beat(ctx)
	m.beats.Go(m.beating)
	return nil
}

// succeed takes over from the run that had this node's name before, if it is dead.
func (m *Members) succeed(ctx context.Context, before *toolkeep.NodeState) error {
	var said map[string]any
	if err := json.Unmarshal(before.Data, &said); err != nil {
		said = nil
	}
	if m.c.Place == "" || said[place] != m.c.Place {
		m.c.Log.Warn("a node of this name was here before and may still run elsewhere; what it holds lapses by itself", "node", before.Name, "seen_at", before.SeenAt)
		return nil
	}
	if err := m.store.Leave(ctx, before.Name, before.Run); err != nil {
		return fmt.Errorf("release what this node led before: %w", err)
	}
	m.earlier = owner(before.Name, before.Run)
	return nil
}

func owner(name, run string) string { return name + "/" + run }

// Owner is this run of the node, in leases.
func (m *Members) Owner() string { return owner(m.c.Self.Name, m.c.Self.Run) }

// Earlier is the Owner of the run that had the name before, if it is certainly dead: what it
// holds may be taken up at once. It is known after Start.
func (m *Members) Earlier() string { return m.earlier }

// self is what this node says of itself.
func (m *Members) self() toolkeep.NodeState {
	n := m.c.Self
	if m.c.URL != nil {
		n.URL = m.c.URL()
	}
	m.mu.Lock()
	facts := m.facts
	m.mu.Unlock()
	data, err := m.data(facts)
	if err == nil && len(data) > toolkeep.MaxNodeData {
		err = fmt.Errorf("%d bytes, %d are allowed", len(data), toolkeep.MaxNodeData)
	}
	if err != nil {
		m.c.Log.Error("this node cannot say what it has", "error", err)
		data, _ = json.Marshal(map[string]any{place: m.c.Place})
	}
	n.Data = data
	return n
}

// data has the facts and the place.
func (m *Members) data(facts func() any) ([]byte, error) {
	all := make(map[string]any)
	if facts != nil {
		raw, err := json.Marshal(facts())
		if err == nil {
			err = json.Unmarshal(raw, &all)
		}
		if err != nil {
			return nil, err
		}
	}
	if m.c.Place != "" {
		all[place] = m.c.Place
	}
	return json.Marshal(all)
}

// Tell sets what nodes compare or show: facts gives what has the JSON of an object, without
// secrets; it is asked often and must not block. beaten is called after each beat. Tell beats
// once itself.
func (m *Members) Tell(ctx context.Context, facts func() any, beaten func()) {
	m.mu.Lock()
	m.facts, m.beaten = facts, beaten
	m.mu.Unlock()
	m.beat(ctx)
}

func (m *Members) beating() {
	t := time.NewTicker(beatEvery)
	defer t.Stop()
	for {
		select {
		case <-m.run.Done():
			return
		case <-t.C:
			m.beat(m.run)
		}
	}
}

// beat tells the others about this node and notes what they say.
func (m *Members) beat(ctx context.Context) {
	m.exchange(ctx)
	m.mu.Lock()
	beaten := m.beaten
	m.mu.Unlock()
	if beaten != nil {
		beaten()
	}
}

func (m *Members) exchange(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, beatLimit)
	defer cancel()
	asked, sent := m.c.Clock(), time.Now()
	nodes, now, err := m.store.Beat(ctx, m.self())
	took := time.Since(sent)
	m.mu.Lock()
	defer m.mu.Unlock()
	switch {
	case errors.Is(err, toolkeep.ErrStale):
		if m.stale == nil {
			m.stale = fmt.Errorf("another process has joined as node %s: give each node a name of its own (node.name), and a data directory that is no copy of another's", m.c.Self.Name)
			m.c.Log.Error("this node's name is taken", "error", m.stale)
		}
		return
	case err != nil:
		if !m.silent && ctx.Err() != context.Canceled {
			m.c.Log.Warn("this node cannot tell the others that it is alive", "error", err)
		}
		m.silent = true
		return
	}
	m.stale, m.silent = nil, false
	m.note(nodes)
	m.nodes, m.heard = nodes, sent
	if !m.known || took <= coarse || sent.Sub(m.read) > clockAge {
		m.ahead, m.within, m.known, m.read = now.Sub(asked.Add(took/2)), took/2, true, sent
	}
}

// note logs who came and who went.
func (m *Members) note(now []toolkeep.NodeState) {
	has := func(list []toolkeep.NodeState, n toolkeep.NodeState) bool {
		return slices.ContainsFunc(list, func(o toolkeep.NodeState) bool { return o.Name == n.Name && o.Run == n.Run })
	}
	for _, n := range now {
		if !has(m.nodes, n) && n.Name != m.c.Self.Name {
			m.c.Log.Info("another node is here", "node", n.Name, "version", n.Version, "url", n.URL)
		}
	}
	for _, n := range m.nodes {
		if !has(now, n) && n.Name != m.c.Self.Name {
			m.c.Log.Info("another node is gone", "node", n.Name)
		}
	}
}

// Live returns the nodes as the last beat that succeeded found them, by name, and how long
// ago that was; of itself a node knows the present. Before the first beat there is none.
func (m *Members) Live() (nodes []toolkeep.NodeState, age time.Duration) {
	self := m.self()
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.heard.IsZero() {
		return nil, 0
	}
	nodes = slices.Clone(m.nodes)
	for i, n := range nodes {
		if n.Name == self.Name && n.Run == self.Run {
			self.SeenAt, self.Leads = n.SeenAt, slices.Sorted(maps.Keys(m.held))
			nodes[i] = self
		}
	}
	return nodes, time.Since(m.heard)
}

// Names is Live with the names alone, for what is asked often: it asks for no facts.
func (m *Members) Names() (names []string, age time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.heard.IsZero() {
		return nil, 0
	}
	names = make([]string, len(m.nodes))
	for i := range m.nodes {
		names[i] = m.nodes[i].Name
	}
	return names, time.Since(m.heard)
}

// Rank returns this node's place among those that live, in the order of their names, and how
// many there are; -1 while it is not among them.
func (m *Members) Rank() (rank, of int) {
	names, _ := m.Names()
	return slices.Index(names, m.c.Self.Name), len(names)
}

// Shared reports whether other nodes live.
func (m *Members) Shared() bool {
	names, _ := m.Names()
	return len(names) > 1
}

// ClockDifference is how far the store's clock is ahead of this node's, and how far that may
// be wrong; known is false until the store has told its time.
func (m *Members) ClockDifference() (ahead, within time.Duration, known bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.ahead, m.within, m.known
}

// Health is why this node is not one of the store's nodes; while the store is away it is the
// store that is down.
func (m *Members) Health(context.Context) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.stale
}

// Stop ends the works and leaves. It waits, and may be called again.
func (m *Members) Stop() {
	if m.end == nil {
		return
	}
	m.Yield()
	m.end()
	m.beats.Wait()
	ctx, cancel := context.WithTimeout(context.Background(), beatLimit)
	defer cancel()
	if err := m.store.Leave(ctx, m.c.Self.Name, m.c.Self.Run); err != nil && !errors.Is(err, toolkeep.ErrClosed) {
		m.c.Log.Warn("this node could not say that it leaves; the others notice", "error", err)
	}
	m.end = nil
}
