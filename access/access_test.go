package access

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/toolkeep/toolkeep"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// memory is a store with an in-memory feed. While held, the feed delivers nothing.
type memory struct {
	mu      sync.Mutex
	feed    []toolkeep.Committed
	grown   chan struct{}
	fail    error // returned by Apply
	watches int
	broken  int // number of watches to break at once
	held    bool
	items   map[string]bool
	deaf    bool // Apply stores the changes but returns ErrStale
}

func newMemory() *memory {
	return &memory{grown: make(chan struct{}), items: make(map[string]bool)}
}

// keys returns every key ever stored, as Config.Load does.
func (m *memory) keys(context.Context) (keys []toolkeep.APIKey, seq int64, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, c := range m.feed {
		if put, ok := c.Change.(toolkeep.PutKey); ok {
			keys = append(keys, put.Key)
		}
	}
	return keys, int64(len(m.feed)), nil
}

func (m *memory) Apply(_ context.Context, changes ...toolkeep.Change) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.fail != nil {
		return m.fail
	}
	for _, c := range changes {
		if n, ok := c.(toolkeep.ClaimNonce); ok {
			if m.items[string(n.Nonce[:])] {
				return toolkeep.ErrNonceTaken
			}
			m.items[string(n.Nonce[:])] = true
			return nil
		}
		if put, ok := c.(toolkeep.PutDocument); ok && put.Expect == toolkeep.NoRevision && m.items[put.Document.Kind+put.Document.ID] {
			return toolkeep.ErrStale
		}
	}
	for _, c := range changes {
		if put, ok := c.(toolkeep.PutDocument); ok {
			m.items[put.Document.Kind+put.Document.ID] = true
		}
		m.feed = append(m.feed, toolkeep.Committed{Seq: int64(len(m.feed) + 1), Change: c})
	}
	m.wake()
	if m.deaf {
		return errors.Join(toolkeep.ErrStale, errors.New("the answer was lost, and the changes were made again"))
	}
	return nil
}

func (m *memory) wake() {
	close(m.grown)
	m.grown = make(chan struct{})
}

func (m *memory) hold(held bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.held = held
	m.wake()
}

func (m *memory) Watch(ctx context.Context, after int64) iter.Seq2[toolkeep.Committed, error] {
	return func(yield func(toolkeep.Committed, error) bool) {
		m.mu.Lock()
		m.watches++
		broken := m.watches <= m.broken
		m.mu.Unlock()
		if broken {
			yield(toolkeep.Committed{}, errors.New("the feed broke"))
			return
		}
		for {
			m.mu.Lock()
			var next *toolkeep.Committed
			if int(after) < len(m.feed) && !m.held {
				next = &m.feed[after]
			}
			grown := m.grown
			m.mu.Unlock()
			if next != nil {
				after++
				if !yield(*next, nil) {
					return
				}
				continue
			}
			select {
			case <-grown:
			case <-ctx.Done():
				return
			}
		}
	}
}

func (m *memory) Head(context.Context) (int64, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return int64(len(m.feed)), nil
}

// clock is a settable time for tests.
type clock struct{ now atomic.Int64 }

func (c *clock) Now() time.Time { return time.Unix(1_800_000_000, c.now.Load()) }

func (c *clock) pass(d time.Duration) { c.now.Add(int64(d)) }

// open starts an Access over a store with existing keys.
func open(t testing.TB, c Config, keys ...toolkeep.APIKey) *Access {
	t.Helper()
	if c.Store == nil {
		c.Store = newMemory()
	}
	if c.Load == nil {
		c.Load = func(context.Context) ([]toolkeep.APIKey, int64, error) { return keys, 0, nil }
	}
	a, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	if err := a.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(a.Stop)
	return a
}

// is asserts an error's code and returns the error.
func is(t testing.TB, err error, code toolkeep.Code) *toolkeep.Error {
	t.Helper()
	var e *toolkeep.Error
	if !errors.As(err, &e) || e.Code != code {
		t.Fatalf("got %v, want %s", err, code)
	}
	return e
}

