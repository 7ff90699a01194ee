package export_test

import (
	"strings"
	"testing"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/canon"
	"github.com/toolkeep/toolkeep/catalog/export"
)

// messages are what providers answer, in each of the ways in which a program has them at hand.
var messages = map[string]struct {
	form  export.Form
	calls string // id name arguments, by line
	text  string
}{
	"chat answer": {export.OpenAI, "call_1 shop__order {\"n\":1}\ncall_2 shop__list ", `{"id":"chatcmpl-1","object":"chat.completion","choices":[{"index":0,"finish_reason":"tool_calls","message":{"role":"assistant","content":null,
		"tool_calls":[{"id":"call_1","type":"function","function":{"name":"shop__order","arguments":"{\"n\":1}"}},{"id":"call_2","type":"function","function":{"name":"shop__list","arguments":""}}]}}],"usage":{"total_tokens":3}}`},
	"chat message":        {export.OpenAI, "call_1 a__b {", `{"role":"assistant","content":[{"type":"text","text":"hm"}],"tool_calls":[{"id":"call_1","type":"function","function":{"name":"a__b","arguments":"{"}}]}`},
	"chat calls":          {export.OpenAI, "1 a__b {}", `[{"id":"1","type":"function","function":{"name":"a__b","arguments":"{}"}}]`},
	"chat call":           {export.OpenAI, `1 a__b {"n":12345678901234567890}`, `{"id":"1","type":"function","function":{"name":"a__b","arguments":{"n":12345678901234567890}}}`},
	"chat call, no type":  {export.OpenAI, "1 a__b {}", `[{"id":"1","function":{"name":"a__b","arguments":"{}"}}]`},
	"responses refusal":   {export.Responses, "", `[{"type":"message","role":"assistant","content":[{"type":"refusal","refusal":"no"}]}]`},
	"chat text":           {export.OpenAI, "", `{"role":"assistant","content":"hello","refusal":null}`},
	"chat text answer":    {export.OpenAI, "", `{"choices":[{"message":{"role":"assistant","content":"hello"}}]}`},
	"responses answer":    {export.Responses, "call_1 a__b {}", `{"id":"resp_1","object":"response","output":[{"type":"reasoning","id":"rs_1","summary":[]},{"type":"message","role":"assistant","content":[{"type":"output_text","text":"hm"}]},{"type":"web_search_call","id":"ws"},{"type":"function_call","id":"fc_1","call_id":"call_1","name":"a__b","arguments":"{}"}]}`},
	"responses items":     {export.Responses, "call_1 a__b {}", `[{"type":"reasoning","summary":[]},{"type":"function_call","id":"fc_1","call_id":"call_1","name":"a__b","arguments":"{}"}]`},
	"responses item":      {export.Responses, "call_1 a__b {}", `{"type":"function_call","id":"fc_1","call_id":"call_1","name":"a__b","arguments":"{}","status":"completed"}`},
	"responses text":      {export.Responses, "", `[{"type":"message","role":"assistant","content":[{"type":"output_text","text":"hi"}]}]`},
	"anthropic answer":    {export.Anthropic, "toolu_1 a__b {\"n\":1}\ntoolu_2 a__c {}", `{"id":"msg_1","type":"message","role":"assistant","stop_reason":"tool_use","content":[{"type":"thinking","thinking":"","signature":"s"},{"type":"text","text":"I look."},{"type":"tool_use","id":"toolu_1","name":"a__b","input":{"n":1}},{"type":"server_tool_use","id":"srv","name":"web_search","input":{}},{"type":"tool_use","id":"toolu_2","name":"a__c","input":{}}]}`},
	"anthropic blocks":    {export.Anthropic, "toolu_1 a__b {}", `[{"type":"text","text":"I look."},{"type":"tool_use","id":"toolu_1","name":"a__b","input":{}}]`},
	"anthropic block":     {export.Anthropic, "toolu_1 a__b {}", `{"type":"tool_use","id":"toolu_1","name":"a__b","input":{}}`},
	"anthropic text":      {export.Anthropic, "", `{"type":"message","role":"assistant","content":[{"type":"text","text":"hi"}]}`},
	"gemini answer":       {export.Gemini, "c1 a__b {\"n\":1}\n a__c {}", `{"candidates":[{"content":{"role":"model","parts":[{"thought":true,"text":"hm"},{"functionCall":{"id":"c1","name":"a__b","args":{"n":1}},"thoughtSignature":"c2ln"},{"functionCall":{"name":"a__c","args":{}}},{"inlineData":{}}]},"finishReason":"STOP"}],"modelVersion":"m"}`},
	"gemini content":      {export.Gemini, " a__b ", `{"role":"model","parts":[{"functionCall":{"name":"a__b"}}]}`},
	"gemini part":         {export.Gemini, " a__b {}", `{"functionCall":{"name":"a__b","args":{}}}`},
	"gemini call":         {export.Gemini, " a__b {}", `{"name":"a__b","args":{}}`},
	"gemini of python":    {export.Gemini, "c1 a__b {\"n\":1}\n a__c {}", `{"candidates":[{"content":{"parts":[{"text":"hm","function_call":null},{"function_call":{"id":"c1","name":"a__b","args":{"n":1}},"text":null,"thought_signature":null},{"function_call":{"id":null,"name":"a__c","args":{}}},{"tool_call":{"tool_type":"GOOGLE_SEARCH_WEB"}}],"role":"model"},"finish_reason":"STOP"}]}`},
	"gemini python part":  {export.Gemini, " a__b {}", `{"function_call":{"name":"a__b","args":{}}}`},
	"chat without calls":  {export.OpenAI, "", `{"role":"assistant","content":"hello","tool_calls":[],"function_call":null,"toolCalls":[]}`},
	"gemini text":         {export.Gemini, "", `{"candidates":[{"content":{"parts":[{"text":"hi"}],"role":"model"}}]}`},
	"gemini without text": {export.Gemini, "", `{"candidates":[{"finishReason":"SAFETY"}]}`},
}

