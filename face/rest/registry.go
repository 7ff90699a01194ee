package rest

import (
	"context"
	"encoding/json"
	"maps"
	"net/http"
	"slices"
	"time"

	strict "github.com/go-json-experiment/json"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/catalog"
	"github.com/toolkeep/toolkeep/catalog/source/openapi"
	"github.com/toolkeep/toolkeep/control/imports"
	"github.com/toolkeep/toolkeep/face/gate"
)

// Registration is Discovery's: the manifest, and examples and use cases
// beside it if the manifest itself has none.
type Registration struct {
	Manifest object          `json:"manifest" doc:"by the manifest schema, urn:toolkeep:schemas:manifest:v1"`
	Examples []examplePosted `json:"examples,omitempty" maxItems:"200" doc:"become the manifest's examples"`
	UseCases []string        `json:"useCases,omitempty" maxItems:"200" doc:"become the manifest's use_cases"`
}

type examplePosted struct {
	Scenario    string          `json:"scenario"`
	Input       object          `json:"input,omitempty"`
	Output      json.RawMessage `json:"output,omitempty"`
	Explanation string          `json:"explanation,omitempty"`
}

// PublishOptions say how to publish.
type PublishOptions struct {
	Force  bool `json:"force,omitempty" doc:"publish in spite of breaking changes; needs catalog:admin and is recorded"`
	DryRun bool `json:"dry_run,omitempty" doc:"check everything, change nothing"`
	Shared bool `json:"shared,omitempty" doc:"the tool belongs to all tenants; needs catalog:admin"`
	// Folder marks what is applied from a folder of configuration.
	Folder       string `json:"folder,omitempty" maxLength:"64" doc:"name of the folder of configuration that this comes from: new versions keep it, and what was pruned from it becomes active again"`
	ForceReindex bool   `json:"forceReindex,omitempty" doc:"take the tools apart and embed them again even if the same content was there before; new content is indexed in any case"`
	// AwaitEmbedding holds the answer back until meanings are compared too.
	AwaitEmbedding bool `json:"await_embedding,omitempty" doc:"answer once the tools have their vectors, after 30 s at the latest, 10 min in a stream; default: at once, with embedding pending"`
}

// publishNeeds is what publishing with the options of a body needs beside PermPublish.
func publishNeeds(p *toolkeep.Principal, body tree) error {
	if body["force"] == true || body["shared"] == true {
		return gate.Need(p, toolkeep.PermLifecycle)
	}
	return nil
}

// RegisterRequest is Discovery's, with how to publish.
type RegisterRequest struct {
	Registration
	PublishOptions
}

type registerInput struct{ Body RegisterRequest }

func (*registerInput) needs(_ *API, p *toolkeep.Principal, body tree) error {
	return publishNeeds(p, body)
}

// PublishedVersion is what became of one manifest.
type PublishedVersion struct {
	ToolID     string       `json:"tool_id"`
	Version    string       `json:"version"`
	Digest     string       `json:"digest"`
	Bump       string       `json:"bump" doc:"difference to the version below: major, minor, patch or none; new without one"`
	Created    bool         `json:"created" doc:"false if the same content was there before"`
	State      string       `json:"state,omitempty" enum:"active,deprecated,sunset,blocked,removed" doc:"of the version; after a dry run what it would be"`
	Restored   bool         `json:"restored,omitempty" doc:"the version was pruned, and is again what it was"`
	Breaking   []Difference `json:"breaking" doc:"what breaks callers, if it was forced"`
	Deprecated []string     `json:"deprecated" doc:"versions that became one too many"`
	Indexed    bool         `json:"indexed" doc:"as indexing.searchable"`

	Indexing IndexingStatus     `json:"indexing"`
	Warnings []toolkeep.Warning `json:"warnings" doc:"fields of the manifest that this build does not honour; tools that its relationships and its fallback name and that you cannot see"`
}

type registerOutput struct {
	Status   int
	Location string `header:"Location"`
	Body     PublishedVersion
}

func (a *API) registerTool(ctx context.Context, p *toolkeep.Principal, in *registerInput) (*registerOutput, error) {
	return a.publishOne(ctx, p, "", in.Body)
}

type putToolInput struct {
	ToolID string `path:"tool_id" maxLength:"4096"`
	Body   RegisterRequest
}

func (*putToolInput) needs(_ *API, p *toolkeep.Principal, body tree) error {
	return publishNeeds(p, body)
}

func (a *API) putTool(ctx context.Context, p *toolkeep.Principal, in *putToolInput) (*registerOutput, error) {
	return a.publishOne(ctx, p, in.ToolID, in.Body)
}

