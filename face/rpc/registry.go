package rpc

import (
	"context"
	"slices"
	"strings"
	"time"

	"google.golang.org/protobuf/types/known/structpb"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/audit"
	"github.com/toolkeep/toolkeep/catalog"
	"github.com/toolkeep/toolkeep/discover"
	"github.com/toolkeep/toolkeep/proto/l03v1"
)

const (
	defaultPage = 50
	maxPage     = 200
	// maxPages keeps offsets within an int.
	maxPages     = 1_000_000
	defaultTools = 5
	maxTools     = 50
	maxTags      = 64

	// stateHeld is shown as the state of a version on hold for review, since the message has no
	// field for that.
	stateHeld = "held"
)

// registry is the service ToolRegistry.
type registry struct {
	l03v1.UnimplementedToolRegistryServer
	s *Server
}

// visible returns the filter of what exists for the principal, callable of what it may call.
func (s *Server) visible(p *toolkeep.Principal) func(*toolkeep.Tool) bool {
	return func(t *toolkeep.Tool) bool { return s.c.Visible(p, t) }
}

func (s *Server) callable(p *toolkeep.Principal) func(*toolkeep.Tool) bool {
	return func(t *toolkeep.Tool) bool { return s.c.Callable(p, t) }
}

// GetTool returns one version with its manifest, without the names of tools that the caller may not
// see. The state of a version that waits for review is held. E3001, E3004, E3005, E3009, E3010.
func (g *registry) GetTool(ctx context.Context, msg *l03v1.GetToolRequest) (_ *l03v1.Tool, err error) {
	p, err := g.s.admitPlain(ctx, msg)
	if err != nil {
		return nil, err
	}
	defer func() {
		g.s.read(ctx, p, audit.Read{What: audit.ReadManifest, Tool: catalog.ID(g.s.c.Catalog, p, msg.GetToolId(), g.s.visible(p)), Version: msg.GetVersion(), Found: 1, Err: err})
	}()
	if err := g.s.checkID(msg.GetToolId()); err != nil {
		return nil, err
	}
	v, _, err := g.s.c.Catalog.Describe(ctx, p, msg.GetToolId(), msg.GetVersion(), g.s.visible(p))
	if err != nil {
		return nil, err
	}
	all, err := g.s.c.Catalog.Versions(p, v.Tool.ID, g.s.visible(p))
	if err != nil {
		return nil, err
	}
	t := &l03v1.Tool{ToolId: v.Tool.ID, Version: v.Tool.Version, State: string(v.Life.State), Digest: v.Tool.Digest,
		ManifestJson: catalog.Shown(g.s.c.Catalog, p, v.Tool, g.s.visible(p)), Callable: new(g.s.c.Callable(p, v.Tool))}
	if v.Life.Held != nil {
		t.State = stateHeld
	}
	for _, o := range all {
		t.Versions = append(t.Versions, o.Tool.Version)
	}
	return t, nil
}

// ListTools returns a page of the tools that the caller may see. filters are category, tag,
// capability and namespace; tags asks for tools with all of them; capability_query narrows the
// list to the results of a search, best first.
func (g *registry) ListTools(ctx context.Context, msg *l03v1.ListToolsRequest) (out *l03v1.ListToolsResponse, err error) {
	p, err := g.s.admitPlain(ctx, msg)
	if err != nil {
		return nil, err
	}
	defer func() {
		g.s.read(ctx, p, audit.Read{What: audit.ReadList, Query: msg.GetCapabilityQuery(), Found: len(out.GetTools()), Err: err})
	}()
	f, err := filterOf(msg)
	if err != nil {
		return nil, err
	}
	if query := msg.GetCapabilityQuery(); query != "" {
		if f.Among, err = g.search(ctx, p, discover.Query{Text: query, Limit: maxPage, Category: f.Category}); err != nil {
			return nil, err
		}
	}
	list, total := g.s.c.Catalog.List(p, f, g.s.visible(p))
	out = &l03v1.ListToolsResponse{TotalCount: count(int64(total)), Page: count(int64(f.Offset/f.Limit + 1)), PageSize: count(int64(f.Limit))}
	for _, t := range list {
		s, callable := summaryOf(t), false
		if v, _, err := g.s.c.Catalog.Find(p, t.ToolID, t.LatestVersion, g.s.visible(p)); err == nil {
			s.AuthStatus, s.Health, callable = g.authStatus(ctx, p, v.Tool), g.healthOf(p, v.Tool), g.s.c.Callable(p, v.Tool)
		}
		s.Callable = &callable
		out.Tools = append(out.Tools, s)
	}
	return out, nil
}

