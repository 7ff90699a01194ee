package usage

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/discover"
)

func talk(user, id string) discover.Session {
	return discover.Session{Tenant: "t", Subject: user, ID: id}
}

func recent(h discover.History) (out []string) {
	for _, r := range h.Recent {
		out = append(out, r.Tool)
	}
	return out
}

func TestConversation(t *testing.T) {
	f := newFolder(t)
	f.used("ann", "s", "a.one")
	f.after(time.Second).used("ann", "s", "a.two", failing(toolkeep.UpstreamServerError))
	f.used("ann", "s", "a.two", func(v *toolkeep.Invocation) { v.Parent = "p" }) // a tool's own call
	f.used("ann", "s", "gone.tool", func(v *toolkeep.Invocation) { v.State, v.Version = toolkeep.CallRefused, "" })
	f.used("ben", "s", "a.three")
	f.used("ann", "", "a.four")
	h := f.History(talk("ann", "s"))
	if got := recent(h); !slices.Equal(got, []string{"a.two", "a.one"}) {
		t.Errorf("recent %v", got)
	}
	if h.Recent[0].Success || !h.Recent[1].Success || !h.Recent[1].At.Equal(begin.Add(-20*time.Millisecond)) {
		t.Errorf("%+v", h.Recent)
	}
	// Conversation ids are per user, even if several users have the same.
	if got := recent(f.History(talk("ben", "s"))); !slices.Equal(got, []string{"a.three"}) {
		t.Errorf("ben: %v", got)
	}
	for _, s := range []discover.Session{talk("ann", ""), talk("ann", "x"), {Tenant: "u", Subject: "ann", ID: "s"}, {}} {
		if got := f.History(s).Recent; len(got) != 0 {
			t.Errorf("%+v has %v", s, got)
		}
	}
	if f.success("gone.tool") >= 0 {
		t.Error("a tool that does not exist is known")
	}
	if f.after(25 * time.Hour); len(f.History(talk("ann", "s")).Recent) != 0 {
		t.Error("a conversation outlives its day")
	}
	f.used("ann", "s", "a.five")
	if got := recent(f.History(talk("ann", "s"))); !slices.Equal(got, []string{"a.five"}) {
		t.Errorf("begun anew: %v", got)
	}
	for range 70 {
		f.used("ann", "s", "a.five")
	}
	if n := len(f.History(talk("ann", "s")).Recent); n != maxCalls {
		t.Errorf("%d calls are kept", n)
	}
}

func TestLongIDs(t *testing.T) {
	f := newFolder(t)
	user, id := strings.Repeat("u", 4000), strings.Repeat("s", 4000)
	f.used(short(user), id, "a.one")
	if got := recent(f.History(talk(user, id))); len(got) != 1 {
		t.Errorf("%v", got)
	}
	if got := recent(f.History(talk(user, id+"x"))); len(got) != 0 {
		t.Errorf("%v", got)
	}
}

func TestSuccess(t *testing.T) {
	f := newFolder(t)
	for range 95 {
		f.used("ann", "", "good.tool")
	}
	for range 5 {
		f.used("ann", "", "bad.tool", failing(toolkeep.UpstreamServerError))
	}
	f.used("ann", "", "good.tool", func(v *toolkeep.Invocation) { v.Cached, v.ToolUS = true, 0 })
	f.used("ann", "", "good.tool", func(v *toolkeep.Invocation) { v.State, v.Code = toolkeep.CallRefused, toolkeep.InvalidParameters })
	f.used("ann", "", "good.tool", func(v *toolkeep.Invocation) { v.State, v.Code = toolkeep.CallCancelled, toolkeep.Cancelled })
	if got := f.success("good.tool"); got < 0.99 {
		t.Errorf("good: %v", got)
	}
	// Five failures of five, smoothed towards the overall mean of 96 of 101.
	if got, want := f.success("bad.tool"), 5*(96.0/101)/10; math.Abs(got-want) > 1e-9 {
		t.Errorf("bad: %v, want %v", got, want)
	}
	if got := f.SuccessRates("u", []string{"good.tool", "no.tool"}); !slices.Equal(got, []float64{-1, -1}) {
		t.Errorf("another tenant's tool is known: %v", got)
	}
	a, ok := f.Analytics("t", "good.tool")
	if !ok || a.TotalExecutions != 96 || a.SuccessRate != 1 || a.AvgExecutionTimeMs != 20 || !a.LastUsed.Equal(begin.Add(-20*time.Millisecond)) || len(a.ErrorPatterns) != 1 || a.ErrorPatterns[0].ErrorType != toolkeep.InvalidParameters {
		t.Errorf("%+v %v", a, ok)
	}
	if _, ok := f.Analytics("t", "no.tool"); ok {
		t.Error("a tool that was not called has analytics")
	}
}

