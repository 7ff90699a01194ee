package personal_test

import (
	"bytes"
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"go.uber.org/goleak"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/audit"
	"github.com/toolkeep/toolkeep/secret"
	"github.com/toolkeep/toolkeep/store/personal"
	"github.com/toolkeep/toolkeep/store/postgres"
	"github.com/toolkeep/toolkeep/store/postgres/pgtest"
	"github.com/toolkeep/toolkeep/store/sqlite"
	"github.com/toolkeep/toolkeep/store/storetest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(pgtest.Main{M: m}) }

// raw is a store beneath.
type raw interface {
	personal.Store
	toolkeep.Watcher
	toolkeep.Chains
	Document(ctx context.Context, kind, tenant, id string) (toolkeep.Document, error)
	Documents(ctx context.Context, kind string) ([]toolkeep.Document, int64, error)
	Close() error
}

type beneath struct{ raw }

// node is a process with a store.
type node struct {
	beneath
	*personal.Sealed
	keys *personal.Keys
	stop func()
}

// place is a database with all that is stored in it.
type place struct {
	*testing.T
	open   func() raw
	bytes  func() []byte
	sealer *secret.Sealer
}

func quiet() *slog.Logger { return slog.New(slog.DiscardHandler) }

func (p *place) node(seals bool) *node {
	p.Helper()
	s := p.open()
	n := &node{beneath: beneath{s}, keys: personal.NewKeys(s, quiet())}
	n.keys.Use(p.sealer)
	n.Sealed = personal.NewSealed(s, n.keys, seals)
	f := toolkeep.NewFollowing(s, func(string) *slog.Logger { return quiet() })
	if err := f.Start(p.Context(), "audit", "keys", n.keys); err != nil {
		p.Fatal(err)
	}
	n.stop = sync.OnceFunc(func() {
		f.Stop()
		if err := s.Close(); err != nil {
			p.Error(err)
		}
	})
	p.Cleanup(n.stop)
	return n
}

func eachStore(t *testing.T, run func(p *place)) {
	t.Run("sqlite", func(t *testing.T) {
		sealer, err := secret.NewSealer()
		if err != nil {
			t.Fatal(err)
		}
		dir := t.TempDir()
		run(&place{t, func() raw {
			s, err := sqlite.Open(context.Background(), sqlite.Config{Path: filepath.Join(dir, "toolkeep.db"), Log: quiet()})
			if err != nil {
				t.Fatal(err)
			}
			return s
		}, func() (all []byte) {
			files, _ := filepath.Glob(filepath.Join(dir, "*"))
			for _, f := range files {
				b, err := os.ReadFile(f)
				if err != nil {
					t.Fatal(err)
				}
				all = append(all, b...)
			}
			return all
		}, sealer})
	})
	t.Run("postgres", func(t *testing.T) {
		sealer, err := secret.NewSealer()
		if err != nil {
			t.Fatal(err)
		}
		dsn := pgtest.NewDatabase(t)
		run(&place{t, func() raw {
			s, err := postgres.Open(context.Background(), postgres.Config{DSN: dsn, Log: quiet()})
			if err != nil {
				t.Fatal(err)
			}
			return s
		}, func() []byte { return dump(t, dsn) }, sealer})
	})
}

// dump returns the rows of all tables, the bytes of columns among them.
func dump(t *testing.T, dsn string) (all []byte) {
	ctx := context.Background()
	conn, err := pgx.Connect(ctx, dsn)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(ctx)
	rows, _ := conn.Query(ctx, `SELECT c.oid::regclass::text FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace
		WHERE c.relkind IN ('r', 'p') AND n.nspname NOT IN ('pg_catalog', 'information_schema')`)
	tables, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil || len(tables) < 5 {
		t.Fatal(tables, err)
	}
	for _, name := range tables {
		rows, _ := conn.Query(ctx, `SELECT t::text FROM `+name+` AS t`)
		list, err := pgx.CollectRows(rows, pgx.RowTo[string])
		if err != nil {
			t.Fatal(err)
		}
		for _, row := range list {
			all = append(append(all, row...), '\n')
			for part := range strings.SplitSeq(row, `\x`) { // bytea is shown in hex
				end := strings.IndexFunc(part, func(r rune) bool { return !strings.ContainsRune("0123456789abcdef", r) })
				if end < 0 {
					end = len(part)
				}
				b, _ := hex.DecodeString(part[:end&^1])
				all = append(all, b...)
			}
		}
	}
	return all
}

const marker = "Margarethe.Mustermann"

// ended returns a call of a person with everything that a record can tell.
func ended(id, person string) *toolkeep.Invocation {
	v := storetest.FullCall(id, toolkeep.CallFailed, 1)
	v.Sealed, v.Withheld = nil, ""
	v.OnBehalf, v.CreatedAt, v.EndedAt = person, time.Now().UTC().Truncate(time.Microsecond), time.Now().UTC().Truncate(time.Microsecond)
	v.Message = marker + " is not known"
	v.Details = json.RawMessage(`{"name":"` + marker + `"}`)
	v.Output = []byte(`{"customer":"` + marker + `"}`)
	v.Warnings = []toolkeep.Warning{{Code: toolkeep.ResultTooLarge, Message: marker, Details: map[string]any{"of": marker}}}
	v.Attachments = []toolkeep.Attachment{{Kind: "blob", URL: "/api/v1/blobs/" + marker}}
	for _, f := range []*string{&v.CancelBy, &v.CancelWhy} {
		*f = ""
	}
	v.Progress = toolkeep.Progress{}
	return v
}

func eventOf(id, person string) toolkeep.AppendEvent {
	return toolkeep.AppendEvent{Event: toolkeep.Event{ID: id, Type: "ai.agent.tool.secret.accessed", Tenant: "t", Time: time.Now(), Person: person,
		Data: []byte(`{"agent_id":"a","on_behalf_of":"` + person + `","note":"` + marker + `"}`)}}
}

func (n *node) apply(t testing.TB, changes ...toolkeep.Change) {
	t.Helper()
	if err := n.Apply(t.Context(), changes...); err != nil {
		t.Fatal(err)
	}
}

func (n *node) get(t testing.TB, id string) *toolkeep.Invocation {
	t.Helper()
	v, err := n.Invocations().Get(t.Context(), toolkeep.CallRef{Tenant: "t", ID: id})
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func same(t testing.TB, got, want *toolkeep.Invocation, but ...string) {
	t.Helper()
	for _, d := range storetest.Differences(got, want) {
		name, _, _ := strings.Cut(d, ":")
		if !strings.Contains(" "+strings.Join(but, " ")+" ", " "+name+" ") {
			t.Error("differs in " + d)
		}
	}
}

// claimed records a call that waited before it ended.
func (n *node) claimed(t testing.TB, id, person string) {
	t.Helper()
	v := ended(id, person)
	first := *v
	first.State, first.Output = toolkeep.CallRunning, nil
	first.OnBehalf, first.Message, first.Details, first.Warnings, first.Attachments = "", "", nil, nil, nil
	n.apply(t, toolkeep.ClaimCall{Invocation: &first})
	n.apply(t, toolkeep.MoveCall{Invocation: v, From: []toolkeep.CallState{toolkeep.CallRunning}})
}

// TestErase: what is recorded of a person is sealed at rest, is read back whole, and is gone with the key, while the
// chain verifies all the time.
func TestErase(t *testing.T) {
	eachStore(t, func(p *place) {
		n := p.node(true)
		log := audit.New(audit.Config{Store: n, Sealer: p.sealer, Log: quiet()})
		verify := func(entries int) {
			p.Helper()
			if err := log.Checkpoint(p.Context()); err != nil {
				p.Fatal(err)
			}
			r, err := log.Verify(p.Context(), audit.Query{Tenant: "t"})
			if err != nil || !r.Intact || r.Entries < entries {
				p.Errorf("verify: %+v, %v", r, err)
			}
		}
		n.apply(p, toolkeep.RecordCall{Invocation: ended("a", marker)}, eventOf("e", marker))
		n.claimed(p, "b", marker)
		n.apply(p, toolkeep.RecordCall{Invocation: ended("other", "other person")})
		waiting := storetest.WaitingOnly()
		same(p, n.get(p, "a"), ended("a", marker), append(waiting, "CreatedAt", "EndedAt")...)
		same(p, n.get(p, "b"), ended("b", marker), append(waiting, "CreatedAt", "EndedAt")...)
		for _, e := range storetest.Entries(p.Context(), p, n) {
			if e.Event != nil && !bytes.Contains(e.Event.Data, []byte(marker)) {
				p.Errorf("the event is %s", e.Event.Data)
			}
		}
		verify(4)
		if bytes.Contains(p.bytes(), []byte(marker)) {
			p.Error("what is recorded of a person is at rest in the clear")
		}

		for person, want := range map[string]bool{marker: true, "a stranger": false} {
			if has, err := n.Has(p.Context(), "t", person); err != nil || has != want {
				p.Errorf("%s has a key: %v, %v", person, has, err)
			}
		}
		found, err := n.keys.Destroy(p.Context(), "t", marker, "admin", toolkeep.AppendEvent{Event: toolkeep.Event{ID: "erased", Type: "ai.agent.audit.erased", Tenant: "t",
			Time: time.Now(), Data: []byte(`{"erased_by":"admin"}`)}})
		if err != nil || !found {
			p.Fatal(found, err)
		}
		if found, err := n.keys.Destroy(p.Context(), "t", marker, "admin"); err != nil || found {
			p.Error("a second erasure found a key:", found, err)
		}
		check := func(n *node) {
			p.Helper()
			for _, id := range []string{"a", "b"} {
				v := n.get(p, id)
				if raw, _ := json.Marshal(v); v.Withheld != toolkeep.Erased || bytes.Contains(raw, []byte(marker)) || v.Output != nil || v.Sealed != nil || v.ToolID == "" || v.State != toolkeep.CallFailed {
					p.Errorf("%s is %s", id, raw)
				}
			}
			list, _, err := n.Invocations().List(p.Context(), toolkeep.InvocationFilter{Tenant: "t", Limit: 10})
			if err != nil || len(list) != 3 {
				p.Error(list, err)
			}
			var erased, events int
			for _, e := range storetest.Entries(p.Context(), p, n) {
				if e.Call != nil && e.Call.Withheld == toolkeep.Erased {
					erased++
				}
				if e.Event != nil && e.Event.ID == "e" && string(e.Event.Data) == `{"agent_id":"a","erased":true}` {
					events++
				}
			}
			if erased != 2 || events != 1 {
				p.Errorf("%d calls and %d events are erased", erased, events)
			}
			if v := n.get(p, "other"); v.OnBehalf != "other person" {
				p.Errorf("another person's call is %+v", v)
			}
		}
		check(n)
		verify(5)

		// The person calls again: with another key.
		n.apply(p, toolkeep.RecordCall{Invocation: ended("again", marker)})
		if v := n.get(p, "again"); v.OnBehalf != marker || v.Withheld != "" {
			p.Errorf("a call after the erasure is %+v", v)
		}
		// What is written again of an erased call, as when its answer expires, stays erased.
		v := *n.get(p, "b")
		v.State = toolkeep.CallExpired
		n.apply(p, toolkeep.MoveCall{Invocation: &v, From: []toolkeep.CallState{toolkeep.CallFailed}})
		if v := n.get(p, "b"); v.Withheld != toolkeep.Erased || v.State != toolkeep.CallExpired {
			p.Errorf("an erased call that expired is %+v", v)
		}
		n.stop()
		again := p.node(true)
		log = audit.New(audit.Config{Store: again, Sealer: p.sealer, Log: quiet()})
		if v := again.get(p, "a"); v.Withheld != toolkeep.Erased {
			p.Errorf("after a restart it is %+v", v)
		}
		verify(6)
	})
}

// TestExpiryOfErased: a result that expires is sealed with no other key, also where its person is erased between the
// reading and the writing; of one that is not erased the rest stays readable.
func TestExpiryOfErased(t *testing.T) {
	eachStore(t, func(p *place) {
		n := p.node(true)
		for id, person := range map[string]string{"a": marker, "b": "other person"} {
			v := ended(id, person)
			v.Key, v.State, v.Async, v.FetchedAt, v.ExpiresAt = "", toolkeep.CallFailed, true, time.Time{}, time.Now().Add(-time.Minute).UTC()
			first := *v
			first.State, first.Output = toolkeep.CallRunning, nil
			n.apply(p, toolkeep.ClaimCall{Invocation: &first})
			n.apply(p, toolkeep.MoveCall{Invocation: v, From: []toolkeep.CallState{toolkeep.CallRunning}})
		}
		list, err := n.Invocations().Unfetched(p.Context(), time.Now(), 10)
		if err != nil || len(list) != 2 {
			p.Fatal(len(list), err)
		}
		if _, err := n.keys.Destroy(p.Context(), "t", marker, "admin"); err != nil {
			p.Fatal(err)
		}
		for _, v := range list {
			v.State, v.Output, v.Attachments, v.Message = toolkeep.CallExpired, nil, nil, "not fetched"
			n.apply(p, toolkeep.MoveCall{Invocation: v, From: []toolkeep.CallState{toolkeep.CallFailed}})
		}
		if raw, _ := json.Marshal(n.get(p, "a")); bytes.Contains(raw, []byte(marker)) || n.get(p, "a").Withheld != toolkeep.Erased {
			p.Errorf("an erased call that expired is %s", raw)
		}
		if v := n.get(p, "b"); v.OnBehalf != "other person" || v.Message != "not fetched" || v.Output != nil || v.Attachments != nil || v.Withheld != "" {
			p.Errorf("a call that expired is %+v", v)
		}
		if list, _, err := n.Documents(p.Context(), audit.PersonKind); err != nil || len(list) != 1 {
			p.Errorf("%d keys, %v", len(list), err)
		}
	})
}

// TestNotSealed: records of before and of a server that does not seal are read, and sealed ones are by one that seals no more.
func TestNotSealed(t *testing.T) {
	eachStore(t, func(p *place) {
		n := p.node(false)
		n.apply(p, toolkeep.RecordCall{Invocation: ended("old", marker)}, eventOf("e1", marker))
		n.stop()
		n = p.node(true)
		n.apply(p, toolkeep.RecordCall{Invocation: ended("sealed", marker)}, eventOf("e2", marker))
		n.stop()
		n = p.node(false)
		for _, id := range []string{"old", "sealed"} {
			if v := n.get(p, id); v.OnBehalf != marker || v.Message == "" || len(v.Output) == 0 {
				p.Errorf("%s is %+v", id, v)
			}
		}
		if n := len(storetest.Entries(p.Context(), p, n)); n != 4 {
			p.Errorf("%d entries", n)
		}
	})
}

// giveUp does what a start with the file seal.lost does (package control/secrets).
func (n *node) giveUp(t testing.TB, s *secret.Sealer, kinds ...string) {
	t.Helper()
	for _, kind := range kinds {
		list, _, err := n.Documents(t.Context(), kind)
		if err != nil || len(list) == 0 {
			t.Fatal(len(list), err)
		}
		for _, d := range list {
			body, done, err := audit.GiveUpPerson(s, &d)
			if err != nil {
				t.Fatal(err)
			}
			if done {
				d.Body = body
				n.apply(t, toolkeep.PutDocument{Document: d, Expect: d.Revision, OmitBody: true})
			}
		}
	}
}

// TestLostSealingKey: a node without the sealing key replaces no key and records nothing. When the key was given up, what
// it sealed is unreadable, and not erased, new records are readable, and an erasure then erases those.
func TestLostSealingKey(t *testing.T) {
	eachStore(t, func(p *place) {
		n := p.node(true)
		n.apply(p, toolkeep.RecordCall{Invocation: ended("a", marker)}, eventOf("e", marker))
		n.stop()
		had := p.sealer
		var err error
		if p.sealer, err = secret.NewSealer(); err != nil {
			p.Fatal(err)
		}
		n = p.node(true)
		is := func(id string, want toolkeep.Withheld) {
			p.Helper()
			v := n.get(p, id)
			if v.Withheld != want || want == "" && v.OnBehalf != marker || want != "" && (v.OnBehalf != "" || v.Output != nil) {
				p.Errorf("it is %+v, want %q", v, want)
			}
		}
		is("a", toolkeep.Unreadable)
		for _, person := range []string{marker, "a new person"} {
			if err := n.Apply(p.Context(), toolkeep.RecordCall{Invocation: ended("b", person)}); !errors.Is(err, toolkeep.ErrKeyAway) {
				p.Errorf("a call of %s without the sealing key: %v", person, err)
			}
		}
		if _, err := n.keys.Destroy(p.Context(), "t", marker, "admin"); !errors.Is(err, toolkeep.ErrKeyAway) {
			p.Error("an erasure without the sealing key:", err)
		}
		n.stop()

		lost := p.sealer
		p.sealer = had
		n = p.node(true)
		is("a", "")
		n.stop()

		p.sealer = lost
		n = p.node(true)
		n.giveUp(p, lost, audit.PersonKind, audit.PersonDigestKind)
		is("a", toolkeep.Unreadable)
		n.apply(p, toolkeep.RecordCall{Invocation: ended("b", marker)})
		is("a", toolkeep.Unreadable)
		is("b", "")
		for _, e := range storetest.Entries(p.Context(), p, n) {
			if e.Event != nil && e.Event.ID == "e" && string(e.Event.Data) != `{"agent_id":"a","unreadable":true}` {
				p.Errorf("the event is %s", e.Event.Data)
			}
		}
		if found, err := n.keys.Destroy(p.Context(), "t", marker, "admin"); err != nil || !found {
			p.Error(found, err)
		}
		is("b", toolkeep.Erased)
		n.apply(p, toolkeep.RecordCall{Invocation: ended("c", marker)})
		is("b", toolkeep.Erased)
		is("c", "")
	})
}

// TestGivenUpAlone: where the key of digests opens, a new key stands in the place of the one that was given up. What that
// one sealed is unreadable still, and erased after an erasure.
func TestGivenUpAlone(t *testing.T) {
	eachStore(t, func(p *place) {
		n := p.node(true)
		n.apply(p, toolkeep.RecordCall{Invocation: ended("a", marker)})
		other, err := secret.NewSealer()
		if err != nil {
			p.Fatal(err)
		}
		n.giveUp(p, other, audit.PersonKind)
		n.stop()
		n = p.node(true)
		n.apply(p, toolkeep.RecordCall{Invocation: ended("b", marker)})
		if a, b := n.get(p, "a"), n.get(p, "b"); a.Withheld != toolkeep.Unreadable || b.OnBehalf != marker {
			p.Errorf("they are %+v and %+v", a, b)
		}
		if found, err := n.keys.Destroy(p.Context(), "t", marker, "admin"); err != nil || !found {
			p.Error(found, err)
		}
		if a, b := n.get(p, "a"), n.get(p, "b"); a.Withheld != toolkeep.Erased || b.Withheld != toolkeep.Erased {
			p.Errorf("after an erasure they are %+v and %+v", a, b)
		}
	})
}

// TestFollowsReplacedKeys: a node drops the keys in memory that another one replaced.
func TestFollowsReplacedKeys(t *testing.T) {
	eachStore(t, func(p *place) {
		n := p.node(true)
		n.apply(p, toolkeep.RecordCall{Invocation: ended("a", marker)})
		before, err := n.keys.Digest(p.Context(), "t", marker)
		if err != nil {
			p.Fatal(err)
		}
		other, err := secret.NewSealer()
		if err != nil {
			p.Fatal(err)
		}
		n.giveUp(p, other, audit.PersonKind, audit.PersonDigestKind)
		deadline := time.Now().Add(time.Minute)
		for {
			after, err := n.keys.Digest(p.Context(), "t", marker)
			if err != nil {
				p.Fatal(err)
			}
			if v := n.get(p, "a"); after != before && v.Withheld == toolkeep.Unreadable {
				break
			}
			if time.Now().After(deadline) {
				p.Fatal("it has the replaced keys still")
			}
			time.Sleep(5 * time.Millisecond)
		}
	})
}

// TestMoved: a sealed value opens in its own entry alone.
func TestMoved(t *testing.T) {
	eachStore(t, func(p *place) {
		n := p.node(true)
		n.apply(p, toolkeep.RecordCall{Invocation: ended("a", marker)})
		v, err := n.raw.Invocations().Get(p.Context(), toolkeep.CallRef{Tenant: "t", ID: "a"})
		if err != nil || len(v.Sealed) == 0 {
			p.Fatal(v, err)
		}
		w := *v
		w.ID = "b"
		if err := n.raw.Apply(p.Context(), toolkeep.RecordCall{Invocation: &w}); err != nil {
			p.Fatal(err)
		}
		if v := n.get(p, "b"); v.Withheld != toolkeep.Unreadable || v.OnBehalf != "" || v.Message != "" || v.Output != nil {
			p.Errorf("a record with another's sealed part is %+v", v)
		}
	})
}

// TestDamaged: a damaged value or key is unreadable by itself, and keeps no other entry from its reader.
func TestDamaged(t *testing.T) {
	eachStore(t, func(p *place) {
		n := p.node(true)
		n.apply(p, toolkeep.RecordCall{Invocation: ended("good", "good person")}, eventOf("e", marker))
		n.apply(p, toolkeep.RecordCall{Invocation: ended("first", marker)})
		whole, err := n.raw.Invocations().Get(p.Context(), toolkeep.CallRef{Tenant: "t", ID: "good"})
		if err != nil {
			p.Fatal(err)
		}
		for id, change := range map[string]func(v *toolkeep.Invocation){
			"short":  func(v *toolkeep.Invocation) { v.Sealed = v.Sealed[:3] },
			"value":  func(v *toolkeep.Invocation) { v.Sealed[len(v.Sealed)-1] ^= 1 },
			"output": func(v *toolkeep.Invocation) { v.Output = []byte("x") },
		} {
			v := *whole
			v.ID, v.Sealed = id, bytes.Clone(whole.Sealed)
			change(&v)
			if err := n.raw.Apply(p.Context(), toolkeep.RecordCall{Invocation: &v}); err != nil {
				p.Fatal(err)
			}
		}
		name, err := n.keys.Digest(p.Context(), "t", marker)
		if err != nil {
			p.Fatal(err)
		}
		n.apply(p, toolkeep.PutDocument{Document: toolkeep.Document{Kind: audit.PersonKind, Tenant: "t", ID: name, Body: []byte(`{"sealed":"AAAA"}`)}, Expect: toolkeep.AnyRevision, OmitBody: true})
		n.stop()
		n = p.node(true)
		list, _, err := n.Invocations().List(p.Context(), toolkeep.InvocationFilter{Tenant: "t", Limit: 10})
		if err != nil || len(list) != 5 {
			p.Fatal(len(list), err)
		}
		for _, v := range list {
			if want := v.ID == "good"; (v.Withheld == "") != want || (v.OnBehalf != "") != want || !want && v.Withheld != toolkeep.Unreadable {
				p.Errorf("%s is %+v", v.ID, v)
			}
		}
		if got := len(storetest.Entries(p.Context(), p, n)); got != 6 {
			p.Errorf("%d entries", got)
		}
	})
}

// TestTwoNodes: nodes that meet a person at once have one key, and both lose it with an erasure on one.
func TestTwoNodes(t *testing.T) {
	sealer, err := secret.NewSealer()
	if err != nil {
		t.Fatal(err)
	}
	dsn := pgtest.NewDatabase(t)
	p := &place{T: t, sealer: sealer, open: func() raw {
		s, err := postgres.Open(context.Background(), postgres.Config{DSN: dsn, Log: quiet()})
		if err != nil {
			t.Fatal(err)
		}
		return s
	}}
	nodes := []*node{p.node(true), p.node(true)}
	const people = 20
	var all sync.WaitGroup
	for i := range 8 * people {
		all.Go(func() {
			n := nodes[i%2]
			if err := n.Apply(context.Background(), toolkeep.RecordCall{Invocation: ended(fmt.Sprint("c", i), fmt.Sprint("person ", i/2%people))}); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	if list, _, err := nodes[0].Documents(t.Context(), audit.PersonKind); err != nil || len(list) != people {
		t.Errorf("%d keys of %d people, %v", len(list), people, err)
	}
	for i := range 8 * people {
		if v := nodes[(i+1)%2].get(t, fmt.Sprint("c", i)); v.OnBehalf != fmt.Sprint("person ", i/2%people) {
			t.Errorf("on the other node it is %+v", v)
		}
	}
	if _, err := nodes[0].keys.Destroy(t.Context(), "t", "person 0", "admin"); err != nil {
		t.Fatal(err)
	}
	deadline := time.Now().Add(time.Minute)
	for nodes[1].get(t, "c0").Withheld != toolkeep.Erased {
		if time.Now().After(deadline) {
			t.Fatal("the other node still has the key")
		}
		time.Sleep(5 * time.Millisecond)
	}
	for _, n := range []*node{nodes[1], nodes[0]} {
		n.apply(t, toolkeep.RecordCall{Invocation: ended("later"+fmt.Sprint(n == nodes[0]), "person 0")})
	}
	for i := range 8 {
		v := nodes[i%2].get(t, "later"+fmt.Sprint(i%4 > 1))
		if v.OnBehalf != "person 0" {
			t.Errorf("a later call is %+v", v)
		}
	}
}

// TestEraseWhileCalled: records of a person who is erased meanwhile are whole or erased, and none fails.
func TestEraseWhileCalled(t *testing.T) {
	eachStore(t, func(p *place) {
		n := p.node(true)
		ctx, stop := context.WithCancel(p.Context())
		var erasing, all sync.WaitGroup
		erasing.Go(func() {
			for ctx.Err() == nil {
				if _, err := n.keys.Destroy(ctx, "t", "person 1", "admin"); err != nil && ctx.Err() == nil {
					p.Error(err)
				}
			}
		})
		const calls = 200
		for w := range 4 {
			all.Go(func() {
				for i := w; i < calls; i += 4 {
					id := fmt.Sprint("c", i)
					if err := n.Apply(context.Background(), toolkeep.RecordCall{Invocation: ended(id, fmt.Sprint("person ", i%3))}); err != nil {
						p.Error(err)
					}
					if _, err := n.Invocations().Get(context.Background(), toolkeep.CallRef{Tenant: "t", ID: id}); err != nil {
						p.Error(err)
					}
				}
			})
		}
		all.Wait()
		stop()
		erasing.Wait()
		if _, err := n.keys.Destroy(p.Context(), "t", "person 1", "admin"); err != nil {
			p.Fatal(err)
		}
		for i := range calls {
			v := n.get(p, fmt.Sprint("c", i))
			if want := fmt.Sprint("person ", i%3); i%3 == 1 && v.Withheld != toolkeep.Erased || i%3 != 1 && v.OnBehalf != want {
				p.Errorf("c%d is %+v", i, v)
			}
		}
	})
}

// failing is a store whose Apply fails while it is set.
type failing struct {
	raw
	mu  sync.Mutex
	err error
}

func (f *failing) Apply(ctx context.Context, changes ...toolkeep.Change) error {
	f.mu.Lock()
	err := f.err
	f.mu.Unlock()
	if err != nil {
		return err
	}
	return f.raw.Apply(ctx, changes...)
}

func (f *failing) ApplyWithin(ctx context.Context, changes ...toolkeep.Change) error {
	return f.Apply(ctx, changes...)
}

// TestAway: where the key cannot be made nothing is recorded in the clear, and an erasure that failed is done by the next one.
func TestAway(t *testing.T) {
	eachStore(t, func(p *place) {
		s := &failing{raw: p.open()}
		defer s.Close()
		keys := personal.NewKeys(s, quiet())
		sealed := personal.NewSealed(s, keys, true)
		record := func(id string) error {
			return sealed.Apply(p.Context(), toolkeep.RecordCall{Invocation: ended(id, marker)})
		}
		if err := record("a"); err == nil {
			p.Error("it was recorded without a sealing key")
		}
		keys.Use(p.sealer)
		away := errors.New("away")
		s.err = away
		if err := record("a"); !errors.Is(err, away) {
			p.Error(err)
		}
		s.err = nil
		if err := record("a"); err != nil {
			p.Fatal(err)
		}
		s.err = away
		if found, err := keys.Destroy(p.Context(), "t", marker, "admin"); !errors.Is(err, away) || found {
			p.Error(found, err)
		}
		s.err = nil
		if found, err := keys.Destroy(p.Context(), "t", marker, "admin"); err != nil || !found {
			p.Error(found, err)
		}
		v, err := sealed.Invocations().Get(p.Context(), toolkeep.CallRef{Tenant: "t", ID: "a"})
		if err != nil || v.Withheld != toolkeep.Erased {
			p.Error(v, err)
		}
	})
}

// slow is a store whose ApplyWithin leaves a commit of documents under way until its caller leaves.
type slow struct{ raw }

func (s slow) ApplyWithin(ctx context.Context, changes ...toolkeep.Change) error {
	if _, ok := changes[0].(toolkeep.PutDocument); !ok {
		return s.raw.ApplyWithin(ctx, changes...)
	}
	<-ctx.Done()
	return &toolkeep.PendingError{End: make(chan error)}
}

// TestKeyWithin: the making of a person's first key ends with the caller's context, and what it was to seal is not
// taken for under way.
func TestKeyWithin(t *testing.T) {
	eachStore(t, func(p *place) {
		s := slow{p.open()}
		defer s.Close()
		keys := personal.NewKeys(s, quiet())
		keys.Use(p.sealer)
		ctx, cancel := context.WithTimeout(p.Context(), 20*time.Millisecond)
		defer cancel()
		err := personal.NewSealed(s, keys, true).ApplyWithin(ctx, toolkeep.RecordCall{Invocation: ended("a", marker)})
		if left := (*toolkeep.PendingError)(nil); !errors.Is(err, context.DeadlineExceeded) || errors.As(err, &left) {
			p.Errorf("it is %v", err)
		}
	})
}