func must[T any](t testing.TB) func(T, error) T {
	return func(v T, err error) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

var agentSpec = toolkeep.APIKey{Tenant: "acme", Subject: "bot", Roles: []string{Agent}, Scope: []string{"weather.*"}}

func TestAuthenticate(t *testing.T) {
	var c clock
	key, text := NewKey(agentSpec, c.Now())
	expiring := agentSpec
	expiring.Subject, expiring.ExpiresAt = "late", c.Now().Add(time.Hour)
	late, lateText := NewKey(expiring, c.Now())
	gone, goneText := NewKey(toolkeep.APIKey{Tenant: "acme", Subject: "gone", Roles: []string{Agent}}, c.Now())
	gone.RevokedAt = c.Now()
	a := open(t, Config{Clock: c.Now}, key, late, gone)
	ctx := t.Context()

	p := must[*toolkeep.Principal](t)(a.Authenticate(ctx, text, "192.0.2.1"))
	if p.Subject != "bot" || p.Tenant != "acme" || p.KeyID != key.ID || p.Method != "api_key" || p.Addr != "192.0.2.1" ||
		len(p.Roles) != 1 || len(p.Scope) != 1 || len(p.Permissions) != 0 {
		t.Errorf("principal %+v", p)
	}
	must[*toolkeep.Principal](t)(a.Authenticate(ctx, lateText, "192.0.2.1"))
	c.pass(time.Hour)
	is(t, second(a.Authenticate(ctx, lateText, "192.0.2.1")), toolkeep.Unauthenticated)
	is(t, second(a.Authenticate(ctx, goneText, "192.0.2.1")), toolkeep.Unauthenticated)

	_, stranger := NewKey(agentSpec, c.Now())
	body := text[:len(text)-sumChars]
	wrong := body[:len(body)-1] + "0"
	if wrong == body {
		wrong = body[:len(body)-1] + "1"
	}
	unknown := is(t, second(a.Authenticate(ctx, stranger, "192.0.2.1")), toolkeep.Unauthenticated)
	guessed := is(t, second(a.Authenticate(ctx, wrong+sum(wrong), "192.0.2.1")), toolkeep.Unauthenticated)
	if unknown.Message != guessed.Message || fmt.Sprint(unknown.Details) != fmt.Sprint(guessed.Details) {
		t.Errorf("an unknown key and a wrong secret are told apart: %v %v", unknown, guessed)
	}
	for _, bad := range []string{"", "tk_", "x", text + "0", text[1:], "Bearer " + text, strings.ToUpper(text), wrong + "0000", strings.Repeat("é", keyChars/2+1)} {
		is(t, second(a.Authenticate(ctx, bad, "192.0.2.1")), toolkeep.Unauthenticated)
	}
}

func second[T any](_ T, err error) error { return err }

func TestKeyText(t *testing.T) {
	seen := map[string]bool{}
	for range 200 {
		key, text := NewKey(agentSpec, time.Unix(1, 0))
		id, secret, ok := parseKey(text)
		if !ok || id != key.ID || sha256.Sum256([]byte(secret)) != key.Hash || len(text) != 63 || seen[text] || seen[id] {
			t.Fatalf("%s: id %s, ok %v", text, id, ok)
		}
		seen[text], seen[id] = true, true
		for i := range len(text) { // every single typo is detected
			typo := []byte(text)
			if typo[i]++; typo[i] == '{' {
				typo[i] = '0'
			}
			if _, _, ok := parseKey(string(typo)); ok {
				t.Fatalf("%s was taken for a key", typo)
			}
		}
	}
}

func TestStartAndStop(t *testing.T) {
	t.Run("before Start nobody is let in", func(t *testing.T) {
		a := must[*Access](t)(New(Config{Store: newMemory(), Load: func(context.Context) ([]toolkeep.APIKey, int64, error) { return nil, 0, nil }}))
		_, text := NewKey(agentSpec, time.Now())
		is(t, second(a.Authenticate(t.Context(), text, "")), toolkeep.RegistryUnavailable)
		is(t, second(a.Bootstrap(t.Context(), nil)), toolkeep.RegistryUnavailable)
		is(t, second(a.Refresh(t.Context(), &toolkeep.Principal{})), toolkeep.RegistryUnavailable)
		a.Follow(toolkeep.Committed{Change: toolkeep.PutKey{}})
		is(t, second(a.Authenticate(t.Context(), text, "")), toolkeep.RegistryUnavailable)
		a.Stop()
		a.Stop()
		if err := a.Start(t.Context()); err != nil || a.cancel != nil {
			t.Error("started after Stop")
		}
	})
	t.Run("keys that cannot be loaded stop the start", func(t *testing.T) {
		a := must[*Access](t)(New(Config{Store: newMemory(), Load: func(context.Context) ([]toolkeep.APIKey, int64, error) { return nil, 0, errors.New("no") }}))
		is(t, a.Start(t.Context()), toolkeep.RegistryUnavailable)
		a.Stop()
	})
	t.Run("required settings", func(t *testing.T) {
		if _, err := New(Config{}); err == nil {
			t.Error("no error")
		}
	})
}

func TestFeed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newMemory()
		store.broken = 3
		a := open(t, Config{Store: store})
		key, text := NewKey(agentSpec, time.Now())
		if err := store.Apply(t.Context(), toolkeep.PutKey{Key: key}, toolkeep.SetLifecycle{}); err != nil {
			t.Fatal(err)
		}
		<-time.After(time.Second) // the broken watches are retried
		synctest.Wait()
		must[*toolkeep.Principal](t)(a.Authenticate(t.Context(), text, ""))
		if err := store.Apply(t.Context(), toolkeep.RevokeKey{Tenant: "other", ID: key.ID, At: time.Now()}); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		must[*toolkeep.Principal](t)(a.Authenticate(t.Context(), text, ""))
		if err := store.Apply(t.Context(), toolkeep.RevokeKey{Tenant: "acme", ID: key.ID, At: time.Now()}); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		is(t, second(a.Authenticate(t.Context(), text, "")), toolkeep.Unauthenticated)

		// A key with the same id in another tenant changes nothing.
		stolen, stolenText := key, text
		stolen.Tenant, stolen.Subject = "evil", "mallory"
		a.Follow(toolkeep.Committed{Change: toolkeep.PutKey{Key: stolen}})
		is(t, second(a.Authenticate(t.Context(), stolenText, "")), toolkeep.Unauthenticated)
		a.Stop()
	})
}

func TestFeedOfAClosedStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := open(t, Config{Store: closedStore{newMemory()}})
		synctest.Wait()
		a.done.Wait() // the follower ended on its own
	})
}

type closedStore struct{ *memory }

func (closedStore) Watch(context.Context, int64) iter.Seq2[toolkeep.Committed, error] {
	return func(yield func(toolkeep.Committed, error) bool) { yield(toolkeep.Committed{}, toolkeep.ErrClosed) }
}

func TestBootstrap(t *testing.T) {
	store := newMemory()
	a := open(t, Config{Store: store})
	store.fail = errors.New("disk full")
	is(t, second(a.Bootstrap(t.Context(), nil)), toolkeep.RecordUnavailable)
	store.fail = nil
	text := must[string](t)(a.Bootstrap(t.Context(), nil))
	p := must[*toolkeep.Principal](t)(a.Authenticate(t.Context(), text, "127.0.0.1"))
	if p.Tenant != "default" || p.Subject != "admin" || !p.May(toolkeep.PermLifecycle) || !p.May(toolkeep.PermKeys) {
		t.Errorf("principal %+v", p)
	}
	if again := must[string](t)(a.Bootstrap(t.Context(), nil)); again != "" {
		t.Error("a second admin key was made")
	}
}

// TestRecover: a key is made unless the text that is there is one of a valid admin, and what
// could not be kept is not stored.
func TestRecover(t *testing.T) {
	store := newMemory()
	a := open(t, Config{Store: store})
	first := must[string](t)(a.Bootstrap(t.Context(), nil))
	is(t, second(a.Recover(t.Context(), first, nil)), toolkeep.InvalidParameters)
	lost := errors.New("disk full")
	if _, err := a.Recover(t.Context(), "", func(string) error { return lost }); !errors.Is(err, lost) {
		t.Errorf("the text was not kept: %v", err)
	}
	admin := must[*toolkeep.Principal](t)(a.Authenticate(t.Context(), first, "127.0.0.1"))
	_, agent, err := a.CreateKey(t.Context(), admin, toolkeep.APIKey{Subject: "bob", Roles: []string{"agent"}})
	if err != nil {
		t.Fatal(err)
	}
	other, _ := NewKey(toolkeep.APIKey{}, time.Now())
	valid := 2
	for _, had := range []string{"", "no key", agent, strings.Replace(first, "tk_", "tk_x", 1), "tk_" + other.ID} {
		var kept string
		key := must[toolkeep.APIKey](t)(a.Recover(t.Context(), had, func(text string) error { kept = text; return nil }))
		p := must[*toolkeep.Principal](t)(a.Authenticate(t.Context(), kept, "127.0.0.1"))
		if valid++; p.KeyID != key.ID || !p.May(toolkeep.PermKeys) || p.Tenant != "default" {
			t.Errorf("principal %+v", p)
		}
		must[*toolkeep.Principal](t)(a.Authenticate(t.Context(), first, "127.0.0.1"))
	}
	if keys, _, _ := store.keys(t.Context()); len(keys) != valid {
		t.Errorf("%d keys are stored, want %d", len(keys), valid)
	}
	if err := a.RevokeKey(t.Context(), admin, admin.KeyID); err != nil {
		t.Fatal(err)
	}
	must[toolkeep.APIKey](t)(a.Recover(t.Context(), first, nil)) // a revoked one is no admin's
}

