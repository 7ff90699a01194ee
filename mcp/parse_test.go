package mcp_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/toolkeep/toolkeep/canon"
	"github.com/toolkeep/toolkeep/mcp"
)

// show prints a message, with "-" for nil.
func show(m *mcp.Message) string {
	if m == nil {
		return "nil"
	}
	raw := func(b []byte) string {
		if b == nil {
			return "-"
		}
		return string(b)
	}
	s := fmt.Sprintf("id %s method %q params %s result %s", raw(m.ID), m.Method, raw(m.Params), raw(m.Result))
	if m.Err != nil {
		s += fmt.Sprintf(" error %d %q %s", m.Err.Code, m.Err.Message, raw(m.Err.Data))
	}
	return s
}

func TestParseAccepts(t *testing.T) {
	for _, c := range []struct{ in, want string }{
		{`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"a"}}`, `id 1 method "tools/call" params {"name":"a"} result -`},
		{`{"jsonrpc":"2.0","method":"notifications/initialized"}`, `id - method "notifications/initialized" params - result -`},
		{`{"method":"x/y","id":"a","jsonrpc":"2.0","future":[1]}`, `id "a" method "x/y" params - result -`},
		{`{"jsonrpc":"2.0","id":9007199254740993,"method":"ping"}`, `id 9007199254740993 method "ping" params - result -`},
		{`{"jsonrpc":"2.0","id":1.50e2,"method":"ping"}`, `id 1.50e2 method "ping" params - result -`},
		{`{"jsonrpc":"2.0","id":-7,"method":"ping","params":null}`, `id -7 method "ping" params - result -`},
		{`{"jsonrpc":"2.0","id":"","method":"ping"}`, `id "" method "ping" params - result -`},
		{`{"jsonrpc":"2.0","id":"\u0061\"é","method":"pi\u006eg"}`, `id "\u0061\"é" method "ping" params - result -`},
		{`{"jsonrpc":"2.0","\u0069d":3,"method":"ping"}`, `id 3 method "ping" params - result -`},
		{`{"jsonrpc":"2.0","id":1,"result":{"n":1.10, "m":9007199254740993}}`, `id 1 method "" params - result {"n":1.10, "m":9007199254740993}`},
		{`{"jsonrpc":"2.0","id":1,"result":null}`, `id 1 method "" params - result null`},
		{`{"jsonrpc":"2.0","id":1,"result":{},"error":null}`, `id 1 method "" params - result {}`},
		{`{"jsonrpc":"2.0","id":1,"result":null,"error":{"code":-32601,"message":"no"}}`, `id 1 method "" params - result - error -32601 "no" -`},
		{`{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"bad"}}`, `id - method "" params - result - error -32700 "bad" -`},
		{`{"jsonrpc":"2.0","error":{"code":-32700,"message":"bad"}}`, `id - method "" params - result - error -32700 "bad" -`},
		{`{"jsonrpc":"2.0","id":"x","error":{"code":-32022,"message":"v","data":{"supported":["2026-07-28"]}}}`, `id "x" method "" params - result - error -32022 "v" {"supported":["2026-07-28"]}`},
		{`{"jsonrpc":"2.0","id":1,"error":{"code":5e0,"message":"x","data":null}}`, `id 1 method "" params - result - error 5 "x" -`},
		{`{"jsonrpc":"2.0","id":1,"error":{"code":5}}`, `id 1 method "" params - result - error 5 "" -`},
		{" \r\n{ \"jsonrpc\" : \"2.0\" , \"id\" : 1 , \"method\" : \"ping\" }\n ", `id 1 method "ping" params - result -`},
	} {
		m, err := mcp.Parse([]byte(c.in), canon.Limits{})
		if err != nil || show(m) != c.want {
			t.Errorf("%s\n got %s, %v\nwant %s", c.in, show(m), err, c.want)
		}
	}
}

