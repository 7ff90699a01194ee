package mcpserver

import (
	"slices"
	"testing"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/discover/usage"
)

type recorder chan usage.Retrieval

func (c recorder) Retrieved(p *toolkeep.Principal, r usage.Retrieval) string {
	c <- r
	return "retrieval-of-" + p.Subject
}

// TestSearchesAreRecorded: find_tools returns the search id in _meta, for lists and contexts, and
// the record has only tools the caller sees.
func TestSearchesAreRecorded(t *testing.T) {
	s, seen := newSystem(t), make(recorder, 1)
	s.Retrievals = seen
	s.publish(manifest("weather.current"), manifest("demo.echo"))
	s.start()
	for _, c := range []struct{ caller, arguments, strategy, tool string }{
		{"alice", `{"query":"weather or echo"}`, "keyword", "weather.current"},
		{"narrow", `{"query":"weather or echo"}`, "keyword", "demo.echo"},
		{"narrow", `{"query":"weather or echo","phase":"tool_selection"}`, usage.StrategyContext, "demo.echo"},
	} {
		a := s.post("/mcp/search", own("", "find_tools", c.arguments), "Authorization: Bearer "+c.caller, "User-Agent: tester/1")
		if got := a.result(t, "_meta", "toolkeep/retrieval_id"); got != `"retrieval-of-`+c.caller+`"` {
			t.Fatalf("%q in %s", got, a.body)
		}
		r := <-seen
		if r.Strategy != c.strategy || r.Query != "weather or echo" || r.Face != "mcp" || r.Agent != "tester/1" || r.Session.Tenant != "t" || r.Session.Subject != c.caller ||
			!slices.ContainsFunc(r.Tools, func(o usage.Offered) bool { return o.Tool == c.tool }) || c.caller == "narrow" && len(r.Tools) != 1 {
			t.Errorf("%+v: %+v", c, r)
		}
	}
}
