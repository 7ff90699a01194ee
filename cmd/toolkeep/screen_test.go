package main

import (
	"strings"
	"testing"
)

func TestLayout(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("describe ", 12)
	id := strings.Repeat("i", 30)
	lines := [][]string{{"ID", "STATE", "WHAT"}, {id, "failed", long}, {"b", "", "ü本"}, {"c", "succeeded, cached", ""}}
	whole := screen{}.layout(lines)
	if !strings.Contains(whole, "\n"+id+"  failed             "+long+"\n") || strings.Contains(whole, "…") || strings.Contains(whole, "\x1b") {
		t.Errorf("a pipe gets\n%s", whole)
	}
	for columns := 66; columns < 200; columns++ {
		text := screen{terminal: true, columns: columns}.layout(lines)
		for line := range strings.Lines(text) {
			if n := wide(strings.TrimRight(line, "\n")); n > columns || !strings.Contains(text, "\n"+id+"  ") {
				t.Errorf("%d columns, a line of %d: %s", columns, n, line)
			}
		}
	}
	if text := (screen{columns: 70}).layout(lines); !strings.Contains(text, id+"  failed             describe describe …\n") {
		t.Errorf("70 columns:\n%s", text)
	}
	if text := (screen{columns: 40}).layout(lines); text != "ID     "+id+"\nSTATE  failed\nWHAT   "+long+"\n\nID     b\nWHAT   ü本\n\nID     c\nSTATE  succeeded, cached\n" {
		t.Errorf("40 columns:\n%s", text)
	}

	// Colours stand around what is laid out, and change nothing else.
	coloured := screen{terminal: true, colours: true, columns: 80}.layout(lines)
	for _, want := range []string{"\x1b[1mID\x1b[0m", "\x1b[31mfailed\x1b[0m", "\x1b[32msucceeded, cached\x1b[0m"} {
		if !strings.Contains(coloured, want) {
			t.Errorf("%q has no %q", coloured, want)
		}
	}
	if plain := strings.NewReplacer("\x1b[1m", "", "\x1b[31m", "", "\x1b[32m", "", "\x1b[0m", "").Replace(coloured); plain != (screen{columns: 80}).layout(lines) {
		t.Errorf("with colours:\n%s", plain)
	}
}

func TestWide(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]int{"": 0, "abc": 3, "é": 1, "e\u0301": 1, "日本": 4, "a\u200db": 2} {
		if got := wide(text); got != want {
			t.Errorf("%q is %d wide, want %d", text, got, want)
		}
	}
	if got := cut("日本語 text", 6); got != "日本…" || wide(got) > 6 {
		t.Errorf("cut to %q", got)
	}
}
