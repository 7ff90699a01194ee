package toolkeep

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"
)

// upper is a Cleaner that removes one word.
type upper string

func (u upper) Clean(s string) string {
	return strings.ReplaceAll(s, string(u), strings.ToUpper(string(u)))
}

func TestCleaned(t *testing.T) {
	credentials := []Credential{
		{Spec: AuthSpec{Type: "api_key"}, Value: "key-123"},
		{Spec: AuthSpec{Type: "basic"}, Value: "ada:lovelace"},
		{Spec: AuthSpec{Type: "bearer"}, Value: "to:ken1"},
		{Spec: AuthSpec{Type: "bearer"}, Value: "abc"},
		{Spec: AuthSpec{Type: "none"}},
	}
	for _, c := range []struct{ text, want string }{
		{"nothing", "nothing"},
		{"key-123 and key-123", "[secret] and [secret]"},
		{"ada:lovelace, ada and lovelace", "[secret], ada and [secret]"},
		{"to:ken1 is no pair: ken1", "[secret] is no pair: ken1"},
		{"abc is too short", "abc is too short"},
		{"word", "WORD"},
	} {
		if got := (&Execution{Credentials: credentials, Clean: upper("word")}).Cleaned(c.text); got != c.want {
			t.Errorf("%q gives %q, want %q", c.text, got, c.want)
		}
	}
	if got := (&Execution{Credentials: credentials}).Cleaned("word key-123"); got != "word [secret]" {
		t.Errorf("without a Cleaner: %q", got)
	}
}

func TestCleanedTree(t *testing.T) {
	x := &Execution{Credentials: []Credential{{Value: "4711"}}}
	tree := map[string]any{"a4711": []any{"x4711", json.Number("47110"), json.Number("1"), true, nil}, "b": map[string]any{"c": "4711"}}
	want := map[string]any{"a[secret]": []any{"x[secret]", "[secret]0", json.Number("1"), true, nil}, "b": map[string]any{"c": "[secret]"}}
	if got := x.CleanedTree(tree); !reflect.DeepEqual(got, want) {
		t.Errorf("got %v", got)
	}
}
