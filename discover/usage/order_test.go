package usage

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/toolkeep/toolkeep"
)

// counts is what must be the same in whatever order the entries of several writers are read, as
// text. The counts of users are left out where some were forgotten: what of a user is counted then
// depends on the order.
func (u *Usage) counts(t testing.TB) string {
	t.Helper()
	var names, out []string
	forgotten := map[string]bool{}
	u.mu.RLock()
	for x := range u.state.tenants.all() {
		names = append(names, x.Name)
		forgotten[x.Name] = x.Forgotten.len() > 0
	}
	u.mu.RUnlock()
	for _, name := range names {
		for _, by := range []string{ByTool, ByStrategy, ByUser} {
			if by == ByUser && forgotten[name] {
				continue
			}
			for _, r := range u.Report(name, begin.Add(-day), begin.Add(300*day), by).Rows {
				line := fmt.Sprintf("%s, %s %s: %d offered", name, by, r.Group, r.Retrievals)
				if by != ByStrategy {
					a, _ := u.Analytics(name, r.Group)
					line += fmt.Sprintf(", %d calls, %.4f well, %.2f ms, %.2f; %d, last %v", r.Calls, r.SuccessRate, r.MeanMS, r.P95MS, a.TotalExecutions, a.LastUsed)
				}
				out = append(out, line+"\n")
			}
		}
	}
	slices.Sort(out)
	return strings.Join(out, "")
}

// known is all that is known, as text. Each node reads the entries of several writers in an order of
// its own: then it is what does not depend on that.
func (u *Usage) known(t testing.TB) string {
	t.Helper()
	u.mu.RLock()
	writers := len(u.state.position)
	u.mu.RUnlock()
	if writers > 1 {
		return u.counts(t)
	}
	return u.dump(t)
}

// choices is what must be the same, too, if no entry is read much later than those around it.
func (u *Usage) choices(t testing.TB, tenant string) string {
	t.Helper()
	var out []string
	for _, by := range []string{ByTool, ByStrategy, ByUser} {
		for _, r := range u.Report(tenant, begin.Add(-day), begin.Add(300*day), by).Rows {
			out = append(out, fmt.Sprintf("%s %s: chosen %d, rated %d %.6f, calls %d %.4f\n", by, r.Group, r.Chosen, r.Rated, r.Relevance, r.Calls, r.SuccessRate))
		}
	}
	u.refresh()
	for _, e := range u.Examples(tenant) {
		out = append(out, fmt.Sprintf("%s > %s %d\n", e.Query, e.Tool, e.Count))
	}
	slices.Sort(out)
	return u.counts(t) + strings.Join(out, "")
}

// busy are entries of a day and a half that three writers made, in the order in which they were
// committed. Conversations go over all of them.
func busy(t *testing.T, r *rand.Rand, n int) (out []*toolkeep.Entry) {
	now := begin
	type search struct {
		id, user, session string
		tools             []string
	}
	var searches []search
	tool := func() string { return fmt.Sprint("a.tool", r.IntN(15)) }
	for i := range n {
		now = now.Add(time.Duration(r.IntN(100)) * time.Second)
		user, session := fmt.Sprint("user", r.IntN(120)), fmt.Sprint("s", r.IntN(4))
		if session == "s0" {
			session = ""
		}
		var last search
		if len(searches) > 0 {
			last = searches[max(0, len(searches)-1-r.IntN(4))]
		}
		var c toolkeep.Change
		switch k := r.IntN(10); {
		case k < 4 || last.id == "":
			s := search{fmt.Sprint("r", i), user, session, []string{tool(), tool(), tool()}}
			slices.Sort(s.tools)
			s.tools = slices.Compact(s.tools)
			searches = append(searches, s)
			e := searchEvent(t, now, "t", s.id, s.user, s.session, fmt.Sprint("question ", r.IntN(maxToolQueries)), s.tools...)
			if r.IntN(2) == 0 {
				e.Event.Data = []byte(strings.Replace(string(e.Event.Data), "hybrid", "context", 1))
			}
			c = e
		case k < 5: // each tool of a search at most once: of several ratings the last that is read counts
			rel := float64(r.IntN(100)) / 100
			e, err := eventOf(EventFeedback, "t", "", now, feedbackData{EventID: last.id, UserID: last.user, Tool: fmt.Sprint("b.rated", i), Relevance: &rel})
			if err != nil {
				t.Fatal(err)
			}
			c = toolkeep.AppendEvent{Event: e}
		default:
			v := callOf(now, "t", user, session, tool(), arguments(byte(r.IntN(3))))
			if k < 9 {
				v.Subject, v.Session, v.ToolID = last.user, last.session, last.tools[r.IntN(len(last.tools))]
			}
			v.CreatedAt = v.CreatedAt.Add(time.Duration(r.IntN(1000)) * time.Microsecond)
			if v.ToolUS = r.Int64N(1_000_000); r.IntN(5) == 0 {
				failing(toolkeep.Codes()[r.IntN(40)].Code)(v)
			}
			c = toolkeep.RecordCall{Invocation: v}
		}
		e := entryOf(t, int64(i+1), now, c)
		e.Writer = int64(r.IntN(3))
		out = append(out, e)
	}
	return out
}

// read is the order in which a leader that is writer 0 reads entries, some at a time: its own first,
// then those of the others, one writer after the other.
func read(r *rand.Rand, entries []*toolkeep.Entry) (out []*toolkeep.Entry) {
	for len(entries) > 0 {
		n := min(len(entries), 1+r.IntN(10))
		for _, writer := range append([]int{0}, r.Perm(3)...) {
			for _, e := range entries[:n] {
				if e.Writer == int64(writer) && !slices.Contains(out[max(0, len(out)-n):], e) {
					out = append(out, e)
				}
			}
		}
		entries = entries[n:]
	}
	return out
}
