package access

import (
	"hash/maphash"
	"math/bits"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/toolkeep/toolkeep"
)

const (
	memoShards = 32
	// Limits of one generation's memory. A full shard is cleared.
	maxIdentities = 4096
	maxDecisions  = 16_384
	maxShown      = 131_072
)

// generation is the roles with all decisions made from them.
type generation struct {
	own     []Role // the custom ones
	rules   ruleset
	seed    maphash.Seed
	decided memo[Decision]
	shown   memo[action]

	identities [memoShards]struct {
		sync.RWMutex
		m map[uint64]*identity
	}
	known atomic.Int64 // number of identities
}

func newGeneration(rules ruleset) *generation {
	g := &generation{rules: rules, seed: maphash.MakeSeed()}
	g.decided.max = maxDecisions / memoShards
	g.shown.max = maxShown / memoShards
	return g
}

// identity holds what decisions depend on, shared by all principals that have it.
type identity struct {
	hash        uint64
	tenant      string
	named       bool // has a subject
	roles       []string
	scope       []string
	permissions []string
	narrowed    string                 // see narrowingOf
	audience    atomic.Pointer[string] // see Audience; nil until asked
}

func (i *identity) is(p *toolkeep.Principal) bool {
	return i.tenant == p.Tenant && i.named == (p.Subject != "") && slices.Equal(i.roles, p.Roles) &&
		slices.Equal(i.scope, p.Scope) && slices.Equal(i.permissions, p.Permissions) && i.narrowed == narrowingOf(p)
}

// narrowingOf names what the principal's capability token shows, "" without one.
func narrowingOf(p *toolkeep.Principal) string {
	if p.Narrowed == nil {
		return ""
	}
	return p.Narrowed.Key()
}

// hash returns the hash of a principal's identity. Equal hashes are compared in full,
// so a collision only costs recomputing a decision.
func (g *generation) hash(p *toolkeep.Principal) uint64 {
	h := maphash.String(g.seed, p.Tenant)
	if p.Subject == "" {
		h = ^h
	}
	for _, list := range [...][]string{p.Roles, p.Scope, p.Permissions} {
		for _, s := range list {
			h = bits.RotateLeft64(h, 17)*0x9e3779b97f4a7c15 ^ maphash.String(g.seed, s)
		}
		h = bits.RotateLeft64(h, 31) + uint64(len(list))
	}
	if p.Narrowed != nil {
		h = bits.RotateLeft64(h, 17)*0x9e3779b97f4a7c15 ^ maphash.String(g.seed, p.Narrowed.Key())
	}
	return h
}

// identity returns the principal's identity; nil if there is no room to remember it.
func (g *generation) identity(p *toolkeep.Principal) *identity {
	h := g.hash(p)
	s := &g.identities[h%memoShards]
	s.RLock()
	i := s.m[h]
	s.RUnlock()
	if i != nil {
		if i.is(p) {
			return i
		}
		return nil
	}
	s.Lock()
	defer s.Unlock()
	if i = s.m[h]; i != nil || g.known.Load() >= maxIdentities {
		return nil
	}
	if s.m == nil {
		s.m = make(map[uint64]*identity)
	}
	i = &identity{hash: h, tenant: p.Tenant, named: p.Subject != "", roles: slices.Clone(p.Roles),
		scope: slices.Clone(p.Scope), permissions: slices.Clone(p.Permissions), narrowed: narrowingOf(p)}
	s.m[h] = i
	g.known.Add(1)
	return i
}

// decisionKey identifies a decision: an identity and a tool version.
type decisionKey struct {
	who            *identity
	tenant, digest string // of the tool
}

// memo is a bounded map of decisions.
type memo[V any] struct {
	max    int // entries per shard
	shards [memoShards]struct {
		sync.RWMutex
		m map[decisionKey]V
	}
}

// shard selects a shard by identity and by the end of the digest, which is hexadecimal.
func (q decisionKey) shard() uint64 {
	return (q.who.hash + uint64(q.digest[len(q.digest)-1])) % memoShards
}

func (m *memo[V]) get(q decisionKey) (V, bool) {
	s := &m.shards[q.shard()]
	s.RLock()
	v, ok := s.m[q]
	s.RUnlock()
	return v, ok
}

func (m *memo[V]) put(q decisionKey, v V) {
	s := &m.shards[q.shard()]
	s.Lock()
	defer s.Unlock()
	if s.m == nil || len(s.m) >= m.max {
		s.m = make(map[decisionKey]V)
	}
	s.m[q] = v
}

// remember returns the answer from m, or decides and stores it there. A version without
// a digest and a principal without an identity are decided every time.
func remember[V any](g *generation, m *memo[V], p *toolkeep.Principal, t *toolkeep.Tool,
	decide func(*generation, *toolkeep.Principal, *toolkeep.Tool) V) V {
	q := decisionKey{tenant: t.Tenant, digest: t.Digest}
	if t.Digest != "" {
		q.who = g.identity(p)
	}
	if q.who == nil {
		return decide(g, p, t)
	}
	v, ok := m.get(q)
	if !ok {
		v = decide(g, p, t)
		m.put(q, v)
	}
	return v
}
