package search

import (
	"context"
	"strings"
	"time"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/discover"
	"github.com/toolkeep/toolkeep/discover/minilm"
	"github.com/toolkeep/toolkeep/discover/remote"
)

// serviceWait bounds how long Embedder waits for the embedding service.
const serviceWait = 2 * time.Second

// Models chooses the model that tools and searches are embedded by.
type Models struct {
	// Setting is search.model: "none", the name of the built-in model, or "auto", which is
	// that model where it is installed.
	Setting string
	BuiltIn *minilm.Lazy
	// Service embeds instead of the built-in model, unless its URL is "".
	Service remote.Config
	// AskService is false while the key of the service cannot be read.
	AskService bool
}

// Embedder returns the model of the settings, nil if search compares only words. It asks the
// service for the size of its vectors, for two seconds at most; one that does not answer is
// told when it is used. E3008 if the model cannot be used.
func (m *Models) Embedder(ctx context.Context) (discover.Embedder, error) {
	installed := minilm.Installed(m.BuiltIn.Dir)
	switch {
	case m.Setting == "none":
		return nil, nil
	case m.Service.URL != "":
		service, err := remote.New(m.Service)
		if err == nil && m.AskService {
			ctx, cancel := context.WithTimeout(ctx, serviceWait)
			defer cancel()
			err = service.CheckDimensions(ctx)
		}
		if err != nil {
			return nil, err
		}
		return service, nil
	case installed:
		return m.BuiltIn, nil
	case m.Setting == minilm.Name:
		return nil, toolkeep.NewError(toolkeep.InvalidManifest, "search.model is %s, and %s does not hold it; install it with `toolkeep models install`, or set search.model to auto", m.Setting, m.BuiltIn.Dir)
	}
	return nil, nil
}

// Earlier returns a model that tools were embedded by before, nil if there is none any more:
// the built-in one while it is installed, or another one of the same service, which says
// itself if it does not have it.
func (m *Models) Earlier(s discover.Space) discover.Embedder {
	if s.Model == minilm.Name && s.Dimensions == minilm.Dimensions && minilm.Installed(m.BuiltIn.Dir) {
		return m.BuiltIn
	}
	name, same := strings.CutSuffix(s.Model, "@"+m.Service.URL)
	if m.Service.URL == "" || !same {
		return nil
	}
	c := m.Service
	c.Model, c.Dimensions = name, s.Dimensions
	e, err := remote.New(c)
	if err != nil {
		return nil // it was another name once, which nothing can be asked for
	}
	return e
}