func TestErrorsAndWhatHelped(t *testing.T) {
	f := newFolder(t)
	for i := range 3 {
		s := fmt.Sprint("s", i)
		f.used("ann", s, "a.one", failing(toolkeep.UpstreamServerError), arguments(1))
		f.used("ann", s, "a.one", arguments(2))
		f.used("ann", s, "a.one", failing(toolkeep.Timeout), arguments(1))
		f.used("ann", s, "a.two")
	}
	f.used("ann", "x", "a.one", failing(toolkeep.UpstreamServerError))
	a, _ := f.Analytics("t", "a.one")
	want := []ToolErrorPattern{
		{toolkeep.UpstreamServerError, 4, "the call worked with other arguments (3 of 3 times)"},
		{toolkeep.Timeout, 3, "another tool was used instead (3 of 3 times)"},
	}
	if !slices.Equal(a.ErrorPatterns, want) {
		t.Errorf("%+v", a.ErrorPatterns)
	}
}

func TestPairs(t *testing.T) {
	f := newFolder(t)
	overlap := func(v *toolkeep.Invocation) { v.CreatedAt = v.CreatedAt.Add(-time.Second) }
	for i := range 10 {
		s := fmt.Sprint("s", i)
		f.after(time.Second).used("ann", s, "file.read")
		f.after(time.Second).used("ann", s, "file.write")
		f.after(time.Second).used("ann", s, "mail.draft")
		f.used("ann", s, "mail.format", overlap)
		f.after(time.Minute).used("ben", fmt.Sprint("o", i), "weather.now")
		f.used("ben", fmt.Sprint("o", i), fmt.Sprint("rare.tool", i))
	}
	sequence := map[string]string{}
	for _, p := range f.Pairings("t", "file.write", 10) {
		sequence[p.ToolID] = p.Sequence
		if p.Score <= 0.5 || p.Score > 1 {
			t.Errorf("%+v", p)
		}
	}
	if len(sequence) != 3 || sequence["file.read"] != Before || sequence["mail.draft"] != After {
		t.Errorf("%v", sequence)
	}
	for _, p := range f.Pairings("t", "mail.format", 10) {
		if p.ToolID == "mail.draft" && p.Sequence != Parallel {
			t.Errorf("%+v", p)
		}
	}
	if got := f.Pairings("t", "weather.now", 10); len(got) != 0 {
		t.Errorf("tools met once are a pair: %v", got)
	}
	if got := f.Pairings("t", "file.read", 1); len(got) != 1 || len(f.Pairings("t", "file.read", 0)) != 0 || f.Pairings("u", "file.read", 3) != nil {
		t.Errorf("%v", got)
	}
	// Tools that usually come before are not suggested next.
	f.used("cid", "new", "file.write")
	paired := f.History(talk("cid", "new")).Paired
	if paired["mail.draft"] < 0.5 || paired["file.read"] != 0 {
		t.Errorf("%v", paired)
	}
	// A tool called in every conversation is specific to none.
	if every, own := together(50, 50, 100, 100), together(50, 50, 50, 100); every >= own || own < 0.9 || own > 1 {
		t.Errorf("%v, %v", every, own)
	}
}

