package config

import (
	"fmt"
	"log/slog"
	"reflect"
	"slices"
	"strings"
	"time"
)

// setting is a row of the table shared by reading, printing and documentation.
//
// Rows with a path have a field of Config. Rows with means are aliases of such a row.
// The others have no effect: they are accepted for compatibility with the source
// documents, unless refuse returns a reason, and name the part that this build lacks.
type setting struct {
	key     string // dotted name in the file and for flags; "" for none
	env     string // name in the environment, also accepted in the file
	kind    kind
	def     string            // default, in the notation of a source
	in      map[string]string // defaults per environment, if different
	choices []string
	least   int64 // smallest number, size or duration (ns)
	most    int64 // largest; 0 for none
	help    string
	secret  bool
	path    []int // of the field in Config

	means string        // key of the row that this is an alias of
	unit  time.Duration // unit of the number, if that row is a duration
	port  bool          // the number replaces the port of that row's address
	// convert makes that row's value of this one's, or says why it cannot.
	convert func(v any) (any, string)
	// choose, if set, decides instead of means once all sources are read: remote says that search.embeddings_url is
	// set. An empty key sets nothing.
	choose func(v any, remote bool) (key, why string)

	needs part // what this build lacks, of rows without effect

	refuse func(v any) string // why this build refuses the value; "" accepts it
	quiet  bool               // has no effect and needs no note
}

// name returns the row's name in messages and in print.
func (s *setting) name() string {
	if s.key == "" {
		return s.env
	}
	return s.key
}

// environments are the values of service.environment.
var environments = []string{"development", "staging", "production"}

// settings lists all rows, in the order of the documentation.
var settings = append(fields(reflect.TypeFor[Config](), nil), foreignSettings...)

// byName finds a row by its key or its name in the environment.
var byName = func() map[string]*setting {
	m := make(map[string]*setting, 2*len(settings))
	for i := range settings {
		m[settings[i].name()], m[settings[i].env] = &settings[i], &settings[i]
	}
	return m
}()

// fields reads the rows from the tags of Config.
func fields(t reflect.Type, path []int) (rows []setting) {
	for i := range t.NumField() {
		f, at := t.Field(i), append(slices.Clone(path), i)
		if f.Type.Kind() == reflect.Struct {
			rows = append(rows, fields(f.Type, at)...)
			continue
		}
		key := f.Tag.Get("key")
		if key == "" {
			continue
		}
		s := setting{key: key, env: f.Tag.Get("env"), kind: kindOf(f), def: f.Tag.Get("default"), in: map[string]string{},
			help: f.Tag.Get("help"), secret: f.Tag.Get("secret") == "true", path: at}
		if s.env == "" {
			s.env = envName("TOOLKEEP_", key)
		}
		if c, ok := f.Tag.Lookup("choices"); ok {
			s.choices = strings.Split(c, ",")
		}
		for _, e := range environments {
			if d, ok := f.Tag.Lookup(e); ok {
				s.in[e] = d
			}
		}
		s.least, s.most = bound(f, s.kind, "min"), bound(f, s.kind, "max")
		rows = append(rows, s)
	}
	return rows
}

func kindOf(f reflect.StructField) kind {
	if f.Tag.Get("kind") == "size" {
		return size
	}
	switch reflect.Zero(f.Type).Interface().(type) {
	case bool:
		return boolean
	case int, int64:
		return whole
	case float64:
		return decimal
	case time.Duration:
		return span
	case []string:
		return list
	case slog.Level:
		return level
	}
	return text
}

// bound parses min or max; a test reads all rows.
func bound(f reflect.StructField, k kind, tag string) int64 {
	if f.Tag.Get(tag) == "" {
		return 0
	}
	v, err := parse(k, f.Tag.Get(tag))
	if err != nil {
		panic(fmt.Sprintf("config: %s of %s: %v", tag, f.Name, err))
	}
	return reflect.ValueOf(v).Convert(reflect.TypeFor[int64]()).Int()
}

// envName derives the environment name from a key.
func envName(prefix, key string) string {
	return prefix + strings.ToUpper(strings.ReplaceAll(key, ".", "_"))
}

// field returns the row's field of c.
func (s *setting) field(c *Config) reflect.Value {
	return reflect.ValueOf(c).Elem().FieldByIndex(s.path)
}

// Components lists the components with a log level setting: log.components.NAME or
// L03_NAME_LOG_LEVEL.
var Components = []string{"tool_registry", "permission_manager", "rate_limiter", "tool_cache", "secret_manager",
	"input_validator", "result_validator", "tool_executor", "http_executor", "builtin_executor", "discovery",
	"store", "queue", "rest", "grpc", "invoke", "health", "server"}

const (
	componentKey  = "log.components."
	componentEnv  = "L03_"
	componentTail = "_LOG_LEVEL"
	rolesKey      = "roles"
)

// check returns why a value is out of the row's bounds; "" if it is within.
func (s *setting) check(v reflect.Value) string {
	var low, high bool
	switch {
	case v.Kind() == reflect.String && s.choices != nil && !slices.Contains(s.choices, v.String()):
		named := slices.DeleteFunc(slices.Clone(s.choices), func(c string) bool { return c == "" })
		return fmt.Sprintf("is %q, which is not in this build; use %s", v, strings.Join(named, ", "))
	case v.CanFloat():
		low, high = v.Float() < float64(s.least), v.Float() > float64(s.most)
	case v.CanInt() && s.kind != level:
		low, high = v.Int() < s.least, v.Int() > s.most
	}
	switch {
	case low:
		return fmt.Sprintf("is %v, below the least of %v", v, reflect.ValueOf(s.least).Convert(v.Type()))
	case high && s.most > 0:
		return fmt.Sprintf("is %v, above the most of %v", v, reflect.ValueOf(s.most).Convert(v.Type()))
	}
	return ""
}
