package health

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/canon"
	"github.com/toolkeep/toolkeep/limit/breaker"
)

// Work is what the node that makes the probes leads.
const Work = "health.probes"

// Kind is the kind of the documents, each its tool's tenant's; the id is that of the tool.
const Kind = "health"

const eventChanged = "ai.agent.tool.health.changed"

// Limits of probes.
const (
	Timeout  = 5 * time.Second // of a probe
	Slow     = 2 * time.Second // from which an answer is slow
	Failures = 3               // in a row, until a tool is unhealthy
	MaxTools = 10_000          // that are probed: of each tenant as many, the first by id
	// MaxInterval is the longest interval in seconds.
	MaxInterval = 86_400

	atOnce    = 8               // probes
	tick      = time.Second     // how often is looked for what is due, and at the catalogue
	storeWait = 5 * time.Second // for a write
	rest      = time.Minute     // between two writes for a tool, but for its first state and that it is unhealthy after degraded
)

// Store is what Monitor needs of a store.
type Store interface {
	toolkeep.Applier
	Documents(ctx context.Context, kind string) ([]toolkeep.Document, int64, error)
}

// Snapshot is what the catalogue has; *catalog.Snapshot is one.
type Snapshot interface {
	// All yields all versions, those of one tool one after the other, ascending.
	All() iter.Seq[toolkeep.Version]
	Seq() int64 // changes with them
}

// Upstreams names the breakers of upstreams; *invoke.Pipeline does.
type Upstreams interface {
	// ServiceOf names the breaker of a tool's upstream, "" for none.
	ServiceOf(p *toolkeep.Principal, t *toolkeep.Tool) string
}

// Config is what Monitor needs. All but Clock and Log is required.
type Config struct {
	Snapshot  func() Snapshot // of the catalogue
	Breakers  *breaker.Breakers
	Upstreams Upstreams
	Prober    toolkeep.Prober
	Store     Store
	Node      string           // this node's name, in documents and events
	Home      string           // the tenant in events of shared tools
	Clock     func() time.Time // default time.Now
	Log       *slog.Logger     // default none
}

// Monitor knows the health of tools. It is safe for concurrent use.
type Monitor struct {
	c Config

	mu     sync.Mutex
	probes map[key]*found
}

type key struct{ tenant, tool string }

// found is what probes found of a tool. A Probe does not change.
type found struct {
	*Probe           // with the status that two equal probes confirmed
	last   *Probe    // what the last one found by itself, nil if the tool has changed since
	stored Status    // in the document, "" without one
	wrote  time.Time // when this node wrote that, zero for the first state
}

