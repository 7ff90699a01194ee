package export

import (
	"slices"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/canon"
)

// MaxModelCalls is how many calls one message of a model may have.
const MaxModelCalls = 64

// maxCallID bounds the id that a provider gives a call, in bytes.
const maxCallID = 512

// ModelCall is a call that a model asks for.
type ModelCall struct {
	ID        string // the provider's; Gemini may leave it out
	Name      string // of an export, or a tool's id
	Arguments []byte // as the model wrote them; OpenAI's may be no JSON. Empty for none
}

// ReadCalls reads the calls of a model's message, in their order: the whole answer of Chat Completions, Responses,
// Messages or generateContent, the message in it, or its calls, as a list or one alone. Text, reasoning and what the
// provider carried out itself are passed over, so that a message without calls has none.
//
// Errors: E3312 for what is none of these, a call of another form in it, or one without a name; E3301 for more than one choice or candidate, or more
// than MaxModelCalls.
func ReadCalls(message any) (Form, []ModelCall, error) {
	var r callReader
	if !r.message(message) {
		return "", nil, toolkeep.NewError(toolkeep.MalformedRequest,
			"this is no message of a model that has tool calls: send what came from Chat Completions, Responses, Messages (Anthropic) or generateContent (Gemini), or the tool calls in it")
	}
	return r.form, r.calls, r.err
}

type callReader struct {
	form  Form
	calls []ModelCall
	err   error
}

// message reads what a request to a model is answered with, or a part of it. False: it is nothing of a known form.
func (r *callReader) message(v any) bool {
	if list, ok := v.([]any); ok {
		return len(list) > 0 && r.each(list)
	}
	m, _ := v.(map[string]any)
	blocks, inBlocks := m["content"].([]any)
	switch kind, _ := m["type"].(string); {
	case m["choices"] != nil:
		return r.is(OpenAI) && r.only(m["choices"], "choices", "message")
	case m["candidates"] != nil:
		return r.is(Gemini) && r.only(m["candidates"], "candidates", "content")
	case m["object"] == "response":
		return r.is(Responses) && r.each(m["output"])
	case m["parts"] != nil:
		return r.is(Gemini) && r.each(m["parts"])
	case m["tool_calls"] != nil:
		return r.is(OpenAI) && r.each(m["tool_calls"])
	case kind == "function" || kind == "" && m["function"] != nil: // which some servers of models leave out
		f, _ := m["function"].(map[string]any)
		return r.is(OpenAI) && r.call(m["id"], f["name"], f["arguments"])
	case kind == "function_call":
		return r.is(Responses) && r.call(m["call_id"], m["name"], m["arguments"])
	case kind == "tool_use":
		return r.is(Anthropic) && r.call(m["id"], m["name"], m["input"])
	case m["role"] == "assistant" && m["function_call"] != nil:
		r.fail(toolkeep.InvalidParameters, "the message has function_call, whose results have no id; give the model its functions as tools")
		return true
	case kind == "custom" || kind == "custom_tool_call":
		r.fail(toolkeep.InvalidParameters, "the message calls a custom tool; what Toolkeep exports are functions")
		return true
	case kind == "" && (m["functionCall"] != nil || m["function_call"] != nil): // the latter as Python's SDK writes a part
		f, ok := m["functionCall"].(map[string]any)
		if !ok {
			f, _ = m["function_call"].(map[string]any)
		}
		return r.is(Gemini) && r.call(f["id"], f["name"], f["args"])
	case kind == "" && m["name"] != nil && m["args"] != nil:
		return r.is(Gemini) && r.call(m["id"], m["name"], m["args"])
	case r.unread(m, kind) != "":
		r.fail(toolkeep.MalformedRequest, "the message has %.80q, which is a call in a form that is not known here; nothing was carried out. Send the call as Chat Completions, Responses, Messages (Anthropic) or generateContent (Gemini) writes it", r.unread(m, kind))
		return true
	case r.form == Responses || r.form == Anthropic || r.form == Gemini: // text, reasoning, and what the provider called itself
		return true
	case kind == "reasoning" || strings.HasSuffix(kind, "_call") || inBlocks && len(blocks) > 0 && slices.Contains([]string{"output_text", "refusal"}, partType(blocks[0])):
		return r.is(Responses)
	case m["role"] == "assistant" && inBlocks:
		return r.is(Anthropic) && r.each(blocks)
	case slices.Contains([]string{"text", "thinking", "redacted_thinking", "server_tool_use"}, kind):
		return r.is(Anthropic)
	case kind == "" && m["text"] != nil:
		return r.is(Gemini)
	}
	return m["role"] == "assistant" && r.is(OpenAI)
}

// unread returns what looks like a call in an object of no known form, such as Bedrock's toolUse; "" if nothing does.
func (r *callReader) unread(m map[string]any, kind string) string {
	calls := func(name string) bool {
		switch strings.ToLower(strings.NewReplacer("_", "", "-", "").Replace(name)) {
		case "tooluse", "tooluses", "functioncall", "functioncalls":
			return true
		case "toolcall", "toolcalls":
			return r.form != Gemini // whose toolCall the provider carries out
		}
		return false
	}
	if calls(kind) {
		return kind
	}
	for name, v := range m {
		if list, ok := v.([]any); v != nil && (!ok || len(list) > 0) && calls(name) {
			return name
		}
	}
	return ""
}

