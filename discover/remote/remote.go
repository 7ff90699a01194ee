// Package remote embeds texts through an OpenAI-compatible service: POST {base}/embeddings, as
// offered by OpenAI, Ollama, vLLM, LocalAI and others.
package remote

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/url"
	"strings"
	"time"

	strict "github.com/go-json-experiment/json"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/egress"
)

// Limits of one request.
const (
	maxTexts   = 256
	maxText    = 32 << 10 // bytes of one text; the rest is cut off
	maxAnswer  = 64 << 20
	maxRefusal = 500 // bytes of an error message that are shown
)

// Config says where the service is. URL, Model and Dimensions are required.
type Config struct {
	URL        string // base address, such as http://127.0.0.1:11434/v1
	Model      string // as the service names it
	Dimensions int    // of its vectors, 1 to 8192
	// Key returns the API key for a request; nil: none is sent.
	Key func(context.Context) (string, error)
	// client sends the requests; nil: one with a 30 s timeout that follows no redirects.
	client *http.Client
}

// Embedder is a client of the service. It is safe for concurrent use.
type Embedder struct {
	c  Config
	at string
}

// New checks the settings. E3008 describes a fault.
func New(c Config) (*Embedder, error) {
	u, err := url.Parse(c.URL)
	switch {
	case err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.RawQuery != "" || u.Fragment != "":
		return nil, toolkeep.NewError(toolkeep.InvalidManifest, "the address of the embedding service must be http:// or https:// with a host and a path, such as http://127.0.0.1:11434/v1")
	case u.User != nil:
		return nil, toolkeep.NewError(toolkeep.InvalidManifest, "the address of the embedding service must not hold a password; the key is a secret of its own")
	case c.Model == "":
		return nil, toolkeep.NewError(toolkeep.InvalidManifest, "the embedding service needs the name of a model")
	case c.Dimensions < 1 || c.Dimensions > 8192:
		return nil, toolkeep.NewError(toolkeep.InvalidManifest, "the vectors of the embedding service have %d numbers; say how many, from 1 to 8192", c.Dimensions)
	}
	if c.client == nil {
		c.client = &http.Client{Timeout: 30 * time.Second, CheckRedirect: egress.NoRedirects}
	}
	return &Embedder{c: c, at: strings.TrimRight(c.URL, "/") + "/embeddings"}, nil
}

// Model returns the service's model and address, since two services may use one name for different
// models.
func (e *Embedder) Model() string { return e.c.Model + "@" + e.c.URL }

// Dimensions is Config's.
func (e *Embedder) Dimensions() int { return e.c.Dimensions }

// Embed returns unit vectors of texts.
//
// E3102 describes what is wrong with the service or its answer; E3902 if ctx ends.
func (e *Embedder) Embed(ctx context.Context, texts []string) ([][]float32, error) {
	var out [][]float32
	for len(texts) > 0 {
		n := min(len(texts), maxTexts)
		got, err := e.some(ctx, texts[:n])
		if err != nil {
			return nil, err
		}
		out, texts = append(out, got...), texts[n:]
	}
	return out, nil
}

// CheckDimensions embeds one text. E3008 if the model's vectors have another size than
// Config says; a service that does not answer, or with something else, is told when it
// is used.
func (e *Embedder) CheckDimensions(ctx context.Context) error {
	_, err := e.some(ctx, []string{"-"})
	if err == nil {
		return nil
	}
	if n, differs := toolkeep.AsError(err).Details["dimensions"]; differs {
		return toolkeep.NewError(toolkeep.InvalidManifest, "the model %s at %s has vectors of %v numbers, and search.embeddings_dimensions (registry.embedding_dimensions) is %d; set it to %v, or name another model",
			e.c.Model, e.c.URL, n, e.c.Dimensions, n)
	}
	return nil
}

