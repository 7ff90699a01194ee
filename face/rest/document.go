package rest

import (
	"maps"
	"net/http"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/face/gate"
)

const (
	tagCalls     = "calls"
	tagTools     = "tools"
	tagRegistry  = "registry"
	tagRetrieval = "retrieval"
	tagAdmin     = "admin"
	tagServers   = "servers"
	tagSystem    = "system"
)

func seconds(d time.Duration) string { return strconv.Itoa(int(d / time.Second)) }

// newHuma makes the API that collects the document. Its own document, docs and
// schema routes stay off; ours are in rawRoutes.
func (a *API) newHuma() huma.API {
	version := a.c.Version
	if version == "" {
		version = "0.0.0-dev"
	}
	doc := &huma.OpenAPI{
		OpenAPI: "3.1.0",
		Info: &huma.Info{
			Title: "Toolkeep", Version: version,
			Description: "Find tools, call them, and read what happened. Refusals are problem documents (RFC 9457); " +
				"a tool that failed is an answer with status 200 whose body says so.",
			License: &huma.License{Name: "Apache-2.0", Identifier: "Apache-2.0"},
		},
		Components: &huma.Components{
			Schemas: huma.NewMapRegistry("#/components/schemas/", huma.DefaultSchemaNamer),
			SecuritySchemes: map[string]*huma.SecurityScheme{
				"bearer": {Type: "http", Scheme: "bearer", Description: "an API key"},
			},
		},
		Security: []map[string][]string{{"bearer": {}}},
		Tags: []*huma.Tag{
			{Name: tagCalls, Description: "call tools and follow the calls"},
			{Name: tagTools, Description: "what tools there are"},
			{Name: tagRegistry, Description: "publish tools and move versions through their lifecycle"},
			{Name: tagRetrieval, Description: "find tools by words"},
			{Name: tagServers, Description: "MCP servers behind this one"}, {Name: tagAdmin, Description: "keys and caches"},
			{Name: tagSystem, Description: "health and this document"},
		},
	}
	return huma.NewAPI(huma.Config{
		OpenAPI: doc, Formats: map[string]huma.Format{"application/json": jsonFormat(), "json": jsonFormat()},
		DefaultFormat: "application/json", Transformers: []huma.Transformer{toProblem},
		RejectUnknownQueryParameters: true,
	}, adapter{a})
}

func (a *API) schema(v any) *huma.Schema {
	t := reflect.TypeOf(v)
	return a.huma.OpenAPI().Components.Schemas.Schema(t, true, t.Name())
}

// describe adds what all operations have.
func (a *API) describe(op *huma.Operation, permission string) {
	if op.Responses == nil {
		op.Responses = map[string]*huma.Response{}
	}
	op.Responses["default"] = &huma.Response{
		Description: "a refusal; the code tells which",
		Headers:     map[string]*huma.Param{"Retry-After": {Description: "seconds to wait, where waiting helps", Schema: &huma.Schema{Type: huma.TypeInteger}}},
		Content:     map[string]*huma.MediaType{gate.ProblemType: {Schema: a.schema(gate.Problem{})}},
	}
	if permission != "" {
		op.Description = strings.TrimSpace(op.Description + " Needs the permission `" + permission + "`.")
	}
	// Our reader has enforced the limits already.
	op.MaxBodyBytes, op.BodyReadTimeout = -1, -1
}

// raw serves an operation that reads and writes bytes itself, and documents it.
func (a *API) raw(op huma.Operation, h http.HandlerFunc) {
	a.describe(&op, "")
	a.huma.OpenAPI().AddOperation(&op)
	a.route(op.Method+" "+op.Path, h)
}

func answers200(description, contentType string, s *huma.Schema) map[string]*huma.Response {
	return map[string]*huma.Response{"200": {Description: description, Content: map[string]*huma.MediaType{contentType: {Schema: s}}}}
}

func pathParam(name, description string) *huma.Param {
	return &huma.Param{Name: name, In: "path", Required: true, Description: description, Schema: &huma.Schema{Type: huma.TypeString}}
}

func headerParam(name, description string) *huma.Param {
	return &huma.Param{Name: name, In: "header", Description: description, Schema: &huma.Schema{Type: huma.TypeString}}
}

