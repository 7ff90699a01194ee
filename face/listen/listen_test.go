package listen

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"testing"
)

// endless is a Server that has something under way until it is cut off.
type endless struct{ fault error }

func (endless) Serve(net.Listener) error { return nil }
func (endless) Interrupt()               {}
func (endless) Close()                   {}
func (s endless) Stop(ctx context.Context) error {
	<-ctx.Done()
	if s.fault != nil {
		return s.fault
	}
	return ctx.Err()
}

// TestShutdownCutsOff: that a request was cut off is no error, over HTTP as over other
// protocols. What else Stop returns is one.
func TestShutdownCutsOff(t *testing.T) {
	for _, fault := range []error{nil, errors.New("the socket could not be removed")} {
		l := New(slog.New(slog.DiscardHandler))
		began, ended := make(chan struct{}), make(chan struct{})
		at, err := l.HTTP(&http.Server{Handler: http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			defer close(ended)
			close(began)
			<-r.Context().Done()
		})}, "127.0.0.1:0", nil)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := l.Serve(endless{fault}, "a protocol", "127.0.0.1:0"); err != nil {
			t.Fatal(err)
		}
		asked := make(chan struct{})
		go func() {
			defer close(asked)
			if res, err := http.Get("http://" + at.String()); err == nil {
				res.Body.Close()
			}
		}()
		<-began
		late, cut := context.WithCancel(t.Context())
		cut()
		if err := l.Shutdown(late); !errors.Is(err, fault) {
			t.Errorf("Shutdown gives %v, want %v", err, fault)
		}
		<-ended
		<-asked
		l.Wait()
		http.DefaultClient.CloseIdleConnections()
	}
}
