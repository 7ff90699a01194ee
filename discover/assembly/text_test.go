package assembly

import (
	"testing"

	"github.com/go-json-experiment/json"
)

func TestText(t *testing.T) {
	for give, want := range map[string]Text{
		`"order a book"`:    "order a book",
		`""`:                "",
		`null`:              "",
		`[]`:                "",
		`"tab\tand \u00e9"`: "tab\tand é",
		`[{"type":"text","text":"order"},{"type":"text","text":"a book","cache_control":{"type":"ephemeral"}}]`:                                                "order\na book",
		`[{"type":"image_url","image_url":{"url":"data:x"}},{"type":"text","text":"what is this"}]`:                                                            "what is this",
		`[{"type":"image","source":{"type":"base64","data":"AA=="}},{"type":"tool_use","id":"1","name":"n","input":{"text":5}},{"type":"thinking","text":{}}]`: "",
		`[{"type":"input_text","text":"ask"},{"type":"output_text","text":"tell","annotations":[]}]`:                                                           "ask\ntell",
	} {
		said := Text("before")
		if err := json.Unmarshal([]byte(give), &said); err != nil || said != want {
			t.Errorf("%s says %q, want %q: %v", give, said, want, err)
		}
	}
	for _, give := range []string{`5`, `true`, `{}`, `{"type":"text","text":"a"}`, `["a"]`, `[null]`, `[{}]`, `[{"text":"a"}]`, `[{"type":5}]`, `[{"type":"text"}]`,
		`[{"type":"text","text":null}]`, `[{"type":"text","text":["a"]}]`, `[[{"type":"text","text":"a"}]]`, `[{"type":"text","text":"a"}`} {
		if said := Text(""); json.Unmarshal([]byte(give), &said) == nil {
			t.Errorf("%s says %q", give, said)
		}
	}
}
