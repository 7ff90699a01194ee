package rest

import (
	"context"
	"maps"
	"slices"
	"time"

	strict "github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/discover"
	"github.com/toolkeep/toolkeep/discover/assembly"
	"github.com/toolkeep/toolkeep/discover/usage"
	"github.com/toolkeep/toolkeep/face/gate"
	"github.com/toolkeep/toolkeep/pack"
)

// Discovery's own paths speak camelCase and wrap their data, as Discovery 8.1
// has it.

const defaultMaxTools = 5

type searchInput struct {
	SessionHeader
	Q               string `query:"q" required:"true" minLength:"1" maxLength:"64000" doc:"what the tool should do, in words; 16,000 characters are read. POST takes what is too long for a URL"`
	Limit           int    `query:"limit" minimum:"1" maximum:"50" doc:"whole tools at most; default 5"`
	MaxTools        int    `query:"maxTools" minimum:"1" maximum:"20" doc:"Discovery's name for limit"`
	Category        string `query:"category" maxLength:"64" doc:"only tools of this category"`
	Strategy        string `query:"strategy" enum:"hybrid,semantic,keyword,category,session" doc:"how to search; default hybrid: words, meaning and usage. semantic compares meanings alone and gives a varied answer, keyword compares words alone; category is hybrid within the category that is sent with it; session is for conversations: tools that were called in it or go with those count heavily, even if the question does not speak of them"`
	Explain         bool   `query:"explain" doc:"show the parts of each score"`
	IncludeExamples bool   `query:"includeExamples" default:"true" doc:"false leaves them out, also of the manifests"`
	Learn           bool   `query:"learn" default:"true" doc:"false: the search is recorded for the audit, nothing is learned from it, and it has no retrievalId"`
}

// searchBody is a search whose question is too long for a URL.
type searchBody struct {
	SessionHeader
	Body struct {
		Q               string `json:"q" minLength:"1" maxLength:"64000" doc:"what the tool should do, in words; 16,000 characters are read"`
		Limit           int    `json:"limit,omitempty" minimum:"1" maximum:"50" doc:"whole tools at most; default 5"`
		Category        string `json:"category,omitempty" maxLength:"64" doc:"only tools of this category"`
		Strategy        string `json:"strategy,omitempty" enum:"hybrid,semantic,keyword,category,session" doc:"how to search, as with GET"`
		Explain         bool   `json:"explain,omitempty" doc:"show the parts of each score"`
		IncludeExamples *bool  `json:"includeExamples,omitempty" doc:"false leaves them out, also of the manifests; default true"`
		Learn           *bool  `json:"learn,omitempty" doc:"false: nothing is learned from the search, as with GET; default true"`
	} `nameHint:"SearchRequestBody"`
}

func (in *searchBody) question() string { return in.Body.Q }

// searchLong is search for a question in the body.
func (a *API) searchLong(ctx context.Context, p *toolkeep.Principal, in *searchBody) (*searchOutput, error) {
	b := &in.Body
	if err := discover.CheckQuery(b.Q); err != nil {
		return nil, err
	}
	return a.search(ctx, p, &searchInput{SessionHeader: in.SessionHeader, Q: b.Q, Limit: b.Limit, Category: b.Category, Strategy: b.Strategy, Explain: b.Explain,
		IncludeExamples: unlessFalse(b.IncludeExamples), Learn: unlessFalse(b.Learn)})
}

func unlessFalse(b *bool) bool { return b == nil || *b }

// retrieved records a search and returns the id by which feedback names it, "" where learn is false.
func (a *API) retrieved(p *toolkeep.Principal, r usage.Retrieval, by SessionHeader, learn bool) string {
	r.Unlearned = !learn
	return usage.Record(a.c.Retrievals, p, r, "rest", by.UserAgent)
}

