// Package kafka delivers events to a topic of Kafka: each a CloudEvent 1.0 in structured mode, whose key is the tenant, so that
// those of one tenant have one order. All replicas in sync confirm, and the producer is idempotent.
package kafka

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"sync"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl"
	"github.com/twmb/franz-go/pkg/sasl/plain"
	"github.com/twmb/franz-go/pkg/sasl/scram"

	"github.com/toolkeep/toolkeep/audit/outbox"
)

// Config configures a Sink. Brokers, Topic and Dial are required.
type Config struct {
	Brokers []string // host:port
	Topic   string   // it must be there, unless the brokers make topics
	// Dial connects to host:port over TCP.
	Dial func(ctx context.Context, addr string) (net.Conn, error)
	TLS  *tls.Config // nil is none; without ServerName it is the broker's host
	// SASL is plain, scram-sha-256 or scram-sha-512; "" is none.
	SASL, Username string
	Password       func(context.Context) (string, error) // read for each connection
}

// Sink is a topic.
type Sink struct {
	c Config

	mu     sync.Mutex
	client *kgo.Client
}

// New makes a Sink. What is wrong with the brokers shows when it delivers.
func New(c Config) *Sink { return &Sink{c: c} }

const contentType = "application/cloudevents+json; charset=UTF-8"

// Deliver produces the events and waits until all replicas in sync have each.
func (s *Sink) Deliver(ctx context.Context, events []outbox.Event) (int, error) {
	client, err := s.connect()
	if err != nil {
		return 0, err
	}
	records := make([]*kgo.Record, len(events))
	at := make(map[*kgo.Record]int, len(events))
	for i := range events {
		e := &events[i]
		records[i] = &kgo.Record{Key: []byte(e.Tenant), Value: e.JSON, Timestamp: e.Time, Headers: []kgo.RecordHeader{{Key: "content-type", Value: []byte(contentType)}}}
		at[records[i]] = i
	}
	failed := make([]error, len(events))
	for _, r := range client.ProduceSync(ctx, records...) {
		failed[at[r.Record]] = r.Err
	}
	for done, err := range failed {
		switch {
		case err == nil:
			continue
		case errors.Is(err, kerr.MessageTooLarge), errors.Is(err, kerr.RecordListTooLarge), errors.Is(err, kerr.InvalidRecord), errors.Is(err, kerr.InvalidTimestamp):
			return done, &outbox.Refused{Err: err}
		case ctx.Err() != nil:
			return done, fmt.Errorf("the brokers did not confirm in time: %w", err)
		}
		return done, err
	}
	return len(events), nil
}

// connect makes the client, which connects when it first produces.
func (s *Sink) connect() (*kgo.Client, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.client != nil {
		return s.client, nil
	}
	options := []kgo.Opt{
		kgo.ClientID("toolkeep"), kgo.SeedBrokers(s.c.Brokers...), kgo.DefaultProduceTopic(s.c.Topic), kgo.Dialer(s.dial),
		kgo.RequiredAcks(kgo.AllISRAcks()), kgo.RecordPartitioner(kgo.StickyKeyPartitioner(nil)), // Java's way from key to partition
		kgo.ProducerLinger(0), kgo.AllowAutoTopicCreation(), // which the brokers' own setting decides
		// A delivery ends in time also while a request is under way; what may have arrived is sent again.
		kgo.AllowIdempotentProduceCancellation(),
	}
	if m := s.mechanism(); m != nil {
		options = append(options, kgo.SASL(m))
	}
	client, err := kgo.NewClient(options...)
	s.client = client
	return client, err
}

func (s *Sink) mechanism() sasl.Mechanism {
	auth := func(ctx context.Context) (scram.Auth, error) {
		password, err := s.c.Password(ctx)
		return scram.Auth{User: s.c.Username, Pass: password}, err
	}
	switch s.c.SASL {
	case "plain":
		return plain.Plain(func(ctx context.Context) (plain.Auth, error) {
			a, err := auth(ctx)
			return plain.Auth{User: a.User, Pass: a.Pass}, err
		})
	case "scram-sha-256":
		return scram.Sha256(auth)
	case "scram-sha-512":
		return scram.Sha512(auth)
	}
	return nil
}

func (s *Sink) dial(ctx context.Context, _, addr string) (net.Conn, error) {
	conn, err := s.c.Dial(ctx, addr)
	if err != nil || s.c.TLS == nil {
		return conn, err
	}
	settings := s.c.TLS.Clone()
	if settings.ServerName == "" {
		settings.ServerName, _, _ = net.SplitHostPort(addr)
	}
	secure := tls.Client(conn, settings)
	if err := secure.HandshakeContext(ctx); err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	return secure, nil
}

// Close ends the connections.
func (s *Sink) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.client != nil {
		s.client.Close()
		s.client = nil
	}
	return nil
}
