package secret

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"strconv"

	"github.com/toolkeep/toolkeep"
)

// Mark stands for what a reference gives a principal: another value, one of another
// scope, or another owner's has another Sum. What is kept of a call's result is for
// the calls with the same marks.
type Mark struct {
	Sum [32]byte
	// Blind is set where the store is not asked, so that a change of the value does not
	// show: the Sum is then the principal's and the reference's.
	Blind bool
}

// Marker is a Store that can tell its values apart without giving them, at the cost of
// a look into what is near; ok is false where there is no value that serves now.
type Marker interface {
	Mark(ctx context.Context, p *toolkeep.Principal, rest string) (text string, ok bool)
}

// Mark gives the mark of a reference. Of variables and files it is a hash of the value;
// of stores that are no Marker, such as Vault, it is Blind. ok is false where Fetch
// would fail, as far as can be told.
func (r *Resolver) Mark(ctx context.Context, p *toolkeep.Principal, ref string) (m Mark, ok bool) {
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
	marker, can := s.(Marker)
	if !can {
		return Mark{Sum: traceKey(p, ref), Blind: true}, true
	}
	text, ok := marker.Mark(ctx, p, rest)
	m.Sum = sumOf(ref, text)
	return m, ok
}

func sumOf(ref, text string) [32]byte {
	b := binary.BigEndian.AppendUint32(make([]byte, 0, 4+len(ref)+len(text)), uint32(len(ref)))
	defer func() { clear(b) }()
	b = append(append(b, ref...), text...)
	return sha256.Sum256(b)
}

// Mark implements Marker: where the secret stands and when it was put there. It reads
// the store once a scope, so that what another node has changed shows at once.
func (l *Local) Mark(ctx context.Context, p *toolkeep.Principal, rest string) (string, bool) {
	if mayLook(p, rest) != nil {
		return "", false
	}
	for _, at := range places(p, rest) {
		it, b, err := l.get(ctx, p.Tenant, at)
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

var _ Marker = (*Local)(nil)
