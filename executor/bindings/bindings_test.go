package bindings_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/canon"
	"github.com/toolkeep/toolkeep/executor/bindings"
)

func manifest(binding string) *toolkeep.Manifest {
	return &toolkeep.Manifest{Execution: toolkeep.ExecutionSpec{Binding: []byte(binding)}}
}

// read reads a document with every method and returns the results and faults.
func read(t *testing.T, doc string) (got string, faults []string) {
	t.Helper()
	var r bindings.Reader
	o, ok := r.Read(manifest(doc))
	if !ok {
		return "", []string{r.Faults[0].Pointer + " " + r.Faults[0].Rule}
	}
	var b strings.Builder
	fmt.Fprint(&b, o.Text("text", true), " ", o.Choice("choice", "one", "two"), " ", o.Flag("flag"), " ", o.Count("whole", 7, 10), " ", len(o.List("list")))
	if sub, ok := o.Sub("sub"); ok {
		fmt.Fprint(&b, " sub ", sub.Text("a/b", false))
		sub.Done()
	}
	for _, e := range o.Objects("objects") {
		fmt.Fprint(&b, " element ", e.Text("name", true))
		e.Done()
	}
	o.Done()
	for _, f := range r.Faults {
		faults = append(faults, strings.TrimPrefix(f.Pointer, bindings.At)+" "+f.Rule+": "+f.Message)
	}
	return b.String(), faults
}

func TestObject(t *testing.T) {
	for _, c := range []struct {
		doc, want string
		faults    []string
	}{
		{`{"text":"x","choice":"two","flag":true,"whole":10,"list":[1,2],"sub":{"a/b":"y"},"objects":[{"name":"n"}]}`,
			"x two true 10 2 sub y element n", nil},
		{`{"text":"x"}`, "x one false 7 0", nil},
		{`{}`, " one false 7 0", []string{"/text required: text is required"}},
		{`{"text":1,"choice":"three","flag":"true","whole":11,"list":{},"sub":[],"objects":{}}`, " one false 7 0", []string{
			"/text type: text must be a string",
			`/choice enum: choice must be one of ["one" "two"], not "three"`,
			"/flag type: flag must be true or false",
			"/whole range: whole must be a whole number from 1 to 10",
			"/list type: list must be an array",
			"/sub type: sub must be an object",
			"/objects type: objects must be an array",
		}},
		{`{"text":"x","sub":{"a/b":false,"c~d":1},"objects":[5,{"name":"n","more":1}],"other":null}`, "x one false 7 0 sub  element  element n", []string{
			"/sub/a~1b type: a/b must be a string",
			"/sub/c~0d unknown: c~d is not a known field",
			"/objects/0 type: must be an object",
			"/objects/0/name required: name is required",
			"/objects/1/more unknown: more is not a known field",
			"/other unknown: other is not a known field",
		}},
	} {
		got, faults := read(t, c.doc)
		if got != c.want || !slices.Equal(faults, c.faults) {
			t.Errorf("%s\n gave %q with\n %q\n want %q with\n %q", c.doc, got, faults, c.want, c.faults)
		}
	}
	if _, faults := read(t, `[]`); !slices.Equal(faults, []string{"/execution/binding json"}) {
		t.Errorf("an array: %q", faults)
	}
	for spaces, want := range map[int]bool{6: true, 7: false} {
		bound := bindings.Reader{MaxBytes: 8}
		if _, ok := bound.Read(manifest(`{}` + strings.Repeat(" ", spaces))); ok != want || ok != (len(bound.Faults) == 0) {
			t.Errorf("%d bytes of at most 8: %v, %v", 2+spaces, ok, bound.Faults)
		}
	}
	var r bindings.Reader
	o, _ := r.Read(manifest(`{"a":0,"b":-1}`))
	if n, ok := o.Whole("a", 0, 5); n != 0 || !ok {
		t.Errorf("got %d, %v", n, ok)
	}
	if n, ok := o.Whole("b", 0, 5); n != 0 || ok || r.Faults[0].Message != "b must be a whole number from 0 to 5" {
		t.Errorf("got %d, %v, %v", n, ok, r.Faults)
	}
	for _, n := range []string{"0", "-1", "1.5", "1e1", "10000000000000000000", `"5"`, "null"} {
		if got, faults := read(t, `{"text":"x","whole":`+n+`}`); got != "x one false 7 0" || len(faults) != 1 {
			t.Errorf("%s was read as %q, %q", n, got, faults)
		}
	}
}

