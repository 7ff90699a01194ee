package node

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"sync"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/discover"
	"github.com/toolkeep/toolkeep/discover/minilm"
)

// ModelDir is where the embedding model of a data directory lies, unless the setting
// search.models_dir names another folder of models.
func ModelDir(data, models string) string {
	if models == "" {
		models = filepath.Join(data, "models")
	}
	return filepath.Join(models, minilm.Name)
}

// buildIndex makes the search index, which compares meanings where a model is
// installed.
func (n *Node) buildIndex() error {
	c := n.config.Search
	n.model = &lazyModel{dir: ModelDir(n.config.Data, c.ModelsDir)}
	ic := discover.Config{Weights: discover.Weights{Semantic: c.SemanticWeight, Keyword: c.KeywordWeight}, Log: n.logger("search")}
	there := minilm.Installed(n.model.dir)
	switch {
	case c.Model == minilm.Name && !there:
		return toolkeep.NewError(toolkeep.InvalidManifest, "search.model is %s, and %s does not hold it; install it with `toolkeep models install`, or set search.model to auto", c.Model, n.model.dir)
	case c.Model != "none" && there:
		ic.Embedder = n.model
		ic.VectorFile = filepath.Join(n.config.Data, "vectors", minilm.Name+".vec")
	}
	n.index = discover.New(ic)
	return nil
}

// searchHealth tells that search compares words alone although a model is there.
func (n *Node) searchHealth(context.Context) error {
	if have, of, err := n.index.Embedded(); err != nil {
		return fmt.Errorf("%d of %d tools have vectors, and the embedding model fails: %w; search compares words alone", have, of, err)
	}
	return nil
}

func (n *Node) closeIndex() {
	if n.index == nil {
		return
	}
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
