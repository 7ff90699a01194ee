package pack

import (
	"bytes"
	"encoding/json"
	"errors"
	"reflect"
	"strings"
	"testing"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/canon"
)

var large = `{"description":"` + strings.Repeat("said at length; ", 40) + `","type":"string"}`

func tool(tenant, raw string) *toolkeep.Tool {
	return &toolkeep.Tool{ID: "a.b", Version: "1.0.0", Tenant: tenant, Digest: "d", Raw: []byte(raw)}
}

var manifests = []string{
	`{}`,
	`{"description":"x"}`,
	`{"parameters_schema":true,"result_schema":[1]}`,
	`{"parameters_schema":{"$defs":7}}`,
	`{"parameters_schema":{"$defs":{}}}`,
	`{"parameters_schema":{"$defs":{"a":` + large + `}}}`,
	`{"parameters_schema":{"$defs":{"a":` + large + `,"b":{"type":"null"},"c":` + large + `},"type":"object"},"result_schema":{"$defs":{"a":` + large + `},"$ref":"#/$defs/a"},"version":"1.0.0"}`,
	`{"$defs":{"a":` + large + `},"execution":{"binding":{"$defs":{"a":` + large + `}},"kind":"http"}}`,
}

// stored writes a manifest as a store does and reads it again.
func stored(t *testing.T, m *Manifest, tenant string) *Manifest {
	t.Helper()
	s := m.Stored()
	again, err := Read(tenant, s.Text, s.Words, func(d Digest) ([]byte, error) {
		for _, p := range s.Parts {
			if p.Digest == d {
				return []byte(p.Data), nil
			}
		}
		return nil, errors.New("no such part")
	})
	if err != nil {
		t.Fatal(err)
	}
	return again
}

func TestEveryByteComesBack(t *testing.T) {
	for _, raw := range manifests {
		m, err := New(tool("t", raw))
		if err != nil {
			t.Fatalf("%.80s: %v", raw, err)
		}
		for _, m := range []*Manifest{m, stored(t, m, "t")} {
			if got, err := m.Raw(); err != nil || string(got) != raw || m.Size() != len(raw) {
				t.Errorf("%.80s came back as %.80s, %d bytes, %v", raw, got, m.Size(), err)
			}
		}
	}
	for _, raw := range []string{``, `[]`, `{"a"`, `{"parameters_schema":{"$defs":{"a":`} {
		if m, err := New(tool("t", raw)); err == nil {
			t.Errorf("%q was packed: %v", raw, m)
		}
	}
}

// TestPartsAreShared: equal definitions are one part, within a manifest, among those of a tenant, and after the store;
// tenants share none.
func TestPartsAreShared(t *testing.T) {
	pack := func(tenant string, i int) *Manifest {
		m, err := New(tool(tenant, manifests[i]))
		if err != nil {
			t.Fatal(err)
		}
		return m
	}
	a, b, other := pack("t", 5), pack("t", 6), pack("u", 5)
	if len(a.parts) != 1 || len(b.parts) != 3 {
		t.Fatalf("%d and %d parts", len(a.parts), len(b.parts))
	}
	for _, p := range append(b.parts, stored(t, a, "t").parts...) {
		if p.part != a.parts[0].part {
			t.Error("the same definition is in memory twice")
		}
	}
	if other.parts[0].part == a.parts[0].part {
		t.Error("two tenants share a part")
	}
}

func TestWordsOf(t *testing.T) {
	raw := `{"examples":[{"explanation":"why","input":{},"scenario":"when"}],"parameters_schema":{"properties":{"a":{"description":"first"},
		"b":{"items":{"properties":{"deep":{"description":"nested"}}}},"c":{"properties":{"x":{"properties":{"y":{"properties":{"z":{"properties":{"tooDeep":{}}}}}}}}}},
		"required":["b","b"],"type":"object"}}`
	whole := tool("t", raw)
	var err error
	if whole.Manifest, err = Decode(whole.Raw); err != nil {
		t.Fatal(err)
	}
	m, err := New(whole)
	if err != nil {
		t.Fatal(err)
	}
	want := Words{Required: []string{"b"}, Optional: []string{"a", "c"}, Parameters: "a\nfirst\nb\ndeep\nnested\nc\nx\ny\nz\ntooDeep", Examples: []Spoken{{"when", "why"}}}
	for name, got := range map[string]Words{"whole": WordsOf(whole), "outline": WordsOf(&toolkeep.Tool{Packed: m}), "stored": WordsOf(&toolkeep.Tool{Packed: stored(t, m, "t")})} {
		if !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %+v", name, got)
		}
	}
	if got := WordsOf(&toolkeep.Tool{}); !reflect.DeepEqual(got, Words{}) {
		t.Errorf("a tool without a manifest says %+v", got)
	}
}

