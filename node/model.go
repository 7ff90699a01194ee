package node

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"sync"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/config"
	"github.com/toolkeep/toolkeep/discover"
	"github.com/toolkeep/toolkeep/discover/minilm"
	"github.com/toolkeep/toolkeep/discover/pgvector"
	"github.com/toolkeep/toolkeep/discover/remote"
	"github.com/toolkeep/toolkeep/redact"
	"github.com/toolkeep/toolkeep/telemetry"
)

// ModelDir is where the embedding model of a data directory lies, unless the setting
// search.models_dir names another folder of models.
func ModelDir(data, models string) string {
	if models == "" {
		models = filepath.Join(data, "models")
	}
	return filepath.Join(models, minilm.Name)
}

// searchWeights are those of the parts of a score.
func (n *Node) searchWeights() discover.Weights {
	c := n.config.Search
	return discover.Weights{Semantic: c.SemanticWeight, Keyword: c.KeywordWeight, History: c.HistoryWeight, Success: c.SuccessWeight, Complexity: c.ComplexityWeight}
}

// buildIndex makes the search index, which compares meanings where an embedding service
// is configured or a model is installed.
func (n *Node) buildIndex(context.Context) error {
	c := n.config.Search
	n.model = &lazyModel{dir: ModelDir(n.config.Data, c.ModelsDir)}
	ic := discover.Config{Weights: n.searchWeights(), Threshold: c.Threshold, Usage: n.usage, Log: n.logger("search")}
	there := minilm.Installed(n.model.dir)
	switch {
	case c.Model == "none":
	case c.EmbeddingsURL != "":
		service, err := n.embeddingService(c.EmbeddingsModel, c.EmbeddingsDimensions)
		if err != nil {
			return err
		}
		ic.Embedder = service
	case there:
		ic.Embedder = n.model
	case c.Model == minilm.Name:
		return toolkeep.NewError(toolkeep.InvalidManifest, "search.model is %s, and %s does not hold it; install it with `toolkeep models install`, or set search.model to auto", c.Model, n.model.dir)
	}
	if err := checkVectors(n.config); err != nil {
		return err
	}
	if ic.Embedder != nil {
		var err error
		if ic.Vectors, err = n.vectors(); err != nil {
			return err
		}
		ic.Other = n.otherModel
	}
	n.index = discover.New(ic)
	return nil
}

// vectors is what keeps the vectors of tools.
func (n *Node) vectors() (discover.Backend, error) {
	c := n.config.Search
	if c.Vectors != "pgvector" {
		return discover.NewMemory(VectorDir(n.config.Data), n.logger("search")), nil
	}
	return pgvector.New(pgvector.Config{DSN: cmp.Or(c.VectorsDSN, n.config.Store.DSN), Name: n.name, Clock: n.options.Clock, Log: n.logger("search")})
}

// checkVectors reads the address of pgvector, if it is to be used.
func checkVectors(c *config.Config) error {
	if c.Search.Vectors != "pgvector" {
		return nil
	}
	b, err := pgvector.New(pgvector.Config{DSN: cmp.Or(c.Search.VectorsDSN, c.Store.DSN)})
	if err != nil {
		return err
	}
	return b.Close()
}

// VectorDir is where vectors lie in a data directory.
func VectorDir(data string) string { return filepath.Join(data, "vectors") }

// otherModel gives the model that tools were embedded by before: the own one, if it is
// still installed, or another one of the same service, which it says itself if it does
// not have it any more.
func (n *Node) otherModel(s discover.Space) discover.Embedder {
	if s.Model == minilm.Name && s.Dimensions == minilm.Dimensions && minilm.Installed(n.model.dir) {
		return n.model
	}
	url := n.config.Search.EmbeddingsURL
	name, same := strings.CutSuffix(s.Model, "@"+url)
	if url == "" || !same {
		return nil
	}
	e, err := n.embeddingService(name, s.Dimensions)
	if err != nil {
		return nil // it was another name once, which nothing can be asked for
	}
	return e
}

func (n *Node) embeddingService(model string, dimensions int) (*remote.Embedder, error) {
	c := n.config.Search
	rc := remote.Config{URL: c.EmbeddingsURL, Model: model, Dimensions: dimensions}
	if c.EmbeddingsKey != "" {
		rc.Key = func(ctx context.Context) (string, error) {
			key, err := n.secrets.Resolve(ctx, System(), c.EmbeddingsKey)
			if err != nil {
				return "", err
			}
			n.redact.Hold(redact.AllTenants, key)()
			return key, nil
		}
	}
	return remote.New(rc)
}

// searchHealth tells that search compares words alone although a model is there, or by
// another model than the configured one.
func (n *Node) searchHealth(context.Context) error {
	e := n.index.Embedding()
	by := "words alone"
	if e.Serving != "" {
		by = e.Serving
	}
	have, of := discover.Thousands(e.Have), discover.Thousands(e.Of)
	switch {
	case e.Err != nil:
		return fmt.Errorf("%s of %s tools have vectors, and the embedding model or what keeps the vectors fails: %w; search compares by %s", have, of, e.Err, by)
	case e.Model != e.Serving && e.Of > 0:
		return fmt.Errorf("%s of %s tools are embedded by %s so far; meanwhile search compares by %s", have, of, e.Model, by)
	}
	return nil
}

// searchSamples say how far the tools are embedded.
func (n *Node) searchSamples() []telemetry.Sample {
	e := n.index.Embedding()
	serving := 0.0
	if e.Model != "" && e.Model == e.Serving {
		serving = 1
	}
	return []telemetry.Sample{
		{Name: "toolkeep_search_tools", Help: "Tools in the search index.", Value: float64(n.index.Len())},
		{Name: "toolkeep_search_tools_embedded", Help: "Tools that have a vector of the configured model.", Value: float64(e.Have)},
		{Name: "toolkeep_search_model_serving", Help: "1 while search compares meanings by the configured model, 0 while by another one or by words alone.", Value: serving},
	}
}

func (n *Node) startIndex(context.Context) error {
	if err := n.index.Start(); err != nil {
		n.logger("search").Warn("search compares words alone until what keeps the vectors answers", "error", err)
	}
	return nil
}

func (n *Node) closeIndex() {
	if err := errors.Join(n.index.Close(), n.model.close()); err != nil {
		n.logger("search").Warn("the index was not closed well", "error", err)
	}
}

// lazyModel opens the model when the first text is embedded.
type lazyModel struct {
	dir  string
	once sync.Once
	m    *minilm.Model
	err  error
}

func (l *lazyModel) Model() string   { return minilm.Name }
func (l *lazyModel) Dimensions() int { return minilm.Dimensions }

func (l *lazyModel) Embed(ctx context.Context, texts []string) ([][]float32, error) {
	l.once.Do(func() { l.m, l.err = minilm.Open(minilm.Config{Dir: l.dir}) })
	if l.err != nil {
		return nil, l.err
	}
	return l.m.Embed(ctx, texts)
}

func (l *lazyModel) close() error {
	l.once.Do(func() { l.err = toolkeep.NewError(toolkeep.EmbeddingFailed, "the embedding model is closed") })
	if l.m == nil {
		return nil
	}
	return l.m.Close()
}
