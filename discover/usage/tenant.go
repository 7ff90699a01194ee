package usage

import (
	"cmp"
	"container/list"
	"math"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/discover"
)

// Bounds, for each tenant but the first.
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
	sessionLife = 24 * time.Hour   // after the last call
	looseLife   = 10 * time.Minute // how long a retrieval outside of a session waits for a call
	looseCalls  = 8                // calls outside of a session that a user's retrieval may still be about
	day         = 24 * time.Hour
	fade        = 0.9772 // a day; half in 30 days
)

// tenant is what is known of one tenant. Fields that are not tables or atomic are
// guarded by Usage.mu.
type tenant struct {
	name     string
	at       *list.Element // in Usage.order
	day      int32         // that the state is of
	keep     int32
	since    int64 // milliseconds: of the first change that was folded
	tools    table[string, *tool]
	users    table[string, *user]
	sessions table[sessionKey, *session]
	strategy map[string]days

	byTool    recency[*tool]
	byUser    recency[*user]
	bySession recency[*session]

	met     float64       // sessions with a call, faded by age
	metView atomic.Uint64 // met, as bits
	mean    atomic.Uint64 // share of all calls that worked, as bits
	most    atomic.Int64  // calls of the tool with most, in Keep days
	calls30 uint64        // of all tools, in Keep days
	ok30    uint64
	waiting retrievals // of which something may still be chosen
	chosen  retrievals // of which something was

	led     ledger
	ledView atomic.Pointer[[]discover.Led]
}

// tool is what is known of a tool of a tenant.
type tool struct {
	id       string
	at       *list.Element
	gone     atomic.Bool // driven out; pairs of others may still name it
	total    uint64
	totalOK  uint64
	timed    uint64
	micros   uint64
	lastUsed int64 // milliseconds
	days     days
	calls30  uint32 // of days
	ok30     uint32
	errors   []seenError
	met      float64 // sessions in which it was called, faded by age
	pairs    []pair
	led      []*question
	view     atomic.Pointer[toolView]
}

// toolView is what searches see of a tool; it is never modified.
type toolView struct {
	calls, calls30, ok30 int64
	meanMS               int64
	lastUsed             int64
	met                  float64
	pairs                []pair
}

// seenError is an error that a tool gave.
type seenError struct {
	Code  toolkeep.Code `json:"c"`
	Count uint32        `json:"n"`
	Last  int64         `json:"l"`
	After [4]uint32     `json:"a"` // what came next and worked, by remedy
}

// Remedies: what worked after an error.
const (
	again   = iota // the same call
	other          // the tool with other arguments
	instead        // another tool
)

// user is what is known of a user.
type user struct {
	id         string
	at         *list.Element
	favourites []favourite
	days       days
	asked      asked  // outside of a session
	loose      []call // calls outside of a session, the newest first
	view       atomic.Pointer[[]favourite]
}

type favourite struct {
	tool   *tool
	weight float64 // calls, faded by age
}

type sessionKey struct{ subject, id string }

// session is one conversation of a user.
type session struct {
	key    sessionKey
	at     *list.Element
	begun  int64  // milliseconds
	last   int64  // of the last call or retrieval
	calls  []call // the newest first
	tools  []seen // that were called, the first first
	asked  asked
	failed *failed // the call that failed and was followed by none
	view   atomic.Pointer[sessionView]
}

type sessionView struct {
	recent []discover.Recent
	last   time.Time
}

// call is one call, as selections are found by it.
type call struct {
	tool    *tool
	at      int64 // milliseconds: when it came in
	ok      bool
	counted bool   // it worked or failed, and was not refused or cancelled
	by      string // the retrieval that has it as its choice, "" if none has
	first   bool   // it was the first call of the tool that by has
	timed   bool
	us      uint64
}

// seen is a tool of a session, with the time of its first call.
type seen struct {
	tool       *tool
	start, end int64
}

type failed struct {
	tool *tool
	code toolkeep.Code
	args uint64
	at   int64
}

func newTenant(name string, keep int32) *tenant {
	t := &tenant{name: name, keep: keep, strategy: map[string]days{}}
	t.led.init()
	return t
}

// tenant finds a tenant, of which there is one from now on, in the state of the day.
func (u *Usage) tenant(name string, at time.Time) *tenant {
	t, ok := u.tenants.get(name)
	if !ok {
		t = newTenant(name, u.keep)
		t.day, t.since = dayOf(at), at.UnixMilli()
		u.tenants.put(name, t)
	}
	t.at = u.order.touch(t, t.at)
	for u.order.len() > maxTenants {
		old, _ := u.order.oldest()
		u.order.remove(old.at)
		u.tenants.drop(old.name)
	}
	t.roll(dayOf(at))
	return t
}

