package openapi

import (
	"context"
	"encoding/json"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/toolkeep/toolkeep"
)

// TestMutatedDocuments puts wrong values into good documents, which random bytes rarely do.
// MUTATIONS is how many; default 400.
func TestMutatedDocuments(t *testing.T) {
	rounds := 400
	if n, err := strconv.Atoi(os.Getenv("MUTATIONS")); err == nil {
		rounds = n
	}
	var texts [][]byte
	cases, _ := filepath.Glob("testdata/*.txt")
	for _, path := range cases {
		_, files := parseCase(t, path)
		texts = append(texts, []byte(files[0].text))
	}
	for _, path := range documents(t) {
		if data, err := os.ReadFile(path); err == nil && len(data) < 30<<10 {
			texts = append(texts, data)
		}
	}
	r := rand.New(rand.NewPCG(1, uint64(rounds)))
	for range rounds {
		text := texts[r.IntN(len(texts))]
		f := &file{loc: "api.yaml", name: "api.yaml"}
		root, err := parseTree(text, f)
		if err != nil {
			t.Fatal(err)
		}
		m := &mutator{r: r, f: f}
		m.collect(root, 0)
		for range 1 + r.IntN(6) {
			m.mutate()
		}
		f.root = root
		markResources(f)
		files := &files{ctx: context.Background(), src: nowhere{}, left: 1 << 20, limit: 1 << 20, byLoc: map[string]*file{"api.yaml": f}, bad: map[string]string{}}
		plan, err := readTree(context.Background(), Options{Server: "https://a.example.com"}, files, f)
		if err != nil {
			if e := toolkeep.AsError(err); e.Code != toolkeep.ImportFailed {
				t.Fatal(err)
			}
			continue
		}
		checkPlan(t, plan)
		for _, refused := range plan.Refused {
			if len(refused.Reason) > 3000 {
				t.Errorf("a reason of %d bytes", len(refused.Reason))
			}
			if why, ok := foreign(refused.Reason); ok {
				t.Logf("%s: %s", refused.Operation, why)
			}
		}
		if t.Failed() {
			t.Fatalf("with the document\n%s", text)
		}
	}
}

// foreign reports refusals that the reader itself should have found.
func foreign(reason string) (string, bool) {
	const mark = "its manifest is refused"
	return reason, len(reason) >= len(mark) && reason[:len(mark)] == mark
}

type mutator struct {
	r     *rand.Rand
	f     *file
	objs  []*object
	lists [][]any
	vals  []any
}

func (m *mutator) collect(v any, depth int) {
	m.vals = append(m.vals, v)
	if depth > 60 {
		return
	}
	switch v := v.(type) {
	case *object:
		m.objs = append(m.objs, v)
		for _, k := range v.keys {
			m.collect(v.vals[k], depth+1)
		}
	case []any:
		m.lists = append(m.lists, v)
		for _, e := range v {
			m.collect(e, depth+1)
		}
	}
}

var mutantKeys = []string{"$ref", "type", "enum", "properties", "items", "allOf", "oneOf", "not", "required", "nullable",
	"default", "schema", "content", "parameters", "in", "name", "style", "explode", "servers", "url", "security", "get",
	"requestBody", "responses", "200", "additionalProperties", "maximum", "exclusiveMaximum", "pattern", "example",
	"examples", "discriminator", "$id", "$anchor", "$dynamicRef", "const", "if", "prefixItems", "tags", "operationId",
	"summary", "description", "deprecated", "variables", "encoding", "consumes", "produces", "collectionFormat", "host",
	"basePath", "schemes", "components", "paths", "info", "title", "dependencies", "x-nullable", "readOnly", "format"}

func (m *mutator) value() any {
	switch m.r.IntN(12) {
	case 0:
		return nil
	case 1:
		return true
	case 2:
		return json.Number([]string{"0", "-1", "1e400", "9007199254740993", "3.5", "1e3"}[m.r.IntN(6)])
	case 3:
		return []string{"", "x", "object", "string", "\x00", "a{b", "#/components/schemas/A", "http://x", "{}", "("}[m.r.IntN(10)]
	case 4:
		return []any{}
	case 5:
		return newObject(m.f, 1)
	case 6:
		o := newObject(m.f, 1)
		o.set("$ref", []string{"#", "#/paths", "#/components", "#/x", "other.yaml", "#x", "", "#/info/title", "#/definitions"}[m.r.IntN(9)])
		return o
	case 7:
		return []any{m.vals[m.r.IntN(len(m.vals))]}
	}
	return m.vals[m.r.IntN(len(m.vals))]
}

// mutate changes one place. It never puts a value into itself: parsed trees have no cycles.
func (m *mutator) mutate() {
	v := m.value()
	if len(m.lists) > 0 && m.r.IntN(4) == 0 {
		if l := m.lists[m.r.IntN(len(m.lists))]; len(l) > 0 && !holds(v, l, nil, 0) {
			l[m.r.IntN(len(l))] = v
		}
		return
	}
	o := m.objs[m.r.IntN(len(m.objs))]
	if holds(v, nil, o, 0) {
		return
	}
	key := mutantKeys[m.r.IntN(len(mutantKeys))]
	if len(o.keys) > 0 && m.r.IntN(2) == 0 {
		key = o.keys[m.r.IntN(len(o.keys))]
	}
	o.set(key, v)
}

// holds reports whether v contains the list or the object.
func holds(v any, list []any, o *object, depth int) bool {
	if depth > 100 {
		return true
	}
	switch v := v.(type) {
	case *object:
		if v == o {
			return true
		}
		for _, e := range v.vals {
			if holds(e, list, o, depth+1) {
				return true
			}
		}
	case []any:
		if len(v) > 0 && len(list) > 0 && &v[0] == &list[0] {
			return true
		}
		for _, e := range v {
			if holds(e, list, o, depth+1) {
				return true
			}
		}
	}
	return false
}
