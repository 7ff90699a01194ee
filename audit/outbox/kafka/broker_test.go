package kafka_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/toolkeep/toolkeep/audit/outbox"
	"github.com/toolkeep/toolkeep/audit/outbox/kafka"
	"github.com/toolkeep/toolkeep/servertest"
)

// jars are those of tools/kafkatest.
const jars = "../../../tools/kafkatest/lib"

// broker is a real Kafka broker that is its own controller. Its topics have three partitions.
type broker struct {
	dir     string
	addr    string
	process *servertest.Process
}

func startBroker(t *testing.T) *broker {
	t.Helper()
	servertest.Needs(t, "Kafka")
	if _, err := os.Stat(filepath.Join(jars, ".installed")); err != nil {
		servertest.Missing(t, "Kafka is not installed; make test installs it")
	}
	b := &broker{dir: t.TempDir()}
	port, err := servertest.FreePort()
	control, err2 := servertest.FreePort()
	if err := errors.Join(err, err2); err != nil {
		t.Fatal(err)
	}
	b.addr = fmt.Sprintf("127.0.0.1:%d", port)
	settings := strings.NewReplacer("ADDR", b.addr, "CONTROL", fmt.Sprintf("127.0.0.1:%d", control), "DIR", filepath.Join(b.dir, "data")).Replace(`process.roles=broker,controller
node.id=1
controller.quorum.voters=1@CONTROL
listeners=PLAINTEXT://ADDR,CONTROLLER://CONTROL
controller.listener.names=CONTROLLER
log.dirs=DIR
num.partitions=3
offsets.topic.replication.factor=1
group.initial.rebalance.delay.ms=0
`)
	if err := os.WriteFile(filepath.Join(b.dir, "properties"), []byte(settings), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := b.java(t, "kafka.tools.StorageTool", "format", "-t", "AAAAAAAAAAAAAAAAAAAAAQ", "-c").CombinedOutput(); err != nil {
		t.Fatalf("format: %v: %s", err, out)
	}
	b.up(t)
	t.Cleanup(func() {
		b.end(t, syscall.SIGKILL)
		if t.Failed() {
			t.Logf("Kafka said:\n%s", b.process.Tail())
		}
	})
	return b
}

// java is a program of Kafka, whose last argument is the file of settings.
func (b *broker) java(t *testing.T, args ...string) *exec.Cmd {
	t.Helper()
	lib, err := filepath.Abs(jars)
	if err != nil {
		t.Fatal(err)
	}
	all := append([]string{"-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xmx256m", "-cp", filepath.Join(lib, "*")}, args...)
	cmd := exec.Command("java", append(all, filepath.Join(b.dir, "properties"))...)
	cmd.Dir = b.dir
	return cmd
}

func (b *broker) up(t *testing.T) {
	t.Helper()
	var err error
	if b.process, err = servertest.Start(b.java(t, "kafka.Kafka"), filepath.Join(b.dir, "log")); err != nil {
		t.Fatal(err)
	}
	if err := b.process.Answer(2*time.Minute, func(ctx context.Context) error {
		client, err := kgo.NewClient(kgo.SeedBrokers(b.addr))
		if err != nil {
			return err
		}
		defer client.Close()
		return client.Ping(ctx)
	}); err != nil {
		t.Fatal(err)
	}
}

func (b *broker) end(t *testing.T, sig syscall.Signal) {
	t.Helper()
	if err := b.process.End(sig, time.Minute); err != nil {
		t.Error(err)
	}
}

// TestRealBroker: a broker of Kafka has each tenant's events in order, refuses what is too large, and after it was
// killed amid deliveries has all that were confirmed. What was not is sent again.
func TestRealBroker(t *testing.T) {
	t.Parallel()
	b := startBroker(t)
	var d net.Dialer
	s := kafka.New(kafka.Config{Brokers: []string{b.addr}, Topic: topic, Dial: func(ctx context.Context, addr string) (net.Conn, error) { return d.DialContext(ctx, "tcp", addr) }})
	defer s.Close()
	from := 0
	send := func(n int) error {
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
		defer cancel()
		done, err := s.Deliver(ctx, events(from, from+n))
		from += done
		return err
	}
	for from < 200 {
		if err := send(100); err != nil {
			t.Fatal(err)
		}
	}
	large := events(from, from+1)
	large[0].JSON = []byte(`"` + strings.Repeat("x", 2<<20) + `"`)
	if n, err := deliver(t, s, large); n != 0 {
		t.Errorf("%d, %v", n, err)
	} else if _, ok := errors.AsType[*outbox.Refused](err); !ok {
		t.Errorf("what is too large: %v", err)
	}
	killed := make(chan struct{})
	var failed error
	for i := 0; failed == nil; i++ {
		if i == 5 { // amid this delivery or one of the next
			go func() {
				defer close(killed)
				_ = b.process.Signal(syscall.SIGKILL)
			}()
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		var done int
		done, failed = s.Deliver(ctx, events(from, from+10))
		from += done
		cancel()
	}
	<-killed
	b.end(t, syscall.SIGKILL)
	if _, refused := errors.AsType[*outbox.Refused](failed); refused {
		t.Errorf("a broker that is away refuses: %v", failed)
	}
	b.up(t)
	confirmed := from
	for from < confirmed+10 {
		if err := send(10); err != nil {
			t.Fatal(err)
		}
	}
	client, err := kgo.NewClient(kgo.SeedBrokers(b.addr), kgo.ConsumeTopics(topic), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	got := map[string][]string{}
	for missing := from; missing > 0; {
		fetches := client.PollFetches(t.Context())
		if err := fetches.Err(); err != nil {
			t.Fatal(err)
		}
		fetches.EachRecord(func(r *kgo.Record) {
			list := got[string(r.Key)]
			if !slices.Contains(list, string(r.Value)) { // once more is allowed, another order is not
				got[string(r.Key)] = append(list, string(r.Value))
				missing--
			}
		})
	}
	for i, tenant := range []string{"acme", "umbrella"} {
		var all []int
		for n := i; n < from; n += 2 {
			all = append(all, n)
		}
		if !slices.Equal(got[tenant], want(all...)) {
			t.Errorf("%s has %d events in another order: %v", tenant, len(got[tenant]), got[tenant])
		}
	}
}
