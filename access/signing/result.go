package signing

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/canon"
)

// Algorithm is how results are signed.
const Algorithm = "HMAC-SHA256"

// Result is what a signature of a result covers; contracts/wire.md has its lines.
type Result struct {
	Tenant     string `json:"tenant_id"`
	Invocation string `json:"invocation_id"`
	Tool       string `json:"tool_id"`
	Version    string `json:"tool_version"`
	Status     string `json:"status"` // of BC-2
	// Completed is when the call ended; a signature covers its milliseconds.
	Completed time.Time `json:"completed_at"`
	// Content is what the caller reads of the outcome, as Outcome and MCPContent write it.
	Content []byte `json:"-"`
}

// KeyID names a key: 16 hexadecimal digits that tell no more of it than a signature does.
func KeyID(key []byte) string {
	return hex.EncodeToString(sum(key, []byte("TOOLKEEP-RESULT-KEY"))[:8])
}

// Text is what is signed. It fails for a name with a line break, which could be read as another line.
func (r *Result) Text(keyID string) ([]byte, error) {
	digest := sha256.Sum256(r.Content)
	lines := []string{"TOOLKEEP-RESULT-HMAC-SHA256", keyID, r.Tenant, r.Invocation, r.Tool, r.Version, r.Status,
		strconv.FormatInt(r.Completed.UnixMilli(), 10), hex.EncodeToString(digest[:])}
	for _, line := range lines {
		if strings.ContainsAny(line, "\n\r") {
			return nil, fmt.Errorf("%q has a line break", toolkeep.Clip(line, 60))
		}
	}
	return []byte(strings.Join(lines, "\n")), nil
}

// Sign signs a result with a key of at least MinKey bytes.
func (r *Result) Sign(key []byte) (*toolkeep.ResultSignature, error) {
	id := KeyID(key)
	text, err := r.Text(id)
	if err != nil {
		return nil, err
	}
	return &toolkeep.ResultSignature{KeyID: id, Tenant: r.Tenant, Value: hex.EncodeToString(sum(key, text))}, nil
}

// Outcome is the content of a result over REST and gRPC, with those members that it has: result, error (code, message,
// retryable, details), truncated and attachments. e is the error as it is shown.
func Outcome(r *toolkeep.Result, e *toolkeep.Error) (content []byte, err error) {
	member := func(name string, v any) {
		var raw []byte
		if err == nil {
			raw, err = json.Marshal(v)
		}
		if err == nil {
			content, err = appendMember(content, name, raw)
		}
	}
	if len(r.Attachments) > 0 {
		member("attachments", r.Attachments)
	}
	if e != nil {
		shown := map[string]any{"code": e.Code, "message": e.Message, "retryable": e.Retryable}
		if len(e.Details) > 0 {
			shown["details"] = e.Details
		}
		member("error", shown)
	}
	switch {
	case len(r.Output) == 0 || err != nil:
	case sameInJCS(r.Output):
		content = append(appendName(content, "result"), r.Output...)
	default:
		content, err = appendMember(content, "result", r.Output)
	}
	if r.Truncated {
		content = append(appendName(content, "truncated"), "true"...)
	}
	if content == nil {
		content = []byte{'{'}
	}
	return append(content, '}'), err
}

// appendName appends the name of the next member to an object without its last brace.
func appendName(dst []byte, name string) []byte {
	open := byte(',')
	if len(dst) == 0 {
		open = '{'
	}
	return append(canon.AppendString(append(dst, open), name), ':')
}

func appendMember(dst []byte, name string, raw []byte) ([]byte, error) {
	v, err := tree(raw)
	if err != nil {
		return nil, err
	}
	return append(appendName(dst, name), canon.JCSExact(v, len(raw))...), nil
}

