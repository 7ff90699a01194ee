package invoke

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/toolkeep/toolkeep"
)

// probeEvery is how often a store that does not answer is asked again, and how long each
// question may take.
const probeEvery = time.Second

// errAway is why a record goes to the spool: one reading call found out that the store does not
// answer, and the others do not wait for it.
var errAway = errors.New("the store does not answer")

// StoreHealth is an error while the store does not answer calls.
func (p *Pipeline) StoreHealth() error {
	if p.away.Load() {
		return errAway
	}
	return nil
}

// record stores what the reading call with that id leaves behind, within RecordWait. After that
// the store counts as away, and the changes may be committed all the same; then the spool
// leaves them out.
func (p *Pipeline) record(ctx context.Context, id string, changes ...toolkeep.Change) error {
	if p.away.Load() {
		return errAway
	}
	done := make(chan error, 1)
	var left atomic.Bool
	p.done.Go(func() {
		err := p.apply(ctx, changes...)
		done <- err
		if err == nil && left.Load() {
			p.spool.stored.Store(id, nil)
		}
	})
	t := time.NewTimer(p.RecordWait)
	defer t.Stop()
	select {
	case err := <-done:
		return err
	case <-t.C:
	}
	left.Store(true)
	p.leave()
	return errAway
}

// leave marks the store as away until a probe finds it again.
func (p *Pipeline) leave() {
	if !p.away.CompareAndSwap(false, true) {
		return
	}
	p.Log.Warn("the store does not answer; records of reading calls go to the spool", "waited", p.RecordWait)
	if p.OnStoreAway != nil {
		p.OnStoreAway()
	}
	p.done.Go(func() {
		for p.run.Err() == nil {
			began := time.Now()
			ctx, cancel := context.WithTimeout(p.run, probeEvery)
			_, err := p.Store.Head(ctx)
			cancel()
			if err == nil {
				p.away.Store(false)
				p.Log.Info("the store answers again")
				return
			}
			select {
			case <-time.After(probeEvery - time.Since(began)):
			case <-p.run.Done():
			}
		}
	})
}

// LookUp reads from the store for a call, within RecordWait. It is an error while the store counts as away.
func (p *Pipeline) LookUp(ctx context.Context, read func(context.Context) error) error {
	if p.away.Load() {
		return errAway
	}
	limited, cancel := context.WithTimeout(ctx, p.RecordWait)
	defer cancel()
	err := read(limited)
	if err != nil && limited.Err() != nil && ctx.Err() == nil {
		p.leave()
		return errAway
	}
	return err
}
