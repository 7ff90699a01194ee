package canon

import (
	"testing"

	"github.com/toolkeep/toolkeep"
)

func TestParseLoose(t *testing.T) {
	for in, x := range map[string]struct {
		want string
		r    Repairs
	}{
		`{"a":1}`:                             {`{"a":1}`, Repairs{}},
		`{"a":"x\u0000y"}`:                    {"{\"a\":\"x\ufffdy\"}", Repairs{Text: true}},
		`{"a\u0000":1}`:                       {"{\"a\ufffd\":1}", Repairs{Text: true}},
		"[\"x\x00y\"]":                        {"[\"x\ufffdy\"]", Repairs{Text: true}},
		"[\"x\xffy\xc3\"]":                    {"[\"x\ufffdy\ufffd\"]", Repairs{Text: true}},
		`["\ud83d\ude00","\ud83d","\ude00a"]`: {"[\"😀\",\"\ufffd\",\"\ufffda\"]", Repairs{Text: true}},
		`["\uD83D\uDE00\u0000"]`:              {"[\"😀\ufffd\"]", Repairs{Text: true}},
		`["\ud83d\ud83d\ude00"]`:              {"[\"\ufffd😀\"]", Repairs{Text: true}},
		`["\\u0000\u0000"]`:                   {"[\"\\\\u0000\ufffd\"]", Repairs{Text: true}},
		`{"a":1,"b":2,"a":null}`:              {`{"a":null,"b":2}`, Repairs{Doubled: true}},
		`[{"a":{"b":1,"b":"\u0000"}}]`:        {"[{\"a\":{\"b\":\"\ufffd\"}}]", Repairs{Text: true, Doubled: true}},
	} {
		v, r, err := ParseLoose([]byte(in), Limits{})
		if err != nil {
			t.Errorf("%q: %v", in, err)
			continue
		}
		if got := string(Append(nil, v)); got != x.want || r != x.r {
			t.Errorf("%q became %s, %+v; want %s, %+v", in, got, r, x.want, x.r)
		}
	}
	for in, code := range map[string]toolkeep.Code{
		`{"a":`: toolkeep.MalformedRequest, "": toolkeep.MalformedRequest, "\x00": toolkeep.MalformedRequest, `{"a":"\u0000"`: toolkeep.MalformedRequest,
		`["\u0000",]`: toolkeep.MalformedRequest, `[[[["\u0000"]]]]`: toolkeep.InvalidEncoding,
	} {
		if _, r, err := ParseLoose([]byte(in), Limits{Depth: 3}); !toolkeep.IsCode(err, code) || r != (Repairs{}) {
			t.Errorf("%q: %v, %+v", in, err, r)
		}
	}
}

func FuzzParseLoose(f *testing.F) {
	for _, s := range []string{`{"a":"\u0000"}`, `["\ud83d\ude00\ud83d"]`, "[\"\xff\"]", `{"a":1,"a":2}`, `"\`, `"\ud8`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		v, r, err := ParseLoose(data, Limits{})
		strict, strictErr := Parse(data, Limits{})
		if strictErr == nil && (err != nil || r != (Repairs{}) || string(Append(nil, v)) != string(Append(nil, strict))) {
			t.Fatalf("%q is JSON and was read as %v, %+v, %v", data, v, r, err)
		}
		if err != nil {
			return
		}
		if _, err := Parse(Append(nil, v), Limits{}); err != nil {
			t.Fatalf("%q was read as what is not JSON: %v", data, err)
		}
	})
}
