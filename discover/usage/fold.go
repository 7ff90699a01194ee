package usage

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"regexp"
	"time"

	json "github.com/go-json-experiment/json"

	"github.com/toolkeep/toolkeep"
)

// fold takes in one change. What was folded before is passed over.
func (u *Usage) fold(c toolkeep.Committed) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if c.Seq <= u.seq.Load() {
		return
	}
	switch ch := c.Change.(type) {
	case toolkeep.RecordCall:
		u.ended(ch.Invocation, c.At)
	case toolkeep.MoveCall:
		if firstEnd(&ch) {
			u.ended(ch.Invocation, c.At)
		}
	case toolkeep.AppendEvent:
		u.event(&ch.Event, c.At)
	case toolkeep.PutDocument:
		u.item(&ch.Document, &c)
	case toolkeep.DeleteDocument:
		u.dropped(&ch, c.Seq)
	}
	u.seq.Store(c.Seq)
	if u.moved != nil {
		close(u.moved)
		u.moved = nil
	}
}

// firstEnd tells whether a call ends with the move: an answer that expires later has
// ended before.
func firstEnd(m *toolkeep.MoveCall) bool {
	if m.Invocation == nil || !m.Invocation.State.Ended() {
		return false
	}
	for _, s := range m.From {
		if s.Ended() {
			return false
		}
	}
	return true
}

// ended folds a call that is over (a ToolExecutionEvent of Discovery 7.1). A call of
// something that does not exist, or that the caller may not see, is no use of a tool.
func (u *Usage) ended(v *toolkeep.Invocation, at time.Time) {
	if v == nil || v.Tenant == "" || v.ToolID == "" || v.Version == "" {
		return
	}
	t := u.tenant(v.Tenant, at)
	x, us := t.tool(v.ToolID), t.user(short(v.Subject))
	c := call{tool: x, at: v.CreatedAt.UnixMilli(), ok: v.State == toolkeep.CallSucceeded}
	if v.CreatedAt.IsZero() {
		c.at = at.UnixMilli()
	}
	c.counted = c.ok || v.State == toolkeep.CallFailed || v.State == toolkeep.CallUnknown
	c.timed, c.us = c.counted && !v.Cached && v.ToolUS > 0, uint64(max(0, v.ToolUS))
	if c.counted {
		t.count(x, us, &c)
	}
	if !c.ok && v.Code != "" && (c.counted || v.Code.Info().Class == "VALIDATION_ERROR") {
		x.failedWith(v.Code, c.at)
	}
	x.lastUsed = max(x.lastUsed, c.at)
	if v.Parent == "" { // what a tool calls by itself was nobody's choice
		if c.counted {
			us.favour(x)
		}
		if v.Session != "" {
			t.follows(t.session(us.id, short(v.Session), c.at), v, &c)
		} else {
			us.loose = push(us.loose, c, looseCalls)
			t.called(us.asked, &us.loose[0], looseLife)
		}
	}
	x.show(false)
	t.showSums()
}

// count adds a call that worked or failed to the numbers of its tool and user.
func (t *tenant) count(x *tool, us *user, c *call) {
	x.total++
	x.calls30++
	t.calls30++
	if c.ok {
		x.totalOK++
		x.ok30++
		t.ok30++
	}
	if c.timed {
		x.timed++
		x.micros += c.us
	}
	for _, d := range []*tally{x.days.on(t.day), us.days.on(t.day)} {
		d.Calls++
		if c.ok {
			d.Worked++
		}
		if c.timed {
			d.time(c.us)
		}
	}
	if n := int64(x.calls30); n > t.most.Load() {
		t.most.Store(n)
	}
}

// follows adds a call to its conversation.
func (t *tenant) follows(s *session, v *toolkeep.Invocation, c *call) {
	if len(s.tools) == 0 {
		t.met++
	}
	now := seen{tool: c.tool, start: c.at, end: max(c.at, v.EndedAt.UnixMilli())}
	known := false
	for i := range s.tools {
		if s.tools[i].tool == c.tool {
			known = true
			break
		}
	}
	if !known && len(s.tools) < maxCalls {
		c.tool.met++
		for _, then := range s.tools {
			if !then.tool.gone.Load() {
				t.meet(then, now)
				then.tool.show(true)
			}
		}
		c.tool.show(true)
		s.tools = append(s.tools, now)
	}
	t.remedy(s, v, c)
	s.calls = push(s.calls, *c, maxCalls)
	s.show()
	t.called(s.asked, &s.calls[0], sessionLife)
}

