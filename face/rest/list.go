package rest

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"time"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/catalog"
	"github.com/toolkeep/toolkeep/discover"
	"github.com/toolkeep/toolkeep/discover/usage"
	"github.com/toolkeep/toolkeep/secret"
)

type listToolsInput struct {
	SessionHeader
	paging
	Category          string   `query:"category" maxLength:"64"`
	Tag               []string `query:"tag,explode" maxItems:"64" doc:"only tools with all of these tags; repeatable"`
	Capability        string   `query:"capability" maxLength:"64" doc:"a capability that the tool declares"`
	CapabilityQuery   string   `query:"capability_query" maxLength:"16000" doc:"only tools that a search for these words finds, best first, at most 200"`
	Namespace         string   `query:"namespace" maxLength:"64"`
	Folder            string   `query:"folder" maxLength:"64" doc:"only tools whose latest version was published from the folder of configuration of this name"`
	IncludeDeprecated bool     `query:"include_deprecated" doc:"list deprecated versions too"`
	Source            []string `query:"source,explode" maxItems:"16" maxLength:"64" doc:"only tools of this kind of source, one of these where it is repeated: http, grpc, sql, file, mcp, …, the manifest's execution.kind"`
	State             []string `query:"state,explode" maxItems:"2" enum:"active,deprecated" doc:"state of the version that is listed; deprecated lists deprecated versions too. Repeatable"`
	Risk              []string `query:"risk,explode" maxItems:"3" enum:"low,medium,high" doc:"repeatable"`
	SideEffects       []string `query:"side_effects,explode" maxItems:"3" enum:"none,reads,writes" doc:"repeatable"`
	AuthState         []string `query:"auth_state,explode" maxItems:"5" enum:"none,ready,missing,expired,unreadable" doc:"how the tool stands with its secrets for you, as authentication.state; none: it needs none. Repeatable"`
	AuthScope         []string `query:"auth_scope,explode" maxItems:"4" enum:"user,workspace,organisation,server" doc:"whose secret would be used. Repeatable"`
	Held              string   `query:"held" enum:"true,false" doc:"only tools that wait for review, or only those that do not"`
	Callable          string   `query:"callable" enum:"true,false" doc:"only tools that you may call, or only those that you may not"`
	Sort              string   `query:"sort" enum:"id,-id,published,-published" doc:"the list's order, with - from the end; absent is by id, or best first with capability_query"`
	Facets            bool     `query:"facets" doc:"count the tools that pass all filters by their values"`
	Learn             bool     `query:"learn" default:"true" doc:"false: the search of capability_query is recorded for the audit, and nothing is learned from it"`
}

// ToolSummary is BC-2's, with what an agent wants to know before a call.
type ToolSummary struct {
	ToolID           string   `json:"tool_id"`
	ToolName         string   `json:"tool_name"`
	Description      string   `json:"description"`
	ShortDescription string   `json:"short_description,omitempty"`
	Category         string   `json:"category"`
	Versions         []string `json:"versions"`
	LatestVersion    string   `json:"latest_version"`
	Tags             []string `json:"tags"`
	RequiresApproval bool     `json:"requires_approval"`
	State            string   `json:"state" doc:"of the latest version"`
	Callable         bool     `json:"callable" doc:"whether you may call the latest version; false: your roles show it to you, and let you not call it"`
	SideEffects      string   `json:"side_effects" doc:"none, reads or writes"`
	Risk             string   `json:"risk"`
	Source           string   `json:"source" doc:"kind of what carries it out: http, grpc, sql, file, mcp, …"`
	// Held says why the latest version waits for review and is refused with E3012.
	Authentication *secret.Auth   `json:"authentication,omitempty" doc:"how the latest version stands with its secrets for you; absent where it needs none"`
	Health         string         `json:"health,omitempty" doc:"healthy, degraded or unhealthy; absent where nothing is known"`
	Held           *toolkeep.Hold `json:"held,omitempty" doc:"why the latest version waits for review; calls of it are refused with E3012"`
}