func TestPreferred(t *testing.T) {
	f := newFolder(t)
	for i := range 60 {
		f.used("ann", "", fmt.Sprintf("a.tool%02d", i%12))
	}
	for range 5 {
		f.used("ann", "", "a.tool00")
	}
	f.used("ann", "", "a.once")
	p := f.History(talk("ann", "")).Preferred
	if p["a.tool00"] != 1 || p["a.tool03"] <= 0.5 || p["a.tool03"] >= 1 || p["a.once"] != 0 || len(p) != 12 {
		t.Errorf("%v", p)
	}
	if p := f.History(talk("ben", "")).Preferred; p != nil {
		t.Errorf("ben: %v", p)
	}
	f.after(200*day).used("ben", "", "a.tool00")
	if p := f.History(talk("ann", "")).Preferred; p != nil {
		t.Errorf("after 200 days: %v", p)
	}
}

func learned(u *Usage) (out []string) {
	u.refresh()
	for _, l := range u.Examples("t") {
		out = append(out, fmt.Sprintf("%s > %s %d", l.Query, l.Tool, l.Count))
	}
	return out
}

func (f *folder) byStrategy() Row {
	rows := f.Report("t", f.now.AddDate(0, 0, -60), f.now, ByStrategy).Rows
	if len(rows) != 1 {
		f.t.Fatalf("%+v", rows)
	}
	return rows[0]
}

func TestSelection(t *testing.T) {
	f := newFolder(t)
	f.searched("r1", "ann", "s", "Send  a MAIL", "mail.send", "mail.draft", "chat.send")
	f.after(time.Minute).used("ann", "s", "chat.send")
	f.used("ann", "s", "mail.send", failing(toolkeep.UpstreamServerError))
	f.used("ann", "s", "other.tool")     // was not offered
	f.used("ben", "s", "mail.draft")     // another user
	f.used("ann", "other", "mail.draft") // another conversation
	if got := learned(f.Usage); !slices.Equal(got, []string{"send a mail > chat.send 1"}) {
		t.Errorf("%v", got)
	}
	r := f.byStrategy()
	if r.Retrievals != 1 || r.Chosen != 1 || r.SelectionRate != 1 || r.MeanPosition != 3 || r.Calls != 2 || r.SuccessRate != 0.5 {
		t.Errorf("%+v", r)
	}
	// The failed tool succeeds the second time: the query did lead to it.
	f.used("ann", "s", "mail.send")
	if got := learned(f.Usage); !slices.Equal(got, []string{"send a mail > mail.send 1", "send a mail > chat.send 1"}) {
		t.Errorf("%v", got)
	}
	// A refused call chooses nothing. A tool the newest search did not offer is attributed to the
	// search before.
	f.searched("r2", "ann", "s", "read a file", "file.read")
	f.used("ann", "s", "file.read", func(v *toolkeep.Invocation) { v.State, v.Code = toolkeep.CallRefused, toolkeep.RateLimitExceeded })
	f.used("ann", "s", "mail.draft")
	if got := f.byStrategy(); got.Retrievals != 2 || got.Chosen != 1 {
		t.Errorf("%+v", got)
	}
	if got := learned(f.Usage); !slices.Contains(got, "send a mail > mail.draft 1") {
		t.Errorf("%v", got)
	}
	// A duplicate event changes nothing.
	f.searched("r2", "ann", "s", "read a file", "file.read")
	if got := f.byStrategy(); got.Retrievals != 2 {
		t.Errorf("%+v", got)
	}
	tools := f.Report("t", f.now, f.now, ByTool)
	for _, row := range tools.Rows {
		if row.Group == "chat.send" && (row.Retrievals != 1 || row.Chosen != 1 || row.MeanPosition != 3 || row.Calls != 1) {
			t.Errorf("%+v", row)
		}
	}
}

