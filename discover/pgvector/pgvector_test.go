package pgvector_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"go.uber.org/goleak"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/discover"
	"github.com/toolkeep/toolkeep/discover/pgvector"
	"github.com/toolkeep/toolkeep/discover/vectortest"
	"github.com/toolkeep/toolkeep/store/postgres/pgtest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func backend(t *testing.T, c pgvector.Config) discover.Backend {
	t.Helper()
	b, err := pgvector.New(c)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestPgvector(t *testing.T) {
	server := pgtest.StartVector(t)
	vectortest.Run(t, func(t *testing.T) vectortest.Place {
		dsn, now := server.NewDatabase(t), time.Now()
		return vectortest.Place{
			Open: func(t *testing.T) discover.Backend {
				return backend(t, pgvector.Config{DSN: dsn, Clock: func() time.Time { return now }})
			},
			Later:  func() { now = now.AddDate(0, 0, 8) },
			Shared: true, Lasting: true,
			Cut: func(t *testing.T) func() {
				if err := server.Down(); err != nil {
					t.Fatal(err)
				}
				return func() {
					if err := server.Up(); err != nil {
						t.Fatal(err)
					}
				}
			},
		}
	})
}

// letters is an embedder that uses the first letter of a text.
type letters struct {
	name  string
	asked atomic.Int64
}

func (e *letters) Model() string { return e.name }
func (*letters) Dimensions() int { return 26 }

func (e *letters) Embed(_ context.Context, texts []string) ([][]float32, error) {
	out := make([][]float32, len(texts))
	for i, text := range texts {
		e.asked.Add(1)
		out[i] = make([]float32, 26)
		out[i][strings.ToLower(text)[0]-'a'] = 1
	}
	return out, nil
}

func tools(n int) []toolkeep.Version {
	out := make([]toolkeep.Version, n)
	for i := range out {
		id := fmt.Sprintf("t.%c%03d", 'a'+i%20, i)
		out[i] = toolkeep.Version{
			Tool: &toolkeep.Tool{ID: id, Version: "1.0.0", Digest: id, Manifest: &toolkeep.Manifest{ToolID: id, Version: "1.0.0"}},
			Life: toolkeep.Lifecycle{State: toolkeep.Active},
		}
	}
	return out
}

func started(t *testing.T, c discover.Config, all []toolkeep.Version) *discover.Index {
	t.Helper()
	x := discover.New(c)
	t.Cleanup(func() {
		if err := x.Close(); err != nil {
			t.Error(err)
		}
	})
	x.Update(slices.Values(all))
	if err := x.Start(); err != nil {
		t.Fatal(err)
	}
	return x
}

func eventually(t *testing.T, what string, done func() bool) {
	t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for until := time.Now().Add(time.Minute); !done(); <-tick.C {
		if time.Now().After(until) {
			t.Fatal(what)
		}
	}
}

func embedded(t *testing.T, x *discover.Index) {
	t.Helper()
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("%+v", x.Embedding())
		}
	})
	eventually(t, "not all tools are embedded", func() bool {
		have, of, _ := x.Embedded()
		return have == of
	})
}

