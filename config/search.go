package config

import "strings"

// search checks what belongs together; the rest is checked by who uses it.
func (f *faults) search(c *Config) {
	s := &c.Search
	if s.EmbeddingsURL == "" {
		for _, o := range []struct {
			key string
			set bool
		}{{"search.embeddings_model", s.EmbeddingsModel != ""}, {"search.embeddings_dimensions", s.EmbeddingsDimensions != 0}, {"search.embeddings_key", s.EmbeddingsKey != ""}} {
			if o.set {
				f.add("search.embeddings_url", "required", o.key+" is set; it needs search.embeddings_url")
			}
		}
	}
	f.reference("search.embeddings_key", s.EmbeddingsKey, "env://TOOLKEEP_SECRET_EMBEDDINGS")
}

// reference checks a setting that names a secret of the server's own: there is no context
// of an agent that could name it.
func (f *faults) reference(key, value, example string) {
	if value == "" {
		return
	}
	switch scheme, rest, _ := strings.Cut(value, "://"); {
	case rest != "" && (scheme == "secret" || scheme == "vault" || scheme == "env" || scheme == "file"):
	default:
		f.add(key, "format", key+" must be a secret reference, such as "+example+"; there are secret://, vault://, env:// and file://")
	}
}
