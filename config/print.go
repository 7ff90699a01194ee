package config

import (
	"bufio"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"
)

const masked = "'********'"

// row is one line of the printed configuration.
type row struct{ key, value, source string }

// printYAML writes a file that Load reads back to the same Config, but for masked
// values.
func printYAML(w io.Writer, c *Config) error {
	b := bufio.NewWriter(w)
	var open []string // groups that the last line stood in
	for _, r := range rows(c) {
		path := strings.Split(r.key, ".")
		groups := path[:len(path)-1]
		same := 0
		for same < len(groups) && same < len(open) && groups[same] == open[same] {
			same++
		}
		for i := same; i < len(groups); i++ {
			fmt.Fprintf(b, "%s%s:\n", strings.Repeat("  ", i), groups[i])
		}
		open = groups
		fmt.Fprintf(b, "%s%s: %s # %s\n", strings.Repeat("  ", len(groups)), path[len(path)-1], r.value, comment(r.source))
	}
	if len(c.Access.Roles) > 0 {
		b.WriteString("roles: # file roles\n")
		for line := range strings.Lines(string(c.Access.Roles)) {
			b.WriteString("  " + line)
		}
	}
	return b.Flush()
}

// comment keeps a name that came from outside on its line.
func comment(s string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f || r == '\u2028' || r == '\u2029' || r == '\u0085' {
			return '?'
		}
		return r
	}, s)
}

// rows are the settings in the order of their groups.
func rows(c *Config) []row {
	var out []row
	source := func(key string) string {
		if c.read == nil || c.read.source[key] == "" {
			return "set by the program"
		}
		return c.read.source[key]
	}
	for i := range settings {
		s := &settings[i]
		if s.bind == nil {
			continue
		}
		value := show(s.kind, s.bind(c))
		if s.secret && value != `""` {
			value = masked
		}
		out = append(out, row{s.key, value, source(s.key)})
		if s.key == "log.buffer" {
			for _, name := range slices.Sorted(maps.Keys(c.Log.Components)) {
				out = append(out, row{componentKey + name, c.Log.Components[name].String(), source(componentKey + name)})
			}
		}
	}
	if c.read == nil {
		return out
	}
	// A later source wins; those of the environment have no place in a group.
	last := make(map[string]extra)
	for _, x := range c.read.extra {
		last[x.key] = x
	}
	for _, key := range slices.Sorted(maps.Keys(last)) {
		x := last[key]
		value := scalar(x.value)
		if x.secret && !empty(x.value) {
			value = masked
		}
		if x.idle {
			x.source += ", no effect"
		}
		out = append(out, row{key, value, x.source})
	}
	return grouped(out)
}

// grouped brings lines of one top group together, keeping the first's place.
func grouped(in []row) []row {
	place := make(map[string]int)
	for _, r := range in {
		g, _, _ := strings.Cut(r.key, ".")
		if _, ok := place[g]; !ok {
			place[g] = len(place)
		}
	}
	slices.SortStableFunc(in, func(a, b row) int {
		ga, _, _ := strings.Cut(a.key, ".")
		gb, _, _ := strings.Cut(b.key, ".")
		return place[ga] - place[gb]
	})
	return in
}

// show writes a field the way one would set it.
func show(k kind, p any) string {
	switch p := p.(type) {
	case *string:
		return scalar(*p)
	case *bool:
		return strconv.FormatBool(*p)
	case *int:
		return showNumber(k, int64(*p))
	case *int64:
		return showNumber(k, *p)
	case *float64:
		return strconv.FormatFloat(*p, 'g', -1, 64)
	case *time.Duration:
		return p.String()
	case *slog.Level:
		return p.String()
	case *[]string:
		return scalar(*p)
	}
	return `""`
}

func showNumber(k kind, n int64) string {
	if k == size && n > 0 {
		for _, u := range []struct {
			name string
			n    int64
		}{{"GiB", 1 << 30}, {"MiB", 1 << 20}, {"KiB", 1 << 10}, {"MB", 1e6}} {
			if n%u.n == 0 {
				return strconv.FormatInt(n/u.n, 10) + u.name
			}
		}
	}
	return strconv.FormatInt(n, 10)
}

// scalar writes any value in one line of YAML.
func scalar(v any) string {
	var node yaml.Node
	if err := node.Encode(v); err != nil {
		return `""`
	}
	flow(&node)
	out, err := yaml.Marshal(&node)
	if err != nil {
		return `""`
	}
	return strings.TrimRight(string(out), "\n")
}

// flow puts lists and maps into their one-line form, and text that would break a
// line between quotes.
func flow(n *yaml.Node) {
	switch n.Kind {
	case yaml.SequenceNode, yaml.MappingNode:
		n.Style = yaml.FlowStyle
	case yaml.ScalarNode:
		if n.Tag == "!!str" && (len(n.Value) > 60 || strings.ContainsAny(n.Value, "\n#")) {
			n.Style = yaml.DoubleQuotedStyle
		}
	}
	for _, c := range n.Content {
		flow(c)
	}
}