func TestNodesShareVectors(t *testing.T) {
	dsn, all := pgtest.StartVector(t).NewDatabase(t), tools(300)
	first := &letters{name: "m"}
	one := started(t, discover.Config{Embedder: first, Vectors: backend(t, pgvector.Config{DSN: dsn})}, all)
	embedded(t, one)
	if n := first.asked.Load(); n != 300 {
		t.Errorf("%d texts were embedded", n)
	}
	second := &letters{name: "m"}
	two := started(t, discover.Config{Embedder: second, Vectors: backend(t, pgvector.Config{DSN: dsn})}, all)
	embedded(t, two)
	if n := second.asked.Load(); n != 0 {
		t.Errorf("the next node embedded %d texts", n)
	}
	ask := discover.Query{Text: "bike", Strategy: discover.Semantic, Limit: 200}
	a, r := one.Find(t.Context(), ask, nil)
	b, _ := two.Find(t.Context(), ask, nil)
	if len(a) != 15 || len(b) != 15 || r.Degraded != "" {
		t.Errorf("%d and %d tools, %+v", len(a), len(b), r)
	}
	// A new tool is embedded by the node that sees it first.
	more := append(tools(300), tools(301)[300:]...)
	two.Update(slices.Values(more))
	embedded(t, two)
	one.Update(slices.Values(more))
	embedded(t, one)
	if n := first.asked.Load() + second.asked.Load(); n != 303 { // and a query on each
		t.Errorf("%d texts were embedded", n)
	}
	// Another model is added; the first one answers until it is complete.
	third := &letters{name: "n"}
	three := started(t, discover.Config{Embedder: third, Vectors: backend(t, pgvector.Config{DSN: dsn}), Other: func(s discover.Space) discover.Embedder {
		if s != (discover.Space{Model: "m", Dimensions: 26, Vectors: 301}) {
			t.Errorf("%+v", s)
		}
		return first
	}}, more)
	embedded(t, three)
	if e := three.Embedding(); e.Serving != "n" || third.asked.Load() != 301 {
		t.Errorf("%+v, %d texts", e, third.asked.Load())
	}
}

// TestDegradesAndComesBack disconnects the server during searches.
func TestDegradesAndComesBack(t *testing.T) {
	server := pgtest.StartVector(t)
	e := &letters{name: "m"}
	x := started(t, discover.Config{Embedder: e, Vectors: backend(t, pgvector.Config{DSN: server.NewDatabase(t)})}, tools(40))
	embedded(t, x)
	find := func() ([]discover.Match, discover.Report) {
		return x.Find(t.Context(), discover.Query{Text: "b001"}, nil)
	}
	if got, r := find(); len(got) != 2 || r.Degraded != "" { // b001 by its name, b021 by its meaning
		t.Errorf("%d %+v", len(got), r)
	}
	if err := server.Down(); err != nil {
		t.Fatal(err)
	}
	got, r := find()
	if len(got) != 1 || r.Strategy != discover.Keyword || !strings.Contains(r.Degraded, "cannot be reached") {
		t.Errorf("%d %+v", len(got), r)
	}
	// A new tool is found by its words in the meantime.
	x.Update(slices.Values(tools(41)))
	eventually(t, "nobody is told that vectors cannot be kept", func() bool { return x.Embedding().Err != nil })
	if got, _ := x.Find(t.Context(), discover.Query{Text: "a040"}, nil); len(got) != 1 {
		t.Errorf("%d tools", len(got))
	}
	if err := server.Up(); err != nil {
		t.Fatal(err)
	}
	if got, r := find(); len(got) != 2 || r.Degraded != "" && !r.Partial { // the new tool may still be waiting
		t.Errorf("%d %+v", len(got), r)
	}
	embedded(t, x)
	if err := x.Embedding().Err; err != nil {
		eventually(t, "the failure stays", func() bool { return x.Embedding().Err == nil })
	}
}

// TestStartsWithoutTheServer starts while the server is unavailable.
func TestStartsWithoutTheServer(t *testing.T) {
	server := pgtest.StartVector(t)
	dsn := server.NewDatabase(t)
	if err := server.Down(); err != nil {
		t.Fatal(err)
	}
	x := discover.New(discover.Config{Embedder: &letters{name: "m"}, Vectors: backend(t, pgvector.Config{DSN: dsn})})
	defer x.Close()
	x.Update(slices.Values(tools(40)))
	if err := x.Start(); err == nil || !strings.Contains(err.Error(), "cannot be reached") {
		t.Error(err)
	}
	got, r := x.Find(t.Context(), discover.Query{Text: "b001"}, nil)
	if len(got) != 1 || !strings.Contains(r.Degraded, "the vectors cannot be reached, so only words are compared") {
		t.Errorf("%d %+v", len(got), r)
	}
	if err := server.Up(); err != nil {
		t.Fatal(err)
	}
	embedded(t, x)
	if got, r := x.Find(t.Context(), discover.Query{Text: "b001"}, nil); len(got) != 2 || r.Degraded != "" {
		t.Errorf("%d %+v", len(got), r)
	}
}

