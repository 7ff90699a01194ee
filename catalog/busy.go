package catalog

import "sync"

// busy serialises changes of one tool, in all tenants, and lets changes of other tools run concurrently. One
// snapshot shows them all, so a search index is rebuilt once for many publications.
type busy struct {
	mu    sync.Mutex
	ids   map[string]bool
	freed chan struct{} // closed and replaced when ids become free
}

// take waits until no other change holds any of the ids and returns the function that frees them. It takes all at
// once or none, so two changes never deadlock.
func (b *busy) take(ids []string) (free func()) {
	b.mu.Lock()
	for b.any(ids) {
		freed := b.freed
		b.mu.Unlock()
		<-freed
		b.mu.Lock()
	}
	if b.ids == nil {
		b.ids, b.freed = map[string]bool{}, make(chan struct{})
	}
	for _, id := range ids {
		b.ids[id] = true
	}
	b.mu.Unlock()
	return func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		for _, id := range ids {
			delete(b.ids, id)
		}
		close(b.freed)
		b.freed = make(chan struct{})
	}
}

func (b *busy) any(ids []string) bool {
	for _, id := range ids {
		if b.ids[id] {
			return true
		}
	}
	return false
}
