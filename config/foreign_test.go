package config

import (
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// sign is something in the tree that comes with a part: a folder or file, or a word in its Go sources, tests and
// generated files excepted. A word that begins with - goes with the part.
type sign struct{ path, word string }

// signs are those of the parts that rows may say are missing. A row about a part of which one stands is not true any
// more: give it an effect.
var signs = map[part][]sign{
	breakersInRedis: {{"store/redis", "limit/breaker"}},
	catalogOutside:  {{"config", `key:"catalog.entries`}},
	checkpoints:     {{"checkpoint", ""}, unhonoured("checkpoint"), {"invoke", "toolkeep.CheckpointFailed"}, {"config", `key:"checkpoints.`}},
	documents:       {{"document", ""}, {"documents", ""}, unhonoured("document_dependencies"), {"invoke", "toolkeep.DocumentUnavailable"}, {"config", `key:"documents.`}},
	patterns:        {{"config", `key:"tools.patterns`}},
	permissionCache: {{"access", "store/redis"}, {"config", `key:"access.cache`}},
	remoteStore:     {{"store/remote", ""}, {"config", `key:"store.url`}},
	sandboxes:       {{"sandbox", ""}, unhonoured("execution/sandbox"), {"config", `key:"sandbox`}},
	supervision:     {{"supervise", ""}, {"supervision", ""}, {"config", `key:"supervision.`}},
}

// unhonoured is the sign that the catalogue does not warn of a manifest's field any more.
func unhonoured(pointer string) sign {
	return sign{"catalog/unhonoured.go", `-{pointer: "/` + pointer + `"`}
}

// stands reports whether the tree has the sign.
func stands(t *testing.T, s sign) bool {
	t.Helper()
	root := filepath.Join("..", s.path)
	if _, err := os.Stat(root); err != nil {
		return false
	}
	if s.word == "" {
		return true
	}
	word, goes := strings.CutPrefix(s.word, "-")
	found := false
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || found || d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") || strings.HasSuffix(path, "_gen.go") {
			return err
		}
		text, err := os.ReadFile(path)
		found = strings.Contains(string(text), word)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return found != goes
}

// A row without effect names the part that it needs, and this build lacks that part.
func TestNoEffectOnlyWithoutThePart(t *testing.T) {
	used := map[part]bool{}
	for i := range foreignSettings {
		s := &foreignSettings[i]
		if s.means != "" {
			if s.needs != "" || byName[s.means] == nil || byName[s.means].path == nil {
				t.Errorf("%s is an alias of %s and needs %q", s.name(), s.means, s.needs)
			}
			continue
		}
		if len(signs[s.needs]) == 0 {
			t.Errorf("%s has no effect and names no missing part; what it is about stands, so make it an alias", s.name())
		}
		used[s.needs] = true
	}
	for p, all := range signs {
		if !used[p] {
			t.Errorf("no row needs %q", p)
		}
		for _, s := range all {
			if stands(t, s) {
				t.Errorf("%s %s is in the tree, and rows say: %s", s.path, s.word, p)
			}
		}
	}
	// What does stand is found in the same ways.
	for _, s := range []sign{{"discover/remote", ""}, {"invoke", "RetryableStatusCodes"}, unhonoured("retry"), {"config", `key:"redis.url`}} {
		if !stands(t, s) {
			t.Errorf("%s %s is not found", s.path, s.word)
		}
	}
}

