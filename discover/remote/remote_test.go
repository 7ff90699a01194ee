package remote

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/egress"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func serve(t *testing.T, h http.HandlerFunc) string {
	t.Helper()
	s := httptest.NewServer(h)
	t.Cleanup(s.Close)
	return s.URL + "/v1"
}

func service(t *testing.T, h http.HandlerFunc, key string) *Embedder {
	t.Helper()
	c := Config{URL: serve(t, h), Model: "small", Dimensions: 2}
	client := &http.Client{Transport: &http.Transport{}, CheckRedirect: egress.NoRedirects}
	t.Cleanup(client.CloseIdleConnections)
	c.client = client
	if key != "" {
		c.Key = func(context.Context) (string, error) { return key, nil }
	}
	e, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	return e
}

func TestEmbed(t *testing.T) {
	asked := 0
	e := service(t, func(w http.ResponseWriter, r *http.Request) {
		asked++
		if r.URL.Path != "/v1/embeddings" || r.Header.Get("Authorization") != "Bearer k1" {
			t.Errorf("%s %s", r.URL.Path, r.Header)
		}
		var in struct {
			Model string
			Input []string
		}
		if err := json.NewDecoder(r.Body).Decode(&in); err != nil || in.Model != "small" {
			t.Errorf("%v %+v", err, in)
		}
		var data []string
		for i, text := range in.Input {
			if text == "" || len(text) > maxText {
				t.Errorf("a text of %d bytes was sent", len(text))
			}
			// In another order than requested, and not of length 1.
			data = append([]string{fmt.Sprintf(`{"object":"embedding","index":%d,"embedding":[%d,0]}`, i, 1+i)}, data...)
		}
		fmt.Fprintf(w, `{"object":"list","data":[%s],"usage":{"total_tokens":3}}`, strings.Join(data, ","))
	}, "k1")
	texts := make([]string, 300)
	texts[0], texts[299] = strings.Repeat("é", maxText), "b"
	got, err := e.Embed(t.Context(), texts)
	if err != nil || len(got) != 300 || asked != 2 {
		t.Fatalf("%v, %d vectors in %d requests", err, len(got), asked)
	}
	for _, v := range got {
		if v[0] < 0.999999 || v[0] > 1.000001 || v[1] != 0 {
			t.Fatalf("%v", v)
		}
	}
	if e.Dimensions() != 2 || !strings.HasPrefix(e.Model(), "small@http://") {
		t.Error(e.Model())
	}
}

func TestEmbedFails(t *testing.T) {
	for _, c := range []struct {
		answer string
		status int
		why    string
	}{
		{`{"error":{"message":"model not found, try pulling it first"}}`, 404, "try pulling it"},
		{"gateway\n  timeout " + strings.Repeat("x", 1000), 504, "gateway timeout xxx"},
		{"", 302, "HTTP 302"},
		{`nonsense`, 200, "other than embeddings"},
		{`{"data":[]}`, 200, "0 vectors for 1"},
		{`{"data":[{"index":1,"embedding":[1,0]}]}`, 200, "index 1"},
		{`{"data":[{"index":0,"embedding":[1,0,0]}]}`, 200, "3 numbers; 2"},
		{`{"data":[{"index":0,"embedding":[0,0]}]}`, 200, "direction"},
		{`{"data":[{"index":0,"embedding":[1e39,0]}]}`, 200, "answered"},
	} {
		e := service(t, func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(c.status)
			_, _ = io.WriteString(w, c.answer)
		}, "")
		_, err := e.Embed(t.Context(), []string{"x"})
		if got := toolkeep.AsError(err); err == nil || got.Code != toolkeep.EmbeddingFailed || !strings.Contains(got.Message, c.why) || len(got.Message) > 800 {
			t.Errorf("%q: %v, want %s", c.answer, err, c.why)
		}
	}
	// A service may repeat the key it refuses.
	const key = "sk-verysecret-abcdef"
	for _, answer := range []string{`{"error":{"message":"Incorrect API key provided: ` + key + `"}}`, strings.Repeat("x", maxRefusal-5) + key} {
		e := service(t, func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusUnauthorized)
			_, _ = io.WriteString(w, answer)
		}, "")
		e.c.Key = func(context.Context) (string, error) { return key, nil }
		if _, err := e.Embed(t.Context(), []string{"x"}); err == nil || strings.Contains(err.Error(), key[:5]) || !strings.Contains(err.Error(), "401") {
			t.Errorf("%v", err)
		}
	}
	e := service(t, func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, "")
	if _, err := e.Embed(t.Context(), []string{"x"}); err == nil || !toolkeep.IsCode(err, toolkeep.EmbeddingFailed) {
		t.Errorf("%v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := e.Embed(ctx, []string{"x"}); err == nil || !toolkeep.IsCode(err, toolkeep.Cancelled) {
		t.Errorf("%v", err)
	}
	e.c.Key = func(context.Context) (string, error) { return "", errors.New("locked") }
	if _, err := e.Embed(t.Context(), []string{"x"}); err == nil || !toolkeep.IsCode(err, toolkeep.EmbeddingFailed) {
		t.Errorf("%v", err)
	}
}

func TestConfig(t *testing.T) {
	good := Config{URL: "http://127.0.0.1:1/v1", Model: "m", Dimensions: 3}
	for name, change := range map[string]func(*Config){
		"no address": func(c *Config) { c.URL = "" },
		"file":       func(c *Config) { c.URL = "file:///etc" },
		"password":   func(c *Config) { c.URL = "http://u:p@host/v1" },
		"query":      func(c *Config) { c.URL = "http://host/v1?key=x" },
		"no model":   func(c *Config) { c.Model = "" },
		"no numbers": func(c *Config) { c.Dimensions = 0 },
		"too many":   func(c *Config) { c.Dimensions = 9000 },
	} {
		c := good
		change(&c)
		if _, err := New(c); err == nil || !toolkeep.IsCode(err, toolkeep.InvalidManifest) || strings.Contains(err.Error(), "u:p") {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := New(good); err != nil {
		t.Error(err)
	}
}
