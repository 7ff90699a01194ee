package usage

import (
	"cmp"
	"encoding/binary"
	"regexp"
	"slices"

	json "github.com/go-json-experiment/json"

	"github.com/toolkeep/toolkeep"
)

// fold adds an entry of the journal. Entries folded before are skipped.
func (s *state) fold(e *toolkeep.Entry) {
	if e.Seq <= s.position[e.Writer] {
		return
	}
	switch {
	case e.Call != nil:
		s.ended(e.Call, e)
	case e.Event != nil:
		s.event(e.Event, e)
	}
	s.position[e.Writer] = e.Seq
	s.unsaved = true
}

// ended folds a finished call (a ToolExecutionEvent of Discovery 7.1). Calls of a tool that does
// not exist, or that the caller may not see, do not count.
func (s *state) ended(v *toolkeep.Invocation, e *toolkeep.Entry) {
	if v.Tenant == "" || v.ToolID == "" || v.Version == "" {
		return
	}
	t := s.tenant(v.Tenant, e.At)
	x, id := t.tool(v.ToolID), short(cmp.Or(v.OnBehalf, v.Subject))
	forgotten := t.forgot(id, e)
	us := &user{}
	if !forgotten {
		us = t.user(id)
	}
	c := call{Tool: x.No, At: v.CreatedAt.UnixMicro(), OK: v.State == toolkeep.CallSucceeded}
	if v.CreatedAt.IsZero() {
		c.At = e.At.UnixMicro()
	}
	c.Counted = c.OK || v.State == toolkeep.CallFailed || v.State == toolkeep.CallUnknown
	if c.Timed = c.Counted && !v.Cached && v.ToolUS > 0; c.Timed {
		c.Micros = uint64(v.ToolUS)
	}
	if c.Counted {
		t.count(x, us, dayOf(e.At), &c)
	}
	if !c.OK && v.Code != "" && (c.Counted || v.Code.Info().Class == "VALIDATION_ERROR") {
		x.failedWith(v.Code, c.At)
	}
	x.LastUsed = max(x.LastUsed, c.At)
	if v.Parent != "" || forgotten { // calls made by a tool were not chosen by a user
		return
	}
	weight := t.weight(dayOf(e.At))
	if c.Counted {
		us.favour(x.No, weight)
	}
	if v.Session != "" {
		t.follows(t.session(us.ID, short(v.Session), c.At), v, &c, weight)
	} else {
		t.called(us.Asked, &c, us.Calls, looseLife)
		us.Calls = push(us.Calls, c, looseCalls)
	}
}

// count adds a call that succeeded or failed to the counts of its tool and user.
func (t *tenant) count(x *tool, us *user, day int32, c *call) {
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
	x.Days.on(day).call(c, 1)
	us.Days.on(day).call(c, 1)
}

// follows adds a call to its conversation, with the weight of its day.
func (t *tenant) follows(s *session, v *toolkeep.Invocation, c *call, weight float64) {
	if len(s.Tools) == 0 {
		t.Talks += weight
	}
	if len(s.Tools) < maxCalls && !slices.ContainsFunc(s.Tools, func(m met) bool { return m.Tool == c.Tool }) {
		now := met{Tool: c.Tool, Start: c.At, End: max(c.At, v.EndedAt.UnixMicro())}
		t.byNo[c.Tool].Sessions += weight
		for _, then := range s.Tools {
			t.meet(then, now, float32(weight))
		}
		s.Tools = append(s.Tools, now)
	}
	t.remedy(s, v, c)
	t.called(s.Asked, c, s.Calls, sessionLife)
	s.Calls = push(s.Calls, *c, maxCalls)
}