// remedy learns what worked after a call of the conversation had failed.
func (t *tenant) remedy(s *session, v *toolkeep.Invocation, c *call) {
	args := binary.LittleEndian.Uint64(v.ArgsHash[:8])
	if f := s.failed; f != nil && c.ok {
		remedy := instead
		switch {
		case f.tool == c.tool && f.args == args:
			remedy = again
		case f.tool == c.tool:
			remedy = other
		}
		if c.at-f.at <= looseLife.Milliseconds() {
			f.tool.remedied(f.code, remedy)
		}
	}
	s.failed = nil
	if !c.ok && v.Code != "" {
		s.failed = &failed{tool: c.tool, code: v.Code, args: args, at: c.at}
	}
}

func (u *Usage) event(e *toolkeep.Event, at time.Time) {
	if e.Tenant == "" {
		return
	}
	switch e.Type {
	case EventRetrieved:
		var d retrievedData
		if json.Unmarshal(e.Data, &d) == nil && d.UserID != "" {
			u.retrieved(u.tenant(e.Tenant, at), e.ID, &d, e.Time)
		}
	case EventFeedback:
		var d feedbackData
		if json.Unmarshal(e.Data, &d) == nil {
			u.feedback(u.tenant(e.Tenant, at), &d)
		}
	case EventForgotten:
		var d forgottenData
		if json.Unmarshal(e.Data, &d) == nil && d.UserID != "" {
			u.tenant(e.Tenant, at).forget(d.UserID)
		}
	}
}

var strategyName = regexp.MustCompile(`^[a-z_]{1,24}$`)

// retrieved folds a search. The same event twice counts once.
func (u *Usage) retrieved(t *tenant, id string, d *retrievedData, at time.Time) {
	if t.retrieval(id) != nil || at.IsZero() {
		return
	}
	if !strategyName.MatchString(d.Strategy) {
		d.Strategy = "other"
	}
	us := t.user(short(d.UserID))
	r := &retrieval{id: id, at: at.UnixMilli(), user: us.id, session: short(d.SessionID), query: plain(clip(d.Query, maxQuery)), strategy: d.Strategy}
	if u.c.NoHistory {
		r.query = "" // of the time before, or from a node that is set otherwise
	}
	us.days.on(t.day).Offered++
	t.byStrategy(r.strategy, t.day, func(s *tally) { s.Offered++ })
	for i, id := range d.Tools[:min(len(d.Tools), maxKept)] {
		x := t.tool(id)
		x.days.on(t.day).Offered++
		o := offer{tool: x}
		if i < len(d.Parts) {
			for k, v := range d.Parts[i] {
				o.parts[k] = float32(v)
			}
		}
		r.offered = append(r.offered, o)
	}
	t.keepRetrieval(r)
	// The event is written in the background, so that a call of what was found may have
	// come first.
	calls, within := us.loose, looseLife
	if r.session != "" {
		s := t.session(us.id, r.session, r.at)
		s.asked.add(r)
		calls, within = s.calls, sessionLife
	} else {
		us.asked.add(r)
	}
	for i := len(calls) - 1; i >= 0; i-- {
		t.called(asked{r}, &calls[i], within)
	}
}

// feedback folds what was said of a search; only whoever made it may say something.
func (u *Usage) feedback(t *tenant, d *feedbackData) {
	r := t.retrieval(d.EventID)
	if r == nil || r.user != short(d.UserID) {
		return
	}
	said := ratingOf(d.Tool, d.Relevance, d.Success)
	var x *tool
	if d.Tool != "" {
		x = t.tool(d.Tool)
	}
	t.rate(r, said, x, t.day)
}

// forget takes out what is known of a user: conversations, preferences, questions and
// the user's own numbers. What the user's calls added to the numbers of tools stays: it
// names nobody.
func (t *tenant) forget(mark string) {
	is := func(user string) bool { return userMark(t.name, user) == mark }
	for us := range t.byUser.all() {
		if is(us.id) {
			t.byUser.remove(us.at)
			t.users.drop(us.id)
		}
	}
	for s := range t.bySession.all() {
		if is(s.key.subject) {
			t.dropSession(s)
		}
	}
	for _, l := range []*retrievals{&t.waiting, &t.chosen} {
		for r := range l.order.all() {
			if is(r.user) {
				l.remove(r)
			}
		}
	}
	t.led.forget(is)
	t.showLed()
}

// userMark stands for a user in an event that outlives the user's data.
func userMark(tenant, user string) string {
	sum := sha256.Sum256([]byte("usage\x00" + tenant + "\x00" + user))
	return hex.EncodeToString(sum[:])
}
