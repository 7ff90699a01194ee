package toolkeeptest_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/rpcclient"
	"github.com/toolkeep/toolkeep/toolkeeptest"
)

func setState(t *testing.T, c *client, tool, version, state string) {
	t.Helper()
	c.do("POST", "/api/v1/tools/"+tool+"/versions/"+version+"/state", fmt.Sprintf(`{"state":%q,"reason":"found wanting"}`, state)).want(t, 200)
}

func TestBlockingATool(t *testing.T) {
	t.Parallel()
	k, g, _ := queueing(t, 1)
	c := admin(t, k)
	running := c.call("gate.write", named("running"), async).want(t, 202).id(t)
	g.awaits(t, "running")
	queued := c.call("gate.write", named("queued"), async).want(t, 202).id(t)
	setState(t, c, "gate.write", "1.0.0", "blocked")
	a := c.call("gate.write", named("new")).want(t, 403).refused(t, toolkeep.ToolBlocked)
	if !strings.Contains(a.text(t, "detail"), "found wanting") {
		t.Errorf("the reason is missing: %s", a.body)
	}
	g.openAll()
	c.ended(running).success(t) // continues
	a = c.ended(queued).failed(t, toolkeep.ToolBlocked)
	if a.text(t, "state") != "refused" || a.text(t, "status") != "permission_denied" {
		t.Errorf("%s", a.body)
	}
	if n := g.count("queued"); n != 0 {
		t.Errorf("the queued call ran %d times", n)
	}
	setState(t, c, "gate.write", "1.0.0", "active")
	c.call("gate.write", named("again")).success(t)
}

func TestRevokingAKey(t *testing.T) {
	t.Parallel()
	k, g, _ := queueing(t, 1)
	c := admin(t, k)
	made := c.do("POST", "/api/v1/keys", `{"subject":"ann","roles":["agent"]}`).want(t, 201)
	ann := as(t, k, made.text(t, "secret"))
	held := ann.call("gate.read", named("held"), async).want(t, 202).id(t)
	g.awaits(t, "held")
	queued := ann.call("gate.read", named("queued"), async).want(t, 202).id(t)
	c.do("DELETE", "/api/v1/keys/"+made.text(t, "id"), "")
	ann.call("std.echo", "{}").want(t, 401).refused(t, toolkeep.Unauthenticated)
	ann.do("GET", "/api/v1/tools", "").want(t, 401)
	ann.do("GET", "/api/v1/invocations/"+held+"/events", "").want(t, 401)
	g.openAll()
	c.ended(held).success(t)
	c.ended(queued).failed(t, toolkeep.Unauthenticated)
	if n := g.count("queued"); n != 0 {
		t.Errorf("the call of a revoked key ran %d times", n)
	}
}

// TestRevokingAKeyEndsItsStreams: streams that are open end by themselves, over every
// face, and nothing of the result passes that comes afterwards.
func TestRevokingAKeyEndsItsStreams(t *testing.T) {
	t.Parallel()
	k, g, _ := queueing(t, 1)
	c := admin(t, k)
	made := c.do("POST", "/api/v1/keys", `{"subject":"ann","roles":["agent"]}`).want(t, 201)
	ann := as(t, k, made.text(t, "secret"))
	held := ann.call("gate.read", named("held"), async).want(t, 202).id(t)
	g.awaits(t, "held")
	events := make(chan answer, 1)
	go func() {
		a, err := ann.try(context.Background(), "GET", "/api/v1/invocations/"+held+"/events", "")
		if err != nil {
			t.Error(err)
		}
		events <- a
	}()
	grpc, err := rpcclient.Dial(k.GRPCAddr(), rpcclient.Options{Key: ann.key})
	if err != nil {
		t.Fatal(err)
	}
	defer grpc.Close()
	seen := make(chan toolkeep.Progress, 100)
	watched := make(chan error, 1)
	go func() {
		_, err := grpc.Invoke(context.Background(), nil, &toolkeep.Call{Tool: "gate.read", Arguments: []byte(named("called")), Caller: progressTo(seen)})
		watched <- err
	}()
	g.awaits(t, "called")
	c.do("DELETE", "/api/v1/keys/"+made.text(t, "id"), "")
	// The tools are held until the streams have ended.
	if a := <-events; strings.Contains(a.body, "event: result") || a.status == 200 && !strings.Contains(a.body, string(toolkeep.Unauthenticated)) {
		t.Errorf("events: %s", a)
	}
	if err := <-watched; !toolkeep.IsCode(err, toolkeep.Unauthenticated) {
		t.Errorf("gRPC: %v", err)
	}
	g.openAll()
	c.ended(held).success(t)
}

type progressTo chan toolkeep.Progress

func (p progressTo) Progress(now toolkeep.Progress) {
	select {
	case p <- now:
	default:
	}
}

