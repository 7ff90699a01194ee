package mcp_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/toolkeep/toolkeep/canon"
	"github.com/toolkeep/toolkeep/mcp"
)

func TestHeaderEncoding(t *testing.T) {
	for v, want := range map[string]string{
		"":                  "",
		"plain text ~!":     "plain text ~!",
		" a":                "=?base64?IGE=?=",
		"a ":                "=?base64?YSA=?=",
		"a\tb":              "=?base64?YQli?=",
		"é":                 "=?base64?w6k=?=",
		"a\r\nX-Evil: 1":    "=?base64?YQ0KWC1FdmlsOiAx?=",
		"=?base64?abc?=":    "=?base64?PT9iYXNlNjQ/YWJjPz0=?=",
		"=?base64?not done": "=?base64?not done",
	} {
		got := mcp.EncodeHeader(v)
		if got != want {
			t.Errorf("EncodeHeader(%q) = %q", v, got)
		}
		if back, err := mcp.DecodeHeader(got); err != nil || back != v {
			t.Errorf("%q came back as %q, %v", v, back, err)
		}
	}
	for _, v := range []string{"=?base64?***?=", "=?base64?YQ?="} {
		if got, err := mcp.DecodeHeader(v); err == nil {
			t.Errorf("%q is %q", v, got)
		}
	}
}

func TestHeaderParams(t *testing.T) {
	got, err := mcp.HeaderParams([]byte(`{"type":"object","properties":{
		"region":{"type":"string","x-mcp-header":"Region"},
		"plain":{"type":"string"},
		"deep":{"type":"object","properties":{"n":{"type":"integer","x-mcp-header":"Num-1"},"b":{"type":"boolean","x-mcp-header":"Flag"}}},
		"odd":true}}`))
	if err != nil || fmt.Sprint(got) != "[{[region] Region} {[deep n] Num-1} {[deep b] Flag}]" {
		t.Errorf("%v, %v", got, err)
	}
	for _, c := range []struct{ schema, say string }{
		{`{"properties":{"a":{"type":"number","x-mcp-header":"A"}}}`, "other than string"},
		{`{"properties":{"a":{"type":["string"],"x-mcp-header":"A"}}}`, "other than string"},
		{`{"properties":{"a":{"type":"string","x-mcp-header":""}}}`, "name of an HTTP header"},
		{`{"properties":{"a":{"type":"string","x-mcp-header":"A B"}}}`, "name of an HTTP header"},
		{`{"properties":{"a":{"type":"string","x-mcp-header":"A\r\nB"}}}`, "name of an HTTP header"},
		{`{"properties":{"a":{"type":"string","x-mcp-header":7}}}`, "name of an HTTP header"},
		{`{"properties":{"a":{"type":"string","x-mcp-header":"A"},"b":{"type":"string","x-mcp-header":"a"}}}`, "another property"},
	} {
		if got, err := mcp.HeaderParams([]byte(c.schema)); err == nil || !strings.Contains(err.Error(), c.say) {
			t.Errorf("%s: %v, %v", c.schema, got, err)
		}
	}
	deep := strings.Repeat(`{"properties":{"a":`, 60) + `{"type":"number","x-mcp-header":"A"}` + strings.Repeat(`}}`, 60)
	if got, err := mcp.HeaderParams([]byte(deep)); err != nil || got != nil {
		t.Errorf("a mark too deep to count: %v, %v", got, err)
	}
}

var params = []mcp.HeaderParam{{Path: []string{"s"}, Header: "S"}, {Path: []string{"o", "n"}, Header: "N"}, {Path: []string{"b"}, Header: "B"}}

func callOf(arguments string) *mcp.Message {
	return &mcp.Message{ID: []byte("1"), Method: mcp.MethodCallTool, Params: []byte(`{"name":"t","arguments":` + arguments + `}`)}
}