// tool finds a tool, of which there is one from now on.
func (t *tenant) tool(id string) *tool {
	x, ok := t.tools.get(id)
	if !ok {
		x = &tool{id: strings.Clone(id)}
		t.tools.put(x.id, x)
	}
	x.at = t.byTool.touch(x, x.at)
	for t.byTool.len() > maxTools {
		old, _ := t.byTool.oldest()
		t.dropTool(old)
	}
	return x
}

func (t *tenant) dropTool(x *tool) {
	x.gone.Store(true)
	t.byTool.remove(x.at)
	t.tools.drop(x.id)
	t.calls30 -= uint64(x.calls30)
	t.ok30 -= uint64(x.ok30)
	for len(x.led) > 0 {
		t.led.remove(x.led[len(x.led)-1]) // which takes it out of x.led
	}
}

func (t *tenant) user(id string) *user {
	us, ok := t.users.get(id)
	if !ok {
		us = &user{id: strings.Clone(id)}
		t.users.put(us.id, us)
	}
	us.at = t.byUser.touch(us, us.at)
	for t.byUser.len() > maxUsers {
		old, _ := t.byUser.oldest()
		t.byUser.remove(old.at)
		t.users.drop(old.id)
	}
	return us
}

// session finds a conversation, or begins it anew if it ended.
func (t *tenant) session(subject, id string, at int64) *session {
	key := sessionKey{subject, id}
	s, ok := t.sessions.get(key)
	if ok && at-s.last > sessionLife.Milliseconds() {
		t.dropSession(s)
		ok = false
	}
	if !ok {
		s = &session{key: sessionKey{strings.Clone(subject), strings.Clone(id)}, begun: at, last: at}
		t.sessions.put(s.key, s)
	}
	s.last = max(s.last, at)
	s.at = t.bySession.touch(s, s.at)
	for t.bySession.len() > maxSessions {
		old, _ := t.bySession.oldest()
		t.dropSession(old)
	}
	return s
}

func (t *tenant) dropSession(s *session) {
	t.bySession.remove(s.at)
	t.sessions.drop(s.key)
}

// roll brings the state to a day: what is too old goes, and counts fade. It depends on
// the days alone, however many changes came between.
func (t *tenant) roll(to int32) {
	if to <= t.day {
		return
	}
	by := math.Pow(fade, float64(to-t.day))
	t.day = to
	first := to - t.keep + 1
	for s := range t.bySession.all() {
		if s.last < dayStart(to).Add(-sessionLife).UnixMilli() {
			t.dropSession(s)
		}
	}
	t.met *= by
	t.calls30, t.ok30 = 0, 0
	for x := range t.byTool.all() {
		x.days.drop(first)
		x.met *= by
		x.fadePairs(by)
		x.window()
		t.calls30 += uint64(x.calls30)
		t.ok30 += uint64(x.ok30)
		if len(x.days) == 0 && x.lastUsed < dayStart(first).UnixMilli() {
			t.dropTool(x)
		}
	}
	for us := range t.byUser.all() {
		us.days.drop(first)
		us.fade(by)
		if len(us.days) == 0 {
			t.byUser.remove(us.at)
			t.users.drop(us.id)
		}
	}
	for name, d := range t.strategy {
		if d.drop(first); len(d) == 0 {
			delete(t.strategy, name)
			continue
		}
		t.strategy[name] = d
	}
	t.led.drop(dayStart(first).UnixMilli())
	t.waiting.drop(dayStart(first).UnixMilli())
	t.chosen.drop(dayStart(first).UnixMilli())
	t.showAll()
}

// window sums the days that are kept.
func (x *tool) window() {
	x.calls30, x.ok30 = 0, 0
	for i := range x.days {
		x.calls30 += x.days[i].Calls
		x.ok30 += x.days[i].Worked
	}
}

// showAll publishes every tool and the sums, after a change of all of them.
func (t *tenant) showAll() {
	most := uint32(0)
	for x := range t.byTool.all() {
		most = max(most, x.calls30)
		x.show(true)
	}
	t.most.Store(int64(most))
	t.showSums()
}

func (t *tenant) showSums() {
	mean := 1.0
	if t.calls30 > 0 {
		mean = float64(t.ok30) / float64(t.calls30)
	}
	t.mean.Store(math.Float64bits(mean))
	t.metView.Store(math.Float64bits(t.met))
}

