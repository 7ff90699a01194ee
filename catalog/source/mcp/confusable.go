package mcp

import (
	"slices"
	"strings"
	"unicode"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/promptscan"
)

// skeleton is equal for names that look the same.
func skeleton(name string) string {
	s := promptscan.Latin(name)
	if !strings.ContainsAny(s, "01I|m") {
		return s
	}
	return strings.NewReplacer("0", "O", "1", "l", "I", "l", "|", "l", "m", "rn").Replace(s)
}

// Names maps tool names to the servers that offer them. One Read at a time uses it.
type Names struct {
	servers map[string][]string // by name
	looks   map[string][]string // names by skeleton
}

// NewNames creates an empty Names.
func NewNames() *Names {
	return &Names{servers: map[string][]string{}, looks: map[string][]string{}}
}

// Add adds a server's own name of a tool. Duplicates are harmless.
func (n *Names) Add(server, tool string) {
	list := n.servers[tool]
	if len(list) == 0 {
		k := skeleton(tool)
		n.looks[k] = append(n.looks[k], tool)
	}
	if !slices.Contains(list, server) {
		n.servers[tool] = append(list, server)
	}
}

// of returns the servers that offer a tool of that name.
func (n *Names) of(tool string) []string {
	if n == nil {
		return nil
	}
	return n.servers[tool]
}

// like returns a different name that looks the same, "" if there is none.
func (n *Names) like(tool string) string {
	if n == nil {
		return ""
	}
	for _, other := range n.looks[skeleton(tool)] {
		if other != tool {
			return other
		}
	}
	return ""
}

// name checks the tool's name.
func (s *scanner) name() {
	at, name := "/name", s.self
	foreign := strings.ContainsFunc(name, func(r rune) bool { return r >= 0x80 })
	for _, n := range s.names {
		other := n.like(name)
		if other == "" {
			continue
		}
		severity := Medium
		if foreign {
			severity = High
		}
		s.add(RuleLookAlike, at, promptscan.Excerpt(name, 0, len(name)), severity, "the name looks like %q, which is another tool's", promptscan.Visible(toolkeep.Clip(other, 80)))
		return
	}
	if foreign && promptscan.PlainASCII(promptscan.Latin(name)) && strings.ContainsFunc(name, promptscan.PosesAsLatin) {
		s.add(RuleLookAlike, at, promptscan.Excerpt(name, 0, len(name)), High, "the name is read as %q and written with other letters", toolkeep.Clip(promptscan.Latin(name), 80))
	}
}

// disguised reports whether a word mixes Latin letters with letters of another script, all of which
// are lookalikes. So Δx and µm are not disguised, nor is a word entirely in Greek or Cyrillic.
func disguised(word string) bool {
	var latins, others int
	for _, r := range word {
		switch {
		case unicode.Is(unicode.Latin, r):
			latins++
		case promptscan.PosesAsLatin(r):
			others++
		case unicode.IsLetter(r):
			return false
		}
	}
	return latins > 0 && others > 0 && latins+others >= 3
}

// words finds words of mixed scripts.
func (s *scanner) words(pointer, text string) {
	if promptscan.PlainASCII(text) {
		return
	}
	start := -1
	check := func(end int) {
		if start < 0 {
			return
		}
		if word := text[start:end]; !promptscan.PlainASCII(word) && disguised(word) {
			s.add(RuleMixed, pointer, promptscan.Excerpt(text, start, end), High, "a word that is read as %q and written with letters of another script", toolkeep.Clip(promptscan.Latin(word), 80))
		}
		start = -1
	}
	for i, r := range text {
		if unicode.IsLetter(r) || unicode.Is(unicode.Mn, r) {
			if start < 0 {
				start = i
			}
			continue
		}
		check(i)
	}
	check(len(text))
}
