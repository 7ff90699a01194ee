package mcpserver

import (
	"bytes"
	"encoding/json"
	"strconv"
	"strings"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/access/signing"
	"github.com/toolkeep/toolkeep/canon"
	"github.com/toolkeep/toolkeep/face/gate"
	"github.com/toolkeep/toolkeep/mcp"
)

// Error details of tools of kind mcp that hold the upstream's own result.
const (
	detailContent    = "content"
	detailStructured = "structured_content"
)

// appendResult appends the outcome of a call as a CallToolResult. e is the tool, nil if unknown.
func (x *exchange) appendResult(dst []byte, r *toolkeep.Result, e *entry) []byte {
	switch {
	case r.Error != nil:
		return x.appendFailure(dst, gate.Shown(r.Error), r, e)
	case !r.State.Ended():
		return x.appendWaiting(dst, r, e)
	}
	if e != nil && e.any != nil && e.newest().Manifest.Execution.Kind == kindMCP && mcp.Get(r.Output, "content") != nil {
		return x.appendPassed(dst, r, e)
	}
	start := len(dst)
	dst = append(dst, `{"content":[{"type":"text","text":`...)
	dst = appendAsText(dst, r.Output)
	dst = append(dst, '}')
	dst = x.appendAttachments(dst, r)
	dst = append(dst, ']')
	dst = x.appendStructured(dst, r, e, r.Output)
	x.s.gate.SignAnswer(x.p, r, dst[start:])
	dst = append(dst, `,"_meta":{`...)
	dst = appendReceipt(dst, r)
	return x.finish(append(dst, '}'))
}

// appendStructured appends structuredContent after a comma, and only what fits the outputSchema that
// the client was shown: official clients throw away a result whose structuredContent breaks it or is
// missing, unless isError is set.
func (x *exchange) appendStructured(dst []byte, r *toolkeep.Result, e *entry, value []byte) []byte {
	switch d := x.advertised(e); {
	case d != nil && d.exact && (r.Truncated || len(value) == 0):
		return append(dst, `,"isError":true`...)
	case d != nil && !d.exact && !mcp.IsObject(value):
		return append(dst, `,"structuredContent":{}`...)
	case d == nil && !mcp.IsObject(value):
		return dst
	}
	return append(append(dst, `,"structuredContent":`...), value...)
}

// finish closes a result object.
func (x *exchange) finish(dst []byte) []byte {
	if x.modern {
		dst = append(dst, `,"resultType":"complete"`...)
	}
	return append(dst, '}')
}

// appendAsText appends a JSON value as the text of a block: strings as they are, other values as
// JSON.
func appendAsText(dst, output []byte) []byte {
	switch {
	case len(output) == 0:
		return append(dst, `"null"`...)
	case output[0] == '"':
		return append(dst, output...)
	}
	dst, _ = jsontext.AppendQuote(dst, output) // inspect produced it, so it is UTF-8
	return dst
}

// appendPassed passes through the result of an MCP upstream, which already is a CallToolResult.
func (x *exchange) appendPassed(dst []byte, r *toolkeep.Result, e *entry) []byte {
	server := ""
	if x.v.kind != viewRelay && bytes.Contains(r.Output, []byte(`"resource`)) {
		server, _, _ = upstreamOf(e.newest())
	}
	var meta, structured []byte
	start := len(dst)
	dst = append(dst, '{')
	for name, v := range mcp.Members(r.Output) {
		switch name {
		case "_meta":
			meta = v
			continue
		case "structuredContent":
			structured = v
			continue
		case "isError", "resultType":
			continue
		case "content":
			dst = append(dst, `"content":[`...)
			first := true
			for block := range mcp.Elements(v) {
				if !first {
					dst = append(dst, ',')
				}
				first = false
				if server != "" {
					block = prefixBlock(server, block)
				}
				dst = append(dst, block...)
			}
			if first {
				dst = append(dst, bytes.TrimPrefix(x.appendAttachments(nil, r), []byte(","))...)
			} else {
				dst = x.appendAttachments(dst, r)
			}
			dst = append(dst, `],`...)
			continue
		}
		dst = append(append(append(canon.AppendString(dst, name), ':'), v...), ',')
	}
	dst = dst[:len(dst)-1] // there is content, so there is a comma
	if x.advertised(e) != nil {
		dst = x.appendStructured(dst, r, e, structured)
	} else if len(structured) > 0 {
		dst = append(append(dst, `,"structuredContent":`...), structured...)
	}
	x.s.gate.SignAnswer(x.p, r, dst[start:])
	dst = append(dst, `,"_meta":{`...)
	for name, v := range mcp.Members(meta) {
		if !strings.HasPrefix(name, metaPrefix) {
			dst = append(append(append(canon.AppendString(dst, name), ':'), v...), ',')
		}
	}
	dst = appendReceipt(dst, r)
	return x.finish(append(dst, '}'))
}

