package usage

import (
	"cmp"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/discover"
)

// Limits per tenant, except the first.
const (
	maxTenants    = 1000
	maxTools      = 20_000
	maxUsers      = 10_000
	maxSessions   = 10_000
	maxCalls      = 50 // of a session
	maxFavourites = 50 // tools of a user
	maxErrors     = 16 // codes of a tool
	maxStrategies = 8
)

const (
	maxEarly     = 200  // searches that feedback has come for and that have not come themselves
	maxForgotten = 1000 // users
)

const (
	sessionLife = 24 * time.Hour   // after the last call
	looseLife   = 10 * time.Minute // how long a search outside of a session waits for a call
	looseCalls  = 8                // calls outside a session that a search of the user may still be about
	// clocksDiffer is how far the clocks of two nodes may be apart: with more, one is not ready.
	clocksDiffer = 10 * time.Second
	day          = 24 * time.Hour
	fade         = 0.9772 // a day; half in 30 days
)

// state is what the entries up to a position say.
type state struct {
	keep      int32 // days
	noHistory bool
	tenants   lru[string, *tenant]
	position  toolkeep.JournalPosition
	asOf      time.Time // all entries up to then are in it
	unsaved   bool      // entries were folded since it was a checkpoint
}

// The state of a tenant is plain data: exported fields are stored in a checkpoint, the others are computed from
// them. Tools are referred to by number; the number of a dropped tool is unused. Everything is
// guarded by Usage.mu.

// tenant is the state of one tenant.
type tenant struct {
	Name       string
	Day        int32   // the day the counts are faded to
	Since      int64   // milliseconds: of the oldest folded entry
	LastTool   int32   // the newest tool number
	Talks      float64 // sessions with a call, faded by age
	Tools      lru[string, *tool]
	Users      lru[string, *user]
	Sessions   lru[sessionKey, *session]
	Waiting    lru[string, *retrieval] // that may still lead to a choice
	Chosen     lru[string, *retrieval] // with a choice, after the waiting time
	Questions  lru[learnedQueryKey, *learnedQuery]
	Early      lru[string, *earlyFeedback]
	Forgotten  lru[string, *forgotten]
	Strategies map[string]days

	byNo      map[int32]*tool
	calls, ok uint64 // of all tools, in the days that are kept
	examples  []discover.Example
	dirty     bool // Questions changed since examples was built
}

func (t *tenant) key() string { return t.Name }

// tool is the state of a tool of a tenant.
type tool struct {
	ID       string
	No       int32
	Total    uint64
	OK       uint64
	Timed    uint64
	Micros   uint64
	LastUsed int64 // microseconds
	Days     days
	Errors   []errorCount
	Sessions float64 // with a call, faded by age
	Pairs    []pair

	calls, ok uint32 // of Days
	queries   []*learnedQuery
}

func (x *tool) key() string { return x.ID }

// errorCount counts an error a tool returned.
type errorCount struct {
	Code  toolkeep.Code
	Count uint32
	Last  int64
	After [4]uint32 // what worked next, by remedy
}

// Remedies: what worked after an error.
const (
	again   = iota // the same call
	other          // the tool with other arguments
	instead        // another tool
)

// user is the state of a user.
type user struct {
	ID         string
	Favourites []favourite // highest weight first
	Days       days
	Asked      asked  // outside of a session
	Calls      []call // outside of a session, newest first
}

func (us *user) key() string { return us.ID }

type favourite struct {
	Tool   int32
	Weight float64 // calls, faded by age
}

type sessionKey struct{ user, id string }

// session is one conversation of a user.
type session struct {
	User, ID string
	Last     int64  // microseconds: of the last call or search
	Calls    []call // newest first
	Tools    []met  // that were called, in order of first call
	Asked    asked
	Failed   *failure // the latest call, if it failed
}

func (s *session) key() sessionKey { return sessionKey{s.User, s.ID} }

// call is one call, with the data used to attribute it to a search.
type call struct {
	Tool    int32
	At      int64 // microseconds: when it was received
	OK      bool
	Counted bool   // it succeeded or failed, and was not refused or cancelled
	By      string // the search it is attributed to, "" if none
	First   bool   // it is the first call of the tool for By
	Timed   bool
	Micros  uint64
}

// met is a tool of a session, with the time of its first call.
type met struct {
	Tool       int32
	Start, End int64
}

// earlyFeedback is feedback on a search whose event has not been read yet.
type earlyFeedback struct {
	EventID string
	At      int64 // microseconds
	Said    []feedbackData
}

