package resultcache

import (
	"crypto/sha256"
	"encoding/binary"

	"github.com/toolkeep/toolkeep"
)

// Key identifies a result: SHA-256 over everything that may change it or restrict who
// may see it.
type Key [sha256.Size]byte

// KeyOf covers the tenant, the principal (subject, workspace and on whose behalf) unless
// the tool declares its result public within the tenant, the tool's id, its exact version
// by digest, and the hash of the coerced arguments. The caller includes anything else that
// changes the result, such as the agent's context and the tool's secrets, in args.
func KeyOf(p *toolkeep.Principal, t *toolkeep.Tool, args [32]byte) Key {
	subject, behalf, workspace, audience := p.Subject, p.OnBehalf, p.Workspace, byte(1)
	if t.Manifest.PublicResult() {
		subject, behalf, workspace, audience = "", "", "", 2
	}
	var room [512]byte // on the stack; longer names move to the heap
	b := append(room[:0], audience)
	for _, s := range [...]string{p.Tenant, subject, behalf, workspace, t.Tenant, t.ID, t.Version, t.Digest} {
		b = binary.BigEndian.AppendUint32(b, uint32(len(s)))
		b = append(b, s...)
	}
	return sha256.Sum256(append(b, args[:]...))
}
