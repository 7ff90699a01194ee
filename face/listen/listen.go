// Package listen opens the listeners of the faces, and closes them once nothing is under
// way.
package listen

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync"
)

// Server answers on a listener of its own protocol; *rpc.Server is one.
type Server interface {
	Serve(l net.Listener) error // nil after Stop
	Interrupt()                 // cancels what is under way
	Close()                     // refuses new connections
	// Stop waits for what is under way. When ctx ends it cuts it off and returns ctx's error.
	Stop(ctx context.Context) error
}

// Listeners are those of a node.
type Listeners struct {
	requests  context.Context // parent of every request's context
	interrupt context.CancelFunc
	http      []*http.Server
	others    []Server
	failed    chan error
	done      sync.WaitGroup

	descriptors descriptors
}

// most bounds how many listeners there can be.
const most = 8

// New makes Listeners that listen nowhere yet.
func New(log *slog.Logger) *Listeners {
	l := &Listeners{failed: make(chan error, most), descriptors: descriptors{log: log}}
	l.requests, l.interrupt = context.WithCancel(context.Background())
	return l
}

// HTTP serves s on addr, over TLS if cert is not nil, and gives where it listens.
func (l *Listeners) HTTP(s *http.Server, addr string, cert *tls.Config) (net.Addr, error) {
	on, err := net.Listen("tcp", addr)
	if err != nil {
		return nil, fmt.Errorf("cannot listen on %s: %w", addr, err)
	}
	at := on.Addr()
	on = l.acceptor(on)
	if cert != nil {
		own := cert.Clone() // net/http adds to it what each server speaks
		on = tls.NewListener(on, own)
		s.TLSConfig = own
	}
	s.BaseContext = func(net.Listener) context.Context { return l.requests }
	l.http = append(l.http, s)
	l.done.Go(func() {
		if err := s.Serve(on); !errors.Is(err, http.ErrServerClosed) {
			l.failed <- err
		}
	})
	return at, nil
}

// Serve serves s on addr and gives where it listens. what names it in errors.
func (l *Listeners) Serve(s Server, what, addr string) (net.Addr, error) {
	on, err := net.Listen("tcp", addr)
	if err != nil {
		// s has goroutines from its construction on; it serves nothing, so it stops at once.
		return nil, errors.Join(fmt.Errorf("cannot listen on %s for %s: %w", addr, what, err), s.Stop(l.requests))
	}
	l.others = append(l.others, s)
	context.AfterFunc(l.requests, s.Interrupt)
	l.done.Go(func() {
		if err := s.Serve(l.acceptor(on)); err != nil {
			l.failed <- err
		}
	})
	return on.Addr(), nil
}

// Failed is sent what ended a listener that should still listen.
func (l *Listeners) Failed() <-chan error { return l.failed }

// Interrupt cancels the requests under way.
func (l *Listeners) Interrupt() { l.interrupt() }

// Shutdown closes the listeners and waits for what is under way until ctx ends, which
// cuts it off. That is no error.
func (l *Listeners) Shutdown(ctx context.Context) error {
	var all error
	for _, s := range l.others {
		s.Close()
	}
	for _, s := range l.http {
		if err := s.Shutdown(ctx); err != nil {
			all = errors.Join(all, s.Close())
		}
	}
	for _, s := range l.others {
		if err := s.Stop(ctx); err != ctx.Err() {
			all = errors.Join(all, err)
		}
	}
	return all
}

// Wait waits until nothing listens, after Shutdown.
func (l *Listeners) Wait() { l.done.Wait() }

// Reachable turns an unspecified address into one that a client can dial.
func Reachable(addr net.Addr) string {
	host, port, _ := net.SplitHostPort(addr.String())
	if ip := net.ParseIP(host); ip != nil && ip.IsUnspecified() {
		host = "127.0.0.1"
	}
	return net.JoinHostPort(host, port)
}

// URL is the address of a server that was given to Listeners.HTTP with cert.
func URL(addr net.Addr, cert *tls.Config) string {
	scheme := "http://"
	if cert != nil {
		scheme = "https://"
	}
	return scheme + Reachable(addr)
}