func (a *API) publishOne(ctx context.Context, p *toolkeep.Principal, id string, in RegisterRequest) (*registerOutput, error) {
	raw, err := in.manifest(id)
	if err != nil {
		return nil, err
	}
	b := &imports.Batch{Entries: []imports.Entry{{Manifest: raw}}, PublishOptions: in.options()}
	if err := a.c.Imports.Publish(ctx, p, b); err != nil {
		return nil, err
	}
	e := &b.Entries[0]
	if e.Published == nil {
		return nil, e.Error
	}
	out := &registerOutput{Status: http.StatusOK, Body: published(*e.Published, a.settle(ctx, p, []catalog.Published{*e.Published}, in.PublishOptions, nil)[0])}
	out.Body.Warnings = e.Warnings
	if e.Published.Created && !in.DryRun {
		out.Status = http.StatusCreated
		out.Location = "/api/v1/tools/" + e.Published.ToolID + "?version=" + e.Published.Version
	}
	return out, nil
}

func (o PublishOptions) options() catalog.PublishOptions {
	return catalog.PublishOptions{Force: o.Force, DryRun: o.DryRun, Shared: o.Shared, Folder: o.Folder}
}

// manifest is the manifest to publish. Examples and use cases beside it are
// moved in; both places at once contradict each other. id, if set, must be the
// manifest's own.
func (r *Registration) manifest(id string) ([]byte, error) {
	if id == "" && len(r.Examples) == 0 && len(r.UseCases) == 0 {
		return r.Manifest, nil
	}
	var m map[string]json.RawMessage
	if err := strict.Unmarshal(r.Manifest, &m); err != nil {
		return nil, toolkeep.NewError(toolkeep.MalformedRequest, "manifest must be an object").Because(err)
	}
	if id != "" {
		var own string
		if err := strict.Unmarshal(m["tool_id"], &own); err != nil || own != id {
			return nil, toolkeep.NewError(toolkeep.MalformedRequest, "the path says %s and the manifest's tool_id %s",
				toolkeep.ClipBytes(id, 100), toolkeep.ClipBytes(string(m["tool_id"]), 100))
		}
	}
	if err := moveIn(m, "examples", r.Examples); err != nil {
		return nil, err
	}
	if err := moveIn(m, "use_cases", r.UseCases); err != nil {
		return nil, err
	}
	return gate.Marshal(m)
}

func moveIn[T any](m map[string]json.RawMessage, name string, list []T) error {
	if len(list) == 0 {
		return nil
	}
	if m[name] != nil {
		return toolkeep.NewError(toolkeep.MalformedRequest, "%s stand both in the manifest and beside it; send them once", name)
	}
	b, err := gate.Marshal(list)
	if err != nil {
		return err
	}
	m[name] = b
	return nil
}

func published(v catalog.Published, s IndexingStatus) PublishedVersion {
	return PublishedVersion{
		ToolID: v.ToolID, Version: v.Version, Digest: v.Digest, Bump: v.Bump, Created: v.Created, State: string(v.State), Restored: v.Restored,
		Breaking: differences(v.Breaking), Deprecated: some(v.Deprecated), Indexed: s.Searchable, Indexing: s, Warnings: some(v.Warnings),
	}
}

func (a *API) publishedList(ctx context.Context, p *toolkeep.Principal, list []catalog.Published, o PublishOptions) []PublishedVersion {
	status := a.settle(ctx, p, list, o, nil)
	out := make([]PublishedVersion, len(list))
	for i, v := range list {
		out[i] = published(v, status[i])
	}
	return out
}

type deleteToolInput struct {
	ToolID    string `path:"tool_id" maxLength:"4096"`
	Version   string `query:"version" maxLength:"256" doc:"exact version; absent deprecates all of them"`
	Reason    string `query:"reason" maxLength:"2000"`
	Successor string `query:"successor" maxLength:"256" doc:"version or tool to move to"`
}

type stateOutput struct{ Body StateAnswer }

// StateAnswer is the lifecycle after a change.
type StateAnswer struct {
	ToolID    string             `json:"tool_id"`
	Version   string             `json:"version,omitempty" doc:"absent if all versions were meant"`
	Lifecycle toolkeep.Lifecycle `json:"lifecycle" doc:"of the version; of the highest changed one if all were meant"`
}

func (a *API) deleteTool(ctx context.Context, p *toolkeep.Principal, in *deleteToolInput) (*stateOutput, error) {
	return a.setState(ctx, p, in.ToolID, in.Version,
		catalog.StateChange{State: toolkeep.Deprecated, Reason: in.Reason, Successor: in.Successor})
}

