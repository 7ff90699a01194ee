package vault

import (
	"context"
	"sync"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/toolkeep/toolkeep"
)

const (
	mountsKept = 1024
	mountFresh = 5 * time.Minute
)

// mount is a mounted engine.
type mount struct {
	path string // without slashes at its ends
	kv   int    // version of a KV engine, 0 for another engine
	seen time.Time
}

// apiPath returns the API path for the path p as people write it.
func (m mount) apiPath(p string) string {
	if m.kv != 2 {
		return p
	}
	below := p[min(len(p), len(m.path)+1):]
	if len(below) > len("data/") && below[:len("data/")] == "data/" {
		return p
	}
	return m.path + "/data/" + below
}

// mounts caches which engine is mounted at which path.
type mounts struct {
	client     *client
	configured map[string]mount

	mu   sync.Mutex
	seen map[string]mount
}

// find returns the mount above p. Vault does not nest mounts.
func (m *mounts) find(ctx context.Context, p string) (mount, error) {
	if found, ok := below(m.configured, p); ok {
		return found, nil
	}
	now := m.client.config.Now()
	m.mu.Lock()
	found, ok := below(m.seen, p)
	m.mu.Unlock()
	if ok && now.Sub(found.seen) < mountFresh {
		return found, nil
	}
	found, err := m.ask(ctx, p)
	if err != nil {
		return mount{}, err
	}
	found.seen = now
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.seen) >= mountsKept {
		clear(m.seen)
	}
	m.seen[found.path] = found
	return found, nil
}

// forget makes the next find ask again: a mount may have been upgraded.
func (m *mounts) forget(found mount) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.seen, found.path)
}

func below(all map[string]mount, p string) (mount, bool) {
	for i := len(p) - 1; i > 0; i-- {
		if p[i] == '/' {
			if m, ok := all[p[:i]]; ok {
				return m, true
			}
		}
	}
	return mount{}, false
}

// ask sends the preflight request of Vault's own command line.
func (m *mounts) ask(ctx context.Context, p string) (mount, error) {
	b, err := m.client.do(ctx, "see what is mounted at vault://"+escapePath(p)+" (its policy for the path must allow something, or vault.mounts must name the mount)",
		get(ctx, "sys/internal/ui/mounts/"+p, nil))
	if err != nil {
		return mount{}, err
	}
	defer clear(b)
	var a struct {
		Data struct {
			Path    string            `json:"path"`
			Type    string            `json:"type"`
			Options map[string]string `json:"options"`
		} `json:"data"`
	}
	if err := json.Unmarshal(b, &a); err != nil || trimmed(a.Data.Path) == "" {
		return mount{}, malformed()
	}
	found := mount{path: trimmed(a.Data.Path)}
	if len(p) <= len(found.path)+1 || p[:len(found.path)+1] != found.path+"/" {
		return mount{}, malformed()
	}
	if a.Data.Type == "kv" || a.Data.Type == "generic" {
		found.kv = 1
		if a.Data.Options["version"] == "2" {
			found.kv = 2
		}
	}
	return found, nil
}

// malformed omits the parser's reason, which may quote its input.
func malformed() *toolkeep.Error {
	return refuse(toolkeep.SecretRetrievalFailed, "Vault's answer has another form than its API says")
}
