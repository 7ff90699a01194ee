package invoke

import (
	"context"
	"crypto/sha256"
	"fmt"
	"slices"
	"time"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/resultcache"
	"github.com/toolkeep/toolkeep/secret"
)

// recall looks for a cached result.
func (p *Pipeline) recall(ctx context.Context, a *activeCall) (*toolkeep.Result, error) {
	if !p.caches(ctx, a) {
		return nil, nil
	}
	if a.mode == modeDryRun {
		a.cache.hit = p.Results.Peek(a.cache.key)
		return nil, nil
	}
	return p.cached(a), nil
}

// caches reports whether the call may get a cached result, and sets its key.
func (p *Pipeline) caches(ctx context.Context, a *activeCall) bool {
	t := a.tool
	rule := t.Manifest.Cache
	if rule == nil || rule.Policy == "" || rule.Policy == "none" || t.Writes() || a.call.SkipCache {
		return false
	}
	if a.row.Approved != "" || p.need(a) != nil {
		return false
	}
	if a.call.Grant.Permissions() { // what a call reached that was not narrowed is not known here
		return false
	}
	if p.cuts(t.Manifest, a.keeps()) {
		return false // others get the whole
	}
	// An overlay that changes results changes the cache key.
	hash := a.row.ArgsHash
	if a.overlay.Changes() {
		d := a.overlay.Digest()
		hash = sha256.Sum256(append(hash[:], d[:]...))
	}
	noticed := true
	if len(t.Manifest.Auth) > 0 {
		var ok bool
		if hash, noticed, ok = p.withSecrets(ctx, a, hash); !ok {
			return false
		}
	}
	if p.actsForCaller(a) {
		if a.principal.Token == nil {
			return false
		}
		sum := a.principal.Token.Sum()
		hash = sha256.Sum256(append(hash[:], sum[:]...))
	}
	a.cache.rule, a.cache.key = cacheRule(*rule, a.call.CacheTTL, noticed), resultcache.KeyOf(a.principal, t, hash)
	return true
}

// cached returns the cached result, or nil.
func (p *Pipeline) cached(a *activeCall) *toolkeep.Result {
	res, ok := p.Results.Get(a.cache.key)
	if !ok {
		return nil
	}
	p.cleanShared(a, res)
	return res
}

// shares reports whether other nodes may get a call's result. One that depends on its caller's token, and one of a tool
// with secret arguments or fields, does not leave the process. One that comes from the machine of its node (files, a SQLite, a
// socket, a program) is not that of another node.
func (p *Pipeline) shares(a *activeCall) bool {
	m := a.tool.Manifest
	if m.Result != nil && len(m.Result.SensitiveFields) > 0 || p.sensitive.of(a.tool) != nil || p.actsForCaller(a) {
		return false
	}
	ex := p.Executors[m.Execution.Kind]
	if r, ok := ex.(toolkeep.MachineReader); ok && r.ReadsMachine(a.principal, a.tool) {
		return false
	}
	if r, ok := ex.(toolkeep.Reacher); ok {
		if to, err := r.Reach(a.tool); err != nil || to.Socket || to.OtherFiles {
			return false
		}
	}
	return !slices.ContainsFunc(m.Auth, func(spec toolkeep.AuthSpec) bool {
		return slices.ContainsFunc(secret.Entries(spec), toolkeep.AuthSpec.NeedsCaller)
	})
}

// heldBack returns the cached result of a tool that a breaker refuses, nil for none: a current one, or one that may stand in
// for the refusal, which is then its warning. Such a call is no miss of the cache.
func (p *Pipeline) heldBack(ctx context.Context, a *activeCall, refusal error) *toolkeep.Result {
	if !p.caches(ctx, a) {
		return nil
	}
	if res := p.lookAgain(a); res != nil {
		return res
	}
	var res *toolkeep.Result
	if p.shares(a) {
		res, _ = p.Results.FetchOnce(ctx, a.cache.key, a.principal.Tenant, a.tool.ID)
	}
	if res == nil {
		res = p.stale(a, nil, refusal)
	}
	if res != nil {
		p.cleanShared(a, res)
	}
	return res
}

// stale returns the result that stands in for one that failed, nil for none: the tool's rule has stale_if_error_s, and a
// later attempt may succeed. It has the failure as a warning.
func (p *Pipeline) stale(a *activeCall, res *toolkeep.Result, err error) *toolkeep.Result {
	if err == nil && res != nil && res.Error != nil {
		err = res.Error
	}
	e := toolkeep.AsError(err)
	if a.cache.rule.StaleIfErrorS <= 0 || e == nil || !e.Code.Info().Retryable {
		return nil
	}
	old, ok := p.Results.Stale(a.cache.key)
	if !ok {
		return nil
	}
	if res != nil {
		old.Attempts = res.Attempts
	}
	old.Warnings = append(old.Warnings, toolkeep.Warning{Code: e.Code, Details: map[string]any{"age_s": int(old.Age.Seconds())},
		Message: fmt.Sprintf("the tool gave no result, so this is the one of %d s ago: %s", int(old.Age.Seconds()), e.Message)})
	return old
}

// cacheRule is the tool's rule with the lifetime that the call requested. noticed says
// that a change of the tool's secrets changes the key; if it does not, no result is
// cached forever.
func cacheRule(rule toolkeep.CacheSpec, asked time.Duration, noticed bool) toolkeep.CacheSpec {
	if rule.Policy == "forever" && !noticed {
		rule.Policy, rule.TTLSeconds = "ttl", int(resultcache.DefaultTTL/time.Second)
	}
	if asked > 0 {
		rule.Policy, rule.TTLSeconds = "ttl", max(1, int(asked/time.Second))
	}
	return rule
}

// withSecrets adds the caller's current secrets to the hash, so that no result outlives
// its credential: if the credential changes, ends or is narrowed, the cache key
// changes. noticed is false if such a change would not be visible. ok is false if no
// alternative is available; then the cache is neither read nor written.
func (p *Pipeline) withSecrets(ctx context.Context, a *activeCall, hash [32]byte) (_ [32]byte, noticed, ok bool) {
	m := a.tool.Manifest
	b := append(make([]byte, 0, 256), hash[:]...)
	noticed = true
	for _, spec := range m.Auth {
		ready := true
		for _, s := range secret.Entries(spec) {
			if s.Type == "none" {
				continue
			}
			ref, err := a.overlay.Fill(m, s.Secret)
			if err != nil || secret.Allowed(m, ref) != nil {
				ready = false
				break
			}
			print, has := p.Secrets.Fingerprint(ctx, a.principal, ref)
			if !has {
				ready = false
				break
			}
			noticed = noticed && !print.Blind
			b = append(b, print.Sum[:]...)
			if s.NeedsCaller() { // a result that it let see is for its holder, while it holds it
				if a.principal.Token == nil {
					ready = false
					break
				}
				sum := a.principal.Token.Sum()
				b = append(b, sum[:]...)
			}
		}
		if ready { // a call uses this alternative
			return sha256.Sum256(append(b, 1)), noticed, true
		}
		if takesCaller(a.principal, spec) {
			break
		}
		b = append(b, 0)
	}
	return hash, noticed, false
}