type stateInput struct {
	ToolID  string `path:"tool_id" maxLength:"4096"`
	Version string `path:"version" maxLength:"256"`
	Body    struct {
		State     string     `json:"state" enum:"active,deprecated,sunset,blocked,removed"`
		Reason    string     `json:"reason,omitempty" maxLength:"2000" doc:"shown to callers"`
		Successor string     `json:"successor,omitempty" maxLength:"256" doc:"version or tool to move to"`
		Date      *time.Time `json:"date,omitempty" doc:"sunset: end of execution; deprecated: earliest removal"`
		Now       bool       `json:"now,omitempty" doc:"waive the 90 days between deprecation and removal"`
		Folder    string     `json:"folder,omitempty" maxLength:"64" doc:"prune: block the version, with the cause pruned, if it was published from this folder of configuration, else E3963"`
		Expected  string     `json:"expected,omitempty" enum:"active,deprecated,sunset,blocked,removed" doc:"state that the version must be in now, else E3963: the one that was seen when this was decided"`
	} `nameHint:"StateRequest"`
}

func (a *API) postState(ctx context.Context, p *toolkeep.Principal, in *stateInput) (*stateOutput, error) {
	b := in.Body
	ch := catalog.StateChange{State: toolkeep.VersionState(b.State), Reason: b.Reason, Successor: b.Successor, Now: b.Now, Folder: b.Folder, Expect: toolkeep.VersionState(b.Expected)}
	if b.Date != nil {
		ch.Date = *b.Date
	}
	return a.setState(ctx, p, in.ToolID, in.Version, ch)
}

func (a *API) setState(ctx context.Context, p *toolkeep.Principal, id, version string, ch catalog.StateChange) (*stateOutput, error) {
	life, err := a.c.Catalog.SetState(ctx, p, id, version, ch)
	if err != nil {
		return nil, err
	}
	return &stateOutput{Body: StateAnswer{ToolID: a.toolID(p, id), Version: version, Lifecycle: life}}, nil
}

type holdToolInput struct {
	ToolID  string `path:"tool_id" maxLength:"4096"`
	Version string `path:"version" maxLength:"256"`
	Body    struct {
		Reason string `json:"reason" minLength:"1" maxLength:"2000" doc:"shown to callers, who are refused with E3012"`
	} `nameHint:"HoldToolRequest"`
}

func (a *API) holdTool(ctx context.Context, p *toolkeep.Principal, in *holdToolInput) (*stateOutput, error) {
	return a.heldByHand(ctx, p, in.ToolID, in.Version, &in.Body.Reason)
}

type releaseToolInput struct {
	ToolID  string `path:"tool_id" maxLength:"4096"`
	Version string `path:"version" maxLength:"256"`
}

func (a *API) releaseTool(ctx context.Context, p *toolkeep.Principal, in *releaseToolInput) (*stateOutput, error) {
	return a.heldByHand(ctx, p, in.ToolID, in.Version, nil)
}

func (a *API) heldByHand(ctx context.Context, p *toolkeep.Principal, id, version string, why *string) (*stateOutput, error) {
	life, err := a.c.Catalog.HoldByHand(ctx, p, id, version, why)
	if err != nil {
		return nil, err
	}
	return &stateOutput{Body: StateAnswer{ToolID: a.toolID(p, id), Version: version, Lifecycle: life}}, nil
}

type importInput struct {
	Body struct {
		Type      string            `json:"type" enum:"openapi,grpc,functions"`
		Location  string            `json:"location,omitempty" maxLength:"4096" doc:"http or https URL of the document; of grpc the server, HOST:PORT"`
		Document  string            `json:"document,omitempty" doc:"the document itself, JSON or YAML, instead of location; of functions their schemas as JSON"`
		Namespace string            `json:"namespace,omitempty" maxLength:"32" doc:"of the tools; absent is made from the title"`
		Server    string            `json:"server,omitempty" maxLength:"4096" doc:"base URL instead of the document's; of functions the URL that executes them, {name} in its path is the function's name"`
		Auth      map[string]string `json:"auth,omitempty" doc:"security scheme -> secret reference, such as env://PETSTORE_KEY"`
		Schemes   map[string]string `json:"schemes,omitempty" doc:"what a security scheme is that the document does not define: header:NAME, query:NAME, cookie:NAME, bearer or basic"`
		DeepLists string            `json:"deep_lists,omitempty" enum:"indices,brackets,repeat" doc:"how style deepObject writes the elements of a list: a[0]=1 (default), a[]=1 or a=1"`
		Include   []string          `json:"include,omitempty" maxItems:"100" doc:"patterns of the operations that become tools: id:, path:, tag: or method: and a text with * for any characters; of include, exclude and names each that is absent is as the last import of the document chose; one empty text drops that"`
		Exclude   []string          `json:"exclude,omitempty" maxItems:"100" doc:"patterns of the operations that become none"`
		Names     []string          `json:"names,omitempty" maxItems:"100" doc:"rules REGEXP=REPLACEMENT for the names that operationIds become"`
		sourceImport
		PublishOptions
	} `nameHint:"ImportRequestBody"`
}

