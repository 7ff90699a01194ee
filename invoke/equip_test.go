package invoke_test

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/invoke"
	"github.com/toolkeep/toolkeep/secret"
	"github.com/toolkeep/toolkeep/store/storetest"
)

// countingSecrets returns a new value each time and remembers them.
type countingSecrets struct {
	fakeSecrets
	mu    sync.Mutex
	gave  [][]byte
	calls []context.Context
	fresh []bool
	fail  int // the n-th read fails
}

func (s *countingSecrets) Credential(ctx context.Context, _ *toolkeep.Principal, _ *toolkeep.Manifest, spec toolkeep.AuthSpec, fresh bool) (secret.Equipped, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.calls, s.fresh = append(s.calls, ctx), append(s.fresh, fresh)
	if len(s.calls) == s.fail {
		return secret.Equipped{}, toolkeep.NewError(toolkeep.SecretRetrievalFailed, "the store is away")
	}
	text := fmt.Sprintf("secret-value-%d-of-%s", len(s.calls), spec.Type)
	v := secret.Value{Bytes: []byte(text), Scope: secret.User, Store: "secret", Version: fmt.Sprint(len(s.calls)), Leased: len(s.calls)%2 == 1}
	s.gave = append(s.gave, v.Bytes)
	return secret.Equipped{Value: v, Held: []string{text}}, nil
}

func (*countingSecrets) Fingerprint(context.Context, *toolkeep.Principal, string) (secret.Fingerprint, bool) {
	return secret.Fingerprint{}, true
}

func refusedBy(status int) error {
	return toolkeep.NewError(toolkeep.SecretAccessDenied, "the server answered %d", status).With("status", status)
}

// TestRefusedCredential: after an upstream's refusal the secrets are fetched again and
// the tool is retried, once per call, whatever the tool's own rule says.
func TestRefusedCredential(t *testing.T) {
	for _, tt := range []struct {
		name    string
		change  func(*toolkeep.Manifest)
		refuse  int // number of refused attempts
		fail    int
		code    toolkeep.Code
		sent    string
		entries int // of auth that are sent together
	}{
		{"once", nil, 1, 0, "", "1 2", 1},
		{"once, a tool that writes", writes, 1, 0, "", "1 2", 1},
		{"for good", nil, 99, 0, toolkeep.SecretAccessDenied, "1 2", 1},
		{"for good, a tool that writes", writes, 99, 0, toolkeep.SecretAccessDenied, "1 2", 1},
		{"no fresh one to be had", nil, 99, 2, toolkeep.SecretAccessDenied, "1", 1},
		{"two that go together", nil, 1, 0, "", "1 3", 2},
		{"none of its own", nil, 99, 0, toolkeep.SecretAccessDenied, "", 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := &countingSecrets{fail: tt.fail}
			h := newHarness(t, func(c *invoke.Config) { c.Secrets = s })
			var sent []string
			n := 0
			h.executor.do = func(ctx context.Context, x *toolkeep.Execution) (*toolkeep.Output, error) {
				n++
				if len(x.Credentials) > 0 {
					sent = append(sent, strings.Split(x.Credentials[0].Value, "-")[2])
					if n, err := strconv.Atoi(sent[len(sent)-1]); err != nil || x.Credentials[0].Leased != (n%2 == 1) {
						t.Errorf("credential %d is leased: %t", n, x.Credentials[0].Leased)
					}
					s.mu.Lock()
					for i, c := range s.calls {
						last := i >= len(s.calls)-tt.entries
						if (c.Err() == nil) != last {
							t.Errorf("attempt %d: what read %d made is alive: %v", n, i+1, c.Err() == nil)
						}
						if i < len(s.gave) && strings.Trim(string(s.gave[i]), "\x00") != "" {
							t.Errorf("attempt %d: the bytes of read %d are still there", n, i+1)
						}
					}
					s.mu.Unlock()
					if x.Clean.Clean(x.Credentials[0].Value) != "[REDACTED]" {
						t.Errorf("attempt %d: the call does not know its own value", n)
					}
					if h.redact.All().Clean(x.Credentials[0].Value) != x.Credentials[0].Value {
						t.Errorf("attempt %d: everybody's results are cleaned of a user's own secret", n)
					}
				}
				if n <= tt.refuse {
					return nil, refusedBy(401)
				}
				return &toolkeep.Output{Value: "fine", HasValue: true}, nil
			}
			tool := h.tool("x", func(m *toolkeep.Manifest) {
				m.Retry = &toolkeep.RetrySpec{Policy: "none"}
				if tt.entries > 0 {
					m.Auth = []toolkeep.AuthSpec{{Type: "bearer", Secret: "secret://k"}}
				}
				if tt.entries == 2 {
					m.Auth[0].Settings = map[string]any{"also": []any{map[string]any{"type": "api_key", "secret": "secret://l"}}}
				}
				if tt.change != nil {
					tt.change(m)
				}
			})
			res, err := h.call(&toolkeep.Call{Tool: tool.ID})
			if err != nil {
				t.Fatal(err)
			}
			code := toolkeep.Code("")
			if res.Error != nil {
				code = res.Error.Code
			}
			if code != tt.code || strings.Join(sent, " ") != tt.sent {
				t.Errorf("%s, sent %v; want %s, %s", code, sent, tt.code, tt.sent)
			}
			if tt.code != "" && fmt.Sprint(res.Error.Details["status"]) != "401" {
				t.Errorf("details %v", res.Error.Details)
			}
			for _, c := range s.calls {
				if c.Err() == nil {
					t.Error("what was made for the call outlives it")
				}
			}
			for i, fresh := range s.fresh {
				if fresh != (i >= tt.entries) {
					t.Errorf("read %d: fresh is %v", i+1, fresh)
				}
			}
			row := h.row(res.InvocationID)
			if len(row.Secrets) != len(s.calls) {
				t.Fatalf("the row has %+v of %d reads", row.Secrets, len(s.calls))
			}
			for i, u := range row.Secrets {
				failed := i+1 == tt.fail
				if u.Hash == "" || strings.Contains(u.Hash, "secret") || failed != (u.Code == toolkeep.SecretRetrievalFailed) || !failed && u.Scope != "user" {
					t.Errorf("use %d: %+v", i+1, u)
				}
			}
			if got := h.events("ai.agent.tool.secret.accessed"); len(got) != len(s.calls) {
				t.Errorf("%d events of %d reads: %s", len(got), len(s.calls), got)
			}
		})
	}
}