// cacheIsCurrent waits until the cache of results has seen every change so far. It follows
// the feed on its own, and what was published a moment ago may still clear it.
func cacheIsCurrent(t *testing.T, k *toolkeeptest.Toolkeep) {
	t.Helper()
	k.Publish(toolkeeptest.Manifest("current.echo", "1.0.0", "echo", reads, cached))
	c := admin(t, k)
	hit := func() bool {
		return c.call("current.echo", "{}").success(t).at(t, "execution_metadata", "cache_hit") == true
	}
	waitUntil(t, "results are cached", hit)
	setState(t, c, "current.echo", "1.0.0", "deprecated")
	waitUntil(t, "the cache has seen the change", func() bool { return !hit() })
}

func TestCachedResultsGoWithAChange(t *testing.T) {
	t.Parallel()
	k, g := withGate(t, nil)
	g.openAll()
	k.Publish(gated("gate.cached", "1.0.0", reads, cached))
	c := admin(t, k)
	ask := func() (string, bool) {
		a := c.call("gate.cached", named("x")).success(t)
		return a.text(t, "execution_metadata", "tool_version"), a.at(t, "execution_metadata", "cache_hit") == true
	}
	fresh := func(after string) {
		t.Helper()
		n := g.count("x")
		waitUntil(t, "the cache is empty after "+after, func() bool { ask(); return g.count("x") > n })
		// Two changes in a row clear the cache twice.
		waitUntil(t, "results are cached again after "+after, func() bool { _, hit := ask(); return hit })
	}
	waitUntil(t, "results are cached", func() bool { _, hit := ask(); return hit }) // publishing may still clear it
	setState(t, c, "gate.cached", "1.0.0", "deprecated")
	fresh("deprecating")
	setState(t, c, "gate.cached", "1.0.0", "blocked")
	c.call("gate.cached", named("x")).refused(t, toolkeep.ToolBlocked)
	setState(t, c, "gate.cached", "1.0.0", "active")
	fresh("blocking and unblocking")
	k.Publish(gated("gate.cached", "1.0.1", reads, cached))
	fresh("publishing")
	if v, _ := ask(); v != "1.0.1" {
		t.Errorf("version %s", v)
	}
	c.do("POST", "/cache/invalidate/gate.cached", "").want(t, 200)
	fresh("invalidating")
	c.do("DELETE", "/api/v1/tools/admin/cache/invalidate", `{"scope":"all"}`).want(t, 200)
	fresh("invalidating everything")
}

// TestRunUnderABlockIsNotCached: a result from a run during which the tool was blocked
// is not cached.
func TestRunUnderABlockIsNotCached(t *testing.T) {
	t.Parallel()
	k, g := withGate(t, nil)
	k.Publish(gated("gate.cached", "1.0.0", reads, cached))
	c := admin(t, k)
	warm := func() bool {
		return c.call("gate.cached", named("warm")).success(t).at(t, "execution_metadata", "cache_hit") == true
	}
	g.letGo("warm")
	waitUntil(t, "results are cached", warm) // publishing may still clear it
	got := make(chan answer, 1)
	go func() {
		a, err := c.try(context.Background(), "POST", "/api/v1/tools/invoke", envelope("gate.cached", named("x")))
		if err != nil {
			a.body = err.Error()
		}
		got <- a
	}()
	g.awaits(t, "x")
	setState(t, c, "gate.cached", "1.0.0", "blocked")
	setState(t, c, "gate.cached", "1.0.0", "active")
	// The cache follows the feed on its own: a cleared cache has seen the change.
	waitUntil(t, "the cache has seen the change", func() bool { return !warm() })
	g.openAll()
	if a := <-got; a.status != 200 {
		t.Fatal(a)
	}
	if a := c.call("gate.cached", named("x")).success(t); a.at(t, "execution_metadata", "cache_hit") == true {
		t.Errorf("the result of a run from before the change was kept: %s", a.body)
	}
}

func TestSearchFollowsTheCatalogue(t *testing.T) {
	t.Parallel()
	k := toolkeeptest.New(t)
	c := admin(t, k)
	finds := func() bool {
		return strings.Contains(c.do("GET", "/api/v1/tools/retrieval/search?q=zebrafish", "").body, "zoo.fish")
	}
	if finds() {
		t.Fatal("found before it was there")
	}
	m := strings.Replace(toolkeeptest.Manifest("zoo.fish", "1.0.0", "echo", reads), "A tool of a test.", "Counts every zebrafish in the tank.", 1)
	c.do("POST", "/api/v1/tools/register", `{"manifest":`+m+`}`).want(t, 201)
	waitUntil(t, "search finds the tool", finds)
	setState(t, c, "zoo.fish", "1.0.0", "blocked")
	waitUntil(t, "search passes the blocked tool over", func() bool { return !finds() })
}