func (f *earlyFeedback) key() string { return f.EventID }

// forgotten is a user that must be forgotten, with the event that says so.
type forgotten struct {
	Mark   string // see userMark
	Writer int64
	At     int64 // microseconds
}

func (f *forgotten) key() string { return f.Mark }

type failure struct {
	Tool int32
	Code toolkeep.Code
	Args uint64
	At   int64
}

// restored computes what a checkpoint does not contain.
func (t *tenant) restored() *tenant {
	t.byNo = map[int32]*tool{}
	for x := range t.Tools.all() {
		t.byNo[x.No] = x
	}
	for q := range t.Questions.all() {
		if x := t.byNo[q.Tool]; x != nil {
			x.queries = append(x.queries, q)
		}
	}
	if t.Strategies == nil {
		t.Strategies = map[string]days{}
	}
	t.dirty = true
	t.sumDays()
	return t
}

// sumDays sums the calls of the stored days.
func (t *tenant) sumDays() {
	t.calls, t.ok = 0, 0
	for x := range t.Tools.all() {
		x.calls, x.ok = 0, 0
		for i := range x.Days {
			x.calls += x.Days[i].Calls
			x.ok += x.Days[i].Worked
		}
		t.calls += uint64(x.calls)
		t.ok += uint64(x.ok)
	}
}

// tenant finds or creates a tenant, aged to the day.
func (s *state) tenant(name string, at time.Time) *tenant {
	t, ok := s.tenants.get(name)
	if !ok {
		t = (&tenant{Name: name, Day: dayOf(at), Since: at.UnixMilli()}).restored()
	}
	s.tenants.put(t)
	for range s.tenants.evict(maxTenants) {
	}
	t.Since = min(t.Since, at.UnixMilli())
	t.roll(dayOf(at), s.keep)
	return t
}

// tool finds or creates a tool.
func (t *tenant) tool(id string) *tool {
	x, ok := t.Tools.get(id)
	if !ok {
		t.LastTool++
		x = &tool{ID: strings.Clone(id), No: t.LastTool}
		t.byNo[x.No] = x
	}
	t.Tools.put(x)
	for old := range t.Tools.evict(maxTools) {
		t.dropTool(old)
	}
	return x
}

func (t *tenant) dropTool(x *tool) {
	for len(x.queries) > 0 {
		t.dropQuery(x.queries[0]) // which removes it from x.queries
	}
	t.Tools.drop(x.ID)
	delete(t.byNo, x.No)
	t.calls -= uint64(x.calls)
	t.ok -= uint64(x.ok)
}

// user finds or creates a user.
func (t *tenant) user(id string) *user {
	us, ok := t.Users.get(id)
	if !ok {
		us = &user{ID: strings.Clone(id)}
	}
	t.Users.put(us)
	for range t.Users.evict(maxUsers) {
	}
	return us
}

// session finds a conversation, or starts one if there is none or it has ended.
func (t *tenant) session(user, id string, at int64) *session {
	s, ok := t.Sessions.get(sessionKey{user, id})
	if !ok || at-s.Last > sessionLife.Microseconds() {
		s = &session{User: strings.Clone(user), ID: strings.Clone(id)}
	}
	s.Last = max(s.Last, at)
	t.Sessions.put(s)
	for range t.Sessions.evict(maxSessions) {
	}
	return s
}

// roll ages the state to a day: old data is dropped and counts fade. It depends only on the days,
// not on the number of changes between.
func (t *tenant) roll(to, keep int32) {
	if to <= t.Day {
		return
	}
	by := math.Pow(fade, float64(to-t.Day))
	t.Day = to
	first := to - keep + 1
	oldest, ended := dayStart(first).UnixMicro(), dayStart(to).Add(-sessionLife).UnixMicro()
	for s := range t.Sessions.all() {
		if s.Last < ended {
			t.Sessions.drop(s.key())
		}
	}
	t.Talks *= by
	for x := range t.Tools.all() {
		x.Days.drop(first)
		x.Sessions *= by
		t.fadePairs(x, float32(by))
		if len(x.Days) == 0 && x.LastUsed < oldest {
			t.dropTool(x)
		}
	}
	for us := range t.Users.all() {
		us.Days.drop(first)
		for i := range us.Favourites {
			us.Favourites[i].Weight *= by
		}
		us.Favourites = slices.DeleteFunc(us.Favourites, func(f favourite) bool { return f.Weight < 0.1 || t.byNo[f.Tool] == nil })
		if len(us.Days) == 0 {
			t.Users.drop(us.ID)
		}
	}
	for name, d := range t.Strategies {
		if d.drop(first); len(d) == 0 {
			delete(t.Strategies, name)
			continue
		}
		t.Strategies[name] = d
	}
	for q := range t.Questions.all() { // least recently asked first
		if q.Last >= oldest {
			break
		}
		t.dropQuery(q)
	}
	for _, l := range t.retrievals() {
		for r := range l.all() {
			if r.At < oldest {
				l.drop(r.ID)
			}
		}
	}
	for f := range t.Early.all() {
		if f.At < ended {
			t.Early.drop(f.EventID)
		}
	}
	for f := range t.Forgotten.all() {
		if f.At < oldest {
			t.Forgotten.drop(f.Mark)
		}
	}
	t.sumDays()
}