// TestCallBeforeItsSearch: a search is recorded in the background, possibly after the call.
func TestCallBeforeItsSearch(t *testing.T) {
	for _, session := range []string{"s", ""} {
		f := newFolder(t)
		f.used("ann", session, "a.early")
		f.after(time.Second)
		asked := f.now
		f.after(300*time.Millisecond).used("ann", session, "a.one")
		f.searchedAt(asked, "r", "ann", session, "do one", "a.one", "a.early")
		if got := learned(f.Usage); !slices.Equal(got, []string{"do one > a.one 1"}) {
			t.Errorf("session %q: %v", session, got)
		}
	}
}

// TestSearchRightAfterACall: a search within the same millisecond did not lead to the call.
func TestSearchRightAfterACall(t *testing.T) {
	f := newFolder(t)
	f.searched("r1", "ann", "s", "do one", "a.one")
	f.after(time.Second).used("ann", "s", "a.one")
	f.searchedAt(f.now.Add(-20*time.Millisecond+10*time.Microsecond), "r2", "ann", "s", "anything else", "a.one")
	if got := learned(f.Usage); !slices.Equal(got, []string{"do one > a.one 1"}) {
		t.Errorf("%v", got)
	}
}

// TestOneChoiceOfACall: of the searches before a call, the newest that offered the tool gets it, in
// whatever order they are folded.
func TestOneChoiceOfACall(t *testing.T) {
	for _, session := range []string{"s", ""} {
		for name, order := range map[string][]int{"in order": {0, 1, 2, 9, 3}, "the call first": {9, 0, 1, 2, 3}, "backwards": {9, 3, 2, 1, 0}, "two late": {0, 9, 1, 3, 2}} {
			f := newFolder(t)
			at := f.now
			f.after(5 * time.Second)
			for _, i := range order {
				switch i {
				case 9:
					f.used("ann", session, "a.one")
				case 3: // it did not offer it
					f.searchedAt(at.Add(3*time.Second), "r3", "ann", session, "do four", "a.four")
				default:
					f.searchedAt(at.Add(time.Duration(i)*time.Second), fmt.Sprint("r", i), "ann", session, fmt.Sprint("do one in way ", i), "a.two", "a.one")
				}
			}
			if got := learned(f.Usage); !slices.Equal(got, []string{"do one in way 2 > a.one 1"}) {
				t.Errorf("session %q, %s: %v", session, name, got)
			}
			if r := f.byStrategy(); r.Retrievals != 4 || r.Chosen != 1 || r.MeanPosition != 2 || r.Calls != 1 {
				t.Errorf("session %q, %s: %+v", session, name, r)
			}
		}
	}
}

func TestSelectionOutsideOfSessions(t *testing.T) {
	f := newFolder(t)
	f.searched("r1", "ann", "", "do one", "a.one")
	f.after(9*time.Minute).used("ann", "s", "a.one") // in a conversation that did not ask
	if got := learned(f.Usage); len(got) != 0 {
		t.Errorf("%v", got)
	}
	f.used("ann", "", "a.one")
	f.searched("r2", "ann", "", "do two", "a.two")
	f.after(11*time.Minute).used("ann", "", "a.two")
	if got := learned(f.Usage); !slices.Equal(got, []string{"do one > a.one 1"}) {
		t.Errorf("%v", got)
	}
}

