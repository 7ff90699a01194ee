package postgres

import (
	"net"
	"sync"
	"sync/atomic"
	"testing"
)

// proxy is a faulty network between a store and its server.
type proxy struct {
	to     string
	l      net.Listener
	refuse atomic.Bool  // new connections are closed at once
	deaf   atomic.Bool  // the server's responses are lost, then the connection
	frozen sync.RWMutex // while locked, no data moves and no connection closes

	mu    sync.Mutex
	conns map[net.Conn]bool
	done  sync.WaitGroup
}

func newProxy(t *testing.T, to string) *proxy {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &proxy{to: to, l: l, conns: make(map[net.Conn]bool)}
	p.done.Go(p.accept)
	t.Cleanup(func() {
		p.l.Close()
		p.cut()
		p.done.Wait()
	})
	return p
}

func (p *proxy) addr() string { return p.l.Addr().String() }

// cut closes all connections.
func (p *proxy) cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for c := range p.conns {
		c.Close()
	}
}

func (p *proxy) hold(c net.Conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.conns[c] = true
}

func (p *proxy) drop(c net.Conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.conns, c)
	c.Close()
}

func (p *proxy) accept() {
	for {
		c, err := p.l.Accept()
		if err != nil {
			return
		}
		if p.refuse.Load() {
			c.Close()
			continue
		}
		s, err := net.Dial("tcp", p.to)
		if err != nil {
			c.Close()
			continue
		}
		p.hold(c)
		p.hold(s)
		p.done.Go(func() { p.copy(s, c, false) })
		p.done.Go(func() { p.copy(c, s, true) })
	}
}

// copy copies bytes until one side closes.
func (p *proxy) copy(to, from net.Conn, answers bool) {
	defer p.drop(to)
	defer p.drop(from)
	buf := make([]byte, 32<<10)
	for {
		n, err := from.Read(buf)
		if answers && p.deaf.Load() {
			return
		}
		p.frozen.RLock()
		_, failed := to.Write(buf[:n])
		p.frozen.RUnlock()
		if err != nil || failed != nil {
			return
		}
	}
}
