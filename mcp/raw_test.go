package mcp_test

import (
	"strings"
	"testing"

	"github.com/toolkeep/toolkeep/mcp"
)

const nested = `{ "a" : {"b":{"c":[1,{"x":"}"}],"d":null},"e\u0041":"q\"\\"} , "n":1.50,"t":true }`

func TestGet(t *testing.T) {
	for _, c := range []struct {
		path []string
		want string // "" is nil
	}{
		{nil, nested},
		{[]string{"a"}, `{"b":{"c":[1,{"x":"}"}],"d":null},"e\u0041":"q\"\\"}`},
		{[]string{"a", "b", "c"}, `[1,{"x":"}"}]`},
		{[]string{"a", "b", "d"}, `null`},
		{[]string{"a", "eA"}, `"q\"\\"`},
		{[]string{"n"}, `1.50`},
		{[]string{"t"}, `true`},
		{[]string{"x"}, ``},
		{[]string{"a", "b", "c", "x"}, ``},
		{[]string{"n", "x"}, ``},
		{[]string{"a", "e"}, ``},
	} {
		if got := mcp.Get([]byte(" "+nested+"\n"), c.path...); string(got) != c.want || (got == nil) != (c.want == "") {
			t.Errorf("%q: %s", c.path, got)
		}
	}
	if got := mcp.Text([]byte(nested), "a", "eA"); got != `q"\` {
		t.Errorf("Text: %s", got)
	}
	for _, path := range [][]string{{"n"}, {"a"}, {"x"}} {
		if got := mcp.Text([]byte(nested), path...); got != "" {
			t.Errorf("Text of %v: %s", path, got)
		}
	}
	for _, in := range []string{"", " ", "null", "1", "[]", "[1", "{", `{"a"`, `{"a":`, `{"a":}`, `"`, `{"a":1`, `{"\`, "\\", `{"b":{"`} {
		mcp.Get([]byte(in), "a")
		mcp.Get([]byte(in), "b", "c")
	}
	if mcp.Get(nil, "a") != nil || mcp.Get(nil) != nil {
		t.Error("nil has members")
	}
}

func TestSet(t *testing.T) {
	for _, c := range []struct {
		obj, value string
		path       []string
		want       string
	}{
		{``, `1`, []string{"a"}, `{"a":1}`},
		{``, `1`, []string{"a", "b", "c"}, `{"a":{"b":{"c":1}}}`},
		{`{}`, `1`, []string{"a"}, `{"a":1}`},
		{`{ }`, `1`, []string{"a"}, `{"a":1}`},
		{`{"x":1.0}`, `2`, []string{"a"}, `{"x":1.0,"a":2}`},
		{"{\n \"x\": 1.0\n}\n", `2`, []string{"a"}, "{\n \"x\": 1.0,\"a\":2}\n"},
		{`{ "x" : 1.0 , "y":2}`, `"v"`, []string{"x"}, `{ "x" : "v" , "y":2}`},
		{nested, `{}`, []string{"a", "b", "c"}, strings.Replace(nested, `[1,{"x":"}"}]`, `{}`, 1)},
		{nested, `2`, []string{"a", "b", "z", "y"}, strings.Replace(nested, `"d":null`, `"d":null,"z":{"y":2}`, 1)},
		{nested, `2`, []string{"n", "y"}, strings.Replace(nested, `1.50`, `{"y":2}`, 1)},
		{nested, `2`, []string{"a", "b", "d", "y"}, strings.Replace(nested, `null`, `{"y":2}`, 1)},
		{`[1]`, `2`, []string{"y"}, `{"y":2}`},
		{`null`, ``, []string{"q\"uote"}, `{"q\"uote":null}`},
		{`{"a":1}`, `7`, nil, `7`},
	} {
		in := []byte(c.obj)
		if got := mcp.Set(in, []byte(c.value), c.path...); string(got) != c.want {
			t.Errorf("Set(%s, %s, %q)\n got %s\nwant %s", c.obj, c.value, c.path, got, c.want)
		}
		if string(in) != c.obj {
			t.Errorf("Set changed its input: %s", in)
		}
	}
}

func TestDelete(t *testing.T) {
	for _, c := range []struct {
		obj  string
		path []string
		want string
	}{
		{`{"a":1}`, []string{"a"}, `{}`},
		{`{"a":1,"b":2}`, []string{"a"}, `{"b":2}`},
		{`{"a":1,"b":2}`, []string{"b"}, `{"a":1}`},
		{`{ "a":1 , "b":2 , "c":3 }`, []string{"b"}, `{ "a":1 , "c":3 }`},
		{`{ "a":1 , "b":2 }`, []string{"b"}, `{ "a":1  }`},
		{`{"x":{"a":1},"y":2}`, []string{"x", "a"}, `{"x":{},"y":2}`},
		{`{"x":{"a":1},"y":2}`, []string{"x", "b"}, `{"x":{"a":1},"y":2}`},
		{`{"x":{"a":1},"y":2}`, []string{"q", "b"}, `{"x":{"a":1},"y":2}`},
		{`{"x":1}`, nil, `{"x":1}`},
		{`[1]`, []string{"x"}, `[1]`},
	} {
		in := []byte(c.obj)
		if got := mcp.Delete(in, c.path...); string(got) != c.want {
			t.Errorf("Delete(%s, %q) = %s", c.obj, c.path, got)
		}
		if string(in) != c.obj {
			t.Errorf("Delete changed its input: %s", in)
		}
	}
}

func TestMembersElements(t *testing.T) {
	var got []string
	for name, v := range mcp.Members([]byte(nested)) {
		got = append(got, name+"="+string(v))
	}
	for v := range mcp.Elements([]byte(` [ 1 , "a,]" ,[2,3],{"x":[]}, null ] `)) {
		got = append(got, string(v))
	}
	want := `a={"b":{"c":[1,{"x":"}"}],"d":null},"e\u0041":"q\"\\"}|n=1.50|t=true|1|"a,]"|[2,3]|{"x":[]}|null`
	if s := strings.Join(got, "|"); s != want {
		t.Errorf("got  %s\nwant %s", s, want)
	}
	for range mcp.Members([]byte(`[1]`)) {
		t.Error("an array has members")
	}
	for range mcp.Elements([]byte(`{"a":1}`)) {
		t.Error("an object has elements")
	}
	for name := range mcp.Members([]byte(`{"a":1,"b":2}`)) {
		if name != "a" {
			t.Error("the loop went on after its end")
		}
		break
	}
}

func TestUnquote(t *testing.T) {
	for in, want := range map[string]string{`"a"`: "a", `""`: "", `"\u00e9\n"`: "é\n"} {
		if got, ok := mcp.Unquote([]byte(in)); !ok || got != want {
			t.Errorf("%s: %q %v", in, got, ok)
		}
		if back, ok := mcp.Unquote(mcp.Quote(want)); !ok || back != want {
			t.Errorf("Quote(%q) is not read back", want)
		}
	}
	for _, in := range []string{``, `"`, `1`, `null`, `"\x"`} {
		if got, ok := mcp.Unquote([]byte(in)); ok {
			t.Errorf("%s: %q", in, got)
		}
	}
	if !mcp.IsObject([]byte(" {}")) || mcp.IsObject([]byte("[]")) || mcp.IsObject(nil) ||
		!mcp.IsNull(nil) || !mcp.IsNull([]byte(" null")) || mcp.IsNull([]byte("{}")) {
		t.Error("IsObject or IsNull")
	}
}
