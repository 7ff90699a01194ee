package main

import (
	"bufio"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/discover"
	"github.com/toolkeep/toolkeep/discover/minilm"
)

// What the retrieval parts read, from the root of the checkout.
const (
	retrievalData  = "../shared/data/retrieval"
	retrievalModel = "models/" + minilm.Name
)

// retrievalSets are the public sets, each with its aim.
var retrievalSets = []struct{ name, aim string }{{"sealtools", "95"}, {"bfcl", "89"}, {"metatool", "77"}}

// sampled is every how many queries of a set is asked; the rest of the large one says
// nothing new.
var sampled = map[string]int{"metatool": 5, "sealtools": 1, "bfcl": 1}

// retrieval measures how often the right tools are found, in process, with the weights of
// the defaults: without any usage, and with half of the queries as questions that led to
// their tools.
func retrieval(*bench) (part, error) {
	model, err := openRetrievalModel()
	if err != nil {
		return part{}, err
	}
	defer model.Close()
	remembering := &memo{Embedder: model, known: map[string][]float32{}}
	p := part{set: `Set: the dev halves of three public sets (../shared/data/retrieval), every 5th query of metatool; default weights. Aims are for hybrid and recall@5 without usage data.
"Half" is one half of those queries, chosen by a hash of the text; in the rows "learned", the tools of the other half's queries were called after these, those of all tools or of 30 % of them: as examples, and for a map of questions, which is not adopted for 30 %.
Of 30 %, the tools that have such questions and those that have none are measured apart: the right answers of the other kind are left out.
The constants of search were chosen on these queries (those of "learned" on the measured half), so that other queries of the same kind may fare a little worse.
"apis" is 143 questions (bench/apis.jsonl) about the operations of 13 real APIs imported from their OpenAPI documents (../shared/data/openapi), of which one right tool is enough. One half was looked at to choose constants, the other was held out.`}
	for _, set := range retrievalSets {
		dir := filepath.Join(retrievalData, set.name)
		past := &askedBefore{}
		x, ids, err := retrievalIndex(dir, remembering, past)
		if err != nil {
			return part{}, err
		}
		all, err := queriesOf(dir, set.name)
		if err != nil {
			return part{}, err
		}
		add := func(name, aim string, s discover.Strategy, queries []dataQuery) error {
			row, err := quality(x, ids, queries, s)
			p.rows = append(p.rows, append([]string{set.name, name, aim}, row...))
			return err
		}
		for _, s := range []discover.Strategy{discover.Keyword, discover.Semantic, discover.Hybrid} {
			aim := "-"
			if s == discover.Hybrid {
				aim = set.aim
			}
			if err := add(string(s), aim, s, all); err != nil {
				return part{}, err
			}
		}
		if err := learning(x, ids, past, all, func(name string, queries []dataQuery) error { return add(name, "-", discover.Hybrid, queries) }); err != nil {
			return part{}, err
		}
		if err := x.Close(); err != nil {
			return part{}, err
		}
	}
	rows, err := apis(remembering)
	var why notMeasured
	if errors.As(err, &why) {
		rows, err = [][]string{{"apis", "not measured: " + string(why), "-", "-", "-", "-", "-"}}, nil
	}
	p.rows = append(p.rows, rows...)
	return p, err
}

// learning measures one half of the queries before and after the other half was asked.
func learning(x *discover.Index, ids map[string]string, past *askedBefore, all []dataQuery, add func(name string, queries []dataQuery) error) error {
	tools := make(map[string]string, len(ids))
	for tool, id := range ids {
		tools[id] = tool
	}
	some := func(id string) bool { return hashed("tool "+id)%10 < 3 }
	var asked, half, with, without []dataQuery
	for _, q := range all {
		if hashed(q.Query)%2 == 0 {
			asked = append(asked, q)
			continue
		}
		half = append(half, q)
		var a, b []string
		for _, id := range q.Gold {
			if some(id) {
				a = append(a, id)
			} else {
				b = append(b, id)
			}
		}
		if a != nil {
			with = append(with, dataQuery{Query: q.Query, Gold: a})
		}
		if b != nil {
			without = append(without, dataQuery{Query: q.Query, Gold: b})
		}
	}
	examples := func(of func(id string) bool) (out []discover.Example) {
		for _, q := range asked {
			for _, id := range q.Gold {
				if of(id) {
					out = append(out, discover.Example{Query: q.Query, Tool: tools[id], Count: 1})
				}
			}
		}
		return out
	}
	for _, step := range []struct {
		examples []discover.Example
		name     []string
		of       [][]dataQuery
	}{
		{nil, []string{"half, nothing learned", "30 % of the tools, nothing learned", "the other tools, nothing learned"}, [][]dataQuery{half, with, without}},
		{examples(func(string) bool { return true }), []string{"half, learned for all tools"}, [][]dataQuery{half}},
		{examples(some), []string{"30 % of the tools, learned for them", "the other tools, learned for those"}, [][]dataQuery{with, without}},
	} {
		past.set(step.examples)
		if err := learned(x); err != nil {
			return err
		}
		for i, name := range step.name {
			if err := add(name, step.of[i]); err != nil {
				return err
			}
		}
	}
	return nil
}