// rawRoutes are those on the hot path, the streams, and those without a caller.
func (a *API) rawRoutes() {
	response := a.schema(InvokeResponse{})
	a.raw(huma.Operation{
		OperationID: "invokeTool", Method: http.MethodPost, Path: "/api/v1/tools/invoke", Tags: []string{tagCalls},
		Summary: "Call a tool",
		Description: "With `dry_run` nothing is carried out and the answer explains what would happen, step by step. " +
			"With `execution_options.async_mode`, and wherever the call has to wait, the answer is 202 and `polling_info` says where to ask.",
		Parameters: []*huma.Param{
			headerParam("Idempotency-Key", "the same call sent again with the same key within 24 h is carried out once"),
			headerParam("X-Session-ID", "as agent_context.session_id"),
			headerParam("X-User-ID", "as agent_context.user_did"),
			headerParam("traceparent", "W3C Trace Context"),
		},
		RequestBody: &huma.RequestBody{Required: true, Content: map[string]*huma.MediaType{gate.JSONType: {Schema: a.schema(InvokeRequest{}), Example: invokeExample}}},
		Responses: map[string]*huma.Response{
			"200": {
				Description: "the call has ended, well or badly; or, with dry_run, the explanation",
				Content:     map[string]*huma.MediaType{gate.JSONType: {Schema: &huma.Schema{AnyOf: []*huma.Schema{response, {Type: huma.TypeObject, Description: "explanation"}}}}},
				Headers:     callHeaders(),
			},
			"202": {
				Description: "the call waits or runs",
				Content:     map[string]*huma.MediaType{gate.JSONType: {Schema: response}},
				Headers:     map[string]*huma.Param{"Location": {Description: "where to ask", Schema: &huma.Schema{Type: huma.TypeString}}},
			},
		},
	}, a.invoke)
	a.raw(huma.Operation{
		OperationID: "getInvocation", Method: http.MethodGet, Path: "/api/v1/invocations/{invocation_id}", Tags: []string{tagCalls},
		Summary: "Read one call: its status, and once it has ended its outcome", Parameters: []*huma.Param{pathParam("invocation_id", "")},
		Responses: answers200("the call", gate.JSONType, a.schema(InvocationAnswer{})),
	}, a.invocation)
	a.raw(huma.Operation{
		OperationID: "watchInvocation", Method: http.MethodGet, Path: "/api/v1/invocations/{invocation_id}/events", Tags: []string{tagCalls},
		Summary: "Follow one call as server-sent events",
		Description: "`state` and `progress` carry the JSON of `GET /api/v1/invocations/{invocation_id}` without outcome, `result` that of the answer of invoke; " +
			"then the stream ends. A slow reader gets the latest and misses what lay between.",
		Parameters: []*huma.Param{pathParam("invocation_id", ""), headerParam("Last-Event-ID", "id of the last event that was received")},
		Responses: map[string]*huma.Response{
			"200": {Description: "the events", Content: map[string]*huma.MediaType{"text/event-stream": {Schema: &huma.Schema{Type: huma.TypeString}}}},
			"204": {Description: "the result was received before; do not come back"},
		},
	}, a.gate.Streaming(http.HandlerFunc(a.events)))
	if a.c.Blobs != nil {
		blob := answers200("the bytes", "application/octet-stream", &huma.Schema{Type: huma.TypeString, Format: "binary"})
		blob["206"] = &huma.Response{Description: "the range that was asked for", Content: blob["200"].Content}
		blob["304"] = &huma.Response{Description: "not newer than If-Modified-Since"}
		a.raw(huma.Operation{
			OperationID: "getBlob", Method: http.MethodGet, Path: "/api/v1/blobs/{blob_id}", Tags: []string{tagCalls},
			Summary: "Download an attachment of a result", Parameters: []*huma.Param{pathParam("blob_id", ""), headerParam("Range", "")},
			Responses: blob,
		}, a.gate.Streaming(http.HandlerFunc(a.blob)))
	}
	a.publicRoutes()
}

func callHeaders() map[string]*huma.Param {
	text := func(d string) *huma.Param {
		return &huma.Param{Description: d, Schema: &huma.Schema{Type: huma.TypeString}}
	}
	return map[string]*huma.Param{
		"Deprecation":      text("when the version was deprecated, RFC 9745"),
		"Sunset":           text("when the version stops running, RFC 8594"),
		"RateLimit":        text("what is left of the agent's request limit"),
		"RateLimit-Policy": text("the agent's request limit"),
		"X-Request-ID":     text("the caller's, or a new one"),
	}
}