func sql(t *testing.T, dsn string, statements ...string) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), dsn)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.Background())
	for _, s := range statements {
		if _, err := conn.Exec(t.Context(), s); err != nil {
			t.Fatal(s, err)
		}
	}
}

func refusal(t *testing.T, dsn string) string {
	t.Helper()
	b := backend(t, pgvector.Config{DSN: dsn})
	defer b.Close()
	_, err := b.Open(t.Context(), "m", 3)
	var e *toolkeep.Error
	if !errors.As(err, &e) || e.Code != toolkeep.IndexUnavailable {
		t.Errorf("%v", err)
		return ""
	}
	return e.Message
}

func TestRefusals(t *testing.T) {
	if got := refusal(t, pgtest.Start(t).NewDatabase(t)); !strings.Contains(got, "has no pgvector: install") {
		t.Errorf("without the extension: %s", got)
	}
	server := pgtest.StartVector(t)
	name := server.NewName(t)
	dsn := server.DSN(name)
	sql(t, dsn, `CREATE ROLE plain LOGIN`, `REVOKE CREATE ON DATABASE `+name+` FROM PUBLIC`)
	plain := strings.Replace(dsn, "user=postgres", "user=plain", 1)
	if got := refusal(t, plain); !strings.Contains(got, "have an administrator run CREATE EXTENSION vector") {
		t.Errorf("without the right to make the extension: %s", got)
	}
	sql(t, dsn, `CREATE EXTENSION vector`)
	if got := refusal(t, plain); !strings.Contains(got, "permission denied for schema public") {
		t.Errorf("without the right to make tables: %s", got)
	}
	if got := refusal(t, strings.Replace(dsn, "dbname=", "dbname=no", 1)); !strings.Contains(got, "does not exist") {
		t.Errorf("without the database: %s", got)
	}
	for _, bad := range []string{"", "postgres://user:hush@host:port/db", "host=127.0.0.1 sslmode=hush"} {
		b, err := pgvector.New(pgvector.Config{DSN: bad})
		var e *toolkeep.Error
		if b != nil || !errors.As(err, &e) || e.Code != toolkeep.InvalidManifest || strings.Contains(err.Error(), "hush") {
			t.Errorf("%q: %v", bad, err)
		}
	}
}

// TestSchemas puts the extension into one schema and the tables into another.
func TestSchemas(t *testing.T) {
	dsn := pgtest.StartVector(t).NewDatabase(t)
	sql(t, dsn, `CREATE SCHEMA "Ext"`, `CREATE EXTENSION vector SCHEMA "Ext"`, `CREATE SCHEMA mine`)
	b := backend(t, pgvector.Config{DSN: dsn + " search_path=mine"})
	defer b.Close()
	v, err := b.Open(t.Context(), "m", 2)
	if err != nil {
		t.Fatal(err)
	}
	of := []discover.Digest{{1}}
	if err := v.Put(t.Context(), of, [][]float32{{1, 0}}); err != nil {
		t.Fatal(err)
	}
	to := [][]float32{{0}}
	if err := v.Select(of).Alike(t.Context(), [][]float32{{1, 0}}, to); err != nil || to[0][0] != 1 {
		t.Error(to, err)
	}
	// Large vectors do not fit into a page and are stored out of line.
	wide, err := b.Open(t.Context(), "wide", 8192)
	if err != nil {
		t.Fatal(err)
	}
	numbers := [][]float32{make([]float32, 8192)}
	numbers[0][8191] = 1
	if err := wide.Put(t.Context(), of, numbers); err != nil {
		t.Fatal(err)
	}
	if err := wide.Select(of).Alike(t.Context(), numbers, to); err != nil || to[0][0] != 1 {
		t.Error(to, err)
	}
	sql(t, dsn, `DROP TABLE mine.toolkeep_vectors_1`)
	if _, err := v.Have(t.Context(), of); err == nil || !strings.Contains(err.Error(), "a restart creates them") {
		t.Error(err)
	}
}

