package canon_test

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"math"
	"strconv"
	"strings"
	"testing"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/canon"
)

func TestParseKeepsWhatWasWritten(t *testing.T) {
	for _, in := range []string{
		`null`, `true`, `false`, `0`, `-0`, `1.10`, `1E+5`, `9007199254740993`, `123456789012345678901234567890`,
		`""`, `"a"`, `"é"`, `"😀"`, `[]`, `{}`, `[[],{}]`, `{"a":{"b":[1,2,{"c":null}]}}`,
		`{"":1,"a/b":2,"~":3}`,
	} {
		v, err := canon.Parse([]byte(" "+in+"\n"), canon.Limits{})
		if err != nil {
			t.Errorf("Parse(%s): %v", in, err)
			continue
		}
		if got := string(canon.Append(nil, v)); got != in {
			t.Errorf("Parse(%s) and Append give %s", in, got)
		}
	}
}

func TestParseUnescapes(t *testing.T) {
	v, err := canon.Parse([]byte(`{"a\u0062":"\ud83d\ude00\n\/\"\\\u00e9"}`), canon.Limits{})
	if err != nil {
		t.Fatal(err)
	}
	if got := v.(map[string]any)["ab"]; got != "😀\n/\"\\é" {
		t.Errorf("got %q", got)
	}
}

func TestParseRefuses(t *testing.T) {
	deep := strings.Repeat("[", 51) + strings.Repeat("]", 51)
	small := canon.Limits{Properties: 2, Elements: 3, Bytes: 64}
	for _, c := range []struct {
		name, in string
		limits   canon.Limits
		code     toolkeep.Code
		pointer  string
	}{
		{"empty", ``, canon.Limits{}, toolkeep.MalformedRequest, ""},
		{"space only", "  \n", canon.Limits{}, toolkeep.MalformedRequest, ""},
		{"two values", `1 2`, canon.Limits{}, toolkeep.MalformedRequest, ""},
		{"garbage behind", `{} x`, canon.Limits{}, toolkeep.MalformedRequest, ""},
		{"cut", `{"a":[1,`, canon.Limits{}, toolkeep.MalformedRequest, "/a"},
		{"comma behind property", `{"a":1,}`, canon.Limits{}, toolkeep.MalformedRequest, ""},
		{"comma behind element", `[1,]`, canon.Limits{}, toolkeep.MalformedRequest, ""},
		{"no comma", `{"x":[1 2]}`, canon.Limits{}, toolkeep.MalformedRequest, "/x"},
		{"single quotes", `{'a':1}`, canon.Limits{}, toolkeep.MalformedRequest, ""},
		{"number name", `{1:1}`, canon.Limits{}, toolkeep.MalformedRequest, ""},
		{"NaN", `[NaN]`, canon.Limits{}, toolkeep.MalformedRequest, "/0"},
		{"leading zero", `{"a":01}`, canon.Limits{}, toolkeep.MalformedRequest, ""},
		{"mismatch", `{"a":[1}`, canon.Limits{}, toolkeep.MalformedRequest, "/a"},
		{"comment", `[1]//`, canon.Limits{}, toolkeep.MalformedRequest, ""},
		{"control character", "[\"a\x01\"]", canon.Limits{}, toolkeep.MalformedRequest, "/0"},
		{"byte order mark", "\ufeff1", canon.Limits{}, toolkeep.MalformedRequest, ""},
		{"bad UTF-8", "{\"a\":\"\xff\"}", canon.Limits{}, toolkeep.InvalidEncoding, "/a"},
		{"bad UTF-8 in a name", "{\"\xc3(\":1}", canon.Limits{}, toolkeep.InvalidEncoding, ""},
		{"NUL in a string", "[\"a\x00\"]", canon.Limits{}, toolkeep.InvalidEncoding, "/0"},
		{"NUL between", "[1,\x002]", canon.Limits{}, toolkeep.InvalidEncoding, "/1"},
		{"NUL behind", "1\x00", canon.Limits{}, toolkeep.InvalidEncoding, ""},
		{"NUL escaped", `{"a":["x\u0000y"]}`, canon.Limits{}, toolkeep.InvalidEncoding, "/a/0"},
		{"NUL escaped in a name", `{"a\u0000":1}`, canon.Limits{}, toolkeep.InvalidEncoding, "/a\x00"},
		{"lone high surrogate", `["\ud800"]`, canon.Limits{}, toolkeep.InvalidEncoding, "/0"},
		{"lone low surrogate", `["\uDFFFx"]`, canon.Limits{}, toolkeep.InvalidEncoding, "/0"},
		{"bad escape", `["\x41"]`, canon.Limits{}, toolkeep.MalformedRequest, "/0"},
		{"twice", `{"o":{"a":1,"b":2,"a":3}}`, canon.Limits{}, toolkeep.InvalidEncoding, "/o/a"},
		{"twice with null", `{"a":null,"a":3}`, canon.Limits{}, toolkeep.InvalidEncoding, "/a"},
		{"twice by escape", `{"a":1,"\u0061":3}`, canon.Limits{}, toolkeep.InvalidEncoding, "/a"},
		{"too deep", deep, canon.Limits{}, toolkeep.InvalidEncoding, strings.Repeat("/0", 50)},
		{"properties", `{"a":{"b":1,"c":2}}`, small, toolkeep.RequestTooLarge, "/a/c"},
		{"elements", `[[1,2],3]`, small, toolkeep.RequestTooLarge, "/0"},
		{"bytes", `"` + strings.Repeat("x", 63) + `"`, small, toolkeep.RequestTooLarge, ""},
		{"exponent", `{"n":1e10000}`, canon.Limits{}, toolkeep.RequestTooLarge, "/n"},
		{"exponent overflow", `{"n":1e99999999999999999999}`, canon.Limits{}, toolkeep.RequestTooLarge, "/n"},
		{"long number", strings.Repeat("1", 1101), canon.Limits{}, toolkeep.RequestTooLarge, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			v, err := canon.Parse([]byte(c.in), c.limits)
			var e *toolkeep.Error
			if !errors.As(err, &e) {
				t.Fatalf("got %v, %v", v, err)
			}
			if v != nil {
				t.Errorf("an error and the value %v", v)
			}
			if e.Code != c.code || e.Details["pointer"] != c.pointer {
				t.Errorf("got %s at %q (%s), want %s at %q", e.Code, e.Details["pointer"], e.Message, c.code, c.pointer)
			}
			if _, ok := e.Details["offset"]; !ok {
				t.Error("no offset")
			}
		})
	}
}