// IndexEntry is one line of the lightweight index.
type IndexEntry struct {
	ToolID           string   `json:"toolId"`
	ToolName         string   `json:"toolName,omitempty"`
	Version          string   `json:"version"`
	Verb             string   `json:"verb"`
	ShortDescription string   `json:"shortDescription"`
	Category         string   `json:"category"`
	Tags             []string `json:"tags"`
	RequiredParams   []string `json:"requiredParams"`
	OptionalParams   []string `json:"optionalParams"`
	Complexity       string   `json:"complexity"`
	Score            float64  `json:"score" doc:"higher is better; comparable within one answer only"`
	Why              []string `json:"why" doc:"what matched"`
	// Explanation is there where it was asked for.
	Explanation *ScoreParts `json:"explanation,omitempty"`
}

// ScoreParts are the parts of a score before they are weighed, each at most 1 but for Action.
type ScoreParts struct {
	Semantic   float64 `json:"semantic" doc:"how much query and tool mean alike (cosine)"`
	Keyword    float64 `json:"keyword" doc:"how well the words fit; 1 is the best of all tools"`
	History    float64 `json:"history" doc:"how much the tool belongs to what the conversation and you called before"`
	Success    float64 `json:"success" doc:"share of your tenant's calls that succeeded; 0.9 for a tool that was never called"`
	Complexity float64 `json:"complexity" doc:"0.5 for a tool of medium complexity, 1 for high; it is taken off"`
	Action     float64 `json:"action" doc:"1 for a tool that does what the query wants done, 1.4 for a list of what is asked for in the plural, -1 for one that does something else, 0 where that cannot be told; counts 0.05"`
	Learned    float64 `json:"learned" doc:"how much the query is like those after which your tenant called the tool; moves tools, and is in no score"`
	Named      bool    `json:"named" doc:"the query names the tool, which puts it first"`
}

// ScoreWeights say how much each part counts.
type ScoreWeights struct {
	Semantic   float64 `json:"semantic"`
	Keyword    float64 `json:"keyword"`
	History    float64 `json:"history"`
	Success    float64 `json:"success"`
	Complexity float64 `json:"complexity"`
}

// DetailedTool is one tool with its manifest.
type DetailedTool struct {
	ToolID        string               `json:"toolId"`
	Version       string               `json:"version"`
	Manifest      object               `json:"manifest" doc:"without the names of tools that you may not see"`
	Examples      []object             `json:"examples"`
	Relationships *ToolRelationships   `json:"relationships,omitempty" doc:"absent where it was not asked for"`
	Analytics     *usage.ToolAnalytics `json:"analytics,omitempty" doc:"of your tenant, where it was asked for and the tool was called"`
}

// SearchMetadata tells how the answer came about.
type SearchMetadata struct {
	RetrievalStrategy   string `json:"retrievalStrategy"`
	RetrievalTimeMs     int64  `json:"retrievalTimeMs"`
	Degraded            string `json:"degraded,omitempty" doc:"why meanings were not compared although they should be, or of how many of the tools that you may call they were not"`
	QueryCut            bool   `json:"queryCut,omitzero" doc:"q has more than 16,000 characters; the rest was not read"`
	TotalToolsAvailable int    `json:"totalToolsAvailable" doc:"tools that you may call"`
	ToolsRetrieved      int    `json:"toolsRetrieved"`
	RetrievalID         string `json:"retrievalId,omitempty" doc:"by which feedback names this search"`
	// Weights are there where an explanation was asked for.
	Weights  *ScoreWeights `json:"weights,omitempty" doc:"of the parts of each score, in this search"`
	CacheHit bool          `json:"cacheHit" doc:"the answer was kept from an earlier search and is still right"`
}

// SearchData is what was found.
type SearchData struct {
	LightweightIndex []IndexEntry   `json:"lightweightIndex" doc:"the tools that match, best first: those of detailedTools, then as many as fit into about as many tokens as the setting search.budgets.initial_planning says"`
	IndexRest        *assembly.Rest `json:"indexRest,omitempty" doc:"tools that you may call and that are not in the index; of the category that was asked for"`
	DetailedTools    []DetailedTool `json:"detailedTools" doc:"the best of them whole, maxTools at most"`
	Metadata         SearchMetadata `json:"metadata"`
}

type searchOutput struct {
	Body struct {
		Status string     `json:"status" enum:"success"`
		Data   SearchData `json:"data"`
	} `nameHint:"SearchAnswer"`
}

