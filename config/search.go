package config

import "strings"

// search checks what belongs together; the rest is checked by who uses it.
func (f *faults) search(c *Config) {
	s := &c.Search
	if s.EmbeddingsKey == "" {
		return
	}
	if s.EmbeddingsURL == "" {
		f.add("search.embeddings_url", "required", "search.embeddings_key is set; it needs search.embeddings_url")
	}
	if scheme, _, ok := strings.Cut(s.EmbeddingsKey, "://"); !ok || scheme == "context" {
		f.add("search.embeddings_key", "format", "search.embeddings_key must be a secret reference, such as env://TOOLKEEP_SECRET_EMBEDDINGS")
	}
}
