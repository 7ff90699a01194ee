package node

import (
	"time"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/recall"
)

// cacheDefaults gives the configured lifetime to tools that name none.
type cacheDefaults struct {
	*recall.Cache
	ttl time.Duration
}

func (c cacheDefaults) Put(k recall.Key, tenant, toolID string, r *toolkeep.Result, spec *toolkeep.CacheSpec) {
	if spec != nil && spec.Policy == "ttl" && spec.TTLSeconds == 0 {
		own := *spec
		own.TTLSeconds = int(c.ttl / time.Second)
		spec = &own
	}
	c.Cache.Put(k, tenant, toolID, r, spec)
}

// noCache keeps nothing; equal calls at the same time still share one execution.
type noCache struct{ *recall.Cache }

func (noCache) Get(recall.Key) (*toolkeep.Result, bool)                               { return nil, false }
func (noCache) Peek(recall.Key) bool                                                  { return false }
func (noCache) Put(recall.Key, string, string, *toolkeep.Result, *toolkeep.CacheSpec) {}
