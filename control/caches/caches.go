// Package caches is what operators see of a node's caches.
package caches

import (
	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/access"
	"github.com/toolkeep/toolkeep/discover/cache"
	"github.com/toolkeep/toolkeep/resultcache"
)

// Caches are those of one node.
type Caches struct {
	Node        string
	Results     *resultcache.Cache
	MostResults int64        // bytes
	Search      *cache.Cache // nil where the search cache is off
	MostSearch  int64        // bytes
}

// State is one cache in memory, counted since the node's start.
type State struct {
	Cache     string `json:"cache" enum:"results,search"`
	Entries   int    `json:"entries"`
	Bytes     int64  `json:"bytes"`
	MostBytes int64  `json:"most_bytes" doc:"setting of its size"`
	Hits      int64  `json:"hits" doc:"answers from memory, or from what the nodes share"`
	Misses    int64  `json:"misses"`
	Evicted   int64  `json:"evicted,omitempty" doc:"entries that were dropped, for any reason; of results alone"`
}

// List returns this node's caches. The numbers are of all tenants: E3201 but for operators (system:operate) of the home tenant.
func (c *Caches) List(p *toolkeep.Principal) ([]State, error) {
	if p.Tenant != access.HomeTenant || !p.May(toolkeep.PermOperate) {
		return nil, toolkeep.NewError(toolkeep.PermissionDenied, "the caches serve all tenants; operators of the tenant %s (permission %s) see them", access.HomeTenant, toolkeep.PermOperate)
	}
	r := c.Results.Stats()
	results := State{Cache: "results", Entries: r.Entries, Bytes: r.Bytes, MostBytes: c.MostResults, Hits: r.Hits + r.SharedHits, Misses: r.Misses}
	for _, n := range r.Evictions {
		results.Evicted += n
	}
	list := []State{results}
	if c.Search != nil {
		s := c.Search.Stats()
		list = append(list, State{Cache: "search", Entries: s.Entries, Bytes: s.Bytes, MostBytes: c.MostSearch, Hits: s.Hits + s.RemoteHits, Misses: s.Misses})
	}
	return list, nil
}