func filterOf(msg *l03v1.ListToolsRequest) (catalog.Filter, error) {
	f := catalog.Filter{IncludeDeprecated: msg.GetIncludeDeprecated(), Limit: defaultPage}
	names := map[string]*string{"category": &f.Category, "capability": &f.Capability, "namespace": &f.Namespace}
	f.Tags = msg.GetTags()
	if len(f.Tags) > maxTags {
		return f, toolkeep.NewError(toolkeep.InvalidParameters, "tags has %d entries; at most %d are allowed", len(f.Tags), maxTags)
	}
	for name, value := range msg.GetFilters() {
		if name == "tag" {
			f.Tags = append(slices.Clone(f.Tags), value)
			continue
		}
		to, ok := names[name]
		if !ok {
			return f, toolkeep.NewError(toolkeep.MalformedRequest, "the filter %q is not known; use category, tag, capability or namespace, and the field tags for several tags", clip(name, 100)).
				With("field", "filters."+clip(name, 100))
		}
		*to = value
	}
	if n := msg.GetPageSize(); n > maxPage {
		return f, toolkeep.NewError(toolkeep.InvalidParameters, "page_size must be at most %d", maxPage)
	} else if n > 0 {
		f.Limit = int(n)
	}
	if n := msg.GetPage(); n > maxPages {
		return f, toolkeep.NewError(toolkeep.InvalidParameters, "page must be at most %d", maxPages)
	} else if n > 0 {
		f.Offset = int(n-1) * f.Limit
	}
	return f, nil
}

// search returns the ids of the tools that the query finds.
func (g *registry) search(ctx context.Context, p *toolkeep.Principal, q discover.Query) ([]string, error) {
	if g.s.c.Audience != nil {
		q.Audience = g.s.c.Audience(p, "list")
	}
	found, report, _, err := g.find(ctx, p, q, g.s.visible(p))
	if err == nil && report.Cut {
		err = toolkeep.NewError(toolkeep.InvalidParameters, "%s; a list is narrowed by all of it or not at all: say in fewer words what its tools should do", discover.CutNotice)
	}
	if err != nil {
		return nil, err
	}
	ids := make([]string, len(found))
	for i, m := range found {
		ids[i] = m.Tool.ID
	}
	return ids, nil
}

// authStatus returns the state of a tool's secrets for the caller: ready, missing, expired or
// unreadable; "" for a tool that needs none.
func (g *registry) authStatus(ctx context.Context, p *toolkeep.Principal, t *toolkeep.Tool) string {
	if g.s.c.ToolAuth == nil {
		return ""
	}
	if a := g.s.c.ToolAuth(ctx, p, t, false); a != nil {
		return a.State
	}
	return ""
}

func summaryOf(t catalog.Summary) *l03v1.ToolSummary {
	return &l03v1.ToolSummary{ToolId: t.ToolID, ToolName: t.ToolName, Description: t.Description, Category: t.Category,
		Versions: t.Versions, LatestVersion: t.LatestVersion, Tags: t.Tags, RequiresApproval: t.RequiresApproval}
}

// find searches the tools that among admits, and returns the id by which feedback names the search. E3104, E3301, E3311.
func (g *registry) find(ctx context.Context, p *toolkeep.Principal, q discover.Query, among func(*toolkeep.Tool) bool) (found []discover.Match, report discover.Report, retrieval string, err error) {
	if g.s.c.Search == nil {
		return nil, report, "", errNoSearch()
	}
	if strings.TrimSpace(q.Text) == "" {
		return nil, report, "", toolkeep.NewError(toolkeep.InvalidParameters, "the query is empty: say in words what the tool should do")
	}
	if err := discover.CheckQuery(q.Text); err != nil {
		return nil, report, "", err
	}
	q.Session.Tenant, q.Session.Subject = p.Tenant, p.Person()
	start := time.Now()
	found, report = g.s.c.Search.Find(ctx, q, among)
	return found, report, g.s.retrieved(ctx, p, q, found, report, start), nil
}

// strategies maps the contract's strategy names to those of search.
var strategies = map[string]discover.Strategy{"": "", "hybrid": discover.Hybrid, "semantic": discover.Semantic, "keyword": discover.Keyword, "category": discover.Category, "session": discover.InSession}

