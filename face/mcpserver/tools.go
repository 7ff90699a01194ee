package mcpserver

import (
	"bytes"
	"context"
	"encoding/json"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/canon"
	source "github.com/toolkeep/toolkeep/catalog/source/mcp"
	"github.com/toolkeep/toolkeep/mcp"
)

// definition is a tool as tools/list shows it, without its name, which differs between views.
type definition struct {
	rest    []byte // `,"description":…}`, what follows the name
	output  bool   // the tool has an outputSchema
	exact   bool   // every result has it, unless it is cut; else any object fits it
	headers []mcp.HeaderParam
}

func (t *shownTool) definition() *definition {
	if d := t.def.Load(); d != nil {
		return d
	}
	d := render(t.tool)
	t.def.Store(d)
	return d
}

// headerParams returns the tool's arguments that 2026-07-28 sends as headers. If the schema's marks
// break the rules there are none, since clients leave such a tool out.
func (e *entry) headerParams() []mcp.HeaderParam {
	if e.any == nil {
		return nil
	}
	return e.any.definition().headers
}

func appendTool(dst []byte, name string, d *definition) []byte {
	dst = canon.AppendString(append(dst, `{"name":`...), name)
	return append(dst, d.rest...)
}

// appendAuth adds to a definition the state of the tool's secrets for the caller. Tools of MCP
// servers have no secrets of their own, and their _meta belongs to the server.
func (x *exchange) appendAuth(dst []byte, t *toolkeep.Tool) []byte {
	if x.s.c.ToolAuth == nil || len(t.Manifest.Auth) == 0 || t.Manifest.Execution.Kind == kindMCP {
		return dst
	}
	auth := x.s.c.ToolAuth(context.Background(), x.p, t, false)
	if auth == nil {
		return dst
	}
	raw, err := json.Marshal(auth)
	if err != nil {
		return dst
	}
	dst = append(dst[:len(dst)-1], `,"_meta":{"toolkeep/authentication":`...) // before its closing brace
	return append(append(dst, raw...), `}}`...)
}

// render builds the definition of one version. A definition from an MCP upstream is passed on
// unchanged.
func render(t *toolkeep.Tool) *definition {
	if whole, err := t.Whole(); err == nil { // a damaged one is shown without its schemas; its calls are E3003
		t = whole
	}
	if t.Manifest.Execution.Kind == kindMCP {
		if def, err := source.Definition(t); err == nil {
			return passed(def, exact(t.Manifest))
		}
	}
	m := t.Manifest
	d := &definition{}
	b := appendText(nil, `,"title":`, m.ToolName)
	b = canon.AppendString(append(b, `,"description":`...), m.Description)
	if len(m.Icons) > 0 {
		b = canon.Append(append(b, `,"icons":`...), []any(m.Icons))
	}
	input := inputSchema(m.ParametersSchema)
	b = append(append(b, `,"inputSchema":`...), input...)
	// Before 2026-07-28 structured content, and so its schema, must be an object.
	if mcp.Text(m.ResultSchema, "type") == "object" {
		d.output, d.exact = true, exact(m)
		b = append(append(b, `,"outputSchema":`...), d.schema(m.ResultSchema)...)
	}
	d.rest = append(appendHints(b, m), '}')
	d.headers, _ = mcp.HeaderParams(input)
	return d
}

// passed returns an upstream's definition without its execution member: that is about tasks, which
// calls through the gateway do not support.
func passed(def []byte, exact bool) *definition {
	d := &definition{exact: exact}
	var b []byte
	for name, v := range mcp.Members(def) {
		switch name {
		case "name", "execution":
			continue
		case "inputSchema":
			d.headers, _ = mcp.HeaderParams(v)
		case "outputSchema":
			if !exact && mcp.Text(v, "type") != "object" {
				continue
			}
			d.output, v = true, d.schema(v)
		}
		b = append(append(canon.AppendString(append(b, ','), name), ':'), v...)
	}
	d.rest = append(b, '}')
	return d
}

// exact reports whether every result of the tool that is not cut has the result schema.
func exact(m *toolkeep.Manifest) bool {
	return m.StrictResult() && (m.Result == nil || len(m.Result.SensitiveFields) == 0)
}

// schema returns the outputSchema to show. Clients validate structuredContent against it and throw
// the whole result away if it differs, so that where a result may break the schema the names and
// texts of its members are shown without their rules.
func (d *definition) schema(result []byte) []byte {
	if d.exact {
		return result
	}
	b := appendTexts([]byte(`{"type":"object"`), result)
	first := true
	for name, v := range mcp.Members(mcp.Get(result, "properties")) {
		if first {
			b = append(b, `,"properties":{`...)
		} else {
			b = append(b, ',')
		}
		first = false
		member := appendTexts(nil, v)
		b = append(canon.AppendString(b, name), ":{"...)
		b = append(append(b, bytes.TrimPrefix(member, []byte(","))...), '}')
	}
	if !first {
		b = append(b, '}')
	}
	return append(b, '}')
}

// appendTexts appends a schema's title and description, each after a comma.
func appendTexts(b, schema []byte) []byte {
	if mcp.IsObject(schema) {
		b = appendText(b, `,"title":`, mcp.Text(schema, "title"))
		b = appendText(b, `,"description":`, mcp.Text(schema, "description"))
	}
	return b
}

// advertised returns the definition that the client was shown of the tool that it named, nil if it
// named none that has an outputSchema.
func (x *exchange) advertised(e *entry) *definition {
	if e == nil || e.any == nil || x.byID {
		return nil
	}
	if d := e.any.definition(); d.output {
		return d
	}
	return nil
}

// inputSchema returns a schema that clients accept: an object schema with an explicit type.
func inputSchema(s []byte) []byte {
	switch {
	case !mcp.IsObject(s):
		return []byte(`{"type":"object"}`)
	case mcp.Text(s, "type") == "object":
		return s
	}
	return mcp.Set(s, []byte(`"object"`), "type")
}

func appendHints(b []byte, m *toolkeep.Manifest) []byte {
	writes := m.SideEffects == "writes"
	b = appendBool(b, `,"annotations":{"readOnlyHint":`, !writes)
	if writes && m.Risk != "low" {
		// Low is also a manifest's default and promises nothing; MCP's own default is true.
		b = append(b, `,"destructiveHint":true`...)
	}
	b = appendBool(b, `,"idempotentHint":`, m.Idempotent || !writes)
	b = appendBool(b, `,"openWorldHint":`, m.SideEffects != "none")
	return append(b, '}')
}
