package breaker

import (
	"context"
	"encoding/json"
	"testing"
	"time"
)

// TestChangesAreTold: the node that writes a change of state tells of it, and no other node does; a renewal is no change.
func TestChangesAreTold(t *testing.T) {
	t.Parallel()
	o := start(t, 2, quick())
	told := make(chan [2]string, 100)
	for _, s := range o.all {
		s.c.Tell = func(_ context.Context, channel, message string) error {
			told <- [2]string{channel, message}
			return errAway // of one that failed the next ones are told all the same
		}
	}
	next := func(state State, reason, node string) {
		t.Helper()
		got := <-told
		var m map[string]string
		if err := json.Unmarshal([]byte(got[1]), &m); err != nil || got[0] != "acme:circuit:state:changes" {
			t.Fatalf("%q, %v", got, err)
		}
		_, err := time.Parse(time.RFC3339Nano, m["at"])
		if m["circuit_name"] != "tool:shop.find" || m["state"] != string(state) || m["reason"] != reason || m["node"] != node || err != nil || len(m) > 5 {
			t.Errorf("%s was told, want %s by %s", got[1], state, node)
		}
	}
	for range 2 {
		_ = o.try(0, Failed)
	}
	next(Open, ReasonConsecutive, "node0")
	o.await(t, 1, "open", in(Open))
	o.later(30 * time.Second)
	for range 2 {
		if e := o.try(1, Succeeded); e != nil {
			t.Fatal(e)
		}
	}
	next(HalfOpen, ReasonConsecutive, "node1")
	next(Closed, "", "node1")
	if err := o.all[0].Force(t.Context(), "acme", "tool:shop.find", ForcedOpen, "ann", "maintenance"); err != nil {
		t.Fatal(err)
	}
	next(ForcedOpen, "maintenance", "node0")
	if err := o.all[1].Reset(t.Context(), "acme", "tool:shop.find", "ann", "over"); err != nil {
		t.Fatal(err)
	}
	next(Closed, "over", "node1")
	if len(told) != 0 {
		t.Errorf("more was told: %q", <-told)
	}
}

// TestTellingIsNotWaitedFor: changes that cannot be told keep no call waiting, nor Stop.
func TestTellingIsNotWaitedFor(t *testing.T) {
	t.Parallel()
	o := start(t, 1, quick())
	asked := make(chan struct{}, 1)
	o.all[0].c.Tell = func(ctx context.Context, _, _ string) error {
		select {
		case asked <- struct{}{}:
		default:
		}
		<-ctx.Done()
		return ctx.Err()
	}
	for range maxNews + 10 {
		if err := o.all[0].applied(keyOf("acme", "tool:shop.find"), &Record{State: Open}, nil); err != nil {
			t.Fatal(err)
		}
	}
	<-asked
	for range 2 {
		_ = o.try(0, Failed)
	}
	refusedFor(t, o.try(0, Failed), "open")
	o.later(30 * time.Second)
	if e := o.try(0, Succeeded); e != nil { // a test call, whose change of state is written first
		t.Error(e)
	}
	o.all[0].Stop() // returns
}
