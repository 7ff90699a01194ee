package discover

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/toolkeep/toolkeep"
)

// topics is an embedder that knows which of a few topics a text is about.
type topics struct {
	mu    sync.Mutex
	asked []string
	fails error
	block chan struct{} // nil: answers do not wait
}

var topicWords = [][]string{{"weather", "rain", "umbrella"}, {"mail", "message", "letter"}, {"sum", "add", "numbers"}}

func (*topics) Model() string   { return "topics" }
func (*topics) Dimensions() int { return len(topicWords) + 1 }

func (e *topics) Embed(ctx context.Context, texts []string) ([][]float32, error) {
	e.mu.Lock()
	e.asked = append(e.asked, texts...)
	fails, block := e.fails, e.block
	e.mu.Unlock()
	if block != nil {
		select {
		case <-block:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	if fails != nil {
		return nil, fails
	}
	out := make([][]float32, len(texts))
	for i, text := range texts {
		out[i] = make([]float32, e.Dimensions())
		out[i][len(topicWords)] = 1
		for k, list := range topicWords {
			for _, w := range list {
				if strings.Contains(strings.ToLower(text), w) {
					clear(out[i])
					out[i][k] = 1
				}
			}
		}
	}
	return out, nil
}

func (e *topics) count() int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return len(e.asked)
}

func (e *topics) set(fails error, block chan struct{}) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.fails, e.block = fails, block
}

var threeTools = []toolkeep.Version{
	tool("sky.now", "1.0.0", "Get the weather of a city"),
	tool("post.send", "1.0.0", "Deliver a mail"),
	tool("math.sum", "1.0.0", "Add numbers"),
}

func meaningIndex(t *testing.T, e Embedder, tools ...toolkeep.Version) *Index {
	t.Helper()
	x := New(Config{Embedder: e, EmbedTime: 5 * time.Second})
	x.Update(slices.Values(tools))
	if err := x.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := x.Close(); err != nil {
			t.Error(err)
		}
	})
	return x
}

func embedded(t *testing.T, x *Index, n int) {
	t.Helper()
	eventually(t, fmt.Sprintf("not %d tools are embedded", n), func() bool {
		have, of, _ := x.Embedded()
		return have == n && of >= n
	})
}

func TestFindByMeaning(t *testing.T) {
	e := &topics{}
	x := meaningIndex(t, e, threeTools...)
	embedded(t, x, 3)
	for _, c := range []struct {
		query    string
		strategy Strategy
		want     string
	}{
		{"do I need an umbrella", "", "[sky.now@1.0.0]"},
		{"do I need an umbrella", Semantic, "[sky.now@1.0.0]"},
		{"do I need an umbrella", Keyword, "[]"},
		{"write a letter in the city", "", "[post.send@1.0.0 sky.now@1.0.0]"},
		{"write a letter in the city", Semantic, "[post.send@1.0.0]"},
		{"write a letter in the city", Keyword, "[sky.now@1.0.0]"},
		{"submarine", "", "[]"},
		{"", "", "[]"},
	} {
		got, r := x.Find(t.Context(), Query{Text: c.query, Strategy: c.strategy}, nil)
		if fmt.Sprint(found(got)) != c.want || r.Degraded != "" {
			t.Errorf("%q by %q: %v, want %s; %+v", c.query, c.strategy, found(got), c.want, r)
		}
	}
	got, _ := x.Find(t.Context(), Query{Text: "write a letter in the city"}, nil)
	if got[0].Semantic != 1 || got[0].Keyword != 0 || got[1].Semantic != 0 || got[1].Keyword != 1 {
		t.Errorf("%+v", got)
	}
	before := e.count()
	if x.Search("do I need an umbrella", 0, nil); e.count() != before {
		t.Error("a query that was asked before is embedded again")
	}
	// A new tool is found, a changed one is embedded again.
	x.Update(slices.Values(append(slices.Clone(threeTools[:2]), tool("math.sum", "1.0.1", "Of a list"), tool("sky.soon", "1.0.0", "Will there be rain"))))
	embedded(t, x, 4)
	if got := found(x.Search("umbrella", 0, nil)); !slices.Equal(got, []string{"sky.now@1.0.0", "sky.soon@1.0.0"}) {
		t.Errorf("%v", got)
	}
	if n := e.count() - before; n != 3 { // two tools and a query
		t.Errorf("%d texts were embedded", n)
	}
}