// TestBootstrapOutrun: the node that loses the race drops its text and accepts the
// other node's key at once.
func TestBootstrapOutrun(t *testing.T) {
	store := newMemory()
	store.held = true // the feed delivers nothing
	first, second := open(t, Config{Store: store, Load: store.keys}), open(t, Config{Store: store, Load: store.keys})
	var kept []string
	keep := func(text string) error { kept = append(kept, text); return nil }
	text := must[string](t)(first.Bootstrap(t.Context(), nil))
	if got := must[string](t)(second.Bootstrap(t.Context(), keep)); got != "" || len(kept) != 2 || kept[0] == "" || kept[1] != "" {
		t.Errorf("the second made %t, and was to keep %d texts", got != "", len(kept))
	}
	must[*toolkeep.Principal](t)(second.Authenticate(t.Context(), text, "127.0.0.1"))
	if keys, _, _ := store.keys(t.Context()); len(keys) != 1 {
		t.Errorf("%d keys were made", len(keys))
	}
}

func TestBootstrapLosesAnswer(t *testing.T) {
	store := newMemory()
	store.deaf = true
	a := open(t, Config{Store: store, Load: store.keys})
	kept := 0
	text := must[string](t)(a.Bootstrap(t.Context(), func(string) error { kept++; return nil }))
	if kept != 1 {
		t.Errorf("keep was called %d times", kept)
	}
	must[*toolkeep.Principal](t)(a.Authenticate(t.Context(), text, "127.0.0.1"))
}

func TestBootstrapWithoutTheKey(t *testing.T) {
	store := newMemory()
	store.items[firstKey+"admin"] = true
	is(t, second(open(t, Config{Store: store, Load: store.keys}).Bootstrap(t.Context(), nil)), toolkeep.RegistryUnavailable)
}