func TestFeedbackFolds(t *testing.T) {
	f := newFolder(t)
	f.searched("r", "ann", "s", "do it", "a.one", "a.two")
	f.after(time.Second).used("ann", "s", "a.one")
	f.said("r", "ben", "a.two", 1)  // not his search
	f.said("r9", "ann", "a.two", 1) // no search
	if got := learned(f.Usage); !slices.Equal(got, []string{"do it > a.one 1"}) {
		t.Fatalf("%v", got)
	}
	for range 3 {
		f.said("r", "ann", "a.one", 0.2) // a mistake
		f.said("r", "ann", "a.three", 0.9)
	}
	if got := learned(f.Usage); !slices.Equal(got, []string{"do it > a.three 1"}) {
		t.Errorf("%v", got)
	}
	r := f.byStrategy()
	if r.Rated != 2 || math.Abs(r.Relevance-0.55) > 1e-9 || r.Chosen != 1 {
		t.Errorf("%+v", r)
	}
	// A tool the search had not offered counts once for it, unless it was a mistake.
	f.said("r", "ann", "a.three", 0.8)
	if got := learned(f.Usage); !slices.Equal(got, []string{"do it > a.three 1"}) {
		t.Errorf("%v", got)
	}
	f.said("r", "ann", "a.three", 0.1)
	if got := learned(f.Usage); len(got) != 0 {
		t.Errorf("%v", got)
	}
	f.said("r", "ann", "a.three", 0.9)
	// A later, better rating counts.
	f.said("r", "ann", "a.one", 0.8)
	if got := learned(f.Usage); !slices.Equal(got, []string{"do it > a.one 1", "do it > a.three 1"}) {
		t.Errorf("%v", got)
	}
}

// TestOneUserCannotOutvote: the same query of one user counts at most three times.
func TestOneUserCannotOutvote(t *testing.T) {
	f := newFolder(t)
	for i := range 50 {
		f.searched(fmt.Sprint("r", i), "ann", "", "do it", "a.one")
		f.after(time.Second).used("ann", "", "a.one")
	}
	f.searched("ben", "ben", "", "do it", "a.one")
	f.after(time.Second).used("ben", "", "a.one")
	if got := learned(f.Usage); !slices.Equal(got, []string{"do it > a.one 4"}) {
		t.Errorf("%v", got)
	}
}

