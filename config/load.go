package config

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"maps"
	"net"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/toolkeep/toolkeep/canon/yaml"
	"github.com/toolkeep/toolkeep/datadir"
	"github.com/toolkeep/toolkeep/suggest"
)

// Sources holds the sources of settings; later ones take precedence.
type Sources struct {
	File    string            // YAML file; "" is none. A named file must exist.
	Environ []string          // as os.Environ
	Flags   map[string]string // by key, such as "http.addr"
	// Port moves http.addr, grpc.addr, metrics.addr and examples.addr to this port and the three after it, except those
	// in Flags; 0: to free ones, nil: nothing, MaxPort at most.
	Port *int
	// Ignore lists environment names that begin with TOOLKEEP_ or L03_ and belong to
	// something else.
	Ignore []string
}

const (
	maxFile   = 1 << 20 // bytes, and values
	maxDepth  = 64
	sourceEnv = "environment"
)

// clientNames are read by the command-line client and not by the server.
var clientNames = []string{"TOOLKEEP_URL", "TOOLKEEP_KEY", "TOOLKEEP_CONFIG", "TOOLKEEP_CA_FILE", "TOOLKEEP_CLIENT_CERT", "TOOLKEEP_CLIENT_KEY"}

// secretPrefix starts the names of secrets for tools; they are not settings.
const secretPrefix = "TOOLKEEP_SECRET_"

// kubernetesNames are set by Kubernetes in every pod next to a service named toolkeep.
var kubernetesNames = regexp.MustCompile(`^TOOLKEEP(_[A-Z0-9_]+)?_(SERVICE_HOST|SERVICE_PORT(_[A-Z0-9_]+)?|PORT_[0-9]+_(TCP|UDP)(_[A-Z]+)?)$|^TOOLKEEP_PORT$`)

// given is a value and its source.
type given struct {
	value  any
	name   string // the name used in the source
	source string // such as "file http.addr"
}

// layer holds the values of one source.
type layer struct {
	source string
	values map[string]given // by the name of the row, of a component's level, or roles
	ports  map[string]given // by the key of the address they belong to
	later  []chosen
}

// chosen is a value whose row depends on other settings.
type chosen struct {
	row *setting
	given
}

func (y *layer) given(name string, v any) given { return given{v, name, y.source + " " + name} }

// loader collects the faults of all sources.
type loader struct {
	faults   faults
	unknowns int
	notes    []string
}

// Load reads all sources and validates the result. The error is E3008 and lists every
// fault; the Config then has what could be read, so that more can be checked.
func Load(s Sources) (*Config, error) {
	var l loader
	var layers []*layer
	if s.File != "" {
		layers = append(layers, l.read("file", l.file(s.File)))
	}
	layers = append(layers, l.read(sourceEnv, environ(s.Environ, s.Ignore)))
	flags := make(map[string]any, len(s.Flags))
	for name, v := range s.Flags {
		flags[name] = v
	}
	layers = append(layers, l.read("flag", flags))
	c := l.merge(layers, s)
	if l.unknowns > maxUnknown {
		l.faults.add("", "unknown", fmt.Sprintf("there are %d more unknown settings", l.unknowns-maxUnknown))
	}
	l.faults = append(l.faults, c.faults()...)
	if len(c.Signing.Required) > 0 && len(c.Signing.Keys) == 0 {
		c.Notes = append(c.Notes, "signing.required is set, and signing.keys is not: only keys made with require_signature come in at "+strings.Join(c.Signing.Required, ", ")+"; all others, the first admin key among them, and all tokens are refused there")
	}
	return c, Refusal(l.faults)
}

// file returns the values of a YAML file by their dotted keys.
func (l *loader) file(path string) map[string]any {
	data, err := readLimited(path)
	if err != nil {
		l.faults.add("", "file", fmt.Sprintf("the configuration file %s cannot be read: %s", quote(path), reason(err)))
		return nil
	}
	tree, err := readTree(data)
	if err != nil {
		l.faults.add("", "yaml", fmt.Sprintf("the configuration file %s is not the YAML of one mapping: %s", quote(path), err))
		return nil
	}
	flat := make(map[string]any)
	if roles := tree[rolesKey]; roles != nil {
		if flat[rolesKey], err = yaml.Marshal(roles); err != nil {
			l.faults.add(rolesKey, "yaml", "roles cannot be read as YAML")
		}
	}
	delete(tree, rolesKey)
	flatten(flat, "", tree)
	return flat
}

