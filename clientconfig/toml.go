package clientconfig

import (
	"bytes"
	"errors"
	"fmt"
	"regexp"
	"strings"

	"github.com/BurntSushi/toml"
)

func parseTOML(text []byte) (map[string]any, error) {
	all := map[string]any{}
	if _, err := toml.Decode(string(text), &all); err != nil {
		var at toml.ParseError // its text has what stands there, which may be a secret
		errors.As(err, &at)
		return nil, fmt.Errorf("it is not TOML: line %d", at.Position.Line)
	}
	return all, nil
}

// setTOML appends a table behind an empty line. Tables that are written as one value cannot be extended by others.
func setTOML(text []byte, nl, key, name string, e Entry) ([]byte, error) {
	if regexp.MustCompile(`(?m)^\s*` + tomlWord(key) + `\s*=`).Match(text) {
		return nil, fmt.Errorf("%s in it is written as one value; write each server as a table [%s.NAME]", key, key)
	}
	var b strings.Builder
	fmt.Fprintf(&b, "[%s.%s]", key, name)
	for _, m := range e {
		fmt.Fprintf(&b, "%s%s = %s", nl, m.Name, tomlValue(m.Value))
	}
	out := bytes.Clone(text)
	switch {
	case len(text) == 0:
		return append(out, b.String()+nl...), nil
	case text[len(text)-1] != '\n': // the file ends without one afterwards too, so that unset knows
		return append(out, nl+nl+b.String()...), nil
	}
	return append(out, nl+b.String()+nl...), nil
}

func tomlValue(v any) string {
	e, ok := v.(Entry)
	if !ok {
		return compact(v)
	}
	var members []string
	for _, m := range e {
		members = append(members, m.Name+" = "+tomlValue(m.Value))
	}
	return "{ " + strings.Join(members, ", ") + " }"
}

// tomlWord is a pattern for a key with or without quotes.
func tomlWord(s string) string {
	s = regexp.QuoteMeta(s)
	return `(?:` + s + `|"` + s + `"|'` + s + `')`
}

var tomlHeader = regexp.MustCompile(`^\s*\[`)

// unsetTOML removes the table of the name, with the tables below it and the empty line before it. Comments behind its
// last value belong to what follows.
func unsetTOML(text []byte, key, name string) ([]byte, error) {
	own := regexp.MustCompile(`^\s*\[\s*` + tomlWord(key) + `\s*\.\s*` + tomlWord(name) + `\s*(?:\.[^\]]*)?\]\s*(?:#.*)?$`)
	lines := bytes.SplitAfter(text, []byte("\n"))
	var out []byte
	for i := 0; i < len(lines); {
		if !own.Match(bytes.TrimRight(lines[i], "\r\n")) {
			out = append(out, lines[i]...)
			i++
			continue
		}
		end := i + 1
		for j := i + 1; j < len(lines) && !tomlHeader.Match(lines[j]); j++ {
			if line := bytes.TrimSpace(lines[j]); len(line) > 0 && line[0] != '#' {
				end = j + 1
			}
		}
		out = cutBlankLine(out)
		if last := lines[end-1]; !bytes.HasSuffix(last, []byte("\n")) {
			out = cutNewline(out)
		}
		i = end
	}
	return out, nil
}

// cutBlankLine returns the text without an empty line at its end.
func cutBlankLine(text []byte) []byte {
	if cut := cutNewline(text); len(cut) == 0 || cut[len(cut)-1] == '\n' {
		return cut
	}
	return text
}

// cutNewline returns the text without an end of line at its end.
func cutNewline(text []byte) []byte {
	return bytes.TrimSuffix(bytes.TrimSuffix(text, []byte("\n")), []byte("\r"))
}