func TestCreateKey(t *testing.T) {
	admin := &toolkeep.Principal{Tenant: "acme", Subject: "root", Roles: []string{Admin}, Permissions: []string{"*"}}
	clerk := &toolkeep.Principal{Tenant: "acme", Subject: "clerk", Roles: []string{"clerk", Agent}, Permissions: []string{toolkeep.PermKeys}}
	narrow := &toolkeep.Principal{Tenant: "acme", Subject: "root", Roles: []string{Admin}, Permissions: []string{"*"}, Scope: []string{"weather.*"}}
	spec := func(roles, scope []string) toolkeep.APIKey {
		return toolkeep.APIKey{Tenant: "evil", ID: "mine", Subject: "bot", Name: "n", Roles: roles, Scope: scope, RevokedAt: time.Now()}
	}
	agent := []string{Agent}
	for name, tc := range map[string]struct {
		by   *toolkeep.Principal
		spec toolkeep.APIKey
		code toolkeep.Code
	}{
		"admin gives any role":              {admin, spec([]string{Auditor, "clerk"}, nil), ""},
		"own role":                          {clerk, spec(agent, []string{"a.*"}), ""},
		"no permission":                     {&toolkeep.Principal{Tenant: "acme", Roles: agent}, spec(agent, nil), toolkeep.PermissionDenied},
		"a role that it does not have":      {clerk, spec([]string{Admin}, nil), toolkeep.PermissionDenied},
		"no scope though its own is narrow": {narrow, spec(agent, nil), toolkeep.PermissionDenied},
		"a wider scope":                     {narrow, spec(agent, []string{"*"}), toolkeep.PermissionDenied},
		"a pattern that only looks narrow":  {narrow, spec(agent, []string{"weather.*", "weather.?*"}), toolkeep.PermissionDenied},
		"the same pattern and an id":        {narrow, spec(agent, []string{"weather.*", "weather.now"}), ""},
		"an id outside":                     {narrow, spec(agent, []string{"mail.send"}), toolkeep.PermissionDenied},
		"no role":                           {admin, spec(nil, nil), toolkeep.InputValidationFailed},
		"unknown role":                      {admin, spec([]string{"agnet"}, nil), toolkeep.InputValidationFailed},
		"bad pattern":                       {admin, spec(agent, []string{"[a"}), toolkeep.InputValidationFailed},
		"empty pattern":                     {admin, spec(agent, []string{""}), toolkeep.InputValidationFailed},
	} {
		t.Run(name, func(t *testing.T) {
			a := open(t, Config{Roles: []Role{{Name: "clerk", Permissions: []string{toolkeep.PermKeys}}}})
			key, text, err := a.CreateKey(t.Context(), tc.by, tc.spec)
			if tc.code != "" {
				is(t, err, tc.code)
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if key.Tenant != "acme" || key.ID == "mine" || key.CreatedBy != tc.by.Subject || key.Hash != [32]byte{} || !key.RevokedAt.IsZero() {
				t.Errorf("key %+v", key)
			}
			p := must[*toolkeep.Principal](t)(a.Authenticate(t.Context(), text, ""))
			if p.Subject != "bot" {
				t.Errorf("principal %+v", p)
			}
		})
	}
	t.Run("every fault at once", func(t *testing.T) {
		a := open(t, Config{})
		_, _, err := a.CreateKey(t.Context(), admin, toolkeep.APIKey{Subject: "a\nb", Name: strings.Repeat("x", 201),
			Roles: []string{"agnet"}, Scope: []string{"["}, ExpiresAt: time.Unix(1, 0)})
		faults := is(t, err, toolkeep.InputValidationFailed).Details["errors"].([]toolkeep.Fault)
		var got []string
		for _, f := range faults {
			got = append(got, f.Pointer)
		}
		if fmt.Sprint(got) != "[/subject /name /roles/0 /scope/0 /expires_at]" || !strings.Contains(faults[2].Message, "did you mean agent?") {
			t.Errorf("faults %v", faults)
		}
	})
	t.Run("a role that is like none", func(t *testing.T) {
		_, _, err := open(t, Config{}).CreateKey(t.Context(), admin, toolkeep.APIKey{Subject: "a", Roles: []string{"nosuch"}})
		faults := is(t, err, toolkeep.InputValidationFailed).Details["errors"].([]toolkeep.Fault)
		if m := faults[0].Message; strings.Contains(m, "did you mean") || !strings.Contains(m, "there are admin, agent, auditor, ") || !strings.Contains(m, "access.roles_file") {
			t.Errorf("told %q", m)
		}
	})
	t.Run("a store that fails makes no key", func(t *testing.T) {
		store := newMemory()
		a := open(t, Config{Store: store})
		store.fail = errors.New("disk full")
		_, text, err := a.CreateKey(t.Context(), admin, spec(agent, nil))
		is(t, err, toolkeep.RecordUnavailable)
		if text != "" {
			t.Error("a text was given")
		}
	})
}

func TestRevokeKey(t *testing.T) {
	store := newMemory()
	a := open(t, Config{Store: store, Roles: []Role{{Name: "clerk", Permissions: []string{toolkeep.PermKeys}}}})
	ctx := t.Context()
	adminText := must[string](t)(a.Bootstrap(ctx, nil))
	admin := must[*toolkeep.Principal](t)(a.Authenticate(ctx, adminText, ""))
	clerk := &toolkeep.Principal{Tenant: "default", Subject: "clerk", Roles: []string{"clerk"}, Permissions: []string{toolkeep.PermKeys}}
	key, text, err := a.CreateKey(ctx, admin, toolkeep.APIKey{Subject: "bot", Roles: []string{Agent}})
	if err != nil {
		t.Fatal(err)
	}
	is(t, a.RevokeKey(ctx, &toolkeep.Principal{Tenant: "default"}, key.ID), toolkeep.PermissionDenied)
	is(t, a.RevokeKey(ctx, admin, "nosuchkey"), toolkeep.ResourceNotFound)
	is(t, a.RevokeKey(ctx, &toolkeep.Principal{Tenant: "other", Roles: []string{Admin}, Permissions: []string{"*"}}, key.ID), toolkeep.ResourceNotFound)
	is(t, a.RevokeKey(ctx, clerk, key.ID), toolkeep.PermissionDenied)
	is(t, a.RevokeKey(ctx, admin, admin.KeyID), toolkeep.InvalidParameters)
	store.fail = toolkeep.ErrNotFound
	is(t, a.RevokeKey(ctx, admin, key.ID), toolkeep.ResourceNotFound)
	store.fail = errors.New("disk full")
	is(t, a.RevokeKey(ctx, admin, key.ID), toolkeep.RecordUnavailable)
	store.fail = nil
	must[*toolkeep.Principal](t)(a.Authenticate(ctx, text, ""))

	// While the feed lags, the key is revoked at once and stays revoked when the feed
	// delivers its creation.
	store.hold(true)
	lagging, laggingText, err := a.CreateKey(ctx, admin, toolkeep.APIKey{Subject: "bot", Roles: []string{Agent}})
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := a.RevokeKey(ctx, admin, lagging.ID); err != nil {
			t.Fatal(err)
		}
	}
	is(t, second(a.Authenticate(ctx, laggingText, "")), toolkeep.Unauthenticated)
	a.Follow(toolkeep.Committed{Change: toolkeep.PutKey{Key: lagging}})
	is(t, second(a.Authenticate(ctx, laggingText, "")), toolkeep.Unauthenticated)
	store.hold(false)

	// With a second admin key, the first can be revoked.
	if _, _, err := a.CreateKey(ctx, admin, toolkeep.APIKey{Subject: "root", Roles: []string{Admin}}); err != nil {
		t.Fatal(err)
	}
	if err := a.RevokeKey(ctx, admin, admin.KeyID); err != nil {
		t.Fatal(err)
	}
	is(t, second(a.Authenticate(ctx, adminText, "")), toolkeep.Unauthenticated)

	keys := must[[]toolkeep.APIKey](t)(a.ListKeys(ctx, clerk))
	if len(keys) != 4 || keys[0].ID != admin.KeyID || keys[0].RevokedAt.IsZero() {
		t.Errorf("keys %+v", keys)
	}
	for _, k := range keys {
		if k.Hash != [32]byte{} {
			t.Error("a hash is listed")
		}
	}
	is(t, second(a.ListKeys(ctx, &toolkeep.Principal{Tenant: "default"})), toolkeep.PermissionDenied)
	if keys := must[[]toolkeep.APIKey](t)(a.ListKeys(ctx, &toolkeep.Principal{Tenant: "other", Permissions: []string{"*"}})); len(keys) != 0 {
		t.Errorf("another tenant sees %v", keys)
	}
}

