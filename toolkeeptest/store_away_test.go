package toolkeeptest_test

import (
	"io"
	"net"
	"path/filepath"
	"sync"
	"testing"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/store/postgres/pgtest"
)

// link is a network to a server on which, while it is cut, nothing comes through and no
// connection ends.
type link struct {
	to    string
	on    net.Listener
	cut   sync.RWMutex
	mu    sync.Mutex
	conns []net.Conn
	done  sync.WaitGroup
}

func newLink(t *testing.T, to string) *link {
	t.Helper()
	on, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l := &link{to: to, on: on}
	l.done.Go(l.accept)
	t.Cleanup(func() {
		on.Close()
		l.mu.Lock()
		for _, c := range l.conns {
			c.Close()
		}
		l.mu.Unlock()
		l.done.Wait()
	})
	return l
}

func (l *link) accept() {
	for {
		near, err := l.on.Accept()
		if err != nil {
			return
		}
		far, err := net.Dial("tcp", l.to)
		if err != nil {
			near.Close()
			continue
		}
		l.mu.Lock()
		l.conns = append(l.conns, near, far)
		l.mu.Unlock()
		l.done.Go(func() { l.copy(far, near) })
		l.done.Go(func() { l.copy(near, far) })
	}
}

func (l *link) copy(to, from net.Conn) {
	defer to.Close()
	defer from.Close()
	_, _ = io.Copy(writerFunc(func(b []byte) (int, error) { // it ends with the connection
		l.cut.RLock()
		defer l.cut.RUnlock()
		return to.Write(b)
	}), from)
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(b []byte) (int, error) { return f(b) }

// TestStoreAway: while nothing comes from PostgreSQL any more, reading calls go on, readiness
// shows it, and writing calls are refused; without catalog.stale_for the node is not ready and
// calls are E3003. When the network is back, everything is, and no record is lost.
func TestStoreAway(t *testing.T) {
	t.Parallel()
	pg := pgtest.Start(t)
	for _, c := range []struct {
		stale, status string
		ready         int
	}{{"1h", "DEGRADED", 200}, {"0s", "DOWN", 503}} {
		t.Run("stale_for "+c.stale, func(t *testing.T) {
			net := newLink(t, pg.Addr())
			k, g := withGate(t, map[string]string{"store.dsn": pg.TCP(net.on.Addr().String(), pg.NewName(t)), "catalog.stale_for": c.stale, "store.max_staleness": "1h", "calls.record_wait": "50ms",
				"secrets.seal_key": filepath.Join(t.TempDir(), "seal.key"), "store.blobs": filepath.Join(t.TempDir(), "blobs")})
			g.openAll()
			k.Publish(gated("gate.read", "1.0.0", reads), gated("gate.write", "1.0.0", writes))
			a := admin(t, k)
			cacheIsCurrent(t, k)
			a.call("gate.write", named("before"), keyed("before")).success(t)

			net.cut.Lock()
			restored := false
			defer func() {
				if !restored {
					net.cut.Unlock()
				}
			}()
			ids := []string{a.call("gate.read", named("first")).success(t).id(t)}
			waitUntil(t, "readiness shows it", func() bool {
				r := a.do("GET", "/health/ready", "")
				return r.status == c.ready && r.text(t, "status") == c.status && r.text(t, "components", "store", "status") == "DOWN"
			})
			if c.ready == 200 {
				ids = append(ids, a.call("gate.read", named("second")).success(t).id(t))
				a.call("gate.write", named("refused"), keyed("k")).want(t, 503).refused(t, toolkeep.RecordUnavailable)
			} else {
				waitUntil(t, "calls are refused", func() bool { return a.call("gate.read", named("late")).status == 503 })
				a.call("gate.read", named("late")).refused(t, toolkeep.RegistryUnavailable)
			}

			net.cut.Unlock()
			restored = true
			waitUntil(t, "readiness is up", func() bool {
				r := a.do("GET", "/health/ready", "")
				return r.status == 200 && r.text(t, "status") == "UP"
			})
			for _, id := range ids {
				waitUntil(t, "the record is in the store", func() bool { return a.do("GET", "/api/v1/invocations/"+id, "").status == 200 })
			}
			waitUntil(t, "calls go on", func() bool { return a.call("gate.read", named("after")).status == 200 })
			a.call("gate.write", named("after"), keyed("after")).success(t)
		})
	}
}
