package discover

import (
	"context"
	"fmt"
	"maps"

	"github.com/toolkeep/toolkeep"
)

// Indexed tells whether search finds this version of a tool by its words, and by its
// meaning. Only the latest active version of a tool is searchable. Changed tells when
// the answer may be another.
func (x *Index) Indexed(tenant, id, version string) (searchable, embedded bool) {
	p := x.current.Load()
	at, ok := p.position(docKey{id, tenant})
	if !ok || p.docs[at].tool.Version != version {
		return false, false
	}
	return true, p.embedded(int(at))
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

// Reindex tokenises tools again, of all tenants: those with these ids, all where ids
// is nil. With embeddings, their vectors are computed again too, in the background; until
// then the old ones count. It tells how many tools that is.
func (x *Index) Reindex(ids []string, embeddings bool) (queued int) {
	x.mu.Lock()
	defer x.mu.Unlock()
	only := make(map[string]bool, len(ids))
	for _, id := range ids {
		only[id] = true
	}
	var change delta
	for k, old := range maps.Clone(x.docs) {
		if ids != nil && !only[k.id] {
			continue
		}
		d := x.takeApart(old.tool)
		change.replace(x, k, old, d)
		queued++
		if embeddings && x.meaning != nil {
			x.meaning.reembed(d.means)
		}
	}
	x.apply(change)
	return queued
}

// Tools gives every tool of the index that visible lets through (nil lets all through),
// ordered by id, then tenant.
func (x *Index) Tools(visible func(*toolkeep.Tool) bool) []*toolkeep.Tool {
	p := x.current.Load()
	out := make([]*toolkeep.Tool, 0, len(p.sorted))
	for _, at := range p.sorted {
		if t := p.docs[at].tool; visible == nil || visible(t) {
			out = append(out, t)
		}
	}
	return out
}

// Health tells that search compares words alone although a model is there, or by another
// model than the configured one.
func (x *Index) Health(context.Context) error {
	e := x.Embedding()
	by := "words alone"
	if e.Serving != "" {
		by = e.Serving
	}
	have, of := Thousands(e.Have), Thousands(e.Of)
	switch {
	case e.Err != nil:
		return fmt.Errorf("%s of %s tools have vectors, and the embedding model or what keeps the vectors fails: %w; search compares by %s", have, of, e.Err, by)
	case e.Model != e.Serving && e.Of > 0:
		return fmt.Errorf("%s of %s tools are embedded by %s so far; meanwhile search compares by %s", have, of, e.Model, by)
	}
	return nil
}