func TestAlso(t *testing.T) {
	for doc, want := range map[string]string{
		`{}`:                               "[] true",
		`{"also":[{"type":"basic"}]}`:      "[basic] true",
		`{"also":[{"type":"basic"},5]}`:    "[basic ] false /auth/1/settings/also type",
		`{"also":{}}`:                      "[] false /auth/1/settings/also type",
		`{"also":[{"type":"x","more":1}]}`: "[] false /auth/1/settings/also type",
	} {
		settings, err := canon.ParseObject([]byte(doc), canon.Limits{})
		if err != nil {
			t.Fatal(err)
		}
		var r bindings.Reader
		more, ok := r.Also("/auth/1", toolkeep.AuthSpec{Settings: settings})
		types := []string{}
		for _, s := range more {
			types = append(types, s.Type)
		}
		got := fmt.Sprint(types, " ", ok)
		for _, f := range r.Faults {
			got += " " + f.Pointer + " " + f.Rule
		}
		if got != want {
			t.Errorf("%s: %s, want %s", doc, got, want)
		}
	}
}

func TestAuth(t *testing.T) {
	m := manifest(`{}`)
	entry := toolkeep.AuthSpec{Type: "b", Settings: map[string]any{"also": []any{map[string]any{"type": "c"}, map[string]any{"type": "d"}}}}
	broken := toolkeep.AuthSpec{Type: "e", Settings: map[string]any{"also": "f"}}
	m.Auth = []toolkeep.AuthSpec{{Type: "a"}, entry, broken}
	var r bindings.Reader
	var got []string
	r.Auth(m, func(at string, s toolkeep.AuthSpec) { got = append(got, at+" "+s.Type) })
	want := []string{"/auth/0 a", "/auth/1 b", "/auth/1/settings/also/0 c", "/auth/1/settings/also/1 d", "/auth/2 e"}
	if !slices.Equal(got, want) || len(r.Faults) != 1 {
		t.Errorf("got %q, %v", got, r.Faults)
	}
}

// TestKept: a tool's binding is read once per digest, and a refused one each time.
func TestKept(t *testing.T) {
	var kept bindings.Kept[string]
	reads := 0
	read := func(m *toolkeep.Manifest) (*string, []toolkeep.Fault) {
		reads++
		s := string(m.Execution.Binding)
		if s == "bad" {
			return nil, []toolkeep.Fault{{Pointer: bindings.At, Rule: "r", Message: "m"}}
		}
		return &s, nil
	}
	of := func(digest, binding string) (string, *toolkeep.Error) {
		b, err := kept.Of(&toolkeep.Tool{Digest: digest, Manifest: manifest(binding)}, read)
		if err != nil {
			return "", err
		}
		return *b, nil
	}
	for i, c := range []struct {
		digest, binding string
		reads           int
	}{{"a", "one", 1}, {"a", "one", 1}, {"b", "two", 2}, {"a", "one", 2}, {"", "three", 3}, {"", "four", 4}} {
		if got, err := of(c.digest, c.binding); got != c.binding || err != nil || reads != c.reads {
			t.Errorf("%d: got %q, %v after %d reads", i, got, err, reads)
		}
	}
	for range 2 {
		if _, err := of("c", "bad"); err == nil || err.Code != toolkeep.InvalidManifest || !err.NothingSent {
			t.Errorf("got %v", err)
		}
	}
	if reads != 6 {
		t.Errorf("%d reads", reads)
	}
	for i := range 20_000 { // more than it holds; it starts over
		if got, err := of(fmt.Sprint(i), "x"); got != "x" || err != nil {
			t.Fatalf("got %q, %v", got, err)
		}
	}
	if got, err := of("a", "anew"); got != "anew" || err != nil {
		t.Errorf("the first is still kept: %q, %v", got, err)
	}
}