func TestReadCalls(t *testing.T) {
	for name, m := range messages {
		form, calls, err := export.ReadCalls(parse(t, m.text))
		var got []string
		for _, c := range calls {
			got = append(got, c.ID+" "+c.Name+" "+string(c.Arguments))
		}
		if err != nil || form != m.form || strings.Join(got, "\n") != m.calls {
			t.Errorf("%s: %s %q %v", name, form, got, err)
		}
	}
	call := func(id, name string) string {
		return `{"id":` + id + `,"type":"function","function":{"name":` + name + `,"arguments":"{}"}}`
	}
	many := strings.Repeat(call(`"1"`, `"a__b"`)+",", export.MaxModelCalls+1)
	for text, want := range map[string]toolkeep.Code{
		`null`: toolkeep.MalformedRequest, `"text"`: toolkeep.MalformedRequest, `{}`: toolkeep.MalformedRequest, `[]`: toolkeep.MalformedRequest, `[1]`: toolkeep.MalformedRequest,
		`{"tool_id":"a.b","parameters":{}}`:                                  toolkeep.MalformedRequest,
		`{"role":"user","content":"hi"}`:                                     toolkeep.MalformedRequest,
		`{"choices":[{"delta":{"tool_calls":[]}}]}`:                          toolkeep.InvalidParameters,
		`{"role":"assistant","function_call":{"name":"a","arguments":"{}"}}`: toolkeep.InvalidParameters,
		`{"choices":7}`: toolkeep.MalformedRequest,
		// Calls of other forms, beside known ones too.
		`{"role":"assistant","content":[{"text":"I look."},{"toolUse":{"toolUseId":"t","name":"a__b","input":{}}}]}`:                     toolkeep.MalformedRequest,
		`{"role":"assistant","content":[{"type":"text","text":"I look."},{"type":"tool-call","toolCallId":"t","toolName":"a__b"}]}`:      toolkeep.MalformedRequest,
		`[{"type":"tool_call","id":"t","name":"a__b","args":{}}]`:                                                                        toolkeep.MalformedRequest,
		`{"role":"assistant","content":"","toolCalls":[{"id":"t","function":{"name":"a__b","arguments":"{}"}}]}`:                         toolkeep.MalformedRequest,
		`{"role":"model","parts":[{"functionCall":{"name":"a__b","args":{}}},{"functionCalls":[{"name":"a__c"}]}]}`:                      toolkeep.MalformedRequest,
		`{"object":"response","output":[{"type":"function_call","call_id":"c","name":"a__b","arguments":"{}"},{"type":"functionCall"}]}`: toolkeep.MalformedRequest,
		`{"choices":[{"message":{"content":[{"type":"tool_use","id":"t","name":"a","input":{}}]}}]}`:                                     toolkeep.MalformedRequest, // two forms
		`[` + call(`"1"`, `"a__b"`) + `,{"type":"tool_use","id":"t","name":"a","input":{}}]`:                                             toolkeep.MalformedRequest,
		`{"choices":[{"message":{"role":"assistant"}},{"message":{"role":"assistant"}}]}`:                                                toolkeep.InvalidParameters,
		`[` + call(`"1"`, `""`) + `]`:                                toolkeep.MalformedRequest,
		`[` + call(`7`, `"a__b"`) + `]`:                              toolkeep.MalformedRequest,
		`[` + call(`"`+strings.Repeat("i", 513)+`"`, `"a__b"`) + `]`: toolkeep.InvalidParameters,
		`[` + strings.TrimSuffix(many, ",") + `]`:                    toolkeep.InvalidParameters,
		`{"role":"assistant","tool_calls":[{"id":"1","type":"custom","custom":{"name":"x","input":"y"}}]}`:            toolkeep.InvalidParameters,
		`{"role":"assistant","content":null,"tool_calls":[{"id":"1","type":"mystery","function":{"name":"a__b"}}]}`:   toolkeep.MalformedRequest,
		`{"object":"response","output":[{"type":"function_call","id":"fc_1","name":"a__b","arguments":"{}"}]}`:        toolkeep.MalformedRequest, // call_id is missing
		`{"object":"response","output":[{"type":"custom_tool_call","call_id":"c","name":"a__b","input":"anything"}]}`: toolkeep.InvalidParameters,
	} {
		if _, _, err := export.ReadCalls(parse(t, text)); !toolkeep.IsCode(err, want) {
			t.Errorf("%.100s: %v, want %s", text, err, want)
		}
	}
}