func hashed(text string) byte {
	sum := sha256.Sum256([]byte(text))
	return sum[0]
}

// tenant is whose questions are learned from.
const tenant = "bench"

// askedBefore is a Usage that knows which questions led to which tools, and nothing more.
type askedBefore struct {
	examples atomic.Pointer[[]discover.Example]
	sets     atomic.Int64
}

func (a *askedBefore) set(examples []discover.Example) {
	a.examples.Store(&examples)
	a.sets.Add(1) // no map of before is used
}
func (*askedBefore) History(discover.Session) discover.History { return discover.History{} }
func (*askedBefore) SuccessRates(string, []string) []float64   { return nil }
func (a *askedBefore) MapsQuestions(string) (bool, int64)      { return true, a.sets.Load() }
func (a *askedBefore) Examples(of string) []discover.Example {
	if list := a.examples.Load(); list != nil && of == tenant {
		return *list
	}
	return nil
}

// learned waits until the index has taken in all questions. A search makes it begin.
func learned(x *discover.Index) error {
	for until := time.Now().Add(10 * time.Minute); time.Now().Before(until); time.Sleep(50 * time.Millisecond) {
		x.Find(context.Background(), discover.Query{Text: "begin", Session: discover.Session{Tenant: tenant}}, nil)
		if x.Learned(tenant) {
			return nil
		}
	}
	return errors.New("the questions are not taken in")
}

// dataQuery is one query of a set.
type dataQuery struct {
	Query string
	Gold  []string
	any   bool // one tool of Gold is enough
}

func queriesOf(dir, set string) (out []dataQuery, err error) {
	seen := 0
	err = eachLine(filepath.Join(dir, "dev.jsonl"), func(q dataQuery) error {
		if seen++; seen%sampled[set] == 0 {
			out = append(out, q)
		}
		return nil
	})
	return out, err
}

// memo embeds each text once, so that the strategies do not wait for it again.
type memo struct {
	discover.Embedder
	mu    sync.Mutex
	known map[string][]float32
}

func (m *memo) Embed(ctx context.Context, texts []string) ([][]float32, error) {
	out := make([][]float32, len(texts))
	for i, text := range texts {
		m.mu.Lock()
		out[i] = m.known[text]
		m.mu.Unlock()
		if out[i] != nil {
			continue
		}
		got, err := m.Embedder.Embed(ctx, []string{text})
		if err != nil {
			return nil, err
		}
		out[i] = got[0]
		m.mu.Lock()
		m.known[text] = got[0]
		m.mu.Unlock()
	}
	return out, nil
}

func openRetrievalModel() (*minilm.Model, error) {
	if !minilm.Installed(retrievalModel) {
		return nil, notMeasured("the model is missing; `make model` fetches it")
	}
	if _, err := os.Stat(retrievalData); err != nil {
		return nil, notMeasured("the retrieval data is missing at " + retrievalData)
	}
	return minilm.Open(minilm.Config{Dir: retrievalModel, Threads: 2})
}

// retrievalIndex indexes a set and waits for its vectors.
func retrievalIndex(dir string, model discover.Embedder, usage discover.Usage) (*discover.Index, map[string]string, error) {
	all, ids, err := retrievalTools(dir)
	if err != nil {
		return nil, nil, err
	}
	x, err := usedIndex(discover.Config{Embedder: model, Usage: usage}, all)
	return x, ids, err
}

