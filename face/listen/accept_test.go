package listen

import (
	"bytes"
	"errors"
	"log/slog"
	"net"
	"os"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

// fullListener accepts no connection until a time.
type fullListener struct {
	until time.Time
	err   error
	tries int
}

func (l *fullListener) Accept() (net.Conn, error) {
	l.tries++
	if time.Now().Before(l.until) {
		return nil, &net.OpError{Op: "accept", Err: os.NewSyscallError("accept4", l.err)}
	}
	c, _ := net.Pipe()
	return c, nil
}

func (l *fullListener) Close() error   { return nil }
func (l *fullListener) Addr() net.Addr { return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 8080} }

// TestOutOfDescriptors: while there are no file descriptors, connections wait, the log says why
// once a second, health shows it, and both end with the next connection.
func TestOutOfDescriptors(t *testing.T) {
	for _, full := range []error{syscall.EMFILE, syscall.ENFILE} {
		synctest.Test(t, func(t *testing.T) {
			var log bytes.Buffer
			l := New(slog.New(slog.NewTextHandler(&log, nil)))
			defer l.Interrupt()
			inner := &fullListener{until: time.Now().Add(3500 * time.Millisecond), err: full}
			on := l.acceptor(inner)
			accepted := make(chan error)
			go func() {
				c, err := on.Accept()
				if err == nil {
					err = c.Close()
				}
				accepted <- err
			}()
			time.Sleep(3 * time.Second)
			synctest.Wait()
			if err := l.Health(t.Context()); err == nil || !strings.Contains(err.Error(), "no file descriptors left") || !strings.Contains(err.Error(), "ulimit -n") {
				t.Errorf("health: %v", err)
			}
			if err := <-accepted; err != nil {
				t.Error(err)
			}
			if err := l.Health(t.Context()); err != nil {
				t.Errorf("health after a connection: %v", err)
			}
			if lines := strings.Count(log.String(), "level=ERROR"); lines != 4 || inner.tries < 10 {
				t.Errorf("%d lines of %d tries:\n%s", lines, inner.tries, log.String())
			}
			for _, words := range []string{"no file descriptors left", "LimitNOFILE", "listener=127.0.0.1:8080"} {
				if !strings.Contains(log.String(), words) {
					t.Errorf("the log lacks %q:\n%s", words, log.String())
				}
			}
		})
	}
}

// TestAcceptorEnds: closing ends a wait for descriptors, and other errors are the server's.
func TestAcceptorEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := New(slog.New(slog.DiscardHandler))
		defer l.Interrupt()
		on := l.acceptor(&fullListener{until: time.Now().Add(time.Hour), err: syscall.EMFILE})
		ended := make(chan error)
		go func() {
			_, err := on.Accept()
			ended <- err
		}()
		synctest.Wait()
		if err := errors.Join(on.Close(), on.Close()); err != nil {
			t.Error(err)
		}
		if err := <-ended; !errors.Is(err, net.ErrClosed) {
			t.Errorf("a closed listener: %v", err)
		}
		if err := l.Health(t.Context()); err != nil {
			t.Errorf("health of a closed listener: %v", err)
		}
		other := l.acceptor(&fullListener{until: time.Now().Add(time.Hour), err: syscall.ECONNABORTED})
		if _, err := other.Accept(); !errors.Is(err, syscall.ECONNABORTED) {
			t.Errorf("another error: %v", err)
		}
	})
}
