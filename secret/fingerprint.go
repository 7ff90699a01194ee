package secret

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"strconv"

	"github.com/toolkeep/toolkeep"
)

// Fingerprint identifies the value that a reference resolves to for a principal: another value, scope or owner has another
// Sum. A kept result serves only calls with the same fingerprints.
type Fingerprint struct {
	Sum [32]byte
	// Blind is set if the store is not asked, so that a changed value does not show: Sum then covers only the
	// principal and the reference.
	Blind bool
}

// Fingerprinter is a Store that can identify its values without returning them, by a cheap local read. ok is false if no
// value serves now.
type Fingerprinter interface {
	Fingerprint(ctx context.Context, p *toolkeep.Principal, rest string) (text string, ok bool)
}

// Fingerprint returns the fingerprint of a reference. For variables and files it is a hash of the value; for stores that do not
// implement Fingerprinter, such as Vault, it is Blind. ok is false if Fetch would fail, as far as is known.
func (r *Resolver) Fingerprint(ctx context.Context, p *toolkeep.Principal, ref string) (m Fingerprint, ok bool) {
	scheme, rest, err := r.parse(ctx, ref)
	if err != nil {
		return m, false
	}
	s, stored := r.stores[scheme]
	if !stored {
		text, err := r.readOwn(p, scheme, rest, true)
		m.Sum = sumOf(ref, text)
		return m, err == nil
	}
	printer, can := s.(Fingerprinter)
	if !can {
		return Fingerprint{Sum: traceKey(p, ref), Blind: true}, true
	}
	text, ok := printer.Fingerprint(ctx, p, rest)
	m.Sum = sumOf(ref, text)
	return m, ok
}

func sumOf(ref, text string) [32]byte {
	b := binary.BigEndian.AppendUint32(make([]byte, 0, 4+len(ref)+len(text)), uint32(len(ref)))
	defer func() { clear(b) }()
	b = append(append(b, ref...), text...)
	return sha256.Sum256(b)
}

// Fingerprint implements Fingerprinter: where the secret is and when it was stored. It reads the store once per scope, so changes
// from other nodes show at once.
func (l *Local) Fingerprint(ctx context.Context, p *toolkeep.Principal, rest string) (string, bool) {
	if mayLook(p, rest) != nil {
		return "", false
	}
	for _, at := range scopedNames(p, rest) {
		it, b, err := l.lookUp(ctx, p.Tenant, at)
		if errors.Is(err, toolkeep.ErrNotFound) {
			continue
		}
		if err != nil || l.over(b.meta) {
			return "", false
		}
		return it.Tenant + "\x00" + it.ID + "\x00" + strconv.FormatInt(it.Revision, 10) + "\x00" + strconv.FormatInt(b.SetAt.UnixNano(), 10), true
	}
	return "", false
}

var _ Fingerprinter = (*Local)(nil)
