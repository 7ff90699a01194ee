package config

import (
	"fmt"
	"io"
	"slices"
	"strings"
)

// Key describes one setting, for documentation and completion.
type Key struct {
	Name    string // dotted key; "" where only the environment's name is taken
	Env     string
	Kind    string // text, number, size, true/false, duration, list, level, any
	Default string
	// By are defaults that differ in an environment.
	By   map[string]string
	Help string
	// Effect is "" for a setting with a field, "alias" for another name of one, and
	// "none" for a name that is accepted without effect or refused.
	Effect string
}

// Keys lists every setting in the order of the documentation.
func Keys() []Key {
	keys := make([]Key, 0, len(settings)+1)
	for i := range settings {
		s := &settings[i]
		k := Key{Name: s.key, Env: s.env, Kind: kindNames[s.kind], Default: s.def, By: s.in, Help: s.help}
		switch {
		case s.port:
			k.Effect, k.Help = "alias", "the port of "+s.means
		case s.means != "":
			k.Effect, k.Help = "alias", "the same as "+s.means
			if s.unit != 0 {
				k.Help += ", in " + map[string]string{"1ms": "milliseconds", "1s": "seconds", "24h0m0s": "days"}[s.unit.String()]
			}
		case s.bind == nil:
			k.Effect = "none"
		}
		keys = append(keys, k)
		if s.key == "log.level" {
			keys = append(keys, Key{Name: componentKey + "NAME", Env: componentEnv + "NAME" + componentTail, Kind: "level",
				Help: "level of one component: " + strings.Join(Components, ", ")})
		}
		if s.key == "access.roles_file" {
			keys = append(keys, Key{Name: rolesKey, Kind: "roles", Help: "roles besides the built-in ones, in the configuration file only"})
		}
	}
	return keys
}

// WriteDocs writes docs/configuration.md.
func WriteDocs(w io.Writer) error {
	var b strings.Builder
	b.WriteString(docsHead)
	table := func(head string, effects ...string) {
		b.WriteString("\n## " + head + "\n\n| setting | environment | default | what it does |\n| --- | --- | --- | --- |\n")
		for _, k := range Keys() {
			if slices.Contains(effects, k.Effect) {
				fmt.Fprintf(&b, "| %s | %s | %s | %s |\n", code(k.Name), code(k.Env), defaults(k), strings.ReplaceAll(k.Help, "|", `\|`))
			}
		}
	}
	table("Settings", "")
	table("Names of the source documents", "alias", "none")
	_, err := io.WriteString(w, b.String())
	return err
}

func code(s string) string {
	if s == "" {
		return ""
	}
	return "`" + s + "`"
}

func defaults(k Key) string {
	d := code(k.Default)
	for _, e := range []string{development, staging, production} {
		if v, ok := k.By[e]; ok {
			d += ", " + e + " " + code(v)
		}
	}
	return d
}

const docsHead = `<!-- Made from the table in package config: go test ./config -run TestDocs -update -->
# Configuration

Settings come from flags, the environment, a YAML file and the defaults; the first of these that has a value wins. In the file a setting ` + "`http.addr`" + ` is the key ` + "`addr`" + ` under ` + "`http`" + `; a name of the environment may also stand at the top of the file. ` + "`toolkeep config print`" + ` shows every value with its source, ` + "`toolkeep config check`" + ` what is wrong.

An unknown name refuses the start and is answered with the nearest known one. So is a value that asks for something this build does not have. Two names for one setting in the same source must agree.

Durations carry their unit (` + "`300ms`, `30s`, `24h`, `7d`" + `), sizes are bytes or carry one (` + "`64KiB`, `1MiB`, `100MB`" + `), lists in the environment are parted by commas.

Without ` + "`service.environment`" + ` the plain defaults hold. ` + "`development`" + ` is for trying things out on one machine, ` + "`production`" + ` logs less. Certificates of upstreams are checked in every environment.

An address that other machines can reach needs ` + "`tls.cert`, `tls.key`" + ` and ` + "`access.method` or `oauth.issuer`" + `; without them the server does not start.
`