func TestAliasesThatChoose(t *testing.T) {
	const url = "search: {embeddings_url: 'http://127.0.0.1:1/v1'}\n"
	both := load(t, Sources{File: file(t, "registry: {embedding_model: m, embedding_dimensions: 8}\n"), Environ: []string{"TOOLKEEP_SEARCH_EMBEDDINGS_URL=http://127.0.0.1:1/v1"}})
	if both.Search.EmbeddingsModel != "m" || both.Search.EmbeddingsDimensions != 8 || both.Search.Model != "auto" {
		t.Errorf("%+v", both.Search)
	}
	own := load(t, Sources{File: file(t, "registry: {embedding_model: all-MiniLM-L6-v2, embedding_dimensions: 384, ollama_base_url: ''}\n")})
	if own.Search.Model != "all-MiniLM-L6-v2" || own.Search.EmbeddingsModel != "" || own.Search.EmbeddingsDimensions != 0 {
		t.Errorf("%+v", own.Search)
	}
	// An empty alias says nothing beside another name of the row, whichever comes first.
	for _, give := range []string{
		"search: {embeddings_url: 'http://127.0.0.1:1/v1', embeddings_model: m}\nregistry: {ollama_base_url: '', embedding_model: '', embedding_dimensions: 8}\n",
		"search: {embeddings_url: 'http://127.0.0.1:1/v1', embeddings_model: m}\nregistry: {ollama_base_url: null, embedding_dimensions: 8}\n",
	} {
		s := load(t, Sources{File: file(t, give)}).Search
		if s.EmbeddingsURL != "http://127.0.0.1:1/v1" || s.EmbeddingsModel != "m" || s.EmbeddingsDimensions != 8 {
			t.Errorf("%+v", s)
		}
	}
	if v := load(t, Sources{Environ: []string{"L03_VAULT_ENDPOINT=", "L03_EXTERNAL_ADAPTER_VAULT_ADDRESS=https://vault:8200", "TOOLKEEP_VAULT_TOKEN=t"}}).Vault; v.Address != "https://vault:8200" {
		t.Errorf("%+v", v)
	}
	refused(t, Sources{Environ: []string{"L03_VAULT_ENDPOINT=https://vault:8200", "TOOLKEEP_VAULT_ADDRESS=", "TOOLKEEP_VAULT_TOKEN=t"}}, "contradicts")
	for _, src := range []Sources{
		{File: file(t, "result_validator: {type_coercion: {rules: }}\n")}, {File: file(t, "result_validator: {type_coercion: {rules: ''}}\n")},
		{Environ: []string{"L03_RESULT_VALIDATOR_TYPE_COERCION_RULES="}}, {Environ: []string{"L03_RESULT_VALIDATOR_TYPE_COERCION_RULES=null"}},
	} {
		if c := load(t, src); !slices.Equal(c.Tools.Targets(), load(t, Sources{}).Tools.Targets()) {
			t.Errorf("%+v: %q", src, c.Tools.CoerceTo)
		}
	}
	if !slices.Equal(builtModels, byName["search.model"].choices) {
		t.Errorf("%q", builtModels)
	}
	for give, want := range map[string]string{
		"registry: {embedding_model: mistral:7b}\n":                                                                      `"mistral:7b" is a model of an embedding service, and none is set; set search.embeddings_url`,
		"registry: {embedding_dimensions: 768}\n":                                                                        "it is 768, and vectors of the built-in model have 384 numbers",
		"registry: {embedding_dimensions: many}\n":                                                                       "is not a whole number",
		"registry: {semantic_search_threshold: 2}\n":                                                                     "search.threshold is 2, above the most of 1",
		url + "registry: {ollama_base_url: 'http://127.0.0.1:2'}\n":                                                      "contradicts",
		"registry: {embedding_model: none}\nsearch: {model: auto}\n":                                                     "contradicts search.model",
		"external_adapter: {retry: {retryable_status_codes: [429, 700]}}\n":                                              `"700" is not an HTTP status code`,
		"external_adapter: {retry: {max_attempts: 11}}\n":                                                                "tools.retry.max_attempts is 11, above the most of 10",
		"external_adapter: {retry: {jitter: some}}\n":                                                                    `tools.retry.jitter is "some"`,
		"external_adapter: {rate_limiting: {burst_size: -1}}\n":                                                          "limits.burst is -1",
		"external_adapter: {rate_limiting: {algorithm: gcra}}\n":                                                         `limits.algorithm is "gcra"`,
		"limits: {upstreams: [api.example.com]}\n":                                                                       `limits.upstreams: "api.example.com" is not the name of an upstream`,
		"limits: {upstreams: ['host:a=1']}\n":                                                                            `limits.upstreams: "host:a=1" is not the name of an upstream`,
		"limits: {upstreams: ['host:https://a=1']}\n":                                                                    `limits.upstreams: "host:https://a=1" is not the name of an upstream`,
		"limits: {upstreams: ['host:https://a:443=1']}\n":                                                                `limits.upstreams: "host:https://a:443=1" is not the name of an upstream`,
		"limits: {upstreams: ['host:=5']}\n":                                                                             `limits.upstreams: "host:=5" is not the name of an upstream`,
		"limits: {upstreams: ['host::443=5']}\n":                                                                         `limits.upstreams: "host::443=5" is not the name of an upstream`,
		"limits: {upstreams: ['host:a:0=5']}\n":                                                                          `limits.upstreams: "host:a:0=5" is not the name of an upstream`,
		"limits: {upstreams: ['host:a:65536=5']}\n":                                                                      `limits.upstreams: "host:a:65536=5" is not the name of an upstream`,
		"limits: {upstreams: ['host:::1:80=5']}\n":                                                                       `limits.upstreams: "host:::1:80=5" is not the name of an upstream`,
		"limits: {upstreams: ['host:a/b:80=5']}\n":                                                                       `limits.upstreams: "host:a/b:80=5" is not the name of an upstream`,
		"limits: {upstreams: ['mcp:=5']}\n":                                                                              `limits.upstreams: "mcp:=5" is not the name of an upstream`,
		"limits: {upstreams: ['mcp:my_server=1']}\n":                                                                     `limits.upstreams: "mcp:my_server=1" is not the name of an upstream`,
		"limits: {upstreams: ['mcp:a:1=1']}\n":                                                                           `limits.upstreams: "mcp:a:1=1" is not the name of an upstream`,
		"limits: {upstreams: ['host:a:443=1', 'host:A:443=2']}\n":                                                        `limits.upstreams: host:a:443 stands twice`,
		"limits: {upstreams: ['host:a:443=0']}\n":                                                                        `limits.upstreams: "host:a:443=0" is not`,
		"executor: {default_resource_limits: {timeout_seconds: 90000}}\n":                                                "tools.timeout is 25h0m0s, above the most of 24h0m0s",
		"tools: {coerce_to: [time]}\n":                                                                                   "tools.coerce_to is time; there are number, integer, boolean, date",
		"result_validator: {type_coercion: {rules: 5}}\n":                                                                "no list of rules",
		"result_validator: {type_coercion: {rules: [number]}}\n":                                                         "there is no rule from",
		"result_validator: {type_coercion: {rules: [{from_type: a, to_type: b}]}}\n":                                     `there is no rule from "a" to "b" by ""; there are string to number by parseFloat`,
		"result_validator: {type_coercion: {rules: [{from_type: string, to_type: boolean, coercion_function: eval}]}}\n": `by "eval"`,
	} {
		refused(t, Sources{File: file(t, give)}, want)
	}
	for give, want := range map[string][]string{
		"[]": {}, `[{"from_type":"string","to_type":"boolean"}]`: {"boolean"},
		`[{"from_type":"string","to_type":"integer","coercion_function":"parseInt"},{"from_type":"string","to_type":"number"}]`: {"integer", "number"},
	} {
		c := load(t, Sources{Environ: []string{"L03_RESULT_VALIDATOR_TYPE_COERCION_RULES=" + give}})
		if got := c.Tools.Targets(); !slices.Equal(got, want) || got == nil {
			t.Errorf("%s: %q", give, got)
		}
	}
	if d := load(t, Sources{}).ToolDefaults(); d.Timeout != 30*time.Second || d.Lenient || d.Coerce || d.Retry.MaxAttempts != 3 || *d.Retry.BaseDelayMS != 1000 ||
		*d.Retry.MaxDelayMS != 32_000 || d.Retry.Jitter != "full" || d.Retry.RetryableStatusCodes != nil || d.CacheTTL != 5*time.Minute {
		t.Errorf("the defaults are not those of the manifest's schema: %+v", d)
	}
}