// sameInJCS reports whether JSON that canon.Append wrote certainly is in the form of RFC 8785: names that its order of bytes sorts
// as that of UTF-16, and numbers that are the shortest text of their double, since they have at most 15 digits, no exponent and
// nothing at the end that could be left out.
func sameInJCS(raw []byte) bool {
	for i := 0; i < len(raw); i++ {
		c := raw[i]
		switch {
		case c == '"':
			for i++; i < len(raw) && raw[i] != '"'; i++ {
				if raw[i] == '\\' {
					i++
				} else if raw[i] >= 0xee { // from U+E000 on the two orders differ
					return false
				}
			}
		case c == '-' || c >= '0' && c <= '9':
			from := i
			for i+1 < len(raw) && (raw[i+1] == '.' || raw[i+1] >= '0' && raw[i+1] <= '9') {
				i++
			}
			number := raw[from : i+1]
			whole, fraction, _ := strings.Cut(strings.TrimPrefix(string(number), "-"), ".")
			if len(number) > 15 || i+1 < len(raw) && raw[i+1]|0x20 == 'e' || string(number) == "-0" || strings.HasSuffix(fraction, "0") ||
				whole == "0" && strings.HasPrefix(fraction, "00000") {
				return false
			}
		}
	}
	return true
}

// MCPContent is the content of a result over MCP: a CallToolResult without _meta and resultType.
func MCPContent(answer []byte) ([]byte, error) {
	v, err := tree(answer)
	all, ok := v.(map[string]any)
	if err == nil && !ok {
		err = errors.New("it is no object")
	}
	if err != nil {
		return nil, err
	}
	return mcpContent(all), nil
}

func mcpContent(answer map[string]any) []byte {
	content := maps.Clone(answer)
	delete(content, "_meta")
	delete(content, "resultType")
	return canon.JCSExact(content, 1024)
}

// wide are the limits of answers, which were limited when they were made.
var wide = canon.Limits{Bytes: 1 << 30, Depth: 1000, Properties: 1 << 30, Elements: 1 << 30}

func tree(raw []byte) (any, error) { return canon.Parse(raw, wide) }

// MetaSignature is where the signature of a result stands in the _meta of a CallToolResult.
const MetaSignature = "toolkeep/signature"

// SignedResult is an answer with its signature.
type SignedResult struct {
	Result    Result
	KeyID     string
	Signature string // in hex
}

// ErrUnsigned says that an answer has no signature.
var ErrUnsigned = errors.New("it has no signature: a signed answer of REST has execution_metadata.signature, one of tools/call over MCP has _meta[\"" + MetaSignature +
	"\"]; results are signed where results.signing_key is set, once their call has ended")