// events returns the data of the journal's events of a type.
func (h *harness) events(kind string) (all []string) {
	h.t.Helper()
	for _, e := range storetest.Entries(context.Background(), h.t, h.store) {
		if e.Event != nil && e.Event.Type == kind {
			all = append(all, string(e.Event.Data))
		}
	}
	return all
}

// TestSpooledSecretUses: the events of a record that was spooled reach the journal with it.
func TestSpooledSecretUses(t *testing.T) {
	s, down := &countingSecrets{}, &downStore{}
	h := newHarness(t, func(c *invoke.Config) { c.Secrets, down.Applier, c.Store = s, c.Store, down })
	tool := h.tool("x", func(m *toolkeep.Manifest) { m.Auth = []toolkeep.AuthSpec{{Type: "bearer", Secret: "secret://k"}} })
	down.down.Store(true)
	res, err := h.call(&toolkeep.Call{Tool: tool.ID})
	if err != nil {
		t.Fatal(err)
	}
	if n, _ := h.pipeline.Spooled(); n != 1 {
		t.Fatalf("%d records are spooled", n)
	}
	down.down.Store(false)
	if err := h.pipeline.Sweep(t.Context()); err != nil {
		t.Fatal(err)
	}
	row := h.row(res.InvocationID)
	if got := h.events("ai.agent.tool.secret.accessed"); len(got) != 1 || len(row.Secrets) != 1 || !strings.Contains(got[0], row.ID) || !strings.Contains(got[0], row.Secrets[0].Hash) {
		t.Errorf("the events of %+v: %s", row.Secrets, got)
	}
}