func TestRefresh(t *testing.T) {
	var c clock
	spec := agentSpec
	spec.ExpiresAt = c.Now().Add(time.Minute)
	key, _ := NewKey(spec, c.Now())
	a := open(t, Config{Clock: c.Now, Roles: []Role{{Name: "stand-in", Permissions: []string{toolkeep.PermActAs}}}}, key)
	stored := &toolkeep.Principal{Tenant: "acme", Subject: "bot", OnBehalf: "carol", KeyID: key.ID, Roles: []string{Admin}, Scope: nil}
	now := must[*toolkeep.Principal](t)(a.Refresh(t.Context(), stored))
	if now.Roles[0] != Agent || len(now.Scope) != 1 || now.OnBehalf != "carol" || stored.Roles[0] != Admin {
		t.Errorf("refreshed %+v", now)
	}
	c.pass(time.Hour) // an expiry does not end calls already admitted
	must[*toolkeep.Principal](t)(a.Refresh(t.Context(), stored))
	is(t, second(a.Refresh(t.Context(), &toolkeep.Principal{Tenant: "other", Subject: "bot", KeyID: key.ID})), toolkeep.Unauthenticated)
	is(t, second(a.Refresh(t.Context(), &toolkeep.Principal{Tenant: "acme", Subject: "bot"})), toolkeep.Unauthenticated)
	is(t, second(a.Refresh(t.Context(), &toolkeep.Principal{Tenant: "acme", Subject: "alice", KeyID: key.ID})), toolkeep.PermissionDenied)
	wider := key
	wider.Roles = []string{Agent, "stand-in"}
	a.Follow(toolkeep.Committed{Change: toolkeep.PutKey{Key: wider}})
	must[*toolkeep.Principal](t)(a.Refresh(t.Context(), &toolkeep.Principal{Tenant: "acme", Subject: "alice", KeyID: key.ID}))
	a.Follow(toolkeep.Committed{Change: toolkeep.RevokeKey{Tenant: "acme", ID: key.ID}})
	is(t, second(a.Refresh(t.Context(), stored)), toolkeep.Unauthenticated)
}

