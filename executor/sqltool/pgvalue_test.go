package sqltool

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgtype"
)

// FuzzArray round-trips a list of texts as a PostgreSQL array, and parses any text
// without a panic.
func FuzzArray(f *testing.F) {
	f.Add("a", `b "c"`, `d\e{,}`, false)
	f.Add("", "NULL", "null", true)
	f.Add(`{"x",NULL}`, `[0:1]={1,2}`, `{{1},{2}}`, true)
	s := &pgSession{types: pgtype.NewMap()}
	text := func(b []byte) any { return string(b) }
	f.Fuzz(func(t *testing.T, a, b, c string, nested bool) {
		in := []any{a, nil, b, c}
		if nested {
			in = []any{[]any{a, nil}, []any{b, c}}
		}
		var w strings.Builder
		if err := s.array(&w, in, pgtype.TextOID, 0); err != nil {
			t.Fatal(err)
		}
		if got := list(w.String(), ',', text); !reflect.DeepEqual(got, any(in)) {
			t.Fatalf("%q comes back as %#v", w.String(), got)
		}
		list(a, ',', text)
		list(b+a, ',', text)
		for _, v := range []any{instant(a), numeral(a)} {
			if v == nil {
				t.Fatalf("%q is lost", a)
			}
		}
	})
}

func TestWholeText(t *testing.T) {
	for in, want := range map[json.Number]string{"1": "1", "-0": "-0", "1.0": "1", "1e3": "1000", "1.5": "", "9223372036854775808": "9223372036854775808", "1e1000000": "", "0.1e1": "1"} {
		got, ok := wholeText(in)
		if got != want || ok != (want != "") {
			t.Errorf("%s: %q %t, want %q", in, got, ok, want)
		}
	}
}
