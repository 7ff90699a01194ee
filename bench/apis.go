package main

import (
	"bytes"
	"context"
	_ "embed"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/catalog"
	"github.com/toolkeep/toolkeep/catalog/source/openapi"
	"github.com/toolkeep/toolkeep/discover"
)

// apiData holds the documents of apiDocuments, from the root of the checkout.
const apiData = "../shared/data/openapi"

// apiDocuments are the real APIs among the documents; the others there are test cases.
var apiDocuments = []string{
	"adyen/BalancePlatformService-v2.json", "adyen/CheckoutService-v72.yaml", "digitalocean/DigitalOcean-public.v2.yaml",
	"discourse/openapi.yml", "docker-engine/swagger.yaml", "e2b/openapi.yml", "googlemaps/index.yml", "influxdb/oss.yml",
	"kubernetes/v3_api.v1.json", "openai/openai-1.2.0.openapi.yaml", "redocly-museum/openapi.yaml", "rekor/openapi.yaml",
	"twilio/twilio_api_v2010.json",
}

// apiQuestions are what an agent would ask of those APIs, mostly in other words than theirs: one per line, with
// every acceptable tool. They were written before the ranking was changed for them; every other one is held out and
// must not be used for tuning.
//
//go:embed apis.jsonl
var apiQuestions []byte

// apiHalves are the halves of the questions.
var apiHalves = []string{"tuning", "held out"}

// apiQuestion is one of apiQuestions.
type apiQuestion struct {
	Half  string
	Query string
	Gold  []string // any of them is right
}

// questionsOf gives the queries of one half.
func questionsOf(half string) (out []dataQuery, err error) {
	for line := range bytes.Lines(apiQuestions) {
		var q apiQuestion
		if err := json.Unmarshal(line, &q); err != nil {
			return nil, fmt.Errorf("apis.jsonl: %w", err)
		}
		if !slices.Contains(apiHalves, q.Half) || q.Query == "" || len(q.Gold) == 0 {
			return nil, fmt.Errorf("apis.jsonl: %q has no half, question or tools", line)
		}
		if q.Half == half {
			out = append(out, dataQuery{Query: q.Query, Gold: q.Gold, any: true})
		}
	}
	return out, nil
}

// apis measures how often an acceptable tool is found among the imported operations of real APIs, alone and beside
// the tools of the public sets.
func apis(model discover.Embedder) (rows [][]string, err error) {
	tools, abouts, err := apiTools()
	if err != nil {
		return nil, err
	}
	var others []toolkeep.Version
	for _, set := range retrievalSets {
		more, _, err := retrievalTools(filepath.Join(retrievalData, set.name))
		if err != nil {
			return nil, err
		}
		others = append(others, more...)
	}
	ids := make(map[string]string, len(tools))
	for _, v := range tools {
		ids[v.Tool.ID] = v.Tool.ID
	}
	for _, beside := range [][]toolkeep.Version{nil, others} {
		x, err := usedIndex(discover.Config{Embedder: model, About: func(t *toolkeep.Tool) string {
			namespace, _, _ := strings.Cut(t.ID, ".")
			return abouts[namespace]
		}}, slices.Concat(tools, beside))
		if err != nil {
			return nil, err
		}
		name := "apis"
		if n := x.Len() - len(tools); n > 0 {
			name += fmt.Sprintf(", %s other tools beside", discover.Thousands(n))
		}
		for _, half := range apiHalves {
			queries, err := questionsOf(half)
			if err != nil {
				return nil, err
			}
			for _, s := range []discover.Strategy{discover.Keyword, discover.Semantic, discover.Hybrid} {
				row, err := quality(x, ids, queries, s)
				if err != nil {
					return nil, err
				}
				rows = append(rows, append([]string{name, string(s) + ", " + half, "-"}, row...))
			}
		}
		if err := x.Close(); err != nil {
			return nil, err
		}
	}
	return rows, nil
}

// apiTools reads the documents as an import does, with what each says of itself, by namespace. All that the questions
// ask for is among them.
func apiTools() ([]toolkeep.Version, map[string]string, error) {
	if _, err := os.Stat(apiData); err != nil {
		return nil, nil, notMeasured("the documents are missing at " + apiData)
	}
	var all []toolkeep.Version
	have, abouts := map[string]bool{}, map[string]string{}
	for _, name := range apiDocuments {
		// Some documents name no server that can be called.
		plan, err := openapi.Read(context.Background(), openapi.Options{Location: filepath.Join(apiData, name), Server: "https://example.invalid"})
		if err != nil {
			return nil, nil, err
		}
		abouts[plan.Namespace] = plan.About
		for _, planned := range plan.Tools {
			tool, err := catalog.ParseManifest(planned.Manifest)
			if err != nil {
				return nil, nil, err
			}
			have[tool.ID] = true
			all = append(all, toolkeep.Version{Tool: tool, Life: toolkeep.Lifecycle{State: toolkeep.Active}})
		}
	}
	var missing []string
	for _, half := range apiHalves {
		queries, err := questionsOf(half)
		if err != nil {
			return nil, nil, err
		}
		for _, q := range queries {
			for _, id := range q.Gold {
				if !have[id] {
					missing = append(missing, id)
				}
			}
		}
	}
	if missing != nil {
		return nil, nil, fmt.Errorf("apis.jsonl asks for tools that no document has: %s", strings.Join(missing, ", "))
	}
	return all, abouts, nil
}
