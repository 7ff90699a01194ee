package rest

import (
	"net/http"
	"strings"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/audit"
	"github.com/toolkeep/toolkeep/canon"
	"github.com/toolkeep/toolkeep/face/gate"
)

// rawRoutes are those on the hot path, the streams, and those without a caller.
func (a *API) rawRoutes() {
	response := a.components.ref(InvokeResponse{})
	invoke := op("POST", "/api/v1/tools/invoke", "invokeTool", tagCalls, "Call a tool")
	invoke.description = "With `dry_run` nothing is carried out and the answer explains what would happen, step by step. " +
		"With `execution_options.async_mode`, and wherever the call has to wait, the answer is 202 and `polling_info` says where to ask."
	invoke.params = []tree{
		headerParam("Idempotency-Key", "the same call sent again with the same key is carried out once, for 24 h or what idempotency.ttl says"),
		headerParam("X-Session-ID", "as agent_context.session_id"),
		headerParam("X-User-ID", "as agent_context.user_did"),
		headerParam("traceparent", "W3C Trace Context"),
	}
	invoke.body = tree{"required": true, "content": tree{gate.JSONType: tree{"schema": a.components.ref(InvokeRequest{}), "example": invokeExample}}}
	invoke.responses = tree{
		"200": tree{
			"description": "the call has ended, well or badly; or, with dry_run, the explanation",
			"content":     content(gate.JSONType, tree{"anyOf": []any{response, tree{"type": "object", "description": "explanation"}}}),
			"headers": rateDocs(tree{
				"Deprecation":  headerDoc("when the version was deprecated, RFC 9745", text()),
				"Sunset":       headerDoc("when the version stops running, RFC 8594", text()),
				"X-Request-ID": headerDoc("the caller's, or a new one", text()),
			}),
		},
		"202": tree{
			"description": "the call waits or runs",
			"content":     content(gate.JSONType, response),
			"headers":     rateDocs(tree{"Location": headerDoc("where to ask", text())}),
		},
	}
	a.components.mayBeNull("InvokeRequest", "AgentContext", "ResourceLimits", "DocumentContext", "CheckpointConfig", "ExecutionOptions", "ExecutionContext")
	a.raw(invoke, a.invoke)
	a.modelRoutes()

	const call = "/api/v1/invocations/{invocation_id}"
	get := op("GET", call, "getInvocation", tagCalls, "Read one call: its status, and once it has ended its outcome")
	get.params = []tree{pathParam("invocation_id")}
	get.responses = answers200("the call", gate.JSONType, a.components.ref(InvocationAnswer{}))
	a.raw(get, a.invocation)

	watch := op("GET", call+"/events", "watchInvocation", tagCalls, "Follow one call as server-sent events")
	watch.description = "`state` and `progress` carry the JSON of `GET /api/v1/invocations/{invocation_id}` without outcome, `result` that of the answer of invoke; " +
		"then the stream ends. A slow reader gets the latest and misses what lay between."
	watch.params = []tree{pathParam("invocation_id"), headerParam("Last-Event-ID", "id of the last event that was received")}
	watch.responses = tree{"200": tree{"description": "the events", "content": streams(eventsType)}}
	watch.responses["204"] = tree{"description": "the result was received before; do not come back"}
	a.raw(watch, a.gate.Streaming(http.HandlerFunc(a.events)))

	a.liveRoutes()

	if a.c.Blobs != nil {
		blob := op("GET", "/api/v1/blobs/{blob_id}", "getBlob", tagCalls, "Download an attachment of a result")
		blob.params = []tree{pathParam("blob_id"), headerParam("Range", "")}
		bytes := content("application/octet-stream", tree{"type": "string", "format": "binary"})
		blob.responses = tree{"200": tree{"description": "the bytes", "content": bytes},
			"206": tree{"description": "the range that was asked for", "content": bytes},
			"304": tree{"description": "not newer than If-Modified-Since"}}
		a.raw(blob, a.gate.Streaming(http.HandlerFunc(a.blob)))
	}
	a.publicRoutes()
}