func TestParseAtTheLimit(t *testing.T) {
	deep := strings.Repeat(`{"a":`, 50) + "1" + strings.Repeat("}", 50)
	for _, c := range []struct {
		in string
		l  canon.Limits
	}{
		{deep, canon.Limits{}},
		{`{"a":{"b":1}}`, canon.Limits{Properties: 2}},
		{`[[1],2]`, canon.Limits{Elements: 3}},
		{`[1,2]`, canon.Limits{Bytes: 5}},
		{`1e9999`, canon.Limits{}},
	} {
		if _, err := canon.Parse([]byte(c.in), c.l); err != nil {
			t.Errorf("%.40s: %v", c.in, err)
		}
	}
}

func TestParseDoesNotHoldItsInput(t *testing.T) {
	data := []byte(`{"name":"value","n":12}`)
	v, err := canon.Parse(data, canon.Limits{})
	if err != nil {
		t.Fatal(err)
	}
	for i := range data {
		data[i] = 'x'
	}
	if got := string(canon.Append(nil, v)); got != `{"n":12,"name":"value"}` {
		t.Errorf("the tree changed with its input: %s", got)
	}
}

func TestParseObject(t *testing.T) {
	for _, in := range [][]byte{nil, {}, []byte(`{}`)} {
		obj, err := canon.ParseObject(in, canon.Limits{})
		if err != nil || obj == nil || len(obj) != 0 {
			t.Errorf("%q: %v, %v", in, obj, err)
		}
	}
	for in, kind := range map[string]string{
		`[]`: "an array", `1`: "a number", `null`: "null", `"x"`: "a string", `true`: "a boolean",
	} {
		_, err := canon.ParseObject([]byte(in), canon.Limits{})
		if e := toolkeep.AsError(err); e == nil || e.Code != toolkeep.MalformedRequest || !strings.Contains(e.Message, kind) {
			t.Errorf("%s: %v", in, err)
		}
	}
}