func parse(t *testing.T, text string) any {
	t.Helper()
	v, err := canon.Parse([]byte(text), canon.Limits{})
	if err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return v
}

func TestMessages(t *testing.T) {
	call := func(id string) export.ModelCall { return export.ModelCall{ID: id, Name: "a__b"} }
	all := []export.Answered{
		{Call: call("1"), Output: []byte(`{"n":12345678901234567890}`)},
		{Call: call("2"), Output: []byte(`"it is \"cold\""`), Notes: []string{"It is cut."}},
		{Call: call(""), Output: []byte(`"E3301 no"`), Failed: true},
	}
	for form, want := range map[export.Form]string{
		export.OpenAI:    `[{"content":"{\"n\":12345678901234567890}","role":"tool","tool_call_id":"1"},{"content":"it is \"cold\"\nIt is cut.","role":"tool","tool_call_id":"2"},{"content":"E3301 no","role":"tool","tool_call_id":""}]`,
		export.Responses: `[{"call_id":"1","output":"{\"n\":12345678901234567890}","type":"function_call_output"},{"call_id":"2","output":"it is \"cold\"\nIt is cut.","type":"function_call_output"},{"call_id":"","output":"E3301 no","type":"function_call_output"}]`,
		export.Anthropic: `[{"content":[{"content":"{\"n\":12345678901234567890}","tool_use_id":"1","type":"tool_result"},{"content":"it is \"cold\"\nIt is cut.","tool_use_id":"2","type":"tool_result"},{"content":"E3301 no","is_error":true,"tool_use_id":"","type":"tool_result"}],"role":"user"}]`,
		export.Gemini:    `[{"parts":[{"functionResponse":{"id":"1","name":"a__b","response":{"output":{"n":12345678901234567890}}}},{"functionResponse":{"id":"2","name":"a__b","response":{"notes":["It is cut."],"output":"it is \"cold\""}}},{"functionResponse":{"name":"a__b","response":{"error":"E3301 no"}}}],"role":"user"}]`,
	} {
		if got := string(export.Messages(form, all)); got != want {
			t.Errorf("%s:\n%s\nwant\n%s", form, got, want)
		}
		if got := string(export.Messages(form, nil)); got != "[]" {
			t.Errorf("%s without calls: %s", form, got)
		}
	}
}

func FuzzReadCalls(f *testing.F) {
	for _, m := range messages {
		f.Add(m.text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		v, err := canon.Parse([]byte(text), canon.Limits{})
		if err != nil {
			return
		}
		form, calls, err := export.ReadCalls(v)
		if err != nil {
			return
		}
		answered := make([]export.Answered, len(calls))
		for i, c := range calls {
			if c.Name == "" || c.ID == "" && form != export.Gemini {
				t.Errorf("a call without a name or an id: %+v", c)
			}
			answered[i] = export.Answered{Call: c, Output: []byte(`"x"`)}
		}
		if _, err := canon.Parse(export.Messages(form, answered), canon.Limits{}); err != nil || form == "" {
			t.Errorf("%s: %v", form, err)
		}
	})
}
