package redact

import (
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/canon"
)

// Scope says in which results a value is redacted: whose, and from which upstream. A user may store any text as a
// secret; if every secret were redacted for all, one user could remove words from the results of others. And if every
// secret were redacted from every result, a tool that returns its own arguments would tell which guess is one.
type Scope struct {
	Tenant   string // "" is every tenant, whatever Person is
	Person   string // subject or person acted for; "" is the whole tenant
	Upstream string // who was given the value and may repeat it, see Host; "" is every upstream
}

// AllTenants is the scope of the operator's secrets.
var AllTenants Scope

// At returns the scope s for values that were given to an upstream.
func (s Scope) At(upstream string) Scope {
	s.Upstream = upstream
	return s
}

// Host is the upstream of a host name, whatever the port and the protocol are.
func Host(name string) string { return "host:" + strings.ToLower(strings.Trim(name, "[]")) }

// URLHost is the upstream of a URL's host.
func URLHost(address string) string {
	u, err := url.Parse(address)
	if err != nil {
		return "url:" + address
	}
	return Host(u.Hostname())
}

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
		to.Person = ""
	}
	if to == AllTenants {
		return c.all.Hold(values...)
	}
	values = worth(values)
	if len(values) == 0 {
		return func() {}
	}
	at := []setKey{{Scope: to}, {Scope: Scope{Tenant: to.Tenant, Upstream: to.Upstream}, log: true}}
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
// of the person it acts for. It also sees values held later. Values that were given to an upstream are redacted only
// by a Cleaner From it.
func (c *Redactor) For(p *toolkeep.Principal) *Cleaner {
	v := &Cleaner{of: c, tenant: p.Tenant}
	if p.Subject != "" {
		v.people = append(v.people, p.Subject)
	}
	if p.OnBehalf != "" && p.OnBehalf != p.Subject {
		v.people = append(v.people, p.OnBehalf)
	}
	v.place("")
	return v
}

// All returns the Cleaner for unauthenticated callers, with the values of all tenants.
func (c *Redactor) All() *Cleaner { return &Cleaner{of: c} }

// Log returns the Cleaner of the process's log, with every value.
func (c *Redactor) Log() *Cleaner { return (&Cleaner{of: c}).With(c.log) }

// TenantLog returns the Cleaner of what a tenant is shown of an upstream's log, with the values of the tenant and all
// its people.
func (c *Redactor) TenantLog(tenant, upstream string) *Cleaner {
	v := &Cleaner{of: c}
	for _, u := range []string{"", upstream} {
		v.shared = append(v.shared, setKey{Scope: Scope{Tenant: tenant, Upstream: u}})
		v.own = append(v.own, setKey{Scope: Scope{Tenant: tenant, Upstream: u}, log: true})
	}
	v.shared = append(v.shared, setKey{Scope: Scope{Upstream: upstream}})
	return v
}

// Cleaner redacts the values of several scopes at once, so that a value that contains another one is redacted as a
// whole. It is safe for concurrent use.
type Cleaner struct {
	of     *Redactor
	tenant string
	people []string
	shared []setKey   // the scopes of all and of the tenant
	own    []setKey   // those of people
	more   []*Secrets // in addition to the scopes
	others int        // how many of more, the first ones, count as a person's
	above  *Cleaner   // the Cleaner that From, With or Below was called on; it learns of finds too
	found  atomic.Bool
}

// place adds the principal's scopes at an upstream.
func (v *Cleaner) place(upstream string) {
	if upstream != "" {
		v.shared = append(slices.Clip(v.shared), setKey{Scope: Scope{Upstream: upstream}})
	}
	if v.tenant == "" {
		return
	}
	v.shared = append(slices.Clip(v.shared), setKey{Scope: Scope{Tenant: v.tenant, Upstream: upstream}})
	v.own = slices.Clip(v.own)
	for _, person := range v.people {
		v.own = append(v.own, setKey{Scope: Scope{v.tenant, person, upstream}})
	}
}

// From returns a Cleaner for what an upstream sent, which also redacts the values that it was given.
func (v *Cleaner) From(upstream string) *Cleaner {
	if upstream == "" || slices.Contains(v.shared, setKey{Scope: Scope{Upstream: upstream}}) {
		return v
	}
	w := v.beneath()
	w.place(upstream)
	return w
}

// beneath returns a copy that reports its finds to v.
func (v *Cleaner) beneath() *Cleaner {
	return &Cleaner{of: v.of, tenant: v.tenant, people: v.people, shared: v.shared, own: v.own, more: v.more, others: v.others, above: v}
}

// With returns a Cleaner that also redacts the values of s.
func (v *Cleaner) With(s *Secrets) *Cleaner {
	w := v.beneath()
	w.more = append(slices.Clip(w.more), s)
	return w
}

// Below returns v for a nested call: there the values added by With count as a person's.
func (v *Cleaner) Below() *Cleaner {
	w := v.beneath()
	w.others = len(w.more)
	return w
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
	if len(v.shared)+len(v.own) > 0 && v.of.many.Load() > 0 {
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
	for _, k := range v.shared {
		if s := v.of.sets[k]; s != nil {
			l.add(s.Secrets)
		}
	}
	l.personal = l.n
	for _, k := range v.own {
		if s := v.of.sets[k]; s != nil {
			l.add(s.Secrets)
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
