package access

import (
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/toolkeep/toolkeep"
)

// FailureLimits sets the number of failures before a block, and the block's duration. 0
// is the default; a negative number of failures means no limit.
type FailureLimits struct {
	PerAgent   int           // a minute, on each node; default 10
	AgentBlock time.Duration // default 5 min
	PerAddr    int           // a minute; default 100
	AddrBlock  time.Duration // default 15 min
	Global     int           // a minute, only logged as an error; default 10,000. Nodes divide PerAddr, to 10 at least, and Global.
	tracked    int           // agents and addresses tracked; default 65,536
}

// Failure is one authentication or authorisation failure, for the log, records and metrics. It
// holds no secret.
type Failure struct {
	// Reason is no_credential, malformed, unknown_key, wrong_secret, revoked, expired, denied or
	// blocked; of tokens also wrong_signature, wrong_issuer, wrong_audience,
	// wrong_claims, not_yet_valid or issuer_unavailable; of client certificates unknown_certificate,
	// denied_certificate, expired_certificate or other_certificate; of signed
	// requests wrong_signature, stale_signature, replayed, altered_body or proxy_refused.
	Reason  string
	Tenant  string // "" if unknown
	Subject string // "" if unknown
	// OnBehalf is the person that a denied call was for; "" for none.
	OnBehalf string
	// Chain is on whose behalf the caller acted; see toolkeep.Principal.
	Chain []string
	// Tool is that of a denied call, "?" if it named none; "" of what is no call.
	Tool       string
	Permission string // that was missing for what is no call; "" if unknown
	KeyID      string // as sent, if it has the form of an id
	Addr       string
	At         time.Time
}

const (
	// window is the minute in cells of ten seconds: the current one and the six before,
	// so it is never shorter than a minute.
	cellSpan  = 10 * time.Second
	cellCount = 7
	// failureSample is the number of records compared when one must be evicted.
	failureSample = 16
)

// culprit identifies the source of failures: an address; an agent as seen from an
// address; or, for refused calls, an agent from any address, with the subject and the
// person that it acts for.
type culprit struct{ tenant, subject, as, person, addr string }

// record holds the failures of a culprit.
type record struct {
	cells   [cellCount]int32
	last    int64 // newest cell
	blocked int64 // until, in nanoseconds since start; 0 never
}

// failures counts failures and blocks. Times are monotonic, in nanoseconds since start.
type failures struct {
	limits FailureLimits
	clock  func() time.Time
	start  time.Time
	log    interface{ Error(string, ...any) }
	share  func(limit int) (share, nodes int) // nil for a node alone

	size    atomic.Int64 // number of records, to skip the lock while there are none
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
	if l.tracked <= 0 {
		l.tracked = 65_536
	}
	if l.AgentBlock <= 0 {
		l.AgentBlock = 5 * time.Minute
	}
	if l.AddrBlock <= 0 {
		l.AddrBlock = 15 * time.Minute
	}
	return &failures{limits: l, clock: clock, start: clock(), log: log, records: make(map[culprit]*record)}
}

// now starts at one hour, so that a zero record is long expired.
func (f *failures) now() int64 { return int64(f.clock().Sub(f.start) + time.Hour) }

// network returns the unit an address is counted by: IPv6 hosts can use any of the 2^64
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

// blocked returns E3810 while the culprit is blocked.
func (f *failures) blocked(c culprit) error {
	d := f.blockedFor(c)
	if d <= 0 {
		return nil
	}
	who, what := "agent", "authentications of this agent failed; without its valid key every request for it"
	switch {
	case c.subject == "":
		who, what = "address", "authentications from this address failed; without a valid key or token every request"
	case c.addr == "":
		what = "calls of this agent were denied; each further one that it may not make"
	}
	return toolkeep.NewError(toolkeep.AuthFailuresLimited, "too many %s is refused for another %s", what, d.Round(time.Second)).
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

// note counts one failure of c and blocks it at the limit. It reports whether the block
// starts now.
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
		return false // refused attempts do not extend the block
	}
	if r.add(now) < limit {
		return false
	}
	*r = record{blocked: now + int64(block), last: r.last}
	return true
}

// mine returns the node's share of a limit that all nodes keep together.
func (f *failures) mine(limit int) int {
	if f.share != nil {
		limit, _ = f.share(limit)
	}
	return limit
}

// addrFloor is the least share of PerAddr: many callers can have one address, and with less some
// mistakes of one would block all of them.
const addrFloor = 10

// perAddr returns the node's share of PerAddr; at least addrFloor, or all of it where that is less.
func (f *failures) perAddr() int {
	return max(f.mine(f.limits.PerAddr), min(addrFloor, f.limits.PerAddr))
}

// noteGlobal counts all failures; above the limit it logs once a minute.
func (f *failures) noteGlobal() {
	if f.limits.Global < 0 {
		return
	}
	f.mu.Lock()
	now := f.now()
	alarm := f.all.blocked <= now && f.all.add(now) >= f.mine(f.limits.Global)
	if alarm {
		f.all = record{blocked: now + int64(time.Minute), last: f.all.last}
	}
	f.mu.Unlock()
	if alarm {
		f.log.Error("authentication failures are over the alarm limit: the server may be under attack",
			"limit_per_minute", f.limits.Global)
	}
}

// add counts one failure and returns the number in the window.
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

// over reports whether the record holds nothing current.
func (r *record) over(now int64) bool {
	return r.blocked <= now && now/int64(cellSpan)-r.last >= cellCount
}

// makeRoom bounds the map: it first drops expired records, then, of a small sample, the
// record whose block ends first.
func (f *failures) makeRoom(now int64) {
	if len(f.records) < f.limits.tracked {
		return
	}
	var victim culprit
	var weakest *record
	looked := 0
	for c, r := range f.records { // map order is random
		if r.over(now) {
			delete(f.records, c)
		} else if weakest == nil || r.blocked < weakest.blocked {
			victim, weakest = c, r
		}
		if looked++; looked >= failureSample && (len(f.records) < f.limits.tracked || weakest != nil) {
			break
		}
	}
	if len(f.records) >= f.limits.tracked {
		delete(f.records, victim)
	}
}