// appendReceipt appends the call's _meta members, without braces.
func appendReceipt(dst []byte, r *toolkeep.Result) []byte {
	dst = canon.AppendString(append(dst, `"toolkeep/invocation_id":`...), r.InvocationID)
	return appendOrigin(appendText(dst, `,"toolkeep/tool_version":`, r.ToolVersion), r)
}

// appendOrigin appends where a result or a tool's failure came from, what that took, its warnings and its signature.
func appendOrigin(dst []byte, r *toolkeep.Result) []byte {
	if r.State.Ended() {
		dst = append(append(append(dst, `,"toolkeep/source":"`...), r.Source()...), '"')
	}
	if r.Cached {
		dst = append(dst, `,"toolkeep/cached":true`...)
	}
	if r.Age > 0 {
		dst = strconv.AppendFloat(append(dst, `,"toolkeep/cache_age_s":`...), r.Age.Seconds(), 'f', 3, 64)
	}
	if r.Replayed {
		dst = append(dst, `,"toolkeep/replayed":true`...)
	}
	if r.Attempts > 1 {
		dst = appendInt(dst, `,"toolkeep/retry_count":`, int64(r.Attempts-1))
	}
	if r.CostUSD > 0 {
		dst = strconv.AppendFloat(append(dst, `,"toolkeep/cost_usd":`...), r.CostUSD, 'f', -1, 64)
	}
	if r.Truncated {
		dst = append(dst, `,"toolkeep/truncated":true`...)
	}
	if r.Fallback != nil {
		if raw, err := json.Marshal(r.Fallback); err == nil {
			dst = append(append(dst, `,"toolkeep/fallback":`...), raw...)
		}
	}
	if len(r.Secrets) > 0 {
		if raw, err := json.Marshal(r.Secrets); err == nil {
			dst = append(append(dst, `,"toolkeep/secrets":`...), raw...)
		}
	}
	return appendSignature(appendWarnings(dst, `,"toolkeep/warnings":`, r.Warnings), r)
}

func appendSignature(dst []byte, r *toolkeep.Result) []byte {
	if r.Signature == nil {
		return dst
	}
	dst = canon.AppendString(append(dst, `,"`+signing.MetaSignature+`":{"algorithm":"HMAC-SHA256","key_id":`...), r.Signature.KeyID)
	dst = canon.AppendString(append(dst, `,"tenant_id":`...), r.Signature.Tenant)
	dst = canon.AppendString(append(dst, `,"tool_id":`...), r.ToolID)
	dst = canon.AppendString(append(dst, `,"status":`...), gate.StatusOf(r))
	dst = canon.AppendString(append(dst, `,"completed_at":`...), r.EndedAt.UTC().Format(time.RFC3339Nano))
	return append(canon.AppendString(append(dst, `,"value":`...), r.Signature.Value), '}')
}

func appendWarnings(dst []byte, name string, list []toolkeep.Warning) []byte {
	if len(list) == 0 {
		return dst
	}
	raw, err := json.Marshal(list)
	if err != nil {
		return dst
	}
	return append(append(dst, name...), raw...)
}

// appendAttachments appends blocks for blobs stored outside the result, each preceded by a comma.
func (x *exchange) appendAttachments(dst []byte, r *toolkeep.Result) []byte {
	links := x.modern || x.version >= mcp.V20250618 // older clients do not support links
	for _, a := range r.Attachments {
		uri := a.URL
		if strings.HasPrefix(uri, "/") {
			uri = x.url + uri
		}
		if links {
			dst = canon.AppendString(append(dst, `,{"type":"resource_link","uri":`...), uri)
			dst = canon.AppendString(append(dst, `,"name":`...), "the whole "+a.Kind)
			dst = appendText(dst, `,"mimeType":`, a.ContentType)
			if a.Bytes > 0 {
				dst = appendInt(dst, `,"size":`, a.Bytes)
			}
			if a.SHA256 != "" {
				dst = append(canon.AppendString(append(dst, `,"_meta":{"toolkeep/sha256":`...), a.SHA256), '}')
			}
			dst = append(dst, '}')
		}
		if r.Truncated || !links {
			dst = append(dst, `,{"type":"text","text":`...)
			dst = canon.AppendString(dst, "The whole is at "+uri+"; fetch it with the same credentials.")
			dst = append(dst, '}')
		}
	}
	if r.Truncated {
		dst = append(dst, `,{"type":"text","text":"The result was longer than the tool allows and is cut."}`...)
	}
	return dst
}