func TestParseRefuses(t *testing.T) {
	deep := `{"jsonrpc":"2.0","method":"x","params":{"a":` + strings.Repeat("[", 198) + strings.Repeat("]", 198) + `}}`
	if _, err := mcp.Parse([]byte(deep), canon.Limits{}); err != nil {
		t.Errorf("200 levels: %v", err)
	}
	for _, c := range []struct {
		in, say string
		code    int64
		id      string // that the message has anyway
	}{
		{``, "ends too early", mcp.CodeParse, ""},
		{`{`, "ends too early", mcp.CodeParse, ""},
		{`{"jsonrpc":"2.0","id":1,"method":7,"params":{]}`, "not JSON", mcp.CodeParse, ""},
		{`{"jsonrpc":"2.0","id":1,"method":"ping"} x`, "text after", mcp.CodeParse, ""},
		{`{"jsonrpc":"2.0","id":01,"method":"ping"}`, "not JSON", mcp.CodeParse, ""},
		{`{"jsonrpc":"2.0","id":1,"method":"ping","params":{"a":"` + "\xff" + `"}}`, "not UTF-8", mcp.CodeParse, ""},
		{`{"jsonrpc":"2.0","id":1,"method":"ping","params":{"a":"\ud800"}}`, "not JSON", mcp.CodeParse, ""},
		{`{"jsonrpc":"2.0","id":1,"method":"ping","params":{"a":{"b":1,"\u0062":2}}}`, "stands twice", mcp.CodeInvalidRequest, ""},
		{`{"jsonrpc":"2.0","id":1,"id":1,"method":"ping"}`, "stands twice", mcp.CodeInvalidRequest, ""},
		{`[]`, "must be a JSON object", mcp.CodeInvalidRequest, ""},
		{`"x"`, "must be a JSON object", mcp.CodeInvalidRequest, ""},
		{`{}`, `"jsonrpc" is missing`, mcp.CodeInvalidRequest, ""},
		{`{"id":4,"method":"ping"}`, `"jsonrpc" is missing`, mcp.CodeInvalidRequest, "4"},
		{`{"jsonrpc":"1.0","id":"q","method":"ping"}`, `must be "2.0"`, mcp.CodeInvalidRequest, `"q"`},
		{`{"jsonrpc":2.0,"id":1,"method":"ping"}`, `must be "2.0"`, mcp.CodeInvalidRequest, "1"},
		{`{"jsonrpc":"2.0","id":null,"method":"ping"}`, "must not be null", mcp.CodeInvalidRequest, ""},
		{`{"jsonrpc":"2.0","id":true,"method":"ping"}`, "must be a string or a number", mcp.CodeInvalidRequest, ""},
		{`{"jsonrpc":"2.0","id":{},"method":"ping"}`, "must be a string or a number", mcp.CodeInvalidRequest, ""},
		{`{"jsonrpc":"2.0","id":"` + strings.Repeat("x", 1023) + `","method":"ping"}`, "longer than 1024", mcp.CodeInvalidRequest, ""},
		{`{"jsonrpc":"2.0","id":1,"method":""}`, "not empty", mcp.CodeInvalidRequest, "1"},
		{`{"jsonrpc":"2.0","id":1,"method":null}`, "not empty", mcp.CodeInvalidRequest, "1"},
		{`{"jsonrpc":"2.0","id":1,"method":"ping","params":[1]}`, "must be an object", mcp.CodeInvalidRequest, "1"},
		{`{"jsonrpc":"2.0","id":1,"method":"ping","params":"a"}`, "must be an object", mcp.CodeInvalidRequest, "1"},
		{`{"jsonrpc":"2.0","id":1,"method":"ping","result":{}}`, "cannot stand beside", mcp.CodeInvalidRequest, "1"},
		{`{"jsonrpc":"2.0","id":1,"result":{},"error":{"code":1,"message":"x"}}`, "cannot stand together", mcp.CodeInvalidRequest, "1"},
		{`{"jsonrpc":"2.0","id":1}`, `there is no "method"`, mcp.CodeInvalidRequest, "1"},
		{`{"jsonrpc":"2.0","result":{}}`, `needs an "id"`, mcp.CodeInvalidRequest, ""},
		{`{"jsonrpc":"2.0","id":null,"result":{}}`, `needs an "id"`, mcp.CodeInvalidRequest, ""},
		{`{"jsonrpc":"2.0","id":1,"result":[1]}`, `"result" must be an object`, mcp.CodeInvalidRequest, "1"},
		{`{"jsonrpc":"2.0","id":1,"error":"no"}`, `"error" must be an object`, mcp.CodeInvalidRequest, "1"},
		{`{"jsonrpc":"2.0","id":1,"error":{"message":"no"}}`, `"error" must be an object`, mcp.CodeInvalidRequest, "1"},
		{`{"jsonrpc":"2.0","id":1,"error":{"code":1.5}}`, `"error" must be an object`, mcp.CodeInvalidRequest, "1"},
		{strings.Replace(deep, "[", "[[", 1), "nested deeper", mcp.CodeInvalidRequest, ""},
	} {
		m, err := mcp.Parse([]byte(c.in), canon.Limits{})
		var e *mcp.Error
		if !errors.As(err, &e) || e.Code != c.code || !strings.Contains(e.Message, c.say) {
			t.Errorf("%.80s: %v, want %d with %q", c.in, err, c.code, c.say)
			continue
		}
		switch {
		case c.id == "" && m != nil:
			t.Errorf("%.80s: a message came with the error: %s", c.in, show(m))
		case c.id != "" && show(m) != show(&mcp.Message{ID: []byte(c.id)}):
			t.Errorf("%.80s: %s, want the id %s alone", c.in, show(m), c.id)
		}
	}
}

