package main

import (
	"context"
	"encoding/json"
	"fmt"
	"path/filepath"
	"regexp"
	"slices"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/discover"
	"github.com/toolkeep/toolkeep/discover/assembly"
)

// disclosureQueries is how many questions are asked of each size at most.
const disclosureQueries = 300

// disclosure measures what a context costs in tokens against all manifests, and how often
// the right tools are in it, in process: Markdown (1,000 also as JSON), the settings of the defaults, hybrid, no
// usage data.
func disclosure(*bench) (part, error) {
	model, err := openRetrievalModel()
	if err != nil {
		return part{}, err
	}
	defer model.Close()
	remembering := &memo{Embedder: &realQueries{model: model}, known: map[string][]float32{}}
	set, err := readDisclosure()
	if err != nil {
		return part{}, err
	}
	p := part{set: fmt.Sprintf("Set: tools and questions of three public sets (../shared/data/retrieval), %d tools, in turn; what 10,000 lack are tools of made-up words with random vectors. "+
		"Every size holds the right tools of its questions. All manifests are counted as JSON of id, description and parameters, contexts with o200k_base, as Markdown where nothing else is said; means over the questions. "+
		"No usage data and no examples. \"Whole\" is with the manifest, \"in it\" also as a line of the index.", len(set.tools))}
	for _, n := range []int{100, 1000, 10_000} {
		tools, queries := set.take(n)
		x, err := embeddedIndex(remembering, tools)
		if err != nil {
			return part{}, err
		}
		all := 0
		for _, v := range tools {
			m := v.Tool.Manifest
			raw, err := json.Marshal(map[string]any{"tool_id": m.ToolID, "description": m.Description, "parameters": m.ParametersSchema})
			if err != nil {
				return part{}, err
			}
			all += assembly.Tokens(string(raw))
		}
		for _, phase := range []assembly.Phase{assembly.InitialPlanning, assembly.ToolSelection} {
			for _, format := range []assembly.Format{assembly.Markdown, assembly.JSON} {
				name := string(phase)
				if format == assembly.JSON {
					if n != 1000 {
						continue
					}
					name += ", JSON"
				}
				row, err := disclosed(x, phase, format, queries, all)
				if err != nil {
					return part{}, err
				}
				p.rows = append(p.rows, append([]string{fmt.Sprint(n), name, fmt.Sprint(all)}, row...))
			}
		}
		if err := x.Close(); err != nil {
			return part{}, err
		}
	}
	return p, nil
}

// disclosed gives the row of one size, phase and format.
func disclosed(x *discover.Index, phase assembly.Phase, format assembly.Format, queries []goldQuery, all int) ([]string, error) {
	g := &assembly.Guide{Search: x}
	as := assembly.Asker{Visible: func(*toolkeep.Tool) bool { return true }}
	tokens, one, every, wholeOne := 0, 0, 0, 0
	for _, q := range queries {
		c, err := g.Context(context.Background(), assembly.Request{Query: q.text, Phase: phase, Format: format}, as)
		if err != nil {
			return nil, err
		}
		if c.Metadata.Degraded != "" {
			return nil, fmt.Errorf("%q: %s", q.text, c.Metadata.Degraded)
		}
		tokens += c.Metadata.TokensUsed
		shown, whole := map[string]bool{}, map[string]bool{}
		for _, e := range c.LightweightIndex {
			shown[e.ToolID] = true
		}
		for _, d := range c.DetailedTools {
			shown[d.ToolID], whole[d.ToolID] = true, true
		}
		hits := 0
		for _, id := range q.gold {
			if shown[id] {
				hits++
			}
		}
		if hits > 0 {
			one++
		}
		if hits == len(q.gold) {
			every++
		}
		if slices.ContainsFunc(q.gold, func(id string) bool { return whole[id] }) {
			wholeOne++
		}
	}
	mean := float64(tokens) / float64(len(queries))
	share := func(n int) string { return fmt.Sprintf("%.1f %%", 100*float64(n)/float64(len(queries))) }
	whole := share(wholeOne)
	if phase == assembly.InitialPlanning {
		whole = "-"
	}
	return []string{fmt.Sprintf("%.0f", mean), fmt.Sprintf("%.2f %%", 100*(1-mean/float64(all))), share(one), share(every), whole, fmt.Sprint(len(queries))}, nil
}