type listToolsOutput struct {
	Body struct {
		Tools  []ToolSummary `json:"tools"`
		Facets *ToolFacets   `json:"facets,omitempty" doc:"where it was asked for"`
		paged
	} `nameHint:"ToolList"`
}

func (a *API) listTools(ctx context.Context, p *toolkeep.Principal, in *listToolsInput) (*listToolsOutput, error) {
	f := catalog.Filter{Category: in.Category, Tags: in.Tag, Capability: in.Capability, Namespace: in.Namespace,
		Folder: in.Folder, IncludeDeprecated: in.IncludeDeprecated || slices.Contains(in.State, string(toolkeep.Deprecated)), Sort: in.Sort, Offset: in.offset(), Limit: in.PageSize}
	if in.CapabilityQuery != "" {
		if a.c.Search == nil {
			return nil, toolkeep.NewError(toolkeep.IndexUnavailable, "this server has no search index; leave capability_query out")
		}
		f.Among = a.found(ctx, p, in)
	}
	n := a.narrowing(ctx, p, in)
	if n != nil {
		f.Keep = n.keep
	}
	list, total := a.c.Catalog.List(p, f, a.visible(p))
	out := &listToolsOutput{}
	if n != nil {
		if n.asked > authAtMost {
			return nil, toolkeep.NewError(toolkeep.InvalidParameters, "more than %d tools need secrets, of which auth_state, auth_scope or facets would ask; narrow the list by another filter first", authAtMost)
		}
		if in.Facets {
			out.Body.Facets = n.facets()
		}
	}
	out.Body.Tools = make([]ToolSummary, len(list))
	for i, s := range list {
		out.Body.Tools[i] = ToolSummary{
			ToolID: s.ToolID, ToolName: s.ToolName, Description: s.Description, ShortDescription: s.ShortDescription,
			Category: s.Category, Versions: some(s.Versions), LatestVersion: s.LatestVersion, Tags: some(s.Tags),
			RequiresApproval: s.RequiresApproval, State: string(s.State), SideEffects: s.SideEffects, Risk: s.Risk, Source: s.Source, Held: s.Held,
		}
		v, _, err := a.c.Catalog.Find(p, s.ToolID, s.LatestVersion, a.visible(p))
		if err != nil { // removed or blocked meanwhile
			continue
		}
		out.Body.Tools[i].Callable = a.c.Callable(p, v.Tool)
		if a.c.Secrets != nil {
			out.Body.Tools[i].Authentication = a.toolAuth(ctx, p, v.Tool, false)
		}
		if a.c.ToolHealth != nil {
			out.Body.Tools[i].Health = a.c.ToolHealth(p, v.Tool).Status.Shown()
		}
	}
	out.Body.paged = in.of(total)
	return out, nil
}

// ToolFacets count tools by value, at most 50 values each, the most frequent first.
type ToolFacets struct {
	Category    []FacetValue `json:"category"`
	Namespace   []FacetValue `json:"namespace"`
	Source      []FacetValue `json:"source"`
	State       []FacetValue `json:"state"`
	Risk        []FacetValue `json:"risk"`
	SideEffects []FacetValue `json:"side_effects"`
	AuthState   []FacetValue `json:"auth_state"`
}

// FacetValue is a value with how many tools have it.
type FacetValue struct {
	Value string `json:"value"`
	Count int    `json:"count"`
}

const (
	facetValues = 50
	// authAtMost bounds the tools of one list whose secrets are looked at.
	authAtMost = 10_000
)

// narrowing is what listTools looks at beyond what the catalogue filters.
type narrowing struct {
	in    *listToolsInput
	auth  func(*toolkeep.Tool) *secret.Auth // nil where neither a filter nor a facet asks
	calls func(*toolkeep.Tool) bool
	asked int // tools whose secrets were looked at
	count map[string]map[string]int
}

