package invoke

import (
	"context"
	"crypto/sha256"
	"time"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/access"
	"github.com/toolkeep/toolkeep/resultcache"
	"github.com/toolkeep/toolkeep/secret"
)

// recall looks for a result that may be given again.
func (p *Pipeline) recall(ctx context.Context, f *flight) (*toolkeep.Result, error) {
	t := f.tool()
	spec := t.Manifest.Cache
	owes, _ := access.NeedsApproval(t, f.call)
	f.cacheable = spec != nil && spec.Policy != "" && spec.Policy != "none" && !t.Writes() && !owes && !f.call.SkipCache
	if !f.cacheable {
		return nil, nil
	}
	hash := f.keyHash()
	if len(t.Manifest.Auth) > 0 {
		if hash, f.cacheable = p.withSecrets(ctx, f, hash); !f.cacheable {
			return nil, nil
		}
	}
	f.cacheKey = resultcache.KeyOf(f.principal, t, hash)
	return f.gate.recall(f), nil
}

// keyHash is the hash of the arguments as the cache's key has it: a context that
// changes results makes another question of the same arguments.
func (f *flight) keyHash() [32]byte {
	if !f.context.Changes() {
		return f.row.ArgsHash
	}
	d := f.context.Digest()
	return sha256.Sum256(append(f.row.ArgsHash[:], d[:]...))
}

// withSecrets adds to the hash what the tool's secrets are for the caller now, so that
// a result ends with the credential that got it: changed, deleted or expired, or with
// a narrower one before it, it asks another question. ok is false where none of the
// alternatives is at hand; then nothing is given from the cache, and nothing kept.
func (p *Pipeline) withSecrets(ctx context.Context, f *flight, hash [32]byte) (_ [32]byte, ok bool) {
	m := f.tool().Manifest
	b := append(make([]byte, 0, 256), hash[:]...)
	f.blind = false
	for _, spec := range m.Auth {
		ready := true
		for _, s := range secret.Entries(spec) {
			if s.Type == "none" {
				continue
			}
			ref, err := f.context.Fill(m, s.Secret)
			if err != nil || secret.Allowed(m, ref) != nil {
				ready = false
				break
			}
			mark, has := p.Secrets.Mark(ctx, f.principal, ref)
			if !has {
				ready = false
				break
			}
			f.blind = f.blind || mark.Blind
			b = append(b, mark.Sum[:]...)
		}
		if ready { // this is the one that a call takes
			return sha256.Sum256(append(b, 1)), true
		}
		b = append(b, 0)
	}
	return hash, false
}

// cacheSpec is the tool's cache rule with the call's own lifetime over it.
func (f *flight) cacheSpec() *toolkeep.CacheSpec {
	spec := f.tool().Manifest.Cache
	forever := f.blind && spec.Policy == "forever"
	if f.call.CacheTTL <= 0 && !forever {
		return spec
	}
	own := *spec
	own.Policy = "ttl"
	if forever {
		own.TTLSeconds = int(resultcache.DefaultTTL / time.Second)
	}
	if f.call.CacheTTL > 0 {
		own.TTLSeconds = max(1, int(f.call.CacheTTL/time.Second))
	}
	return &own
}

// clear takes out of a result that another's call brought what this caller has as a secret
// and that one had not.
func (f *flight) clear(res *toolkeep.Result) {
	if f.tool().Manifest.PublicResult() && len(res.Output) > 0 {
		res.Output = f.view().CleanJSON(res.Output)
	}
}
