package node

import (
	"time"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/resultcache"
)

// cacheDefaults gives the configured lifetime to tools that name none.
type cacheDefaults struct {
	*resultcache.Cache
	ttl time.Duration
}

func (c cacheDefaults) Put(k resultcache.Key, tenant, toolID string, r *toolkeep.Result, spec *toolkeep.CacheSpec) {
	if spec != nil && spec.Policy == "ttl" && spec.TTLSeconds == 0 {
		own := *spec
		own.TTLSeconds = int(c.ttl / time.Second)
		spec = &own
	}
	c.Cache.Put(k, tenant, toolID, r, spec)
}

// noCache keeps nothing; equal calls at the same time still share one execution.
type noCache struct{ *resultcache.Cache }

func (noCache) Get(resultcache.Key) (*toolkeep.Result, bool)                               { return nil, false }
func (noCache) Peek(resultcache.Key) bool                                                  { return false }
func (noCache) Put(resultcache.Key, string, string, *toolkeep.Result, *toolkeep.CacheSpec) {}