// remedy counts what succeeded after the conversation's latest call failed.
func (t *tenant) remedy(s *session, v *toolkeep.Invocation, c *call) {
	args := binary.LittleEndian.Uint64(v.ArgsHash[:8])
	f := s.Failed
	if f != nil && c.At < f.At { // another node made it before
		return
	}
	if f != nil && c.OK && c.At-f.At <= looseLife.Microseconds() {
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

func (s *state) event(v *toolkeep.Event, e *toolkeep.Entry) {
	if v.Tenant == "" {
		return
	}
	switch v.Type {
	case EventRetrieved:
		var d retrievedData
		if json.Unmarshal(v.Data, &d) == nil && d.UserID != "" && !v.Time.IsZero() && !d.Unlearned {
			s.retrieved(&d, e)
		}
	case EventFeedback:
		var d feedbackData
		if json.Unmarshal(v.Data, &d) == nil && d.UserID != "" { // the data of an erased person has none
			s.tenant(v.Tenant, e.At).feedback(&d, e)
		}
	case EventForgotten:
		var d forgottenData
		if json.Unmarshal(v.Data, &d) == nil && d.UserID != "" {
			s.tenant(v.Tenant, e.At).forget(d.UserID, e)
		}
	}
}

var strategyName = regexp.MustCompile(`^[a-z_]{1,24}$`)

// retrieved folds a search. Duplicate events count once.
func (s *state) retrieved(d *retrievedData, e *toolkeep.Entry) {
	t, id := s.tenant(e.Event.Tenant, e.At), e.Event.ID
	if t.retrieval(id) != nil {
		return
	}
	if !strategyName.MatchString(d.Strategy) {
		d.Strategy = "other"
	}
	user := short(d.UserID)
	r := &retrieval{ID: id, At: e.Event.Time.UnixMicro(), User: user, Session: short(d.SessionID), Query: plain(toolkeep.CutBytes(d.Query, maxQuery)), Strategy: d.Strategy}
	if s.noHistory {
		r.Query = "" // recorded before history was disabled, or by a node with another setting
	}
	t.byStrategy(r, func(s *counts) { s.Offered++ })
	for i, id := range d.Tools[:min(len(d.Tools), maxKept)] {
		x := t.tool(id)
		x.Days.on(r.day()).Offered++
		o := offer{Tool: x.No}
		if i < len(d.Parts) {
			for k, v := range d.Parts[i] {
				o.Parts[k] = float32(v)
			}
		}
		r.Offered = append(r.Offered, o)
	}
	if t.forgot(user, e) {
		return
	}
	us := t.user(user)
	us.Days.on(r.day()).Offered++
	r.User = us.ID
	t.keep(r)
	// The event is written in the background, and perhaps by another node than the one that
	// was called, so a call of an offered tool may have come first.
	calls, within := us.Calls, looseLife
	if r.Session != "" {
		s := t.session(us.ID, r.Session, r.At)
		t.ask(&s.Asked, r)
		calls, within = s.Calls, sessionLife
	} else {
		t.ask(&us.Asked, r)
	}
	for i := range slices.Backward(calls) {
		t.called(asked{r.ID}, &calls[i], calls, within)
	}
	if early, ok := t.Early.get(id); ok {
		t.Early.drop(id)
		for i := range early.Said {
			t.rated(r, &early.Said[i])
		}
	}
}

// feedback folds the searching user's feedback. Its search may come later, from another node.
func (t *tenant) feedback(d *feedbackData, e *toolkeep.Entry) {
	if t.forgot(short(d.UserID), e) {
		return
	}
	if r := t.retrieval(d.EventID); r != nil {
		t.rated(r, d)
		return
	}
	early, ok := t.Early.get(d.EventID)
	if !ok {
		early = &earlyFeedback{EventID: d.EventID}
	}
	if len(early.Said) < maxKept {
		early.Said = append(early.Said, *d)
	}
	early.At = e.At.UnixMicro()
	t.Early.put(early)
	for range t.Early.evict(maxEarly) {
	}
}

func (t *tenant) rated(r *retrieval, d *feedbackData) {
	if r.User != short(d.UserID) {
		return
	}
	var x *tool
	if d.Tool != "" {
		x = t.tool(d.Tool)
	}
	t.rate(r, ratingOf(d.Tool, d.Relevance, d.Success), x)
}

// forget removes what is known of a user, and what other writers' entries of before will bring.
func (t *tenant) forget(mark string, e *toolkeep.Entry) {
	t.ofUser(func(user string) bool { return userMark(t.Name, user) == mark }, true)
	t.showExamples() // at once: what is learned from them says that the user was forgotten
	if f, ok := t.Forgotten.get(mark); !ok || f.At < e.At.UnixMicro() {
		t.Forgotten.put(&forgotten{Mark: mark, Writer: e.Writer, At: e.At.UnixMicro()})
	}
	for range t.Forgotten.evict(maxForgotten) {
	}
}

// forgot reports whether an entry of a user was written before the user was forgotten.
func (t *tenant) forgot(user string, e *toolkeep.Entry) bool {
	if t.Forgotten.len() == 0 {
		return false
	}
	f, ok := t.Forgotten.get(userMark(t.Name, user))
	return ok && f.Writer != e.Writer && e.At.UnixMicro() <= f.At+clocksDiffer.Microseconds()
}
