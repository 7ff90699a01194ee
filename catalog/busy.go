package catalog

import "sync"

// busy keeps changes of one tool apart, in whatever tenants it is, and lets those of
// others run at the same time: they meet again where one snapshot shows them all, so that
// a search index is rebuilt once for many publications.
type busy struct {
	mu    sync.Mutex
	ids   map[string]bool
	freed chan struct{} // closed and replaced when ids become free
}

// take waits until nothing else changes any of the tools and gives what frees them. All
// are taken at once or none, so that two changes never wait for each other.
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