// publicRoutes need no credential.
func (a *API) publicRoutes() {
	for _, f := range []struct {
		ext  string
		body func() []byte
	}{{"json", a.document.json}, {"yaml", a.document.yaml}} {
		r := op("GET", "/openapi."+f.ext, "openapi-"+f.ext, tagSystem, "This document")
		r.public, r.responses = true, answers200("OpenAPI 3.1", "application/openapi+"+f.ext, tree{})
		a.raw(r, a.serveDocument("application/openapi+"+f.ext, f.body))
	}
	if a.c.Health == nil {
		return
	}
	for _, path := range []string{"/health", "/ready", "/health/startup", "/health/live", "/health/ready"} {
		r := op("GET", path, strings.ReplaceAll(path[1:], "/", "-"), tagSystem, "Health: UP, DEGRADED or DOWN")
		state := content(gate.JSONType, tree{"type": "object"})
		r.public, r.responses = true, tree{"200": tree{"description": "the server can work", "content": state}, "503": tree{"description": "it cannot", "content": state}}
		a.raw(r, a.c.Health.ServeHTTP)
	}
}

// operations are the typed routes.
func (a *API) operations() {
	const tools, tool, calls = "/api/v1/tools", "/api/v1/tools/{tool_id}", "/api/v1/invocations"

	list := op("GET", calls, "listInvocations", tagCalls, "List calls, newest first")
	list.spares = toolkeep.PermInvocations
	register(a, list, "", a.listInvocations)
	cancel := op("POST", calls+"/{invocation_id}/cancel", "cancelInvocation", tagCalls, "Ask a call to stop; repeating the request is harmless")
	cancel.free = true
	register(a, cancel, "", a.cancel)

	register(a, reading(audit.ReadList, op("GET", tools, "listTools", tagTools, "List the tools that you may see")), "", a.listTools)
	register(a, reading(audit.ReadExport, op("GET", tools+"/export", "exportTools", tagTools, "Write the tools that you may see as a provider's function schemas")), "", a.exportTools)
	register(a, reading(audit.ReadManifest, op("GET", tool, "getTool", tagTools, "Read one version of a tool")), "", a.getTool)
	register(a, reading(audit.ReadVersions, op("GET", tool+"/versions", "listVersions", tagTools, "List a tool's versions with their lifecycle")), "", a.versions)
	register(a, reading(audit.ReadDiff, op("GET", tool+"/diff", "diffVersions", tagTools, "Compare two versions of a tool")), "", a.diff)

	if a.c.ToolHealth != nil {
		register(a, op("GET", tool+"/health", "getToolHealth", tagTools, "Read how well a tool works"), "", a.getToolHealth)
	}

	publish := func(method, path, id, summary string) route {
		r := op(method, path, id, tagRegistry, summary)
		version := content(gate.JSONType, a.components.ref(PublishedVersion{}))
		r.responses = tree{"200": tree{"description": "the same content was there before, or a dry run", "content": version},
			"201": tree{"description": "published", "content": version}}
		return r
	}
	register(a, publish("POST", tools+"/register", "registerTool", "Publish a tool version"), toolkeep.PermPublish, a.registerTool)
	register(a, publish("PUT", tool, "publishVersion", "Publish a version of this tool"), toolkeep.PermPublish, a.putTool)
	register(a, op("DELETE", tool, "deprecateTool", tagRegistry, "Deprecate one version of a tool, or all"), toolkeep.PermLifecycle, a.deleteTool)
	register(a, op("POST", tool+"/versions/{version}/state", "setVersionState", tagRegistry, "Move a version to another state"), toolkeep.PermLifecycle, a.postState)
	register(a, op("PUT", tool+"/versions/{version}/hold", "holdTool", tagRegistry, "Hold a version: it stays listed, and calls of it are refused until it is let go"), toolkeep.PermLifecycle, a.holdTool)
	register(a, op("DELETE", tool+"/versions/{version}/hold", "releaseTool", tagRegistry, "Let a version go that an administrator holds"), toolkeep.PermLifecycle, a.releaseTool)
	batch := op("POST", tools+"/batch-register", "batchRegister", tagRegistry, "Publish many tool versions, all or none or each by itself")
	batch.description = "With `Accept: text/event-stream` or `application/x-ndjson` the answer is a stream: `progress` with stage, done and total, at most four a second, " +
		"and as the last one `result`, which is the JSON of the plain answer, or `error`, a problem document. As lines of JSON each is an object of `event` and `data`."
	// They take many manifests and so more of everything.
	bulk := canon.Limits{Bytes: a.limits.BulkBytes, Depth: 60, Properties: 2_000_000, Elements: 2_000_000}
	batch.limits, batch.streams = bulk, true
	batch.responses = tree{"200": tree{"description": "OK", "content": streams(eventsType, ndjsonType)}}
	register(a, batch, toolkeep.PermPublish, a.batchRegister)
	imp := op("POST", tools+"/import", "importTools", tagRegistry, "Make tools of an OpenAPI document, a gRPC server or function schemas")
	imp.limits = bulk
	register(a, imp, toolkeep.PermPublish, a.importTools)

	register(a, op("PUT", "/api/v1/namespaces/{namespace}/about", "setAbout", tagRegistry, "Say what the API or server behind a namespace's tools is for; searches find the tools by it too"), toolkeep.PermPublish, a.setAbout)
	register(a, op("GET", "/api/v1/namespaces/{namespace}/choices", "listChoices", tagRegistry, "What imports chose of the OpenAPI documents behind a namespace's tools; the next import of a document chooses the same"), toolkeep.PermPublish, a.choices)
	register(a, op("PUT", "/api/v1/namespaces/{namespace}/choices", "setChoice", tagRegistry, "Keep what is chosen of an OpenAPI document, as imports do"), toolkeep.PermPublish, a.setChoice)

	if a.c.Search != nil {
		register(a, reading(audit.ReadSearch, op("GET", tools+"/retrieval/search", "searchTools", tagRetrieval, "Find tools for a task")), "", a.search)
		register(a, reading(audit.ReadSearch, op("POST", tools+"/retrieval/search", "searchToolsLong", tagRetrieval, "Find tools for a task whose words are too long for a URL")), "", a.searchLong)
		context := op("POST", tools+"/retrieval/context", "toolContext", tagRetrieval, "Write what a language model should read about the tools in its phase of a conversation")
		context.limits = canon.Limits{Bytes: a.limits.BodyBytes, Properties: 100_000} // 500 messages of all that they may hold
		register(a, reading(audit.ReadContext, context), "", a.disclose)
		register(a, reading(audit.ReadRelated, op("GET", tools+"/retrieval/related/{toolId}", "relatedTools", tagRetrieval, "Find tools that go with a tool, or do the like")), "", a.related)
	}
	register(a, reading(audit.ReadManifest, op("GET", tools+"/retrieval/manifest/{toolId}", "getManifest", tagRetrieval, "Read a tool's manifest")), "", a.manifest)

	a.usageRoutes()
	a.serverRoutes()
	a.contextRoutes()
	a.secretRoutes()
	a.approvalRoutes()
	a.tokenRoutes()
	a.sessionRoutes()
	if a.c.Keys != nil {
		register(a, op("GET", "/api/v1/keys", "listKeys", tagAdmin, "List API keys"), toolkeep.PermKeys, a.listKeys)
		create := op("POST", "/api/v1/keys", "createKey", tagAdmin, "Make an API key")
		create.status = http.StatusCreated
		register(a, create, toolkeep.PermKeys, a.createKey)
		rotate := op("POST", "/api/v1/keys/{key_id}/rotate", "rotateKey", tagAdmin, "Replace an API key without a gap")
		rotate.status = http.StatusCreated
		rotate.description = "It makes a key with the subject, roles, scope, workspace and lifetime of this one, which expires after the overlap. A key is rotated once."
		register(a, rotate, toolkeep.PermKeys, a.rotateKey)
		register(a, op("GET", "/api/v1/roles", "listRoles", tagAdmin, "List the custom roles"), toolkeep.PermKeys, a.listRoles)
		register(a, op("PATCH", "/api/v1/keys/{key_id}", "scopeKey", tagAdmin, "Give an API key another scope, which counts at once"), toolkeep.PermKeys, a.scopeKey)
		register(a, op("DELETE", "/api/v1/keys/{key_id}", "revokeKey", tagAdmin, "Revoke an API key"), toolkeep.PermKeys, a.revokeKey)
	}
	if a.c.Invalidate != nil {
		register(a, op("POST", "/cache/invalidate/{tool_id}", "invalidateTool", tagAdmin, "Drop the cached results of a tool"), toolkeep.PermOperate, a.invalidateTool)
	}
	if a.c.Nodes != nil {
		register(a, op("GET", "/api/v1/admin/nodes", "listNodes", tagAdmin, "List the nodes that share the store, and what each does for all"), toolkeep.PermOperate, a.listNodes)
	}
	a.overviewRoutes()
	if a.c.Caches != nil {
		register(a, op("GET", "/api/v1/admin/caches", "listCaches", tagAdmin, "Read how full this node's caches are, and how often they answered"), toolkeep.PermOperate, a.listCaches)
	}
	a.connectRoutes()
	a.policyRoutes()
	a.breakerRoutes()
	a.auditRoutes()
	a.holdRoutes()
	a.sinkRoutes()
	a.searchAdminRoutes()
}
