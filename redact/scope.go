package redact

import (
	"slices"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/canon"
)

// Scope says in whose results a value is redacted. A user may store any text as a secret; if every secret were
// redacted for all, one user could remove words from the results of others.
type Scope struct {
	Tenant string // "" is every tenant, whatever Person is
	Person string // subject or person acted for; "" is the whole tenant
}

// AllTenants is the scope of the operator's secrets.
var AllTenants Scope

// TenantScope is the scope of secrets of a principal's workspace or organisation.
func TenantScope(p *toolkeep.Principal) Scope { return Scope{Tenant: p.Tenant} }

// PersonScope is the scope of secrets of the person that a principal acts for, or of the principal itself.
func PersonScope(p *toolkeep.Principal) Scope {
	if p.OnBehalf != "" {
		return Scope{Tenant: p.Tenant, Person: p.OnBehalf}
	}
	return Scope{Tenant: p.Tenant, Person: p.Subject}
}

// Redactor holds secrets by scope and returns Cleaners. The process's log is redacted with every value; a tenant's
// server logs are redacted with the values of the tenant and all its people.
//
// All methods are safe for concurrent use. While only values of AllTenants are held, cleaning takes no lock;
// otherwise it takes a read lock to look up the scopes.
type Redactor struct {
	clock func() time.Time
	all   *Secrets
	log   *Secrets // values that all lacks

	many atomic.Int64 // length of sets
	due  atomic.Int64 // when to sweep sets, in Unix nanoseconds; 0 is never

	mu   sync.RWMutex // guards sets and their uses; locked before a Secrets' own
	sets map[setKey]*set
}

// setKey identifies a scope's own values, or with log those of a tenant and all its people.
type setKey struct {
	Scope
	log bool
}

type set struct {
	*Secrets
	uses int // unreleased holds; a set without any may be dropped
}

// NewRedactor makes an empty Redactor; a nil clock is time.Now.
func NewRedactor(clock func() time.Time) *Redactor {
	if clock == nil {
		clock = time.Now
	}
	return &Redactor{clock: clock, all: NewSecrets(clock), log: NewSecrets(clock), sets: make(map[setKey]*set)}
}

// Hold redacts values in a scope and in the logs, with the limits of Secrets.Hold.
// release may be called more than once.
func (c *Redactor) Hold(to Scope, values ...string) (release func()) {
	if to.Tenant == "" {
		return c.all.Hold(values...)
	}
	values = worth(values)
	if len(values) == 0 {
		return func() {}
	}
	at := []setKey{{Scope: to}, {Scope: Scope{Tenant: to.Tenant}, log: true}}
	if to.Person == "" {
		at = at[:1] // the tenant's log set already includes the tenant's own
	}
	releases := []func(){c.log.Hold(values...)}
	for _, p := range at {
		s := c.use(p)
		releases = append(releases, s.Hold(values...), func() { c.unuse(s) })
	}
	var once sync.Once
	return func() {
		once.Do(func() {
			for _, r := range releases {
				r()
			}
		})
	}
}

// HoldInLog redacts values only in the process's log.
func (c *Redactor) HoldInLog(values ...string) (release func()) { return c.log.Hold(values...) }

// use finds or creates a set and keeps it from being dropped.
func (c *Redactor) use(p setKey) *set {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.sets[p]
	if s == nil {
		s = &set{Secrets: NewSecrets(c.clock)}
		c.sets[p] = s
		c.many.Store(int64(len(c.sets)))
	}
	s.uses++
	return s
}

// unuse is called after the values held in the set are released.
func (c *Redactor) unuse(s *set) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if s.uses--; s.uses == 0 && c.due.Load() == 0 {
		c.due.Store(c.clock().Add(linger).UnixNano())
	}
}

// sweep drops empty sets when due. The first caller does it; others do not wait.
func (c *Redactor) sweep() {
	due := c.due.Load()
	if due == 0 || c.clock().UnixNano() < due || !c.mu.TryLock() {
		return
	}
	defer c.mu.Unlock()
	var again int64
	for p, s := range c.sets {
		switch {
		case s.uses > 0:
		case s.Holds(): // released later than the due time
			again = c.clock().Add(linger).UnixNano()
		default:
			delete(c.sets, p)
		}
	}
	c.many.Store(int64(len(c.sets)))
	c.due.Store(again)
}

// Held returns the number of values over all scopes, without the logs: those held and those released less than 60 s
// ago.
func (c *Redactor) Held() int {
	c.sweep()
	n := c.all.count()
	c.mu.RLock()
	defer c.mu.RUnlock()
	for p, s := range c.sets {
		if !p.log {
			n += s.count()
		}
	}
	return n
}

