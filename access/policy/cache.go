package policy

import (
	"crypto/sha256"
	"encoding/binary"
	"sync"
	"time"

	"github.com/toolkeep/toolkeep/access"
	"github.com/toolkeep/toolkeep/canon"
)

// Limits of the answers about calls that are kept; of those about what is shown, shownTimes as much. A full shard is cleared.
const (
	cacheShards  = 32
	cacheEntries = 65_536
	cacheBytes   = 16 << 20
	entryBytes   = 160 // of an entry besides its texts, about
	shownTimes   = 4   // so that two answers for each of 10,000 tools and 13 kinds of caller fit
)

// forever is the life of an answer that only Config.KeepFor bounds.
const forever = 1 << 62

// answer is an answer, which may be kept.
type answer struct {
	verdict access.Verdict
	visible bool
	life    time.Duration // 0: it is not kept
	until   time.Time     // of a kept one
}

// answers are the kept answers of one policy.
type answers struct {
	shards [cacheShards]struct {
		sync.RWMutex
		m     map[[32]byte]answer
		bytes int
	}
}

func (a *answers) get(key [32]byte, now time.Time) (answer, bool) {
	s := &a.shards[key[0]%cacheShards]
	s.RLock()
	v, ok := s.m[key]
	s.RUnlock()
	return v, ok && now.Before(v.until)
}

// put keeps an answer, within the limits so many times.
func (a *answers) put(key [32]byte, v answer, times int) {
	size := entryBytes + len(v.verdict.Reason) + len(v.verdict.Rule)
	for _, o := range v.verdict.Obligations {
		size += 64 + len(o.Reason) + len(o.Rule)
	}
	s := &a.shards[key[0]%cacheShards]
	s.Lock()
	defer s.Unlock()
	if s.m == nil || len(s.m) >= times*cacheEntries/cacheShards || s.bytes+size > times*cacheBytes/cacheShards {
		s.m, s.bytes = make(map[[32]byte]answer), 0
	}
	s.m[key] = v
	s.bytes += size
}

// keyOf returns the hash of everything that the policy can read of a question; ok is false if
// the answer must not be kept. Each text is preceded by its length, so that no two questions
// have the same key.
func keyOf(q *question, reads part) (key [32]byte, ok bool) {
	reads |= partAlways
	t := q.Tool
	if reads&partTime != 0 || t.Digest == "" {
		return key, false
	}
	var room [512]byte
	action := q.action
	if q.certain {
		action = "certain"
	}
	b := text(text(text(room[:0], action), t.Tenant), t.Digest)
	p := q.Principal
	for _, f := range [...]struct {
		part part
		text string
	}{
		{partSubject, p.Subject}, {partTenant, p.Tenant}, {partOnBehalf, p.OnBehalf}, {partWorkspace, p.Workspace},
		{partMethod, p.Method}, {partKeyID, p.KeyID}, {partAddress, p.Addr},
		{partOwnSession, p.Session},
	} {
		if reads&f.part != 0 {
			b = text(b, f.text)
		}
	}
	if reads&partRoles != 0 {
		b = list(b, p.Roles)
	}
	if reads&partChain != 0 {
		b = list(b, p.Chain)
	}
	if reads&partPermissions != 0 {
		b = list(b, p.Permissions)
	}
	if reads&partClaims != 0 {
		b = q.appendClaims(b)
	}
	if c := q.Call; c != nil {
		for _, f := range [...]struct {
			part part
			text string
		}{
			{partSession, c.Session}, {partPlan, c.Plan}, {partTask, c.Task}, {partParent, c.Parent}, {partFace, c.Face}, {partPriority, priority(q)},
		} {
			if reads&f.part != 0 {
				b = text(b, f.text)
			}
		}
		if reads&partAsync != 0 {
			async := byte(0)
			if c.Async {
				async = 1
			}
			b = append(b, async)
		}
		if reads&partToken != 0 {
			b = canon.Append(b, q.grant())
		}
		if reads&partArguments != 0 {
			b = canon.Append(b, q.Arguments)
		}
	}
	return sha256.Sum256(b), true
}

func text(b []byte, s string) []byte {
	return append(binary.BigEndian.AppendUint32(b, uint32(len(s))), s...)
}

func list(b []byte, all []string) []byte {
	b = binary.BigEndian.AppendUint32(b, uint32(len(all)))
	for _, s := range all {
		b = text(b, s)
	}
	return b
}
