package crash_test

import (
	"net"
	"sync"
	"testing"
)

// A proxy's way to be cut.
type cutting int

const (
	passing    cutting = iota
	refusing           // connections are reset, new ones refused
	swallowing         // connections stay, new ones too, and what is sent is lost
)

// fault is what becomes of a piece that a client sends; the zero fault passes it on.
type fault struct {
	lose   bool   // it is lost, and so is all that comes after it on its connection
	answer string // is sent back in its place
}

// proxy stands between a node and a server: the database, Redis, Vault, or what a tool calls.
type proxy struct {
	t    *testing.T
	to   string
	addr string

	mu     sync.Mutex
	faults func(piece string) fault // of what a client sends at once, as it does a request without a long body; nil: none
	how    cutting
	l      net.Listener
	conns  map[*wire]bool
	done   sync.WaitGroup
}

// wire is one connection through the proxy.
type wire struct {
	near, far *net.TCPConn // far is nil for one that began while all was swallowed
	lost      bool         // something of it was lost: it is of no use any more
	ended     int          // sides that are done
}

// newProxy listens on an address that no other listener of this machine gets by
// itself, so that it can be given back and taken again.
func newProxy(t *testing.T, host, to string) *proxy {
	t.Helper()
	p := &proxy{t: t, to: to, addr: net.JoinHostPort(host, "0"), conns: map[*wire]bool{}}
	p.listen()
	t.Cleanup(func() {
		p.mu.Lock()
		_ = p.l.Close() // it may be closed already
		p.reset()
		p.mu.Unlock()
		p.done.Wait()
	})
	return p
}

func (p *proxy) listen() {
	p.t.Helper()
	l, err := net.Listen("tcp", p.addr)
	if err != nil {
		p.t.Fatal(err)
	}
	p.l, p.addr = l, l.Addr().String()
	p.done.Go(func() { p.accept(l) })
}

// cut changes how connections are treated. Connections that lost data stay dead afterwards without notice, as when
// a router forgot them; but if one side has given up, the other learns of it then.
func (p *proxy) cut(how cutting) {
	p.t.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	was := p.how
	p.how = how
	switch {
	case how == refusing:
		if err := p.l.Close(); err != nil {
			p.t.Error(err)
		}
		p.reset()
	case was == refusing:
		p.listen()
	}
	for w := range p.conns {
		if how == passing && w.ended > 0 {
			w.close()
		}
	}
}

// fail sets what becomes of the pieces from now on; nil: they pass.
func (p *proxy) fail(faults func(piece string) fault) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.faults = faults
}

// open says how many connections there are.
func (p *proxy) open() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.conns)
}

// reset ends all connections so that both sides notice.
func (p *proxy) reset() {
	for w := range p.conns {
		w.close()
	}
}

func (w *wire) close() {
	closeHard(w.near)
	if w.far != nil {
		closeHard(w.far)
	}
}

// closeHard is a reset and not an end.
func closeHard(c *net.TCPConn) {
	_ = c.SetLinger(0) // of a connection that is closed already
	_ = c.Close()
}

func (p *proxy) accept(l net.Listener) {
	for {
		near, err := l.Accept()
		if err != nil {
			return
		}
		p.take(near.(*net.TCPConn))
	}
}

func (p *proxy) take(near *net.TCPConn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	w := &wire{near: near, lost: p.how == swallowing}
	if !w.lost {
		far, err := net.Dial("tcp", p.to)
		if err != nil || p.how == refusing {
			closeHard(near)
			return
		}
		w.far = far.(*net.TCPConn)
		p.done.Go(func() { p.carry(w, w.near, w.far) })
	}
	p.conns[w] = true
	p.done.Go(func() { p.carry(w, w.far, w.near) })
}

// carry moves bytes from one side to the other until one ends.
func (p *proxy) carry(w *wire, to, from *net.TCPConn) {
	defer p.end(w, from)
	buf := make([]byte, 32<<10)
	for {
		n, err := from.Read(buf)
		piece := ""
		if from == w.near {
			piece = string(buf[:n])
		}
		f := p.meets(w, piece)
		if f.answer != "" {
			if _, err := from.Write([]byte(f.answer)); err != nil {
				return
			}
		}
		if n > 0 && f == (fault{}) {
			if _, err := to.Write(buf[:n]); err != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}

// meets says what becomes of what just came over the wire; piece is "" if the server sent it.
func (p *proxy) meets(w *wire, piece string) (f fault) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if piece != "" && p.faults != nil {
		f = p.faults(piece)
	}
	w.lost = w.lost || f.lose || p.how == swallowing
	f.lose = w.lost
	return f
}

// end closes a finished side. The other side learns of it, unless the connection swallows that.
func (p *proxy) end(w *wire, from *net.TCPConn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	w.ended++
	closeHard(from)
	if p.how != swallowing {
		w.close()
	}
	if w.ended == 2 || w.far == nil {
		delete(p.conns, w)
	}
}