func TestParseLimits(t *testing.T) {
	in := []byte(`{"jsonrpc":"2.0","method":"x","params":{"s":"{[:,[[[[","a":[1,[2],[]],"o":{}}}`)
	for _, c := range []struct {
		l  canon.Limits
		ok bool
	}{
		{canon.Limits{Bytes: int64(len(in))}, true},
		{canon.Limits{Bytes: int64(len(in)) - 1}, false},
		{canon.Limits{Depth: 4}, true},
		{canon.Limits{Depth: 3}, false},
		{canon.Limits{Properties: 6}, true},
		{canon.Limits{Properties: 5}, false},
		{canon.Limits{Elements: 4}, true},
		{canon.Limits{Elements: 3}, false},
	} {
		for _, parse := range []func() error{
			func() error { _, err := mcp.Parse(in, c.l); return err },
			func() error { _, _, err := mcp.ParseBatch(in, c.l); return err },
			func() error { return mcp.Check(in, c.l) },
		} {
			if err := parse(); (err == nil) != c.ok {
				t.Errorf("%+v: %v", c.l, err)
			}
		}
	}
}

func TestParseBatch(t *testing.T) {
	const ping = `{"jsonrpc":"2.0","id":1,"method":"ping"}`
	const answer = `{"jsonrpc":"2.0","id":"s","result":{}}`
	const note = `{"jsonrpc":"2.0","method":"notifications/initialized"}`
	many := "[" + strings.Repeat(ping+",", mcp.MaxBatch-1) + ping + "]"
	for _, c := range []struct {
		in    string
		n     int
		batch bool
		say   string
	}{
		{ping, 1, false, ""},
		{" [ " + ping + " , " + answer + "," + note + "]", 3, true, ""},
		{"[" + ping + "]", 1, true, ""},
		{many, mcp.MaxBatch, true, ""},
		{strings.Replace(many, "[", "["+ping+",", 1), 0, true, "more than 100"},
		{"[]", 0, true, "the batch is empty"},
		{"[[]]", 0, true, "message 0 of the batch"},
		{"[" + ping + ",1]", 0, true, "message 1 of the batch"},
		{"[" + ping + ",{}]", 0, true, "message 1 of the batch"},
		{"[" + ping, 0, true, "ends too early"},
		{"[1," + ping + "}", 0, true, "not JSON"},
		{"[" + ping + "]]", 0, true, "text after"},
		{"", 0, false, "ends too early"},
	} {
		list, batch, err := mcp.ParseBatch([]byte(c.in), canon.Limits{})
		if len(list) != c.n || batch != c.batch || (err == nil) != (c.say == "") || err != nil && !strings.Contains(err.Error(), c.say) {
			t.Errorf("%.60s: %d messages, batch %v, %v", c.in, len(list), batch, err)
		}
	}
	list, _, err := mcp.ParseBatch([]byte(`{"id":8}`), canon.Limits{})
	if err == nil || len(list) != 1 || string(list[0].ID) != "8" {
		t.Errorf("a single bad message keeps its id: %v, %v", list, err)
	}
}