// QueryByCapability finds tools by purpose, best first. strategy is hybrid (the default), semantic,
// keyword, category (hybrid within the category, which is then required) or session; session_id
// names the conversation. Each explanation says what matched and the parts of the score. E3101 if none is found, E3104, E3301, E3311, E3312.
func (g *registry) QueryByCapability(ctx context.Context, msg *l03v1.QueryByCapabilityRequest) (_ *l03v1.QueryByCapabilityResponse, err error) {
	p, err := g.s.admitPlain(ctx, msg)
	if err != nil {
		return nil, err
	}
	defer func() {
		g.s.read(ctx, p, audit.Read{What: audit.ReadSearch, Query: msg.GetQuery(), Session: msg.GetSessionId(), Err: err})
	}()
	limit := int(msg.GetMaxTools())
	switch {
	case limit == 0:
		limit = defaultTools
	case limit > maxTools:
		return nil, toolkeep.NewError(toolkeep.InvalidParameters, "max_tools must be at most %d", maxTools)
	}
	strategy, ok := strategies[msg.GetStrategy()]
	switch {
	case !ok:
		return nil, toolkeep.NewError(toolkeep.InvalidParameters, "the strategy %q is not known; use hybrid, semantic, keyword, category or session, or leave it out", clip(msg.GetStrategy(), 100))
	case msg.GetStrategy() == "category" && msg.GetCategory() == "":
		return nil, toolkeep.NewError(toolkeep.MalformedRequest, "strategy category searches within one category; send category as well")
	}
	session, err := g.s.sessionOf(ctx, msg.GetSessionId())
	if err != nil {
		return nil, err
	}
	ask := discover.Query{Text: msg.GetQuery(), Limit: limit, Strategy: strategy, Category: msg.GetCategory(), Session: discover.Session{ID: session}}
	if g.s.c.Audience != nil {
		ask.Audience = g.s.c.Audience(p)
	}
	found, report, retrieval, err := g.find(ctx, p, ask, g.s.callable(p))
	if err != nil {
		return nil, err
	}
	if len(found) == 0 {
		return nil, discover.NoneFound(ask, report, retrieval)
	}
	out := &l03v1.QueryByCapabilityResponse{}
	for _, m := range found {
		out.Matches = append(out.Matches, &l03v1.QueryByCapabilityResponse_Match{
			Tool: g.describe(ctx, p, m.Tool), Score: m.Score, Explanation: explanation(m, report)})
	}
	return out, nil
}

// describe returns the summary of a found tool, with its versions.
func (g *registry) describe(ctx context.Context, p *toolkeep.Principal, t *toolkeep.Tool) *l03v1.ToolSummary {
	m := t.Manifest
	s := &l03v1.ToolSummary{ToolId: t.ID, ToolName: m.ToolName, Description: m.Description, Category: m.Category,
		LatestVersion: t.Version, Tags: slices.Clone(m.Tags), RequiresApproval: m.RequiresApproval, AuthStatus: g.authStatus(ctx, p, t), Health: g.healthOf(p, t), Callable: new(true)}
	all, err := g.s.c.Catalog.Versions(p, t.ID, g.s.callable(p))
	if err != nil {
		return s // removed since the search; the summary stands as found
	}
	for _, v := range all {
		s.Versions = append(s.Versions, v.Tool.Version)
	}
	return s
}

// explanation says why a tool was found, and how the search went.
func explanation(m discover.Match, r discover.Report) *structpb.Struct {
	words := make([]*structpb.Value, len(m.Why))
	for i, w := range m.Why {
		words[i] = structpb.NewStringValue(valid(w))
	}
	f := map[string]*structpb.Value{
		"why":        structpb.NewListValue(&structpb.ListValue{Values: words}),
		"semantic":   structpb.NewNumberValue(m.Semantic),
		"keyword":    structpb.NewNumberValue(m.Keyword),
		"history":    structpb.NewNumberValue(m.History),
		"success":    structpb.NewNumberValue(m.Success),
		"complexity": structpb.NewNumberValue(m.Complexity),
		"action":     structpb.NewNumberValue(m.Action),
		"learned":    structpb.NewNumberValue(m.Learned),
		"named":      structpb.NewBoolValue(m.Named),
		"strategy":   structpb.NewStringValue(string(r.Strategy)),
		"weights": structpb.NewStructValue(&structpb.Struct{Fields: map[string]*structpb.Value{
			"semantic":   structpb.NewNumberValue(r.Weights.Semantic),
			"keyword":    structpb.NewNumberValue(r.Weights.Keyword),
			"history":    structpb.NewNumberValue(r.Weights.History),
			"success":    structpb.NewNumberValue(r.Weights.Success),
			"complexity": structpb.NewNumberValue(r.Weights.Complexity),
		}}),
	}
	if r.Cut {
		f["query_cut"] = structpb.NewBoolValue(true)
	}
	if r.Degraded != "" {
		f["degraded"] = structpb.NewStringValue(valid(r.Degraded))
	}
	return &structpb.Struct{Fields: f}
}