// flatten stores the leaves of a mapping under their dotted keys.
func flatten(flat map[string]any, prefix string, m map[string]any) {
	for k, v := range m {
		if below, ok := v.(map[string]any); ok && len(below) > 0 {
			flatten(flat, prefix+k+".", below)
		} else {
			flat[prefix+k] = v
		}
	}
}

func readLimited(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }() // read only
	data, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err == nil && len(data) > maxFile {
		err = errors.New("it is larger than 1 MiB")
	}
	return bytes.TrimPrefix(data, []byte("\xef\xbb\xbf")), err
}

func reason(err error) string {
	var p *fs.PathError
	if errors.As(err, &p) {
		return p.Err.Error()
	}
	return err.Error()
}

// readTree reads the YAML of one mapping.
func readTree(data []byte) (map[string]any, error) {
	doc, err := yaml.One(data, yaml.Options{Bytes: maxFile, Values: maxFile, Depth: maxDepth, Aliases: true})
	if err != nil || doc == nil || doc.Value == nil {
		return nil, err
	}
	v, err := doc.Tree()
	tree, ok := v.(map[string]any)
	if err == nil && !ok {
		err = fmt.Errorf("line %d: the file is a list or one value", doc.Line)
	}
	return tree, err
}

// environ returns the environment variables that are settings.
func environ(environ, ignore []string) map[string]any {
	values := make(map[string]any)
	for _, e := range environ {
		name, v, _ := strings.Cut(e, "=")
		if (strings.HasPrefix(name, "L03_") || strings.HasPrefix(name, "TOOLKEEP_")) && !strings.HasPrefix(name, secretPrefix) &&
			!slices.Contains(clientNames, name) && !slices.Contains(ignore, name) && !kubernetesNames.MatchString(name) {
			values[name] = v
		}
	}
	return values
}

// lookup returns os.Getenv for a list such as os.Environ's.
func lookup(environ []string) func(string) string {
	return func(name string) string {
		for _, e := range environ {
			if v, ok := strings.CutPrefix(e, name+"="); ok {
				return v
			}
		}
		return ""
	}
}

// read reads the values of a source, sorted by name, so that faults have a stable
// order.
func (l *loader) read(source string, values map[string]any) *layer {
	y := &layer{source: source, values: make(map[string]given), ports: make(map[string]given)}
	for _, name := range slices.Sorted(maps.Keys(values)) {
		row := byName[name]
		component, isLevel := componentOf(name)
		switch {
		case row != nil:
			l.take(y, row, name, values[name])
		case isLevel:
			l.takeLevel(y, component, name, values[name])
		case name == rolesKey && source == "file":
			y.values[rolesKey] = y.given(name, values[name])
		case !heading(name, values[name]):
			l.unknown(y, name)
		}
	}
	return y
}

// take reads one value according to its row.
func (l *loader) take(y *layer, row *setting, name string, raw any) {
	v, err := parse(row.kind, raw)
	switch {
	case err != nil && row.secret:
		l.bad(y, row, name, "type", ": the value cannot be read")
	case err != nil:
		l.bad(y, row, name, "type", ": "+err.Error())
	case row.port:
		if n := v.(int64); n < 0 || n > 65535 {
			l.bad(y, row, name, "range", ": a port is between 0 and 65535")
			return
		}
		y.ports[row.means] = y.given(name, v)
	case row.choose != nil:
		y.later = append(y.later, chosen{row, y.given(name, v)})
	case row.means != "":
		if row.convert != nil {
			var why string
			if v, why = row.convert(v); why != "" {
				l.bad(y, row, name, "unsupported", ": "+why)
				return
			}
			if v == nil {
				return
			}
		}
		if row.unit != 0 {
			n := v.(int64)
			if n < 0 || n > int64(100*365*24*time.Hour/row.unit) {
				l.bad(y, row, name, "range", ": the number is out of range")
				return
			}
			v = time.Duration(n) * row.unit
		}
		l.set(y, byName[row.means], name, v)
	case row.path != nil:
		l.set(y, row, name, v)
	default:
		l.accept(y, row, name, v)
	}
}

