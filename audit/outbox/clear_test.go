package outbox_test

import (
	"testing"
	"time"

	"github.com/toolkeep/toolkeep/audit/outbox"
)

// TestClear: a token or a password goes in the clear to this host alone, and what needs none may go anywhere.
func TestClear(t *testing.T) {
	for _, text := range []string{
		"kind: webhook, url: 'http://a.example', secret: 'env://A'",
		"kind: webhook, url: 'http://localhost:1', secret: 'env://A', token: 'env://T'",
		"kind: webhook, url: 'http://[::1]:1', secret: 'env://A', token: 'env://T'",
		"kind: webhook, url: 'https://a.example', secret: 'env://A', token: 'env://T'",
		"kind: nats, url: 'nats://a.example'",
		"kind: nats, url: 'nats://127.0.0.1:4222', username: u, password: 'env://P'",
		"kind: nats, url: 'tls://a.example', token: 'env://T'",
		"kind: kafka, brokers: ['127.0.0.1:1', 'localhost:2'], sasl: plain, username: u, password: 'env://P'",
		"kind: kafka, brokers: ['b:1'], tls: true, sasl: plain, username: u, password: 'env://P'",
		"kind: kafka, brokers: ['b:1'], sasl: scram-sha-256, username: u, password: 'env://P'",
	} {
		if _, err := outbox.Parse([]byte("sinks: [{name: a, " + text + "}]")); err != nil {
			t.Errorf("%s: %v", text, err)
		}
	}
}

// TestTimeout: the defaults of the kinds.
func TestTimeout(t *testing.T) {
	list, err := outbox.Parse([]byte("sinks: [{name: a, kind: webhook, url: 'https://a', secret: 'env://A'}, {name: b, kind: kafka, brokers: ['b:1']}, {name: c, kind: nats, url: 'nats://a'}, {name: d, kind: file, path: /a}]"))
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []time.Duration{5 * time.Second, 500 * time.Millisecond, 500 * time.Millisecond, 500 * time.Millisecond} {
		if list[i].Timeout != want {
			t.Errorf("%s has %s, want %s", list[i].Kind, list[i].Timeout, want)
		}
	}
}
