package usage

import (
	"cmp"
	"encoding/binary"
	"regexp"
	"slices"
	"time"

	json "github.com/go-json-experiment/json"

	"github.com/toolkeep/toolkeep"
)

// fold applies one change of the feed to the state. Changes folded before are skipped.
func (u *Usage) fold(c toolkeep.Committed) {
	u.folding.Lock()
	defer u.folding.Unlock()
	u.mu.Lock()
	defer u.mu.Unlock()
	if c.Seq <= u.seq.Load() {
		return
	}
	switch ch := c.Change.(type) {
	case toolkeep.RecordCall:
		u.ended(ch.Invocation, c.At)
	case toolkeep.MoveCall:
		// When an answer expires, its call ended earlier.
		if ch.Invocation != nil && ch.Invocation.State.Ended() && !slices.ContainsFunc(ch.From, toolkeep.CallState.Ended) {
			u.ended(ch.Invocation, c.At)
		}
	case toolkeep.AppendEvent:
		u.event(&ch.Event, c.At)
	case toolkeep.PutDocument:
		u.document(&ch.Document, &c)
	case toolkeep.DeleteDocument:
		if ch.Kind == KindWeights && ch.ID == weightsID && c.Seq > u.rankedAt {
			delete(u.rankings, ch.Tenant)
		}
	}
	u.seq.Store(c.Seq)
	if u.moved != nil {
		close(u.moved)
		u.moved = nil
	}
}

// ended folds a finished call (a ToolExecutionEvent of Discovery 7.1). Calls of a tool that does
// not exist, or that the caller may not see, do not count.
func (u *Usage) ended(v *toolkeep.Invocation, at time.Time) {
	if v == nil || v.Tenant == "" || v.ToolID == "" || v.Version == "" {
		return
	}
	t := u.tenant(v.Tenant, at)
	x, us := t.tool(v.ToolID), t.user(short(cmp.Or(v.OnBehalf, v.Subject)))
	c := call{Tool: x.No, At: v.CreatedAt.UnixMicro(), OK: v.State == toolkeep.CallSucceeded}
	if v.CreatedAt.IsZero() {
		c.At = at.UnixMicro()
	}
	c.Counted = c.OK || v.State == toolkeep.CallFailed || v.State == toolkeep.CallUnknown
	if c.Timed = c.Counted && !v.Cached && v.ToolUS > 0; c.Timed {
		c.Micros = uint64(v.ToolUS)
	}
	if c.Counted {
		t.count(x, us, &c)
	}
	if !c.OK && v.Code != "" && (c.Counted || v.Code.Info().Class == "VALIDATION_ERROR") {
		x.failedWith(v.Code, c.At)
	}
	x.LastUsed = max(x.LastUsed, c.At)
	if v.Parent != "" { // calls made by a tool were not chosen by a user
		return
	}
	if c.Counted {
		us.favour(x.No)
	}
	if v.Session != "" {
		t.follows(t.session(us.ID, short(v.Session), c.At), v, &c)
	} else {
		us.Calls = push(us.Calls, c, looseCalls)
		t.called(us.Asked, &us.Calls[0], looseLife)
	}
}

// count adds a call that succeeded or failed to the counts of its tool and user.
func (t *tenant) count(x *tool, us *user, c *call) {
	x.Total++
	x.calls++
	t.calls++
	if c.OK {
		x.OK++
		x.ok++
		t.ok++
	}
	if c.Timed {
		x.Timed++
		x.Micros += c.Micros
	}
	x.Days.on(t.Day).call(c)
	us.Days.on(t.Day).call(c)
}

// follows adds a call to its conversation.
func (t *tenant) follows(s *session, v *toolkeep.Invocation, c *call) {
	if len(s.Tools) == 0 {
		t.Talks++
	}
	if len(s.Tools) < maxCalls && !slices.ContainsFunc(s.Tools, func(m met) bool { return m.Tool == c.Tool }) {
		now := met{Tool: c.Tool, Start: c.At, End: max(c.At, v.EndedAt.UnixMicro())}
		t.byNo[c.Tool].Sessions++
		for _, then := range s.Tools {
			t.meet(then, now)
		}
		s.Tools = append(s.Tools, now)
	}
	t.remedy(s, v, c)
	s.Calls = push(s.Calls, *c, maxCalls)
	t.called(s.Asked, &s.Calls[0], sessionLife)
}