func TestFindWithoutMeaning(t *testing.T) {
	x := index(threeTools...)
	got, r := x.Find(t.Context(), Query{Text: "weather"}, nil)
	if len(got) != 1 || r.Strategy != Keyword || !strings.Contains(r.Degraded, "models install") || !r.WordsAlone {
		t.Errorf("%v %+v", found(got), r)
	}
	e := &topics{fails: errors.New("no memory")}
	x = meaningIndex(t, e, threeTools...)
	eventually(t, "nobody is told that the embedder fails", func() bool {
		_, _, err := x.Embedded()
		return err != nil
	})
	got, r = x.Find(t.Context(), Query{Text: "weather"}, nil)
	if len(got) != 1 || r.Strategy != Keyword || !strings.Contains(r.Degraded, "does not answer") || !strings.Contains(r.Degraded, "0 of 3 tools") || r.WordsAlone {
		t.Errorf("%v %+v", found(got), r)
	}
	// It works again: the next round embeds what is missing.
	e.set(nil, nil)
	embedded(t, x, 3)
	// Later it fails for a query.
	e.set(errors.New("no memory"), nil)
	got, r = x.Find(t.Context(), Query{Text: "weather"}, nil)
	if len(got) != 1 || r.Strategy != Keyword || !strings.Contains(r.Degraded, "does not answer") || r.WordsAlone {
		t.Errorf("%v %+v", found(got), r)
	}
}

// eventually waits until done is true.
func eventually(t *testing.T, otherwise string, done func() bool) {
	t.Helper()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for until := time.Now().Add(time.Minute); !done(); <-tick.C {
		if time.Now().After(until) {
			t.Fatal(otherwise)
		}
	}
}

func TestFindWhileTheEmbedderHangs(t *testing.T) {
	e := &topics{}
	x := New(Config{Embedder: e, EmbedTime: 10 * time.Millisecond})
	x.Update(slices.Values(threeTools))
	if err := x.Start(); err != nil {
		t.Fatal(err)
	}
	embedded(t, x, 3)
	e.set(nil, make(chan struct{}))
	x.Update(slices.Values(append(slices.Clone(threeTools), tool("sky.soon", "1.0.0", "Will there be rain"))))
	if got, r := x.Find(t.Context(), Query{Text: "weather"}, nil); len(got) != 1 || r.Degraded == "" {
		t.Errorf("%v %+v", found(got), r)
	}
	if err := x.Close(); err != nil { // it does not wait for the embedder
		t.Fatal(err)
	}
}

// TestWordsOfNewTools: a tool without a vector competes with tools that have one.
func TestWordsOfNewTools(t *testing.T) {
	e := &topics{}
	x := meaningIndex(t, e, threeTools...)
	embedded(t, x, 3)
	ask := Query{Text: "umbrella gauge"}
	if got, _ := x.Find(t.Context(), ask, nil); fmt.Sprint(found(got)) != "[sky.now@1.0.0]" {
		t.Errorf("%v", found(got))
	}
	e.set(nil, make(chan struct{})) // the query's vector is cached; the tool's text is not
	x.Update(slices.Values(append(slices.Clone(threeTools), tool("sky.gauge", "1.0.0", "Show the umbrella gauge"))))
	if got, r := x.Find(t.Context(), ask, nil); fmt.Sprint(found(got)) != "[sky.gauge@1.0.0 sky.now@1.0.0]" || r.Degraded != "1 of 4 tools are compared by words only until they are embedded" || !r.Partial {
		t.Errorf("%v %+v", found(got), r)
	}
}

// TestWhatSearchersAreTold: the embedder's messages, which may contain its key, are not shown.
func TestWhatSearchersAreTold(t *testing.T) {
	e := &topics{}
	x := meaningIndex(t, e, threeTools...)
	embedded(t, x, 3)
	for _, c := range []struct {
		err          error
		publicReason string
	}{
		{errors.New("sk-secret at 10.0.0.1"), "does not answer, so only words are compared"},
		{toolkeep.NewError(toolkeep.EmbeddingFailed, "answered HTTP 401: sk-secret at 10.0.0.1").With("status", 401), "(HTTP 401)"},
	} {
		e.set(c.err, nil)
		_, r := x.Find(t.Context(), Query{Text: fmt.Sprint("weather ", c.publicReason)}, nil)
		if !strings.Contains(r.Degraded, c.publicReason) || strings.Contains(r.Degraded, "sk-secret") || strings.Contains(r.Degraded, "10.0.0.1") {
			t.Errorf("%q", r.Degraded)
		}
		_, _, _ = x.Embedded()
		p := *x.current.Load()
		p.alike = nil
		x.meaning.fails(c.err)
		if why := x.meaning.degradedReason(&ranker{p: &p}); strings.Contains(why, "sk-secret") || strings.Contains(why, "10.0.0.1") {
			t.Errorf("%q", why)
		}
	}
}