// TestSupervisorOfTheDocument: the names of L08 set approvals.endpoint and its time limit, and a note says what has no
// effect.
func TestSupervisorOfTheDocument(t *testing.T) {
	const endpoint, key = "L03_L08_ENDPOINT=https://l08.example/e", "TOOLKEEP_APPROVALS_ENDPOINT_KEY=env://X"
	const limit = "L03_L08_ESCALATION_TIMEOUT_SECONDS=301"
	for _, c := range []struct {
		environ         []string
		endpoint, notes string
	}{
		{[]string{endpoint, key}, "https://l08.example/e", ""},
		{[]string{endpoint, key, limit}, "https://l08.example/e", "L03_L08_ESCALATION_TIMEOUT_SECONDS has no effect: approvals.endpoint_failure is wait"},
		{[]string{endpoint, key, limit, "TOOLKEEP_APPROVALS_ENDPOINT_FAILURE=deny"}, "https://l08.example/e", ""},
		{[]string{"L03_L08_ENDPOINT=grpc://l08:50051"}, "", "L03_L08_ENDPOINT has no effect"},
		{[]string{"L03_L08_ENDPOINT="}, "", ""},
	} {
		got := load(t, Sources{Environ: c.environ})
		if notes := strings.Join(got.Notes, "\n"); got.Approvals.Endpoint != c.endpoint || !strings.HasPrefix(notes, c.notes) || (notes == "") != (c.notes == "") {
			t.Errorf("%q: %q, notes %q", c.environ, got.Approvals.Endpoint, notes)
		}
	}
	refused(t, Sources{Environ: []string{endpoint}}, "approvals.endpoint and approvals.endpoint_key go together")
	refused(t, Sources{Environ: []string{endpoint, key, "L03_L08_ENABLED=false"}}, "L03_L08_ENABLED is false")
}

// Every setting with TTL in its name takes a day at most.
func TestTTLs(t *testing.T) {
	for i := range settings {
		s := &settings[i]
		if !strings.Contains(strings.ToUpper(s.name()), "TTL") {
			continue
		}
		over, name := "25h", "TOOLKEEP_"
		if s.kind == whole {
			over, name = "90000", "L03_"
		}
		if !strings.HasPrefix(s.env, name) {
			t.Errorf("%s is no duration and no number", s.name())
		}
		if s.unit == 24*time.Hour || s.unit == time.Millisecond {
			t.Errorf("%s is not in seconds", s.name())
		}
		// catalog.stale_for and cache.ttl bound their aliases.
		_, err := Load(Sources{Environ: []string{s.env + "=" + over}})
		if got := strings.Join(messages(err), "\n"); err == nil || !strings.Contains(got, "above the most of") {
			t.Errorf("%s=%s: %v %s", s.env, over, err, got)
		}
	}
}