// TestTablesAreMadeOnce starts many nodes on an empty database at the same time.
func TestTablesAreMadeOnce(t *testing.T) {
	dsn := pgtest.StartVector(t).NewDatabase(t)
	var all sync.WaitGroup
	for n := range 8 {
		all.Go(func() {
			b, err := pgvector.New(pgvector.Config{DSN: dsn, MaxConns: 2})
			if err != nil {
				t.Error(err)
				return
			}
			defer b.Close()
			for _, model := range []string{"a", fmt.Sprint("b", n%2)} {
				if _, err := b.Open(t.Context(), model, 3); err != nil {
					t.Error(err)
				}
			}
			if _, err := b.Spaces(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	b := backend(t, pgvector.Config{DSN: dsn})
	defer b.Close()
	if spaces, err := b.Spaces(t.Context()); err != nil || len(spaces) != 3 {
		t.Error(spaces, err)
	}
}

// TestAbandonedModels drops a model's vectors once no node has used it for 30 days and another
// model has a vector for every text, not earlier.
func TestAbandonedModels(t *testing.T) {
	server := pgtest.StartVector(t)
	dsn, today := server.NewDatabase(t), time.Date(2020, 1, 1, 12, 0, 0, 0, time.UTC)
	var logged strings.Builder
	open := func(model string) (discover.Backend, discover.Vectors) {
		t.Helper()
		b := backend(t, pgvector.Config{DSN: dsn, Clock: func() time.Time { return today }, Log: slog.New(slog.NewTextHandler(&logged, nil))})
		t.Cleanup(func() {
			if err := b.Close(); err != nil {
				t.Error(err)
			}
		})
		v, err := b.Open(t.Context(), model, 2)
		if err != nil {
			t.Fatal(err)
		}
		return b, v
	}
	put := func(v discover.Vectors, of ...discover.Digest) {
		t.Helper()
		if err := v.Put(t.Context(), of, slices.Repeat([][]float32{{1, 0}}, len(of))); err != nil {
			t.Fatal(err)
		}
	}
	live := []discover.Digest{{1}, {2}}
	b, after := open("after")
	retain := func(v discover.Vectors, when string, want ...discover.Space) {
		t.Helper()
		if err := v.Retain(t.Context(), live); err != nil {
			t.Fatal(when, err)
		}
		if got, err := b.Spaces(t.Context()); err != nil || !slices.Equal(got, want) {
			t.Errorf("%s: %v, want %v: %v", when, got, want, err)
		}
	}
	_, before := open("before")
	put(before, live...)
	open("empty")
	old, none := discover.Space{Model: "before", Dimensions: 2, Vectors: 2}, discover.Space{Model: "empty", Dimensions: 2}
	now := func(n int) discover.Space { return discover.Space{Model: "after", Dimensions: 2, Vectors: n} }
	put(after, live[0])
	today = today.AddDate(0, 0, 31)
	retain(after, "while a text has no vector of the new model", now(1), old, none)
	put(after, live[1])
	retain(before, "a node that goes on with the old model", now(2), old, none)
	retain(after, "while another node uses the old model", now(2), old, none)
	today = today.AddDate(0, 0, 30)
	retain(after, "on the last day", now(2), old, none)
	// A node that opens the table marks one row.
	today = today.AddDate(0, 0, 1)
	_, again := open("before")
	retain(after, "opened again", now(2), old, none)
	if have, err := again.Have(t.Context(), live); err != nil || !have[0] || !have[1] {
		t.Error(have, err)
	}
	if logged.Len() != 0 {
		t.Error(logged.String())
	}
	today = today.AddDate(0, 0, 31)
	retain(after, "abandoned", now(2), none)
	if !strings.Contains(logged.String(), "no node used for 30 days are deleted") {
		t.Error(logged.String())
	}
	// A node that returns to the model gets an error, or starts over.
	if _, err := again.Have(t.Context(), live); err == nil || !strings.Contains(err.Error(), "a restart creates them") {
		t.Error(err)
	}
	_, anew := open("before")
	today = time.Now()
	put(anew, live[0])
	if have, err := anew.Have(t.Context(), live); err != nil || !have[0] || have[1] {
		t.Error(have, err)
	}
	today = today.AddDate(1, 0, 0)
	old.Vectors = 1
	retain(after, "by a clock that is a year ahead", now(2), none, old)
}
