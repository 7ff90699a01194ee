package usage

import (
	"slices"
	"strings"

	"github.com/toolkeep/toolkeep"
)

// savedTenant is a tenant in a checkpoint. Tools are named by their place in Tools;
// what is about a tool that was driven out is left out. Everything stands in the order
// of recency, the oldest first.
type savedTenant struct {
	Name     string           `json:"name"`
	Day      int32            `json:"day"`
	Since    int64            `json:"since"`
	Met      float64          `json:"met"`
	Tools    []savedTool      `json:"tools"`
	Users    []savedUser      `json:"users"`
	Sessions []savedSession   `json:"sessions"`
	Waiting  []savedRetrieval `json:"waiting"`
	Chosen   []savedRetrieval `json:"chosen"`
	Led      []savedQuestion  `json:"led"`
	Strategy map[string]days  `json:"strategy"`
}

type savedTool struct {
	ID       string       `json:"id"`
	Total    uint64       `json:"n,omitzero"`
	OK       uint64       `json:"ok,omitzero"`
	Timed    uint64       `json:"t,omitzero"`
	Micros   uint64       `json:"u,omitzero"`
	LastUsed int64        `json:"l,omitzero"`
	Days     days         `json:"d,omitempty"`
	Errors   []seenError  `json:"e,omitempty"`
	Met      float64      `json:"m,omitzero"`
	Pairs    [][5]float64 `json:"p,omitempty"` // tool, before, after, parallel, seen
}

type savedUser struct {
	ID         string       `json:"id"`
	Favourites [][2]float64 `json:"f,omitempty"` // tool, weight
	Days       days         `json:"d,omitempty"`
	Asked      []string     `json:"q,omitempty"` // ids of retrievals
	Loose      []savedCall  `json:"c,omitempty"`
}

type savedCall struct {
	Tool    int    `json:"x"`
	At      int64  `json:"a"`
	OK      bool   `json:"ok,omitzero"`
	Counted bool   `json:"n,omitzero"`
	By      string `json:"b,omitzero"`
	First   bool   `json:"f,omitzero"`
	Timed   bool   `json:"t,omitzero"`
	Micros  uint64 `json:"u,omitzero"`
}

type savedSession struct {
	User   string       `json:"user"`
	ID     string       `json:"id"`
	Begun  int64        `json:"b"`
	Last   int64        `json:"l"`
	Calls  []savedCall  `json:"c,omitempty"`
	Tools  [][3]int64   `json:"t,omitempty"` // tool, start, end
	Asked  []string     `json:"q,omitempty"` // ids of retrievals
	Failed *savedFailed `json:"f,omitempty"`
}

type savedFailed struct {
	Tool int           `json:"x"`
	Code toolkeep.Code `json:"c"`
	Args uint64        `json:"h"`
	At   int64         `json:"a"`
}

type savedRetrieval struct {
	ID       string       `json:"id"`
	At       int64        `json:"a"`
	User     string       `json:"u"`
	Session  string       `json:"s,omitempty"`
	Query    string       `json:"q,omitempty"`
	Strategy string       `json:"y"`
	Chosen   bool         `json:"c,omitzero"`
	Offered  []savedOffer `json:"o"`
	Rated    []rating     `json:"r,omitempty"`
}

type savedOffer struct {
	Tool  int        `json:"x"`
	Parts [5]float32 `json:"p"`
	Marks string     `json:"m,omitempty"` // c chosen, w worked, l learned, p poor
}

type savedQuestion struct {
	Text  string       `json:"q"`
	Tool  int          `json:"x"`
	Count uint32       `json:"n"`
	Last  int64        `json:"l"`
	By    []savedAsker `json:"b"`
}

type savedAsker struct {
	User string `json:"u"`
	N    uint32 `json:"n"`
}

