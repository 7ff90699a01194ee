package nats_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	client "github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/toolkeep/toolkeep/audit/outbox"
	"github.com/toolkeep/toolkeep/audit/outbox/nats"
)

const topic = "tool-execution-events"

// start runs a server with a stream in memory; port -1 is a free one.
func start(t *testing.T, port int) (*server.Server, jetstream.Stream) {
	t.Helper()
	s, err := server.NewServer(&server.Options{Host: "127.0.0.1", Port: port, JetStream: true, StoreDir: t.TempDir(), Username: "toolkeep", Password: "right", NoSigs: true, NoLog: true})
	if err != nil {
		t.Fatal(err)
	}
	s.Start()
	t.Cleanup(func() { s.Shutdown(); s.WaitForShutdown() })
	if !s.ReadyForConnections(30 * time.Second) {
		t.Fatal("the server does not take connections")
	}
	conn, err := client.Connect(s.ClientURL(), client.UserInfo("toolkeep", "right"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(conn.Close)
	js, err := jetstream.New(conn)
	if err != nil {
		t.Fatal(err)
	}
	stream, err := js.CreateStream(t.Context(), jetstream.StreamConfig{Name: "events", Subjects: []string{topic + ".>"}, Storage: jetstream.MemoryStorage, MaxMsgSize: 1000})
	if err != nil {
		t.Fatal(err)
	}
	return s, stream
}

func sink(t *testing.T, address, password string) *nats.Sink {
	t.Helper()
	var d net.Dialer
	s := nats.New(nats.Config{URL: address, Subject: topic, Timeout: 10 * time.Second, Username: "toolkeep", Password: func(context.Context) (string, error) { return password, nil },
		Dial: func(ctx context.Context, addr string) (net.Conn, error) { return d.DialContext(ctx, "tcp", addr) }})
	t.Cleanup(func() { s.Close() })
	return s
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
	srv, stream := start(t, -1)
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
	srv, _ := start(t, -1)
	down("the password is wrong", sink(t, srv.ClientURL(), "wrong"))
	s := sink(t, srv.ClientURL(), "right")
	if n, err := deliver(t, s, events(0, 2)); n != 2 || err != nil {
		t.Fatalf("%d, %v", n, err)
	}
	port := srv.Addr().(*net.TCPAddr).Port
	srv.Shutdown()
	srv.WaitForShutdown()
	down("the server is gone", s)
	_, stream := start(t, port)
	if n, err := deliver(t, s, events(0, 3)); n != 3 || err != nil {
		t.Fatalf("%d, %v", n, err)
	}
	if got := stored(t, stream); !slices.Equal(got, []string{"0", "1", "2"}) {
		t.Errorf("%v", got)
	}
}
