package toolbox

import (
	_ "embed"
	"maps"
	"sync"

	"github.com/toolkeep/toolkeep/canon"
	"github.com/toolkeep/toolkeep/catalog"
)

//go:embed kinds.yaml
var kindsFile []byte

// kinds are the tool kinds whose SQL is part of Toolbox's own program, each as a tool of a kind
// with a statement.
var kinds = sync.OnceValues(func() (map[string]map[string]any, error) {
	docs, err := catalog.ManifestsFromYAML(kindsFile)
	if err != nil {
		return nil, err
	}
	out := map[string]map[string]any{}
	for _, raw := range docs {
		doc, err := canon.ParseObject(raw, canon.Limits{})
		if err != nil {
			return nil, err
		}
		for kind, v := range doc {
			out[kind], _ = v.(map[string]any)
		}
	}
	return out, nil
})

// withStatement returns a tool of such a kind with its statement, and every other as it is.
func withStatement(t map[string]any) map[string]any {
	kind, _ := t["kind"].(string)
	all, err := kinds()
	if err != nil || all[kind] == nil {
		return t // the tests read the file, so that err is nil
	}
	out := maps.Clone(all[kind])
	for _, member := range []string{"source", "description", "authRequired"} {
		if v, ok := t[member]; ok {
			out[member] = v
		}
	}
	return out
}
