package record

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"math"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/store/storetest"
)

func TestCodecEveryField(t *testing.T) {
	v := storetest.FullCall("id", toolkeep.CallRunning, 1)
	v.Message = "a\x00b\xff" // any bytes
	v.CreatedAt = v.CreatedAt.Add(987 * time.Nanosecond)
	for name, c := range map[string]struct {
		parts Parts
		lost  []string
	}{
		"recorded": {Parts{Output: true}, storetest.WaitingOnly()},
		"waiting":  {Parts{Waiting: true}, []string{"Output", "SealedArgs"}},
	} {
		t.Run(name, func(t *testing.T) {
			data, err := AppendCall(nil, v, c.parts)
			if err != nil {
				t.Fatal(err)
			}
			got, err := DecodeCall("t", "id", data)
			if err != nil {
				t.Fatal(err)
			}
			want := *v
			for _, field := range c.lost {
				reflect.ValueOf(&want).Elem().FieldByName(field).SetZero()
			}
			for _, d := range storetest.Differences(got, &want) {
				t.Error(d)
			}
		})
	}
	data, err := AppendCall(nil, &toolkeep.Invocation{}, Parts{Waiting: true, Output: true})
	if err != nil {
		t.Fatal(err)
	}
	got, err := DecodeCall("", "", data)
	if err != nil || !reflect.DeepEqual(got, &toolkeep.Invocation{}) {
		t.Errorf("an empty call came back as %+v, %v", got, err)
	}
}

// TestCodecTolerance: shorter records of older programs and longer ones of newer
// programs can be read; a record cut within a field cannot.
func TestCodecTolerance(t *testing.T) {
	v := storetest.FullCall("id", toolkeep.CallFailed, 1)
	data, err := AppendCall(nil, v, Parts{Output: true})
	if err != nil {
		t.Fatal(err)
	}
	whole, err := DecodeCall("t", "id", data)
	if err != nil {
		t.Fatal(err)
	}
	longer, err := DecodeCall("t", "id", append(bytes.Clone(data), 7, 'f', 'u', 't', 'u', 'r', 'e', '!'))
	if err != nil || !reflect.DeepEqual(longer, whole) {
		t.Errorf("a longer record: %v", err)
	}
	newer := bytes.Clone(data)
	newer[0]++
	if got, err := DecodeCall("t", "id", newer); err != nil || !reflect.DeepEqual(got, whole) {
		t.Errorf("a newer record: %v", err)
	}
	// Cut after the tool's id, as if the later fields did not exist yet.
	older := data[:bytes.Index(data, []byte(v.ToolID))+len(v.ToolID)]
	got, err := DecodeCall("t", "id", older)
	if err != nil || got.ToolID != v.ToolID || got.Version != "" || got.Output != nil {
		t.Errorf("an older record: %+v, %v", got, err)
	}
	if _, err := DecodeCall("t", "id", older[:len(older)-1]); err == nil {
		t.Error("a damaged record was read")
	}
	for _, bad := range [][]byte{nil, {0}, {1, 200}, append([]byte{1, 0, 0}, 255, 255, 255, 255, 15)} {
		if _, err := DecodeCall("t", "id", bad); err == nil {
			t.Errorf("%v was read", bad)
		}
	}
}

func TestTimes(t *testing.T) {
	for _, at := range []time.Time{
		{}, time.Unix(0, 0).UTC(), time.Date(1, 1, 1, 0, 0, 0, 1, time.UTC), time.Date(9999, 12, 31, 23, 59, 59, 999_999_999, time.UTC),
		time.Date(2026, 3, 1, 12, 0, 0, 1, time.FixedZone("x", 3600)),
	} {
		d := &decoder{b: appendTime(nil, at)}
		if got := d.time(); !got.Equal(at) || d.err != nil {
			t.Errorf("%s came back as %s, %v", at, got, d.err)
		}
	}
	if Nanos(time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC)) != math.MaxInt64 || Nanos(time.Time{}) != 0 {
		t.Error("columns of extreme times are wrong")
	}
}

func TestJSONTrees(t *testing.T) {
	in := map[string]any{"n": json.Number("9007199254740993"), "f": json.Number("1.50"), "e": json.Number("1e400"),
		"html": "<&>", "null": nil, "list": []any{json.Number("-0"), map[string]any{}}, "faults": []toolkeep.Fault{{Pointer: "/a"}}}
	data, err := Marshal(in)
	if err != nil {
		t.Fatal(err)
	}
	if want := `{"e":1e400,"f":1.50,"faults":[{"pointer":"/a","rule":"","message":""}],"html":"<&>","list":[-0,{}],"n":9007199254740993,"null":null}`; string(data) != want {
		t.Errorf("got %s", data)
	}
	var out map[string]any
	if err := Unmarshal(data, &out); err != nil {
		t.Fatal(err)
	}
	in["faults"] = []any{map[string]any{"pointer": "/a", "rule": "", "message": ""}}
	if !reflect.DeepEqual(out, in) {
		t.Errorf("got %#v", out)
	}
}