func (*importInput) needs(_ *API, p *toolkeep.Principal, body tree) error {
	return publishNeeds(p, body)
}

type importOutput struct {
	Body struct {
		imports.Plan
		Published []PublishedVersion `json:"published" doc:"empty after a dry run"`
	} `nameHint:"ImportAnswer"`
}

func (a *API) importTools(ctx context.Context, p *toolkeep.Principal, in *importInput) (*importOutput, error) {
	b := &in.Body
	if b.Type != "openapi" {
		plan, list, err := a.importSource(ctx, p, in)
		return a.imported(ctx, p, in, plan, list, err)
	}
	if (b.Location == "") == (b.Document == "") {
		return nil, toolkeep.NewError(toolkeep.MalformedRequest, "send either location or document")
	}
	if b.Location != "" && !webURL(b.Location) {
		return nil, toolkeep.NewError(toolkeep.InvalidParameters,
			"location must be an http or https URL without user and password; the server reads no files for you, send their text as document")
	}
	plan, list, err := a.c.Imports.OpenAPI(ctx, p, imports.Request{
		Location: b.Location, Document: []byte(b.Document), Namespace: b.Namespace, Server: b.Server, Auth: b.Auth, Schemes: b.Schemes, DeepLists: b.DeepLists,
		Choice: openapi.Choice{Include: b.Include, Exclude: b.Exclude, Names: b.Names}, PublishOptions: b.options(),
	})
	return a.imported(ctx, p, in, plan, list, err)
}

func (a *API) imported(ctx context.Context, p *toolkeep.Principal, in *importInput, plan *imports.Plan, list []catalog.Published, err error) (*importOutput, error) {
	if err != nil {
		return nil, err
	}
	out := &importOutput{}
	out.Body.Plan = *plan
	out.Body.Published = a.publishedList(ctx, p, list, in.Body.PublishOptions)
	return out, nil
}

type aboutInput struct {
	Namespace string `path:"namespace" maxLength:"32"`
	Body      struct {
		About  string `json:"about" maxLength:"65536" doc:"its title and what it is for; 400 bytes are kept. Empty: nothing is said"`
		Shared bool   `json:"shared,omitempty" doc:"of tools that belong to all tenants"`
		Import bool   `json:"import,omitempty" doc:"an import says so: what was set by hand stays"`
	} `nameHint:"AboutRequestBody"`
}

func (*aboutInput) needs(_ *API, p *toolkeep.Principal, body tree) error {
	return publishNeeds(p, body)
}

func (a *API) setAbout(ctx context.Context, p *toolkeep.Principal, in *aboutInput) (*struct{}, error) {
	from := catalog.AboutByHand
	if in.Body.Import {
		from = catalog.AboutOfImport
	}
	return &struct{}{}, a.c.Imports.SetAbout(ctx, p, in.Namespace, in.Body.About, from, in.Body.Shared)
}

type choicesInput struct {
	Namespace string `path:"namespace" maxLength:"32"`
	Shared    bool   `query:"shared" doc:"of tools that belong to all tenants"`
}

// DocumentChoice is what was chosen of one document.
type DocumentChoice struct {
	Title   string   `json:"title" maxLength:"1000" doc:"the document's"`
	Include []string `json:"include,omitempty" maxItems:"100"`
	Exclude []string `json:"exclude,omitempty" maxItems:"100"`
	Names   []string `json:"names,omitempty" maxItems:"100"`
}

type choicesOutput struct {
	Body struct {
		Choices []DocumentChoice `json:"choices" doc:"by title"`
	} `nameHint:"ChoicesBody"`
}

func (a *API) choices(ctx context.Context, p *toolkeep.Principal, in *choicesInput) (*choicesOutput, error) {
	all, err := a.c.Imports.Choices(ctx, p, in.Namespace, in.Shared)
	if err != nil {
		return nil, err
	}
	out := &choicesOutput{}
	out.Body.Choices = []DocumentChoice{}
	for _, title := range slices.Sorted(maps.Keys(all)) {
		c := all[title]
		out.Body.Choices = append(out.Body.Choices, DocumentChoice{title, c.Include, c.Exclude, c.Names})
	}
	return out, nil
}

type setChoiceInput struct {
	Namespace string `path:"namespace" maxLength:"32"`
	Body      struct {
		DocumentChoice
		Shared bool `json:"shared,omitempty" doc:"of tools that belong to all tenants"`
	} `nameHint:"ChoiceRequestBody"`
}

func (a *API) setChoice(ctx context.Context, p *toolkeep.Principal, in *setChoiceInput) (*struct{}, error) {
	c := &in.Body
	return &struct{}{}, a.c.Imports.SetChoice(ctx, p, in.Namespace, c.Title, catalog.Choice{Include: c.Include, Exclude: c.Exclude, Names: c.Names}, c.Shared)
}
