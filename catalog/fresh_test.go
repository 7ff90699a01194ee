package catalog

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/toolkeep/toolkeep"
)

func TestFresh(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		var away atomic.Bool
		f := &Fresh{}
		go f.Watch(ctx, func(context.Context) error {
			if away.Load() {
				return errors.New("away")
			}
			return nil
		}, time.Minute, time.Now)
		time.Sleep(5 * time.Minute)
		away.Store(true)
		time.Sleep(59 * time.Second)
		synctest.Wait()
		if f.stale.Load() {
			t.Error("it is stale too early")
		}
		time.Sleep(10 * time.Second)
		synctest.Wait()
		_, _, err := f.Resolve(t.Context(), &toolkeep.Principal{Tenant: "t"}, "a.b", "", nil)
		if e := toolkeep.AsError(err); e == nil || e.Code != toolkeep.RegistryUnavailable || !e.Retryable {
			t.Errorf("stale definitions give %v", err)
		}
		away.Store(false)
		time.Sleep(5 * time.Second)
		synctest.Wait()
		if f.stale.Load() {
			t.Error("it stays stale")
		}
	})
}