// TestManifestKept reads back a manifest with every field set.
func TestManifestKept(t *testing.T) {
	m := &toolkeep.Manifest{}
	fillManifest(reflect.ValueOf(m).Elem())
	data, err := Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	var got toolkeep.Manifest
	if err := Unmarshal(data, &got); err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(&got, m) {
		t.Errorf(" got %+v\nwant %+v", got, *m)
	}
}

func fillManifest(v reflect.Value) {
	switch v.Interface().(type) {
	case json.RawMessage:
		v.SetBytes([]byte(`{"a":1.50}`))
		return
	case map[string]any:
		v.Set(reflect.ValueOf(map[string]any{"n": json.Number("9007199254740993")}))
		return
	case []any:
		v.Set(reflect.ValueOf([]any{json.Number("1"), "x"}))
		return
	}
	switch v.Kind() {
	case reflect.String:
		v.SetString("text")
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Int, reflect.Int64:
		v.SetInt(7)
	case reflect.Float64:
		v.SetFloat(0.25)
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fillManifest(v.Elem())
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 2, 2))
		fillManifest(v.Index(0))
		fillManifest(v.Index(1))
	case reflect.Struct:
		for i := range v.NumField() {
			fillManifest(v.Field(i))
		}
	default:
		panic("fillManifest does not know " + v.Type().String())
	}
}

// olderMove is a row that programs wrote before the journal.
func olderMove(call []byte, from ...string) []byte {
	b := appendBytes([]byte{codecVersion}, call)
	b = binary.AppendUvarint(b, uint64(len(from)))
	for _, s := range from {
		b = appendString(b, s)
	}
	return append(appendString(b, "owner"), 0)
}

// TestOlderMoves: of the moves that older programs wrote, the ends of calls are entries.
func TestOlderMoves(t *testing.T) {
	for _, c := range []struct {
		state toolkeep.CallState
		from  string
		want  bool
	}{
		{toolkeep.CallRunning, "queued", false},
		{toolkeep.CallSucceeded, "running", true},
		{toolkeep.CallExpired, "succeeded", false},
	} {
		v := storetest.FullCall("id", c.state, 1)
		data, err := AppendCall(nil, v, Parts{Waiting: true})
		if err != nil {
			t.Fatal(err)
		}
		e, ok, err := DecodeEntry(Row{Seq: 7, Kind: kindMove, Tenant: "t", Ref: "id", Data: olderMove(data, c.from)}, 3)
		if err != nil || ok != c.want || ok && (e.Call.ToolID != v.ToolID || e.Seq != 7 || e.Writer != 3) {
			t.Errorf("from %s to %s gave %v, %+v, %v", c.from, c.state, ok, e, err)
		}
	}
	for kind := range int64(LastCallKind + 1) { // what happened before the end
		if kind == KindRecord || kind == kindMove || kind == KindEnded {
			continue
		}
		if _, ok, err := DecodeEntry(Row{Kind: kind, Data: []byte{1}}, 0); ok || err != nil {
			t.Errorf("kind %d gave %v, %v", kind, ok, err)
		}
	}
}

func FuzzDecodeChange(f *testing.F) {
	v := storetest.FullCall("id", toolkeep.CallRunning, 1)
	for _, parts := range []Parts{{Waiting: true}, {Output: true}} {
		data, err := AppendCall(nil, v, parts)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(int64(KindRecord), data)
		f.Add(int64(KindEnded), data)
		f.Add(int64(kindMove), olderMove(data, "running"))
	}
	f.Add(int64(KindKey), []byte(`{"hash":"00"}`))
	f.Add(int64(KindEvent), []byte{1, 3, 'a', 'b', 'c', 1, 2, 3})
	for _, c := range []toolkeep.Change{toolkeep.PutDocument{Document: toolkeep.Document{Kind: "k", ID: "i", Body: []byte("b")}}, toolkeep.DeleteDocument{Kind: "k", ID: "i", Expect: 1}} {
		e, err := Encode(c, time.Now)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(e.Kind, e.Data)
	}
	f.Fuzz(func(t *testing.T, kind int64, data []byte) {
		if kind == KindPublish || len(data) > 1<<16 {
			return // needs the database
		}
		row := Row{Seq: 1, Kind: kind, Tenant: "t", Ref: "r", Data: data}
		c, err := Decode(row, nil)
		e, ok, err2 := DecodeEntry(row, 1)
		if err == nil && err2 == nil && c.Change != nil && ok {
			t.Errorf("kind %d is both of the feed and of the journal", kind)
		}
		// A decoded record can be encoded and decodes to the same.
		v := e.Call
		if err2 != nil || v == nil || strings.ToValidUTF8(v.Message, "") != v.Message {
			return
		}
		again, err := AppendCall(nil, v, Parts{Waiting: true, Output: true})
		if err != nil {
			return // details that are no longer JSON
		}
		reread, err := DecodeCall("t", "r", again)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range storetest.Differences(reread, v) {
			if !strings.HasPrefix(d, "CostUSD") && !strings.HasPrefix(d, "Warnings") { // NaN, empty details
				t.Error(d)
			}
		}
	})
}
