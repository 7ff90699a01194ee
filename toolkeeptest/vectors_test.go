package toolkeeptest_test

import (
	"hash/fnv"
	"io"
	"math"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/toolkeep/toolkeep/store/postgres/pgtest"
	"github.com/toolkeep/toolkeep/toolkeeptest"
)

// embedding is a service with several models. A vector has a 1 for each word of the
// text, at a position determined by model and word; synonyms share one.
type embedding struct {
	*httptest.Server
	mu    sync.Mutex
	texts map[string]int           // number of embeddings, by model
	held  map[string]chan struct{} // models that do not respond until it is closed
	gone  map[string]bool          // models that the service no longer has
}

var embeddingDims = map[string]int{"small": 64, "large": 128}

func newEmbedding(t *testing.T) *embedding {
	e := &embedding{texts: map[string]int{}, held: map[string]chan struct{}{}, gone: map[string]bool{}}
	e.Server = httptest.NewServer(http.HandlerFunc(e.serve))
	t.Cleanup(e.Close)
	return e
}

func (e *embedding) serve(w http.ResponseWriter, r *http.Request) {
	var ask struct {
		Model string   `json:"model"`
		Input []string `json:"input"`
	}
	if err := json.UnmarshalRead(r.Body, &ask); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	e.mu.Lock()
	held, gone := e.held[ask.Model], e.gone[ask.Model]
	if !gone && !slices.Equal(ask.Input, []string{"-"}) { // which a start asks with for the dimensions
		e.texts[ask.Model] += len(ask.Input)
	}
	e.mu.Unlock()
	dims := embeddingDims[ask.Model]
	if gone || dims == 0 {
		http.Error(w, `{"error":{"message":"no such model"}}`, http.StatusNotFound)
		return
	}
	if held != nil {
		select {
		case <-held:
		case <-r.Context().Done():
			return
		}
	}
	type one struct {
		Index     int       `json:"index"`
		Embedding []float64 `json:"embedding"`
	}
	var out struct {
		Data []one `json:"data"`
	}
	for i, text := range ask.Input {
		v := make([]float64, dims)
		v[0] = 0.1
		for _, word := range strings.FieldsFunc(strings.ToLower(text), func(r rune) bool { return r < 'a' || r > 'z' }) {
			if word == "umbrella" {
				word = "rain"
			}
			h := fnv.New32a()
			io.WriteString(h, ask.Model+word)
			v[1+h.Sum32()%uint32(dims-1)] = 1
		}
		sum := 0.0
		for _, f := range v {
			sum += f * f
		}
		for k := range v {
			v[k] /= math.Sqrt(sum)
		}
		out.Data = append(out.Data, one{i, v})
	}
	if err := json.MarshalWrite(w, out); err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
	}
}

func (e *embedding) count(model string) int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.texts[model]
}

func (e *embedding) hold(model string) (release func()) {
	held := make(chan struct{})
	e.mu.Lock()
	defer e.mu.Unlock()
	e.held[model] = held
	return sync.OnceFunc(func() { close(held) })
}

func (e *embedding) remove(model string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.gone[model] = true
}

func (e *embedding) settings(model string, more ...string) map[string]string {
	s := map[string]string{"search.embeddings_url": e.URL + "/v1", "search.embeddings_model": model,
		"search.embeddings_dimensions": strconv.Itoa(embeddingDims[model])}
	for i := 0; i+1 < len(more); i += 2 {
		s[more[i]] = more[i+1]
	}
	return s
}

// samples reads the index's numbers from the metrics.
func samples(t *testing.T, k *toolkeeptest.Toolkeep) (tools, embedded, serving float64) {
	t.Helper()
	resp, err := http.Get(k.MetricsURL())
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	raw, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	value := func(name string) float64 {
		m := regexp.MustCompile(`(?m)^` + name + `(?:\{[^}]*\})? (\S+)$`).FindSubmatch(raw)
		if m == nil {
			t.Fatalf("%s is not among the metrics", name)
		}
		f, err := strconv.ParseFloat(string(m[1]), 64)
		if err != nil {
			t.Fatal(err)
		}
		return f
	}
	return value("toolkeep_search_tools"), value("toolkeep_search_tools_embedded"), value("toolkeep_search_model_serving")
}

func allEmbedded(t *testing.T, k *toolkeeptest.Toolkeep) {
	t.Helper()
	within(t, 20*time.Second, "all tools are embedded", func() bool {
		tools, embedded, serving := samples(t, k)
		return tools > 0 && tools == embedded && serving == 1
	})
}

func health(t *testing.T, k *toolkeeptest.Toolkeep) string {
	t.Helper()
	a := as(t, k, "").do("GET", "/health/ready", "").want(t, 200)
	return a.text(t, "components", "search", "status")
}