func TestSetHeaders(t *testing.T) {
	for _, c := range []struct {
		m    *mcp.Message
		want string
	}{
		{callOf(`{"s":"é","o":{"n":5.0},"b":true}`), "map[Mcp-Method:[tools/call] Mcp-Name:[t] Mcp-Param-B:[true] Mcp-Param-N:[5] Mcp-Param-S:[=?base64?w6k=?=]]"},
		{callOf(`{"s":null,"o":{"n":1.5}}`), "map[Mcp-Method:[tools/call] Mcp-Name:[t]]"},
		{callOf(`{"s":[1],"o":7,"b":9007199254740992}`), "map[Mcp-Method:[tools/call] Mcp-Name:[t]]"},
		{&mcp.Message{ID: []byte("1"), Method: mcp.MethodReadResource, Params: []byte(`{"uri":"file:///a"}`)}, "map[Mcp-Method:[resources/read] Mcp-Name:[file:///a]]"},
		{&mcp.Message{ID: []byte("1"), Method: mcp.MethodGetPrompt, Params: []byte(`{"name":"p"}`)}, "map[Mcp-Method:[prompts/get] Mcp-Name:[p]]"},
		{&mcp.Message{ID: []byte("1"), Method: mcp.MethodGetTask, Params: []byte(`{"taskId":"k"}`)}, "map[Mcp-Method:[tasks/get] Mcp-Name:[k]]"},
		{&mcp.Message{ID: []byte("1"), Method: mcp.MethodListTools}, "map[Mcp-Method:[tools/list]]"},
		{&mcp.Message{Method: mcp.NotificationCancelled}, "map[Mcp-Method:[notifications/cancelled]]"},
		{mcp.Reply([]byte("1"), nil), "map[]"},
	} {
		h := http.Header{}
		mcp.SetHeaders(h, c.m, params)
		if got := fmt.Sprint(h); got != c.want {
			t.Errorf("%s\n got %s\nwant %s", c.m.Bytes(), got, c.want)
		}
		if c.m.Params != nil && strings.Contains(string(c.m.Params), "1.5") || strings.Contains(string(c.m.Params), "[1]") {
			continue // the server refuses what no header can hold
		}
		if e := mcp.CheckHeaders(h, c.m, params); e != nil {
			t.Errorf("%s: its own headers: %v", c.m.Bytes(), e)
		}
	}
}

func TestCheckHeaders(t *testing.T) {
	base := func() http.Header {
		h := http.Header{}
		mcp.SetHeaders(h, callOf(`{"s":"x","o":{"n":5}}`), params)
		return h
	}
	for _, c := range []struct {
		name      string
		change    func(http.Header)
		arguments string
		say       string // "" is good
	}{
		{"as it is", func(http.Header) {}, `{"s":"x","o":{"n":5}}`, ""},
		{"same number", func(h http.Header) { h.Set("Mcp-Param-N", "5.0") }, `{"s":"x","o":{"n":5e0}}`, ""},
		{"text as it is", func(h http.Header) { h.Set("Mcp-Param-S", "é") }, `{"s":"é","o":{"n":5}}`, ""},
		{"no method", func(h http.Header) { h.Del("Mcp-Method") }, `{"s":"x","o":{"n":5}}`, "Mcp-Method is missing"},
		{"other method", func(h http.Header) { h.Set("Mcp-Method", "ping") }, `{"s":"x","o":{"n":5}}`, "Mcp-Method does not say"},
		{"two methods", func(h http.Header) { h.Add("Mcp-Method", "tools/call") }, `{"s":"x","o":{"n":5}}`, "more than once"},
		{"no name", func(h http.Header) { h.Del("Mcp-Name") }, `{"s":"x","o":{"n":5}}`, "Mcp-Name is missing"},
		{"other name", func(h http.Header) { h.Set("Mcp-Name", "u") }, `{"s":"x","o":{"n":5}}`, "Mcp-Name does not say"},
		{"broken base64", func(h http.Header) { h.Set("Mcp-Name", "=?base64?*?=") }, `{"s":"x","o":{"n":5}}`, "not base64"},
		{"no param", func(h http.Header) { h.Del("Mcp-Param-S") }, `{"s":"x","o":{"n":5}}`, "Mcp-Param-S is missing"},
		{"other param", func(http.Header) {}, `{"s":"y","o":{"n":5}}`, "Mcp-Param-S does not say"},
		{"other number", func(http.Header) {}, `{"s":"x","o":{"n":6}}`, "Mcp-Param-N does not say"},
		{"hexadecimal", func(h http.Header) { h.Set("Mcp-Param-N", "0x5p0") }, `{"s":"x","o":{"n":5}}`, "Mcp-Param-N does not say"},
		{"absent", func(http.Header) {}, `{"o":{"n":5}}`, "absent or null"},
		{"null", func(http.Header) {}, `{"s":null,"o":{"n":5}}`, "absent or null"},
		{"too large", func(http.Header) {}, `{"s":"x","o":{"n":9007199254740993}}`, "neither"},
		{"unasked", func(h http.Header) { h.Set("Mcp-Param-B", "true") }, `{"s":"x","o":{"n":5}}`, "Mcp-Param-B stands for"},
	} {
		t.Run(c.name, func(t *testing.T) {
			h := base()
			c.change(h)
			e := mcp.CheckHeaders(h, callOf(c.arguments), params)
			if (e == nil) != (c.say == "") || e != nil && (e.Code != mcp.CodeHeaderMismatch || !strings.Contains(e.Message, c.say)) {
				t.Errorf("%v, want %q", e, c.say)
			}
		})
	}
}

func TestVersionOfMessage(t *testing.T) {
	m, err := mcp.Parse([]byte(`{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28"}}}`), canon.Limits{})
	if err != nil || m.Version() != mcp.V20260728 {
		t.Errorf("%v, %v", m, err)
	}
	if v := callOf(`{}`).Version(); v != "" {
		t.Error(v)
	}
}