func TestLead(t *testing.T) {
	for give, want := range map[string]string{
		"":                           "",
		"Short":                      "Short",
		strings.Repeat("x", 200):     strings.Repeat("x", 200),
		strings.Repeat("word ", 100): strings.TrimSpace(strings.Repeat("word ", 40)),
		"One. " + strings.Repeat("two ", 30) + "end. " + strings.Repeat("three ", 100): "One. " + strings.Repeat("two ", 30) + "end",
		strings.Repeat("é", 300):       strings.Repeat("é", 100),
		"x" + strings.Repeat("é", 300): "x" + strings.Repeat("é", 99),
	} {
		if got := lead(give); got != want {
			t.Errorf("%.30q… leads with %q, want %q", give, got, want)
		}
	}
}

type lockedBuffer struct {
	mu sync.Mutex
	b  strings.Builder
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// TestQuestionsThatFail: the operator is told once when queries are no longer compared by meaning,
// though all tools are embedded, and once when they are again. An embedder that took too long is
// skipped for a moment.
func TestQuestionsThatFail(t *testing.T) {
	var log lockedBuffer
	e := new(topics)
	x := started(t, Config{Embedder: e, EmbedTime: time.Second, Log: slog.New(slog.NewTextHandler(&log, nil))}, threeTools)
	embedded(t, x, 3)
	ask := func(text string) Report {
		_, r := x.Find(t.Context(), Query{Text: text}, nil)
		return r
	}
	e.set(errors.New("out of order"), nil)
	for i := range 3 {
		if r := ask(fmt.Sprint("umbrella ", i)); r.Degraded == "" {
			t.Errorf("%+v", r)
		}
	}
	if err := x.Embedding().Err; err == nil || !strings.Contains(err.Error(), "out of order") {
		t.Errorf("health is told %v", err)
	}
	if n := strings.Count(log.String(), "queries cannot be compared by meaning"); n != 1 {
		t.Errorf("said %d times: %s", n, log.String())
	}
	e.set(nil, make(chan struct{})) // it hangs
	if r := ask("a question that waits"); r.Degraded == "" {
		t.Errorf("%+v", r)
	}
	m := x.meaning
	at := func(rest time.Time) (before time.Time) {
		m.mu.Lock()
		defer m.mu.Unlock()
		before, m.rest = m.rest, rest
		return before
	}
	if at(time.Now().Add(time.Hour)).IsZero() {
		t.Error("it is not left alone")
	}
	before := e.count()
	if r := ask("a question that does not wait"); r.Degraded == "" || e.count() != before {
		t.Errorf("%+v, and it was asked", r)
	}
	at(time.Time{})
	e.set(nil, nil)
	if r := ask("umbrella"); r.Degraded != "" {
		t.Errorf("%+v", r)
	}
	if err := x.Embedding().Err; err != nil {
		t.Errorf("health is told %v", err)
	}
	if !strings.Contains(log.String(), "compared by meaning again") {
		t.Error(log.String())
	}
	// Neither a cancelled caller nor a refused text says anything about the embedder.
	picky := started(t, Config{Embedder: &choosy{}}, threeTools)
	embedded(t, picky, 3)
	if _, r := picky.Find(t.Context(), Query{Text: "poison"}, nil); r.Degraded == "" || picky.Embedding().Err != nil {
		t.Errorf("%+v, %v", r, picky.Embedding().Err)
	}
	e.set(nil, make(chan struct{}))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	x.Find(ctx, Query{Text: "somebody who left"}, nil)
	if err := x.Embedding().Err; err != nil {
		t.Errorf("health is told %v", err)
	}
}

// TestEmbedderComesBack: health tells of an embedder that does not answer queries, and that it answers again, although no query comes.
func TestEmbedderComesBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := &topics{}
		x := meaningIndex(t, e, threeTools...)
		synctest.Wait()
		for round := range 2 {
			if err := x.Health(t.Context()); err != nil {
				t.Fatalf("round %d: %v", round, err)
			}
			e.set(errors.New("no memory"), nil)
			_, _ = x.Find(t.Context(), Query{Text: fmt.Sprintf("weather %d", round)}, nil)
			<-time.After(10 * time.Second)
			if x.Health(t.Context()) == nil {
				t.Fatalf("round %d: health says nothing of an embedder that does not answer", round)
			}
			e.set(nil, nil)
			<-time.After(retryLast)
			synctest.Wait()
		}
		if err := x.Health(t.Context()); err != nil {
			t.Error(err)
		}
	})
}
