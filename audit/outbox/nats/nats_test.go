package nats_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	client "github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/audit/outbox"
	"github.com/toolkeep/toolkeep/audit/outbox/nats"
	"github.com/toolkeep/toolkeep/egress"
)

const topic = "tool-execution-events"

// run runs a server; a free port is chosen.
func run(t *testing.T, o server.Options) *server.Server {
	t.Helper()
	o.Host, o.Port, o.JetStream, o.StoreDir, o.Username, o.Password, o.NoSigs, o.NoLog = "127.0.0.1", -1, true, t.TempDir(), "toolkeep", "right", true, true
	s, err := server.NewServer(&o)
	if err != nil {
		t.Fatal(err)
	}
	s.Start()
	t.Cleanup(func() { s.Shutdown(); s.WaitForShutdown() })
	if !s.ReadyForConnections(30 * time.Second) {
		t.Fatal("the server does not take connections")
	}
	return s
}

// connect connects a client of the test.
func connect(t *testing.T, s *server.Server, options ...client.Option) *client.Conn {
	t.Helper()
	conn, err := client.Connect(s.ClientURL(), append(options, client.UserInfo("toolkeep", "right"))...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(conn.Close)
	return conn
}

// start runs a server with a stream in memory.
func start(t *testing.T) (*server.Server, jetstream.Stream) {
	t.Helper()
	s := run(t, server.Options{})
	return s, makeStream(t, connect(t, s))
}

func makeStream(t *testing.T, conn *client.Conn) jetstream.Stream {
	t.Helper()
	js, err := jetstream.New(conn)
	if err != nil {
		t.Fatal(err)
	}
	stream, err := js.CreateStream(t.Context(), jetstream.StreamConfig{Name: "events", Subjects: []string{topic + ".>"}, Storage: jetstream.MemoryStorage, MaxMsgSize: 1000})
	if err != nil {
		t.Fatal(err)
	}
	return stream
}

func tcp(ctx context.Context, addr string) (net.Conn, error) {
	var d net.Dialer
	return d.DialContext(ctx, "tcp", addr)
}

func config(address, password string) nats.Config {
	return nats.Config{URL: address, Subject: topic, Username: "toolkeep", Password: func(context.Context) (string, error) { return password, nil }, Dial: tcp}
}

func sinkOf(t *testing.T, c nats.Config) *nats.Sink {
	t.Helper()
	s := nats.New(c)
	t.Cleanup(func() { s.Close() })
	return s
}

func sink(t *testing.T, address, password string) *nats.Sink {
	t.Helper()
	return sinkOf(t, config(address, password))
}

func events(from, to int) (list []outbox.Event) {
	for i := from; i < to; i++ {
		list = append(list, outbox.Event{ID: fmt.Sprint(i), Type: "ai.agent.tool.succeeded", Writer: 1, Number: int64(i), JSON: fmt.Appendf(nil, `{"id":"%d"}`, i)})
	}
	return list
}

func deliver(t *testing.T, s *nats.Sink, list []outbox.Event) (int, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	return s.Deliver(ctx, list)
}

// stored are the ids in a stream, by their order.
func stored(t *testing.T, stream jetstream.Stream) (ids []string) {
	t.Helper()
	info, err := stream.Info(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for seq := uint64(1); seq <= info.State.LastSeq; seq++ {
		m, err := stream.GetMsg(t.Context(), seq)
		if err != nil {
			t.Fatal(err)
		}
		if m.Subject != topic+".tool.succeeded" || m.Header.Get("Content-Type") != "application/cloudevents+json; charset=UTF-8" {
			t.Errorf("%s, %v", m.Subject, m.Header)
		}
		ids = append(ids, strings.TrimSuffix(strings.TrimPrefix(string(m.Data), `{"id":"`), `"}`))
	}
	return ids
}

// TestDeliver: events are in order, what is repeated is dropped, and what is too large for the stream or the server is refused.
func TestDeliver(t *testing.T) {
	srv, stream := start(t)
	s := sink(t, srv.ClientURL(), "right")
	for _, part := range [][2]int{{0, 4}, {2, 6}} {
		if n, err := deliver(t, s, events(part[0], part[1])); n != 4 || err != nil {
			t.Fatalf("%d, %v", n, err)
		}
	}
	for size, text := range map[int]string{2000: "stream", 2 << 20: "server"} {
		list := events(6, 8)
		list[1].JSON = []byte(`"` + strings.Repeat("x", size) + `"`)
		n, err := deliver(t, s, list)
		if _, ok := errors.AsType[*outbox.Refused](err); n != 1 || !ok {
			t.Errorf("too large for the %s: %d, %v", text, n, err)
		}
	}
	if got := stored(t, stream); !slices.Equal(got, []string{"0", "1", "2", "3", "4", "5", "6"}) {
		t.Errorf("%v", got)
	}
}

// TestDown: a wrong password, and a server that goes and comes back.
func TestDown(t *testing.T) {
	down := func(what string, s *nats.Sink) {
		t.Helper()
		n, err := deliver(t, s, events(0, 1))
		if _, refused := errors.AsType[*outbox.Refused](err); n != 0 || err == nil || refused || strings.Contains(err.Error(), "wrong") {
			t.Errorf("%s: %d, %v", what, n, err)
		}
	}
	srv, _ := start(t)
	down("the password is wrong", sink(t, srv.ClientURL(), "wrong"))
	// The name leads to the first server, and then to the one that comes after it, whatever its port is.
	var at atomic.Pointer[net.TCPAddr]
	at.Store(srv.Addr().(*net.TCPAddr))
	c := config("nats://nats.test:4222", "right")
	c.Dial = func(ctx context.Context, _ string) (net.Conn, error) { return tcp(ctx, at.Load().String()) }
	s := sinkOf(t, c)
	if n, err := deliver(t, s, events(0, 2)); n != 2 || err != nil {
		t.Fatalf("%d, %v", n, err)
	}
	gone, err := net.Listen("tcp", "127.0.0.1:0") // a port that no other process gets, and that does not answer as NATS
	if err != nil {
		t.Fatal(err)
	}
	defer gone.Close()
	go func() {
		for {
			conn, err := gone.Accept()
			if err != nil {
				return
			}
			conn.Close()
		}
	}()
	at.Store(gone.Addr().(*net.TCPAddr))
	srv.Shutdown()
	srv.WaitForShutdown()
	down("the server is gone", s)
	next, stream := start(t)
	at.Store(next.Addr().(*net.TCPAddr))
	if n, err := deliver(t, s, events(0, 3)); n != 3 || err != nil {
		t.Fatalf("%d, %v", n, err)
	}
	if got := stored(t, stream); !slices.Equal(got, []string{"0", "1", "2"}) {
		t.Errorf("%v", got)
	}
}

// TestName: a server inside is reached by the name that the guard allows, and by no other.
func TestName(t *testing.T) {
	srv, _ := start(t)
	port := srv.Addr().(*net.TCPAddr).Port
	address := fmt.Sprintf("nats://localhost:%d", port)
	for name, ok := range map[string]bool{"localhost": true, "elsewhere.test": false} {
		c := config(address, "right")
		c.Dial = egress.PoolConfig{}.Dialer(&egress.Guard{Allow: []toolkeep.HostPort{{Host: name, Port: port}}})
		n, err := deliver(t, sinkOf(t, c), events(0, 2))
		if ok && (n != 2 || err != nil) || !ok && (n != 0 || toolkeep.AsError(err).Code != toolkeep.DestinationForbidden) {
			t.Errorf("the guard allows %s: %d, %v", name, n, err)
		}
	}
}

// TestSilent: a server that takes the connection and says nothing holds a delivery only until its context ends, the connect
// until its own time is over, and nothing after Close.
func TestSilent(t *testing.T) {
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	c := config("nats://"+silent.Addr().String(), "right")
	c.Timeout = time.Minute
	s := sinkOf(t, c)
	ctx, cancel := context.WithCancel(t.Context())
	conns := make(chan net.Conn, 1)
	go func() {
		conn, err := silent.Accept()
		if err != nil {
			t.Error(err)
		}
		conns <- conn
		cancel()
	}()
	if n, err := s.Deliver(ctx, events(0, 1)); n != 0 || !errors.Is(err, context.Canceled) {
		t.Errorf("%d, %v", n, err)
	}
	conn := <-conns
	defer conn.Close()
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	if raw, err := io.ReadAll(conn); len(raw) > 0 || err != nil {
		t.Errorf("after Close the server reads %q, %v", raw, err)
	}
	c.Timeout = 50 * time.Millisecond
	if n, err := deliver(t, sinkOf(t, c), events(0, 1)); n != 0 || err == nil || !strings.Contains(err.Error(), "within 50ms") {
		t.Errorf("%d, %v", n, err)
	}
}

// TestSlowConnect: a connect that takes longer than a delivery may is there for the next one.
func TestSlowConnect(t *testing.T) {
	srv, _ := start(t)
	c := config(srv.ClientURL(), "right")
	ctx, cancel := context.WithCancel(t.Context())
	var dials atomic.Int32
	ready := make(chan struct{})
	c.Dial = func(of context.Context, addr string) (net.Conn, error) {
		dials.Add(1)
		cancel()
		<-ready
		return tcp(of, addr)
	}
	s := sinkOf(t, c)
	if n, err := s.Deliver(ctx, events(0, 1)); n != 0 || !errors.Is(err, context.Canceled) {
		t.Errorf("%d, %v", n, err)
	}
	close(ready)
	if n, err := deliver(t, s, events(0, 1)); n != 1 || err != nil || dials.Load() != 1 {
		t.Errorf("%d, %v after %d connects", n, err, dials.Load())
	}
}

// TestAsksForTLS: with nats:// too, a server that asks for TLS is known by the authorities of the settings.
func TestAsksForTLS(t *testing.T) {
	known := httptest.NewTLSServer(nil) // for its certificate
	defer known.Close()
	roots := x509.NewCertPool()
	roots.AddCert(known.Certificate())
	srv := run(t, server.Options{TLS: true, TLSConfig: &tls.Config{Certificates: known.TLS.Certificates}})
	makeStream(t, connect(t, srv, client.Secure(&tls.Config{RootCAs: roots})))
	address := "nats://" + srv.Addr().String()
	c := config(address, "right")
	c.TLS = &tls.Config{RootCAs: x509.NewCertPool()}
	if n, err := deliver(t, sinkOf(t, c), events(0, 1)); n != 0 || err == nil {
		t.Errorf("with other authorities: %d, %v", n, err)
	}
	c.TLS = &tls.Config{RootCAs: roots}
	if n, err := deliver(t, sinkOf(t, c), events(0, 1)); n != 1 || err != nil {
		t.Errorf("%d, %v", n, err)
	}
}

// TestAcknowledgements: events are under way together, and those before the first that is not acknowledged count, whatever
// became of the later ones. An answer that is late costs no connection.
func TestAcknowledgements(t *testing.T) {
	const n = 8
	for name, c := range map[string]struct {
		third string // answer to the event 3; "" is none
		kind  func(error) bool
	}{
		"all":       {third: `{"stream":"events","seq":4}`},
		"a failure": {third: `{"error":{"code":503,"err_code":10077,"description":"maximum messages exceeded"}}`, kind: func(err error) bool { _, refused := errors.AsType[*outbox.Refused](err); return !refused }},
		"too large": {third: `{"error":{"code":400,"err_code":10054,"description":"message size exceeds maximum allowed"}}`, kind: func(err error) bool { _, refused := errors.AsType[*outbox.Refused](err); return refused }},
		"late":      {kind: func(err error) bool { return errors.Is(err, context.Canceled) }},
	} {
		t.Run(name, func(t *testing.T) {
			srv := run(t, server.Options{})
			ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
			defer cancel()
			var mu sync.Mutex
			var waiting []*client.Msg
			first := true // delivery
			// What answers is not a stream: it takes the first event, and answers the others when all are there.
			stream := connect(t, srv)
			if _, err := stream.Subscribe(topic+".>", func(m *client.Msg) {
				mu.Lock()
				defer mu.Unlock()
				waiting = append(waiting, m)
				if first && len(waiting) > 1 && len(waiting) < n {
					return
				}
				for i, m := range waiting {
					answer := fmt.Sprintf(`{"stream":"events","seq":%d}`, i+1)
					if first && string(m.Data) == `{"id":"3"}` {
						answer = c.third
					}
					if answer == "" {
						cancel()
					} else if err := m.Respond([]byte(answer)); err != nil {
						t.Error(err)
					}
				}
				if !first || len(waiting) == n {
					first, waiting = false, nil
				}
			}); err != nil {
				t.Fatal(err)
			}
			if err := stream.Flush(); err != nil {
				t.Fatal(err)
			}
			var dials atomic.Int32
			config := config(srv.ClientURL(), "right")
			config.Dial = func(ctx context.Context, addr string) (net.Conn, error) { dials.Add(1); return tcp(ctx, addr) }
			s := sinkOf(t, config)
			done, err := s.Deliver(ctx, events(0, n))
			switch {
			case c.kind == nil:
				if done != n || err != nil {
					t.Errorf("%d, %v", done, err)
				}
			case err == nil || !c.kind(err):
				t.Errorf("%d, %v", done, err)
			case done != 3 && (c.third != "" || done < 1 || done > 3): // acknowledgements may be on their way when the time is over
				t.Errorf("%d count", done)
			}
			if c.third != "" {
				return
			}
			if rest, err := deliver(t, s, events(done, n)); rest != n-done || err != nil || dials.Load() != 1 {
				t.Errorf("then: %d, %v after %d connects", rest, err, dials.Load())
			}
		})
	}
}