func TestAppend(t *testing.T) {
	for _, c := range []struct {
		v    any
		want string
	}{
		{map[string]any{"b": nil, "a": []any{true, json.Number("1.0")}, "é": "<&>", "": "\u2028"}, `{"":"` + "\u2028" + `","a":[true,1.0],"b":null,"é":"<&>"}`},
		{"a\"\\\n\x01\x7f", `"a\"\\\n\u0001` + "\x7f" + `"`},
		{"bad \xff", `"bad ` + "\ufffd" + `"`},
		{json.Number("NaN"), `"NaN"`},
		{json.Number(""), `""`},
		{[]any{int(-1), int64(2), uint64(math.MaxUint64), 0.5, 1e21}, `[-1,2,18446744073709551615,0.5,1e+21]`},
	} {
		if got := string(canon.Append([]byte("x"), c.v)); got != "x"+c.want {
			t.Errorf("got %s, want %s", got, c.want)
		}
	}
}

func TestCheckFindsWhatAppendCannotWrite(t *testing.T) {
	if err := canon.Check(map[string]any{"a": []any{1, "x", nil, 2.5}}, 2); err != nil {
		t.Error(err)
	}
	for _, v := range []any{math.NaN(), math.Inf(1), struct{}{}, []any{map[string]any{"a": make(chan int)}}, []string{"a"}} {
		if canon.Check(v, 5) == nil {
			t.Errorf("%#v passed", v)
		}
	}
	if canon.Check([]any{[]any{}}, 1) == nil {
		t.Error("two levels passed where one is allowed")
	}
}

