package cache

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"hash"
	"maps"
	"math"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/toolkeep/toolkeep/discover"
)

// key identifies an answer.
type key struct {
	strategy   discover.Strategy
	query      [16]byte
	permission [16]byte
}

// String returns the key in the shared store (Discovery 5.2).
func (k key) String() string {
	b := make([]byte, 0, 96)
	b = append(append(append(b, "tool:"...), k.strategy...), ':')
	b = append(hex.AppendEncode(b, k.query[:]), ':')
	return string(hex.AppendEncode(b, k.permission[:]))
}

// key returns the key for a query; ok is false if its answer is not cached.
func (c *Cache) key(ask discover.Query) (k key, ok bool) {
	if ask.Audience == "" || ask.Session.Tenant == "" || ask.Strategy == discover.InSession {
		return key{}, false
	}
	k.strategy = ask.Strategy
	if k.strategy == "" {
		k.strategy = discover.Hybrid
	}
	h := c.hasher()
	defer c.done(h)
	text, cut := discover.CutQuestion(ask.Text) // what is read of it
	h.text(text)
	h.flag(cut)
	h.text(ask.Category)
	h.number(uint64(ask.Limit))
	if u := c.config.Usage; u != nil {
		past := u.History(ask.Session)
		if len(past.Recent) > 0 || len(past.Paired) > 0 {
			return key{}, false // its result changes from minute to minute
		}
		h.weights(past.Preferred)
		if l, yes := u.(discover.Learned); yes {
			h.learned(l.Weights(ask.Session.Tenant))
		}
		examples := c.lesson(ask.Session.Tenant)
		h.buf = append(h.buf, examples[:]...)
	}
	k.query = h.sum()
	h.text(ask.Session.Tenant)
	h.text(ask.Audience)
	h.text(c.config.Ranking)
	every := c.flushes(everyTenant)
	h.number(uint64(every.rev))
	h.number(uint64(every.gone))
	k.permission = h.sum()
	return k, true
}

// hasher hashes the parts of a key. Every part is prefixed with its length, so that no two lists
// give the same bytes.
type hasher struct {
	mac hash.Hash
	buf []byte
}

func (h *hasher) text(s string) {
	h.number(uint64(len(s)))
	h.buf = append(h.buf, s...)
}

func (h *hasher) number(n uint64) { h.buf = binary.BigEndian.AppendUint64(h.buf, n) }

func (h *hasher) flag(v bool) { h.buf = strconv.AppendBool(h.buf, v) }

func (h *hasher) weights(w map[string]float64) {
	h.number(uint64(len(w)))
	if len(w) == 0 {
		return
	}
	for _, name := range slices.Sorted(maps.Keys(w)) {
		h.text(name)
		h.number(math.Float64bits(w[name]))
	}
}

func (h *hasher) learned(w discover.Weights, ok bool) { h.buf = fmt.Appendf(h.buf, "%v %t", w, ok) }

// sum ends one part and starts the next.
func (h *hasher) sum() (out [16]byte) {
	var whole [sha256.Size]byte
	h.mac.Reset()
	h.mac.Write(h.buf)
	h.mac.Sum(whole[:0])
	h.buf = h.buf[:0]
	copy(out[:], whole[:])
	return out
}

const maxHasher = 16 << 10 // bytes that a hasher may hold in the pool

// hasher takes a hasher from the pool; done returns it.
func (c *Cache) hasher() *hasher { return c.hashers.Get().(*hasher) }

func (c *Cache) done(h *hasher) {
	if cap(h.buf) > maxHasher {
		return
	}
	h.buf = h.buf[:0]
	c.hashers.Put(h)
}

func hashers(secret []byte) *sync.Pool {
	return &sync.Pool{New: func() any { return &hasher{mac: hmac.New(sha256.New, secret), buf: make([]byte, 0, 512)} }}
}

// lesson is a tenant's learned queries as of the last check.
type lesson struct {
	at  time.Time
	sum [16]byte
}

// lesson checks them again when due. Two searches may do so concurrently.
func (c *Cache) lesson(tenant string) [16]byte {
	now := c.config.Clock()
	if l, ok := c.learned.Load(tenant); ok && now.Sub(l.(lesson).at) < learning {
		return l.(lesson).sum
	}
	examples := c.config.Usage.Examples(tenant)
	if len(examples) == 0 {
		c.learned.Delete(tenant) // cheap to compute when absent
		return [16]byte{}
	}
	h := c.hasher()
	defer c.done(h)
	for i := range examples {
		h.text(examples[i].Query)
		h.text(examples[i].Tool)
		h.number(uint64(examples[i].Count))
	}
	l := lesson{at: now, sum: h.sum()}
	c.learned.Store(tenant, l)
	return l.sum
}