// save copies what a tenant knows; u.mu is held.
func (t *tenant) save() savedTenant {
	s := savedTenant{Name: t.name, Day: t.day, Since: t.since, Met: t.met, Strategy: map[string]days{}}
	place := make(map[*tool]int, t.byTool.len())
	for x := range t.byTool.all() {
		place[x] = len(place)
	}
	call := func(c call) (savedCall, bool) {
		i, ok := place[c.tool]
		return savedCall{Tool: i, At: c.at, OK: c.ok, Counted: c.counted, By: c.by, First: c.first, Timed: c.timed, Micros: c.us}, ok
	}
	for x := range t.byTool.all() {
		o := savedTool{ID: x.id, Total: x.total, OK: x.totalOK, Timed: x.timed, Micros: x.micros, LastUsed: x.lastUsed, Days: x.days.clone(),
			Errors: append([]seenError(nil), x.errors...), Met: x.met}
		for i := range x.pairs {
			p := &x.pairs[i]
			if k, ok := place[p.tool]; ok {
				o.Pairs = append(o.Pairs, [5]float64{float64(k), float64(p.before), float64(p.after), float64(p.parallel), float64(p.seen)})
			}
		}
		s.Tools = append(s.Tools, o)
	}
	for us := range t.byUser.all() {
		o := savedUser{ID: us.id, Days: us.days.clone(), Asked: us.asked.names()}
		for _, f := range us.favourites {
			if k, ok := place[f.tool]; ok {
				o.Favourites = append(o.Favourites, [2]float64{float64(k), f.weight})
			}
		}
		for _, c := range us.loose {
			if c, ok := call(c); ok {
				o.Loose = append(o.Loose, c)
			}
		}
		s.Users = append(s.Users, o)
	}
	for ses := range t.bySession.all() {
		o := savedSession{User: ses.key.subject, ID: ses.key.id, Begun: ses.begun, Last: ses.last, Asked: ses.asked.names()}
		for _, c := range ses.calls {
			if c, ok := call(c); ok {
				o.Calls = append(o.Calls, c)
			}
		}
		for _, x := range ses.tools {
			if k, ok := place[x.tool]; ok {
				o.Tools = append(o.Tools, [3]int64{int64(k), x.start, x.end})
			}
		}
		if f := ses.failed; f != nil {
			if k, ok := place[f.tool]; ok {
				o.Failed = &savedFailed{Tool: k, Code: f.code, Args: f.args, At: f.at}
			}
		}
		s.Sessions = append(s.Sessions, o)
	}
	s.Waiting, s.Chosen = t.waiting.save(place), t.chosen.save(place)
	for q := range t.led.order.all() {
		o := savedQuestion{Text: q.key.text, Tool: place[q.key.tool], Count: q.count, Last: q.last}
		for _, a := range q.by {
			o.By = append(o.By, savedAsker{a.user, a.n})
		}
		s.Led = append(s.Led, o)
	}
	for name, d := range t.strategy {
		s.Strategy[name] = d.clone()
	}
	return s
}

// name is the id of a retrieval that is still known.
func (t *tenant) asked(ids []string) (list asked) {
	for _, id := range slices.Backward(ids) { // the newest last, as they came
		if r := t.retrieval(id); r != nil {
			list.add(r)
		}
	}
	return list
}

func (l *retrievals) save(place map[*tool]int) (out []savedRetrieval) {
	for r := range l.order.all() {
		o := savedRetrieval{ID: r.id, At: r.at, User: r.user, Session: r.session, Query: r.query, Strategy: r.strategy, Chosen: r.chosen,
			Rated: append([]rating(nil), r.rated...)}
		for _, f := range r.offered {
			k, ok := place[f.tool]
			if !ok {
				k = -1 // its place counts
			}
			o.Offered = append(o.Offered, savedOffer{Tool: k, Parts: f.parts, Marks: f.marks()})
		}
		out = append(out, o)
	}
	return out
}

func (o *offer) marks() string {
	b := make([]byte, 0, 4)
	for _, m := range []struct {
		set  bool
		mark byte
	}{{o.chosen, 'c'}, {o.worked, 'w'}, {o.learned, 'l'}, {o.poor, 'p'}} {
		if m.set {
			b = append(b, m.mark)
		}
	}
	return string(b)
}

// restore makes the tenant that was saved.
func (s *savedTenant) restore(keep int32) *tenant {
	t := newTenant(s.Name, keep)
	t.day, t.since, t.met = s.Day, s.Since, s.Met
	tools := s.restoreTools(t)
	s.restoreRetrievals(&t.waiting, s.Waiting, tools)
	s.restoreRetrievals(&t.chosen, s.Chosen, tools)
	s.restoreUsers(t, tools)
	s.restoreSessions(t, tools)
	s.restoreLed(t, tools)
	for name, d := range s.Strategy {
		t.strategy[strings.Clone(name)] = d
	}
	t.showAll()
	t.showLed()
	return t
}

