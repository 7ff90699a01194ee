package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"path/filepath"
	"slices"
	"strings"

	"github.com/toolkeep/toolkeep"
)

// served measures recall@5 as a user meets it: a new data directory for each set, its tools
// published over REST, and each query a search over REST with the settings as they come.
func served(b *bench) (part, error) {
	model, err := openRetrievalModel() // says why where model or data are missing
	if err != nil {
		return part{}, err
	}
	model.Close()
	p := part{set: "Set: as in process, but published and searched over REST, each set in a new data directory with the settings as they come; types that JSON Schema does not know are left out."}
	for _, set := range retrievalSets {
		row, err := b.servedSet(set.name)
		if err != nil {
			return part{}, fmt.Errorf("%s: %w", set.name, err)
		}
		p.rows = append(p.rows, append([]string{set.name, set.aim}, row...))
	}
	return p, nil
}

func (b *bench) servedSet(set string) ([]string, error) {
	srv, err := b.server("served-"+set, "TOOLKEEP_SEARCH_MODELS_DIR=models")
	if err != nil {
		return nil, err
	}
	defer srv.stop()
	dir := filepath.Join(retrievalData, set)
	all, ids, err := retrievalTools(dir)
	if err != nil {
		return nil, err
	}
	last := map[string]toolkeep.Version{} // of two whose ids differ by a dot alone, as in the index in process
	for _, v := range all {
		last[v.Tool.ID] = v
	}
	all = slices.SortedFunc(maps.Values(last), func(a, b toolkeep.Version) int { return strings.Compare(a.Tool.ID, b.Tool.ID) })
	for some := range slices.Chunk(all, 500) {
		var tools []any
		for _, v := range some {
			m := manifest(0)
			m["tool_id"], m["tool_name"], m["description"] = v.Tool.ID, v.Tool.Manifest.ToolName, cmp.Or(v.Tool.Manifest.Description, v.Tool.ID)
			delete(m, "category")
			delete(m, "tags")
			if m["parameters_schema"], err = knownTypes(v.Tool.Manifest.ParametersSchema); err != nil {
				return nil, err
			}
			tools = append(tools, map[string]any{"manifest": m})
		}
		if _, err := srv.send(http.MethodPost, "/api/v1/tools/batch-register", map[string]any{"tools": tools, "await_embedding": true}); err != nil {
			return nil, err
		}
	}
	queries, err := queriesOf(dir, set)
	if err != nil {
		return nil, err
	}
	five := 0.0
	for _, q := range queries {
		raw, err := srv.send(http.MethodGet, "/api/v1/tools/retrieval/search?maxTools=5&q="+url.QueryEscape(q.Query), nil)
		if err != nil && strings.Contains(err.Error(), string(toolkeep.NoToolMatches)) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("%q: %w", q.Query, err)
		}
		var a struct {
			Data struct {
				DetailedTools []struct {
					ToolID string `json:"toolId"`
				} `json:"detailedTools"`
			} `json:"data"`
		}
		if err := json.Unmarshal(raw, &a); err != nil {
			return nil, err
		}
		hits := 0
		for _, t := range a.Data.DetailedTools {
			if slices.Contains(q.Gold, ids[t.ToolID]) {
				hits++
			}
		}
		five += float64(hits) / float64(len(q.Gold))
	}
	n := len(queries)
	return []string{fmt.Sprintf("%.1f", 100*five/float64(n)), fmt.Sprint(len(all)), fmt.Sprint(n)}, nil
}

// knownTypes leaves out types such as "str".
func knownTypes(schema []byte) (map[string]any, error) {
	var s struct {
		Properties map[string]map[string]any `json:"properties"`
	}
	if err := json.Unmarshal(schema, &s); err != nil {
		return nil, err
	}
	properties := map[string]any{}
	for name, p := range s.Properties {
		kept := map[string]any{}
		if text, ok := p["description"].(string); ok {
			kept["description"] = text
		}
		properties[name] = kept
	}
	return map[string]any{"type": "object", "properties": properties}, nil
}