func TestKinds(t *testing.T) {
	for in, want := range map[string][3]bool{
		`{"jsonrpc":"2.0","id":1,"method":"ping"}`:                         {true, false, false},
		`{"jsonrpc":"2.0","method":"ping"}`:                                {false, true, false},
		`{"jsonrpc":"2.0","id":1,"result":{}}`:                             {false, false, true},
		`{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":""}}`: {false, false, true},
	} {
		m, err := mcp.Parse([]byte(in), canon.Limits{})
		if err != nil {
			t.Fatal(err)
		}
		if got := [3]bool{m.IsRequest(), m.IsNotification(), m.IsResponse()}; got != want {
			t.Errorf("%s: %v", in, got)
		}
	}
}

func TestAppend(t *testing.T) {
	for _, c := range []struct {
		m    *mcp.Message
		want string
	}{
		{&mcp.Message{ID: []byte("1"), Method: "a\"b", Params: []byte("{\r\n \"x\": [1,\n2],\r \"s\":\"\\n\"}")}, `{"jsonrpc":"2.0","id":1,"method":"a\"b","params":{ "x": [1,2], "s":"\n"}}`},
		{&mcp.Message{Method: "n"}, `{"jsonrpc":"2.0","method":"n"}`},
		{mcp.Reply([]byte(`"x"`), []byte("{\n}")), `{"jsonrpc":"2.0","id":"x","result":{}}`},
		{mcp.Reply([]byte(`7`), nil), `{"jsonrpc":"2.0","id":7,"result":{}}`},
		{mcp.Refuse(nil, mcp.NewError(mcp.CodeParse, "no\nJSON")), `{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"no\nJSON"}}`},
		{mcp.Refuse([]byte("2"), &mcp.Error{Code: 1, Message: "m", Data: []byte("[\n]")}), `{"jsonrpc":"2.0","id":2,"error":{"code":1,"message":"m","data":[]}}`},
	} {
		got := string(c.m.Append([]byte("x")))
		if got != "x"+c.want || string(c.m.Bytes()) != c.want {
			t.Errorf("got  %s\nwant x%s", got, c.want)
		}
	}
}

// TestRawIsSlice: nothing is copied, and appending to a member cannot overwrite its
// neighbour.
func TestRawIsSlice(t *testing.T) {
	data := []byte(`{"jsonrpc":"2.0","id":1,"method":"x","params":{"a":1}}`)
	m, err := mcp.Parse(data, canon.Limits{})
	if err != nil {
		t.Fatal(err)
	}
	if &m.Params[0] != &data[strings.Index(string(data), `{"a"`)] {
		t.Error("params are a copy")
	}
	before := string(data)
	_ = append(m.Params, "!!!"...)
	_ = append(m.ID, "!!!"...)
	_ = append(mcp.Get(m.Params, "a"), "!!!"...)
	if string(data) != before {
		t.Errorf("an append changed the text: %s", data)
	}
}

func TestCheck(t *testing.T) {
	for in, ok := range map[string]bool{
		`{"a":1}`: true, `[1]`: true, ` "x" `: true, `{"a":1,"a":2}`: false, `{}{}`: false, ``: false, "\"\xff\"": false,
	} {
		if err := mcp.Check([]byte(in), canon.Limits{}); (err == nil) != ok {
			t.Errorf("%s: %v", in, err)
		}
	}
}
