package config

import (
	"testing"
	"time"
)

func TestRedis(t *testing.T) {
	for give, want := range map[string][]string{
		"redis: {url: 'rediss://host', password: hunter2}":         {"redis.password must be a secret reference"},
		"redis: {url: 'rediss://host', password: 'context://x'}":   {"redis.password must be a secret reference"},
		"redis: {url: 'rediss://host', password: 'ftp://x'}":       {"redis.password must be a secret reference"},
		"redis: {url: 'rediss://host', client_cert: a}":            {"redis.client_cert and redis.client_key go together"},
		"redis: {ca_file: a, server_name: b, client_cert: c}":      {"redis.ca_file is set", "redis.server_name is set", "redis.client_cert is set"},
		"search: {cache: {wait: 0s}}":                              {"search.cache.wait is 0s, below the least of 1ms"},
		"redis: {url: 'rediss://host', max_conns: 0, timeout: 1h}": {"redis.max_conns is 0", "redis.timeout is 1h0m0s, above"},
	} {
		refused(t, Sources{File: file(t, give+"\n")}, want...)
	}
	c := load(t, Sources{File: file(t, "redis: {url: 'unix:///run/redis.sock?db=2', password: 'file:///run/redis.password', prefix: 'a:'}\nsearch: {cache: {enabled: false}}\n")})
	if c.Redis.URL != "unix:///run/redis.sock?db=2" || c.Redis.Prefix != "a:" || c.Search.Cache.Enabled {
		t.Errorf("%+v %+v", c.Redis, c.Search.Cache)
	}
}

func TestSearchKey(t *testing.T) {
	for give, want := range map[string][]string{
		"search: {embeddings_url: 'http://127.0.0.1:1/v1', embeddings_key: sk-live}":       {"search.embeddings_key must be a secret reference"},
		"search: {embeddings_url: 'http://127.0.0.1:1/v1', embeddings_key: 'context://x'}": {"search.embeddings_key must be a secret reference"},
		"search: {embeddings_url: 'http://127.0.0.1:1/v1', embeddings_key: 'ftp://x'}":     {"search.embeddings_key must be a secret reference"},
		"search: {embeddings_url: 'http://127.0.0.1:1/v1', embeddings_key: 'env://'}":      {"search.embeddings_key must be a secret reference"},
		"search: {embeddings_key: 'env://TOOLKEEP_SECRET_X'}":                              {"it needs search.embeddings_url"},
		"search: {embeddings_model: m, embeddings_dimensions: 8}":                          {"search.embeddings_model is set; it needs search.embeddings_url", "search.embeddings_dimensions is set; it needs search.embeddings_url"},
		"context: {url: 'https://sessions.example', token: 'ftp://x'}":                     {"context.token must be a secret reference"},
	} {
		refused(t, Sources{File: file(t, give+"\n")}, want...)
	}
	for _, key := range []string{"secret://search/key", "vault://kv/search#key", "env://TOOLKEEP_SECRET_X", "file:///run/key"} {
		load(t, Sources{File: file(t, "search: {embeddings_url: 'http://127.0.0.1:1/v1', embeddings_model: m, embeddings_dimensions: 8, embeddings_key: '"+key+"'}\n")})
	}
}

func TestPolicy(t *testing.T) {
	for give, want := range map[string]string{
		"approvals: {endpoint: 'https://sup.example/x'}":                                                  "approvals.endpoint and approvals.endpoint_key go together",
		"approvals: {endpoint_key: 'env://TOOLKEEP_SECRET_S'}":                                            "approvals.endpoint and approvals.endpoint_key go together",
		"approvals: {endpoint: 'http://sup.example/x', endpoint_key: 'env://TOOLKEEP_SECRET_S'}":          "approvals.endpoint must be https where the service is not on this machine",
		"approvals: {endpoint: 'https://sup.example/x', endpoint_key: plain}":                             "approvals.endpoint_key must be a secret reference",
		"approvals: {endpoint_failure: deny}":                                                             "which is not set",
		"access: {mode: rbac+abac}\npolicy: {path: p, opa_url: 'http://127.0.0.1:8181/v1/data/toolkeep'}": "policy.path and policy.opa_url name a policy each",
		"access: {mode: rbac+abac}\npolicy: {path: p, bundle_url: 'https://p.example/b.tar.gz'}":          "policy.path and policy.bundle_url name a policy each",
		"access: {mode: rbac+abac}\npolicy: {abac_url: 'https://l01.example', bundle_key_file: k}":        "neither is set",
		"access: {mode: rbac+abac}\npolicy: {path: p, bundle_key_file: /nowhere/key.pem}":                 "policy.bundle_key_file: open /nowhere/key.pem",
		"access: {mode: rbac+abac}\npolicy: {bundle_url: 'oci://registry.example/p'}":                     "policy.bundle_url: a registry's address is",
		"access: {mode: rbac+abac}\npolicy: {abac_url: 'https://l01.example', token: hunter2}":            "policy.token must be a secret reference",
		"access: {mode: rbac+abac}\npolicy: {opa_url: 'http://opa.example/v1/data/toolkeep'}":             "policy.opa_url must be https where the service is not on this machine",
		"access: {mode: rbac+abac}\npolicy: {abac_url: 'https://me@l01.example'}":                         "policy.abac_url must be an http or https URL without user",
		"access: {mode: rbac+abac}\npolicy: {path: p, timeout: 1m}":                                       "policy.timeout is 1m0s, above",
	} {
		refused(t, Sources{File: file(t, give+"\n")}, want)
	}
	c := load(t, Sources{File: file(t, "access: {mode: rbac+abac}\npermission_checker: {opa_endpoint: 'http://localhost:8181/v1/data/tool_execution/allow', permission_cache: {ttl_seconds: 60}}\n")})
	if c.Policy.OPAURL != "http://localhost:8181/v1/data/tool_execution/allow" || c.Policy.CacheTTL != time.Minute || !c.Access.Attributes() {
		t.Errorf("%+v", c.Policy)
	}
	if c := load(t, Sources{Environ: []string{"L03_PERMISSION_MANAGER_CACHE_TTL_SECONDS=0"}}); c.Policy.CacheTTL != 0 {
		t.Errorf("%+v", c.Policy)
	}
}

func TestArchiveKeep(t *testing.T) {
	refused(t, Sources{File: file(t, "audit: {archive: /srv/archive, archive_keep: 30d}\n")}, "audit.archive_keep is 720h0m0s, shorter than what the store itself keeps (2160h0m0s)")
	load(t, Sources{File: file(t, "audit: {archive_keep: 30d}\n")}) // there is no archive
	if c := load(t, Sources{File: file(t, "audit: {archive: /srv/archive}\n")}); c.Audit.Wait() != 7*24*time.Hour {
		t.Errorf("%+v", c.Audit)
	}
}
