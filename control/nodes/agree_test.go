package nodes_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/control/nodes"
)

func state(t *testing.T, name, version string, f nodes.Facts) toolkeep.NodeState {
	t.Helper()
	raw, err := json.Marshal(f)
	if err != nil {
		t.Fatal(err)
	}
	return toolkeep.NodeState{Name: name, Run: "1", Version: version, Data: raw}
}

func TestCompare(t *testing.T) {
	is := nodes.Facts{Seals: "k1", Opens: []string{"k1"}, Blobs: "f", KeyTTL: 24 * time.Hour, Issuers: "i"}
	for _, c := range []struct {
		what     string
		other    nodes.Facts
		version  string
		conflict error
		want     string // what state, of each difference
	}{
		{"the same", is, "1", nil, ""},
		{"it says nothing, as an older version does", nodes.Facts{}, "1", nil, ""},
		{"another version", is, "2", nil, "version differs"},
		{"another folder", nodes.Facts{Seals: "k1", Opens: []string{"k1"}, Blobs: "g"}, "1", nil, "blobs warn"},
		{"it has a newer key", nodes.Facts{Seals: "k2", Opens: []string{"k2", "k1"}}, "1", nil, "seal_key fail"},
		{"it has an older key", nodes.Facts{Seals: "k0", Opens: []string{"k0"}}, "1", errors.New("x"), "seal_key fail"},
		{"it has an older key, and this node has the store's", nodes.Facts{Seals: "k0", Opens: []string{"k0"}}, "1", nil, "seal_key warn"},
		{"keys for another time", nodes.Facts{Seals: "k1", Opens: []string{"k1"}, Blobs: "f", KeyTTL: time.Hour}, "1", nil, "idempotency_ttl warn"},
		{"other issuers", nodes.Facts{Seals: "k1", Opens: []string{"k1"}, Blobs: "f", Issuers: "j"}, "1", nil, "oauth_issuers warn"},
		{"all", nodes.Facts{Seals: "k2", Opens: []string{"k2", "k1"}, Blobs: "g"}, "2", nil, "seal_key fail, blobs warn, version differs"},
	} {
		self, other := state(t, "a", "1", is), state(t, "b%s", c.version, c.other)
		var got []string
		for _, d := range nodes.Compare(&self, []toolkeep.NodeState{self, other}, func() error { return c.conflict }) {
			got = append(got, d.What+" "+d.State)
			if !strings.Contains(d.Text, "b%s") || strings.Contains(d.Text, "%!") || !strings.Contains(d.Text, ";") {
				t.Errorf("%s: it does not say where and what to do: %s", c.what, d.Text)
			}
		}
		if s := strings.Join(got, ", "); s != c.want {
			t.Errorf("%s: %q, want %q", c.what, s, c.want)
		}
	}
	// One node with a key of its own does not stop those that seal alike and open what the
	// store holds; without them, or if they do not open it, this node cannot tell who is right.
	self := state(t, "a", "1", is)
	alone, alike := state(t, "b", "1", nodes.Facts{Seals: "k2", Opens: []string{"k2", "k1"}}), state(t, "c", "1", is)
	for _, c := range []struct {
		others   []toolkeep.NodeState
		conflict error
		want     string
	}{
		{[]toolkeep.NodeState{self, alone, alike}, nil, nodes.Warn},
		{[]toolkeep.NodeState{alike, alone, self}, errors.New("x"), nodes.Fail},
		{[]toolkeep.NodeState{self, alone}, nil, nodes.Fail},
		{[]toolkeep.NodeState{self, alone, state(t, "c", "1", nodes.Facts{})}, nil, nodes.Fail},
	} {
		d := nodes.Compare(&self, c.others, func() error { return c.conflict })
		if len(d) != 1 || d[0].State != c.want || !strings.HasPrefix(d[0].Text, "b seals with a key") {
			t.Errorf("%+v, want %s that names b", d, c.want)
		}
	}
	// A key that only this node has is for the other to mend.
	self = state(t, "a", "1", nodes.Facts{Seals: "k2", Opens: []string{"k2", "k1"}})
	if d := nodes.Compare(&self, []toolkeep.NodeState{state(t, "b", "1", is)}, nil); len(d) != 1 || d[0].State != nodes.Warn {
		t.Errorf("%+v", d)
	}
}

func TestClock(t *testing.T) {
	for _, c := range []struct {
		ahead, within time.Duration
		want          string
	}{
		{0, 0, ""}, {2 * time.Second, 0, ""}, {-2001 * time.Millisecond, 0, "warn"}, {2500 * time.Millisecond, time.Second, ""},
		{10 * time.Second, 0, "warn"}, {10001 * time.Millisecond, 0, "fail"}, {-time.Hour, time.Second, "fail"},
	} {
		got := ""
		for _, d := range nodes.Clock(c.ahead, c.within) {
			got += d.State
		}
		if got != c.want {
			t.Errorf("%s ± %s: %q, want %q", c.ahead, c.within, got, c.want)
		}
	}
}

// cluster is what an Agreement sees.
type cluster struct {
	members
	ahead time.Duration
}

func (c *cluster) ClockDifference() (ahead, within time.Duration, known bool) {
	return c.ahead, 0, true
}

// TestAgreement: each difference is one line in the log, and readiness and health follow.
func TestAgreement(t *testing.T) {
	is := nodes.Facts{Seals: "k1", Opens: []string{"k1"}, Blobs: "f"}
	c := &cluster{members: members{state(t, "a", "1", is), state(t, "b", "1", is)}}
	var log bytes.Buffer
	a := nodes.NewAgreement(nodes.AgreementConfig{Members: c, OpensStore: func(context.Context) error { return nil }, Log: slog.New(slog.NewTextHandler(&log, nil))})
	look := func(ready, healthy bool, lines int) {
		t.Helper()
		log.Reset()
		for range 3 {
			a.Look()
		}
		if err := a.Ready(t.Context()); (err == nil) != ready {
			t.Errorf("ready: %v", err)
		}
		if err := a.Health(t.Context()); (err == nil) != healthy {
			t.Errorf("health: %v", err)
		}
		if n := strings.Count(log.String(), "\n"); n != lines {
			t.Errorf("%d lines, want %d:\n%s", n, lines, log.String())
		}
	}
	look(true, true, 0)
	c.members[1] = state(t, "b", "2", is)
	look(true, true, 1)
	c.members[1] = state(t, "b", "2", nodes.Facts{Seals: "k1", Opens: []string{"k1"}, Blobs: "g"})
	look(true, false, 1)
	c.ahead = time.Minute
	look(false, false, 1)
	c.ahead = time.Minute + time.Millisecond
	look(false, false, 0)
	if n := len(a.Differences()); n != 3 {
		t.Errorf("%d differences", n)
	}
	if raw, err := json.Marshal(a.Differences()); err != nil || string(raw) != `[{"what":"blobs","state":"warn"},{"what":"version","state":"differs"},{"what":"clock","state":"fail"}]` {
		t.Errorf("health shows %s, %v", raw, err)
	}
	c.ahead, c.members = 0, members{state(t, "a", "1", is)}
	look(true, true, 3)
	if a.Differences() == nil {
		t.Error("health would show null")
	}
}
