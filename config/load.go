package config

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	yamlparser "github.com/knadh/koanf/parsers/yaml"
	"github.com/knadh/koanf/providers/env/v2"
	"github.com/knadh/koanf/v2"
	"go.yaml.in/yaml/v3"

	"github.com/toolkeep/toolkeep/suggest"
)

// Sources are where settings come from, the later ones winning.
type Sources struct {
	File    string            // YAML file; "" is none. A named file must exist.
	Environ []string          // as os.Environ
	Flags   map[string]string // by key, such as "http.addr"
	// Ignore are names in the environment that begin with TOOLKEEP_ or L03_ and
	// belong to something else.
	Ignore []string
}

const (
	maxFile   = 1 << 20
	sourceEnv = "environment"
)

// clientNames are read by the command line's client and not by the server.
var clientNames = []string{"TOOLKEEP_URL", "TOOLKEEP_KEY", "TOOLKEEP_CONFIG", "TOOLKEEP_CA_FILE", "TOOLKEEP_CLIENT_CERT", "TOOLKEEP_CLIENT_KEY"}

// secretPrefix begins the names of secrets that tools may use; they are no settings.
const secretPrefix = "TOOLKEEP_SECRET_"

// kubernetesNames are set by Kubernetes in every pod beside a service of our name.
var kubernetesNames = regexp.MustCompile(`^TOOLKEEP(_[A-Z0-9_]+)?_(SERVICE_HOST|SERVICE_PORT(_[A-Z0-9_]+)?|PORT_[0-9]+_(TCP|UDP)(_[A-Z]+)?)$|^TOOLKEEP_PORT$`)

// reading is what Print needs to know of how a Config came about.
type reading struct {
	source map[string]string // by key of a field, where its value is from
	extra  []extra           // accepted settings without a field
}

type extra struct {
	key, source string
	value       any
	secret      bool
	idle        bool // has no effect
}

// layer is what one source says.
type layer struct {
	name   string
	values map[string]given // by key of a row with a field
	ports  map[string]given // ports, by key of the address they belong to
	levels map[string]given // by component
	extra  []extra
	roles  []byte
}

type given struct {
	value any
	as    string // the name under which it was given
}

// loader gathers the faults of all sources.
type loader struct {
	faults   faults
	unknowns int
	notes    []string
	byKey    map[string]*setting
	byEnv    map[string]*setting
}

// Load reads all sources and checks the outcome. The error is E3008 and lists
// everything that is wrong.
func Load(s Sources) (*Config, error) {
	l := &loader{byKey: make(map[string]*setting), byEnv: make(map[string]*setting)}
	for i := range settings {
		if r := &settings[i]; r.key != "" {
			l.byKey[r.key] = r
		}
		l.byEnv[settings[i].env] = &settings[i]
	}
	var layers []*layer
	if s.File != "" {
		layers = append(layers, l.file(s.File))
	}
	layers = append(layers, l.environ(s.Environ, s.Ignore), l.flags(s.Flags))
	c := l.merge(layers)
	if l.unknowns > maxUnknown {
		l.faults.add("", "unknown", fmt.Sprintf("there are %d more unknown settings", l.unknowns-maxUnknown))
	}
	l.faults = append(l.faults, c.faults()...)
	if len(l.faults) > 0 {
		return nil, refuse(l.faults)
	}
	return c, nil
}

func newLayer(name string) *layer {
	return &layer{name: name, values: make(map[string]given), ports: make(map[string]given), levels: make(map[string]given)}
}

// bytesProvider hands koanf what was read already.
type bytesProvider []byte

func (b bytesProvider) ReadBytes() ([]byte, error)  { return b, nil }
func (bytesProvider) Read() (map[string]any, error) { return nil, errors.New("bytes only") }

// mapProvider hands koanf parsed values.
type mapProvider map[string]any

func (mapProvider) ReadBytes() ([]byte, error)      { return nil, errors.New("map only") }
func (m mapProvider) Read() (map[string]any, error) { return m, nil }

