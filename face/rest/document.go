package rest

import (
	"maps"
	"net/http"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/toolkeep/toolkeep/face/gate"
)

const (
	tagCalls     = "calls"
	tagTools     = "tools"
	tagRegistry  = "registry"
	tagRetrieval = "retrieval"
	tagAdmin     = "admin"
	tagServers   = "servers"
	tagSession   = "session"
	tagSystem    = "system"
)

func seconds(d time.Duration) string { return strconv.Itoa(int(d / time.Second)) }

// op begins a route.
func op(method, path, id, tag, summary string) route {
	return route{method: method, path: path, id: id, tag: tag, summary: summary}
}

// add documents a route.
func (a *API) add(r route, permission string) {
	text := r.description
	if permission != "" {
		text = strings.TrimSpace(text + " Needs the permission `" + permission + "`.")
	}
	o := tree{"operationId": r.id, "tags": []string{r.tag}, "summary": r.summary}
	if text != "" {
		o["description"] = text
	}
	if r.public {
		o["security"] = []any{}
	}
	if len(r.params) > 0 {
		o["parameters"] = r.params
	}
	if r.body != nil {
		o["requestBody"] = r.body
	}
	responses := tree{"default": tree{
		"description": "a refusal; the code tells which",
		"headers":     rateDocs(tree{"Retry-After": headerDoc("seconds to wait, where waiting helps", tree{"type": "integer"})}),
		"content":     content(gate.ProblemType, a.components.ref(gate.Problem{})),
	}}
	maps.Copy(responses, r.responses)
	o["responses"] = responses
	path, _ := a.paths[r.path].(tree)
	if path == nil {
		path = tree{}
		a.paths[r.path] = path
	}
	path[strings.ToLower(r.method)] = o
}

// rateDocs adds the headers of answers to requests that count.
func rateDocs(headers tree) tree {
	headers["RateLimit"] = headerDoc("of a request that counts: the limit with the fewest requests left, or that refuses; r are left, all are back in t seconds", text())
	headers["RateLimit-Policy"] = headerDoc("that limit: q requests in w seconds", text())
	return headers
}

// counted adds them to the answers of an operation.
func counted(responses tree) {
	for _, answer := range responses {
		headers, _ := answer.(tree)["headers"].(tree)
		if headers == nil {
			headers = tree{}
		}
		answer.(tree)["headers"] = rateDocs(headers)
	}
}

// raw serves a route that reads and writes bytes itself, and documents it.
func (a *API) raw(r route, h http.HandlerFunc) {
	a.add(r, "")
	a.route(r.method+" "+r.path, h)
}

func content(contentType string, s tree) tree { return tree{contentType: tree{"schema": s}} }

func answers200(description, contentType string, s tree) tree {
	return tree{"200": tree{"description": description, "content": content(contentType, s)}}
}

func paramDoc(in, name, description string, required bool, s tree) tree {
	p := tree{"in": in, "name": name, "schema": s}
	if description != "" {
		p["description"] = description
	}
	if required {
		p["required"] = true
	}
	return p
}

func headerDoc(description string, s tree) tree {
	h := tree{"schema": s}
	if description != "" {
		h["description"] = description
	}
	return h
}

// streams documents bodies that are lines or events and not one JSON value: OpenAPI 3.1 has no words for their parts.
func streams(contentTypes ...string) tree {
	c := tree{}
	for _, name := range contentTypes {
		c[name] = tree{}
	}
	return c
}

func text() tree { return tree{"type": "string"} }

func pathParam(name string) tree { return paramDoc("path", name, "", true, text()) }

func headerParam(name, description string) tree {
	return paramDoc("header", name, description, false, text())
}

// writeDocument gives the document as JSON. The routes are all there, and it does not
// change afterwards.
func (a *API) writeDocument() []byte {
	version := a.c.Version
	if version == "" {
		version = "0.0.0-dev"
	}
	tags := []tree{}
	for _, t := range [][2]string{
		{tagCalls, "call tools and follow the calls"}, {tagTools, "what tools there are"},
		{tagRegistry, "publish tools and move versions through their lifecycle"}, {tagRetrieval, "find tools by words"},
		{tagServers, "MCP servers behind this one"}, {tagSession, "browsers that are logged in"}, {tagAdmin, "keys and caches"}, {tagSystem, "health and this document"},
	} {
		tags = append(tags, tree{"name": t[0], "description": t[1]})
	}
	doc := tree{
		"openapi": "3.1.0",
		"info": tree{
			"title": "Toolkeep", "version": version, "license": tree{"name": "Apache-2.0", "identifier": "Apache-2.0"},
			"description": "Find tools, call them, and read what happened. Refusals are problem documents (RFC 9457); " +
				"a tool that failed is an answer with status 200 whose body says so.",
		},
		"paths": a.paths, "tags": tags, "security": []tree{{"bearer": []string{}}},
		"components": tree{"schemas": a.components.schemas,
			"securitySchemes": tree{"bearer": tree{"type": "http", "scheme": "bearer", "description": "an API key"}}},
	}
	raw, err := gate.Marshal(doc)
	if err != nil {
		panic(err) // the document is made of constants
	}
	return raw
}

// asYAML writes JSON, which is YAML in one line, in the form that people read.
func asYAML(raw []byte) []byte {
	var doc yaml.Node
	err := yaml.Unmarshal(raw, &doc)
	var plain func(*yaml.Node)
	plain = func(n *yaml.Node) {
		n.Style = 0
		for _, c := range n.Content {
			plain(c)
		}
	}
	plain(&doc)
	if err == nil {
		raw, err = yaml.Marshal(&doc)
	}
	if err != nil {
		panic(err) // it is the document's own JSON
	}
	return raw
}