// narrowing is nil where the input asks for nothing that it does.
func (a *API) narrowing(ctx context.Context, p *toolkeep.Principal, in *listToolsInput) *narrowing {
	n := &narrowing{in: in, calls: a.callable(p), count: map[string]map[string]int{}}
	byAuth := len(in.AuthState)+len(in.AuthScope) > 0
	if byAuth || in.Facets {
		n.auth = func(t *toolkeep.Tool) *secret.Auth { return a.toolAuth(ctx, p, t, false) }
	} else if in.Held == "" && in.Callable == "" && len(in.Source)+len(in.State)+len(in.Risk)+len(in.SideEffects) == 0 {
		return nil
	}
	return n
}

func oneOf(list []string, v string) bool { return len(list) == 0 || slices.Contains(list, v) }

func isSo(want string, v bool) bool { return want == "" || (want == "true") == v }

// keep tells whether the version passes the filters, and counts it.
func (n *narrowing) keep(v toolkeep.Version) bool {
	in, m := n.in, v.Tool.Manifest
	if !oneOf(in.Source, m.Execution.Kind) || !oneOf(in.State, string(v.Life.State)) || !oneOf(in.Risk, m.Risk) || !oneOf(in.SideEffects, m.SideEffects) ||
		!isSo(in.Held, v.Life.Held != nil) || in.Callable != "" && !isSo(in.Callable, n.calls(v.Tool)) {
		return false
	}
	state := "none"
	if n.auth != nil && len(m.Auth) > 0 {
		if n.asked++; n.asked > authAtMost {
			return false // the list is refused
		}
		var scope string
		if auth := n.auth(v.Tool); auth != nil {
			state, scope = auth.State, string(auth.Scope)
		}
		if len(in.AuthScope) > 0 && !slices.Contains(in.AuthScope, scope) {
			return false
		}
	} else if len(in.AuthScope) > 0 {
		return false
	}
	if !oneOf(in.AuthState, state) {
		return false
	}
	if in.Facets {
		namespace, _, _ := strings.Cut(v.Tool.ID, ".")
		for facet, value := range map[string]string{"category": m.Category, "namespace": namespace, "source": m.Execution.Kind, "state": string(v.Life.State),
			"risk": m.Risk, "side_effects": m.SideEffects, "auth_state": state} {
			if n.count[facet] == nil {
				n.count[facet] = map[string]int{}
			}
			n.count[facet][value]++
		}
	}
	return true
}

func (n *narrowing) facets() *ToolFacets {
	of := func(facet string) []FacetValue {
		list := make([]FacetValue, 0, len(n.count[facet]))
		for value, count := range n.count[facet] {
			list = append(list, FacetValue{value, count})
		}
		slices.SortFunc(list, func(a, b FacetValue) int {
			return cmp.Or(cmp.Compare(b.Count, a.Count), cmp.Compare(a.Value, b.Value))
		})
		return list[:min(len(list), facetValues)]
	}
	return &ToolFacets{of("category"), of("namespace"), of("source"), of("state"), of("risk"), of("side_effects"), of("auth_state")}
}

// found are the ids of the tools that the list's query finds, best first.
func (a *API) found(ctx context.Context, p *toolkeep.Principal, in *listToolsInput) []string {
	as := a.asker(p, in.SessionHeader)
	ask := discover.Query{Text: in.CapabilityQuery, Limit: discover.MaxResults, Category: in.Category, Session: as.Session, Audience: a.audience(p, "list")}
	start := time.Now()
	matches, report := a.c.Search.Find(ctx, ask, a.visible(p))
	a.retrieved(p, usage.Of(ask, matches, report, time.Since(start)), in.SessionHeader, in.Learn)
	ids := make([]string, len(matches))
	for i, m := range matches {
		ids[i] = m.Tool.ID
	}
	return ids
}
