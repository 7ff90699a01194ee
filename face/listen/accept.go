package listen

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/toolkeep/toolkeep/egress"
)

const (
	// acceptPause is the wait before another try to accept when there are no descriptors.
	acceptPause = 50 * time.Millisecond
	// sayEvery is how often the log says so.
	sayEvery = time.Second
)

// descriptors tells the log and Health that connections cannot be accepted.
type descriptors struct {
	log *slog.Logger

	mu     sync.Mutex
	said   time.Time
	failed int // since then
	out    atomic.Int64
}

// refused notes a connection that could not be accepted.
func (d *descriptors) refused(addr net.Addr, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.failed++
	if now := time.Now(); now.Sub(d.said) >= sayEvery {
		d.log.Error("connections wait: "+egress.DescriptorsNote(), "listener", addr.String(), "tries", d.failed, "error", err)
		d.said, d.failed = now, 0
	}
}

// Health is an error while a listener can accept no connections because there are no file
// descriptors.
func (l *Listeners) Health(context.Context) error {
	if l.descriptors.out.Load() > 0 {
		return errors.New(egress.DescriptorsNote())
	}
	return nil
}

// acceptor is a listener that waits while there are no file descriptors, and says so.
type acceptor struct {
	net.Listener
	of     *descriptors
	closed chan struct{}
	once   sync.Once
}

func (l *Listeners) acceptor(on net.Listener) net.Listener {
	return &acceptor{Listener: on, of: &l.descriptors, closed: make(chan struct{})}
}

func (a *acceptor) Accept() (net.Conn, error) {
	out := false
	defer func() {
		if out {
			a.of.out.Add(-1)
		}
	}()
	for {
		c, err := a.Listener.Accept()
		if err == nil || egress.OutOfDescriptors(err) == nil {
			return c, err
		}
		if !out {
			out = true
			a.of.out.Add(1)
		}
		a.of.refused(a.Addr(), err)
		select {
		case <-time.After(acceptPause):
		case <-a.closed:
			return nil, net.ErrClosed
		}
	}
}

func (a *acceptor) Close() error {
	a.once.Do(func() { close(a.closed) })
	return a.Listener.Close()
}
