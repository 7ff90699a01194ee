package outbox_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/audit/outbox"
)

func TestRead(t *testing.T) {
	if list, err := outbox.Read(""); list != nil || err != nil {
		t.Errorf("no file: %v, %v", list, err)
	}
	path := filepath.Join(t.TempDir(), "sinks.yaml")
	if _, err := outbox.Read(path); err == nil {
		t.Error("a file that is not there was read")
	}
	text := `sinks:
  - name: approvers
    kind: webhook
    types: ["approval.*"]
    tenants: [default]
    url: https://chat.example/hooks/T0/secret?x=1
    secret: env://TOOLKEEP_SECRET_HOOK
    timeout: 2s
    retries: 0
  - name: siem
    kind: kafka
    brokers: ["kafka-1.internal:9092", "kafka-2.internal:9092"]
    from: start
    batch: 500
    flush: 250ms
  - {name: log, kind: file, path: /var/log/toolkeep.jsonl}
  - {name: bus, kind: nats, url: "nats://bus.internal:4222", subject: tools.events}
`
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	list, err := outbox.Read(path)
	if err != nil || len(list) != 4 {
		t.Fatalf("%+v, %v", list, err)
	}
	a, b := list[0], list[1]
	if a.Batch != 100 || a.Flush != time.Second || a.Timeout != 2*time.Second || a.Retries != 0 || a.FromStart || a.DeadLetterBytes != 64<<20 || a.Secret != "env://TOOLKEEP_SECRET_HOOK" {
		t.Errorf("%+v", a)
	}
	if b.Batch != 500 || b.Flush != 250*time.Millisecond || b.Timeout != 500*time.Millisecond || b.Retries != 3 || !b.FromStart || b.Topic != outbox.DefaultTopic {
		t.Errorf("%+v", b)
	}
	for i, want := range []string{"https://chat.example", "kafka-1.internal:9092,kafka-2.internal:9092/tool-execution-events", "/var/log/toolkeep.jsonl", "bus.internal:4222/tools.events"} {
		if got := list[i].Target(); got != want {
			t.Errorf("%s leads to %s, want %s", list[i].Name, got, want)
		}
	}
}

func TestFaults(t *testing.T) {
	one := func(text string) string { return "sinks: [" + text + "]" }
	for name, c := range map[string]struct{ text, want string }{
		"empty":               {"", "empty"},
		"no YAML":             {"sinks: [", "YAML"},
		"no sinks":            {"sinks: []", "/sinks"},
		"unknown member":      {one("{name: a, kind: file, path: /a, colour: red}"), "colour"},
		"unknown kind":        {one("{name: a, kind: smoke, path: /a}"), "kind"},
		"bad name":            {one("{name: ../a, kind: file, path: /a}"), "name"},
		"one name twice":      {one("{name: a, kind: file, path: /a}, {name: a, kind: file, path: /b}"), "two sinks"},
		"relative path":       {one("{name: a, kind: file, path: a}"), "absolute"},
		"no path":             {one("{name: a, kind: file}"), "needs path"},
		"a file with a url":   {one("{name: a, kind: file, path: /a, url: https://a}"), "has no url"},
		"no secret":           {one("{name: a, kind: webhook, url: https://a}"), "needs secret"},
		"a plain secret":      {one("{name: a, kind: webhook, url: https://a, secret: whsec_c2VjcmV0c2VjcmV0c2VjcmV0}"), "/secret"},
		"another scheme":      {one("{name: a, kind: webhook, url: 'ftp://a', secret: 'env://A'}"), "https://"},
		"a user in a url":     {one("{name: a, kind: webhook, url: 'https://u:p@a', secret: 'env://A'}"), "user"},
		"a bad pattern":       {one("{name: a, kind: file, path: /a, types: ['[']}"), "pattern"},
		"a short flush":       {one("{name: a, kind: file, path: /a, flush: 1ms}"), "between"},
		"a long timeout":      {one("{name: a, kind: file, path: /a, timeout: 1h}"), "between"},
		"a large batch":       {one("{name: a, kind: file, path: /a, batch: 1001}"), "batch"},
		"no brokers":          {one("{name: a, kind: kafka}"), "needs brokers"},
		"a broker's port":     {one("{name: a, kind: kafka, brokers: [b]}"), "HOST:PORT"},
		"a user alone":        {one("{name: a, kind: kafka, brokers: ['b:1'], sasl: plain, username: u}"), "go together"},
		"a user without sasl": {one("{name: a, kind: kafka, brokers: ['b:1'], username: u, password: 'env://P'}"), "sasl"},
		"a token by http":     {one("{name: a, kind: webhook, url: 'http://a.example', secret: 'env://A', token: 'env://T'}"), "https://"},
		"a token by nats":     {one("{name: a, kind: nats, url: 'nats://a.example', token: 'env://T'}"), "tls://"},
		"a password by nats":  {one("{name: a, kind: nats, url: 'nats://10.0.0.1', username: u, password: 'env://P'}"), "tls://"},
		"plain without tls":   {one("{name: a, kind: kafka, brokers: ['127.0.0.1:1', 'b:1'], sasl: plain, username: u, password: 'env://P'}"), "tls: true"},
		"a subject to match":  {one("{name: a, kind: nats, url: 'nats://a', subject: 'a.>'}"), "subject"},
	} {
		_, err := outbox.Parse([]byte(c.text))
		if err == nil || toolkeep.AsError(err).Code != toolkeep.InvalidManifest || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want one with %q", name, err, c.want)
		}
	}
}

// TestSecretsAreNotRepeated: what is written where a reference belongs is in no fault.
func TestSecretsAreNotRepeated(t *testing.T) {
	for _, value := range []string{"hunter2hunter2", "whsec_hunter2hunter2", "other://hunter2hunter2", "[hunter2hunter2]", "{a: hunter2hunter2}",
		"env://" + strings.Repeat("hunter2hunter2", 100)} {
		for member, text := range map[string]string{
			"secret":   "{name: a, kind: webhook, url: 'https://a', secret: %}",
			"token":    "{name: a, kind: webhook, url: 'https://a', secret: 'env://A', token: %}",
			"password": "{name: a, kind: nats, url: 'nats://a', username: u, password: %}",
		} {
			_, err := outbox.Parse([]byte("sinks: [" + strings.Replace(text, "%", value, 1) + "]"))
			if err == nil {
				t.Errorf("%s takes %s", member, value)
				continue
			}
			e := toolkeep.AsError(err)
			whole := fmt.Sprint(e.Error(), e.Details)
			if e.Code != toolkeep.InvalidManifest || !strings.Contains(whole, "/sinks/0/"+member) || !strings.Contains(whole, "env://TOOLKEEP_SECRET_NAME") || strings.Contains(whole, "hunter2") {
				t.Errorf("%s: %s", member, whole)
			}
		}
	}
}
