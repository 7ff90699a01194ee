package rest

import (
	"context"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/catalog"
	"github.com/toolkeep/toolkeep/secret"
)

// visible is what exists for the principal, callable what it may call.
func (a *API) visible(p *toolkeep.Principal) func(*toolkeep.Tool) bool {
	return func(t *toolkeep.Tool) bool { return a.c.Visible(p, t) }
}

func (a *API) callable(p *toolkeep.Principal) func(*toolkeep.Tool) bool {
	return func(t *toolkeep.Tool) bool { return a.c.Callable(p, t) }
}

// toolID is the id of a tool that may be named as exports name it.
func (a *API) toolID(p *toolkeep.Principal, name string) string {
	return catalog.ID(a.c.Catalog, p, name, a.visible(p))
}

// some is the list, [] for none: clients need not expect null.
func some[T any](list []T) []T {
	if list == nil {
		return []T{}
	}
	return list
}

type getToolInput struct {
	ToolID  string `path:"tool_id" maxLength:"4096" example:"weather.current"`
	Version string `query:"version" maxLength:"256" doc:"exact version or range; absent is the latest"`
}

type getToolOutput struct {
	Deprecation string `header:"Deprecation" doc:"when the version was deprecated, RFC 9745"`
	Sunset      string `header:"Sunset" doc:"when the version stops running, RFC 8594"`
	Body        ToolAnswer
}

// ToolAnswer is one version with its manifest.
type ToolAnswer struct {
	ToolID         string             `json:"tool_id"`
	Version        string             `json:"version"`
	Digest         string             `json:"digest" doc:"of the manifest as it was published"`
	Shared         bool               `json:"shared,omitempty" doc:"it belongs to all tenants"`
	Callable       bool               `json:"callable" doc:"whether you may call this version; false: your roles show it to you, and let you not call it"`
	Lifecycle      toolkeep.Lifecycle `json:"lifecycle"`
	Manifest       object             `json:"manifest" doc:"by the manifest schema, urn:toolkeep:schemas:manifest:v1; without the names of tools that you may not see"`
	Authentication *secret.Auth       `json:"authentication,omitempty" doc:"how it stands with its secrets for you; absent where it needs none"`
	Warnings       []toolkeep.Warning `json:"warnings"`
}

func (a *API) getTool(ctx context.Context, p *toolkeep.Principal, in *getToolInput) (*getToolOutput, error) {
	v, warnings, err := a.c.Catalog.Describe(ctx, p, in.ToolID, in.Version, a.visible(p))
	if err != nil {
		if v, err = a.inspectStopped(p, in, err); err != nil {
			return nil, err
		}
	}
	out := &getToolOutput{Body: ToolAnswer{
		ToolID: v.Tool.ID, Version: v.Tool.Version, Digest: v.Tool.Digest, Shared: v.Tool.Tenant == "", Callable: a.c.Callable(p, v.Tool), Lifecycle: v.Life, Manifest: a.shownManifest(p, v.Tool, a.visible(p)), Authentication: a.toolAuth(ctx, p, v.Tool, true),
		Warnings: some(warnings),
	}}
	h := make(map[string][]string, 2)
	lifecycleHeaders(h, warnings)
	out.Deprecation, out.Sunset = first(h, "Deprecation"), first(h, "Sunset")
	return out, nil
}

// inspectStopped lets those who publish look at an exact version that no longer
// executes: the next one is compared with it, and its number is taken.
func (a *API) inspectStopped(p *toolkeep.Principal, in *getToolInput, refused error) (toolkeep.Version, error) {
	code := toolkeep.AsError(refused).Code
	stopped := code == toolkeep.ToolBlocked || code == toolkeep.ToolRemoved
	if !stopped || !p.May(toolkeep.PermPublish) && !p.May(toolkeep.PermLifecycle) {
		return toolkeep.Version{}, refused
	}
	list, err := a.c.Catalog.Versions(p, in.ToolID, a.visible(p))
	if err != nil {
		return toolkeep.Version{}, err
	}
	for _, v := range list {
		if v.Tool.Version == in.Version {
			v.Tool, err = v.Tool.Whole()
			return v, err
		}
	}
	return toolkeep.Version{}, refused
}

type versionsInput struct {
	ToolID string `path:"tool_id" maxLength:"4096"`
}

// VersionSummary is one version of a tool.
type VersionSummary struct {
	Version   string             `json:"version"`
	Digest    string             `json:"digest"`
	Lifecycle toolkeep.Lifecycle `json:"lifecycle"`
}

type versionsOutput struct {
	Body struct {
		ToolID   string           `json:"tool_id"`
		Versions []VersionSummary `json:"versions"`
	} `nameHint:"VersionList"`
}

func (a *API) versions(_ context.Context, p *toolkeep.Principal, in *versionsInput) (*versionsOutput, error) {
	list, err := a.c.Catalog.Versions(p, in.ToolID, a.visible(p))
	if err != nil {
		return nil, err
	}
	out := &versionsOutput{}
	out.Body.ToolID = list[0].Tool.ID
	out.Body.Versions = make([]VersionSummary, len(list))
	for i, v := range list {
		out.Body.Versions[i] = VersionSummary{Version: v.Tool.Version, Digest: v.Tool.Digest, Lifecycle: v.Life}
	}
	return out, nil
}

type diffInput struct {
	ToolID string `path:"tool_id" maxLength:"4096"`
	From   string `query:"from" required:"true" maxLength:"256" doc:"exact version or range"`
	To     string `query:"to" required:"true" maxLength:"256" doc:"exact version or range"`
}

// Difference is one thing that differs between two versions.
type Difference struct {
	Pointer string `json:"pointer" doc:"JSON Pointer into the manifest"`
	Kind    string `json:"kind" enum:"breaking,additive,patch"`
	Message string `json:"message"`
}

type diffOutput struct {
	Body struct {
		ToolID      string       `json:"tool_id"`
		From        string       `json:"from"`
		To          string       `json:"to"`
		Bump        string       `json:"bump" doc:"what the difference amounts to: major, minor, patch or none"`
		Differences []Difference `json:"differences"`
	} `nameHint:"DiffAnswer"`
}

func (a *API) diff(ctx context.Context, p *toolkeep.Principal, in *diffInput) (*diffOutput, error) {
	list, err := a.c.Catalog.Versions(p, in.ToolID, a.visible(p))
	if err != nil {
		return nil, err
	}
	from, err := a.pick(ctx, p, in.ToolID, in.From, list)
	if err != nil {
		return nil, err
	}
	to, err := a.pick(ctx, p, in.ToolID, in.To, list)
	if err != nil {
		return nil, err
	}
	c := catalog.Compare(from, to)
	out := &diffOutput{}
	b := &out.Body
	b.ToolID, b.From, b.To, b.Bump, b.Differences = from.ID, from.Version, to.Version, c.Bump, differences(c.Differences)
	return out, nil
}

// pick finds a version by its exact number, which may be blocked or removed, or
// else by range among those that can still be called.
func (a *API) pick(ctx context.Context, p *toolkeep.Principal, id, ref string, list []toolkeep.Version) (*toolkeep.Tool, error) {
	for _, v := range list {
		if v.Tool.Version == ref {
			return v.Tool.Whole()
		}
	}
	v, _, err := a.c.Catalog.Describe(ctx, p, id, ref, a.visible(p))
	return v.Tool, err
}

func differences(list []catalog.Difference) []Difference {
	out := make([]Difference, len(list))
	for i, d := range list {
		out[i] = Difference{Pointer: d.Pointer, Kind: d.Kind, Message: d.Message}
	}
	return out
}