// each reads the members of a list.
func (r *callReader) each(list any) bool {
	all, ok := list.([]any)
	for _, one := range all {
		if !r.message(one) {
			return false
		}
	}
	return ok
}

// only reads the message in the only member of a list.
func (r *callReader) only(list any, name, inside string) bool {
	all, ok := list.([]any)
	switch {
	case !ok || len(all) == 0:
		return ok
	case len(all) > 1:
		r.fail(toolkeep.InvalidParameters, "the answer has %d %s; send the %s of one of them", len(all), name, inside)
		return true
	}
	m, _ := all[0].(map[string]any)
	if m["delta"] != nil {
		r.fail(toolkeep.InvalidParameters, "this is a part of a stream; put the message together first")
	}
	return m[inside] == nil || r.message(m[inside])
}

func partType(v any) string {
	m, _ := v.(map[string]any)
	return textOf(m["type"])
}

// is sets the form; false if it is another one already.
func (r *callReader) is(f Form) bool {
	if r.form == "" {
		r.form = f
	}
	return r.form == f
}

func (r *callReader) fail(code toolkeep.Code, format string, args ...any) {
	if r.err == nil {
		r.err = toolkeep.NewError(code, format, args...)
	}
}

func (r *callReader) call(id, name, arguments any) bool {
	c := ModelCall{ID: textOf(id), Name: textOf(name)}
	switch a := arguments.(type) {
	case nil:
	case string:
		c.Arguments = []byte(a)
	default:
		c.Arguments = canon.Append(nil, a)
	}
	switch {
	case len(r.calls) == MaxModelCalls:
		r.fail(toolkeep.InvalidParameters, "the message has more than %d calls; send them in several requests", MaxModelCalls)
		return true
	case c.Name == "":
		r.fail(toolkeep.MalformedRequest, "call %d of the message has no name", len(r.calls)+1)
	case c.ID == "" && r.form != Gemini:
		r.fail(toolkeep.MalformedRequest, "call %d of the message, of %.80q, has no id, by which its result is known", len(r.calls)+1, c.Name)
	case len(c.ID) > maxCallID:
		r.fail(toolkeep.InvalidParameters, "the id of call %d of the message has %d bytes; at most %d are taken", len(r.calls)+1, len(c.ID), maxCallID)
	}
	r.calls = append(r.calls, c)
	return true
}

func textOf(v any) string {
	s, _ := v.(string)
	return s
}

// Answered is what came of a call.
type Answered struct {
	Call   ModelCall
	Output jsontext.Value // the result; a text is sent without quotes where the provider takes text
	Notes  []string       // what the model should know beside it
	Failed bool           // Output is the text of an error
}

// Messages writes the list of what is to be sent back to the model, after its own message: of OpenAI a message or an item a call,
// of Anthropic and Gemini one with all results. Anthropic and Gemini are told which calls failed.
func Messages(f Form, all []Answered) []byte {
	out, parts := []any{}, []any{}
	for _, a := range all {
		switch f {
		case OpenAI:
			out = append(out, map[string]any{"role": "tool", "tool_call_id": a.Call.ID, "content": a.text()})
		case Responses:
			out = append(out, map[string]any{"type": "function_call_output", "call_id": a.Call.ID, "output": a.text()})
		case Anthropic:
			part := map[string]any{"type": "tool_result", "tool_use_id": a.Call.ID, "content": a.text()}
			if a.Failed {
				part["is_error"] = true
			}
			parts = append(parts, part)
		case Gemini:
			response := map[string]any{"output": a.Output}
			switch {
			case a.Failed:
				response = map[string]any{"error": a.text()}
			case len(a.Notes) > 0:
				response["notes"] = a.Notes
			}
			part := map[string]any{"name": a.Call.Name, "response": response}
			if a.Call.ID != "" {
				part["id"] = a.Call.ID
			}
			parts = append(parts, map[string]any{"functionResponse": part})
		}
	}
	switch {
	case len(parts) == 0:
	case f == Gemini:
		out = append(out, map[string]any{"role": "user", "parts": parts})
	default:
		out = append(out, map[string]any{"role": "user", "content": parts})
	}
	raw, err := json.Marshal(out, json.Deterministic(true))
	if err != nil {
		return []byte("[]") // impossible: it was made of results, which are JSON
	}
	return raw
}

// text is the result as text: a string as it is, other values as JSON.
func (a *Answered) text() string {
	text := string(a.Output)
	if strings.HasPrefix(text, `"`) {
		if err := json.Unmarshal(a.Output, &text); err != nil {
			text = string(a.Output)
		}
	}
	for _, n := range a.Notes {
		text += "\n" + n
	}
	return text
}
