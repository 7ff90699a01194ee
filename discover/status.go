package discover

import (
	"cmp"
	"slices"
	"strings"
)

// Indexed tells whether search finds this version of a tool by its words, and by its
// meaning. Only the latest active version of a tool is searchable. Changed tells when
// the answer may be another.
func (x *Index) Indexed(tenant, id, version string) (searchable, embedded bool) {
	p := x.current.Load()
	i, ok := slices.BinarySearchFunc(p.docs, docKey{id, tenant}, func(d *doc, k docKey) int {
		return cmp.Or(strings.Compare(d.tool.ID, k.id), strings.Compare(d.tool.Tenant, k.tenant))
	})
	if !ok || p.docs[i].tool.Version != version {
		return false, false
	}
	return true, p.embedded(i)
}

// Changed gives a channel that is closed when the index next changes: tools came, went
// or were embedded. Ask Indexed after taking the channel, not before.
func (x *Index) Changed() <-chan struct{} {
	x.turn.Lock()
	defer x.turn.Unlock()
	if x.turned == nil {
		x.turned = make(chan struct{})
	}
	return x.turned
}

// publish shows p to searches.
func (x *Index) publish(p *postings) {
	x.current.Store(p)
	x.turn.Lock()
	defer x.turn.Unlock()
	if x.turned != nil {
		close(x.turned)
		x.turned = nil
	}
}

// Reindex takes tools apart anew, of all tenants: those with these ids, all where ids
// is nil. With embeddings, their vectors are made anew too, in the background; until
// then the old ones count. It tells how many tools that is.
func (x *Index) Reindex(ids []string, embeddings bool) (queued int) {
	x.mu.Lock()
	defer x.mu.Unlock()
	only := make(map[string]bool, len(ids))
	for _, id := range ids {
		only[id] = true
	}
	for k, d := range x.docs {
		if ids != nil && !only[k.id] {
			continue
		}
		x.docs[k] = x.takeApart(d.tool)
		queued++
		if embeddings && x.meaning != nil {
			x.meaning.again(x.docs[k].means)
		}
	}
	if queued > 0 {
		x.rebuild()
	}
	return queued
}