func (a *API) search(ctx context.Context, p *toolkeep.Principal, in *searchInput) (*searchOutput, error) {
	limit := max(in.Limit, in.MaxTools)
	if in.Limit != 0 && in.MaxTools != 0 && in.Limit != in.MaxTools {
		return nil, toolkeep.NewError(toolkeep.MalformedRequest, "limit and maxTools mean the same and have different values; send one of them")
	}
	if limit == 0 {
		limit = defaultMaxTools
	}
	as := a.asker(p, in.SessionHeader)
	visible := as.Visible
	strategy := discover.Strategy(in.Strategy)
	if strategy == discover.Category && in.Category == "" {
		return nil, toolkeep.NewError(toolkeep.MalformedRequest, "strategy category searches within one category; send category as well")
	}
	start := time.Now()
	ask := discover.Query{Text: in.Q, Limit: limit, Strategy: strategy, Category: in.Category, Session: as.Session, Audience: as.Audience}
	found, report := a.c.Search.Find(ctx, ask, visible)
	var index []IndexEntry
	var rest *assembly.Rest
	seen, shown := map[string]int(nil), found
	if len(found) > 0 {
		seen = a.countTools(ask, visible)
		index, shown, rest = a.searchIndex(ctx, ask, found, visible, seen, in.Explain)
	}
	took := time.Since(start)
	retrieval := a.retrieved(p, usage.Of(ask, shown, report, took), in.SessionHeader, in.Learn)
	if len(found) == 0 {
		return nil, discover.NoneFound(ask, report, retrieval)
	}

	out := &searchOutput{}
	out.Body.Status = "success"
	d := &out.Body.Data
	d.LightweightIndex, d.IndexRest = index, rest
	d.DetailedTools = make([]DetailedTool, len(found))
	for i, m := range found {
		whole, err := m.Tool.Whole()
		if err != nil {
			return nil, err
		}
		d.DetailedTools[i] = a.detailed(p, whole, visible, in.IncludeExamples, true)
		d.DetailedTools[i].Relationships = a.relationships(m.Tool, as)
	}
	d.Metadata = SearchMetadata{
		RetrievalStrategy: string(report.Strategy), Degraded: report.Degraded, QueryCut: report.Cut, RetrievalTimeMs: took.Milliseconds(),
		TotalToolsAvailable: sum(seen), ToolsRetrieved: len(found), CacheHit: report.CacheHit,
		RetrievalID: retrieval,
	}
	if in.Explain {
		weights := ScoreWeights(report.Weights)
		d.Metadata.Weights = &weights
	}
	return out, nil
}

// others are the tools that match beyond those that are shown whole, best first.
func (a *API) others(ctx context.Context, ask discover.Query, found []discover.Match, visible func(*toolkeep.Tool) bool) []discover.Match {
	if len(found) < ask.Limit || ask.Limit >= discover.MaxResults {
		return nil
	}
	// A search of its own, since what comes first can depend on the limit.
	ask.Limit = discover.MaxResults
	all, _ := a.c.Search.Find(ctx, ask, visible)
	return slices.DeleteFunc(slices.Clone(all), func(m discover.Match) bool {
		return slices.ContainsFunc(found, func(f discover.Match) bool { return f.Tool == m.Tool })
	})
}

// searchIndex has a line for each tool that was found, and for as many of the others as its budget
// of tokens has room for; shown are those tools. seen are the tools that the caller may see, by category.
func (a *API) searchIndex(ctx context.Context, ask discover.Query, found []discover.Match, visible func(*toolkeep.Tool) bool, seen map[string]int, explain bool) (list []IndexEntry, shown []discover.Match, more *assembly.Rest) {
	const bytesPerToken = 3 // such JSON has about four
	budgets := assembly.Budgets{}
	if a.guide != nil {
		budgets = a.guide.Budgets
	}
	room := bytesPerToken * budgets.Of(assembly.InitialPlanning)
	rest := maps.Clone(seen)
	if ask.Category != "" {
		rest = map[string]int{ask.Category: seen[ask.Category]}
	}
	add := func(m discover.Match, must bool) bool {
		e := indexEntry(m)
		if explain {
			parts := ScoreParts(m.Parts)
			e.Explanation = &parts
		}
		raw, err := gate.Marshal(e)
		if room -= len(raw); !must && (room < 0 || err != nil) {
			return false
		}
		list, shown = append(list, e), append(shown, m)
		rest[m.Tool.Manifest.Category] = max(0, rest[m.Tool.Manifest.Category]-1)
		return true
	}
	for _, m := range found {
		add(m, true)
	}
	if room > 0 {
		for _, m := range a.others(ctx, ask, found, visible) {
			if !add(m, false) {
				break
			}
		}
	}
	return list, shown, assembly.RestOf(sum(rest), rest)
}

