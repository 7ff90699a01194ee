package main

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"

	"github.com/rogpeppe/go-internal/testscript"
)

// cmdRegistry serves what a real registry answered (mcpregistry/testdata) from a copy that the script may change.
func cmdRegistry(ts *testscript.TestScript, _ bool, _ []string) {
	raw, err := os.ReadFile(filepath.Join(repository, "mcpregistry", "testdata", "recorded.json"))
	ts.Check(err)
	file := ts.MkAbs("recorded.json")
	ts.Check(os.WriteFile(file, raw, 0o600))
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var list []struct {
			Path   string
			Status int
			Body   json.RawMessage
		}
		raw, err := os.ReadFile(file)
		if err == nil {
			err = json.Unmarshal(raw, &list)
		}
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		for _, one := range list {
			if one.Path == r.URL.RequestURI() {
				w.WriteHeader(one.Status)
				_, _ = w.Write(one.Body)
				return
			}
		}
		http.NotFound(w, r)
	}))
	ts.Defer(s.Close)
	ts.Setenv("REGISTRY", s.URL)
}