// TestNothingSecretIsLogged searches the log for the secret of every key used.
func TestNothingSecretIsLogged(t *testing.T) {
	var out bytes.Buffer
	log := slog.New(slog.NewTextHandler(&out, &slog.HandlerOptions{Level: slog.LevelDebug}))
	key, text := NewKey(agentSpec, time.Now())
	var told []Failure
	a := open(t, Config{Log: log, OnFailure: func(f Failure) { told = append(told, f) }}, key)
	_, secret, _ := parseKey(text)
	bad := text[:len(text)-sumChars-1] + "-"
	for _, s := range []string{text, text + "x", bad + sum(bad)} {
		_, err := a.Authenticate(t.Context(), s, "192.0.2.1")
		if err != nil && strings.Contains(fmt.Sprintf("%+v", err), secret[:20]) {
			t.Errorf("the error shows the secret: %v", err)
		}
	}
	if len(told) != 2 || strings.Contains(fmt.Sprintf("%+v", told), secret[:20]) || strings.Contains(out.String(), secret[:20]) || out.Len() == 0 {
		t.Errorf("told %+v, logged %s", told, out.String())
	}
}

func TestHammer(t *testing.T) {
	store := newMemory()
	a := open(t, Config{Store: store, Failures: FailureLimits{PerAddr: -1, PerAgent: -1}})
	admin := &toolkeep.Principal{Tenant: "acme", Subject: "root", Roles: []string{Admin}, Permissions: []string{"*"}}
	lasting, lastingText, err := a.CreateKey(t.Context(), admin, toolkeep.APIKey{Subject: "lasting", Roles: []string{Agent}})
	if err != nil {
		t.Fatal(err)
	}
	tool := toolOf("weather.now", nil)
	var wg sync.WaitGroup
	for w := range 6 {
		wg.Go(func() {
			for i := range 60 {
				key, text, err := a.CreateKey(t.Context(), admin, toolkeep.APIKey{Subject: fmt.Sprint(w, "-", i), Roles: []string{Agent}})
				if err != nil {
					t.Error(err)
					return
				}
				if p, err := a.Authenticate(t.Context(), text, "192.0.2.1"); err != nil || !a.Authorise(p, tool, nil).Allowed || !a.Visible(p, tool) {
					t.Errorf("a new key is refused: %v", err)
				}
				if err := a.RevokeKey(t.Context(), admin, key.ID); err != nil {
					t.Error(err)
				}
				if _, err := a.Authenticate(t.Context(), text, "192.0.2.1"); err == nil {
					t.Error("a revoked key is let in")
				}
				if p, err := a.Authenticate(t.Context(), lastingText, "192.0.2.1"); err != nil || p.KeyID != lasting.ID {
					t.Errorf("the lasting key is refused: %v", err)
				}
				if i%10 == 0 {
					if err := a.SetRoles([]Role{{Name: fmt.Sprint("r", i)}}); err != nil {
						t.Error(err)
					}
				}
			}
		})
	}
	wg.Wait()
}

func BenchmarkAuthenticate(b *testing.B) {
	b.ReportAllocs()
	key, text := NewKey(agentSpec, time.Now())
	a := open(b, Config{}, key)
	for b.Loop() {
		if _, err := a.Authenticate(b.Context(), text, "192.0.2.1"); err != nil {
			b.Fatal(err)
		}
	}
}

// TestScopeThatMatchesNothing: a pattern that no tool id can match is a fault.
func TestScopeThatMatchesNothing(t *testing.T) {
	for pattern, fits := range map[string]bool{"*": true, "weather.*": true, "weather.current": true, "w?ather*": true, "[ab].x": true, "sales-2.get_Order": true,
		"weather": false, "a.*,b.*": false, "a b.*": false, "a/*": false, "a.ü": false} {
		if got := couldMatch(pattern); got != fits {
			t.Errorf("%q: %v", pattern, got)
		}
	}
}
