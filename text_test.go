package toolkeep_test

import (
	"testing"
	"unicode/utf8"

	"github.com/toolkeep/toolkeep"
)

func TestClip(t *testing.T) {
	for _, c := range []struct {
		in               string
		n                int
		clip, bytes, cut string
	}{
		{"", 3, "", "", ""},
		{"abc", 3, "abc", "abc", "abc"},
		{"abcd", 3, "ab…", "abc…", "abc"},
		{"äöü", 3, "äöü", "ä…", "ä"},
		{"äöüß", 3, "äö…", "ä…", "ä"},
		{"a é", 3, "a é", "a …", "a "},
		{"a bc", 3, "a…", "a b…", "a b"},
		{"日本語", 2, "日…", "…", ""},
		{"日本語です", 1, "…", "…", ""},
		{"ééé", 3, "ééé", "é…", "é"},
		{"éééé", 3, "éé…", "é…", "é"},
		{"aéb", 2, "a…", "a…", "a"},
		{"ab", 1, "…", "a…", "a"},
		{"ab", 0, "…", "…", ""},
		{"a\xffbc", 3, "a\uFFFD…", "ab…", "ab"},
	} {
		if got := toolkeep.Clip(c.in, c.n); got != c.clip {
			t.Errorf("Clip(%q, %d) = %q, want %q", c.in, c.n, got, c.clip)
		}
		if got := toolkeep.ClipBytes(c.in, c.n); got != c.bytes {
			t.Errorf("ClipBytes(%q, %d) = %q, want %q", c.in, c.n, got, c.bytes)
		}
		if got := toolkeep.CutBytes(c.in, c.n); got != c.cut {
			t.Errorf("CutBytes(%q, %d) = %q, want %q", c.in, c.n, got, c.cut)
		}
	}
}

func FuzzClip(f *testing.F) {
	f.Add("a longer text", 5)
	f.Add("日本語\xff", 2)
	f.Fuzz(func(t *testing.T, s string, n int) {
		if n %= 100; n < 1 || !utf8.ValidString(s) {
			return
		}
		if got := toolkeep.Clip(s, n); utf8.RuneCountInString(got) > n || !utf8.ValidString(got) {
			t.Errorf("Clip(%q, %d) = %q", s, n, got)
		}
		if got := toolkeep.CutBytes(s, n); len(got) > n || !utf8.ValidString(got) {
			t.Errorf("CutBytes(%q, %d) = %q", s, n, got)
		}
	})
}