func (e *Embedder) some(ctx context.Context, texts []string) ([][]float32, error) {
	ask := struct {
		Model string   `json:"model"`
		Input []string `json:"input"`
	}{e.c.Model, make([]string, len(texts))}
	for i, text := range texts {
		text = toolkeep.CutBytes(text, maxText)
		if ask.Input[i] = text; strings.TrimSpace(text) == "" {
			ask.Input[i] = "-" // services refuse empty texts
		}
	}
	body, err := json.Marshal(ask)
	if err != nil {
		return nil, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, e.at, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", "application/json")
	key := ""
	if e.c.Key != nil {
		key, err = e.c.Key(ctx)
		if err != nil {
			return nil, toolkeep.NewError(toolkeep.EmbeddingFailed, "the key of the embedding service: %s", toolkeep.AsError(err).Message)
		}
		req.Header.Set("Authorization", "Bearer "+key)
	}
	resp, err := e.c.client.Do(req)
	if err != nil {
		return nil, e.unreachable(ctx, err)
	}
	defer resp.Body.Close()
	raw, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer+1))
	switch {
	case err != nil:
		return nil, e.unreachable(ctx, err)
	case resp.StatusCode != http.StatusOK:
		return nil, toolkeep.NewError(toolkeep.EmbeddingFailed, "the embedding service at %s answered HTTP %d: %s", e.c.URL, resp.StatusCode, refusal(raw, key)).With("status", resp.StatusCode)
	case len(raw) > maxAnswer:
		return nil, e.bad("more than %d bytes", maxAnswer)
	}
	return e.read(raw, len(texts))
}

// unreachable removes the address that *url.Error repeats, with any credentials in it.
func (e *Embedder) unreachable(ctx context.Context, err error) *toolkeep.Error {
	if errors.Is(context.Cause(ctx), context.Canceled) {
		return toolkeep.NewError(toolkeep.Cancelled, "embedding was given up").Because(err)
	}
	var u *url.Error
	if errors.As(err, &u) {
		err = u.Err
	}
	return toolkeep.NewError(toolkeep.EmbeddingFailed, "the embedding service at %s does not answer: %v", e.c.URL, err).Because(err)
}

func (e *Embedder) bad(format string, args ...any) *toolkeep.Error {
	return toolkeep.NewError(toolkeep.EmbeddingFailed, "the embedding service at %s answered %s", e.c.URL, fmt.Sprintf(format, args...))
}

// refusal returns the message of an error answer.
func refusal(raw []byte, key string) string {
	var a struct {
		Error struct {
			Message string `json:"message"`
		} `json:"error"`
	}
	text := ""
	if strict.Unmarshal(raw, &a) == nil {
		text = a.Error.Message
	}
	if text == "" {
		text = strings.Join(strings.Fields(string(raw)), " ")
	}
	if key != "" { // some services repeat the key, and callers are told why only words count
		text = strings.ReplaceAll(text, key, "[REDACTED]")
	}
	if len(text) > maxRefusal {
		text = text[:maxRefusal] + "…"
	}
	return strings.ToValidUTF8(text, "�")
}

func (e *Embedder) read(raw []byte, n int) ([][]float32, error) {
	var a struct {
		Data []struct {
			Index     int       `json:"index"`
			Embedding []float32 `json:"embedding"`
		} `json:"data"`
	}
	if err := strict.Unmarshal(raw, &a); err != nil {
		return nil, e.bad("something other than embeddings in JSON")
	}
	if len(a.Data) != n {
		return nil, e.bad("%d vectors for %d texts", len(a.Data), n)
	}
	out := make([][]float32, n)
	for _, d := range a.Data {
		switch {
		case d.Index < 0 || d.Index >= n || out[d.Index] != nil:
			return nil, e.bad("a vector with the index %d, for %d texts", d.Index, n)
		case len(d.Embedding) != e.c.Dimensions:
			return nil, e.bad("a vector of %d numbers; %d are configured", len(d.Embedding), e.c.Dimensions).With("dimensions", len(d.Embedding))
		}
		if !unit(d.Embedding) {
			return nil, e.bad("a vector without a direction")
		}
		out[d.Index] = d.Embedding
	}
	return out, nil
}

// unit scales v to length 1; false if v has no length.
func unit(v []float32) bool {
	sum := 0.0
	for _, x := range v {
		sum += float64(x) * float64(x)
	}
	if sum == 0 || math.IsInf(sum, 0) || math.IsNaN(sum) {
		return false
	}
	f := float32(1 / math.Sqrt(sum))
	for i := range v {
		v[i] *= f
	}
	return true
}
