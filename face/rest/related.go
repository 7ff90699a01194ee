package rest

import (
	"context"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/catalog"
	"github.com/toolkeep/toolkeep/discover"
	"github.com/toolkeep/toolkeep/discover/assembly"
)

// SessionHeader is the conversation that a question belongs to.
type SessionHeader struct {
	SessionID string `header:"X-Session-ID" maxLength:"4096" doc:"the conversation; what was called in it counts"`
	UserAgent string `header:"User-Agent" hidden:"true"` // for the record of the search
}

// asker is the principal as those see it who answer questions about tools.
func (a *API) asker(p *toolkeep.Principal, s SessionHeader) assembly.Asker {
	return assembly.Asker{Session: discover.Session{Tenant: p.Tenant, Subject: p.Person(), ID: s.SessionID}, Visible: a.callable(p), Audience: a.audience(p)}
}

// ToolRelationships are the tools that you may call and that are related to one.
type ToolRelationships struct {
	Dependencies   []string      `json:"dependencies"`
	CommonPairings []ToolPairing `json:"commonPairings" doc:"those that the manifest names, then those that are called with it"`
	Alternatives   []string      `json:"alternatives"`
}

// ToolPairing is a tool that is called with another.
type ToolPairing struct {
	ToolID            string  `json:"toolId"`
	CooccurrenceScore float64 `json:"cooccurrenceScore" doc:"0 to 1, from the calls of your tenant; 0 where there were none"`
	TypicalSequence   string  `json:"typicalSequence,omitempty" enum:"before,after,parallel" doc:"when toolId is called, seen from the other tool"`
	Source            string  `json:"source" enum:"manifest,usage"`
}

func (a *API) relationships(t *toolkeep.Tool, as assembly.Asker) *ToolRelationships {
	r := &ToolRelationships{Dependencies: []string{}, CommonPairings: []ToolPairing{}, Alternatives: []string{}}
	if a.guide == nil {
		return r
	}
	known := a.guide.Named(t, as)
	for _, d := range known.Dependencies {
		r.Dependencies = append(r.Dependencies, d.Tool.ID)
	}
	for _, p := range known.Pairings {
		r.CommonPairings = append(r.CommonPairings, ToolPairing{ToolID: p.Tool.ID, CooccurrenceScore: p.Together, TypicalSequence: p.Sequence, Source: p.Source})
	}
	for _, o := range known.Alternatives {
		r.Alternatives = append(r.Alternatives, o.Tool.ID)
	}
	return r
}

// shownManifest is a tool's manifest without the names of tools that sees leaves out.
func (a *API) shownManifest(p *toolkeep.Principal, t *toolkeep.Tool, sees func(*toolkeep.Tool) bool) object {
	return object(catalog.Shown(a.c.Catalog, p, t, sees))
}

type relatedInput struct {
	SessionHeader
	ToolID           string `path:"toolId" maxLength:"4096" doc:"tool that the others are related to"`
	RelationshipType string `query:"relationshipType" required:"true" enum:"dependencies,pairings,alternatives" doc:"dependencies: what must be called or be there first; pairings: what is called before, after or beside; alternatives: what does the like"`
	MaxResults       int    `query:"maxResults" minimum:"1" maximum:"10" default:"3" doc:"tools at most"`
}

// RelatedTool is one tool that is related to another.
type RelatedTool struct {
	ToolID            string  `json:"toolId"`
	Version           string  `json:"version"`
	RelationshipScore float64 `json:"relationshipScore" doc:"1: the manifest names it; below 1: how often both are called together, or how alike it is"`
	Sequence          string  `json:"sequence,omitempty" enum:"before,after,parallel" doc:"of a pairing: when toolId is called, seen from the source tool"`
	Source            string  `json:"source" enum:"manifest,usage,search"`
	Manifest          object  `json:"manifest"`
}

// RelatedData are the related tools.
type RelatedData struct {
	SourceToolID     string        `json:"sourceToolId"`
	RelationshipType string        `json:"relationshipType" enum:"dependencies,pairings,alternatives"`
	RelatedTools     []RelatedTool `json:"relatedTools" doc:"those that the manifest names, then the others, best first"`
}

type relatedOutput struct {
	Body struct {
		Status string      `json:"status" enum:"success"`
		Data   RelatedData `json:"data"`
	} `nameHint:"RelatedAnswer"`
}

func (a *API) related(ctx context.Context, p *toolkeep.Principal, in *relatedInput) (*relatedOutput, error) {
	v, _, err := a.c.Catalog.Describe(ctx, p, in.ToolID, "", a.visible(p))
	if err != nil {
		return nil, err
	}
	out := &relatedOutput{}
	out.Body.Status = "success"
	d := &out.Body.Data
	d.SourceToolID, d.RelationshipType, d.RelatedTools = v.Tool.ID, in.RelationshipType, []RelatedTool{}
	for _, r := range a.guide.Related(ctx, v.Tool, assembly.Relationship(in.RelationshipType), in.MaxResults, a.asker(p, in.SessionHeader)) {
		d.RelatedTools = append(d.RelatedTools, RelatedTool{ToolID: r.Tool.ID, Version: r.Tool.Version, RelationshipScore: r.Score, Sequence: r.Sequence, Source: r.Source,
			Manifest: a.shownManifest(p, r.Tool, a.callable(p))})
	}
	return out, nil
}
