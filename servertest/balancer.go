package servertest

import (
	"io"
	"net"
	"sync"
	"testing"
	"time"
)

// Balancer is a plain TCP balancer: it knows nothing of HTTP or health, and gives each connection to
// the next backend that accepts it.
type Balancer struct {
	Addr string

	l        net.Listener
	mu       sync.Mutex
	backends []string
	next     int
	open     map[net.Conn]bool
	closed   bool
	done     sync.WaitGroup
}

// NewBalancer listens on loopback until the test ends, without backends at first.
func NewBalancer(t testing.TB) *Balancer {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	b := &Balancer{Addr: l.Addr().String(), l: l, open: map[net.Conn]bool{}}
	b.done.Go(b.accept)
	t.Cleanup(func() {
		_ = l.Close() // it is closed but once
		b.mu.Lock()
		b.closed = true
		for c := range b.open {
			_ = c.Close() // its other side may have ended it
		}
		b.mu.Unlock()
		b.done.Wait()
	})
	return b
}

// To sets the backends of new connections; those that are open stay.
func (b *Balancer) To(backends ...string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.backends = backends
}

func (b *Balancer) accept() {
	for {
		near, err := b.l.Accept()
		if err != nil {
			return
		}
		b.done.Go(func() {
			defer b.close(near)
			if far := b.dial(); far != nil && b.keep(near) && b.keep(far) {
				defer b.close(far)
				b.done.Go(func() {
					_, _ = io.Copy(far, near) // either side may end it
					_ = far.(*net.TCPConn).CloseWrite()
				})
				_, _ = io.Copy(near, far)
			}
		})
	}
}

// dial tries each backend once; nil if none accepts.
func (b *Balancer) dial() net.Conn {
	b.mu.Lock()
	backends, first := b.backends, b.next
	b.next++
	b.mu.Unlock()
	for i := range backends {
		if c, err := net.DialTimeout("tcp", backends[(first+i)%len(backends)], time.Second); err == nil {
			return c
		}
	}
	return nil
}

// keep notes a connection that ends with the test; false after it.
func (b *Balancer) keep(c net.Conn) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		_ = c.Close()
		return false
	}
	b.open[c] = true
	return true
}

func (b *Balancer) close(c net.Conn) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.open, c)
	_ = c.Close() // it may be closed already
}