// TestSpooledInDoubt: a record whose commit ended in doubt is spooled, and its record and events
// are written once, whether it was committed or not.
func TestSpooledInDoubt(t *testing.T) {
	for name, committed := range map[string]bool{"it was committed": true, "it was not": false} {
		t.Run(name, func(t *testing.T) {
			store := &doubtStore{committed: committed}
			h := newHarness(t, func(c *invoke.Config) { c.Secrets, store.Applier, c.Store = &countingSecrets{}, c.Store, store })
			tool := h.tool("x", func(m *toolkeep.Manifest) { m.Auth = []toolkeep.AuthSpec{{Type: "bearer", Secret: "secret://k"}} })
			store.doubts.Store(true)
			res, err := h.call(&toolkeep.Call{Tool: tool.ID})
			if err != nil {
				t.Fatal(err)
			}
			store.doubts.Store(false)
			if n, _ := h.pipeline.Spooled(); n != 1 {
				t.Fatalf("%d records are spooled", n)
			}
			if err := h.pipeline.Sweep(t.Context()); err != nil {
				t.Fatal(err)
			}
			if n, lost := h.pipeline.Spooled(); n != 0 || lost != 0 {
				t.Errorf("%d records are spooled and %d lost", n, lost)
			}
			if row, got := h.row(res.InvocationID), h.events("ai.agent.tool.secret.accessed"); len(got) != 1 || row.State != toolkeep.CallSucceeded {
				t.Errorf("%s with %d events: %s", row.State, len(got), got)
			}
		})
	}
}

// doubtStore does not know how its commits end.
type doubtStore struct {
	toolkeep.Applier
	doubts    atomic.Bool
	committed bool
}

func (s *doubtStore) Apply(ctx context.Context, c ...toolkeep.Change) error {
	if s.doubts.Load() && !s.committed {
		return fmt.Errorf("the server is gone: %w", toolkeep.ErrInDoubt)
	}
	err := s.Applier.Apply(ctx, c...)
	if err == nil && s.doubts.Load() {
		return fmt.Errorf("the server is gone: %w", toolkeep.ErrInDoubt)
	}
	return err
}

// TestCachedResultUsesNoSecret: a call answered from the cache has used no secret.
func TestCachedResultUsesNoSecret(t *testing.T) {
	s := &countingSecrets{}
	h := newHarness(t, func(c *invoke.Config) { c.Secrets = s })
	tool := h.tool("x", func(m *toolkeep.Manifest) {
		m.Auth = []toolkeep.AuthSpec{{Type: "bearer", Secret: "secret://k"}}
		m.Cache = &toolkeep.CacheSpec{Policy: "ttl", TTLSeconds: 60}
	})
	for i, want := range []int{1, 0} {
		res, err := h.call(&toolkeep.Call{Tool: tool.ID})
		if err != nil || len(res.Secrets) != want || len(h.row(res.InvocationID).Secrets) != want || res.Cached != (i == 1) {
			t.Errorf("call %d: %+v %v", i, res, err)
		}
	}
}

// failingSecrets reads a secret and then fails.
type failingSecrets struct{ fakeSecrets }

func (failingSecrets) Credential(context.Context, *toolkeep.Principal, *toolkeep.Manifest, toolkeep.AuthSpec, bool) (secret.Equipped, error) {
	e := toolkeep.NewError(toolkeep.SecretRetrievalFailed, "the endpoint answered %q", "half-way-secret")
	e.NothingSent = true
	return secret.Equipped{Held: []string{"half-way-secret"}}, e
}

// TestSecretOfAFailure: secrets read before equip failed are redacted in the call and
// the log.
func TestSecretOfAFailure(t *testing.T) {
	h := newHarness(t, func(c *invoke.Config) { c.Secrets = failingSecrets{} })
	tool := h.tool("x", func(m *toolkeep.Manifest) { m.Auth = []toolkeep.AuthSpec{{Type: "bearer", Secret: "secret://k"}} })
	_, err := h.call(&toolkeep.Call{Tool: tool.ID})
	wantCode(t, err, toolkeep.SecretRetrievalFailed)
	if got := h.redact.Log().Clean("half-way-secret"); got != "[REDACTED]" {
		t.Errorf("the log holds %q", got)
	}
	if row := h.row(err.InvocationID); strings.Contains(row.Message+string(row.Details), "half-way-secret") {
		t.Errorf("recorded %q", row.Message)
	}
}
