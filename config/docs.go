package config

import (
	"fmt"
	"io"
	"strings"
	"time"
)

// WriteDocs writes docs/configuration.md.
func WriteDocs(w io.Writer) error {
	var own, other strings.Builder
	line := func(b *strings.Builder, key, env, def, help string) {
		fmt.Fprintf(b, "| %s | %s | %s | %s |\n", code(key), code(env), def, strings.ReplaceAll(help, "|", `\|`))
	}
	for i := range settings {
		s := &settings[i]
		b, help := &own, s.help
		if s.path == nil {
			b = &other
		}
		switch {
		case s.port:
			help = "the port of " + s.means
		case s.means != "" && help == "":
			help = "the same as " + s.means + map[time.Duration]string{time.Millisecond: ", in milliseconds", time.Second: ", in seconds", 24 * time.Hour: ", in days"}[s.unit]
		}
		line(b, s.key, s.env, defaults(s), help)
		switch s.key {
		case "log.level":
			line(b, componentKey+"NAME", componentEnv+"NAME"+componentTail, "", "level of one component: "+strings.Join(Components, ", "))
		case "access.roles_file":
			line(b, rolesKey, "", "", "roles besides the built-in ones, in the configuration file only")
		}
	}
	const head = "| setting | environment | default | what it does |\n| --- | --- | --- | --- |\n"
	_, err := io.WriteString(w, docsHead+"\n## Settings\n\n"+head+own.String()+"\n## Names of the source documents\n\n"+head+other.String())
	return err
}

func code(s string) string {
	if s == "" {
		return ""
	}
	return "`" + s + "`"
}

func defaults(s *setting) string {
	d := code(s.def)
	for _, e := range environments {
		if v, ok := s.in[e]; ok {
			d += ", " + e + " " + code(v)
		}
	}
	return d
}

const docsHead = `<!-- Made from the table in package config by make generate -->
# Configuration

Settings come from flags, the environment, a YAML file and the defaults; the first of these that has a value wins. In the file a setting ` + "`http.addr`" + ` is the key ` + "`addr`" + ` under ` + "`http`" + `; a name of the environment may also stand at the top of the file. ` + "`toolkeep config print`" + ` shows every value with its source, ` + "`toolkeep config check`" + ` what is wrong.

An unknown name refuses the start and is answered with the nearest known one. So is a value that asks for something this build does not have. Two names for one setting in the same source must agree.

Durations carry their unit (` + "`300ms`, `30s`, `24h`, `7d`" + `), sizes are bytes or carry one (` + "`64KiB`, `1MiB`, `100MB`" + `), lists in the environment are parted by commas.

Without ` + "`service.environment`" + ` the plain defaults hold. ` + "`development`" + ` is for trying things out on one machine, ` + "`production`" + ` logs less. While no environment is named and ` + "`http.addr` and `grpc.addr`" + ` are loopback addresses, and none of ` + "`http.hosts`, `http.trusted_proxies` and `http.public_url`" + ` is set, the limits (` + "`limits.…`" + `) and ` + "`drain.grace`" + ` are those of ` + "`development`" + `: one person who plugs in an agent has room, and no load balancer has to learn of a stop. Certificates of upstreams are checked in every environment.

An address that other machines can reach needs ` + "`tls.cert`, `tls.key`" + ` and ` + "`access.method`, `oauth.issuer` or `oauth.issuers_file`" + `; without them the server does not start.
`
