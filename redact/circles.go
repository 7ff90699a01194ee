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

// Circle is those whose results are cleaned of a value. Whoever sets a secret chooses
// its value, and everybody may set their own: were each known for all, one person could
// have words taken out of everybody's results. So the circle of a value is those whom
// it concerns, and whoever may choose it.
type Circle struct {
	Tenant string // "" is everybody, whatever Person is
	Person string // subject or person acted for; "" is the whole tenant
}

// Everybody is the circle of what the server's operator provides.
var Everybody Circle

// TenantOf is the circle of what a principal's workspace or organisation provides.
func TenantOf(p *toolkeep.Principal) Circle { return Circle{Tenant: p.Tenant} }

// PersonOf is the circle of what belongs to the person that a principal acts for, or to
// itself where it acts for nobody.
func PersonOf(p *toolkeep.Principal) Circle {
	if p.OnBehalf != "" {
		return Circle{Tenant: p.Tenant, Person: p.OnBehalf}
	}
	return Circle{Tenant: p.Tenant, Person: p.Subject}
}

// Circles holds secrets each for its circle, and gives what cleans the results of one
// principal. Logs are not anybody's results: the process's log is cleaned of every value,
// and what a tenant's administrators read of their servers of all that the tenant and
// its people have.
//
// All methods are safe for concurrent use. While nothing is held but for Everybody, those
// that clean take no lock; otherwise a read lock while they look up their circles.
type Circles struct {
	clock func() time.Time
	all   *Secrets
	log   *Secrets // what all does not have

	many atomic.Int64 // length of sets
	due  atomic.Int64 // when some of sets may be empty, in Unix nanoseconds; 0 is never

	mu   sync.RWMutex // guards sets and their uses; taken before a Secrets' own
	sets map[place]*set
}

// place is a circle's own values, or with log those of a tenant and all its people.
type place struct {
	Circle
	log bool
}

type set struct {
	*Secrets
	uses int // holds that have not been released; a set without may be dropped
}

// NewCircles makes Circles in which nothing is held; clock is time.Now where nil.
func NewCircles(clock func() time.Time) *Circles {
	if clock == nil {
		clock = time.Now
	}
	return &Circles{clock: clock, all: NewSecrets(clock), log: NewSecrets(clock), sets: make(map[place]*set)}
}

