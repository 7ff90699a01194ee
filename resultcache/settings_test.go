package resultcache

import (
	"testing"
	"time"

	"github.com/toolkeep/toolkeep"
)

// TestSettings: Off keeps nothing, and TTL serves tools that name none.
func TestSettings(t *testing.T) {
	spec := &toolkeep.CacheSpec{Policy: "ttl"}
	result := &toolkeep.Result{ToolID: "a.b", State: toolkeep.CallSucceeded, Output: []byte("1")}
	off := New(Config{Off: true})
	off.Put(Key{}, "t", "a.b", result, spec)
	if _, ok := off.Get(Key{}); ok || off.Peek(Key{}) || off.Stats().Misses != 0 {
		t.Errorf("a cache that is off gave a result: %+v", off.Stats())
	}
	for ttl, want := range map[time.Duration]time.Duration{0: DefaultTTL, 90 * time.Second: 90 * time.Second, 48 * time.Hour: MaxTTL} {
		if got := New(Config{TTL: ttl}).lifetime(spec); got != want {
			t.Errorf("TTL %v gives %v, want %v", ttl, got, want)
		}
	}
}