// publicRoutes need no credential.
func (a *API) publicRoutes() {
	public := []map[string][]string{}
	for _, f := range []struct {
		ext, typ string
		body     *[]byte
	}{{"json", "application/openapi+json", &a.document.json}, {"yaml", "application/openapi+yaml", &a.document.yaml}} {
		a.raw(huma.Operation{
			OperationID: "openapi-" + f.ext, Method: http.MethodGet, Path: "/openapi." + f.ext, Tags: []string{tagSystem}, Security: public,
			Summary: "This document", Responses: answers200("OpenAPI 3.1", f.typ, &huma.Schema{}),
		}, a.serveDocument(f.typ, f.body))
	}
	if a.c.Health == nil {
		return
	}
	for _, path := range []string{"/health", "/ready", "/health/startup", "/health/live", "/health/ready"} {
		op := huma.Operation{
			OperationID: strings.ReplaceAll(path[1:], "/", "-"), Method: http.MethodGet, Path: path, Tags: []string{tagSystem}, Security: public,
			Summary: "Health: UP, DEGRADED or DOWN", Responses: answers200("the server can work", gate.JSONType, &huma.Schema{Type: huma.TypeObject}),
		}
		op.Responses["503"] = &huma.Response{Description: "it cannot", Content: op.Responses["200"].Content}
		a.raw(op, a.c.Health.ServeHTTP)
	}
}

// operations are the typed routes.
func (a *API) operations() {
	op := func(method, path, id, tag, summary string) huma.Operation {
		return huma.Operation{Method: method, Path: path, OperationID: id, Tags: []string{tag}, Summary: summary}
	}
	const tools, tool, calls = "/api/v1/tools", "/api/v1/tools/{tool_id}", "/api/v1/invocations"

	register(a, op("GET", calls, "listInvocations", tagCalls, "List calls, newest first"), "", a.listInvocations)
	register(a, op("POST", calls+"/{invocation_id}/cancel", "cancelInvocation", tagCalls, "Ask a call to stop; again is harmless"), "", a.cancel)

	register(a, op("GET", tools, "listTools", tagTools, "List the tools that you may see"), "", a.listTools)
	register(a, op("GET", tools+"/export", "exportTools", tagTools, "Write the tools that you may see as a provider's function schemas"), "", a.exportTools)
	register(a, op("GET", tool, "getTool", tagTools, "Read one version of a tool"), "", a.getTool)
	register(a, op("GET", tool+"/versions", "listVersions", tagTools, "List a tool's versions with their lifecycle"), "", a.versions)
	register(a, op("GET", tool+"/diff", "diffVersions", tagTools, "Compare two versions of a tool"), "", a.diff)

	publish := func(method, path, id, summary string) huma.Operation {
		o := op(method, path, id, tagRegistry, summary)
		o.Responses = answers200("the same content was there before, or a dry run", gate.JSONType, a.schema(PublishedVersion{}))
		o.Responses["201"] = &huma.Response{Description: "published", Content: o.Responses["200"].Content}
		return o
	}
	register(a, publish("POST", tools+"/register", "registerTool", "Publish a tool version"), toolkeep.PermPublish, a.registerTool)
	register(a, publish("PUT", tool, "publishVersion", "Publish a version of this tool"), toolkeep.PermPublish, a.putTool)
	register(a, op("DELETE", tool, "deprecateTool", tagRegistry, "Deprecate one version of a tool, or all"), toolkeep.PermLifecycle, a.deleteTool)
	register(a, op("POST", tool+"/versions/{version}/state", "setVersionState", tagRegistry, "Move a version to another state"), toolkeep.PermLifecycle, a.postState)
	batch := op("POST", tools+"/batch-register", "batchRegister", tagRegistry, "Publish many tool versions, all or none or each by itself")
	batch.Description = "With `Accept: text/event-stream` or `application/x-ndjson` the answer is a stream: `progress` with stage, done and total, at most four a second, " +
		"and as the last one `result`, which is the JSON of the plain answer, or `error`, a problem document. As lines of JSON each is an object of `event` and `data`."
	batch.Metadata = map[string]any{bulk: true, streams: true}
	register(a, batch, toolkeep.PermPublish, a.batchRegister)
	for _, form := range []string{eventsType, ndjsonType} {
		a.huma.OpenAPI().Paths[batch.Path].Post.Responses["200"].Content[form] = &huma.MediaType{Schema: &huma.Schema{Type: huma.TypeString}}
	}
	imp := op("POST", tools+"/import", "importTools", tagRegistry, "Make tools of an OpenAPI document")
	imp.Metadata = map[string]any{bulk: true}
	register(a, imp, toolkeep.PermPublish, a.importTools)

	if a.c.Search != nil {
		register(a, op("GET", tools+"/retrieval/search", "searchTools", tagRetrieval, "Find tools for a task"), "", a.search)
		context := op("POST", tools+"/retrieval/context", "toolContext", tagRetrieval, "Write what a language model is to know of the tools in its phase of a conversation")
		context.Metadata = map[string]any{conversation: true}
		register(a, context, "", a.disclose)
		register(a, op("GET", tools+"/retrieval/related/{toolId}", "relatedTools", tagRetrieval, "Find tools that go with a tool, or do the like"), "", a.related)
	}
	register(a, op("GET", tools+"/retrieval/manifest/{toolId}", "getManifest", tagRetrieval, "Read a tool's manifest"), "", a.manifest)

	a.usageRoutes()
	a.serverRoutes()
	a.contextRoutes()
	a.secretRoutes()
	if a.c.Keys != nil {
		register(a, op("GET", "/api/v1/keys", "listKeys", tagAdmin, "List API keys"), toolkeep.PermKeys, a.listKeys)
		create := op("POST", "/api/v1/keys", "createKey", tagAdmin, "Make an API key")
		create.DefaultStatus = http.StatusCreated
		register(a, create, toolkeep.PermKeys, a.createKey)
		register(a, op("DELETE", "/api/v1/keys/{key_id}", "revokeKey", tagAdmin, "Revoke an API key"), toolkeep.PermKeys, a.revokeKey)
	}
	if a.c.Invalidate != nil {
		register(a, op("POST", "/cache/invalidate/{tool_id}", "invalidateTool", tagAdmin, "Drop the cached results of a tool"), toolkeep.PermOperate, a.invalidateTool)
	}
	a.searchAdminRoutes()
}

