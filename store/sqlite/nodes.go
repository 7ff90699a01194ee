package sqlite

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/toolkeep/toolkeep"
)

// members is what the nodes of this store know of each other. One process has the file, so
// it need not outlive the store: no other process reads it, and the next one finds no node
// that lives.
type members struct {
	mu    sync.Mutex
	nodes map[string]toolkeep.NodeState
	leads map[string]lead
}

type lead struct {
	name, run string
	until     time.Time
}

// Join implements toolkeep.Members.
func (s *Store) Join(ctx context.Context, n toolkeep.NodeState) (before *toolkeep.NodeState, err error) {
	if err := s.mayBeat(ctx, &n); err != nil {
		return nil, err
	}
	m := &s.members
	m.mu.Lock()
	defer m.mu.Unlock()
	now := s.cfg.Clock()
	if was, ok := m.nodes[n.Name]; ok && was.Run != n.Run {
		was.Leads = m.leadsOf(&was, now)
		before = &was
	}
	m.put(n, now)
	return before, nil
}

// Beat implements toolkeep.Members.
func (s *Store) Beat(ctx context.Context, n toolkeep.NodeState) (nodes []toolkeep.NodeState, now time.Time, err error) {
	if err := s.mayBeat(ctx, &n); err != nil {
		return nil, now, err
	}
	m := &s.members
	m.mu.Lock()
	defer m.mu.Unlock()
	now = s.cfg.Clock()
	if was, ok := m.nodes[n.Name]; ok && was.Run != n.Run {
		return nil, now, fmt.Errorf("sqlite: another process has joined as %s: %w", n.Name, toolkeep.ErrStale)
	}
	m.put(n, now)
	for _, one := range m.nodes {
		if one.SeenAt.After(now.Add(-toolkeep.NodeGone)) {
			one.Leads = m.leadsOf(&one, now)
			nodes = append(nodes, one)
		}
	}
	slices.SortFunc(nodes, func(a, b toolkeep.NodeState) int { return cmp.Compare(a.Name, b.Name) })
	return nodes, now, nil
}

func (s *Store) mayBeat(ctx context.Context, n *toolkeep.NodeState) error {
	if s.closed() {
		return toolkeep.ErrClosed
	}
	if err := n.Check(); err != nil {
		return fmt.Errorf("sqlite: %w", err)
	}
	return ctx.Err()
}

func (m *members) put(n toolkeep.NodeState, now time.Time) {
	if m.nodes == nil {
		m.nodes = make(map[string]toolkeep.NodeState)
	}
	n.SeenAt, n.Leads, n.Data = now, nil, slices.Clone(n.Data)
	m.nodes[n.Name] = n
}

func (m *members) leadsOf(n *toolkeep.NodeState, now time.Time) []string {
	return slices.DeleteFunc(slices.Sorted(maps.Keys(m.leads)), func(work string) bool {
		l := m.leads[work]
		return l.name != n.Name || l.run != n.Run || !l.until.After(now)
	})
}

// Leave implements toolkeep.Members.
func (s *Store) Leave(ctx context.Context, name, run string) error {
	if s.closed() {
		return toolkeep.ErrClosed
	}
	m := &s.members
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.nodes[name].Run == run {
		delete(m.nodes, name)
	}
	maps.DeleteFunc(m.leads, func(_ string, l lead) bool { return l.name == name && l.run == run })
	return ctx.Err()
}

// Lead implements toolkeep.Members.
func (s *Store) Lead(ctx context.Context, work, name, run string, period time.Duration) (bool, error) {
	if s.closed() {
		return false, toolkeep.ErrClosed
	}
	m := &s.members
	m.mu.Lock()
	defer m.mu.Unlock()
	now := s.cfg.Clock()
	has, taken := m.leads[work]
	if m.nodes[name].Run != run || taken && (has.name != name || has.run != run) && has.until.After(now) {
		return false, ctx.Err()
	}
	if m.leads == nil {
		m.leads = make(map[string]lead)
	}
	m.leads[work] = lead{name, run, now.Add(period)}
	return true, ctx.Err()
}

// Leased implements toolkeep.Invocations.
func (r invocations) Leased(ctx context.Context, owner string, limit int) ([]*toolkeep.Invocation, error) {
	return r.some(ctx, `state = 'running' AND lease_owner = ? ORDER BY lease_until LIMIT ?`, owner, limit)
}
