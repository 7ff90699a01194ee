// Package nats delivers events to a stream of NATS JetStream: each a CloudEvent 1.0 in structured mode, published in order and
// acknowledged by the stream before the next.
//
// The subject is the one of the settings and the type after ai.agent., such as tool-execution-events.tool.succeeded; a stream must
// take tool-execution-events.>. Nats-Msg-Id names the entry of the journal, so that a stream drops what is repeated within its window.
package nats

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/toolkeep/toolkeep/audit/outbox"
)

// Config configures a Sink. URL, Subject, Timeout and Dial are required.
type Config struct {
	URL     string // nats:// or tls://
	Subject string
	Timeout time.Duration // of a connect
	// Dial connects to host:port over TCP.
	Dial func(ctx context.Context, addr string) (net.Conn, error)
	TLS  *tls.Config // used with tls://
	// Token, or Username and Password; read for each connect. nil is none.
	Token    func(context.Context) (string, error)
	Username string
	Password func(context.Context) (string, error)
}

// Sink is a stream.
type Sink struct {
	c Config

	mu     sync.Mutex
	conn   *nats.Conn
	stream jetstream.JetStream
}

// New makes a Sink.
func New(c Config) *Sink { return &Sink{c: c} }

const contentType = "application/cloudevents+json; charset=UTF-8"

// messageTooLarge is the code of JetStream for a message that is larger than the stream takes.
const messageTooLarge = 10054

// Deliver publishes the events one by one.
func (s *Sink) Deliver(ctx context.Context, events []outbox.Event) (int, error) {
	stream, err := s.connect(ctx)
	if err != nil {
		return 0, err
	}
	for done := range events {
		e := &events[done]
		m := nats.NewMsg(s.c.Subject + "." + subject(e.Type))
		m.Data = e.JSON
		m.Header.Set("Content-Type", contentType)
		m.Header.Set(nats.MsgIdHdr, fmt.Sprintf("%s.%d.%d", e.ID, e.Writer, e.Number))
		_, err := stream.PublishMsg(ctx, m)
		if err == nil {
			continue
		}
		api, _ := errors.AsType[*jetstream.APIError](err)
		if errors.Is(err, nats.ErrMaxPayload) || api != nil && api.ErrorCode == messageTooLarge {
			return done, &outbox.Refused{Err: err}
		}
		return done, fmt.Errorf("the stream did not acknowledge: %w", errors.Join(err, s.Close())) // the next one connects again
	}
	return len(events), nil
}

// subject is the tail of a subject for a type.
func subject(kind string) string {
	return strings.Map(func(r rune) rune {
		if r == '*' || r == '>' || r <= ' ' {
			return '_'
		}
		return r
	}, strings.TrimPrefix(kind, "ai.agent."))
}

func (s *Sink) connect(ctx context.Context) (jetstream.JetStream, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.conn != nil && s.conn.IsConnected() {
		return s.stream, nil
	}
	s.close()
	options := []nats.Option{nats.Name("toolkeep"), nats.NoReconnect(), nats.Timeout(s.c.Timeout), nats.SetCustomDialer(dialer{ctx, s.c.Dial})}
	if strings.HasPrefix(s.c.URL, "tls://") {
		options = append(options, nats.Secure(s.c.TLS))
	}
	switch {
	case s.c.Token != nil:
		token, err := s.c.Token(ctx)
		if err != nil {
			return nil, fmt.Errorf("the token of NATS cannot be read: %w", err)
		}
		options = append(options, nats.Token(token))
	case s.c.Password != nil:
		password, err := s.c.Password(ctx)
		if err != nil {
			return nil, fmt.Errorf("the password of NATS cannot be read: %w", err)
		}
		options = append(options, nats.UserInfo(s.c.Username, password))
	}
	conn, err := nats.Connect(s.c.URL, options...)
	if err != nil {
		return nil, err
	}
	stream, err := jetstream.New(conn)
	if err != nil {
		conn.Close()
		return nil, err
	}
	s.conn, s.stream = conn, stream
	return stream, nil
}

// dialer is how nats.go connects.
type dialer struct {
	ctx  context.Context
	dial func(ctx context.Context, addr string) (net.Conn, error)
}

func (d dialer) Dial(_, addr string) (net.Conn, error) { return d.dial(d.ctx, addr) }

func (s *Sink) close() {
	if s.conn != nil {
		s.conn.Close()
		s.conn, s.stream = nil, nil
	}
}

// Close ends the connection.
func (s *Sink) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.close()
	return nil
}
