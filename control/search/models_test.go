package search

import (
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/discover"
	"github.com/toolkeep/toolkeep/discover/minilm"
	"github.com/toolkeep/toolkeep/discover/remote"
)

// TestModels: the model of the settings, and what becomes of those before it.
func TestModels(t *testing.T) {
	installed, empty := minilm.In(t.TempDir()), minilm.In(t.TempDir())
	if err := os.Mkdir(installed, 0o700); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"model.safetensors", "vocab.txt"} {
		if err := os.WriteFile(filepath.Join(installed, name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	service := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, `{"data":[{"index":0,"embedding":[1,0]}]}`)
	}))
	t.Cleanup(service.Close)
	gone := httptest.NewServer(nil)
	gone.Close()
	at := func(url string, dimensions int) remote.Config {
		return remote.Config{URL: url, Model: "m", Dimensions: dimensions}
	}
	for name, c := range map[string]struct {
		m    Models
		dir  string
		want string // the model, "" is none; "refused: " and words of the error
	}{
		"none":                        {Models{Setting: "none", Service: at(service.URL, 2), AskService: true}, installed, ""},
		"auto, installed":             {Models{Setting: "auto"}, installed, minilm.Name},
		"auto, not installed":         {Models{Setting: "auto"}, empty, ""},
		"named":                       {Models{Setting: minilm.Name}, installed, minilm.Name},
		"named, not installed":        {Models{Setting: minilm.Name}, empty, "refused: toolkeep models install"},
		"a service":                   {Models{Setting: "auto", Service: at(service.URL, 2), AskService: true}, installed, "m@" + service.URL},
		"a service of another size":   {Models{Setting: "auto", Service: at(service.URL, 3), AskService: true}, installed, "refused: set it to 2"},
		"one that cannot be asked":    {Models{Setting: "auto", Service: at(service.URL, 3)}, installed, "m@" + service.URL},
		"one that is away":            {Models{Setting: "auto", Service: at(gone.URL, 3), AskService: true}, installed, "m@" + gone.URL},
		"an address that is no place": {Models{Setting: "auto", Service: at("ftp://x", 2)}, installed, "refused: the address of the embedding service"},
	} {
		c.m.BuiltIn = &minilm.Lazy{Dir: c.dir}
		e, err := c.m.Embedder(t.Context())
		if words, refused := strings.CutPrefix(c.want, "refused: "); refused {
			if !toolkeep.IsCode(err, toolkeep.InvalidManifest) || !strings.Contains(err.Error(), words) || e != nil {
				t.Errorf("%s: %v, %v", name, e, err)
			}
			continue
		}
		if got := modelOf(e); err != nil || got != c.want {
			t.Errorf("%s: %q, %v", name, got, err)
		}
	}

	own := discover.Space{Model: minilm.Name, Dimensions: minilm.Dimensions}
	for name, c := range map[string]struct {
		url, dir string
		space    discover.Space
		want     string
	}{
		"the built-in one":        {service.URL, installed, own, minilm.Name},
		"removed since":           {service.URL, empty, own, ""},
		"of another size":         {service.URL, installed, discover.Space{Model: minilm.Name, Dimensions: 2}, ""},
		"another of the service":  {service.URL, empty, discover.Space{Model: "old@" + service.URL, Dimensions: 2}, "old@" + service.URL},
		"of another service":      {service.URL, empty, discover.Space{Model: "old@http://h/v1", Dimensions: 2}, ""},
		"one that had no name":    {service.URL, empty, discover.Space{Model: "@" + service.URL, Dimensions: 2}, ""},
		"without a service now":   {"", empty, discover.Space{Model: "old@" + service.URL, Dimensions: 2}, ""},
		"without a service, ever": {"", empty, discover.Space{Model: "old@", Dimensions: 2}, ""},
	} {
		m := Models{BuiltIn: &minilm.Lazy{Dir: c.dir}, Service: at(c.url, 3)}
		if got := modelOf(m.Earlier(c.space)); got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

func modelOf(e discover.Embedder) string {
	if e == nil {
		return ""
	}
	return e.Model()
}
