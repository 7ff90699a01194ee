// Package nats delivers events to a stream of NATS JetStream: each a CloudEvent 1.0 in structured mode, published in order. The stream
// acknowledges the first of a batch before the others follow, which do not wait for each other.
//
// The subject is the one of the settings and the type after ai.agent., such as tool-execution-events.tool.succeeded; a stream must
// take tool-execution-events.>. Nats-Msg-Id names the entry of the journal, so that a stream drops what is repeated within its window.
package nats

import (
	"cmp"
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

// Config configures a Sink. URL, Subject and Dial are required.
type Config struct {
	URL     string // nats:// or tls://
	Subject string
	// Timeout bounds a connect, with TLS and signing in; 0 is 10 s. It is apart from the time that a delivery has: a
	// connect goes on when a delivery gives up, for the next one to use.
	Timeout time.Duration
	// Dial connects to host:port over TCP. It gets the host as the URL has it.
	Dial func(ctx context.Context, addr string) (net.Conn, error)
	TLS  *tls.Config // used with tls://, and if a server of nats:// asks for TLS
	// Token, or Username and Password; read for each connect. nil is none.
	Token    func(context.Context) (string, error)
	Username string
	Password func(context.Context) (string, error)
}

// Sink is a stream.
type Sink struct {
	c Config

	mu   sync.Mutex
	link *link // nil is none
}

// link is a connect, and the connection that it made.
type link struct {
	stop context.CancelFunc // ends the connect
	done chan struct{}      // closed when the connect has ended, and the rest is set
	err  error

	conn   *nats.Conn
	stream jetstream.JetStream
	gone   chan struct{} // closed when the connection is
}

// New makes a Sink.
func New(c Config) *Sink {
	c.Timeout = cmp.Or(c.Timeout, 10*time.Second)
	return &Sink{c: c}
}

const (
	contentType = "application/cloudevents+json; charset=UTF-8"
	// messageTooLarge is the code of JetStream for a message that is larger than the stream takes.
	messageTooLarge = 10054
	// ping is how often a server is asked whether it is there. One that is silent twice is left.
	ping = 10 * time.Second
)

// Deliver publishes the events. What follows one that the stream did not acknowledge is not counted, though it may be stored.
func (s *Sink) Deliver(ctx context.Context, events []outbox.Event) (int, error) {
	l, err := s.connect(ctx)
	if err != nil {
		return 0, err
	}
	done, err := s.publish(ctx, l, events)
	if err == nil {
		return done, nil
	}
	l.stream.CleanupPublisher() // an acknowledgement that comes later has no event
	api, _ := errors.AsType[*jetstream.APIError](err)
	if errors.Is(err, nats.ErrMaxPayload) || api != nil && api.ErrorCode == messageTooLarge {
		return done, &outbox.Refused{Err: err}
	}
	if ctx.Err() == nil { // a late answer is no reason to connect again
		err = errors.Join(err, s.Close())
	}
	return done, fmt.Errorf("the stream did not acknowledge: %w", err)
}

// publish returns how many of the first events were acknowledged, and the error of the one after those. If the stream
// takes nothing, the first one shows it, so that no later one is stored before it.
func (s *Sink) publish(ctx context.Context, l *link, events []outbox.Event) (done int, err error) {
	var sent []jetstream.PubAckFuture // at most as many as a batch has, 1,000; the client takes 4,000
	for i := range events {
		e := &events[i]
		m := nats.NewMsg(s.c.Subject + "." + subject(e.Type))
		m.Data = e.JSON
		m.Header.Set("Content-Type", contentType)
		m.Header.Set(nats.MsgIdHdr, fmt.Sprintf("%s.%d.%d", e.ID, e.Writer, e.Number))
		var ack jetstream.PubAckFuture
		if ack, err = l.stream.PublishMsgAsync(m, jetstream.WithRetryAttempts(0)); err != nil { // a retry would come after later ones
			break
		}
		if i == 0 {
			if err := l.acknowledged(ctx, ack); err != nil {
				return 0, err
			}
			done = 1
			continue
		}
		sent = append(sent, ack)
	}
	for _, ack := range sent {
		if err := l.acknowledged(ctx, ack); err != nil {
			return done, err
		}
		done++
	}
	return done, err
}

// acknowledged waits for the answer to a message.
func (l *link) acknowledged(ctx context.Context, ack jetstream.PubAckFuture) error {
	var late error
	select {
	case <-ack.Ok():
		return nil
	case err := <-ack.Err():
		return err
	case <-l.gone:
		late = errors.Join(nats.ErrConnectionClosed, l.conn.LastError())
	case <-ctx.Done():
		late = ctx.Err()
	}
	select { // it may be there all the same
	case <-ack.Ok():
		return nil
	case err := <-ack.Err():
		return err
	default:
		return late
	}
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

// connect returns the connection. It waits for one until ctx ends. The error of a connect is told once; then there is a new one.
func (s *Sink) connect(ctx context.Context) (*link, error) {
	s.mu.Lock()
	l := s.link
	if l == nil || l.lost() {
		if l != nil {
			l.conn.Close()
		}
		l = s.begin(ctx)
		s.link = l
	}
	s.mu.Unlock()
	select {
	case <-l.done:
	case <-ctx.Done():
		return nil, fmt.Errorf("there is no connection to NATS yet: %w", ctx.Err())
	}
	if l.err == nil {
		return l, nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.link == l {
		s.link = nil
	}
	return nil, l.err
}

// lost reports whether there was a connection that is no more.
func (l *link) lost() bool {
	select {
	case <-l.done:
		return l.err == nil && !l.conn.IsConnected()
	default:
		return false
	}
}

// begin begins a connect.
func (s *Sink) begin(ctx context.Context) *link {
	ctx, stop := context.WithTimeout(context.WithoutCancel(ctx), s.c.Timeout)
	l := &link{stop: stop, done: make(chan struct{}), gone: make(chan struct{})}
	go func() {
		defer close(l.done)
		defer stop()
		if l.err = s.open(ctx, l); l.err != nil && ctx.Err() != nil {
			l.err = fmt.Errorf("NATS did not take the connection within %s: %w", s.c.Timeout, l.err)
		}
	}()
	return l
}

// open connects.
func (s *Sink) open(ctx context.Context, l *link) error {
	d := &dialer{ctx: ctx, dial: s.c.Dial}
	// The end of ctx closes a connection that is not ready; the client's own time would only race with it.
	options := []nats.Option{nats.Name("toolkeep"), nats.NoReconnect(), nats.Timeout(2 * s.c.Timeout), nats.FlusherTimeout(s.c.Timeout), nats.PingInterval(ping),
		nats.SkipHostLookup(), nats.SetCustomDialer(d), nats.ClosedHandler(func(*nats.Conn) { close(l.gone) }),
		func(o *nats.Options) error { o.TLSConfig = s.c.TLS; return nil }} // tls:// demands TLS by itself
	switch {
	case s.c.Token != nil:
		token, err := s.c.Token(ctx)
		if err != nil {
			return fmt.Errorf("the token of NATS cannot be read: %w", err)
		}
		options = append(options, nats.Token(token))
	case s.c.Password != nil:
		password, err := s.c.Password(ctx)
		if err != nil {
			return fmt.Errorf("the password of NATS cannot be read: %w", err)
		}
		options = append(options, nats.UserInfo(s.c.Username, password))
	}
	conn, err := nats.Connect(s.c.URL, options...)
	if err != nil {
		return err
	}
	if !d.release() {
		conn.Close()
		return ctx.Err()
	}
	if l.stream, err = jetstream.New(conn); err != nil {
		conn.Close()
		return err
	}
	l.conn = conn
	return nil
}

// dialer is how nats.go connects. It closes what it dialled when ctx ends, until release.
type dialer struct {
	ctx     context.Context
	dial    func(ctx context.Context, addr string) (net.Conn, error)
	release func() bool // of the last one; false: it was closed. nats.go has closed those before
}

func (d *dialer) Dial(_, addr string) (net.Conn, error) {
	conn, err := d.dial(d.ctx, addr)
	if err == nil {
		d.release = context.AfterFunc(d.ctx, func() { conn.Close() })
	}
	return conn, err
}

// Close ends the connection, or the connect.
func (s *Sink) Close() error {
	s.mu.Lock()
	l := s.link
	s.link = nil
	s.mu.Unlock()
	if l == nil {
		return nil
	}
	l.stop()
	if <-l.done; l.conn != nil {
		l.conn.Close()
	}
	return nil
}
