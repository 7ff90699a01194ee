package resultcache

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"time"

	json "github.com/go-json-experiment/json"
)

const (
	// listEvery is how often a node writes its list of warm results.
	listEvery = time.Minute
	// maxWarm bounds a list, so that it fits in a shared value.
	maxWarm = 3000
	// maxLists bounds the nodes whose lists are read: those that wrote last.
	maxLists = 16
)

// Each node writes a list of its own. The lists are found by another value, the times at which nodes last wrote theirs in ms.
var listsName = []byte("warm results")

func listName(node string) []byte { return append([]byte("warm results of "), node...) }

// sendWarm writes which results of tools with cache.warm are used most on this node, for the nodes that start later.
func (c *Cache) sendWarm(ctx context.Context) {
	most := min(c.config.Warm, maxWarm)
	if most <= 0 || !c.sharing.warms.Load() {
		return
	}
	var list []byte
	for e := range c.store.Hottest() {
		if e.Value.warm {
			if list = append(list, e.Key[:]...); len(list) >= most*len(e.Key) {
				break
			}
		}
	}
	if len(list) == 0 {
		return
	}
	shared, now := c.config.Shared, c.config.Clock().UnixMilli()
	if !shared.Write(ctx, shared.Name(listName(c.config.Node)), list, maxShared, sendPatience) {
		return // the next list follows in a minute
	}
	for range 3 { // another node can overwrite it at the same moment; if it does so last, this one is missing for a minute
		times, err := c.listTimes(ctx)
		if err != nil || times[c.config.Node] == now {
			return
		}
		times[c.config.Node] = now
		last := map[string]int64{}
		for _, node := range newest(times) {
			last[node] = times[node]
		}
		if plain, err := json.Marshal(last); err == nil {
			shared.Write(ctx, shared.Name(listsName), plain, maxShared, sendPatience)
		}
	}
}

// listTimes returns when nodes wrote their lists.
func (c *Cache) listTimes(ctx context.Context) (map[string]int64, error) {
	plain, err := c.config.Shared.Read(ctx, c.config.Shared.Name(listsName), sendPatience)
	times := map[string]int64{}
	if plain != nil {
		err = json.Unmarshal(plain, &times)
	}
	return times, err
}

// newest returns the nodes that wrote last.
func newest(times map[string]int64) []string {
	nodes := slices.SortedFunc(maps.Keys(times), func(a, b string) int { return cmp.Or(cmp.Compare(times[b], times[a]), cmp.Compare(a, b)) })
	return nodes[:min(len(nodes), maxLists)]
}

// warmUp reads the results of the lists that are not in memory, hottest first. It ends early if the feed is lost; the error
// says that Config.Shared does not answer.
func (c *Cache) warmUp(ctx context.Context) error {
	if c.config.Warm <= 0 || c.config.Off {
		return nil
	}
	shared := c.config.Shared
	times, err := c.listTimes(ctx)
	if err != nil {
		return err
	}
	var lists [][]byte
	for _, node := range newest(times) {
		list, err := shared.Read(ctx, shared.Name(listName(node)), sendPatience)
		if err != nil {
			return err
		}
		lists = append(lists, list)
	}
	keys := merged(lists, c.config.Warm)
	for _, k := range keys {
		if len(c.sharing.behind) > 0 {
			return nil
		}
		if c.Peek(k) {
			continue
		}
		plain, err := shared.Read(ctx, shared.Name(k[:]), sendPatience)
		if err != nil {
			return err
		}
		c.fetched(k, plain)
	}
	if len(keys) > 0 {
		c.config.Log.Info("the result cache was warmed", "results", c.Stats().Entries, "listed", len(keys))
	}
	return nil
}

// merged returns the keys of lists, the first of each before the second of any.
func merged(lists [][]byte, most int) (keys []Key) {
	const size = len(Key{})
	seen := map[Key]bool{}
	for at, more := 0, true; more; at += size {
		more = false
		for _, list := range lists {
			if len(list) < at+size {
				continue
			}
			more = true
			if k := Key(list[at:]); !seen[k] {
				if len(keys) == most {
					return keys
				}
				seen[k] = true
				keys = append(keys, k)
			}
		}
	}
	return keys
}