// Hold makes values known to a circle and to the logs, with the limits of Secrets.Hold.
// release may be called more than once.
func (c *Circles) Hold(to Circle, values ...string) (release func()) {
	if to.Tenant == "" {
		return c.all.Hold(values...)
	}
	values = worth(values)
	if len(values) == 0 {
		return func() {}
	}
	at := []place{{Circle: to}, {Circle: Circle{Tenant: to.Tenant}, log: true}}
	if to.Person == "" {
		at = at[:1] // the tenant's own are part of what its logs are cleaned of
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

// HoldInLog makes values known to the process's log alone.
func (c *Circles) HoldInLog(values ...string) (release func()) { return c.log.Hold(values...) }

// use finds or makes a set and keeps it from being dropped.
func (c *Circles) use(p place) *set {
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

// unuse is called behind the release of what was held in the set.
func (c *Circles) unuse(s *set) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if s.uses--; s.uses == 0 && c.due.Load() == 0 {
		c.due.Store(c.clock().Add(linger).UnixNano())
	}
}

// sweep drops the sets that know nothing any more. Whoever comes first when it is due
// does it; the others do not wait.
func (c *Circles) sweep() {
	due := c.due.Load()
	if due == 0 || c.clock().UnixNano() < due || !c.mu.TryLock() {
		return
	}
	defer c.mu.Unlock()
	var again int64
	for p, s := range c.sets {
		switch {
		case s.uses > 0:
		case s.Holds(): // released later than what it was due for
			again = c.clock().Add(linger).UnixNano()
		default:
			delete(c.sets, p)
		}
	}
	c.many.Store(int64(len(c.sets)))
	c.due.Store(again)
}

// Held is how many values are known, in each circle for itself and without the logs:
// those that are held, and those that were until less than 60 s ago.
func (c *Circles) Held() int {
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

// For cleans what a principal is shown: of what everybody's results are cleaned of, its
// tenant's, its own and that of the person it acts for. It knows at once what is held
// later.
func (c *Circles) For(p *toolkeep.Principal) *View {
	v := &View{of: c}
	v.at[0].Tenant = p.Tenant
	v.at[1].Circle = Circle{p.Tenant, p.Subject}
	v.at[2].Circle = Circle{p.Tenant, p.OnBehalf}
	v.places = 1
	if p.Subject != "" {
		v.places++
	}
	if p.OnBehalf != "" && p.OnBehalf != p.Subject {
		v.at[v.places].Circle = Circle{p.Tenant, p.OnBehalf}
		v.places++
	}
	return v
}

// All cleans what is shown to whom nobody knows: of what Everybody has.
func (c *Circles) All() *View { return &View{of: c} }

// Log cleans the process's log: of every value.
func (c *Circles) Log() *View { return (&View{of: c}).With(c.log) }

// TenantLog cleans what a tenant's administrators are told of its servers: of what the
// tenant and all its people have.
func (c *Circles) TenantLog(tenant string) *View {
	v := &View{of: c, places: 2}
	v.at[0].Tenant = tenant
	v.at[1] = place{Circle: Circle{Tenant: tenant}, log: true}
	return v
}

// View cleans with several circles at once, so that a value which holds another one
// goes as a whole, whoever has which. It is safe for concurrent use.
type View struct {
	of     *Circles
	places int
	at     [3]place
	more   []*Secrets // beside the circles
	others int        // how many of more count as a person's, the first
	above  *View      // of which it is a With or a Below; is told what is found too
	found  atomic.Bool
}

// With is the view that cleans of what s has as well.
func (v *View) With(s *Secrets) *View {
	return &View{of: v.of, places: v.places, at: v.at, more: append(slices.Clip(v.more), s), others: v.others, above: v}
}

// Below is v for what is asked on the way, in words of its own: what With added counts as
// a person's there.
func (v *View) Below() *View {
	return &View{of: v.of, places: v.places, at: v.at, more: v.more, others: len(v.more), above: v}
}

// TookPersonal tells whether what was cleaned so far held a value that a person has, so
// that others would be shown it otherwise.
func (v *View) TookPersonal() bool { return v.found.Load() }

// look gathers what is to be looked for.
func (v *View) look() (l look) {
	l.add(v.of.all)
	for _, s := range v.more[v.others:] {
		l.add(s)
	}
	l.personal = l.n
	if v.places > 0 && v.of.many.Load() > 0 {
		v.circles(&l)
	}
	for _, s := range v.more[:v.others] {
		l.add(s)
	}
	return l
}

// circles adds what its circles have, those of persons last.
func (v *View) circles(l *look) {
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

// Holds tells whether there is anything to look for beside tokens.
func (v *View) Holds() bool {
	l := v.look()
	return l.n > 0
}

// note passes on whether something of a person was found.
func (v *View) note(l *look) {
	if l.found {
		for ; v != nil; v = v.above {
			v.found.Store(true)
		}
	}
}

// Clean is Secrets.Clean.
func (v *View) Clean(text string) string {
	l := v.look()
	spans := l.find(text)
	if len(spans) == 0 {
		return text
	}
	v.note(&l)
	return replace(text, spans)
}

// CleanValue is Secrets.CleanValue.
func (v *View) CleanValue(tree any) any {
	l := v.look()
	tree, changed := l.value(tree)
	if changed {
		v.note(&l)
	}
	return tree
}

// CleanJSON cleans a serialised JSON value of what is held, and not of tokens: it is for
// what is passed on as it came. It gives raw itself where there is nothing; otherwise
// the value is written anew, in its canonical form. What cannot be read then becomes null.
func (v *View) CleanJSON(raw []byte) []byte {
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
		return raw // it was found across texts
	}
	v.note(&l)
	return canon.Append(nil, tree)
}

// jsonLimits let through what has been read before.
func jsonLimits(size int) canon.Limits {
	return canon.Limits{Bytes: int64(size) + 1, Depth: 10_000, Properties: size + 1, Elements: size + 1}
}
