package toolkeeptest_test

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/node"
	"github.com/toolkeep/toolkeep/toolkeeptest"
)

// TestActorsAreRecorded: who acts for whom stands in the decision, the record and the events of a call, also of one that
// waits and runs after a restart, and in its explanation.
func TestActorsAreRecorded(t *testing.T) {
	t.Parallel()
	s := newIssuer(t)
	g := newGate()
	dir := filepath.Join(t.TempDir(), "data")
	k := toolkeeptest.Open(t, dir, toolkeeptest.Option{Settings: map[string]string{"oauth.issuer": s.URL, "oauth.scopes": "tools:call=agent", "calls.workers": "1", "calls.poll": "5ms"},
		Options: node.Options{Executors: []toolkeep.Executor{g}}})
	t.Cleanup(g.openAll)
	k.Publish(gated("gate.read", "1.0.0", reads))
	boss := as(t, k, k.AdminKey)
	bot := as(t, k, s.token(k, "tools:call", map[string]any{"sub": "ann", "act": map[string]any{"sub": "bot", "act": map[string]any{"sub": "planner"}}}))
	const chain = `"caller_chain":["ann","planner"]`
	if body := bot.do("POST", "/api/v1/tools/invoke", `{"tool_id":"std.echo","parameters":{},"dry_run":true}`).want(t, 200).body; !strings.Contains(body, chain) || !strings.Contains(body, `"caller":"bot"`) {
		t.Errorf("explained: %s", body)
	}
	id := bot.call("std.echo", `{"a":1}`).success(t).id(t)
	later := bot.call("gate.read", named("later"), async).want(t, 202).id(t)
	g.letGo("later")
	refused := bot.call("std.unknown", `{}`)
	waitUntil(t, "the waiting call ends", func() bool {
		return strings.Contains(boss.do("GET", "/api/v1/invocations/"+later, "").body, `"succeeded"`)
	})
	bot.do("GET", "/api/v1/audit/verify", "").want(t, 403)
	waitUntil(t, "the refusal is recorded", func() bool {
		return strings.Contains(boss.do("GET", "/api/v1/audit/events?type=ai.agent.auth.failed", "").body, chain)
	})
	list := boss.do("GET", "/api/v1/invocations?agent_id=bot", "").want(t, 200).body
	if n := strings.Count(list, chain); n < 3 || strings.Count(list, `"user_id":"ann"`) != n {
		t.Errorf("the records: %s", list)
	}
	for _, id := range []string{id, later, refused.id(t)} {
		if events := boss.do("GET", "/api/v1/audit/events?id="+id, "").want(t, 200).body; !strings.Contains(events, chain) || !strings.Contains(events, `"agent_did":"bot"`) {
			t.Errorf("%s: %s", id, events)
		}
	}
}
