package sinks_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/access"
	"github.com/toolkeep/toolkeep/audit"
	"github.com/toolkeep/toolkeep/audit/outbox"
	"github.com/toolkeep/toolkeep/control/sinks"
	"github.com/toolkeep/toolkeep/store/sqlite"
)

type members []toolkeep.NodeState

func (m *members) Live() ([]toolkeep.NodeState, time.Duration) { return *m, 0 }
func (m *members) Owner() string                               { return "a/1" }

// TestList: what the store, this node and the others know of a sink is shown to operators of the home tenant.
func TestList(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "sinks.yaml")
	if err := os.WriteFile(file, []byte("sinks:\n  - {name: log, kind: file, path: "+dir+"/out.jsonl}\n  - {name: stream, kind: kafka, brokers: ['127.0.0.1:1']}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	store, err := sqlite.Open(t.Context(), sqlite.Config{Path: filepath.Join(dir, "toolkeep.db")})
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	live := &members{{Name: "a", Run: "1"}}
	s, err := sinks.New(sinks.Config{File: file, Dir: filepath.Join(dir, "dead"), Store: store, Members: live,
		Client:     func(string, []toolkeep.HostPort) *http.Client { return http.DefaultClient },
		Credential: func(string) func(context.Context) (string, error) { return nil }, Clock: time.Now, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Stop()
	for what, p := range map[string]*toolkeep.Principal{
		"another tenant's administrator": {Tenant: "acme", Permissions: []string{"*"}},
		"an agent":                       {Tenant: access.HomeTenant},
	} {
		if list, err := s.List(t.Context(), p); list != nil || toolkeep.AsError(err).Code != toolkeep.PermissionDenied {
			t.Errorf("%s gets %v, %v", what, list, err)
		}
		if _, err := s.Replay(t.Context(), p, "log"); toolkeep.AsError(err).Code != toolkeep.PermissionDenied {
			t.Errorf("%s replays: %v", what, err)
		}
	}
	list := func() []sinks.Sink {
		t.Helper()
		list, err := s.List(t.Context(), access.System())
		if err != nil || len(list) != 2 {
			t.Fatalf("%+v, %v", list, err)
		}
		return list
	}
	if l := list(); l[0].State != sinks.Waiting || l[0].Node != "" || l[1].Target != "127.0.0.1:1/tool-execution-events" {
		t.Errorf("no node leads: %+v", l)
	}
	*live = members{{Name: "a", Run: "1", Leads: []string{outbox.Work}}, {Name: "b", Run: "2", Data: []byte(`{"sinks":{"log":{"dead_letters":3,"error":"old"}}}`)}}
	if l := list(); l[0].State != sinks.OK || l[0].Node != "a" || l[0].DeadLetters["b"] != 3 || l[0].Error != "" {
		t.Errorf("this node leads: %+v", l[0])
	}
	told, err := json.Marshal(map[string]any{"sinks": map[string]outbox.State{
		"log": {Delivered: 7, Error: "disk full", FailingSince: time.Now()}, "stream": {Error: "x", Full: true}}})
	if err != nil {
		t.Fatal(err)
	}
	*live = members{{Name: "a", Run: "1"}, {Name: "b", Run: "2", Leads: []string{outbox.Work}, Data: told}}
	if l := list(); l[0].State != sinks.Failing || l[0].Node != "b" || l[0].Error != "disk full" || l[0].Delivered != 7 || l[0].FailingSince == nil || l[1].State != sinks.Full {
		t.Errorf("another node leads: %+v", l)
	}
	if r, err := s.Replay(t.Context(), access.System(), "log"); err != nil || r.Remaining != 0 {
		t.Errorf("%+v, %v", r, err)
	}
}

// TestWebhookGoesDown: approvers are told of what happened while their webhook was down, once it is up.
func TestWebhookGoesDown(t *testing.T) {
	var up atomic.Bool
	refused, got := make(chan struct{}, 100), make(chan string, 100)
	hook := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var events []audit.Entry
		if err := json.NewDecoder(r.Body).Decode(&events); err != nil || r.Header.Get("webhook-signature") == "" {
			t.Errorf("%v, %v", err, r.Header)
		}
		if !up.Load() {
			w.WriteHeader(http.StatusServiceUnavailable)
			select {
			case refused <- struct{}{}:
			default:
			}
			return
		}
		for _, e := range events {
			got <- e.ID
		}
	}))
	defer hook.Close()
	dir := t.TempDir()
	file := filepath.Join(dir, "sinks.yaml")
	if err := os.WriteFile(file, []byte("sinks:\n  - {name: hook, kind: webhook, types: ['approval.*'], from: start, flush: 10ms, timeout: 1m, url: '"+hook.URL+"', secret: 'env://HOOK'}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	store, err := sqlite.Open(t.Context(), sqlite.Config{Path: filepath.Join(dir, "toolkeep.db")})
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	s, err := sinks.New(sinks.Config{File: file, Dir: filepath.Join(dir, "dead"), Store: store, Members: &members{},
		Client: func(string, []toolkeep.HostPort) *http.Client { return hook.Client() },
		Credential: func(string) func(context.Context) (string, error) {
			return func(context.Context) (string, error) { return "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", nil }
		}, Clock: time.Now, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); s.Run(ctx) }()
	defer func() { cancel(); <-done; s.Stop() }()
	record := func(id, kind string) {
		t.Helper()
		if err := store.Apply(t.Context(), toolkeep.AppendEvent{Event: toolkeep.Event{ID: id, Type: kind, Tenant: "t", Time: time.Now(), Data: []byte(`{}`)}}); err != nil {
			t.Fatal(err)
		}
	}
	record("1", "ai.agent.tool.approval.requested")
	<-refused
	<-refused
	record("2", "ai.agent.auth.failed")
	record("3", "ai.agent.tool.approval.decided")
	up.Store(true)
	if a, b := <-got, <-got; a != "1" || b != "3" {
		t.Errorf("the webhook got %s and %s", a, b)
	}
}

// TestForbidden: a server of NATS is reached by its name, though it is inside. Another one that it names is not, and the error
// says where to allow that one.
func TestForbidden(t *testing.T) {
	server, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	go func() {
		for {
			conn, err := server.Accept()
			if err != nil {
				return
			}
			fmt.Fprint(conn, `INFO {"server_id":"a","version":"2.10.0","proto":1,"max_payload":1000,"connect_urls":["127.0.0.2:4222"]}`+"\r\n")
			conn.Close()
		}
	}()
	s, err := sinks.New(sinks.Config{Clock: time.Now, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	_, port, _ := net.SplitHostPort(server.Addr().String())
	out, err := s.Open(outbox.Settings{Name: "bus", Kind: outbox.NATS, URL: "nats://localhost:" + port, Subject: "events", Timeout: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	_, err = out.Deliver(t.Context(), []outbox.Event{{ID: "1", JSON: []byte("{}")}})
	if err == nil || !strings.Contains(err.Error(), "127.0.0.2:4222") || !strings.Contains(err.Error(), "in network") || strings.Contains(err.Error(), "manifest") {
		t.Error(err)
	}
}
