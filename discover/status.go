package discover

import (
	"context"
	"fmt"
	"maps"

	"github.com/toolkeep/toolkeep"
)

// Indexed reports whether search finds this version of a tool by words, and by meaning. Only the
// latest active version of a tool is searchable. Changed signals when the answer may differ.
func (x *Index) Indexed(tenant, id, version string) (searchable, embedded bool) {
	p := x.current.Load()
	at, ok := p.position(docKey{id, tenant})
	if !ok || p.docs[at].tool.Version != version {
		return false, false
	}
	return true, p.embedded(int(at))
}

// Changed returns a channel that is closed at the next change of the index: tools were added,
// removed or embedded. Call Indexed after taking the channel, not before.
func (x *Index) Changed() <-chan struct{} {
	x.turn.Lock()
	defer x.turn.Unlock()
	if x.turned == nil {
		x.turned = make(chan struct{})
	}
	return x.turned
}

// publish makes p visible to searches.
func (x *Index) publish(p *postings) {
	x.current.Store(p)
	x.turn.Lock()
	defer x.turn.Unlock()
	if x.turned != nil {
		close(x.turned)
		x.turned = nil
	}
}

// Reindex tokenises tools of all tenants again: those with these ids, or all if ids is nil. With
// embeddings, it also recomputes their vectors in the background; until then the old ones count. It
// returns the number of tools.
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

// Tools returns every tool of the index that visible lets through (nil lets all through), ordered
// by id, then tenant.
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

// Health returns an error if search compares only words although there is a model, or uses another
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
		return fmt.Errorf("%s of %s tools have vectors, and the embedding model or the vector store fails: %w; search compares by %s", have, of, e.Err, by)
	case e.Model != e.Serving && e.Of > 0:
		return fmt.Errorf("%s of %s tools are embedded by %s so far; until then search compares by %s", have, of, e.Model, by)
	}
	return nil
}