// set sets a row's value; two names for it in one source must agree. The empty value of an alias sets nothing beside
// another name.
func (l *loader) set(y *layer, row *setting, name string, v any) {
	old, ok := y.values[row.name()]
	switch {
	case !ok, empty(old.value) && row.alias(old.name):
	case empty(v) && row.alias(name):
		return
	case fmt.Sprint(old.value) != fmt.Sprint(v):
		l.bad(y, row, name, "conflict", fmt.Sprintf(": it contradicts %s, which sets the same; set one of them", old.name))
		return
	}
	y.values[row.name()] = y.given(name, v)
}

// alias reports whether the name is that of another row which sets this one.
func (s *setting) alias(name string) bool { return name != s.key && name != s.env }

// accept accepts a setting without effect, unless its value requires something this
// build lacks.
func (l *loader) accept(y *layer, row *setting, name string, v any) {
	if why := row.check(reflect.ValueOf(v)); why != "" {
		l.bad(y, row, name, "range", " "+why)
		return
	}
	if row.refuse != nil {
		if why := row.refuse(v); why != "" {
			l.bad(y, row, name, "unsupported", ": "+why)
			return
		}
	}
	if !row.quiet && !empty(v) {
		l.notes = append(l.notes, fmt.Sprintf("%s has no effect: %s", name, row.help))
	}
	l.set(y, row, name, v)
}

func (l *loader) takeLevel(y *layer, component, name string, raw any) {
	v, err := parse(level, raw)
	key := componentKey + component
	switch {
	case err != nil:
		l.faults.add(key, "type", where(y, name)+": "+err.Error())
	case !slices.Contains(Components, component):
		l.faults.add(key, "unknown", fmt.Sprintf("%s: there is no component %s; the nearest is %s",
			where(y, name), component, suggest.Nearest(component, Components)))
	default:
		y.values[key] = y.given(name, v)
	}
}

// componentOf returns the component in log.components.NAME or L03_NAME_LOG_LEVEL.
func componentOf(name string) (string, bool) {
	if c, ok := strings.CutPrefix(name, componentKey); ok && c != "" {
		return c, true
	}
	c, ok := strings.CutPrefix(name, componentEnv)
	if !ok {
		return "", false
	}
	c, ok = strings.CutSuffix(c, componentTail)
	return strings.ToLower(c), ok && c != ""
}

// heading reports whether other keys may be below the name, and none are.
func heading(name string, raw any) bool {
	m := reflect.ValueOf(raw)
	if raw != nil && (m.Kind() != reflect.Map || m.Len() > 0) {
		return false
	}
	for known := range byName {
		if strings.HasPrefix(known, name+".") {
			return true
		}
	}
	return name+"." == componentKey
}

// maxUnknown bounds the unknown names listed; a file that is not a configuration has
// thousands.
const maxUnknown = 50

func (l *loader) unknown(y *layer, name string) {
	if l.unknowns++; l.unknowns > maxUnknown {
		return
	}
	at, env, names := name, y.source == sourceEnv, []string{rolesKey}
	if env {
		at, names = "", nil
	}
	for i := range settings {
		if s := &settings[i]; env {
			names = append(names, s.env)
		} else if s.key != "" {
			names = append(names, s.key)
		}
	}
	for _, c := range Components {
		if env {
			names = append(names, componentEnv+strings.ToUpper(c)+componentTail)
		} else {
			names = append(names, componentKey+c)
		}
	}
	slices.Sort(names) // a stable choice among equally near names
	l.faults.add(at, "unknown", fmt.Sprintf("%s: there is no such setting; the nearest is %s", where(y, name), suggest.Nearest(name, names)))
}

func (l *loader) bad(y *layer, row *setting, name, rule, why string) {
	l.faults.add(row.name(), rule, where(y, name)+why)
}

func where(y *layer, name string) string {
	if len(name) > 200 {
		name = name[:200] + "…"
	}
	switch y.source {
	case sourceEnv:
		return "environment variable " + name
	case "flag":
		return "flag " + name
	}
	return "setting " + name
}

