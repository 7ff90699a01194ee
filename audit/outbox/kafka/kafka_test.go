package kafka_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"go.uber.org/goleak"

	"github.com/toolkeep/toolkeep/audit/outbox"
	"github.com/toolkeep/toolkeep/audit/outbox/kafka"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const topic = "tool-execution-events"

func cluster(t *testing.T, options ...kfake.Opt) *kfake.Cluster {
	t.Helper()
	c, err := kfake.NewCluster(append([]kfake.Opt{kfake.NumBrokers(2), kfake.SeedTopics(3, topic)}, options...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

func sink(t *testing.T, brokers []string, change func(*kafka.Config)) *kafka.Sink {
	t.Helper()
	var d net.Dialer
	c := kafka.Config{Brokers: brokers, Topic: topic, Dial: func(ctx context.Context, addr string) (net.Conn, error) { return d.DialContext(ctx, "tcp", addr) }}
	if change != nil {
		change(&c)
	}
	s := kafka.New(c)
	t.Cleanup(func() { s.Close() })
	return s
}

// events are of two tenants in turn.
func events(from, to int) (list []outbox.Event) {
	for i := from; i < to; i++ {
		list = append(list, outbox.Event{ID: fmt.Sprint(i), Tenant: [...]string{"acme", "umbrella"}[i%2], Time: time.Now(), JSON: fmt.Appendf(nil, `{"id":"%d"}`, i)})
	}
	return list
}

func deliver(t *testing.T, s *kafka.Sink, list []outbox.Event) (int, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	return s.Deliver(ctx, list)
}

// consumed reads n records, by key.
func consumed(t *testing.T, brokers []string, n int) map[string][]string {
	t.Helper()
	client, err := kgo.NewClient(kgo.SeedBrokers(brokers...), kgo.ConsumeTopics(topic), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	got := map[string][]string{}
	for n > 0 {
		fetches := client.PollFetches(ctx)
		if err := fetches.Err(); err != nil {
			t.Fatal(err)
		}
		fetches.EachRecord(func(r *kgo.Record) {
			n--
			got[string(r.Key)] = append(got[string(r.Key)], string(r.Value))
			if len(r.Headers) != 1 || string(r.Headers[0].Value) != "application/cloudevents+json; charset=UTF-8" {
				t.Errorf("headers %v", r.Headers)
			}
		})
	}
	return got
}

func want(list ...int) (out []string) {
	for _, i := range list {
		out = append(out, fmt.Sprintf(`{"id":"%d"}`, i))
	}
	return out
}

// TestDeliver: each tenant's events are in order, with the tenant as their key.
func TestDeliver(t *testing.T) {
	c := cluster(t)
	s := sink(t, c.ListenAddrs(), nil)
	for i := range 3 {
		if n, err := deliver(t, s, events(4*i, 4*i+4)); n != 4 || err != nil {
			t.Fatalf("%d, %v", n, err)
		}
	}
	got := consumed(t, c.ListenAddrs(), 12)
	if !slices.Equal(got["acme"], want(0, 2, 4, 6, 8, 10)) || !slices.Equal(got["umbrella"], want(1, 3, 5, 7, 9, 11)) {
		t.Errorf("%v", got)
	}
}

// TestRefused: what is too large for the brokers, or for one batch, is refused; those before it are confirmed.
func TestRefused(t *testing.T) {
	c := cluster(t)
	s := sink(t, c.ListenAddrs(), nil)
	list := events(0, 3)
	list[1].JSON = []byte(`"` + strings.Repeat("x", 2<<20) + `"`)
	n, err := deliver(t, s, list)
	if _, ok := errors.AsType[*outbox.Refused](err); n != 1 || !ok {
		t.Errorf("%d, %v", n, err)
	}
	c.ControlKey(int16(kmsg.Produce), func(r kmsg.Request) (kmsg.Response, error, bool) {
		req := r.(*kmsg.ProduceRequest)
		res := req.ResponseKind().(*kmsg.ProduceResponse)
		for _, rt := range req.Topics {
			st := kmsg.NewProduceResponseTopic()
			st.Topic, st.TopicID = rt.Topic, rt.TopicID
			for _, rp := range rt.Partitions {
				sp := kmsg.NewProduceResponseTopicPartition()
				sp.Partition, sp.ErrorCode = rp.Partition, kerr.MessageTooLarge.Code
				st.Partitions = append(st.Partitions, sp)
			}
			res.Topics = append(res.Topics, st)
		}
		return res, nil, true
	})
	n, err = deliver(t, s, events(4, 5))
	if _, ok := errors.AsType[*outbox.Refused](err); n != 0 || !ok {
		t.Errorf("%d, %v", n, err)
	}
	if n, err := deliver(t, s, events(5, 6)); n != 1 || err != nil {
		t.Errorf("after a refusal: %d, %v", n, err)
	}
}

// TestDown: a delivery ends in time while brokers cut connections, say nothing, or are not there, and the next one goes
// through when they answer.
func TestDown(t *testing.T) {
	silent := make(chan struct{})
	for name, answer := range map[string]func(*kfake.Cluster){
		"cut":    func(*kfake.Cluster) {},
		"silent": func(c *kfake.Cluster) { c.SleepControl(func() { <-silent }) },
	} {
		t.Run(name, func(t *testing.T) {
			c := cluster(t)
			s := sink(t, c.ListenAddrs(), nil)
			var up atomic.Bool
			c.ControlKey(int16(kmsg.Produce), func(kmsg.Request) (kmsg.Response, error, bool) {
				c.KeepControl()
				if up.Load() {
					return nil, nil, false
				}
				answer(c)
				return nil, errors.New("the connection is cut"), true
			})
			if n, err := briefly(t, s); n != 0 || err == nil {
				t.Fatalf("%d, %v", n, err)
			}
			up.Store(true)
			if name == "silent" {
				close(silent)
			}
			if n, err := deliver(t, s, events(0, 2)); n != 2 || err != nil {
				t.Fatalf("%d, %v", n, err)
			}
			got := consumed(t, c.ListenAddrs(), 2)
			if !slices.Equal(got["acme"], want(0)) || !slices.Equal(got["umbrella"], want(1)) {
				t.Errorf("%v", got)
			}
		})
	}
	c := cluster(t)
	s := sink(t, c.ListenAddrs(), nil)
	c.Close()
	if n, err := briefly(t, s); n != 0 || err == nil {
		t.Errorf("no brokers: %d, %v", n, err)
	}
}

// briefly delivers to brokers that do not confirm.
func briefly(t *testing.T, s *kafka.Sink) (int, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	n, err := s.Deliver(ctx, events(0, 2))
	if _, refused := errors.AsType[*outbox.Refused](err); refused {
		t.Errorf("a sink that is down refuses: %v", err)
	}
	return n, err
}

// TestSASL: the password is asked for, and a wrong one is a sink that is down.
func TestSASL(t *testing.T) {
	c := cluster(t, kfake.EnableSASL(), kfake.Superuser("SCRAM-SHA-256", "toolkeep", "right"), kfake.Superuser("PLAIN", "toolkeep", "right"))
	for _, mechanism := range []string{"plain", "scram-sha-256"} {
		for _, password := range []string{"right", "wrong"} {
			s := sink(t, c.ListenAddrs(), func(c *kafka.Config) {
				c.SASL, c.Username, c.Password = mechanism, "toolkeep", func(context.Context) (string, error) { return password, nil }
			})
			ctx, cancel := context.WithTimeout(t.Context(), map[string]time.Duration{"right": 30 * time.Second, "wrong": 300 * time.Millisecond}[password])
			n, err := s.Deliver(ctx, events(0, 1))
			cancel()
			if (n == 1 && err == nil) != (password == "right") || err != nil && strings.Contains(err.Error(), password) {
				t.Errorf("%s with the %s password: %d, %v", mechanism, password, n, err)
			}
		}
	}
}
