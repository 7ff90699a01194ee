package invoke

import (
	"crypto/sha256"
	"strconv"
	"sync"
)

// sequence counts equal calls within a run or session, for the call id (Agent 6.1). It
// is bounded: when full it starts over.
type sequence struct {
	mu    sync.Mutex
	seen  map[[sha256.Size]byte]int // hashed, so that long session ids take no more space
	limit int
}

func newSequence(limit int) *sequence {
	return &sequence{seen: make(map[[sha256.Size]byte]int), limit: limit}
}

func (s *sequence) next(a *activeCall) int {
	scope := a.call.Session
	if a.call.Parent != "" {
		scope = a.call.Parent + "/" + strconv.Itoa(a.call.Ordinal)
	}
	if scope == "" || a.mode == modeDryRun {
		return 1
	}
	key := sha256.Sum256([]byte(a.row.Tenant + "\x00" + scope + "\x00" + a.tool.Ref() + "\x00" + string(a.row.ArgsHash[:])))
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.seen) >= s.limit {
		clear(s.seen)
	}
	s.seen[key]++
	return s.seen[key]
}
