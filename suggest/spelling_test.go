package suggest

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

func TestDistance(t *testing.T) {
	long := strings.Repeat("x", maxLetters)
	for _, c := range []struct {
		a, b string
		want int
	}{{"", "", 0}, {"a", "", 1}, {"", "ab", 2}, {"kitten", "sitting", 3}, {"same", "same", 0}, {long + "abc", long + "z", 0}} {
		for most := range 5 {
			want := min(c.want, most+1)
			if got := distance(c.a, c.b, most); got != want {
				t.Errorf("distance(%q, %q, %d) = %d, want %d", c.a, c.b, most, got, want)
			}
		}
	}
}

func TestNearest(t *testing.T) {
	for _, c := range []struct {
		wrong string
		names []string
		want  string
	}{
		{"adr", []string{"log", "addr", "address"}, "addr"},
		{"b", []string{"a", "c"}, "a"},
		{"", []string{"long", "x"}, "x"},
		{"a", nil, ""},
	} {
		if got := Nearest(c.wrong, c.names); got != c.want {
			t.Errorf("Nearest(%q, %q) = %q, want %q", c.wrong, c.names, got, c.want)
		}
	}
}

func TestTypos(t *testing.T) {
	for wrong, want := range map[string]string{"std.hsah": "std.hash", "std.has": "std.hash", "stdd.hashe": "std.hash", "std.cache": "", "": "", "ab.d": "ab.c", "ab.c": ""} {
		if got := strings.Join(Typos(wrong, slices.Values([]string{"std.hash", "ab.c"}), 3), " "); got != want {
			t.Errorf("%q: %q, want %q", wrong, got, want)
		}
	}
	if got := Typos("x", slices.Values([]string{}), 3); len(got) != 0 {
		t.Error(got)
	}
	// However many are a little further away, the nearest comes first.
	var names []string
	for i := range 1000 {
		names = append(names, fmt.Sprintf("big.op%04d", i))
	}
	if got := Typos("big.oop0399", slices.Values(names), 3); !slices.Equal(got, []string{"big.op0399", "big.op0099", "big.op0199"}) {
		t.Error(got)
	}
}

func TestSuggest(t *testing.T) {
	roles := []string{"admin", "agent", "auditor", "operator", "publisher"}
	for wrong, want := range map[string]string{
		"agnet": "agent", "agen": "agent", "Agent": "agent", "publsher": "publisher", "pubisher": "publisher", "nosuch": "", "": "", "auditors": "auditor", "superuser": "",
	} {
		if got := Suggest(wrong, roles); got != want {
			t.Errorf("Suggest(%q) = %q, want %q", wrong, got, want)
		}
	}
	if got := Suggest("x", nil); got != "" {
		t.Errorf("of no names %q", got)
	}
}
