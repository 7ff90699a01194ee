package mcp_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"reflect"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/toolkeep/toolkeep/canon"
	"github.com/toolkeep/toolkeep/mcp"
)

// FuzzParse compares Parse with a strict decoder and with itself: what it accepts is
// JSON without duplicates, and Append writes it as one equivalent line.
func FuzzParse(f *testing.F) {
	for _, s := range []string{
		`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"a","arguments":{"x":[1,{"y":null}]}}}`,
		`{"jsonrpc":"2.0","id":"\u0061","result":{"n":1.10}}`, `{"jsonrpc":"2.0","id":null,"error":{"code":-1,"message":"m","data":[1]}}`,
		`[{"jsonrpc":"2.0","method":"x"},{"jsonrpc":"2.0","id":1,"method":"y"}]`, `{"jsonrpc":"2.0","method":"a","method":"b"}`,
		`[]`, `{`, "{\"jsonrpc\"\n:\r\"2.0\",\"method\":\"x\",\"params\":{\n}}", `{"jsonrpc":"2.0","id":1,"result":{},"error":null}`,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		list, batch, err := mcp.ParseBatch(data, canon.Limits{Bytes: 1 << 20})
		strict := jsontext.Value(data).IsValid()
		if err != nil {
			var e *mcp.Error
			if !errors.As(err, &e) || e.Code != mcp.CodeParse && e.Code != mcp.CodeInvalidRequest {
				t.Fatalf("%T %v", err, err)
			}
			if e.Code == mcp.CodeParse && strict {
				t.Fatalf("%q is JSON: %v", data, e)
			}
			// Duplicates, limits and batch sizes are reported as soon as they are seen.
			early := strings.Contains(e.Message, "stands twice") || strings.Contains(e.Message, "nested") || strings.Contains(e.Message, "more than")
			if e.Code == mcp.CodeInvalidRequest && !strict && !early {
				t.Fatalf("%q is not JSON: %v", data, e)
			}
			return
		}
		if !strict {
			t.Fatalf("accepted: %q", data)
		}
		if !batch && len(list) != 1 {
			t.Fatalf("%d messages of %q", len(list), data)
		}
		for _, m := range list {
			line := m.Bytes()
			if bytes.ContainsAny(line, "\r\n") {
				t.Fatalf("more than a line: %q", line)
			}
			again, err := mcp.Parse(line, canon.Limits{Bytes: 1 << 21})
			if err != nil {
				t.Fatalf("%q became %q: %v", data, line, err)
			}
			if !bytes.Equal(again.Bytes(), line) || again.Method != m.Method || !bytes.Equal(again.ID, m.ID) {
				t.Fatalf("%q became %q", line, again.Bytes())
			}
		}
	})
}

// FuzzSet compares Get, Set, Delete and Members with a map.
func FuzzSet(f *testing.F) {
	f.Add([]byte(`{"a":1,"b":{"c":"}\""}}`), []byte(`[1]`), "a", "c")
	f.Add([]byte(` { "é" : {} } `), []byte(`"x"`), "é", "q\"")
	f.Add([]byte(`{"\u0061":{"b":1}}`), []byte(`null`), "a", "b")
	f.Add([]byte(`{"a":`), []byte(`]`), "a", "b")
	f.Fuzz(func(t *testing.T, obj, value []byte, one, two string) {
		// On unchecked text any result is fine, but no panic.
		got := mcp.Get(obj, one, two)
		set := mcp.Set(obj, value, one, two)
		mcp.Delete(obj, one, two)
		names := 0
		for range mcp.Members(obj) {
			names++
		}
		for range mcp.Elements(obj) {
			names++
		}
		limits := canon.Limits{Bytes: 1 << 20}
		if mcp.Check(obj, limits) != nil || mcp.Check(value, limits) != nil || mcp.Check(mcp.Quote(one), limits) != nil ||
			string(mcp.Quote(one)) != canonical(one) || string(mcp.Quote(two)) != canonical(two) {
			return
		}
		var tree map[string]any
		if mcp.IsObject(obj) {
			tree = decode(t, obj).(map[string]any)
			if len(tree) != names {
				t.Fatalf("%q has %d members, not %d", obj, len(tree), names)
			}
		}
		inner, _ := tree[one].(map[string]any)
		want, there := inner[two]
		if there != (got != nil) || there && !reflect.DeepEqual(decode(t, got), want) {
			t.Fatalf("Get of %q, %q in %q is %q", one, two, obj, got)
		}
		if err := mcp.Check(set, canon.Limits{Bytes: 1 << 21}); err != nil {
			t.Fatalf("Set made %q of %q: %v", set, obj, err)
		}
		if back := mcp.Get(set, one, two); !bytes.Equal(back, mcp.Get(value)) {
			t.Fatalf("Set %q, got %q", value, back)
		}
		gone := mcp.Delete(set, one, two)
		if err := mcp.Check(gone, canon.Limits{Bytes: 1 << 21}); err != nil {
			t.Fatalf("Delete made %q of %q: %v", gone, set, err)
		}
		if mcp.Get(gone, one, two) != nil {
			t.Fatalf("Delete left it: %q", gone)
		}
		// All other members are unchanged.
		after := decode(t, gone).(map[string]any)
		delete(tree, one)
		delete(after, one)
		if len(tree) != len(after) || len(tree) > 0 && !reflect.DeepEqual(tree, after) {
			t.Fatalf("%q lost a member: %q", obj, gone)
		}
	})
}

// canonical is s as a JSON string if s is valid UTF-8.
func canonical(s string) string {
	if strings.ToValidUTF8(s, "?") != s {
		return ""
	}
	return string(canon.AppendString(nil, s))
}

func decode(t *testing.T, data []byte) any {
	d := json.NewDecoder(bytes.NewReader(data))
	d.UseNumber()
	var v any
	if err := d.Decode(&v); err != nil {
		t.Fatalf("%q: %v", data, err)
	}
	return v
}

// FuzzEvents: how the bytes are split between reads makes no difference, the limit
// holds, and AppendEvent's output reads back.
func FuzzEvents(f *testing.F) {
	for _, s := range []string{"data: a\n\n", "id: 1\r\ndata: a\rdata: b\n\n: c\n\n", "\ufeffevent: x\nretry: 5\n\n", "data\n\n\n\r\r", "id: \x00\ndata:\n\n"} {
		f.Add([]byte(s), 64)
	}
	f.Fuzz(func(t *testing.T, data []byte, max int) {
		max = max%1000 + 1
		if max < 1 {
			max = 1
		}
		whole := readEvents(bytes.NewReader(data), int64(max))
		if single := readEvents(iotest.OneByteReader(bytes.NewReader(data)), int64(max)); single != whole {
			t.Fatalf("%q\nwhole  %s\nsingle %s", data, whole, single)
		}
		r := mcp.NewEventReader(bytes.NewReader(data), int64(max))
		for {
			e, err := r.Next()
			if errors.Is(err, mcp.ErrTooLarge) {
				continue
			}
			if err == io.EOF {
				break
			}
			if err != nil {
				t.Fatal(err)
			}
			if len(e.Data) > max {
				t.Fatalf("%d bytes with a limit of %d", len(e.Data), max)
			}
			again, err := mcp.NewEventReader(bytes.NewReader(mcp.AppendEvent(nil, e)), 0).Next()
			if err != nil || again.ID != e.ID || again.Name != e.Name || again.Retry != e.Retry || !bytes.Equal(again.Data, e.Data) {
				t.Fatalf("%+v came back as %+v, %v", e, again, err)
			}
		}
	})
}