// New returns a Monitor. Start reads what other nodes found, and Run probes.
func New(c Config) *Monitor {
	if c.Clock == nil {
		c.Clock = time.Now
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	return &Monitor{c: c, probes: map[key]*found{}}
}

// Check returns the faults of a manifest's health, of a tool that ex executes: what has no network has no endpoint.
func Check(m *toolkeep.Manifest, ex toolkeep.Executor, prober toolkeep.Prober) []toolkeep.Fault {
	if m.Health == nil {
		return nil
	}
	if m.Health.IntervalS > MaxInterval {
		return []toolkeep.Fault{{Pointer: "/health/interval_s", Rule: "range", Message: "must be at most 86400, a day"}}
	}
	if m.Health.Endpoint == "" {
		return nil // nothing is probed; publishing warns of it
	}
	if _, ok := ex.(toolkeep.UpstreamNamer); !ok {
		return []toolkeep.Fault{{Pointer: "/health/endpoint", Rule: "unsupported", Message: "tools of kind " + ex.Kind() + " reach no network, so there is no endpoint to probe; remove it"}}
	}
	return prober.CheckProbe(m)
}

// Of returns the health of a tool, for a principal that may see it. The upstream of an outline is known if the tool was called by
// this node.
func (m *Monitor) Of(p *toolkeep.Principal, t *toolkeep.Tool) Health {
	var own, upstream *breaker.Info
	if info, ok := m.c.Breakers.Get(t.Tenant, breaker.OfTool(t.ID)); ok {
		own = &info
	}
	if name := m.c.Upstreams.ServiceOf(p, t); name != "" {
		if info, ok := m.c.Breakers.Get(t.Tenant, name); ok {
			upstream = &info
		}
	}
	h := of(t.ID, own, upstream, m.last(key{t.Tenant, t.ID}))
	if t.Tenant == "" && p.Tenant != m.c.Home { // how much the others call is not for each tenant to know
		h.Metadata.Calls, h.Metadata.Failures, h.Metadata.Slow = 0, 0, 0
		h.ErrorRate, h.Latency, h.LastCheck = 0, 0, time.Time{}
		if h.Metadata.Probe != nil {
			h.LastCheck = h.Metadata.Probe.At
		}
	}
	return h
}

// Known are the health of the tools that are probed, and of those whose breaker has been open on this node. Their upstreams are
// left out. Tools of one id in several tenants are one each.
func (m *Monitor) Known() []Health {
	infos := map[key]*breaker.Info{}
	for _, info := range m.c.Breakers.Changed() {
		if info.Tool {
			infos[key{info.Tenant, strings.TrimPrefix(info.ID, breaker.OfTool(""))}] = &info
		}
	}
	m.mu.Lock()
	probes := make(map[key]*Probe, len(m.probes))
	for k, f := range m.probes {
		probes[k] = f.Probe
	}
	m.mu.Unlock()
	var out []Health
	for k, p := range probes {
		info := infos[k]
		delete(infos, k)
		if info == nil {
			if i, ok := m.c.Breakers.Get(k.tenant, breaker.OfTool(k.tool)); ok {
				info = &i
			}
		}
		out = append(out, of(k.tool, info, nil, p))
	}
	for k, info := range infos {
		out = append(out, of(k.tool, info, nil, nil))
	}
	slices.SortFunc(out, func(a, b Health) int { return cmp.Compare(a.ToolID, b.ToolID) })
	return out
}

func (m *Monitor) last(k key) *Probe {
	m.mu.Lock()
	defer m.mu.Unlock()
	if f := m.probes[k]; f != nil {
		return f.Probe
	}
	return nil
}

// Start reads what was found.
func (m *Monitor) Start(ctx context.Context) (after int64, err error) {
	all, after, err := m.c.Store.Documents(ctx, Kind)
	if err != nil {
		return 0, err
	}
	for _, d := range all {
		m.take(d)
	}
	return after, nil
}

// Follow is told of the feed. What this node wrote it knows better.
func (m *Monitor) Follow(c toolkeep.Committed) {
	switch d := c.Change.(type) {
	case toolkeep.PutDocument:
		if d.Document.Kind == Kind && d.Document.UpdatedBy != m.c.Node {
			m.take(d.Document)
		}
	case toolkeep.DeleteDocument:
		if d.Kind == Kind && d.By != m.c.Node {
			m.mu.Lock()
			delete(m.probes, key{d.Tenant, d.ID})
			m.mu.Unlock()
		}
	}
}

// take takes a document. One that cannot be read says nothing.
func (m *Monitor) take(d toolkeep.Document) {
	p := &Probe{}
	if json.Unmarshal(d.Body, p) != nil || !slices.Contains(Statuses[:], p.Status) {
		p = &Probe{Status: Unknown, Since: d.UpdatedAt, At: d.UpdatedAt, Error: "the document of the probe cannot be read"}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.probes[key{d.Tenant, d.ID}] = &found{Probe: p, last: p, stored: p.Status}
}

// target is a tool that is probed.
type target struct {
	key
	tool *toolkeep.Tool
	due  time.Time
	busy bool // it waits for a place, or is probed
}

func (t *target) every() time.Duration {
	return time.Duration(min(max(t.tool.Manifest.Health.IntervalS, 1), MaxInterval)) * time.Second
}

// round is one lead of Work. Its goroutine alone uses it.
type round struct {
	m       *Monitor
	targets map[key]*target
	waiting map[string][]*target // for a place, by tenant; none is empty
	running map[string]int       // probes by tenant
	all     int                  // probes
	number  int64                // of what was read of the catalogue, -1 before
}

// Run probes until ctx ends, and returns when no probe is under way. It is for the node that leads Work.
func (m *Monitor) Run(ctx context.Context) {
	r := &round{m: m, targets: map[key]*target{}, waiting: map[string][]*target{}, running: map[string]int{}, number: -1}
	ended := make(chan *target, atOnce)
	var probing sync.WaitGroup
	defer probing.Wait()
	ticker := time.NewTicker(tick)
	defer ticker.Stop()
	r.look(ctx)
	for ctx.Err() == nil {
		for t := r.next(); t != nil; t = r.next() {
			tool := t.tool
			probing.Go(func() {
				m.probe(ctx, tool)
				ended <- t
			})
		}
		select {
		case <-ctx.Done():
		case t := <-ended:
			r.ended(t)
		case <-ticker.C:
			r.look(ctx)
		}
	}
}

// look finds what is due, what has waited longest first.
func (r *round) look(ctx context.Context) {
	now := r.m.c.Clock()
	r.read(now)
	r.m.drop(ctx, r.targets)
	var due []*target
	for _, t := range r.targets {
		if !t.busy && !t.due.After(now) {
			due = append(due, t)
		}
	}
	slices.SortFunc(due, func(a, b *target) int { return a.due.Compare(b.due) })
	for _, t := range due {
		t.busy = true
		r.waiting[t.tenant] = append(r.waiting[t.tenant], t)
	}
}

// read reads the catalogue, if it changed.
func (r *round) read(now time.Time) {
	s := r.m.c.Snapshot()
	if s.Seq() == r.number {
		return
	}
	r.number = s.Seq()
	tools := latest(s.All())
	if len(tools) > MaxTools {
		r.m.c.Log.Warn("more tools have a health.endpoint than are probed", "tools", len(tools), "probed", MaxTools)
		tools = share(tools, MaxTools)
	}
	next := make(map[key]*target, len(tools))
	for _, tool := range tools {
		k := key{tool.Tenant, tool.ID}
		t := r.targets[k]
		if t == nil {
			t = &target{key: k, tool: tool}
			t.due = now.Add(rand.N(t.every()))
		} else if t.tool.Digest != tool.Digest { // another endpoint or interval, maybe
			t.tool = tool
			if soon := now.Add(rand.N(t.every())); soon.Before(t.due) {
				t.due = soon
			}
			r.m.changed(k)
		}
		t.tool = tool
		next[k] = t
	}
	r.targets = next
}

// share returns at most so many of the tools, of each tenant as many as of the others that have them.
func share(tools []*toolkeep.Tool, most int) []*toolkeep.Tool {
	of, nth := map[string]int{}, make(map[*toolkeep.Tool]int, len(tools))
	for _, t := range tools {
		nth[t] = of[t.Tenant]
		of[t.Tenant]++
	}
	slices.SortStableFunc(tools, func(a, b *toolkeep.Tool) int { return nth[a] - nth[b] })
	return tools[:min(most, len(tools))]
}

// changed has the probes of a tool counted from zero.
func (m *Monitor) changed(k key) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if f := m.probes[k]; f != nil {
		own := *f
		own.last = nil
		m.probes[k] = &own
	}
}

// next takes a place for the tool that is probed next, nil without a place or a tool: one of the tenant with the fewest probes
// under way, so that endpoints which hang do not hold up those of other tenants.
func (r *round) next() *target {
	for r.all < atOnce && len(r.waiting) > 0 {
		tenant, fewest := "", atOnce
		for id := range r.waiting {
			if n := r.running[id]; n < fewest {
				tenant, fewest = id, n
			}
		}
		t := r.waiting[tenant][0]
		if r.waiting[tenant] = r.waiting[tenant][1:]; len(r.waiting[tenant]) == 0 {
			delete(r.waiting, tenant)
		}
		if r.targets[t.key] == t { // else it is not probed any more
			r.all++
			r.running[tenant]++
			return t
		}
	}
	return nil
}

func (r *round) ended(t *target) {
	r.all--
	if r.running[t.tenant]--; r.running[t.tenant] == 0 {
		delete(r.running, t.tenant)
	}
	every := t.every()
	t.busy, t.due = false, r.m.c.Clock().Add(every-every/10+rand.N(every/5))
}

// latest returns the tools that are probed: of each the version that a call gets which names none, if it has an endpoint and is not
// held, when there is no such call.
func latest(all iter.Seq[toolkeep.Version]) (out []*toolkeep.Tool) {
	var best *toolkeep.Tool
	var stable, held bool
	end := func() {
		if best != nil && !held && best.Manifest.Health != nil && best.Manifest.Health.Endpoint != "" {
			out = append(out, best)
		}
		best, stable, held = nil, false, false
	}
	var at key
	for v := range all {
		if k := (key{v.Tool.Tenant, v.Tool.ID}); k != at {
			end()
			at = k
		}
		is := !prerelease(v.Tool.Version)
		if v.Life.State == toolkeep.Active && (is || !stable) {
			best, stable, held = v.Tool, is, v.Life.Held != nil
		}
	}
	end()
	return out
}

func prerelease(version string) bool {
	version, _, _ = strings.Cut(version, "+")
	return strings.Contains(version, "-")
}

// blocked reports whether the breaker of the tool or of its upstream refuses calls, until the time for test calls: probes leave it
// in peace too.
func (m *Monitor) blocked(t *toolkeep.Tool) bool {
	for _, id := range []string{breaker.OfTool(t.ID), m.service(t)} {
		b, ok := m.c.Breakers.Get(t.Tenant, id)
		if ok && (b.State == breaker.ForcedOpen || b.State == breaker.Open && b.Record.Until.After(m.c.Clock())) {
			return true
		}
	}
	return false
}

func (m *Monitor) service(t *toolkeep.Tool) string {
	return m.c.Upstreams.ServiceOf(&toolkeep.Principal{Tenant: t.Tenant}, t)
}

// own reports whether a tool's endpoint is on the server that its calls go to.
func (m *Monitor) own(t *toolkeep.Tool) bool {
	u, err := url.Parse(t.Manifest.Health.Endpoint)
	if err != nil || u.Host == "" {
		return err == nil
	}
	port := cmp.Or(u.Port(), map[string]string{"http": "80", "https": "443"}[u.Scheme])
	return m.service(t) == "host:"+strings.ToLower(net.JoinHostPort(u.Hostname(), port))
}

// probe makes one probe.
func (m *Monitor) probe(ctx context.Context, t *toolkeep.Tool) {
	if m.blocked(t) {
		return
	}
	began := m.c.Clock()
	asking, cancel := context.WithTimeout(ctx, Timeout)
	err := m.ask(asking, t)
	cancel()
	if ctx.Err() != nil { // another node probes now
		return
	}
	at := m.c.Clock()
	took := at.Sub(began)
	if err != nil {
		if counts(err) && m.own(t) {
			m.c.Breakers.Failed(t, err.Code, took)
		}
		m.c.Log.Debug("a probe failed", "tool_id", t.ID, "error", err)
	}
	k := key{t.Tenant, t.ID}
	m.mu.Lock()
	was := m.probes[k]
	if was == nil {
		was = &found{}
	}
	last := was.last.next(err, took, at.UTC(), m.c.Node)
	is := was.confirmed(last)
	m.probes[k] = &found{is, last, was.stored, was.wrote}
	m.mu.Unlock()
	worse := was.stored == Degraded && is.Status == Unhealthy // on its way down: two writes instead of one
	if is.Status != was.stored && (worse || was.wrote.IsZero() || at.Sub(was.wrote) >= rest) {
		m.write(ctx, k, was.stored, is)
	}
}

func (m *Monitor) ask(ctx context.Context, t *toolkeep.Tool) (err *toolkeep.Error) {
	defer func() {
		if r := recover(); r != nil {
			m.c.Log.Error("a probe panicked", "tool_id", t.ID, "panic", fmt.Sprint(r))
			err = toolkeep.NewError(toolkeep.InternalError, "the probe panicked")
		}
	}()
	if e := m.c.Prober.Probe(ctx, t); e != nil {
		return toolkeep.AsError(e)
	}
	return nil
}

// write writes a state that changed, with its event: none for a tool that is healthy from the first probe on. What cannot be
// written is written after the next probe.
func (m *Monitor) write(ctx context.Context, k key, from Status, p *Probe) {
	body, err := json.Marshal(p)
	if err == nil {
		changes := []toolkeep.Change{toolkeep.PutDocument{Document: toolkeep.Document{Kind: Kind, Tenant: k.tenant, ID: k.tool, Body: body, UpdatedBy: m.c.Node}, Expect: toolkeep.AnyRevision}}
		if was := cmp.Or(from, Unknown); was != p.Status && (from != "" || p.Status != Healthy) {
			data := map[string]any{"tool_id": k.tool, "from": string(was), "to": string(p.Status), "node": m.c.Node}
			if p.Error != "" {
				data["reason"] = p.Error
			}
			changes = append(changes, toolkeep.AppendEvent{Event: toolkeep.Event{ID: uuid.Must(uuid.NewV7()).String(), Type: eventChanged, Tenant: cmp.Or(k.tenant, m.c.Home), Time: p.At, Data: canon.Append(nil, data)}})
		}
		err = m.apply(ctx, changes...)
	}
	if err != nil {
		m.failed(ctx, k, err)
		return
	}
	m.mu.Lock()
	if f := m.probes[k]; f != nil {
		wrote := m.c.Clock()
		if from == "" { // what follows the first state is not held back
			wrote = time.Time{}
		}
		m.probes[k] = &found{f.Probe, f.last, p.Status, wrote}
	}
	m.mu.Unlock()
}

// drop forgets what was found of tools that are not probed any more.
func (m *Monitor) drop(ctx context.Context, probed map[key]*target) {
	m.mu.Lock()
	var gone []key
	for k := range m.probes {
		if probed[k] == nil {
			gone = append(gone, k)
		}
	}
	m.mu.Unlock()
	for _, k := range gone {
		err := m.apply(ctx, toolkeep.DeleteDocument{Kind: Kind, Tenant: k.tenant, ID: k.tool, Expect: toolkeep.AnyRevision, By: m.c.Node})
		if err != nil && !errors.Is(err, toolkeep.ErrNotFound) {
			m.failed(ctx, k, err)
			return
		}
		m.mu.Lock()
		delete(m.probes, k)
		m.mu.Unlock()
	}
}

func (m *Monitor) apply(ctx context.Context, changes ...toolkeep.Change) error {
	ctx, cancel := context.WithTimeout(ctx, storeWait)
	defer cancel()
	return m.c.Store.Apply(ctx, changes...)
}

func (m *Monitor) failed(ctx context.Context, k key, err error) {
	if ctx.Err() == nil {
		m.c.Log.Warn("what a probe found cannot be written; this is tried again", "tool_id", k.tool, "error", err)
	}
}