func (l *loader) file(path string) *layer {
	y := newLayer("file")
	data, err := readLimited(path)
	if err != nil {
		l.faults.add("", "file", fmt.Sprintf("the configuration file %s cannot be read: %s", quote(path), reason(err)))
		return y
	}
	k := koanf.New(".")
	if err := k.Load(bytesProvider(data), yamlparser.Parser()); err != nil {
		l.faults.add("", "yaml", fmt.Sprintf("the configuration file %s is not the YAML of one mapping: %s", quote(path), yamlReason(err)))
		return y
	}
	if roles := k.Get(rolesKey); roles != nil {
		if y.roles, err = yaml.Marshal(roles); err != nil {
			l.faults.add(rolesKey, "yaml", "roles cannot be read as YAML")
		}
		k.Delete(rolesKey)
	}
	all := k.All()
	for _, key := range k.Keys() { // sorted, so that faults come in a stable order
		l.take(y, key, key, all[key], true)
	}
	return y
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

// yamlReason is the parser's reason; values in it are left out, they may be secret.
func yamlReason(err error) string {
	var t *yaml.TypeError
	if errors.As(err, &t) && len(t.Errors) > 0 {
		line, what, _ := strings.Cut(t.Errors[0], ": ")
		if strings.Contains(what, "already defined") {
			return line + ": a key is there twice"
		}
		return line + ": a value of the wrong type"
	}
	first, _, _ := strings.Cut(err.Error(), "\n")
	return first
}

func (l *loader) environ(environ, ignore []string) *layer {
	y := newLayer(sourceEnv)
	k := koanf.New("\x00") // names are not paths
	for _, prefix := range []string{"L03_", "TOOLKEEP_"} {
		p := env.Provider("\x00", env.Opt{Prefix: prefix, EnvironFunc: func() []string { return environ },
			TransformFunc: func(name, value string) (string, any) {
				if slices.Contains(clientNames, name) || slices.Contains(ignore, name) || strings.HasPrefix(name, secretPrefix) ||
					kubernetesNames.MatchString(name) {
					return "", nil
				}
				return name, value
			}})
		if err := k.Load(p, nil); err != nil {
			l.faults.add("", "environment", "the environment cannot be read: "+err.Error())
		}
	}
	for _, name := range k.Keys() {
		l.take(y, name, name, k.Get(name), false)
	}
	return y
}

func (l *loader) flags(flags map[string]string) *layer {
	y := newLayer("flag")
	names := make([]string, 0, len(flags))
	for name := range flags {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		l.take(y, name, name, flags[name], true)
	}
	return y
}

// take reads one value of one source. name is what was written; keys tells
// whether dotted keys are names there, or only those of the environment.
func (l *loader) take(y *layer, name, key string, raw any, keys bool) {
	row := l.byEnv[name]
	if keys && row == nil {
		row = l.byKey[key]
	}
	if row == nil {
		if component, ok := componentOf(name, keys); ok {
			l.takeLevel(y, component, name, raw)
			return
		}
		if keys && l.group(key) && nothingUnder(raw) {
			return // a heading with nothing under it
		}
		l.unknown(y, name, keys)
		return
	}
	v, err := parse(row.kind, raw)
	if err != nil {
		why := err.Error()
		if row.secret {
			why = "the value cannot be read"
		}
		l.bad(y, row, name, "type", why)
		return
	}
	l.place(y, row, name, v)
}

// place puts a parsed value where its row says.
func (l *loader) place(y *layer, row *setting, name string, v any) {
	switch {
	case row.port:
		if n := v.(int64); n < 0 || n > 65535 {
			l.bad(y, row, name, "range", "a port is between 0 and 65535")
		} else {
			y.ports[row.means] = given{v, name}
		}
	case row.means != "":
		if row.unit != 0 {
			n := v.(int64)
			if n < 0 || n > int64(100*365*24*time.Hour/row.unit) {
				l.bad(y, row, name, "range", "the number is out of range")
				return
			}
			v = time.Duration(n) * row.unit
		}
		l.set(y, l.byKey[row.means], name, v)
	case row.bind != nil:
		l.set(y, row, name, v)
	default:
		l.accept(y, row, name, v)
	}
}

// set gives a field its value; two names for it in one source must agree.
func (l *loader) set(y *layer, row *setting, name string, v any) {
	if old, ok := y.values[row.key]; ok && fmt.Sprint(old.value) != fmt.Sprint(v) {
		l.bad(y, row, name, "conflict", fmt.Sprintf("it contradicts %s, which sets the same; set one of them", old.as))
		return
	}
	y.values[row.key] = given{v, name}
}

// accept takes a setting of a later part, if it asks for nothing special.
func (l *loader) accept(y *layer, row *setting, name string, v any) {
	if n, ok := v.(int64); ok && (n < row.least || row.most > 0 && n > row.most) {
		l.bad(y, row, name, "range", "the number is out of range")
		return
	}
	if row.judge != nil {
		if why := row.judge(v); why != "" {
			l.bad(y, row, name, "unsupported", why)
			return
		}
	}
	if !row.quiet && !empty(v) {
		l.notes = append(l.notes, fmt.Sprintf("%s has no effect: %s", name, row.help))
	}
	key := row.key
	if key == "" {
		key = row.env
	}
	y.extra = append(y.extra, extra{key: key, source: sourceOf(y, name), value: v, secret: row.secret, idle: !row.quiet})
}

func (l *loader) takeLevel(y *layer, component, name string, raw any) {
	v, err := parse(level, raw)
	switch {
	case err != nil:
		l.faults.add(componentKey+component, "type", where(y, name)+": "+err.Error())
	case !slices.Contains(Components, component):
		l.faults.add(componentKey+component, "unknown", fmt.Sprintf("%s: there is no component %s; the nearest is %s",
			where(y, name), component, suggest.Nearest(component, Components)))
	default:
		y.levels[component] = given{v, name}
	}
}

// componentOf reads the component out of log.components.NAME or L03_NAME_LOG_LEVEL.
func componentOf(name string, keys bool) (string, bool) {
	if c, ok := strings.CutPrefix(name, componentKey); ok && keys && c != "" {
		return c, true
	}
	c, ok := strings.CutPrefix(name, componentEnv)
	if !ok {
		return "", false
	}
	c, ok = strings.CutSuffix(c, componentTail)
	return strings.ToLower(c), ok && c != ""
}

// group tells whether other keys stand below the key.
func (l *loader) group(key string) bool {
	for k := range l.byKey {
		if strings.HasPrefix(k, key+".") {
			return true
		}
	}
	return key+"." == componentKey
}

func nothingUnder(raw any) bool {
	m, isMap := raw.(map[string]any)
	return raw == nil || isMap && len(m) == 0
}

// maxUnknown is how many unknown names are listed; a file that is no configuration
// at all has thousands.
const maxUnknown = 50

func (l *loader) unknown(y *layer, name string, keys bool) {
	if l.unknowns++; l.unknowns > maxUnknown {
		return
	}
	var names []string
	if keys {
		for k := range l.byKey {
			names = append(names, k)
		}
		for _, c := range Components {
			names = append(names, componentKey+c)
		}
		names = append(names, rolesKey)
	} else {
		for k := range l.byEnv {
			names = append(names, k)
		}
		for _, c := range Components {
			names = append(names, componentEnv+strings.ToUpper(c)+componentTail)
		}
	}
	slices.Sort(names) // equally near ones: always the same
	at := ""
	if keys {
		at = name
	}
	l.faults.add(at, "unknown", fmt.Sprintf("%s: there is no such setting; the nearest is %s", where(y, name), suggest.Nearest(name, names)))
}

func (l *loader) bad(y *layer, row *setting, name, rule, why string) {
	key := row.key
	if key == "" {
		key = row.env
	}
	l.faults.add(key, rule, where(y, name)+": "+why)
}

func where(y *layer, name string) string {
	if len(name) > 200 {
		name = name[:200] + "…"
	}
	switch y.name {
	case sourceEnv:
		return "environment variable " + name
	case "flag":
		return "flag " + name
	}
	return "setting " + name
}

func sourceOf(y *layer, name string) string { return y.name + " " + name }

// merge lays the sources over the defaults.
func (l *loader) merge(layers []*layer) *Config {
	c := &Config{read: &reading{source: make(map[string]string)}}
	environment := ""
	for _, y := range layers {
		if g, ok := y.values["service.environment"]; ok {
			environment = g.value.(string)
		}
	}
	k := koanf.New("\x00") // keys stay whole
	load := func(values map[string]any) {
		if err := k.Load(mapProvider(values), nil); err != nil {
			l.faults.add("", "merge", "the sources cannot be merged: "+err.Error())
		}
	}
	load(l.defaults(c, environment))
	for _, y := range layers {
		values := make(map[string]any, len(y.values))
		for key, g := range y.values {
			values[key] = g.value
			c.read.source[key] = sourceOf(y, g.as)
		}
		load(values)
		for key, g := range y.ports {
			l.port(c, k, y, key, g)
		}
		for component, g := range y.levels {
			if c.Log.Components == nil {
				c.Log.Components = make(map[string]slog.Level)
			}
			c.Log.Components[component] = g.value.(slog.Level)
			c.read.source[componentKey+component] = sourceOf(y, g.as)
		}
		if y.roles != nil {
			c.Access.Roles = y.roles
		}
		c.read.extra = append(c.read.extra, y.extra...)
	}
	for i := range settings {
		if s := &settings[i]; s.bind != nil {
			put(s.bind(c), k.Get(s.key))
		}
	}
	c.Notes = l.notes
	return c
}

// defaults gives every row with a field its default in the environment.
func (l *loader) defaults(c *Config, environment string) map[string]any {
	values := make(map[string]any, len(ownSettings))
	for i := range settings {
		s := &settings[i]
		if s.bind == nil {
			continue
		}
		def, source := s.def, "default"
		if d, ok := s.in[environment]; ok {
			def, source = d, "default in "+environment
		}
		v, err := parse(s.kind, def)
		if err != nil { // a mistake in the table; a test reads them all
			l.faults.add(s.key, "default", s.key+": the default cannot be read: "+err.Error())
			continue
		}
		values[s.key], c.read.source[s.key] = v, source
	}
	return values
}

// port replaces the port of an address by one that the same or a stronger source
// names.
func (l *loader) port(c *Config, k *koanf.Koanf, y *layer, key string, g given) {
	addr, _ := k.Get(key).(string)
	host, old, err := hostPort(addr)
	if err != nil {
		return // faults names the address
	}
	port := int(g.value.(int64))
	if full, ok := y.values[key]; ok {
		if old != port {
			l.faults.add(key, "conflict", fmt.Sprintf("%s: it contradicts %s, which sets the same; set one of them", where(y, g.as), full.as))
		}
		return
	}
	if err := k.Set(key, net.JoinHostPort(host, strconv.Itoa(port))); err != nil {
		l.faults.add(key, "merge", "the sources cannot be merged: "+err.Error())
	}
	c.read.source[key] = sourceOf(y, g.as)
}
