package canon_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"reflect"
	"testing"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/canon"
)

// FuzzParse compares Parse with a strict decoder: Parse accepts the same inputs, except for the limits and the rule
// on NUL; and a tree survives writing and reading.
func FuzzParse(f *testing.F) {
	for _, s := range []string{
		document, `{"a":1,"a":2}`, `[1,2,]`, `"\ud800"`, "\"\xff\"", `"\u0000"`, `1e10000`, `-0`, ` [ ] `,
		`{"a":{"b":[null,true,"\u00e9\/"]}}`, `nul`, `{`, `[[[[`, "\x00", `{"\u0061":1,"a":2}`,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		v, err := canon.Parse(data, canon.Limits{})
		strict := jsontext.Value(data).IsValid()
		if err != nil {
			var e *toolkeep.Error
			if !errors.As(err, &e) {
				t.Fatalf("another type of error: %v", err)
			}
			switch e.Code {
			case toolkeep.MalformedRequest:
				if strict {
					t.Fatalf("refused as no JSON: %q", data)
				}
			case toolkeep.InvalidEncoding, toolkeep.RequestTooLarge:
			default:
				t.Fatalf("code %s", e.Code)
			}
			if e.Code == toolkeep.InvalidEncoding && strict && !bytes.Contains(data, []byte(`\u0000`)) && bytes.Count(data, []byte("["))+bytes.Count(data, []byte("{")) <= 50 {
				t.Fatalf("refused for its encoding: %q: %v", data, e.Message)
			}
			return
		}
		if !strict || !utf8.Valid(data) {
			t.Fatalf("accepted: %q", data)
		}
		out := canon.Append(nil, v)
		again, err := canon.Parse(out, canon.Limits{Bytes: 1 << 30})
		if err != nil || !reflect.DeepEqual(v, again) {
			t.Fatalf("%q became %q, %v", data, out, err)
		}
		if canon.Hash(v) != canon.Hash(again) {
			t.Fatal("the hash changed")
		}
		if err := canon.Check(v, 50); err != nil {
			t.Fatal(err)
		}
		if form, err := canon.JCS(data); err == nil {
			twice, err := canon.JCS(form)
			if err != nil || !bytes.Equal(form, twice) {
				t.Fatalf("JCS is not stable: %s, %s, %v", form, twice, err)
			}
			if !json.Valid(form) {
				t.Fatalf("JCS is not JSON: %s", form)
			}
		}
	})
}