// restored are the tools of a checkpoint by their places in it.
type restored []*tool

func (l restored) at(i int) *tool {
	if i < 0 || i >= len(l) {
		return driven
	}
	return l[i]
}

func (l restored) calls(saved []savedCall) (out []call) {
	for _, c := range saved {
		out = append(out, call{tool: l.at(c.Tool), at: c.At, ok: c.OK, counted: c.Counted, by: c.By, first: c.First, timed: c.Timed, us: c.Micros})
	}
	return out
}

func (s *savedTenant) restoreTools(t *tenant) restored {
	tools := make(restored, len(s.Tools))
	for i := range s.Tools {
		o := &s.Tools[i]
		x := &tool{id: o.ID, total: o.Total, totalOK: o.OK, timed: o.Timed, micros: o.Micros, lastUsed: o.LastUsed, days: o.Days, errors: o.Errors, met: o.Met}
		x.window()
		t.calls30 += uint64(x.calls30)
		t.ok30 += uint64(x.ok30)
		t.tools.put(x.id, x)
		x.at = t.byTool.touch(x, nil)
		tools[i] = x
	}
	for i := range s.Tools {
		for _, p := range s.Tools[i].Pairs {
			tools[i].pairs = append(tools[i].pairs, pair{tool: tools.at(int(p[0])), before: float32(p[1]), after: float32(p[2]), parallel: float32(p[3]), seen: uint32(p[4])})
		}
	}
	return tools
}

func (s *savedTenant) restoreUsers(t *tenant, tools restored) {
	for i := range s.Users {
		o := &s.Users[i]
		us := &user{id: o.ID, days: o.Days, asked: t.asked(o.Asked), loose: tools.calls(o.Loose)}
		for _, f := range o.Favourites {
			us.favourites = append(us.favourites, favourite{tools.at(int(f[0])), f[1]})
		}
		us.show()
		t.users.put(us.id, us)
		us.at = t.byUser.touch(us, nil)
	}
}

func (s *savedTenant) restoreSessions(t *tenant, tools restored) {
	for i := range s.Sessions {
		o := &s.Sessions[i]
		ses := &session{key: sessionKey{o.User, o.ID}, begun: o.Begun, last: o.Last, calls: tools.calls(o.Calls), asked: t.asked(o.Asked)}
		for _, x := range o.Tools {
			ses.tools = append(ses.tools, seen{tools.at(int(x[0])), x[1], x[2]})
		}
		if f := o.Failed; f != nil {
			ses.failed = &failed{tool: tools.at(f.Tool), code: f.Code, args: f.Args, at: f.At}
		}
		ses.show()
		t.sessions.put(ses.key, ses)
		ses.at = t.bySession.touch(ses, nil)
	}
}

func (s *savedTenant) restoreLed(t *tenant, tools restored) {
	for i := range s.Led {
		o := &s.Led[i]
		x := tools.at(o.Tool)
		if x.gone.Load() {
			continue
		}
		q := &question{key: ledKey{o.Text, x}, count: o.Count, last: o.Last}
		for _, a := range o.By {
			q.by = append(q.by, asker{a.User, a.N})
		}
		t.led.byKey[q.key] = q
		q.at = t.led.order.touch(q, nil)
		x.led = append(x.led, q)
	}
	t.led.dirty = true
}

// driven stands for a tool that is not known any more.
var driven = func() *tool {
	x := &tool{}
	x.gone.Store(true)
	return x
}()

func (s *savedTenant) restoreRetrievals(l *retrievals, saved []savedRetrieval, tools restored) {
	for i := range saved {
		o := &saved[i]
		r := &retrieval{id: o.ID, at: o.At, user: o.User, session: o.Session, query: o.Query, strategy: o.Strategy, chosen: o.Chosen, rated: o.Rated}
		for _, f := range o.Offered {
			r.offered = append(r.offered, offer{tool: tools.at(f.Tool), parts: f.Parts, chosen: strings.Contains(f.Marks, "c"), worked: strings.Contains(f.Marks, "w"),
				learned: strings.Contains(f.Marks, "l"), poor: strings.Contains(f.Marks, "p")})
		}
		l.put(r)
	}
}
