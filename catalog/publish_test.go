package catalog

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/toolkeep/toolkeep"
)

func TestPublish(t *testing.T) {
	c, store, _ := open(t)
	p := admin("acme")
	got, err := c.Publish(t.Context(), p, [][]byte{manifest("a.b", "1.0.0")}, PublishOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if r := got[0]; !r.Created || r.Bump != "new" || r.ToolID != "a.b" || r.Version != "1.0.0" || !strings.HasPrefix(r.Digest, "sha256:") {
		t.Errorf("%+v", r)
	}
	v, _, err := c.Resolve(t.Context(), p, "a.b", "", nil)
	if err != nil || v.Life.PublishedBy != "ada" || v.Life.State != toolkeep.Active || v.Tool.Tenant != "acme" {
		t.Errorf("%+v %v", v, err)
	}
	applies := store.applied()
	got, err = c.Publish(t.Context(), p, [][]byte{manifest("a.b", "1.0.0")}, PublishOptions{})
	if err != nil || got[0].Created || got[0].Bump != "none" || store.applied() != applies {
		t.Errorf("the same again: %+v %v", got, err)
	}
	_, err = c.Publish(t.Context(), p, [][]byte{manifest("a.b", "1.0.0", `{"description":"other"}`)}, PublishOptions{})
	if e := wantCode(t, err, toolkeep.DuplicateTool); !strings.Contains(e.Message, "a.b@1.0.0") {
		t.Error(e.Message)
	}
	_, err = c.Publish(t.Context(), p, [][]byte{manifest("a.b", "1.0.0+build")}, PublishOptions{})
	wantCode(t, err, toolkeep.DuplicateTool)

	got, err = c.Publish(t.Context(), p, [][]byte{manifest("a.b", "1.0.1", `{"description":"other"}`)}, PublishOptions{})
	if err != nil || got[0].Bump != BumpPatch {
		t.Errorf("%+v %v", got, err)
	}
	types, data := store.events(t)
	if !slices.Equal(types, []string{"ai.agent.tool.registered", "ai.agent.tool.changed"}) {
		t.Error(types)
	}
	if d := data[1]; d["tool_id"] != "a.b" || d["version"] != "1.0.1" || d["by"] != "ada" || d["forced"] != false || d["digest"] != got[0].Digest {
		t.Error(d)
	}
}

func TestPublishBreaking(t *testing.T) {
	const before, after = `{"parameters_schema":{"type":"object","properties":{"a":{}}}}`, `{"parameters_schema":{"type":"object","properties":{"a":{}},"required":["a"]}}`
	for _, r := range []struct {
		from, to string
		refused  bool
	}{
		{"1.0.0", "1.0.1", true}, {"1.0.0", "1.1.0", true}, {"1.0.0", "2.0.0", false}, {"1.0.0", "1.1.0-rc", true},
		{"0.1.0", "0.2.0", true}, {"1.0.0-a", "1.0.0-b", false}, {"2.0.0-a", "2.0.0", false}, {"1.5.0", "1.4.0", false},
	} {
		t.Run(r.from+" to "+r.to, func(t *testing.T) {
			c, store, _ := open(t)
			if _, err := c.Publish(t.Context(), admin("acme"), [][]byte{manifest("a.b", r.from, before)}, PublishOptions{}); err != nil {
				t.Fatal(err)
			}
			_, err := c.Publish(t.Context(), publisher("acme"), [][]byte{manifest("a.b", r.to, after)}, PublishOptions{})
			if !r.refused {
				if err != nil {
					t.Error(err)
				}
				return
			}
			e := wantCode(t, err, toolkeep.InvalidManifest)
			b, _ := e.Details["breaking"].([]Breaking)
			if len(b) != 1 || b[0].From != r.from || b[0].Differences[0].Pointer != "/parameters_schema/properties/a" || !strings.Contains(e.Message, "force") {
				t.Errorf("%s %+v", e.Message, b)
			}
			_, err = c.Publish(t.Context(), publisher("acme"), [][]byte{manifest("a.b", r.to, after)}, PublishOptions{Force: true})
			wantCode(t, err, toolkeep.PermissionDenied)
			got, err := c.Publish(t.Context(), admin("acme"), [][]byte{manifest("a.b", r.to, after)}, PublishOptions{Force: true})
			if err != nil || len(got[0].Breaking) != 1 {
				t.Fatalf("%+v %v", got, err)
			}
			v, _, err := c.Resolve(t.Context(), admin("acme"), "a.b", r.to, nil)
			if err != nil || !v.Life.Forced {
				t.Errorf("%+v %v", v.Life, err)
			}
			if _, data := store.events(t); data[1]["forced"] != true || data[1]["breaking"] == nil {
				t.Error(data[1])
			}
		})
	}
	t.Run("force that is not needed is not recorded", func(t *testing.T) {
		c, _, _ := open(t)
		publish(t, c, "a.b", "1.0.0")
		if _, err := c.Publish(t.Context(), admin("acme"), [][]byte{manifest("a.b", "1.0.1")}, PublishOptions{Force: true}); err != nil {
			t.Fatal(err)
		}
		if v, _, _ := c.Resolve(t.Context(), admin("acme"), "a.b", "1.0.1", nil); v.Life.Forced {
			t.Error("recorded")
		}
	})
}

func TestPublishBackportComparesWithItsNeighbour(t *testing.T) {
	c, _, _ := open(t)
	with := func(names ...string) string {
		var props []string
		for _, n := range names {
			props = append(props, fmt.Sprintf("%q:{}", n))
		}
		return `{"parameters_schema":{"type":"object","properties":{` + strings.Join(props, ",") + `}}}`
	}
	all := [][]byte{manifest("a.b", "2.0.0", with("x")), manifest("a.b", "1.0.0", with("a"))}
	if _, err := c.Publish(t.Context(), admin("acme"), all, PublishOptions{}); err != nil {
		t.Fatal(err)
	}
	got, err := c.Publish(t.Context(), admin("acme"), [][]byte{manifest("a.b", "1.1.0", with("a", "b"))}, PublishOptions{})
	if err != nil || got[0].Bump != BumpMinor {
		t.Errorf("%+v %v", got, err)
	}
}

func TestPublishBatchIsAllOrNothing(t *testing.T) {
	c, store, _ := open(t)
	applies := store.applied()
	_, err := c.Publish(t.Context(), admin("acme"), [][]byte{
		manifest("a.good", "1.0.0"),
		manifest("a.bad", "1"),
		[]byte(`{`),
		manifest("a.agent", "1.0.0", `{"execution":{"kind":"agent"}}`),
	}, PublishOptions{})
	e := wantCode(t, err, toolkeep.InvalidManifest)
	bad, _ := e.Details["manifests"].([]ManifestFaults)
	if len(bad) != 3 || bad[0].Index != 1 || bad[0].ToolID != "a.bad" || bad[1].Index != 2 || bad[2].Index != 3 {
		t.Errorf("%+v", bad)
	}
	var pointers []string
	for _, f := range faultsOf(t, err) {
		pointers = append(pointers, f.Pointer)
	}
	if !slices.Equal(pointers, []string{"/1/version", "/2", "/3/execution/kind"}) {
		t.Error(pointers)
	}
	if !strings.Contains(fmt.Sprint(bad[2].Errors), "this build cannot execute kind agent; it executes builtin, http") {
		t.Error(bad[2].Errors)
	}
	if store.applied() != applies || c.Snapshot().Tools() != 0 {
		t.Error("something was published")
	}

	breaking := `{"parameters_schema":{"type":"object","required":["z"]}}`
	publish(t, c, "a.one", "1.0.0")
	publish(t, c, "a.two", "1.0.0")
	_, err = c.Publish(t.Context(), admin("acme"), [][]byte{
		manifest("a.three", "1.0.0"), manifest("a.two", "1.1.0", breaking), manifest("a.one", "1.1.0", breaking),
	}, PublishOptions{})
	if b, _ := wantCode(t, err, toolkeep.InvalidManifest).Details["breaking"].([]Breaking); len(b) != 2 || b[0].ToolID != "a.two" || b[1].Index != 2 {
		t.Errorf("%+v", b)
	}
	if c.Snapshot().Tools() != 2 {
		t.Error("something was published")
	}
}

// A refusal of many manifests tells at most as many faults as are read, each manifest's share.
func TestPublishBatchBoundsItsFaults(t *testing.T) {
	c, _, _ := open(t)
	many := func(n int, raw string) (out [][]byte) {
		for range n {
			out = append(out, []byte(raw))
		}
		return out
	}
	unknown := make([]string, 3000)
	for i := range unknown {
		unknown[i] = fmt.Sprintf(`"n%d":0`, i)
	}
	breaking, small := [][]byte{}, [][]byte{}
	for i := range 150 {
		id := fmt.Sprintf("a.b%d", i)
		small = append(small, manifest(id, "1.0.0", `{"parameters_schema":{"type":"object","properties":{"a":{},"b":{},"c":{}},"additionalProperties":false}}`))
		breaking = append(breaking, manifest(id, "1.1.0", `{"parameters_schema":{"type":"object","properties":{},"additionalProperties":false}}`))
	}
	if _, err := c.Publish(t.Context(), admin("acme"), small, PublishOptions{}); err != nil {
		t.Fatal(err)
	}
	for name, batch := range map[string][][]byte{
		"empty":       many(MaxBatch, `{}`),
		"unreadable":  many(MaxBatch, `{`),
		"two":         many(2, "{"+strings.Join(unknown, ",")+"}"),
		"alone":       many(1, "{"+strings.Join(unknown, ",")+"}"),
		"a long name": many(50, `{"`+strings.Repeat("n", 100_000)+`":0}`),
		"breaking":    breaking,
	} {
		t.Run(name, func(t *testing.T) {
			_, err := c.Publish(t.Context(), admin("acme"), batch, PublishOptions{})
			e := wantCode(t, err, toolkeep.InvalidManifest)
			raw, err := json.Marshal(e.Details)
			if err != nil || len(raw) > 300_000 || len(e.Message) > 5_000 {
				t.Errorf("%d bytes of details, %d of text, %v", len(raw), len(e.Message), err)
			}
			if n := len(Faults(e)); n > toolkeep.MaxFaults+1 {
				t.Errorf("%d faults", n)
			}
			n := 0
			bad, _ := e.Details["manifests"].([]ManifestFaults)
			for _, m := range bad {
				n += len(m.Errors) - 1
			}
			breaks, _ := e.Details["breaking"].([]Breaking)
			for _, b := range breaks {
				n += len(b.Differences)
			}
			if len(bad)+len(breaks) == 0 || len(bad) > toolkeep.MaxFaults || n > toolkeep.MaxFaults {
				t.Errorf("%d manifests, %d with breaking changes, %d of their faults", len(bad), len(breaks), n)
			}
		})
	}
}

func TestPublishBatchOfOneTool(t *testing.T) {
	c, store, _ := open(t)
	breaking := `{"parameters_schema":{"type":"object","required":["z"]}}`
	_, err := c.Publish(t.Context(), admin("acme"), [][]byte{manifest("a.b", "1.1.0", breaking), manifest("a.b", "1.0.0")}, PublishOptions{})
	wantCode(t, err, toolkeep.InvalidManifest)
	got, err := c.Publish(t.Context(), admin("acme"), [][]byte{manifest("a.b", "2.0.0", breaking), manifest("a.b", "1.0.0"), manifest("a.b", "1.0.0")}, PublishOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if got[0].Bump != BumpMajor || len(got[0].Breaking) == 0 || got[1].Bump != "new" || !got[1].Created || got[2].Created {
		t.Errorf("%+v", got)
	}
	types, _ := store.events(t)
	if !slices.Equal(types, []string{eventRegistered, eventChanged}) {
		t.Error(types)
	}
	_, err = c.Publish(t.Context(), admin("acme"), [][]byte{manifest("a.c", "1.0.0"), manifest("a.c", "1.0.0", `{"description":"x"}`)}, PublishOptions{})
	wantCode(t, err, toolkeep.DuplicateTool)
}

func TestPublishKeepsFiveActive(t *testing.T) {
	c, store, now := open(t)
	publish(t, c, "a.b", "1.0.0", "1.1.0", "1.2.0", "1.3.0", "1.4.0")
	got, err := c.Publish(t.Context(), admin("acme"), [][]byte{manifest("a.b", "2.0.0")}, PublishOptions{})
	if err != nil || !slices.Equal(got[0].Deprecated, []string{"1.0.0"}) {
		t.Fatalf("%+v %v", got, err)
	}
	versions, err := c.Versions(admin("acme"), "a.b", nil)
	if err != nil {
		t.Fatal(err)
	}
	lowest := versions[len(versions)-1]
	if lowest.Life.State != toolkeep.Deprecated || lowest.Life.Successor != "2.0.0" || !lowest.Life.RemoveAfter.Equal(now.Now().Add(90*day)) {
		t.Errorf("%+v", lowest.Life)
	}
	_, data := store.events(t)
	if d := data[len(data)-2]; d["state"] != "deprecated" || d["version"] != "1.0.0" {
		t.Error(d)
	}
	t.Run("in one batch", func(t *testing.T) {
		publish(t, c, "a.c", "1.0.0", "1.1.0", "1.2.0", "1.3.0", "1.4.0", "1.5.0", "1.6.0")
		versions, err := c.Versions(admin("acme"), "a.c", nil)
		if err != nil {
			t.Fatal(err)
		}
		var states []string
		for _, v := range versions {
			states = append(states, string(v.Life.State))
		}
		if !slices.Equal(states, []string{"active", "active", "active", "active", "active", "deprecated", "deprecated"}) {
			t.Error(states)
		}
	})
}

func TestPublishOwnership(t *testing.T) {
	c, _, _ := open(t)
	shared := PublishOptions{Shared: true}
	if _, err := c.Publish(t.Context(), admin("acme"), [][]byte{manifest("s.all", "1.0.0")}, shared); err != nil {
		t.Fatal(err)
	}
	for _, tenant := range []string{"acme", "other"} {
		if v, _, err := c.Resolve(t.Context(), admin(tenant), "s.all", "", nil); err != nil || v.Tool.Tenant != "" {
			t.Errorf("%s: %+v %v", tenant, v.Tool, err)
		}
		_, err := c.Publish(t.Context(), admin(tenant), [][]byte{manifest("s.all", "1.0.1")}, PublishOptions{})
		wantCode(t, err, toolkeep.DuplicateTool)
	}
	for _, tenant := range []string{"acme", "other"} {
		if _, err := c.Publish(t.Context(), admin(tenant), [][]byte{manifest("t.own", "1.0.0", fmt.Sprintf(`{"description":%q}`, tenant))}, PublishOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	if v, _, err := c.Resolve(t.Context(), admin("other"), "t.own", "", nil); err != nil || v.Tool.Manifest.Description != "other" {
		t.Errorf("%+v %v", v.Tool, err)
	}
	_, err := c.Publish(t.Context(), admin("third"), [][]byte{manifest("t.own", "1.0.0")}, shared)
	wantCode(t, err, toolkeep.DuplicateTool)
}

func TestPublishPermissions(t *testing.T) {
	c, _, _ := open(t)
	one := [][]byte{manifest("a.b", "1.0.0")}
	for _, r := range []struct {
		name string
		p    *toolkeep.Principal
		o    PublishOptions
	}{
		{"nobody", nil, PublishOptions{}},
		{"no permission", &toolkeep.Principal{Tenant: "acme"}, PublishOptions{DryRun: true}},
		{"no tenant", admin(""), PublishOptions{}},
		{"force", publisher("acme"), PublishOptions{Force: true}},
		{"shared", publisher("acme"), PublishOptions{Shared: true}},
	} {
		_, err := c.Publish(t.Context(), r.p, one, r.o)
		if e := wantCode(t, err, toolkeep.PermissionDenied); e.Details["reason"] != "RBAC_DENIED" {
			t.Errorf("%s: %v", r.name, e.Details)
		}
	}
	if _, err := c.Publish(t.Context(), publisher("acme"), one, PublishOptions{}); err != nil {
		t.Error(err)
	}
	_, err := c.Publish(t.Context(), publisher("acme"), nil, PublishOptions{})
	wantCode(t, err, toolkeep.InvalidParameters)
}

// TestPublishWhatNeedsMore: each server resource that a manifest opens needs its own right.
func TestPublishWhatNeedsMore(t *testing.T) {
	for permission, m := range map[string][]byte{
		toolkeep.PermFiles:   manifest("a.files", "1.0.0", `{"permissions":{"filesystem":[{"path":"/srv"}]}}`),
		toolkeep.PermNetwork: manifest("a.network", "1.0.0", `{"permissions":{"network":[{"host":"10.0.0.1"}]}}`),
		toolkeep.PermSecrets: manifest("a.secret", "1.0.0", `{"auth":[{"type":"bearer","secret":"context://token"}]}`),
	} {
		c, _, _ := open(t)
		_, err := c.Publish(t.Context(), publisher("acme"), [][]byte{m}, PublishOptions{})
		if e := wantCode(t, err, toolkeep.PermissionDenied); e.Details["permission"] != permission {
			t.Errorf("%s: %v", permission, e.Details)
		}
		may := publisher("acme")
		may.Permissions = append(may.Permissions, permission)
		if _, err := c.Publish(t.Context(), may, [][]byte{m}, PublishOptions{}); err != nil {
			t.Errorf("with %s: %v", permission, err)
		}
	}
}

func TestPublishDryRun(t *testing.T) {
	c, store, _ := open(t)
	applies := store.applied()
	got, err := c.Publish(t.Context(), admin("acme"), [][]byte{manifest("a.b", "1.0.0")}, PublishOptions{DryRun: true})
	if err != nil || !got[0].Created || store.applied() != applies || c.Snapshot().Tools() != 0 {
		t.Errorf("%+v %v", got, err)
	}
}

func TestPublishStoreFails(t *testing.T) {
	c, store, _ := open(t)
	for _, r := range []struct {
		err  error
		code toolkeep.Code
	}{
		{errors.New("disk is full"), toolkeep.RecordUnavailable},
		{fmt.Errorf("wrapped: %w", toolkeep.ErrVersionExists), toolkeep.DuplicateTool},
		{toolkeep.ErrClosed, toolkeep.RecordUnavailable},
	} {
		store.refuse = r.err
		_, err := c.Publish(t.Context(), admin("acme"), [][]byte{manifest("a.b", "1.0.0")}, PublishOptions{})
		if e := wantCode(t, err, r.code); strings.Contains(e.Message, "disk") || !errors.Is(e, r.err) {
			t.Errorf("%v", e)
		}
	}
	c.Stop()
	_, err := c.Publish(t.Context(), admin("acme"), [][]byte{manifest("a.b", "1.0.0")}, PublishOptions{})
	wantCode(t, err, toolkeep.RegistryUnavailable)
	if err := c.Start(context.Background()); err != nil {
		t.Fatal(err)
	}
	publish(t, c, "a.b", "1.0.0")
}