// ReadResult reads an answer as REST gives a call or a tools/call over MCP gives its result, the latter also with the JSON-RPC
// message around it. The error is ErrUnsigned, or says what of the answer cannot be one. It takes no answer that says of tool,
// version, status or error beside the signed members what the signed ones do not.
func ReadResult(raw []byte) (*SignedResult, error) {
	v, err := tree(raw)
	answer, ok := v.(map[string]any)
	if err != nil || !ok {
		return nil, errors.Join(errors.New("it is not one JSON object"), err)
	}
	if _, wrapped := answer["jsonrpc"]; wrapped {
		inner, ok := answer["result"].(map[string]any)
		if !ok {
			return nil, ErrUnsigned
		}
		for name := range answer {
			if name != "jsonrpc" && name != "id" && name != "result" {
				return nil, fmt.Errorf("the message around it has the member %q, which no signature covers; beside result it may have jsonrpc and id alone", toolkeep.Clip(name, 40))
			}
		}
		answer = inner
	}
	if meta, ok := answer["_meta"].(map[string]any); ok {
		signature, ok := meta[MetaSignature].(map[string]any)
		if !ok {
			return nil, ErrUnsigned
		}
		if err := errors.Join(agrees(meta, "toolkeep/status", signature["status"]), agrees(answer, "resultType", "complete")); err != nil {
			return nil, err
		}
		return signed(mcpContent(answer), signature, meta["toolkeep/invocation_id"], meta["toolkeep/tool_version"], signature["status"], signature["completed_at"])
	}
	metadata, _ := answer["execution_metadata"].(map[string]any)
	signature, ok := metadata["signature"].(map[string]any)
	if !ok {
		return nil, ErrUnsigned
	}
	content := map[string]any{}
	if result, ok := answer["result"]; ok {
		content["result"] = result
	}
	code := ""
	if given, has := answer["error"]; has {
		e, ok := given.(map[string]any)
		if !ok {
			return nil, errors.New("its error is no JSON object, and the server gives no other")
		}
		code, _ = e["error_code"].(string)
		shown := map[string]any{"code": e["error_code"], "message": e["message"], "retryable": e["retryable"]}
		if details, ok := e["details"]; ok {
			shown["details"] = details
		}
		content["error"] = shown
	}
	if metadata["truncated"] != false {
		content["truncated"] = metadata["truncated"]
	}
	if list, ok := metadata["attachments"].([]any); !ok || len(list) > 0 {
		content["attachments"] = metadata["attachments"]
	}
	if err := errors.Join(agrees(answer, "tool_id", signature["tool_id"]), agrees(answer, "tool_version", metadata["tool_version"])); err != nil {
		return nil, err
	}
	if given, has := answer["state"]; has {
		name, _ := given.(string)
		state := toolkeep.CallState(name)
		if !state.Ended() || state == toolkeep.CallRefused || state.BC2(toolkeep.Code(code)) != answer["status"] {
			return nil, fmt.Errorf("its state %q is not that of a call with its status", toolkeep.Clip(name, 40))
		}
	}
	return signed(canon.JCSExact(content, len(raw)), signature, answer["invocation_id"], metadata["tool_version"], answer["status"], metadata["completed_at"])
}

// agrees fails if an answer has a member that is not the text which the signature covers.
func agrees(answer map[string]any, name string, covered any) error {
	given, has := answer[name]
	text, isText := given.(string)
	if has && (!isText || text != covered) {
		return fmt.Errorf("its %s is not %v, which the signature covers", name, covered)
	}
	return nil
}

func signed(content []byte, signature map[string]any, invocation, version, status, completed any) (*SignedResult, error) {
	text := func(v any) string { s, _ := v.(string); return s }
	if a := text(signature["algorithm"]); a != Algorithm {
		return nil, fmt.Errorf("its signature has the algorithm %q; results are signed with %s", toolkeep.Clip(a, 40), Algorithm)
	}
	at, err := time.Parse(time.RFC3339Nano, text(completed))
	if err != nil {
		return nil, errors.New("it does not say when its call ended (completed_at), which the signature covers")
	}
	return &SignedResult{KeyID: text(signature["key_id"]), Signature: text(signature["value"]), Result: Result{Tenant: text(signature["tenant_id"]), Invocation: text(invocation),
		Tool: text(signature["tool_id"]), Version: text(version), Status: text(status), Completed: at, Content: content}}, nil
}

// Verify checks the signature with that of some keys which it names. The error says that none is named, or that the signature
// does not match.
func (s *SignedResult) Verify(keys ...[]byte) error {
	var ids []string
	for _, key := range keys {
		ids = append(ids, KeyID(key))
	}
	i := slices.Index(ids, s.KeyID)
	if i < 0 {
		return fmt.Errorf("it was signed with the key %q, and the keys given are %s", toolkeep.Clip(s.KeyID, 40), strings.Join(ids, ", "))
	}
	text, err := s.Result.Text(s.KeyID)
	if err != nil {
		return err
	}
	if got, err := hex.DecodeString(s.Signature); err != nil || !hmac.Equal(got, sum(keys[i], text)) {
		return fmt.Errorf("its signature does not match: after it was signed with the key %s, the result, its error or attachments, or what it says of its call was changed", s.KeyID)
	}
	return nil
}