func sum(byCategory map[string]int) (n int) {
	for _, v := range byCategory {
		n += v
	}
	return n
}

func indexEntry(m discover.Match) IndexEntry {
	f := m.Tool.Manifest
	e := IndexEntry{
		ToolID: m.Tool.ID, ToolName: f.ToolName, Version: m.Tool.Version, Verb: f.Verb, ShortDescription: f.ShortDescription,
		Category: f.Category, Tags: some(f.Tags), Complexity: f.Complexity, Score: m.Score, Why: some(m.Why),
	}
	if e.ShortDescription == "" {
		e.ShortDescription = toolkeep.ClipBytes(f.Description, 100)
	}
	said := pack.WordsOf(m.Tool)
	e.RequiredParams, e.OptionalParams = some(said.Required), some(said.Optional)
	return e
}

// detailed is a whole tool with its manifest, which has examples and relationships only where the answer
// has them.
func (a *API) detailed(p *toolkeep.Principal, t *toolkeep.Tool, sees func(*toolkeep.Tool) bool, examples, relationships bool) DetailedTool {
	d := DetailedTool{ToolID: t.ID, Version: t.Version, Manifest: a.shownManifest(p, t, sees), Examples: []object{}}
	if !relationships {
		d.Manifest = without(d.Manifest, "relationships")
	}
	if !examples {
		d.Manifest = without(d.Manifest, "examples")
		return d
	}
	for _, e := range t.Manifest.Examples {
		if raw, err := gate.Marshal(e); err == nil {
			d.Examples = append(d.Examples, raw)
		}
	}
	return d
}

// without leaves a member out of a manifest.
func without(manifest object, member string) object {
	var all map[string]jsontext.Value
	if strict.Unmarshal(manifest, &all) != nil || all[member] == nil {
		return manifest
	}
	delete(all, member)
	raw, err := strict.Marshal(all, strict.Deterministic(true))
	if err != nil {
		return manifest // impossible: it was made from valid values
	}
	return raw
}

type manifestInput struct {
	SessionHeader
	ToolID               string `path:"toolId" maxLength:"4096"`
	Version              string `query:"version" maxLength:"256" doc:"exact version or range; absent is the latest"`
	IncludeExamples      bool   `query:"includeExamples" default:"true" doc:"false leaves them out, also of the manifest"`
	IncludeRelationships bool   `query:"includeRelationships" default:"true" doc:"tools that go with it, from its manifest and from what your tenant called; false leaves them out, also of the manifest"`
	IncludeAnalytics     bool   `query:"includeAnalytics" doc:"how the tool performed for your tenant; default false"`
}

type manifestOutput struct {
	Body struct {
		Status string       `json:"status" enum:"success"`
		Data   DetailedTool `json:"data"`
	} `nameHint:"ManifestAnswer"`
}

func (a *API) manifest(ctx context.Context, p *toolkeep.Principal, in *manifestInput) (*manifestOutput, error) {
	v, _, err := a.c.Catalog.Describe(ctx, p, in.ToolID, in.Version, a.visible(p))
	if err != nil {
		return nil, err
	}
	out := &manifestOutput{}
	d := a.detailed(p, v.Tool, a.visible(p), in.IncludeExamples, in.IncludeRelationships)
	if in.IncludeRelationships {
		d.Relationships = a.relationships(v.Tool, a.asker(p, in.SessionHeader))
	}
	if in.IncludeAnalytics && a.c.Analytics != nil {
		if got, ok := a.c.Analytics(p.Tenant, v.Tool.ID); ok {
			d.Analytics = &got
		}
	}
	out.Body.Status, out.Body.Data = "success", d
	return out, nil
}