// For returns the Cleaner of a principal's results: for the values of all tenants, of its tenant, its own and those
// of the person it acts for. It also sees values held later.
func (c *Redactor) For(p *toolkeep.Principal) *Cleaner {
	v := &Cleaner{of: c}
	v.at[0].Tenant = p.Tenant
	v.at[1].Scope = Scope{p.Tenant, p.Subject}
	v.at[2].Scope = Scope{p.Tenant, p.OnBehalf}
	v.places = 1
	if p.Subject != "" {
		v.places++
	}
	if p.OnBehalf != "" && p.OnBehalf != p.Subject {
		v.at[v.places].Scope = Scope{p.Tenant, p.OnBehalf}
		v.places++
	}
	return v
}

// All returns the Cleaner for unauthenticated callers, with the values of all tenants.
func (c *Redactor) All() *Cleaner { return &Cleaner{of: c} }

// Log returns the Cleaner of the process's log, with every value.
func (c *Redactor) Log() *Cleaner { return (&Cleaner{of: c}).With(c.log) }

// TenantLog returns the Cleaner of a tenant's server logs, with the values of the tenant and all its people.
func (c *Redactor) TenantLog(tenant string) *Cleaner {
	v := &Cleaner{of: c, places: 2}
	v.at[0].Tenant = tenant
	v.at[1] = setKey{Scope: Scope{Tenant: tenant}, log: true}
	return v
}

// Cleaner redacts the values of several scopes at once, so that a value that contains another one is redacted as a
// whole. It is safe for concurrent use.
type Cleaner struct {
	of     *Redactor
	places int
	at     [3]setKey
	more   []*Secrets // in addition to the scopes
	others int        // how many of more, the first ones, count as a person's
	above  *Cleaner   // the Cleaner that With or Below was called on; it learns of finds too
	found  atomic.Bool
}

// With returns a Cleaner that also redacts the values of s.
func (v *Cleaner) With(s *Secrets) *Cleaner {
	return &Cleaner{of: v.of, places: v.places, at: v.at, more: append(slices.Clip(v.more), s), others: v.others, above: v}
}

// Below returns v for a nested call: there the values added by With count as a person's.
func (v *Cleaner) Below() *Cleaner {
	return &Cleaner{of: v.of, places: v.places, at: v.at, more: v.more, others: len(v.more), above: v}
}

// TookPersonal reports whether a person's value has been redacted; then the text must not be shared with others.
func (v *Cleaner) TookPersonal() bool { return v.found.Load() }

// look collects the snapshots to search.
func (v *Cleaner) look() (l look) {
	l.add(v.of.all)
	for _, s := range v.more[v.others:] {
		l.add(s)
	}
	l.personal = l.n
	if v.places > 0 && v.of.many.Load() > 0 {
		v.scopes(&l)
	}
	for _, s := range v.more[:v.others] {
		l.add(s)
	}
	return l
}

// scopes adds the snapshots of v's scopes, those of persons last.
func (v *Cleaner) scopes(l *look) {
	v.of.sweep()
	v.of.mu.RLock()
	defer v.of.mu.RUnlock()
	for i := range v.places {
		if s := v.of.sets[v.at[i]]; s != nil {
			l.add(s.Secrets)
		}
		if v.at[i].Person == "" {
			l.personal = l.n
		}
	}
}

// Holds reports whether there are values to find besides tokens.
func (v *Cleaner) Holds() bool {
	l := v.look()
	return l.n > 0
}

// note records whether a person's value was found.
func (v *Cleaner) note(l *look) {
	if l.found {
		for ; v != nil; v = v.above {
			v.found.Store(true)
		}
	}
}

// Clean is Secrets.Clean.
func (v *Cleaner) Clean(text string) string {
	l := v.look()
	spans := l.find(text)
	if len(spans) == 0 {
		return text
	}
	v.note(&l)
	return replace(text, spans)
}

// CleanValue is Secrets.CleanValue.
func (v *Cleaner) CleanValue(tree any) any {
	l := v.look()
	tree, changed := l.value(tree)
	if changed {
		v.note(&l)
	}
	return tree
}

// CleanJSON redacts held values, but not tokens, from serialised JSON that is passed through. It returns raw itself
// if there is nothing to redact; otherwise it writes the value in canonical form, or null if raw cannot be parsed.
func (v *Cleaner) CleanJSON(raw []byte) []byte {
	l := v.look()
	l.bare = true
	if l.n == 0 || len(l.find(unsafe.String(unsafe.SliceData(raw), len(raw)))) == 0 {
		return raw
	}
	l.found = false
	tree, err := canon.Parse(raw, jsonLimits(len(raw)))
	if err != nil {
		return []byte("null")
	}
	tree, changed := l.value(tree)
	if !changed {
		return raw // the match spans several texts
	}
	v.note(&l)
	return canon.Append(nil, tree)
}

// jsonLimits accept anything that was parsed before.
func jsonLimits(size int) canon.Limits {
	return canon.Limits{Bytes: int64(size) + 1, Depth: 10_000, Properties: size + 1, Elements: size + 1}
}
