package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/toolkeep/toolkeep/discover/minilm"
)

// registering measures how fast tools are published over REST: one by one, by several
// publishers, and in batches, into an empty catalogue and into one of 10,000 tools; and how
// long it takes until a tool is found by its meaning, where the model is there.
func registering(b *bench) (part, error) {
	p := part{set: "Set: manifests of about 450 bytes over REST, every answer after the commit and with the tool searchable by its words; without an embedding model, except for the last rows."}
	srv, err := b.server("register", "TOOLKEEP_SEARCH_MODEL=none")
	if err != nil {
		return part{}, err
	}
	defer srv.stop()
	next := 0
	for _, at := range []string{"empty catalogue", "10,000 tools"} {
		if at != "empty catalogue" {
			if err := registerTools(srv, 10_000); err != nil {
				return part{}, err
			}
			next = 20_000
		}
		for _, clients := range []int{1, 8} {
			row, n, err := registerOneByOne(srv, next, clients, b.d)
			if err != nil {
				return part{}, err
			}
			next += n
			p.rows = append(p.rows, append([]string{fmt.Sprintf("register, %s, %d at once", at, clients), "10 a second"}, row...))
		}
	}
	began := time.Now()
	const many = 2000
	for from := 0; from < many; from += 500 {
		if _, err := srv.send(http.MethodPost, "/api/v1/tools/batch-register", batchOf(next+from, 500, false)); err != nil {
			return part{}, err
		}
	}
	took := time.Since(began)
	p.rows = append(p.rows, []string{"batch-register of 500, 10,000 tools, all or none", "10 a second", fmt.Sprintf("%.0f", many/took.Seconds()), ms(took / many), "-"})
	next += many
	began = time.Now()
	if _, err := srv.send(http.MethodPost, "/api/v1/tools/batch-register", batchOf(next, many, true)); err != nil {
		return part{}, err
	}
	took = time.Since(began)
	p.rows = append(p.rows, []string{"batch-register of 2,000, 12,000 tools, partial", "10 a second", fmt.Sprintf("%.0f", many/took.Seconds()), ms(took / many), "-"})

	if !minilm.Installed(retrievalModel) {
		p.set += " The time until a tool is found by its meaning is not measured: the model is missing; `make model` fetches it."
		return p, nil
	}
	embed, err := b.embedded()
	if err != nil {
		return part{}, err
	}
	p.rows = append(p.rows, embed...)
	return p, nil
}

// embedded measures publications that wait until meanings are compared too.
func (b *bench) embedded() ([][]string, error) {
	srv, err := b.server("register-embedded", "TOOLKEEP_SEARCH_MODELS_DIR=models")
	if err != nil {
		return nil, err
	}
	defer srv.stop()
	const n = 100
	took := make([]time.Duration, n)
	for i := range took {
		began := time.Now()
		raw, err := srv.send(http.MethodPost, "/api/v1/tools/register", map[string]any{"manifest": manifest(i), "await_embedding": true})
		if err != nil {
			return nil, err
		}
		took[i] = time.Since(began)
		var a struct{ Indexing struct{ Embedding string } }
		if err := json.Unmarshal(raw, &a); err != nil || a.Indexing.Embedding != "done" {
			return nil, fmt.Errorf("a tool was not embedded: %v %s", err, raw)
		}
	}
	slices.Sort(took)
	total := time.Duration(0)
	for _, t := range took {
		total += t
	}
	one := []string{"register and embed, one by one", "embedded within 100 ms", fmt.Sprintf("%.0f", n/total.Seconds()), ms(took[n/2]), ms(took[n*95/100])}
	began := time.Now()
	body := batchOf(n, 500, true)
	body["await_embedding"] = true
	if _, err := srv.send(http.MethodPost, "/api/v1/tools/batch-register", body); err != nil {
		return nil, err
	}
	all := time.Since(began)
	return [][]string{one, {"batch-register of 500 and embed", "embedded within 100 ms a tool", fmt.Sprintf("%.0f", 500/all.Seconds()), ms(all / 500), "-"}}, nil
}

func batchOf(from, n int, partial bool) map[string]any {
	var tools []any
	for i := range n {
		tools = append(tools, map[string]any{"manifest": manifest(from + i)})
	}
	return map[string]any{"tools": tools, "partial": partial}
}

// registerOneByOne publishes for a while and gives rate, p50 and p95, and how many it were.
func registerOneByOne(srv *process, from, clients int, d time.Duration) ([]string, int, error) {
	var mu sync.Mutex
	var took []time.Duration
	var failed error
	next := from
	began := time.Now()
	var wg sync.WaitGroup
	for range clients {
		wg.Go(func() {
			for time.Since(began) < d {
				mu.Lock()
				i := next
				next++
				mu.Unlock()
				at := time.Now()
				_, err := srv.send(http.MethodPost, "/api/v1/tools/register", map[string]any{"manifest": manifest(i)})
				mu.Lock()
				took = append(took, time.Since(at))
				if err != nil {
					failed = err
				}
				mu.Unlock()
				if err != nil {
					return
				}
			}
		})
	}
	wg.Wait()
	all := time.Since(began)
	if failed != nil {
		return nil, 0, failed
	}
	slices.Sort(took)
	return []string{fmt.Sprintf("%.0f", float64(len(took))/all.Seconds()), ms(took[len(took)/2]), ms(took[len(took)*95/100])}, next - from, nil
}