func asksFor(k *toolkeeptest.Toolkeep, q string) string {
	_, body := k.Do("GET", "/api/v1/tools/retrieval/search?q="+q, "")
	return body
}

var weather = toolkeeptest.Manifest("sky.now", "1.0.0", "echo", `"short_description":"Will there be rain"`, `"explanation":"rain rain"`)

// TestModelOfASystemChanges restarts a node with another model of its embedding
// service.
func TestModelOfASystemChanges(t *testing.T) {
	t.Parallel()
	e := newEmbedding(t)
	dir := filepath.Join(t.TempDir(), "data")
	key := ""
	start := func(model string) *toolkeeptest.Toolkeep {
		k := toolkeeptest.Open(t, dir, toolkeeptest.Option{Settings: e.settings(model)})
		if key == "" {
			key = k.AdminKey // created by the first start
		}
		k.AdminKey = key
		return k
	}
	k := start("small")
	k.Publish(weather)
	allEmbedded(t, k)
	finds := func(k *toolkeeptest.Toolkeep, what string) {
		t.Helper()
		if body := asksFor(k, "umbrella"); !strings.Contains(body, "sky.now") || strings.Contains(body, `"degraded"`) {
			t.Errorf("%s: %s", what, body)
		}
	}
	finds(k, "the first start")
	k.Close()

	before := e.count("small")
	k = start("small")
	allEmbedded(t, k)
	if n := e.count("small"); n != before {
		t.Errorf("a restart embedded %d texts", n-before)
	}
	finds(k, "a restart")
	k.Close()

	release := e.hold("large")
	defer release()
	k = start("large")
	before = e.count("small")
	finds(k, "while the new model works")
	if n := e.count("small") - before; n != 1 {
		t.Errorf("the old model was asked for %d texts, want the question alone", n)
	}
	if got := health(t, k); got == "UP" {
		t.Error("health says nothing of the change")
	}
	if tools, embedded, serving := samples(t, k); embedded != 0 || serving != 0 || tools == 0 {
		t.Errorf("%v of %v tools, serving %v", embedded, tools, serving)
	}
	release()
	allEmbedded(t, k)
	within(t, 5*time.Second, "health is up again", func() bool { return health(t, k) == "UP" })
	finds(k, "after the change")
	k.Close()

	// Back to a model that the service no longer has: its vectors exist, but new
	// queries cannot be embedded.
	e.remove("small")
	k = start("small")
	body := asksFor(k, "rain")
	if !strings.Contains(body, "sky.now") || !strings.Contains(body, "the embedding model does not answer, so only words are compared") {
		t.Error(body)
	}
}

// TestNodesShareVectors: two nodes keep their vectors in one PostgreSQL with pgvector.
func TestNodesShareVectors(t *testing.T) {
	t.Parallel()
	e, server := newEmbedding(t), pgtest.StartVector(t)
	dsn, temp := server.NewDatabase(t), t.TempDir()
	start := func(more ...string) *toolkeeptest.Toolkeep {
		return toolkeeptest.New(t, toolkeeptest.Option{Settings: e.settings("small", append(more, "store.dsn", dsn, "search.vectors", "pgvector",
			"secrets.seal_key", filepath.Join(temp, "seal.key"), "store.blobs", filepath.Join(temp, "blobs"))...)})
	}
	a := start()
	allEmbedded(t, a)
	before := e.count("small")
	b := start()
	allEmbedded(t, b)
	if n := e.count("small"); n != before {
		t.Errorf("the second node embedded %d texts", n-before)
	}
	a.Publish(weather)
	within(t, 5*time.Second, "the other node finds the new tool by its meaning", func() bool {
		var body string
		for _, k := range []*toolkeeptest.Toolkeep{b, a} {
			_, body = k.Do("GET", "/api/v1/tools/retrieval/search?q=umbrella", "", "Authorization", "Bearer "+a.AdminKey)
			if !strings.Contains(body, "sky.now") || strings.Contains(body, `"degraded"`) {
				return false
			}
		}
		return true
	})
	for _, k := range []*toolkeeptest.Toolkeep{a, b} {
		if files, err := filepath.Glob(filepath.Join(k.Dir, "vectors", "*")); len(files) != 0 || err != nil {
			t.Error(files, err)
		}
	}
	// The node uses only the configured database.
	before = e.count("small")
	c := start("search.vectors_dsn", server.NewDatabase(t))
	allEmbedded(t, c)
	// Each tool has one text, or two if it takes parameters.
	if tools, _, _ := samples(t, c); e.count("small")-before < int(tools) || e.count("small")-before > 2*int(tools) {
		t.Errorf("%d texts of %v tools were embedded", e.count("small")-before, tools)
	}
}