// goldQuery is a question with the tools that are right.
type goldQuery struct {
	text string
	gold []string
}

// disclosureSet is all tools and questions, mixed.
type disclosureSet struct {
	tools   map[string]toolkeep.Version
	order   []string // of tools
	queries []goldQuery
}

func readDisclosure() (*disclosureSet, error) {
	s := &disclosureSet{tools: map[string]toolkeep.Version{}}
	odd := regexp.MustCompile(`[^A-Za-z0-9_-]`)
	var lists [][]goldQuery
	var orders [][]string
	for _, name := range []string{"bfcl", "sealtools", "metatool"} {
		id := func(raw string) string { return name + "." + odd.ReplaceAllString(raw, "_") }
		var order []string
		err := eachLine(filepath.Join(retrievalData, name, "tools.jsonl"), func(d struct {
			ID, Name, Description string
			Parameters            map[string]any
		}) error {
			schema, err := json.Marshal(map[string]any{"type": "object", "properties": d.Parameters})
			s.tools[id(d.ID)] = version(id(d.ID), &toolkeep.Manifest{ToolID: id(d.ID), Version: "1.0.0", ToolName: d.Name, Description: d.Description, Category: name, ParametersSchema: schema})
			order = append(order, id(d.ID))
			return err
		})
		if err != nil {
			return nil, err
		}
		var list []goldQuery
		err = eachLine(filepath.Join(retrievalData, name, "dev.jsonl"), func(q struct {
			Query string
			Gold  []string
		}) error {
			one := goldQuery{text: q.Query}
			for _, g := range q.Gold {
				if _, ok := s.tools[id(g)]; !ok {
					return fmt.Errorf("%s names %s, which is not a tool", q.Query, g)
				}
				one.gold = append(one.gold, id(g))
			}
			list = append(list, one)
			return nil
		})
		if err != nil {
			return nil, err
		}
		lists, orders = append(lists, spread(list)), append(orders, spread(order))
	}
	s.queries, s.order = inTurn(lists), inTurn(orders)
	return s, nil
}

// spread puts a list into an order in which its beginning is of all its parts.
func spread[T any](list []T) []T {
	const step = 97 // shares no factor with the lengths of the sets
	out := make([]T, 0, len(list))
	for from := range min(step, len(list)) {
		for i := from; i < len(list); i += step {
			out = append(out, list[i])
		}
	}
	return out
}

// inTurn takes one of each list in turn.
func inTurn[T any](lists [][]T) []T {
	var out []T
	for i := 0; ; i++ {
		n := len(out)
		for _, l := range lists {
			if i < len(l) {
				out = append(out, l[i])
			}
		}
		if len(out) == n {
			return out
		}
	}
}

// take returns n tools and their questions: at most half of the tools are right ones, the rest are any others.
func (s *disclosureSet) take(n int) ([]toolkeep.Version, []goldQuery) {
	taken := map[string]bool{}
	var tools []toolkeep.Version
	add := func(id string) {
		if !taken[id] && len(tools) < n {
			taken[id] = true
			tools = append(tools, s.tools[id])
		}
	}
	var queries []goldQuery
	for _, q := range s.queries {
		if len(queries) == disclosureQueries || len(tools)+len(q.gold) > n/2 {
			break
		}
		queries = append(queries, q)
		for _, id := range q.gold {
			add(id)
		}
	}
	for _, id := range s.order {
		add(id)
	}
	if lack := n - len(tools); lack > 0 {
		tools = append(tools, madeUp(lack)...)
	}
	return tools, queries
}