// remedy counts what succeeded after the conversation's latest call failed.
func (t *tenant) remedy(s *session, v *toolkeep.Invocation, c *call) {
	args := binary.LittleEndian.Uint64(v.ArgsHash[:8])
	if f := s.Failed; f != nil && c.OK && c.At-f.At <= looseLife.Microseconds() {
		remedy := instead
		switch {
		case f.Tool == c.Tool && f.Args == args:
			remedy = again
		case f.Tool == c.Tool:
			remedy = other
		}
		if x := t.byNo[f.Tool]; x != nil {
			for i := range x.Errors {
				if x.Errors[i].Code == f.Code {
					x.Errors[i].After[remedy]++
				}
			}
		}
	}
	s.Failed = nil
	if !c.OK && v.Code != "" {
		s.Failed = &failure{Tool: c.Tool, Code: v.Code, Args: args, At: c.At}
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
			u.tenant(e.Tenant, at).feedback(&d)
		}
	case EventForgotten:
		var d forgottenData
		if json.Unmarshal(e.Data, &d) == nil && d.UserID != "" {
			u.tenant(e.Tenant, at).ofUser(func(user string) bool { return userMark(e.Tenant, user) == d.UserID }, true)
		}
	}
}

// document folds a stored document.
func (u *Usage) document(it *toolkeep.Document, c *toolkeep.Committed) {
	switch it.Kind {
	case KindState:
		if it.ID != headID {
			return
		}
		if it.Revision > u.head.Revision {
			u.head = *it
		}
		// Tenants without calls age too, on every node at the same change.
		for t := range u.tenants.all() {
			t.roll(dayOf(c.At), u.keep)
		}
	case KindWeights:
		if c.Seq > u.rankedAt {
			u.ranked(it)
		}
	}
}

var strategyName = regexp.MustCompile(`^[a-z_]{1,24}$`)

// retrieved folds a search. Duplicate events count once.
func (u *Usage) retrieved(t *tenant, id string, d *retrievedData, at time.Time) {
	if t.retrieval(id) != nil || at.IsZero() {
		return
	}
	if !strategyName.MatchString(d.Strategy) {
		d.Strategy = "other"
	}
	us := t.user(short(d.UserID))
	r := &retrieval{ID: id, At: at.UnixMicro(), User: us.ID, Session: short(d.SessionID), Query: plain(toolkeep.CutBytes(d.Query, maxQuery)), Strategy: d.Strategy}
	if u.c.NoHistory {
		r.Query = "" // recorded before history was disabled, or by a node with another setting
	}
	us.Days.on(t.Day).Offered++
	t.byStrategy(r, func(s *counts) { s.Offered++ })
	for i, id := range d.Tools[:min(len(d.Tools), maxKept)] {
		x := t.tool(id)
		x.Days.on(t.Day).Offered++
		o := offer{Tool: x.No}
		if i < len(d.Parts) {
			for k, v := range d.Parts[i] {
				o.Parts[k] = float32(v)
			}
		}
		r.Offered = append(r.Offered, o)
	}
	t.keep(r)
	// The event is written in the background, so a call of an offered tool may have come first.
	calls, within := us.Calls, looseLife
	if r.Session != "" {
		s := t.session(us.ID, r.Session, r.At)
		t.ask(&s.Asked, r)
		calls, within = s.Calls, sessionLife
	} else {
		t.ask(&us.Asked, r)
	}
	for i := range slices.Backward(calls) {
		t.called(asked{r.ID}, &calls[i], within)
	}
}

// feedback folds the searching user's feedback.
func (t *tenant) feedback(d *feedbackData) {
	r := t.retrieval(d.EventID)
	if r == nil || r.User != short(d.UserID) {
		return
	}
	said := ratingOf(d.Tool, d.Relevance, d.Success)
	var x *tool
	if d.Tool != "" {
		x = t.tool(d.Tool)
	}
	t.rate(r, said, x)
}