// merge applies the sources, of which the flags are the last, over the defaults.
func (l *loader) merge(layers []*layer, s Sources) *Config {
	c := &Config{given: map[string]given{"data": {datadir.Default(lookup(s.Environ)), "data", "default"}}}
	environment := ""
	for _, y := range layers {
		if g, ok := y.values["service.environment"]; ok {
			environment = g.value.(string)
		}
	}
	l.choose(layers)
	l.defaults(c.given, environment, environment == "" && onlyHere(layers))
	for _, y := range layers {
		maps.Copy(c.given, y.values)
		for key, g := range y.ports {
			l.port(c.given, y, key, g)
		}
	}
	if s.Port != nil {
		move(c.given, layers[len(layers)-1], *s.Port)
	}
	for name, g := range c.given {
		if row := byName[name]; row != nil && row.path != nil {
			f := row.field(c)
			f.Set(reflect.ValueOf(g.value).Convert(f.Type()))
		} else if component, ok := strings.CutPrefix(name, componentKey); ok {
			if c.Log.Components == nil {
				c.Log.Components = make(map[string]slog.Level)
			}
			c.Log.Components[component] = g.value.(slog.Level)
		} else if name == rolesKey {
			c.Access.Roles, _ = g.value.([]byte)
		}
	}
	if g := c.given["approvals.endpoint_deny_after"]; g.name == "L03_L08_ESCALATION_TIMEOUT_SECONDS" && c.Approvals.EndpointFailure == "wait" {
		l.notes = append(l.notes, g.name+" has no effect: approvals.endpoint_failure is wait; set it to deny to refuse calls after that time")
	}
	if g := c.given["cache.shared"]; g.name == "L03_TOOL_CACHE_BACKEND" && c.Cache.Shared && c.Redis.URL == "" {
		l.notes = append(l.notes, g.name+" is redis and has no effect: results of tools stay in memory; set redis.url to keep them in Redis too")
	}
	c.Notes = l.notes
	return c
}

// choose sets the rows of values that depend on whether an embedding service is set.
func (l *loader) choose(layers []*layer) {
	remote := false
	for _, y := range layers {
		if g, ok := y.values["search.embeddings_url"]; ok {
			remote = !empty(g.value)
		}
	}
	for _, y := range layers {
		for _, g := range y.later {
			switch key, why := g.row.choose(g.value, remote); {
			case why != "":
				l.bad(y, g.row, g.name, "unsupported", ": "+why)
			case key != "":
				l.set(y, byName[key], g.name, g.value)
			case !g.row.quiet && !empty(g.value):
				l.notes = append(l.notes, fmt.Sprintf("%s has no effect: %s", g.name, g.row.help))
			}
		}
	}
}

// onlyHere reports whether only this machine can reach the addresses of REST, MCP and gRPC: they are loopback, and no
// setting speaks of a reverse proxy, through which others come.
func onlyHere(layers []*layer) bool {
	for _, key := range []string{"http.hosts", "http.trusted_proxies", "http.public_url"} {
		for _, y := range layers {
			if g, ok := y.values[key]; ok && !reflect.ValueOf(g.value).IsZero() {
				return false
			}
		}
	}
	for _, key := range []string{"http.addr", "grpc.addr"} {
		addr := byName[key].def
		for _, y := range layers {
			if g, ok := y.values[key]; ok {
				addr, _ = g.value.(string)
			}
		}
		if addr != "" && addr != "off" && !loopback(addr) {
			return false
		}
	}
	return true
}

// defaults sets the environment's default of every row with a field. room: no environment is named
// and only this machine can connect; limits and drain.grace are then those of development.
func (l *loader) defaults(values map[string]given, environment string, room bool) {
	for i := range settings {
		s := &settings[i]
		if s.path == nil {
			continue
		}
		def, source := s.def, "default"
		if d, ok := s.in[environment]; ok {
			def, source = d, "default in "+environment
		} else if d, ok := s.in["development"]; ok && room && (s.key == "drain.grace" || strings.HasPrefix(s.key, "limits.")) {
			def, source = d, "default on loopback"
		}
		if s.key == "data" || def == "" && s.kind != text && s.kind != list {
			continue // merge has it, or the zero value
		}
		v, err := parse(s.kind, def)
		if err != nil { // a mistake in the table; a test reads all rows
			l.faults.add(s.key, "default", s.key+": the default cannot be read: "+err.Error())
			continue
		}
		values[s.key] = given{v, s.key, source}
	}
}

// port replaces the port of an address with one from the same or a stronger source.
func (l *loader) port(values map[string]given, y *layer, key string, g given) {
	host, old, err := hostPort(values[key].value.(string))
	if err != nil {
		return // the address is reported on its own
	}
	port := int(g.value.(int64))
	if full, ok := y.values[key]; ok {
		if old != port {
			l.faults.add(key, "conflict", fmt.Sprintf("%s: it contradicts %s, which sets the same; set one of them", where(y, g.name), full.name))
		}
		return
	}
	g.value = net.JoinHostPort(host, strconv.Itoa(port))
	values[key] = g
}