// TestOutline: an outline lacks what it says and nothing else, its whole tool lacks nothing, and neither changes the
// other.
func TestOutline(t *testing.T) {
	raw := `{"annotations":{"a":1},"description":"d","examples":[{"scenario":"s"}],"execution":{"binding":{"server":"s","tool":"t"},"kind":"KIND","timeout_ms":7},
		"parameters_schema":{"type":"object"},"relationships":{"alternatives":["a.c"]},"result_schema":{"type":"null"},"source":{"digest":"sha256:1","metadata":{"n":1.10}},"tags":["x"]}`
	for kind, binding := range map[string]bool{"http": false, "mcp": true} {
		full, err := Decode([]byte(strings.Replace(raw, "KIND", kind, 1)))
		if err != nil {
			t.Fatal(err)
		}
		o := Outline(full)
		if o.Annotations != nil || o.Examples != nil || o.ParametersSchema != nil || o.ResultSchema != nil || o.Source.Metadata != nil || (o.Execution.Binding != nil) != binding {
			t.Errorf("%s: the outline is %+v", kind, o)
		}
		if full.Source.Metadata["n"] != json.Number("1.10") || full.ParametersSchema == nil {
			t.Errorf("%s: the whole one lost something: %+v", kind, full)
		}
		o.Annotations, o.Examples, o.ParametersSchema, o.ResultSchema, o.Source, o.Execution.Binding = full.Annotations, full.Examples, full.ParametersSchema, full.ResultSchema, full.Source, full.Execution.Binding
		if !reflect.DeepEqual(o, full) {
			t.Errorf("%s: the outline lacks more than it says: %+v", kind, o)
		}
	}
}

// TestDamage: what a store lost or changed is an error, never another manifest.
func TestDamage(t *testing.T) {
	m, err := New(tool("t", manifests[6]))
	if err != nil {
		t.Fatal(err)
	}
	s := m.Stored()
	missing := errors.New("missing")
	if _, err := Read("t", s.Text, s.Words, func(Digest) ([]byte, error) { return nil, missing }); !errors.Is(err, missing) {
		t.Errorf("a missing part: %v", err)
	}
	for i := range s.Text {
		for _, text := range [][]byte{s.Text[:i], append(append(bytes.Clone(s.Text[:i]), s.Text[i]^0x10), s.Text[i+1:]...)} {
			again, err := Read("t", text, s.Words, func(d Digest) ([]byte, error) {
				if d != s.Parts[0].Digest {
					return nil, missing
				}
				return []byte(s.Parts[0].Data), nil
			})
			if err != nil {
				continue
			}
			outline := &toolkeep.Tool{ID: "a.b", Version: "1.0.0", Packed: again}
			if whole, err := outline.Whole(); err == nil && string(whole.Raw) != manifests[6] {
				t.Fatalf("byte %d changed, and the manifest became %.200s", i, whole.Raw)
			} else if err != nil && !toolkeep.IsCode(err, toolkeep.RegistryUnavailable) {
				t.Fatalf("byte %d: %v", i, err)
			}
		}
	}
}

func FuzzRead(f *testing.F) {
	for _, raw := range manifests {
		m, err := New(tool("t", raw))
		if err != nil {
			f.Fatal(err)
		}
		s := m.Stored()
		f.Add(s.Text, s.Words)
	}
	f.Fuzz(func(t *testing.T, text, words []byte) {
		m, err := Read("t", text, words, func(Digest) ([]byte, error) { return compress([]byte(large)), nil })
		if err != nil {
			return
		}
		if raw, err := m.Raw(); err == nil && len(raw) != m.Size() {
			t.Errorf("%d bytes, not %d", len(raw), m.Size())
		}
		WordsOf(&toolkeep.Tool{Packed: m})
	})
}

// FuzzNew: every JSON object comes back to the byte.
func FuzzNew(f *testing.F) {
	for _, raw := range manifests {
		f.Add([]byte(raw))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		raw, err := canon.JCS(raw)
		if err != nil {
			return
		}
		m, err := New(tool("t", string(raw)))
		if err != nil {
			return
		}
		if got, err := m.Raw(); err != nil || !bytes.Equal(got, raw) {
			t.Errorf("%s came back as %s, %v", raw, got, err)
		}
	})
}