// retrievalTools reads the tools of a set, and the set's ids by theirs.
func retrievalTools(dir string) ([]toolkeep.Version, map[string]string, error) {
	ids, odd := map[string]string{}, regexp.MustCompile(`[^A-Za-z0-9_-]`)
	var all []toolkeep.Version
	err := eachLine(filepath.Join(dir, "tools.jsonl"), func(d struct {
		ID, Name, Description string
		Parameters            map[string]any
	}) error {
		schema, err := json.Marshal(map[string]any{"type": "object", "properties": d.Parameters})
		id := "set." + odd.ReplaceAllString(d.ID, "_")
		ids[id] = d.ID
		all = append(all, version(id, &toolkeep.Manifest{ToolID: id, Version: "1.0.0", ToolName: d.Name, Description: d.Description, ParametersSchema: schema}))
		return err
	})
	return all, ids, err
}

func version(id string, m *toolkeep.Manifest) toolkeep.Version {
	return toolkeep.Version{Tool: &toolkeep.Tool{ID: id, Version: "1.0.0", Digest: "sha256:" + id, Manifest: m}, Life: toolkeep.Lifecycle{State: toolkeep.Active}}
}

func embeddedIndex(model discover.Embedder, all []toolkeep.Version) (*discover.Index, error) {
	return usedIndex(discover.Config{Embedder: model}, all)
}

func usedIndex(c discover.Config, all []toolkeep.Version) (*discover.Index, error) {
	c.EmbedTime = time.Minute
	x := discover.New(c)
	x.Update(slices.Values(all))
	if err := x.Start(); err != nil {
		return nil, err
	}
	for {
		have, of, err := x.Embedded()
		if err != nil || have == of {
			return x, err
		}
		time.Sleep(50 * time.Millisecond)
	}
}

// quality gives recall@1, recall@5, NDCG@10 and the number of queries.
func quality(x *discover.Index, ids map[string]string, queries []dataQuery, s discover.Strategy) ([]string, error) {
	var one, five, gain float64
	for _, q := range queries {
		ask := discover.Query{Text: q.Query, Limit: 10, Strategy: s, Session: discover.Session{Tenant: tenant}}
		found, report := x.Find(context.Background(), ask, nil)
		if report.Strategy != s {
			return nil, fmt.Errorf("%q was searched for by %s: %s", q.Query, report.Strategy, report.Degraded)
		}
		right := len(q.Gold)
		if q.any {
			right = 1
		}
		hits, seen, got, ideal := 0, 0, 0.0, 0.0
		for i, m := range found {
			if seen == right || !slices.Contains(q.Gold, ids[m.Tool.ID]) {
				continue
			}
			seen++
			got += 1 / math.Log2(float64(i+2))
			if i == 0 {
				one++
			}
			if i < 5 {
				hits++
			}
		}
		for i := range min(10, right) {
			ideal += 1 / math.Log2(float64(i+2))
		}
		five += float64(hits) / float64(right)
		gain += got / ideal
	}
	n := len(queries)
	show := func(v float64) string { return fmt.Sprintf("%.1f", 100*v/float64(n)) }
	return []string{show(one), show(five), show(gain), fmt.Sprint(n)}, nil
}

// eachLine reads a file of JSON lines.
func eachLine[T any](path string, each func(T) error) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, 16<<20)
	for lines.Scan() {
		var v T
		if err := json.Unmarshal(lines.Bytes(), &v); err != nil {
			return err
		}
		if err := each(v); err != nil {
			return err
		}
	}
	return lines.Err()
}

