package catalog

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/toolkeep/toolkeep"
)

func TestList(t *testing.T) {
	c, _, _ := open(t)
	p := admin("acme")
	_, err := c.Publish(t.Context(), p, [][]byte{
		manifest("a.one", "1.0.0", `{"category":"files","tags":["x"],"capabilities":["read"]}`),
		manifest("a.one", "1.1.0", `{"category":"files","tags":["x","y"],"capabilities":["read"],"requires_approval":false,"short_description":"s"}`),
		manifest("ab.two", "1.0.0", `{"tags":["y"]}`),
		manifest("b.three", "1.0.0-beta"),
		manifest("b.three", "0.9.0"),
	}, PublishOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Publish(t.Context(), p, [][]byte{manifest("s.all", "1.0.0")}, PublishOptions{Shared: true}); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Publish(t.Context(), admin("other"), [][]byte{manifest("o.hidden", "1.0.0")}, PublishOptions{}); err != nil {
		t.Fatal(err)
	}
	publish(t, c, "z.old", "1.0.0")
	setState(t, c, "z.old", "1.0.0", StateChange{State: toolkeep.Deprecated})
	publish(t, c, "z.stopped", "1.0.0")
	setState(t, c, "z.stopped", "1.0.0", StateChange{State: toolkeep.Blocked})

	ids := func(f Filter, visible func(*toolkeep.Tool) bool) ([]string, int) {
		page, total := c.List(p, f, visible)
		var out []string
		for _, s := range page {
			out = append(out, s.ToolID+"@"+s.LatestVersion)
		}
		return out, total
	}
	for _, r := range []struct {
		name  string
		f     Filter
		want  []string
		total int
	}{
		{"all", Filter{}, []string{"a.one@1.1.0", "ab.two@1.0.0", "b.three@0.9.0", "s.all@1.0.0"}, 4},
		{"category", Filter{Category: "files"}, []string{"a.one@1.1.0"}, 1},
		{"tag", Filter{Tags: []string{"y"}}, []string{"a.one@1.1.0", "ab.two@1.0.0"}, 2},
		{"tags", Filter{Tags: []string{"y", "x"}}, []string{"a.one@1.1.0"}, 1},
		{"among", Filter{Among: []string{"s.all", "no.such", "o.hidden", "z.stopped", "a.one"}}, []string{"s.all@1.0.0", "a.one@1.1.0"}, 2},
		{"page among", Filter{Among: []string{"s.all", "a.one"}, Offset: 1}, []string{"a.one@1.1.0"}, 2},
		{"among none", Filter{Among: []string{}}, nil, 0},
		{"capability", Filter{Capability: "read"}, []string{"a.one@1.1.0"}, 1},
		{"namespace", Filter{Namespace: "a"}, []string{"a.one@1.1.0"}, 1},
		{"deprecated", Filter{Namespace: "z", IncludeDeprecated: true}, []string{"z.old@1.0.0"}, 1},
		{"page", Filter{Offset: 1, Limit: 2}, []string{"ab.two@1.0.0", "b.three@0.9.0"}, 4},
		{"reverse", Filter{Sort: "-id", Limit: 2}, []string{"s.all@1.0.0", "b.three@0.9.0"}, 4},
		{"by id among", Filter{Sort: SortID, Among: []string{"s.all", "a.one"}}, []string{"a.one@1.1.0", "s.all@1.0.0"}, 2},
		{"kept", Filter{Keep: func(v toolkeep.Version) bool { return v.Tool.Version == "1.0.0" }, Limit: 1}, []string{"ab.two@1.0.0"}, 2},
		{"behind the end", Filter{Offset: 9}, nil, 4},
	} {
		got, total := ids(r.f, nil)
		if !slices.Equal(got, r.want) || total != r.total {
			t.Errorf("%s: %v of %d, want %v of %d", r.name, got, total, r.want, r.total)
		}
	}
	got, total := ids(Filter{}, func(t *toolkeep.Tool) bool { return t.ID == "a.one" && t.Version == "1.0.0" })
	if !slices.Equal(got, []string{"a.one@1.0.0"}) || total != 1 {
		t.Errorf("%v of %d", got, total)
	}
	page, _ := c.List(p, Filter{Category: "files"}, nil)
	if s := page[0]; !slices.Equal(s.Versions, []string{"1.1.0", "1.0.0"}) || s.State != toolkeep.Active || s.SideEffects != "none" || s.Risk != "low" || s.ShortDescription != "s" || !slices.Equal(s.Tags, []string{"x", "y"}) {
		t.Errorf("%+v", s)
	}
	if page, total := c.List(nil, Filter{}, nil); total != 1 || page[0].ToolID != "s.all" {
		t.Errorf("nobody sees %v", page)
	}
}

func TestListByAge(t *testing.T) {
	c, _, clock := open(t)
	for _, id := range []string{"m.second", "z.first", "a.third"} {
		publish(t, c, id, "1.0.0")
		clock.add(time.Second)
	}
	for order, want := range map[string]string{SortPublished: "[m.second z.first a.third]", "-" + SortPublished: "[a.third z.first m.second]"} {
		page, _ := c.List(admin("acme"), Filter{Sort: order}, nil)
		var got []string
		for _, s := range page {
			got = append(got, s.ToolID)
		}
		if fmt.Sprint(got) != want {
			t.Errorf("%s: %v", order, got)
		}
	}
}

func TestVersions(t *testing.T) {
	c, _, _ := open(t)
	publish(t, c, "a.b", "1.0.0", "1.10.0", "1.9.0")
	setState(t, c, "a.b", "1.9.0", StateChange{State: toolkeep.Blocked})
	got, err := c.Versions(admin("acme"), "a.b", nil)
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, v := range got {
		out = append(out, fmt.Sprint(v.Tool.Version, " ", v.Life.State))
	}
	if !slices.Equal(out, []string{"1.10.0 active", "1.9.0 blocked", "1.0.0 active"}) {
		t.Error(out)
	}
	_, err = c.Versions(admin("acme"), "a.c", nil)
	wantCode(t, err, toolkeep.ToolNotFound)
	_, err = c.Versions(admin("acme"), "a.b", func(*toolkeep.Tool) bool { return false })
	wantCode(t, err, toolkeep.ToolNotFound)
}