// show publishes what searches see of a tool; pairs says whether those changed.
func (x *tool) show(pairs bool) {
	v := &toolView{calls: int64(x.total), calls30: int64(x.calls30), ok30: int64(x.ok30), lastUsed: x.lastUsed, met: x.met}
	if x.timed > 0 {
		v.meanMS = int64(x.micros / x.timed / 1000)
	}
	if old := x.view.Load(); old != nil && !pairs {
		v.pairs = old.pairs
	} else {
		v.pairs = slices.Clone(x.pairs)
	}
	x.view.Store(v)
}

// priorCalls is how many calls of an average tool each tool is credited with, so that
// one failure does not make a tool a bad one.
const priorCalls = 5

// fared is what a view says of a tool, beside the others of the tenant.
func (t *tenant) fared(v *toolView) discover.Fared {
	mean := math.Float64frombits(t.mean.Load())
	f := discover.Fared{Calls: int(v.calls), MeanMS: v.meanMS, LastUsed: time.UnixMilli(v.lastUsed),
		Success: (float64(v.ok30) + priorCalls*mean) / (float64(v.calls30) + priorCalls)}
	if most := t.most.Load(); most > 0 && v.calls30 > 0 {
		f.Frequency = min(1, math.Log1p(float64(v.calls30))/math.Log1p(float64(most)))
	}
	return f
}

// favour counts a call of a tool for a user.
func (us *user) favour(x *tool) {
	i := slices.IndexFunc(us.favourites, func(f favourite) bool { return f.tool == x })
	if i < 0 {
		if len(us.favourites) == maxFavourites {
			us.favourites = us.favourites[:maxFavourites-1] // the one that weighs least
		}
		us.favourites = append(us.favourites, favourite{tool: x})
		i = len(us.favourites) - 1
	}
	us.favourites[i].weight++
	for ; i > 0 && us.favourites[i].weight > us.favourites[i-1].weight; i-- {
		us.favourites[i], us.favourites[i-1] = us.favourites[i-1], us.favourites[i]
	}
	us.show()
}

// leastFavourite is the weight from which a tool is preferred.
const leastFavourite = 2

// show publishes the tools that a user prefers, of which there are at most 20.
func (us *user) show() {
	n := 0
	for n < len(us.favourites) && n < 20 && us.favourites[n].weight >= leastFavourite {
		n++
	}
	v := slices.Clone(us.favourites[:n])
	us.view.Store(&v)
}

func (us *user) fade(by float64) {
	for i := range us.favourites {
		us.favourites[i].weight *= by
	}
	us.favourites = slices.DeleteFunc(us.favourites, func(f favourite) bool { return f.weight < 0.1 || f.tool.gone.Load() })
	us.show()
}

func (us *user) preferred() map[string]float64 {
	v := us.view.Load()
	if v == nil || len(*v) == 0 {
		return nil
	}
	out := make(map[string]float64, len(*v))
	most := math.Log1p((*v)[0].weight)
	for _, f := range *v {
		out[f.tool.id] = math.Log1p(f.weight) / most
	}
	return out
}

// show publishes what searches see of a session.
func (s *session) show() {
	v := &sessionView{recent: make([]discover.Recent, len(s.calls)), last: time.UnixMilli(s.last)}
	for i, c := range s.calls {
		v.recent[i] = discover.Recent{Tool: c.tool.id, At: time.UnixMilli(c.at), Success: c.ok}
	}
	s.view.Store(v)
}

// push puts a call before the others, of which so many stay.
func push(calls []call, c call, most int) []call {
	if len(calls) == most {
		calls = calls[:most-1]
	}
	return slices.Insert(calls, 0, c)
}

// failedWith counts an error of a tool.
func (x *tool) failedWith(code toolkeep.Code, at int64) {
	i := slices.IndexFunc(x.errors, func(e seenError) bool { return e.Code == code })
	if i < 0 {
		if len(x.errors) == maxErrors {
			least := slices.MinFunc(x.errors, func(a, b seenError) int { return cmp.Or(cmp.Compare(a.Count, b.Count), cmp.Compare(a.Last, b.Last)) })
			x.errors = slices.DeleteFunc(x.errors, func(e seenError) bool { return e.Code == least.Code })
		}
		x.errors = append(x.errors, seenError{Code: code})
		i = len(x.errors) - 1
	}
	x.errors[i].Count++
	x.errors[i].Last = at
}

// remedied counts what worked after an error.
func (x *tool) remedied(code toolkeep.Code, remedy int) {
	for i := range x.errors {
		if x.errors[i].Code == code {
			x.errors[i].After[remedy]++
		}
	}
}