// finishDocument settles the document; it does not change afterwards.
func (a *API) finishDocument() {
	doc := a.huma.OpenAPI()
	schemas := doc.Components.Schemas.Map()
	// huma registers its own error model, which is never sent.
	delete(schemas, "ErrorModel")
	delete(schemas, "ErrorDetail")
	for _, name := range slices.Sorted(maps.Keys(schemas)) {
		if !strings.HasSuffix(name, "Request") && name != "Registration" {
			neverNull(schemas[name])
		}
	}
	for _, name := range []string{"InvokeRequest", "AgentContext", "ResourceLimits", "DocumentContext", "CheckpointConfig", "ExecutionOptions", "ExecutionContext"} {
		mayBeNull(schemas[name])
	}
	var err error
	if a.document.json, err = gate.Marshal(doc); err != nil {
		panic(err) // the document is made of constants
	}
	if a.document.yaml, err = doc.YAML(); err != nil {
		panic(err)
	}
}

// neverNull corrects huma, which calls every list of an answer nullable, and
// leaves answers open: clients are to pass over fields that come later.
func neverNull(s *huma.Schema) {
	if s.AdditionalProperties == false {
		s.AdditionalProperties = nil
	}
	for _, p := range s.Properties {
		if p.Type == huma.TypeArray {
			p.Nullable = false
		}
		neverNull(p)
	}
}

// mayBeNull says of an envelope's optional fields what its reader does: null is
// as good as absent.
func mayBeNull(s *huma.Schema) {
	for name, p := range s.Properties {
		switch {
		case slices.Contains(s.Required, name), p.Type == "" && p.Ref == "":
		case p.Ref != "":
			s.Properties[name] = &huma.Schema{Description: p.Description, AnyOf: []*huma.Schema{{Ref: p.Ref}, {Type: "null"}}}
		default:
			p.Nullable = true
			if p.Enum != nil {
				p.Enum = append(p.Enum, nil)
			}
		}
	}
}