func TestWindows(t *testing.T) {
	f := newFolder(t)
	for range 10 {
		f.used("ann", "", "a.old", failing(toolkeep.UpstreamServerError))
	}
	f.searched("r", "ann", "", "old question", "a.old")
	f.after(time.Second).used("ann", "", "a.old")
	f.after(20*day).used("ann", "", "a.new")
	if got := f.Report("t", begin, f.now, ByTool); got.Total.Calls != 12 || len(got.Rows) != 2 || !got.Since.Equal(begin) {
		t.Errorf("%+v", got)
	}
	if got := f.Report("t", f.now, f.now, ByTool); got.Total.Calls != 1 {
		t.Errorf("the day alone: %+v", got)
	}
	old := f.success("a.old")
	if old > 0.3 || len(learned(f.Usage)) != 1 {
		t.Errorf("%v, %v", old, learned(f.Usage))
	}
	// After 30 days events no longer count, and their queries are gone; the tool itself goes with
	// its last call.
	f.after(11*day).used("ann", "", "a.new")
	if got := f.success("a.old"); got >= 0 {
		t.Errorf("%v", got)
	}
	if got := f.Report("t", begin, f.now, ByTool); got.Total.Calls != 2 || len(learned(f.Usage)) != 0 {
		t.Errorf("%+v", got.Total)
	}
	if got := f.Report("t", begin, f.now, ByUser); len(got.Rows) != 1 || got.Rows[0].Calls != 2 {
		t.Errorf("%+v", got.Rows)
	}
	// A tenant without events ages with the checkpoint.
	if err := f.after(40 * day).Checkpoint(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := f.Report("t", begin, f.now, ByUser); len(got.Rows) != 0 {
		t.Errorf("%+v", got.Rows)
	}
}

func TestTimes(t *testing.T) {
	for us := uint64(0); us < 1<<22; us = us*17/16 + 1 {
		b := binOf(us)
		if top := binTop(b); top < us || float64(top) > float64(us)*1.25+1 {
			t.Fatalf("%d µs is in bin %d, up to %d", us, b, top)
		}
		if b > 0 && binTop(b-1) >= us {
			t.Fatalf("%d µs is in bin %d, and in the one before", us, b)
		}
	}
	if b := binOf(math.MaxUint64); binTop(b) == 0 {
		t.Error(b)
	}
	var a counts
	for i := range 100 {
		a.call(&call{Timed: true, Micros: uint64(i+1) * 1000}, 1)
	}
	if p := a.quantile(0.95); p < 95_000 || p > 119_000 {
		t.Errorf("p95 %d", p)
	}
	if (&counts{}).quantile(0.95) != 0 {
		t.Error("nothing took time")
	}
}

func TestTenantsApart(t *testing.T) {
	f := newFolder(t)
	for i := range 5 {
		s := fmt.Sprint("s", i)
		f.change(searchEvent(t, f.now, "u", "r"+s, "ann", s, "theirs", "a.one"))
		f.after(time.Second).change(toolkeep.RecordCall{Invocation: callOf(f.now, "u", "ann", s, "a.one")})
		f.change(toolkeep.RecordCall{Invocation: callOf(f.now, "u", "ann", s, "a.two")})
	}
	f.used("ann", "s0", "a.three")
	h := f.History(talk("ann", "s0"))
	if len(h.Recent) != 1 || len(h.Paired)+len(h.Preferred) != 0 || len(learned(f.Usage)) != 0 || f.Pairings("t", "a.one", 5) != nil {
		t.Errorf("%+v", h)
	}
	if f.success("a.one") >= 0 {
		t.Error("SuccessRates tells of another tenant")
	}
	if got := f.Report("t", begin, f.now, ByTool); got.Total.Calls != 1 || len(got.Rows) != 1 {
		t.Errorf("%+v", got)
	}
	// Feedback of one tenant cannot reach another tenant's search.
	f.said("rs0", "ann", "a.nine", 1)
	f.refresh()
	if got := f.Examples("u"); len(got) != 1 || got[0].Count != 3 {
		t.Errorf("%+v", got)
	}
}

// TestToolGoesWithItsQuestions: a tool with several queries is dropped after being unused for too
// long.
func TestToolGoesWithItsQuestions(t *testing.T) {
	f := newFolder(t)
	for i := range 5 {
		id := fmt.Sprint("r", i)
		f.searched(id, "ann", id, fmt.Sprint("question ", i), "a.old")
		f.after(time.Second).used("ann", id, "a.old")
	}
	if got := learned(f.Usage); len(got) != 5 {
		t.Fatalf("%v", got)
	}
	f.after(31*day).used("ann", "", "a.new")
	if got := learned(f.Usage); len(got) != 0 {
		t.Errorf("%v", got)
	}
	x, _ := f.state.tenants.get("t")
	if _, ok := x.Tools.get("a.old"); ok || len(x.byNo) != 1 || x.Questions.len() != 0 {
		t.Errorf("the tool is there: %v (%d), and %d of its questions", ok, len(x.byNo), x.Questions.len())
	}
}

func TestBounds(t *testing.T) {
	f := newFolder(t)
	n := maxTools + 500
	for i := range n {
		f.used(fmt.Sprint("user", i), fmt.Sprint("s", i), fmt.Sprint("a.tool", i))
	}
	x, _ := f.state.tenants.get("t")
	if x.Tools.len() != maxTools || len(x.byNo) != maxTools || x.Users.len() != maxUsers || x.Sessions.len() != maxSessions {
		t.Errorf("%d tools (%d), %d users, %d sessions", x.Tools.len(), len(x.byNo), x.Users.len(), x.Sessions.len())
	}
	if f.success("a.tool0") >= 0 {
		t.Error("the oldest tool is still there")
	}
	if f.success(fmt.Sprint("a.tool", n-1)) < 0 {
		t.Error("the newest tool is not")
	}
	// One conversation with many tools, one user with many tools, one tool with many
	// partners, questions and errors.
	for i := range 300 {
		f.used("ann", "long", fmt.Sprint("b.tool", i))
		f.used("ann", fmt.Sprint("p", i), "hub.tool", failing(toolkeep.Codes()[i%100].Code))
		f.used("ann", fmt.Sprint("p", i), fmt.Sprint("b.tool", i))
		f.searched(fmt.Sprint("q", i), "ann", "", fmt.Sprint("question ", i), "hub.tool")
		f.after(time.Second).used("ann", "", "hub.tool")
	}
	hub, _ := x.Tools.get("hub.tool")
	ann, _ := x.Users.get("ann")
	long, _ := x.Sessions.get(sessionKey{"ann", "long"})
	if len(hub.Pairs) > 2*maxPairs || len(hub.queries) != maxToolQueries || len(hub.Errors) != maxErrors || len(ann.Favourites) != maxFavourites ||
		len(ann.Calls) != looseCalls || len(long.Calls) != maxCalls || len(long.Tools) != maxCalls {
		t.Errorf("%d pairs, %d queries, %d errors, %d favourites, %d loose, %d and %d in the session", len(hub.Pairs), len(hub.queries), len(hub.Errors),
			len(ann.Favourites), len(ann.Calls), len(long.Calls), len(long.Tools))
	}
	for i := range maxWaiting + maxChosen + 300 {
		f.searched(fmt.Sprint("w", i), "bob", "", fmt.Sprint("ask ", i), "c.one", "c.two")
		f.after(time.Second).used("bob", "", "c.one")
	}
	if w, c := x.Waiting.len(), x.Chosen.len(); w != maxWaiting || c != maxChosen || len(x.Waiting.m) != w || len(x.Chosen.m) != c {
		t.Errorf("%d wait, %d were chosen from", w, c)
	}
	for i := range 20 {
		f.change(func() toolkeep.Change {
			e := searchEvent(t, f.now, "t", fmt.Sprint("y", i), "bob", "", "x", "c.one")
			e.Event.Data = []byte(strings.Replace(string(e.Event.Data), "hybrid", fmt.Sprintf("s%c", 'a'+i), 1))
			return e
		}())
	}
	if len(x.Strategies) > maxStrategies+1 {
		t.Errorf("%d strategies", len(x.Strategies))
	}
	for i := range maxTenants + 20 {
		f.change(toolkeep.RecordCall{Invocation: callOf(f.now, fmt.Sprint("tenant", i), "ann", "s", "a.one")})
	}
	if f.state.tenants.len() != maxTenants {
		t.Errorf("%d tenants", f.state.tenants.len())
	}
}

func TestQuestionsAreBounded(t *testing.T) {
	x := (&tenant{}).restored()
	for i := range maxQuestions + 1000 {
		x.learnQuestion(&retrieval{Query: fmt.Sprint("question ", i), User: "ann", At: int64(i)}, x.tool(fmt.Sprint(i%2000)))
	}
	if x.Questions.len() != maxQuestions {
		t.Errorf("%d questions", x.Questions.len())
	}
	n := 0
	for tool := range x.Tools.all() {
		if n += len(tool.queries); len(tool.queries) > maxToolQueries {
			t.Fatalf("%d queries of a tool", len(tool.queries))
		}
	}
	if n != maxQuestions {
		t.Errorf("tools have %d questions", n)
	}
}

func TestForget(t *testing.T) {
	f := newFolder(t)
	for i, user := range []string{"ann", "ben", "ann"} {
		s := fmt.Sprint("s", i)
		f.searched("r"+s, user, s, "shared question", "a.one")
		f.after(time.Second).used(user, s, "a.one")
		f.searched("o"+s, user, s, "question of "+user, "a.one")
		f.after(time.Second).used(user, s, "a.one")
	}
	e, err := eventOf(EventForgotten, "t", "", f.now, forgottenData{UserID: userMark("t", "ann"), By: "admin"})
	if err != nil {
		t.Fatal(err)
	}
	f.change(toolkeep.AppendEvent{Event: e})
	if got := f.dump(t); strings.Contains(got, "ann") {
		t.Errorf("ann is still in %s", got)
	}
	if got := learned(f.Usage); !slices.Equal(got, []string{"shared question > a.one 1", "question of ben > a.one 1"}) {
		t.Errorf("%v", got)
	}
	if h := f.History(talk("ann", "s2")); len(h.Recent)+len(h.Preferred) != 0 {
		t.Errorf("%+v", h)
	}
	if h := f.History(talk("ben", "s1")); len(h.Recent) != 2 {
		t.Errorf("ben: %+v", h)
	}
	if got := f.calls("a.one"); got != 6 {
		t.Errorf("the numbers of tools stay: %d calls", got)
	}
	// Earlier calls that are looked up now are not found.
	f.said("rs0", "ann", "a.two", 1)
	if got := learned(f.Usage); len(got) != 2 {
		t.Errorf("%v", got)
	}
}

// TestLateEntriesAreFaded: what fades does not depend on whether a tenant was rolled ahead, as a checkpoint
// does, before entries of former days or after them.
func TestLateEntriesAreFaded(t *testing.T) {
	l := &life{t: t, r: rand.New(rand.NewPCG(5, 8)), now: begin}
	var entries []*toolkeep.Entry
	for len(entries) < 60 {
		if c, ok := l.next().(toolkeep.RecordCall); ok {
			entries = append(entries, &toolkeep.Entry{Writer: 1, Seq: int64(len(entries) + 1), At: l.now, Call: c.Invocation})
		}
	}
	last := dayOf(l.now) + 3
	faded := func(early bool) (out []string) {
		s := &state{keep: 90, position: toolkeep.JournalPosition{}}
		for _, name := range []string{"t0", "t1"} {
			if early {
				s.tenant(name, dayStart(last))
			}
		}
		for _, e := range entries {
			s.fold(e)
		}
		for x := range s.tenants.all() {
			x.roll(last, s.keep)
			out = append(out, fmt.Sprintf("%s: talks %.6f", x.Name, x.Talks))
			for of := range x.Tools.all() {
				out = append(out, fmt.Sprintf("%s %s: sessions %.6f", x.Name, of.ID, of.Sessions))
				for _, p := range of.Pairs {
					out = append(out, fmt.Sprintf("%s %s with %s: %.4f", x.Name, of.ID, x.byNo[p.Tool].ID, p.total()))
				}
			}
			for us := range x.Users.all() {
				for _, f := range us.Favourites {
					out = append(out, fmt.Sprintf("%s %s likes %s: %.6f", x.Name, us.ID, x.byNo[f.Tool].ID, f.Weight))
				}
			}
		}
		slices.Sort(out)
		return out
	}
	if late, inTime := faded(true), faded(false); !slices.Equal(late, inTime) || len(late) < 50 {
		t.Errorf("rolled ahead:\n%s\nrolled at the end:\n%s", strings.Join(late, "\n"), strings.Join(inTime, "\n"))
	}
}

// TestLateEntriesKeepFavourites: an entry that comes long after its day moves no tool out of a user's
// favourites that weighs more, and one of today comes in.
func TestLateEntriesKeepFavourites(t *testing.T) {
	us := &user{}
	for i := range maxFavourites {
		us.favour(int32(i), 1)
		us.favour(int32(i), 1)
	}
	has := func(tool int32) bool {
		return slices.ContainsFunc(us.Favourites, func(f favourite) bool { return f.Tool == tool })
	}
	us.favour(100, 0.01)
	if has(100) || !has(maxFavourites-1) {
		t.Error("a late entry took the place of a favourite")
	}
	us.favour(101, 1)
	if !has(101) || len(us.Favourites) != maxFavourites {
		t.Error("a call of today found no place")
	}
}