func TestHashTellsNumbersApart(t *testing.T) {
	parse := func(s string) any {
		v, err := canon.Parse([]byte(s), canon.Limits{})
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
	if canon.Hash(parse(`{"a":1,"b":2}`)) != canon.Hash(parse(` {"b":2, "a":1}`)) {
		t.Error("the order of properties changes the hash")
	}
	seen := map[[32]byte]string{}
	for _, s := range []string{`9007199254740992`, `9007199254740993`, `1`, `1.0`, `"1"`, `[1]`, `[[1]]`, `{"1":1}`, `null`, `"null"`} {
		h := canon.Hash(parse(s))
		if other, ok := seen[h]; ok {
			t.Errorf("%s and %s share a hash", s, other)
		}
		seen[h] = s
	}
}

func TestJCS(t *testing.T) {
	for _, c := range []struct{ in, want string }{
		// The example of RFC 8785, 3.2.2.
		{`{"numbers":[333333333.33333329,1E30,4.50,2e-3,0.000000000000000000000000001],` +
			`"string":"\u20ac$\u000F\u000aA'\u0042\u0022\u005c\\\"\/","literals":[null,true,false]}`,
			`{"literals":[null,true,false],"numbers":[333333333.3333333,1e+30,4.5,0.002,1e-27],` +
				`"string":"€$\u000f\nA'B\"\\\\\"/"}`},
		// RFC 8785, 3.2.3: order by UTF-16 code units.
		{`{"\u20ac":"Euro","\r":"CR","\ufb33":"Hebrew","1":"One","\ud83d\ude00":"Emoji","\u0080":"Control","\u00f6":"o"}`,
			"{\"\\r\":\"CR\",\"1\":\"One\",\"\u0080\":\"Control\",\"ö\":\"o\",\"€\":\"Euro\",\"😀\":\"Emoji\",\"\ufb33\":\"Hebrew\"}"},
		{`[-0, 0.0, 1.0, 100, 1e2, 1e20, 1e21, 1e-6, 1e-7, -1.5e300, 9007199254740992, 123456789012345680000]`,
			`[0,0,1,100,100,100000000000000000000,1e+21,0.000001,1e-7,-1.5e+300,9007199254740992,123456789012345680000]`},
		{`{"city":"Paris","units":"metric"}`, `{"city":"Paris","units":"metric"}`},
	} {
		got, err := canon.JCS([]byte(c.in))
		if err != nil || string(got) != c.want {
			t.Errorf("JCS(%s)\n got %s, %v\nwant %s", c.in, got, err, c.want)
		}
		again, err := canon.JCS(got)
		if err != nil || string(again) != string(got) {
			t.Errorf("JCS of JCS differs: %s, %v", again, err)
		}
	}
}

func TestJCSRefusesWhatADoubleLoses(t *testing.T) {
	for _, n := range []string{
		"9007199254740993", "-9007199254740993", "9007199254740993.0", "90071992547409930e-1",
		"1e400", "-1e400", "1e-400", "0.1234567890123456789",
	} {
		_, err := canon.JCS([]byte(`{"a":[0,{"b/c":` + n + `}]}`))
		e := toolkeep.AsError(err)
		if e == nil || e.Code != toolkeep.InvalidEncoding || e.Details["pointer"] != "/a/1/b~1c" {
			t.Errorf("%s: %v", n, err)
		}
	}
}

// TestJCSExact tests that other numbers and names are written as JCS writes them.
func TestJCSExact(t *testing.T) {
	v, err := canon.Parse([]byte(`{"\ue000":1.0,"\ud83d\ude00":2E3,"a":[9007199254740993,9007199254740992,1e400,-0,1.10,9007199254740992.5,0.10000000000000001,0.30000000000000004,1e-400]}`), canon.Limits{})
	if err != nil {
		t.Fatal(err)
	}
	want := "{\"a\":[9007199254740993,9007199254740992,1e400,0,1.1,9007199254740992.5,0.10000000000000001,0.30000000000000004,1e-400],\"\U0001f600\":2000,\"\ue000\":1}"
	if got := string(canon.JCSExact(v, 0)); got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

func TestJCSFormatsAsES6(t *testing.T) {
	// From the table of RFC 8785, appendix B.
	for bits, want := range map[uint64]string{
		0x0000000000000001: "5e-324", 0x8000000000000001: "-5e-324",
		0x7fefffffffffffff: "1.7976931348623157e+308", 0x4340000000000000: "9007199254740992",
		0xc340000000000000: "-9007199254740992", 0x4430000000000000: "295147905179352830000",
		0x44b52d02c7e14af5: "9.999999999999997e+22", 0x44b52d02c7e14af6: "1e+23",
		0x444b1ae4d6e2ef4e: "999999999999999700000", 0x444b1ae4d6e2ef50: "1e+21",
		0x3eb0c6f7a0b5ed8c: "9.999999999999997e-7", 0x3eb0c6f7a0b5ed8d: "0.000001",
		0x41b3de4355555553: "333333333.3333332", 0x41b3de4355555557: "333333333.33333343",
		0xbecbf647612f3696: "-0.0000033333333333333333", 0x43143ff3c1cb0959: "1424953923781206.2",
	} {
		text := strconv.FormatFloat(math.Float64frombits(bits), 'g', -1, 64)
		if got, err := canon.JCS([]byte(text)); err != nil || string(got) != want {
			t.Errorf("%x: %s, %v, want %s", bits, got, err, want)
		}
	}
}

func TestDigest(t *testing.T) {
	const want = "sha256:ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
	if got := canon.Digest([]byte("abc")); got != want {
		t.Errorf("got %s", got)
	}
}

func TestCallID(t *testing.T) {
	a, b := canon.Hash("a"), canon.Hash("b")
	id := canon.CallID("weather.current", "1.2.0", a, 0)
	if id != canon.CallID("weather.current", "1.2.0", a, 0) {
		t.Error("the same call has two ids")
	}
	if !strings.HasPrefix(id, "call_") || len(id) != 37 {
		t.Errorf("got %q", id)
	}
	for _, other := range []string{
		canon.CallID("weather.current", "1.2.0", a, 1),
		canon.CallID("weather.current", "1.2.0", b, 0),
		canon.CallID("weather.current", "1.2.1", a, 0),
		canon.CallID("weather.curren", "t@1.2.0", a, 0),
	} {
		if id == other {
			t.Error("two calls share an id")
		}
	}
}

func TestPointers(t *testing.T) {
	if got := canon.Pointer("a/b", "~", "", "0"); got != "/a~1b/~0//0" {
		t.Errorf("got %q", got)
	}
	v, err := canon.Parse([]byte(`{"a/b":{"~":[1,{"":"deep"}]},"~1":2}`), canon.Limits{})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		pointer string
		want    any
		ok      bool
	}{
		{"/a~1b/~0/1/", "deep", true},
		{"/a~1b/~0/0", json.Number("1"), true},
		{"/~01", json.Number("2"), true},
		{"/a~1b/~0/2", nil, false},
		{"/a~1b/~0/-", nil, false},
		{"/a~1b/~0/00", nil, false},
		{"/a~1b/~0/0/x", nil, false},
		{"/nothing", nil, false},
		{"nothing", nil, false},
		{"/~2", nil, false},
	} {
		got, ok := canon.Lookup(v, c.pointer)
		if ok != c.ok || got != c.want {
			t.Errorf("Lookup(%q) = %v, %v", c.pointer, got, ok)
		}
	}
	if got, ok := canon.Lookup(v, ""); !ok || got == nil {
		t.Error("the empty pointer is the whole")
	}
}

func TestNumberGrammar(t *testing.T) {
	for s, ok := range map[string]bool{
		"0": true, "-0": true, "10": true, "1.5": true, "1e5": true, "1E-5": true, "-1.5e+10": true,
		"": false, "-": false, "+1": false, "01": false, "1.": false, ".5": false, "1e": false, "1e+": false,
		"0x1": false, " 1": false, "1 ": false, "NaN": false, "Infinity": false, "1_000": false, "١": false,
	} {
		if canon.IsNumber(s) != ok {
			t.Errorf("IsNumber(%q) is %v", s, !ok)
		}
		if v := json.Valid([]byte(s)); v != ok && strings.TrimSpace(s) == s {
			t.Errorf("encoding/json thinks otherwise of %q", s)
		}
	}
	if canon.IsInteger("1.0") || canon.IsInteger("1e3") || !canon.IsInteger("-12345678901234567890") {
		t.Error("IsInteger is wrong")
	}
}

// TestSignatureVector tests JCS and Digest against the vector of the wire contract.
func TestSignatureVector(t *testing.T) {
	params, err := canon.JCS([]byte(`{"units":"metric", "city":"Paris"}`))
	if err != nil {
		t.Fatal(err)
	}
	lines := []string{"L03-HMAC-SHA256", "1767225600", "4b0f7c1e-7d53-4c55-9a39-0d0b7f1f6a11", "weather.current", "agent_456",
		strings.TrimPrefix(canon.Digest(params), "sha256:")}
	mac := hmac.New(sha256.New, []byte("0123456789abcdef0123456789abcdef"))
	mac.Write([]byte(strings.Join(lines, "\n")))
	if got := hex.EncodeToString(mac.Sum(nil)); got != "2c4039a0d43a15053226181d047aa22775d347e1dca0db6b718c8ccb7bf97664" {
		t.Errorf("got %s", got)
	}
}

func TestWhole(t *testing.T) {
	for in, want := range map[json.Number]json.Number{
		"7.0": "7", "-7.00": "-7", "7e2": "700", "1.50E1": "15", "0.0": "0", "-0.0": "0", "0e9": "0", "9007199254740993.0": "9007199254740993",
		"7": "", "7.5": "", "1e-1": "", "1e9999": "", "1e99999": "", "x": "", "": "", "1.": "",
	} {
		got, ok := canon.Whole(in)
		if ok != (want != "") || ok && got != want || !ok && got != in {
			t.Errorf("%q is %q, %v", in, got, ok)
		}
	}
}
