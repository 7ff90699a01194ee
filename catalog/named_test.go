package catalog

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/mcp"
)

// TestExportedNames: the names that exports and the MCP face give select the tools that they were made of, also cut ones, and a hidden tool answers by its name as one that is not there.
func TestExportedNames(t *testing.T) {
	c, _, _ := open(t)
	long, longer := "namespace-of-thirty-two-letters0."+strings.Repeat("n", 63), "namespace-of-thirty-two-letters0."+strings.Repeat("n", 62)+"m"
	ids := []string{"shop.order", "shop.order__x", "shop._order", "shop.a-b", long, longer}
	for _, id := range ids {
		publish(t, c, id, "1.0.0", "2.0.0")
	}
	p := admin("acme")
	for _, id := range ids {
		name := mcp.ToolName(id)
		if v, _, err := c.Resolve(t.Context(), p, name, "^1", nil); err != nil || v.Tool.Ref() != id+"@1.0.0" {
			t.Errorf("%s is %v %v, want %s", name, v.Tool, err, id)
		}
		if list, err := c.Versions(p, name, nil); err != nil || len(list) != 2 || list[0].Tool.ID != id {
			t.Errorf("versions of %s: %v %v", name, list, err)
		}
		if got := ID(c, p, name, nil); got != id {
			t.Errorf("the id of %s is %s", name, got)
		}
		if got := ID(c, p, id, nil); got != id {
			t.Errorf("the id %s became %s", id, got)
		}
	}
	// Nothing but such a name selects a tool, and a message has the id.
	for _, name := range []string{"shop", "shop_order", "shop__", "__order", "shop__orders_000000000000", "shop.order_", "shop__order.x", strings.ToUpper("shop__order"), mcp.NameWithHash("shop.none"), mcp.NameWithHash("shop.order"),
		mcp.NameWithHash(long)[:63] + "x", strings.Repeat("a", 51) + "_0123456789ab"} {
		if v, _, err := c.Resolve(t.Context(), p, name, "", nil); !toolkeep.IsCode(err, toolkeep.ToolNotFound) {
			t.Errorf("%s is %v %v", name, v.Tool, err)
		}
	}
	_, _, err := c.Resolve(t.Context(), p, "shop__order", "9.9.9", nil)
	if e := wantCode(t, err, toolkeep.ToolVersionNotFound); e.Details["tool_id"] != "shop.order" {
		t.Error(e.Details)
	}
	if _, _, err = c.Resolve(t.Context(), p, "shop__ordr", "", nil); wantCode(t, err, toolkeep.ToolNotFound).Details["nearest"] != "shop.order" {
		t.Error(err)
	}
	none := func(*toolkeep.Tool) bool { return false }
	for _, id := range ids {
		_, _, hidden := c.Resolve(t.Context(), p, mcp.ToolName(id), "", none)
		_, _, missing := c.Resolve(t.Context(), p, "a__none", "", none)
		if a, b := wantCode(t, hidden, toolkeep.ToolNotFound).Error(), missing.Error(); strings.ReplaceAll(a, mcp.ToolName(id), "a__none") != b {
			t.Errorf("hidden and missing differ:\n%s\n%s", a, b)
		}
		if got := ID(c, p, mcp.ToolName(id), none); got != mcp.ToolName(id) {
			t.Errorf("a hidden id is told: %s", got)
		}
	}
	// A tool that is named as a cut name is: both are found by the names of an export.
	rival := strings.Replace(mcp.ToolName(long), "__", ".", 1)
	publish(t, c, rival, "1.0.0")
	for name, want := range map[string]string{mcp.ToolName(long): long, mcp.NameWithHash(rival): rival, rival: rival} {
		if v, _, err := c.Resolve(t.Context(), p, name, "", nil); err != nil || v.Tool.ID != want {
			t.Errorf("%s is %v %v, want %s", name, v.Tool, err, want)
		}
	}
	// The name is that of the other one for who does not see the first.
	if v, _, err := c.Resolve(t.Context(), p, mcp.ToolName(long), "", func(t *toolkeep.Tool) bool { return t.ID != long }); err != nil || v.Tool.ID != rival {
		t.Errorf("where the long one is hidden: %v %v", v.Tool, err)
	}
	// A name that looks like another tool's with a hash is its own tool's; and no rival has a hash where it has none to fear.
	publish(t, c, "shop.order_"+mcp.NameWithHash("shop.order")[len("shop__order_"):], "1.0.0")
	if v, _, err := c.Resolve(t.Context(), p, mcp.NameWithHash("shop.order"), "", nil); err != nil || v.Tool.ID == "shop.order" {
		t.Errorf("the plain name of another tool is %v %v", v.Tool, err)
	}
	alone := "shop." + strings.Repeat("n", 58)
	publish(t, c, alone, "1.0.0")
	if v, _, err := c.Resolve(t.Context(), p, mcp.NameWithHash(alone), "", nil); !toolkeep.IsCode(err, toolkeep.ToolNotFound) {
		t.Errorf("a hash that no export gives is %v %v", v.Tool, err)
	}
	// Changes are of the tool that the name stands for.
	if _, err := c.SetState(t.Context(), p, "shop__a-b", "1.0.0", StateChange{State: toolkeep.Deprecated}); err != nil {
		t.Fatal(err)
	}
	if v, _, err := c.Find(p, "shop.a-b", "1.0.0", nil); err != nil || v.Life.State != toolkeep.Deprecated {
		t.Errorf("%v %v", v.Life, err)
	}
	// The tools of another tenant have no name.
	if _, _, err := c.Resolve(t.Context(), admin("other"), "shop__order", "", nil); !toolkeep.IsCode(err, toolkeep.ToolNotFound) {
		t.Error(err)
	}
}

// TestNamesBesideOtherTenants: however many tools of other tenants begin like a cut name, it is found.
func TestNamesBesideOtherTenants(t *testing.T) {
	s := emptySnapshot(nil)
	begin := "namespace-of-thirty-two-letters0."
	long := begin + strings.Repeat("n", 63)
	add := func(id, tenant string) {
		k := &toolKey{id: id, tenant: tenant}
		if i := s.shardOf(id); s.shards[i] == nil {
			s.shards[i] = shard{}
		}
		s.shards[s.shardOf(id)][*k] = &entry{key: k}
		s.order = append(s.order, k)
	}
	for i := range 2 * maxAlike {
		add(fmt.Sprintf("%s%s%04d", begin, strings.Repeat("n", 20), i), "other")
	}
	add(long, "acme")
	slices.SortFunc(s.order, compareKeys)
	if e := s.find("acme", mcp.ToolName(long), nil); e == nil || e.key.id != long {
		t.Errorf("found %v", e)
	}
}
