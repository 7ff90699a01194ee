package access

import (
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/toolkeep/toolkeep"
)

// FailureLimits says after how many failures who is blocked for how long. 0 is
// the default, a negative number of failures no limit.
type FailureLimits struct {
	PerAgent   int           // a minute; default 10
	AgentBlock time.Duration // default 5 min
	PerAddr    int           // a minute; default 100
	AddrBlock  time.Duration // default 15 min
	Global     int           // a minute, logged as an error and no more; default 10,000
	Tracked    int           // agents and addresses remembered; default 65,536
}

// Failure is one failure of authentication or authorisation, for events and
// metrics. It holds no secret.
type Failure struct {
	// Reason is malformed, unknown_key, wrong_secret, revoked, expired, denied or
	// blocked; of tokens also wrong_signature, wrong_issuer, wrong_audience,
	// wrong_claims, not_yet_valid or issuer_unavailable.
	Reason  string
	Tenant  string // "" where unknown
	Subject string // "" where unknown
	KeyID   string // as sent, if it has the form of an id
	Addr    string
	At      time.Time
}

const (
	// window is the minute in cells of ten seconds: the current one and six before,
	// so it is never shorter than a minute.
	cellSpan  = 10 * time.Second
	cellCount = 7
	// failureSample is how many records are looked at when one has to go.
	failureSample = 16
)

// culprit is who failed: an address, an agent as seen from an address, or an
// agent wherever it is.
type culprit struct{ tenant, subject, addr string }

// record is what is known of a culprit.
type record struct {
	cells   [cellCount]int32
	last    int64 // newest cell
	blocked int64 // until, in nanoseconds since start; 0 never
}

// failures counts and blocks. Times are monotonic, in nanoseconds since start.
type failures struct {
	limits FailureLimits
	clock  func() time.Time
	start  time.Time
	log    interface{ Error(string, ...any) }

	size    atomic.Int64 // of records, to skip the lock while nobody fails
	mu      sync.Mutex
	records map[culprit]*record
	all     record
}

func newFailures(l FailureLimits, clock func() time.Time, log interface{ Error(string, ...any) }) *failures {
	def := func(n *int, v int) {
		if *n == 0 {
			*n = v
		}
	}
	def(&l.PerAgent, 10)
	def(&l.PerAddr, 100)
	def(&l.Global, 10_000)
	if l.Tracked <= 0 {
		l.Tracked = 65_536
	}
	if l.AgentBlock <= 0 {
		l.AgentBlock = 5 * time.Minute
	}
	if l.AddrBlock <= 0 {
		l.AddrBlock = 15 * time.Minute
	}
	return &failures{limits: l, clock: clock, start: clock(), log: log, records: make(map[culprit]*record)}
}

// now starts an hour after zero, so that a zero record lies long past.
func (f *failures) now() int64 { return int64(f.clock().Sub(f.start) + time.Hour) }

// network is what an address counts as: IPv6 hosts choose among the 2^64
// addresses of their network.
func network(addr string) string {
	ip, err := netip.ParseAddr(addr)
	if err != nil {
		return addr
	}
	ip = ip.Unmap().WithZone("")
	if ip.Is4() {
		return ip.String()
	}
	p, err := ip.Prefix(64)
	if err != nil {
		return addr
	}
	return p.String()
}

// blockedAddr gives E3810 while the address is blocked. addr is a network.
func (f *failures) blockedAddr(addr string) error {
	if d := f.blockedFor(culprit{addr: addr}); d > 0 {
		return blockedError("address", d)
	}
	return nil
}

// blockedAgent gives E3810 while the agent is blocked, everywhere or there.
func (f *failures) blockedAgent(tenant, subject, addr string) error {
	d := max(f.blockedFor(culprit{tenant, subject, ""}), f.blockedFor(culprit{tenant, subject, addr}))
	if d > 0 {
		return blockedError("agent", d)
	}
	return nil
}

func blockedError(who string, d time.Duration) error {
	return toolkeep.NewError(toolkeep.AuthFailuresLimited,
		"too many refusals for this %s; every request is refused for another %s", who, d.Round(time.Second)).
		With("blocked", who).After(d)
}

func (f *failures) blockedFor(c culprit) time.Duration {
	if f.size.Load() == 0 {
		return 0
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	r := f.records[c]
	if r == nil {
		return 0
	}
	return time.Duration(max(0, r.blocked-f.now()))
}

// note counts one failure of c and blocks it at the limit. It tells whether the
// block begins now.
func (f *failures) note(c culprit, limit int, block time.Duration) bool {
	if limit < 0 {
		return false
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	now := f.now()
	r := f.records[c]
	if r == nil {
		f.makeRoom(now)
		r = new(record)
		f.records[c] = r
		f.size.Store(int64(len(f.records)))
	}
	if r.blocked > now {
		return false // a block is not drawn out by what it refuses
	}
	if r.add(now) < limit {
		return false
	}
	*r = record{blocked: now + int64(block), last: r.last}
	return true
}

// noteGlobal counts all failures; past the limit it says so once a minute.
func (f *failures) noteGlobal() {
	if f.limits.Global < 0 {
		return
	}
	f.mu.Lock()
	now := f.now()
	alarm := f.all.blocked <= now && f.all.add(now) >= f.limits.Global
	if alarm {
		f.all = record{blocked: now + int64(time.Minute), last: f.all.last}
	}
	f.mu.Unlock()
	if alarm {
		f.log.Error("authentication failures are over the alarm limit: the server may be under attack",
			"limit_per_minute", f.limits.Global)
	}
}

// add counts one failure and gives how many there are in the window.
func (r *record) add(now int64) int {
	cell := now / int64(cellSpan)
	if cell-r.last >= cellCount {
		r.cells, r.last = [cellCount]int32{}, cell
	}
	for ; r.last < cell; r.last++ {
		r.cells[(r.last+1)%cellCount] = 0
	}
	r.cells[r.last%cellCount]++
	n := 0
	for _, c := range r.cells {
		n += int(c)
	}
	return n
}

// over tells whether the record says nothing any more.
func (r *record) over(now int64) bool {
	return r.blocked <= now && now/int64(cellSpan)-r.last >= cellCount
}

// makeRoom keeps the map bounded: first what is over goes, then, of a few looked
// at, the record whose block ends first.
func (f *failures) makeRoom(now int64) {
	if len(f.records) < f.limits.Tracked {
		return
	}
	var victim culprit
	var weakest *record
	looked := 0
	for c, r := range f.records { // the map's order is random
		if r.over(now) {
			delete(f.records, c)
		} else if weakest == nil || r.blocked < weakest.blocked {
			victim, weakest = c, r
		}
		if looked++; looked >= failureSample && (len(f.records) < f.limits.Tracked || weakest != nil) {
			break
		}
	}
	if len(f.records) >= f.limits.Tracked {
		delete(f.records, victim)
	}
}