// searching measures how long a search takes, in process: 10,000 and 100,000 tools
// with made-up words and vectors, real queries and the real model.
func searching(*bench) (part, error) {
	model, err := openRetrievalModel()
	if err != nil {
		return part{}, err
	}
	defer model.Close()
	var queries []string
	err = eachLine(filepath.Join(retrievalData, "bfcl", "dev.jsonl"), func(q struct{ Query string }) error {
		if len(q.Query) < 200 && len(queries) < 400 {
			queries = append(queries, q.Query)
		}
		return nil
	})
	if err != nil {
		return part{}, err
	}
	p := part{set: fmt.Sprintf("Set: %d queries of bfcl of less than 200 bytes, one after the other; tools of made-up words whose vectors are random. A query that was asked before is not embedded again: \"hybrid, asked before\" shows that.", len(queries))}
	add := func(what, goal string, each func(q string) error) error {
		took := make([]time.Duration, 0, len(queries))
		begin := time.Now()
		for _, q := range queries {
			at := time.Now()
			if err := each(q); err != nil {
				return err
			}
			took = append(took, time.Since(at))
		}
		all := time.Since(begin)
		slices.Sort(took)
		p.rows = append(p.rows, []string{what, goal, ms(took[len(took)/2]), ms(took[len(took)*95/100]), fmt.Sprintf("%.0f", float64(len(took))/all.Seconds())})
		return nil
	}
	if err := add("embedding alone", "-", func(q string) error { _, err := model.Embed(context.Background(), []string{q}); return err }); err != nil {
		return part{}, err
	}
	for _, n := range []int{10_000, 100_000} {
		tools := madeUp(n)
		x, err := embeddedIndex(randomVectors{}, tools)
		if err != nil {
			return part{}, err
		}
		find := func(s discover.Strategy) func(q string) error {
			return func(q string) error {
				if _, r := x.Find(context.Background(), discover.Query{Text: q, Limit: 5, Strategy: s}, nil); r.Strategy != s {
					return fmt.Errorf("searched by %s: %s", r.Strategy, r.Degraded)
				}
				return nil
			}
		}
		goal := "p95 2 ms without embedding"
		if n > 10_000 {
			goal = "works"
		}
		for _, s := range []discover.Strategy{discover.Keyword, discover.Semantic, discover.Hybrid} {
			if err := add(fmt.Sprintf("%d tools, %s, no embedding", n, s), goal, find(s)); err != nil {
				return part{}, err
			}
		}
		if err := x.Close(); err != nil {
			return part{}, err
		}
		if n > 10_000 {
			continue
		}
		if x, err = embeddedIndex(&realQueries{model: model}, tools); err != nil {
			return part{}, err
		}
		if err := add(fmt.Sprintf("%d tools, hybrid with embedding", n), "p95 20 ms; 100 a second", find(discover.Hybrid)); err != nil {
			return part{}, err
		}
		if err := add(fmt.Sprintf("%d tools, hybrid, asked before", n), "-", find(discover.Hybrid)); err != nil {
			return part{}, err
		}
		if err := x.Close(); err != nil {
			return part{}, err
		}
	}
	return p, nil
}

// randomVectors gives every text a vector at no cost.
type randomVectors struct{}

func (randomVectors) Model() string   { return "random" }
func (randomVectors) Dimensions() int { return minilm.Dimensions }
func (randomVectors) Embed(_ context.Context, texts []string) ([][]float32, error) {
	out := make([][]float32, len(texts))
	for i, text := range texts {
		r := rand.New(rand.NewPCG(uint64(len(text)), uint64(text[len(text)-1])))
		v, sum := make([]float32, minilm.Dimensions), 0.0
		for k := range v {
			v[k] = float32(r.NormFloat64())
			sum += float64(v[k]) * float64(v[k])
		}
		for k := range v {
			v[k] /= float32(math.Sqrt(sum))
		}
		out[i] = v
	}
	return out, nil
}

// realQueries embeds tools at no cost, which come in batches at first, and queries
// with the model.
type realQueries struct {
	randomVectors
	model *minilm.Model
}

func (r *realQueries) Embed(ctx context.Context, texts []string) ([][]float32, error) {
	if strings.Contains(texts[0], madeUpMark) {
		return r.randomVectors.Embed(ctx, texts)
	}
	return r.model.Embed(ctx, texts)
}

const madeUpMark = "made up tool"

// madeUp makes tools of a vocabulary with few frequent and many rare words.
func madeUp(n int) []toolkeep.Version {
	r := rand.New(rand.NewPCG(1, 2))
	words := strings.Fields("calculate find get list create delete update send the weather of city user account price order book area triangle number date time text file image search convert compute distance between two points value list sum average")
	word := func() string {
		if i := int(5000 * r.Float64() * r.Float64() * r.Float64()); i < len(words) {
			return words[i]
		} else {
			return fmt.Sprintf("w%d", i)
		}
	}
	text := func(n int) string {
		var b strings.Builder
		for range n {
			b.WriteString(word() + " ")
		}
		return b.String()
	}
	out := make([]toolkeep.Version, n)
	for i := range out {
		id := fmt.Sprintf("ns%d.%s_%s_%d", i%50, word(), word(), i)
		out[i] = version(id, &toolkeep.Manifest{ToolID: id, Version: "1.0.0", Description: madeUpMark + " " + text(25),
			ParametersSchema: fmt.Appendf(nil, `{"type":"object","properties":{"%s":{"description":"%s"}}}`, "a"+word(), text(8))})
	}
	return out
}
