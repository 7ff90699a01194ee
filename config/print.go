package config

import (
	"bufio"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
)

const masked = "'********'"

// printYAML writes a file that Load reads back to the same Config, except for masked
// values. Settings without effect are printed if they were set.
func printYAML(w io.Writer, c *Config) error {
	b := bufio.NewWriter(w)
	var open []string // open groups of the last line
	line := func(name, value string) {
		path := strings.Split(name, ".")
		groups := path[:len(path)-1]
		same := 0
		for same < len(groups) && same < len(open) && groups[same] == open[same] {
			same++
		}
		for i := same; i < len(groups); i++ {
			fmt.Fprintf(b, "%s%s:\n", strings.Repeat("  ", i), groups[i])
		}
		open = groups
		fmt.Fprintf(b, "%s%s: %s # %s\n", strings.Repeat("  ", len(groups)), path[len(path)-1], value, sourceOf(c, name))
	}
	for i := range settings {
		s := &settings[i]
		g, set := c.given[s.name()]
		v := g.value
		switch {
		case s.path != nil:
			v = s.field(c).Interface()
		case !set:
			continue
		}
		if s.secret && !empty(v) {
			line(s.name(), masked)
		} else {
			line(s.name(), show(s.kind, v))
		}
		if s.key == "log.level" {
			for _, component := range slices.Sorted(maps.Keys(c.Log.Components)) {
				line(componentKey+component, c.Log.Components[component].String())
			}
		}
	}
	if len(c.Access.Roles) > 0 {
		b.WriteString("roles: # file roles\n")
		for line := range strings.Lines(string(c.Access.Roles)) {
			b.WriteString("  " + line)
		}
	}
	return b.Flush()
}

// sourceOf returns the source of a setting's value. An external name stays on one line.
func sourceOf(c *Config, name string) string {
	source := c.given[name].source
	if source == "" {
		source = "set by the program"
	}
	if s := byName[name]; s != nil && s.path == nil && !s.quiet {
		source += ", no effect"
	}
	return strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f || r == '\u2028' || r == '\u2029' || r == '\u0085' {
			return '?'
		}
		return r
	}, source)
}