// appendFailure appends a refusal (r is nil) or a tool failure.
func (x *exchange) appendFailure(dst []byte, err *toolkeep.Error, r *toolkeep.Result, e *entry) []byte {
	id := err.InvocationID
	if r != nil && r.InvocationID != "" {
		id = r.InvocationID
	}
	start := len(dst)
	dst = append(dst, `{"content":[`...)
	text := gate.Text(err)
	if list, ok := err.Details[detailContent].([]any); ok && len(list) > 0 {
		for _, block := range list {
			dst = append(canon.Append(dst, block), ',')
		}
		// The blocks are the upstream's own message and come first.
		rest := *err
		rest.Message = "the tool reports this error"
		text = gate.Text(&rest)
	}
	dst = canon.AppendString(append(dst, `{"type":"text","text":`...), text)
	dst = append(dst, `}],"isError":true`...)
	switch own, ok := err.Details[detailStructured]; {
	case x.advertised(e) == nil:
		dst = append(dst, `,"structuredContent":{`...)
		dst = appendError(dst, "", err, id)
		dst = appendText(dst, `,"message":`, err.Message)
		if d := details(err); d != nil {
			dst = append(append(dst, `,"details":`...), d...)
		}
		dst = append(dst, '}')
	case ok:
		// Clients validate structuredContent against the tool's outputSchema even in a failure, so
		// only the upstream's own content may go there.
		dst = canon.Append(append(dst, `,"structuredContent":`...), own)
	}
	x.s.gate.SignAnswer(x.p, r, dst[start:])
	dst = append(dst, `,"_meta":{`...)
	dst = appendError(dst, metaPrefix, err, id)
	if d := details(err); d != nil {
		dst = append(append(dst, `,"toolkeep/details":`...), d...)
	}
	if r != nil {
		dst = appendText(dst, `,"toolkeep/status":`, r.State.BC2(err.Code))
		dst = appendOrigin(appendText(dst, `,"toolkeep/tool_version":`, r.ToolVersion), r)
	}
	return x.finish(append(dst, '}'))
}

// appendError appends the error members that wire.md specifies.
func appendError(dst []byte, prefix string, err *toolkeep.Error, id string) []byte {
	info := err.Code.Info()
	dst = append(append(append(dst, '"'), prefix...), `code":"`...)
	dst = append(append(dst, info.Code...), `","`...)
	dst = append(append(append(dst, prefix...), `name":"`...), info.Name...)
	dst = append(append(append(dst, `","`...), prefix...), `class":"`...)
	dst = append(append(append(dst, err.Class()...), `","`...), prefix...)
	dst = appendBool(dst, `retryable":`, err.Retryable)
	if n := err.RetryAfterSeconds(); n > 0 {
		dst = append(append(dst, `,"`...), prefix...)
		dst = appendInt(dst, `retry_after_s":`, int64(n))
	}
	if id != "" {
		dst = append(append(dst, `,"`...), prefix...)
		dst = canon.AppendString(append(dst, `invocation_id":`...), id)
	}
	return dst
}

// appendWaiting appends the answer for a call that has not ended.
func (x *exchange) appendWaiting(dst []byte, r *toolkeep.Result, e *entry) []byte {
	status := r.State.BC2("")
	text := "The call is " + status + " as invocation " + r.InvocationID + ". Its result: call the tool get_invocation with this invocation_id"
	if x.v.kind == viewRelay {
		text += " at /mcp/search"
	}
	text += ", or GET /api/v1/invocations/" + r.InvocationID + "."
	dst = canon.AppendString(append(dst, `{"content":[{"type":"text","text":`...), text)
	dst = append(dst, `}]`...)
	if d := x.advertised(e); d != nil && d.exact {
		dst = append(dst, `,"isError":true`...) // see appendStructured
	} else {
		dst = canon.AppendString(append(dst, `,"structuredContent":{"invocation_id":`...), r.InvocationID)
		dst = canon.AppendString(append(dst, `,"status":`...), status)
		dst = append(canon.AppendString(append(dst, `,"state":`...), string(r.State)), '}')
	}
	dst = canon.AppendString(append(dst, `,"_meta":{"toolkeep/status":`...), status)
	dst = append(dst, ',')
	dst = appendReceipt(dst, r)
	return x.finish(append(dst, '}'))
}