// weight is what an entry of a day counts in what fades. Of an entry that comes after its tenant was aged
// to a later day, as at a checkpoint, as much is left as of those that came in time.
func (t *tenant) weight(day int32) float64 {
	return math.Pow(fade, float64(max(0, t.Day-day)))
}

// priorCalls is the number of average calls credited to each tool, so that one failure does not
// make a tool a bad one.
const priorCalls = 5

// success returns a tool's success rate.
func (t *tenant) success(x *tool) float64 {
	mean := 1.0
	if t.calls > 0 {
		mean = float64(t.ok) / float64(t.calls)
	}
	return (float64(x.ok) + priorCalls*mean) / (float64(x.calls) + priorCalls)
}

// favour counts a call of a tool for a user, with the weight of its day.
func (us *user) favour(tool int32, weight float64) {
	l := us.Favourites
	i := slices.IndexFunc(l, func(f favourite) bool { return f.Tool == tool })
	if i < 0 {
		if len(l) == maxFavourites && weight < min(1, l[maxFavourites-1].Weight) {
			return // an entry that comes late: what counts as of today always comes in
		}
		l = append(l[:min(len(l), maxFavourites-1)], favourite{Tool: tool}) // the one with the lowest weight goes
		i = len(l) - 1
	}
	l[i].Weight += weight
	for ; i > 0 && l[i].Weight > l[i-1].Weight; i-- {
		l[i], l[i-1] = l[i-1], l[i]
	}
	us.Favourites = l
}

const (
	leastFavourite = 2 // weight from which a tool is preferred
	maxPreferred   = 20
)

// preferred returns a user's preferred tools, with weights between 0 and 1.
func (t *tenant) preferred(us *user) map[string]float64 {
	var out map[string]float64
	for i, f := range us.Favourites {
		if i == maxPreferred || f.Weight < leastFavourite {
			break
		}
		if x := t.byNo[f.Tool]; x != nil {
			if out == nil {
				out = map[string]float64{}
			}
			out[x.ID] = math.Log1p(f.Weight) / math.Log1p(us.Favourites[0].Weight)
		}
	}
	return out
}

// recent returns the calls of a session, newest first.
func (t *tenant) recent(s *session) []discover.Recent {
	out := make([]discover.Recent, 0, len(s.Calls))
	for _, c := range s.Calls {
		if x := t.byNo[c.Tool]; x != nil {
			out = append(out, discover.Recent{Tool: x.ID, At: time.UnixMicro(c.At), Success: c.OK})
		}
	}
	return out
}

// push adds a call and keeps the newest most calls.
func push(calls []call, c call, most int) []call {
	i := slices.IndexFunc(calls, func(o call) bool { return o.At <= c.At })
	switch {
	case i < 0 && len(calls) == most:
		return calls
	case i < 0:
		return append(calls, c)
	}
	return slices.Insert(calls[:min(len(calls), most-1)], min(i, most-1), c)
}

// failedWith counts an error of a tool.
func (x *tool) failedWith(code toolkeep.Code, at int64) {
	i := slices.IndexFunc(x.Errors, func(e errorCount) bool { return e.Code == code })
	if i < 0 {
		if len(x.Errors) == maxErrors {
			least := slices.MinFunc(x.Errors, func(a, b errorCount) int { return cmp.Or(cmp.Compare(a.Count, b.Count), cmp.Compare(a.Last, b.Last)) })
			x.Errors = slices.DeleteFunc(x.Errors, func(e errorCount) bool { return e.Code == least.Code })
		}
		x.Errors = append(x.Errors, errorCount{Code: code})
		i = len(x.Errors) - 1
	}
	x.Errors[i].Count++
	x.Errors[i].Last = max(x.Errors[i].Last, at)
}
