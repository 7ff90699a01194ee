package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"testing"
	"time"

	"github.com/toolkeep/toolkeep"
)

// table has the writer copy all pending calls.
func table(t testing.TB, s *Store) {
	t.Helper()
	if err := s.catchUp(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// keepClaims has the writer copy no row by itself, until copyClaims.
func keepClaims(t testing.TB, s *Store) {
	t.Helper()
	err := s.do(t.Context(), func(ctx context.Context, w *writer) error {
		w.tick.Stop()
		w.ticks = true
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

func copyClaims(t testing.TB, s *Store) {
	t.Helper()
	err := s.do(t.Context(), func(ctx context.Context, w *writer) error {
		w.ticks = false
		w.armTick()
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// TestClaimIsOneRow: a claim and its end are rows of the table claims, which readers see at once, until
// the writer copies them.
func TestClaimIsOneRow(t *testing.T) {
	s := mustOpen(t, Config{Path: path(t)})
	calls := s.Invocations()
	has := func(claims, invocations int) {
		t.Helper()
		if n := count(t, s, "SELECT count(*) FROM claims"); n != claims {
			t.Errorf("%d rows of claims, want %d", n, claims)
		}
		if n := count(t, s, "SELECT count(*) FROM invocations"); n != invocations {
			t.Errorf("%d rows of invocations, want %d", n, invocations)
		}
	}
	v := call("a", toolkeep.CallRunning)
	v.Key, v.LeaseOwner, v.LeaseUntil, v.CreatedAt = "k", "n", time.Now().Add(time.Minute).UTC(), time.Now().UTC()
	keepClaims(t, s)
	mustApply(t, s, toolkeep.ClaimCall{Invocation: v}, toolkeep.AppendEvent{Event: toolkeep.Event{ID: "e", Tenant: "t"}})
	has(1, 0)
	err := s.do(t.Context(), func(_ context.Context, w *writer) error {
		if young := w.ready(); young != 0 {
			t.Error("a call that has just begun is to be copied")
		}
		since := w.pending[0].since
		w.pending[0].since = since.Add(-claimDelay)
		if w.ready() != 1 {
			t.Error("a call that runs for long is not to be copied")
		}
		w.pending[0].since = since
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if got, err := calls.ByKey(t.Context(), "t", "s", "k"); err != nil || !reflect.DeepEqual(got, v) {
		t.Errorf("%+v, %v, want %+v", got, err, v)
	}
	if err := s.Apply(t.Context(), toolkeep.ClaimCall{Invocation: call("a", toolkeep.CallRunning)}); !errors.Is(err, toolkeep.ErrIDTaken) {
		t.Errorf("the id is taken: %v", err)
	}
	end := *v
	end.State, end.Output = toolkeep.CallSucceeded, []byte(`{"n":1}`)
	move := toolkeep.MoveCall{Invocation: &end, From: []toolkeep.CallState{toolkeep.CallRunning}, Owner: "n"}
	mustApply(t, s, move, toolkeep.AppendEvent{Event: toolkeep.Event{ID: "f", Tenant: "t"}})
	has(2, 0)
	end.LeaseOwner, end.LeaseUntil = "", time.Time{}
	for range 2 {
		got, err := calls.Get(t.Context(), v.Ref())
		if err != nil || !reflect.DeepEqual(got, &end) {
			t.Errorf("%+v, %v, want %+v", got, err, end)
		}
		table(t, s)
		has(0, 1)
	}
}

// TestClaimsOfFailedGroup: what a group changed is undone if it cannot be committed.
func TestClaimsOfFailedGroup(t *testing.T) {
	s := mustOpen(t, Config{Path: path(t)})
	v := call("a", toolkeep.CallRunning)
	v.Key, v.CreatedAt = "k", time.Now()
	mustApply(t, s, toolkeep.ClaimCall{Invocation: v})
	limit := func(n int) {
		if _, err := s.WriteDB().ExecContext(t.Context(), fmt.Sprintf("PRAGMA max_page_count = %d", n)); err != nil {
			t.Fatal(err)
		}
	}
	limit(1)
	end := *v
	end.State, end.Key = toolkeep.CallFailed, ""
	move := toolkeep.MoveCall{Invocation: &end, From: []toolkeep.CallState{toolkeep.CallRunning}, FreeKey: true}
	big := toolkeep.AppendEvent{Event: toolkeep.Event{ID: "big", Tenant: "t", Data: make([]byte, 1<<20)}}
	if err := s.Apply(t.Context(), move, big); err == nil {
		t.Fatal("a full disk took it")
	}
	if err := s.Apply(t.Context(), toolkeep.ClaimCall{Invocation: call("b", toolkeep.CallRunning)}, big); err == nil {
		t.Fatal("a full disk took it")
	}
	got, err := s.Invocations().ByKey(t.Context(), "t", "s", "k")
	if err != nil || got.State != toolkeep.CallRunning {
		t.Errorf("the call that could not end is %+v, %v", got, err)
	}
	if got, err := s.Invocations().Get(t.Context(), toolkeep.CallRef{Tenant: "t", ID: "b"}); !errors.Is(err, toolkeep.ErrNotFound) {
		t.Errorf("the call that could not be claimed is %+v, %v", got, err)
	}
	limit(1 << 30)
	mustApply(t, s, move, big)
	if _, err := s.Invocations().ByKey(t.Context(), "t", "s", "k"); !errors.Is(err, toolkeep.ErrNotFound) {
		t.Errorf("the key was freed: %v", err)
	}
	mustApply(t, s, toolkeep.ClaimCall{Invocation: call("b", toolkeep.CallRunning)})
}

// TestClaimsAsInTable makes many changes of few calls and keys at random in two stores. In one the writer
// copies each call at once to the table of calls: both answer the same, as does a store that is opened
// on the file that a crash would leave.
func TestClaimsAsInTable(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	random := rand.New(rand.NewPCG(seed, 0))
	late, soon := mustOpen(t, Config{Path: path(t)}), mustOpen(t, Config{Path: path(t)})
	now := time.Now().UTC().Truncate(time.Millisecond)
	one := func(list ...string) string { return list[random.IntN(len(list))] }
	some := func() *toolkeep.Invocation {
		v := &toolkeep.Invocation{Tenant: one("t", "u"), ID: one("1", "2", "3", "4", "5"), Subject: one("s", "s", "r"), ToolID: "ns.a",
			Key: one("", "k", "l"), CreatedAt: now, Message: fmt.Sprint(random.Int())}
		if random.IntN(10) == 0 {
			v.CreatedAt = now.Add(-25 * time.Hour) // its key is not valid any more
		}
		return v
	}
	change := func() toolkeep.Change {
		v := some()
		from := []toolkeep.CallState{toolkeep.CallRunning}
		switch random.IntN(12) {
		case 0, 1, 2, 3:
			v.State = toolkeep.CallRunning
			if owner := one("", "n"); owner != "" {
				v.LeaseOwner, v.LeaseUntil = owner, now.Add(time.Hour)
			}
			return toolkeep.ClaimCall{Invocation: v}
		case 4, 5, 6, 7:
			v.State = toolkeep.CallState(one("succeeded", "failed", "running", "queued"))
			if v.State.Ended() {
				v.Output = []byte(one("", "{}", string(make([]byte, maxNoted+1))))
			}
			m := toolkeep.MoveCall{Invocation: v, From: from, Owner: one("", "n", "m"), FreeKey: random.IntN(4) == 0}
			if m.FreeKey && random.IntN(2) == 0 {
				v.Key = ""
			}
			return m
		case 8:
			v.State = toolkeep.CallExpired
			return toolkeep.MoveCall{Invocation: v, From: []toolkeep.CallState{toolkeep.CallSucceeded}}
		case 9:
			return toolkeep.RequestCancel{Call: v.Ref(), By: "x"}
		case 10:
			return toolkeep.RenewLeases{Owner: "n", Until: now.Add(2 * time.Hour), Calls: []toolkeep.CallRef{v.Ref()}}
		}
		v.State, v.Key = toolkeep.CallSucceeded, ""
		return toolkeep.RecordCall{Invocation: v}
	}
	causes := []error{nil, toolkeep.ErrIDTaken, toolkeep.ErrKeyTaken, toolkeep.ErrStale, toolkeep.ErrNotFound}
	cause := func(err error) int {
		for i, c := range causes {
			if errors.Is(err, c) {
				return i
			}
		}
		t.Fatalf("seed %d: %v", seed, err)
		return 0
	}
	same := func(a, b *Store, when string) {
		t.Helper()
		for _, tenant := range []string{"t", "u"} {
			for i := range 10 {
				ref := toolkeep.CallRef{Tenant: tenant, ID: fmt.Sprint(i)}
				x, errX := a.Invocations().Get(t.Context(), ref)
				y, errY := b.Invocations().Get(t.Context(), ref)
				if cause(errX) != cause(errY) || !reflect.DeepEqual(x, y) {
					t.Fatalf("seed %d, %s: call %s is\n%+v %v\nand in the table\n%+v %v", seed, when, ref, x, errX, y, errY)
				}
			}
			for _, subject := range []string{"s", "r"} {
				for _, key := range []string{"k", "l"} {
					x, errX := a.Invocations().ByKey(t.Context(), tenant, subject, key)
					y, errY := b.Invocations().ByKey(t.Context(), tenant, subject, key)
					if cause(errX) != cause(errY) || !reflect.DeepEqual(x, y) {
						t.Fatalf("seed %d, %s: key %s of %s is held by\n%+v %v\nand in the table by\n%+v %v", seed, when, key, subject, x, errX, y, errY)
					}
				}
			}
		}
	}
	// batch claims calls and ends some in both stores. Nothing reads late meanwhile, so it has them in the table claims alone.
	batch := func(round int) {
		table(t, late)
		keepClaims(t, late)
		for i := range 4 {
			v := &toolkeep.Invocation{Tenant: "t", ID: fmt.Sprint(6 + i), Subject: "s", ToolID: "ns.a", CreatedAt: now, State: toolkeep.CallRunning, Message: fmt.Sprint(round)}
			list := []toolkeep.Change{toolkeep.ClaimCall{Invocation: v}}
			if i < 2 {
				end := *v
				end.State, end.Output = toolkeep.CallSucceeded, []byte(`{"n":1}`)
				list = append(list, toolkeep.MoveCall{Invocation: &end, From: []toolkeep.CallState{toolkeep.CallRunning}})
			}
			for _, c := range list {
				mustApply(t, late, c)
				mustApply(t, soon, c)
			}
		}
		table(t, soon)
	}
	for round := range 10 {
		for i := range 25 {
			list := []toolkeep.Change{change()}
			if random.IntN(5) == 0 {
				list = append(list, change())
			}
			when := fmt.Sprintf("after %d of round %d, %+v", i, round, list)
			x, y := late.Apply(t.Context(), list...), soon.Apply(t.Context(), list...)
			if cause(x) != cause(y) {
				t.Fatalf("seed %d, %s: %v, and in the table %v", seed, when, x, y)
			}
			table(t, soon)
			same(late, soon, when)
		}
		if round%4 == 0 { // the copy has what is committed, as a crash leaves it, among it claims that no reader had copied
			batch(round)
			copied := path(t)
			if err := Backup(t.Context(), late.cfg.Path, copied); err != nil {
				t.Fatal(err)
			}
			withDB(t, copied, func(db *sql.DB) {
				var claims, outputs int
				if err := db.QueryRow("SELECT count(data), count(output) FROM claims").Scan(&claims, &outputs); err != nil || claims < 2 || outputs < 1 {
					t.Fatalf("seed %d: the copy has %d claims and %d outputs, %v", seed, claims, outputs, err)
				}
			})
			again := mustOpen(t, Config{Path: copied})
			same(again, soon, fmt.Sprint("opened again after round ", round))
			if n := count(t, again, "SELECT count(*) FROM claims"); n != 0 {
				t.Errorf("%d claims are left", n)
			}
			again.Close()
			copyClaims(t, late)
		}
		table(t, late)
		for _, s := range []*Store{late, soon} {
			if _, err := s.WriteDB().ExecContext(t.Context(), "DELETE FROM invocations"); err != nil {
				t.Fatal(err)
			}
		}
	}
}
