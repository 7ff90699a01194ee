package secret

import (
	"context"
	"database/sql"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/store/sqlite"
)

// items is a real store that can fail.
type items struct {
	*sqlite.Store
	mu    sync.Mutex
	down  error
	fails int // number of reads that fail before they succeed again; down is permanent
	reads int
}

func (s *items) Document(ctx context.Context, kind, tenant, id string) (toolkeep.Document, error) {
	s.mu.Lock()
	s.reads++
	err := s.down
	if s.fails > 0 {
		if s.fails--; s.fails == 0 {
			defer func() { s.mu.Lock(); s.down = nil; s.mu.Unlock() }()
		}
	}
	s.mu.Unlock()
	if err != nil {
		return toolkeep.Document{}, err
	}
	return s.Store.Document(ctx, kind, tenant, id)
}

func (s *items) take(err error, fails int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.down, s.fails, s.reads = err, fails, 0
}

type bench struct {
	store   *items
	sealer  *Sealer
	local   *Local
	rotated []bool
	now     time.Time
	file    string
}

func newBench(t *testing.T) *bench {
	t.Helper()
	dir := t.TempDir()
	s, err := sqlite.Open(t.Context(), sqlite.Config{Path: filepath.Join(dir, "db"), Enqueue: func(context.Context, *sql.Tx, toolkeep.Enqueue) error { return nil }})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	b := &bench{store: &items{Store: s}, now: time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC), file: filepath.Join(dir, "seal.key")}
	if b.sealer, err = OpenSealer(b.file); err != nil {
		t.Fatal(err)
	}
	b.local = NewLocal(LocalConfig{Store: b.store, Sealer: b.sealer, Clock: func() time.Time { return b.now }, Rotated: func(ok bool) { b.rotated = append(b.rotated, ok) }})
	return b
}

func who(tenant, subject string, more ...string) *toolkeep.Principal {
	p := &toolkeep.Principal{Tenant: tenant, Subject: subject}
	for _, m := range more {
		switch name, v, _ := strings.Cut(m, "="); name {
		case "workspace":
			p.Workspace = v
		case "behalf":
			p.OnBehalf = v
		case "may":
			p.Permissions = append(p.Permissions, v)
		}
	}
	return p
}

func (b *bench) set(t *testing.T, p *toolkeep.Principal, scope Scope, owner, name, value string) Info {
	t.Helper()
	i, err := b.local.Set(t.Context(), p, Put{Where: Where{Name: name, Scope: scope, Owner: owner}, Value: []byte(value)})
	if err != nil {
		t.Fatal(err)
	}
	return i
}

// TestScopes: user comes before workspace, workspace before organisation; nothing crosses a tenant, a workspace or
// a user.
func TestScopes(t *testing.T) {
	b := newBench(t)
	boss := who("acme", "boss", "may="+toolkeep.PermSecretsAdmin)
	far := who("globex", "boss", "may="+toolkeep.PermSecretsAdmin)
	b.set(t, boss, Organisation, "", "k", "org")
	b.set(t, boss, Workspace, "w", "k", "workspace")
	b.set(t, boss, User, "ann", "k", "ann's")
	b.set(t, far, Organisation, "", "k", "globex")
	b.set(t, far, User, "ann", "only", "globex ann's")
	for _, tt := range []struct {
		p     *toolkeep.Principal
		value string
		scope Scope
	}{
		{who("acme", "bob"), "org", Organisation},
		{who("acme", "bob", "workspace=w"), "workspace", Workspace},
		{who("acme", "bob", "workspace=W"), "org", Organisation},
		{who("acme", "ann", "workspace=w"), "ann's", User},
		{who("acme", "agent", "behalf=ann"), "ann's", User},
		{who("acme", "ann", "behalf=bob"), "org", Organisation},
		{who("acme", "", "workspace=w"), "workspace", Workspace},
		{who("globex", "ann", "workspace=w"), "globex", Organisation},
	} {
		v, err := b.local.Read(t.Context(), tt.p, "k")
		if err != nil || v.Text() != tt.value || v.Scope != tt.scope || v.Version != "1" || v.Store != "secret" {
			t.Errorf("%+v read %q of %s, %v", tt.p, v.Bytes, v.Scope, err)
		}
		if st, err := b.local.Look(t.Context(), tt.p, "k"); err != nil || st.State != Ready || st.Scope != tt.scope {
			t.Errorf("%+v sees %+v, %v", tt.p, st, err)
		}
		if st := b.local.Glance(tt.p, "k"); st.State != Ready || st.Scope != tt.scope {
			t.Errorf("%+v glances %+v", tt.p, st)
		}
		v.Wipe()
		if strings.Trim(string(v.Bytes), "\x00") != "" {
			t.Errorf("wiped it is %q", v.Bytes)
		}
	}
	for _, p := range []*toolkeep.Principal{who("acme", "ann"), who("other", "ann"), who("", "ann"), nil} {
		if v, err := b.local.Read(t.Context(), p, "only"); err == nil {
			t.Errorf("%+v read %q", p, v.Bytes)
		}
	}
	for _, name := range []string{"", "K", "-k", "k/k", "k k", "../k", strings.Repeat("k", 129), "k\x00"} {
		if _, err := b.local.Read(t.Context(), boss, name); codeOf(err) != toolkeep.SecretNotFound {
			t.Errorf("the name %q: %v", name, err)
		}
	}
	// A sealed value moved within the database does not open.
	at := scopedName{Organisation, "", "k"}
	it, err := b.store.Document(t.Context(), DocumentKind, "globex", at.id())
	if err != nil {
		t.Fatal(err)
	}
	it.Tenant = "acme"
	if err := b.store.Apply(t.Context(), toolkeep.PutDocument{Document: it, Expect: toolkeep.AnyRevision}); err != nil {
		t.Fatal(err)
	}
	if v, err := b.local.Read(t.Context(), who("acme", "bob"), "k"); codeOf(err) != toolkeep.SecretRetrievalFailed {
		t.Errorf("another tenant's sealed value gave %q, %v", v.Bytes, err)
	}
}

// TestAdviceIsWhereTheCallerReads: E3401 names the scopes that were looked up, with their
// owners. After an administrator runs the command in it, the caller reads that secret.
func TestAdviceIsWhereTheCallerReads(t *testing.T) {
	boss := who("acme", "boss", "may="+toolkeep.PermSecretsAdmin)
	for _, tt := range []struct {
		p       *toolkeep.Principal
		missing string
		scope   Scope // of the secret that expires
		owner   string
		expired string
	}{
		{who("acme", "bob"), `there is no secret "k" of bob (scope user) or of the organisation (scope organisation); ` +
			"set it with `toolkeep secrets set k --scope organisation`, or for bob alone with `--scope user --user` and that name",
			Organisation, "", "the secret k (scope organisation) expired at 2026-03-01T00:01:00Z; set a new one with `toolkeep secrets set k --scope organisation`"},
		{who("acme", "agent", "behalf=ann", "workspace=w"), `there is no secret "k" of ann (scope user) or of the workspace w (scope workspace) or of the organisation (scope organisation); ` +
			"set it with `toolkeep secrets set k --scope organisation`, or for ann alone with `--scope user --user` and that name",
			User, "ann", "the secret k of ann (scope user) expired at 2026-03-01T00:01:00Z; set a new one with `toolkeep secrets set k --scope user --user` and that name"},
		{who("acme", "", "workspace=w"), `there is no secret "k" of the workspace w (scope workspace) or of the organisation (scope organisation); ` +
			"set it with `toolkeep secrets set k --scope organisation`",
			Workspace, "w", "the secret k of w (scope workspace) expired at 2026-03-01T00:01:00Z; set a new one with `toolkeep secrets set k --scope workspace --workspace` and that name"},
	} {
		b := newBench(t)
		refused := func(want string) {
			t.Helper()
			_, err := b.local.Read(t.Context(), tt.p, "k")
			if codeOf(err) != toolkeep.SecretNotFound || toolkeep.AsError(err).Message != want {
				t.Errorf("%v\nwant %s", err, want)
			}
		}
		reads := func(value string) {
			t.Helper()
			if v, err := b.local.Read(t.Context(), tt.p, "k"); err != nil || v.Text() != value {
				t.Errorf("after the advice %q, %v", v.Bytes, err)
			}
		}
		refused(tt.missing)
		b.set(t, boss, ScopeNamed("organization"), "", "k", "everybody's")
		reads("everybody's")
		if _, err := b.local.Set(t.Context(), boss, Put{Where: Where{Name: "k", Scope: tt.scope, Owner: tt.owner}, Value: []byte("old"), Expires: b.now.Add(time.Minute)}); err != nil {
			t.Fatal(err)
		}
		b.now = b.now.Add(2 * time.Minute)
		refused(tt.expired)
		b.set(t, boss, tt.scope, tt.owner, "k", "new")
		reads("new")
	}
}

func TestWhoMaySet(t *testing.T) {
	b := newBench(t)
	ann := who("acme", "ann", "workspace=w")
	for _, tt := range []struct {
		w    Where
		code toolkeep.Code
	}{
		{Where{Name: "a"}, ""},
		{Where{Name: "a", Scope: User, Owner: "ann"}, ""},
		{Where{Name: "a", Owner: "bob"}, toolkeep.PermissionDenied},
		{Where{Name: "a", Scope: Workspace}, toolkeep.PermissionDenied},
		{Where{Name: "a", Scope: Organisation}, toolkeep.PermissionDenied},
		{Where{Name: "a", Scope: Server}, toolkeep.InvalidParameters},
		{Where{Name: "a", Scope: Organisation, Owner: "x"}, toolkeep.InvalidParameters},
		{Where{Name: "A"}, toolkeep.InvalidParameters},
		{Where{Name: "a", Scope: Workspace, Owner: strings.Repeat("x", MaxOwner+1)}, toolkeep.InvalidParameters},
	} {
		_, err := b.local.Set(t.Context(), ann, Put{Where: tt.w, Value: []byte("v")})
		if codeOf(err) != tt.code {
			t.Errorf("%+v: %v", tt.w, err)
		}
		if tt.code != "" {
			if err := b.local.Delete(t.Context(), ann, tt.w); codeOf(err) != tt.code {
				t.Errorf("deleting %+v: %v", tt.w, err)
			}
		}
	}
	for _, v := range []string{"", "a\x00b", strings.Repeat("x", MaxBytes+1)} {
		if _, err := b.local.Set(t.Context(), ann, Put{Where: Where{Name: "a"}, Value: []byte(v)}); codeOf(err) != toolkeep.InvalidParameters {
			t.Errorf("%d bytes: %v", len(v), err)
		}
	}
	if err := b.local.Delete(t.Context(), ann, Where{Name: "none"}); codeOf(err) != toolkeep.ResourceNotFound {
		t.Errorf("deleting nothing: %v", err)
	}
	b.set(t, who("acme", "boss", "may=*"), Organisation, "", "o", "v")
	b.set(t, who("acme", "boss", "may=*"), User, "bob", "b", "v")
	names := func(p *toolkeep.Principal) (all string) {
		list, err := b.local.List(t.Context(), p)
		if err != nil {
			t.Fatal(err)
		}
		for _, i := range list {
			all += i.Name + ":" + string(i.Scope) + " "
		}
		return all
	}
	if got := names(ann); got != "a:user o:organisation " {
		t.Errorf("ann sees %s", got)
	}
	if got := names(who("acme", "boss", "may=*")); got != "a:user b:user o:organisation " {
		t.Errorf("the administrator sees %s", got)
	}
	if got := names(who("globex", "boss", "may=*")); got != "" {
		t.Errorf("another tenant sees %s", got)
	}
}

// TestExpiryAndVersions: an expired value still hides broader ones, and versions count up.
func TestExpiryAndVersions(t *testing.T) {
	b := newBench(t)
	ann := who("acme", "ann", "may=*")
	b.set(t, ann, Organisation, "", "k", "org")
	if _, err := b.local.Set(t.Context(), ann, Put{Where: Where{Name: "k"}, Value: []byte("short"), Expires: b.now.Add(time.Hour)}); err != nil {
		t.Fatal(err)
	}
	if _, err := b.local.Set(t.Context(), ann, Put{Where: Where{Name: "k"}, Value: []byte("late"), Expires: b.now}); codeOf(err) != toolkeep.InvalidParameters {
		t.Errorf("expired at once: %v", err)
	}
	if v, err := b.local.Read(t.Context(), ann, "k"); err != nil || v.Text() != "short" || !v.Expires.Equal(b.now.Add(time.Hour)) {
		t.Errorf("%q %v %v", v.Bytes, v.Expires, err)
	}
	b.now = b.now.Add(time.Hour)
	if v, err := b.local.Read(t.Context(), ann, "k"); codeOf(err) != toolkeep.SecretNotFound || len(v.Bytes) > 0 || !strings.Contains(err.Error(), "expired") {
		t.Errorf("after its end: %q %v", v.Bytes, err)
	}
	if st, err := b.local.Look(t.Context(), ann, "k"); err != nil || st.State != Expired || st.Scope != User {
		t.Errorf("after its end: %+v %v", st, err)
	}
	// A writer to the database cannot extend the expiry.
	at := scopedName{User, "ann", "k"}
	it, err := b.store.Document(t.Context(), DocumentKind, "acme", at.id())
	if err != nil {
		t.Fatal(err)
	}
	it.Body = []byte(strings.Replace(string(it.Body), "2026-03-01T01:00:00Z", "2030-03-01T01:00:00Z", 1))
	if err := b.store.Apply(t.Context(), toolkeep.PutDocument{Document: it, Expect: it.Revision}); err != nil {
		t.Fatal(err)
	}
	if v, err := b.local.Read(t.Context(), ann, "k"); codeOf(err) != toolkeep.SecretRetrievalFailed {
		t.Errorf("prolonged by hand: %q %v", v.Bytes, err)
	}
	if i := b.set(t, ann, User, "", "k", "new"); i.Version != 2 || i.State != Ready {
		t.Errorf("%+v", i)
	}
	if len(b.rotated) != 1 || !b.rotated[0] {
		t.Errorf("rotations: %v", b.rotated)
	}
	if v, err := b.local.Read(t.Context(), ann, "k"); err != nil || v.Text() != "new" || v.Version != "2" {
		t.Errorf("%q %s %v", v.Bytes, v.Version, err)
	}
}

// TestSetRace: every one of many concurrent Sets is counted.
func TestSetRace(t *testing.T) {
	b := newBench(t)
	b.local.c.Rotated = func(bool) {}
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			if _, err := b.local.Set(context.Background(), who("acme", "ann"), Put{Where: Where{Name: "k"}, Value: fmt.Appendf(nil, "v%d", i)}); err != nil && codeOf(err) != toolkeep.RecordUnavailable {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	v, err := b.local.Read(t.Context(), who("acme", "ann"), "k")
	if err != nil || !strings.HasPrefix(v.Text(), "v") {
		t.Errorf("%q %v", v.Bytes, err)
	}
}

// TestStoreDown: three tries, then E3403; the last value serves if KeepLast is on.
func TestStoreDown(t *testing.T) {
	b := newBench(t)
	ann := who("acme", "ann")
	b.set(t, ann, User, "", "k", "value-1")
	var status []string
	config := Config{Stores: []Store{b.local}, Clock: func() time.Time { return b.now }, Rotated: func(s string) { status = append(status, s) }}
	strict, err := New(config)
	if err != nil {
		t.Fatal(err)
	}
	config.KeepLast = b.sealer
	kind, err := New(config)
	if err != nil {
		t.Fatal(err)
	}
	gone := errors.New("no connection")
	read := func(r *Resolver, p *toolkeep.Principal) (Value, toolkeep.Code) {
		v, err := r.Fetch(t.Context(), p, "secret://k")
		if err != nil {
			e := toolkeep.AsError(err)
			if e.Code == toolkeep.SecretRetrievalFailed && (!e.Retryable || !e.NothingSent || strings.Contains(e.Message, "connection")) {
				t.Errorf("%+v", e)
			}
		}
		return v, codeOf(err)
	}
	b.store.take(gone, 2)
	if v, code := read(strict, ann); code != "" || v.Text() != "value-1" || b.store.reads != 3 {
		t.Errorf("after two failures: %q %s, %d reads", v.Bytes, code, b.store.reads)
	}
	b.store.take(gone, 0)
	if _, code := read(strict, ann); code != toolkeep.SecretRetrievalFailed || b.store.reads != 3 {
		t.Errorf("down: %s, %d reads", code, b.store.reads)
	}
	if _, code := read(kind, ann); code != toolkeep.SecretRetrievalFailed {
		t.Errorf("down and never read: %s", code)
	}
	b.store.take(nil, 0)
	read(kind, ann)
	b.store.take(gone, 0)
	v, code := read(kind, ann)
	if code != "" || v.Text() != "value-1" || !v.KeptSince.Equal(b.now) {
		t.Errorf("down and read before: %q %s %v", v.Bytes, code, v.KeptSince)
	}
	m := &toolkeep.Manifest{}
	e, err := kind.Credential(t.Context(), ann, m, toolkeep.AuthSpec{Type: "bearer", Secret: "secret://k"}, false)
	if err != nil || len(e.Warnings) != 1 || e.Warnings[0].Code != toolkeep.SecretRetrievalFailed {
		t.Errorf("%+v %v", e.Warnings, err)
	}
	if _, code := read(kind, who("acme", "bob")); code != toolkeep.SecretRetrievalFailed {
		t.Errorf("for another: %s", code)
	}
	b.now = b.now.Add(keepLast + time.Second)
	if _, code := read(kind, ann); code != toolkeep.SecretRetrievalFailed {
		t.Errorf("after a day: %s", code)
	}
	// A deleted value does not come back.
	b.store.take(nil, 0)
	read(kind, ann)
	if err := b.local.Delete(t.Context(), ann, Where{Name: "k"}); err != nil {
		t.Fatal(err)
	}
	if _, code := read(kind, ann); code != toolkeep.SecretNotFound {
		t.Errorf("deleted: %s", code)
	}
	b.store.take(gone, 0)
	if _, code := read(kind, ann); code != toolkeep.SecretRetrievalFailed {
		t.Errorf("deleted and down: %s", code)
	}
	// A new version is counted when a call sees it.
	b.store.take(nil, 0)
	b.set(t, ann, User, "", "n", "1")
	ref := func() { _, _ = kind.Fetch(t.Context(), ann, "secret://n") }
	ref()
	ref()
	b.set(t, ann, User, "", "n", "2")
	ref()
	ref()
	if fmt.Sprint(status) != "[picked_up]" {
		t.Errorf("counted: %v", status)
	}
}

// TestTriesEndWithTheCall: a finished call does not wait for another try.
func TestTriesEndWithTheCall(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	n := 0
	err := tries(ctx, func() error { n++; cancel(); return errors.New("down") })
	if err == nil || n != 1 {
		t.Errorf("%d tries, %v", n, err)
	}
}

// minter is a Minter that counts.
type minter struct {
	asked   []string
	rotated string
	stored  []string
	err     error
}

func (m *minter) Stored(tenant, rotated string) { m.stored = append(m.stored, tenant+" "+rotated) }

func (m *minter) Mint(_ context.Context, _ *toolkeep.Principal, _ []toolkeep.HostPort, _ toolkeep.AuthSpec, plain string, fresh bool) (Value, string, error) {
	m.asked = append(m.asked, fmt.Sprint(plain, " ", fresh))
	return Value{Bytes: []byte("token-1")}, m.rotated, m.err
}

func TestCredentialMints(t *testing.T) {
	b := newBench(t)
	boss := who("acme", "boss", "may=*")
	m := &minter{rotated: "refresh-2"}
	var status []string
	r, err := New(Config{Stores: []Store{b.local}, Minter: m, Rotated: func(s string) { status = append(status, s) },
		LookupEnv: env(map[string]string{"TOOLKEEP_SECRET_R": `{"refresh_token":"refresh-1"}`})})
	if err != nil {
		t.Fatal(err)
	}
	b.set(t, boss, Organisation, "", "k", `{"client_id":"us","refresh_token":"refresh-1","n":1.50}`)
	spec := toolkeep.AuthSpec{Type: "oauth2_refresh", Secret: "secret://k"}
	e, err := r.Credential(t.Context(), who("acme", "bob"), &toolkeep.Manifest{}, spec, true)
	if err != nil || e.Value.Text() != "token-1" || e.Value.Scope != Organisation || e.Value.Version != "1" {
		t.Fatalf("%+v %v", e, err)
	}
	for _, held := range []string{"token-1", "refresh-1", "refresh-2"} {
		if !strings.Contains(strings.Join(e.Held, " "), held) {
			t.Errorf("%s is not held: %q", held, e.Held)
		}
	}
	v, err := b.local.Read(t.Context(), who("acme", "bob"), "k")
	if err != nil || v.Text() != `{"client_id":"us","n":1.50,"refresh_token":"refresh-2"}` || v.Version != "2" {
		t.Errorf("kept: %q %s %v", v.Bytes, v.Version, err)
	}
	if len(m.stored) != 1 || m.stored[0] != "acme refresh-2" {
		t.Errorf("the Minter was told of %q", m.stored)
	}
	// A value that was changed since stays.
	old := Value{Scope: Organisation, Version: "1"}
	if err := b.local.Replace(t.Context(), boss, "k", old, []byte("late")); err != nil {
		t.Error(err)
	}
	if v, _ := b.local.Read(t.Context(), boss, "k"); strings.Contains(v.Text(), "late") {
		t.Error("an older value replaced a newer one")
	}
	// A failure to store is counted, and the token still serves.
	spec.Secret = "env://TOOLKEEP_SECRET_R"
	if e, err := r.Credential(t.Context(), boss, &toolkeep.Manifest{}, spec, false); err != nil || e.Value.Text() != "token-1" || fmt.Sprint(status) != "[failure]" {
		t.Errorf("%+v %v %v", e.Value, err, status)
	}
	if want := `[{"client_id":"us","refresh_token":"refresh-1","n":1.50} true {"refresh_token":"refresh-1"} false]`; fmt.Sprint(m.asked) != want {
		t.Errorf("asked %v", m.asked)
	}
	m.err, m.rotated = refuse(toolkeep.SecretRetrievalFailed, "away"), ""
	if _, err := r.Credential(t.Context(), boss, &toolkeep.Manifest{}, spec, false); codeOf(err) != toolkeep.SecretRetrievalFailed {
		t.Error(err)
	}
	none := &toolkeep.Manifest{Permissions: &toolkeep.Permissions{Credentials: []string{}}}
	if _, err := r.Credential(t.Context(), boss, none, spec, false); codeOf(err) != toolkeep.CredentialDenied {
		t.Error(err)
	}
}

func TestParts(t *testing.T) {
	for _, tt := range []struct{ kind, text, want string }{
		{"bearer", "a:b", "a:b"},
		{"basic", "user:pass:word", "user:pass:word pass:word"},
		{"oauth2_client_credentials", "id:secret", "id:secret secret"},
		{"aws_sigv4", `{"access_key_id":"AK"}`, `{"access_key_id":"AK"}`},
		{"aws_sigv4", `{"secret_access_key":"SK"}`, `{"secret_access_key":"SK"} SK`},
		{"bearer", `{"username":"u"}`, `{"username":"u"}`},
		{"bearer", `{"password":"p"}`, `{"password":"p"} p`},
		{"bearer", `{"data":{"password":"p","user":"u"},"n":1}`, `{"data":{"password":"p","user":"u"},"n":1} p`},
		{"bearer", `{"credential":{"value":"v","client_id":"i"},"tokens":["a","b"]}`, `{"credential":{"value":"v","client_id":"i"},"tokens":["a","b"]} v a b`},
		{"google_service_account", `{"private_key":"PEM"}`, `{"private_key":"PEM"} PEM`},
		{"google_service_account", `{"private_key_id":"i","token_uri":"u"}`, `{"private_key_id":"i","token_uri":"u"}`},
	} {
		if got := strings.Join(Parts(tt.kind, tt.text), " "); got != tt.want {
			t.Errorf("%s %s: %s", tt.kind, tt.text, got)
		}
	}
}

// away is an unreachable store.
type away struct {
	st    Status
	err   error
	looks int
}

func (*away) Scheme() string { return "vault" }
func (a *away) Read(context.Context, *toolkeep.Principal, string) (Value, error) {
	return Value{Bytes: []byte("v"), Scope: a.st.Scope, Store: "vault", Version: a.st.Version, Expires: a.st.Expires}, a.err
}
func (a *away) Look(context.Context, *toolkeep.Principal, string) (Status, error) {
	a.looks++
	return a.st, a.err
}

func TestAuthStatus(t *testing.T) {
	b := newBench(t)
	ann := who("acme", "ann", "may=*")
	b.set(t, ann, Organisation, "", "k", "v")
	v := &away{st: Status{State: Ready, Scope: Workspace, Store: "vault"}}
	r, err := New(Config{Stores: []Store{b.local, v}, LookupEnv: env(map[string]string{"TOOLKEEP_SECRET_A": "x"}), Clock: func() time.Time { return b.now }})
	if err != nil {
		t.Fatal(err)
	}
	of := func(ask bool, refs ...string) string {
		m := &toolkeep.Manifest{}
		for _, ref := range refs {
			typ, ref, _ := strings.Cut(ref, " ")
			m.Auth = append(m.Auth, toolkeep.AuthSpec{Type: typ, Secret: ref})
		}
		a, needed := r.Auth(t.Context(), ann, m, ask)
		if !needed {
			return "none"
		}
		return fmt.Sprintf("%s %s %s %v", a.Type, a.State, a.Scope, a.Checked)
	}
	for _, tt := range []struct {
		ask  bool
		want string
		refs []string
	}{
		{false, "none", nil},
		{false, "bearer ready organisation true", []string{"bearer secret://k"}},
		{false, "bearer missing  true", []string{"bearer secret://none"}},
		{false, "basic ready organisation true", []string{"bearer secret://none", "basic secret://k"}},
		{false, "none ready  true", []string{"bearer secret://none", "none "}},
		{false, "bearer ready server true", []string{"bearer env://TOOLKEEP_SECRET_A"}},
		{false, "bearer missing  true", []string{"bearer env://PATH"}},
		{false, "bearer missing  true", []string{"bearer "}},
		{false, "bearer ready  false", []string{"bearer vault://a#b"}},
		{false, "bearer ready  false", []string{"bearer context://token"}},
		{true, "bearer ready workspace true", []string{"bearer vault://a#b"}},
		{false, "bearer ready workspace false", []string{"bearer vault://a#b"}},
	} {
		if got := of(tt.ask, tt.refs...); got != tt.want {
			t.Errorf("%v %v: %s, want %s", tt.ask, tt.refs, got, tt.want)
		}
	}
	if v.looks != 1 {
		t.Errorf("the far store was asked %d times", v.looks)
	}
	v.err = refuse(toolkeep.SecretAccessDenied, "no")
	if got := of(true, "bearer vault://c"); got != "bearer missing  true" {
		t.Errorf("refused: %s", got)
	}
	v.err = refuse(toolkeep.SecretRetrievalFailed, "away")
	if got := of(true, "bearer vault://a#b"); got != "bearer ready workspace false" {
		t.Errorf("away: %s", got)
	}
}

// TestKeyRing: a new key seals, old keys open, and so do values sealed before keys had ids.
func TestKeyRing(t *testing.T) {
	file := filepath.Join(t.TempDir(), "key")
	s, err := OpenSealer(file)
	if err != nil {
		t.Fatal(err)
	}
	first := mustSeal(t, s, []byte("first"), []byte("c"))
	k := (*s.ring.Load())[0]
	old := k.aead.Seal([]byte{sealV1}, nil, []byte("old"), append([]byte{sealV1}, "c"...))
	other, err := OpenSealer(file) // another process
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.AddKey(); err != nil {
		t.Fatal(err)
	}
	second := mustSeal(t, s, []byte("second"), []byte("c"))
	again, err := OpenSealer(file)
	if err != nil {
		t.Fatal(err)
	}
	for name, x := range map[string]*Sealer{"itself": s, "who opens it anew": again, "who opened it before": other} {
		for want, sealed := range map[string][]byte{"first": first, "second": second, "old": old} {
			if got, err := x.Open(sealed, []byte("c")); err != nil || string(got) != want {
				t.Errorf("%s: %s is %q, %v", name, want, got, err)
			}
		}
		if !x.Stale(first) || !x.Stale(old) || !x.Stale(nil) || x.Stale(second) {
			t.Errorf("%s: what is stale is wrong", name)
		}
	}
	fi, err := os.Stat(file)
	if err != nil || fi.Mode().Perm() != 0o600 {
		t.Errorf("the key file is %v, %v", fi.Mode(), err)
	}
	left, _ := filepath.Glob(filepath.Dir(file) + "/.key-*")
	if len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
	if s.Newest() == hex.EncodeToString(k.id[:]) || s.Keys() != 2 {
		t.Errorf("newest %s of %d", s.Newest(), s.Keys())
	}
	// Without the old key, its values do not open, and the error says no more.
	raw, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	alone, err := ParseSealer(strings.Fields(string(raw))[0])
	if err != nil {
		t.Fatal(err)
	}
	if _, err := alone.Open(first, []byte("c")); codeOf(err) != toolkeep.InternalError {
		t.Error(err)
	}
	if _, err := alone.AddKey(); codeOf(err) != toolkeep.SecretRetrievalFailed {
		t.Error(err)
	}
}

// TestAddKeyRace: keys that several processes add at once are all kept.
func TestAddKeyRace(t *testing.T) {
	file := filepath.Join(t.TempDir(), "key")
	if _, err := OpenSealer(file); err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	sealed := make([][]byte, 8)
	for i := range sealed {
		wg.Go(func() {
			s, err := OpenSealer(file)
			if err == nil {
				_, err = s.AddKey()
			}
			if err != nil {
				t.Error(err)
				return
			}
			sealed[i], err = s.Seal([]byte("x"), nil)
			if err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	s, err := OpenSealer(file)
	if err != nil || s.Keys() != 9 {
		t.Fatalf("%d keys, %v", s.Keys(), err)
	}
	for i, b := range sealed {
		if _, err := s.Open(b, nil); err != nil {
			t.Errorf("%d: %v", i, err)
		}
	}
}

func TestParseKeys(t *testing.T) {
	raw := []byte(strings.Repeat("k", 32))
	b64, hx := base64.StdEncoding.EncodeToString(raw), hex.EncodeToString(raw)
	next := base64.RawURLEncoding.EncodeToString([]byte(strings.Repeat("n", 32)))
	for text, n := range map[string]int{b64: 1, hx: 1, string(raw): 1, b64 + "\n" + next + "\n": 2, hx + "," + next: 2, b64 + " " + hx: 1,
		"": 0, " \n": 0, b64[:40]: 0, b64 + " x": 0, hx[:62]: 0, strings.Repeat("k", 33): 0} {
		s, err := ParseSealer(text)
		switch {
		case n == 0 && codeOf(err) != toolkeep.SecretRetrievalFailed:
			t.Errorf("%q: %v", text, err)
		case n > 0 && (err != nil || s.Keys() != n):
			t.Errorf("%q: %v", text, err)
		case err != nil && text != "" && strings.Contains(err.Error(), b64[:20]):
			t.Errorf("the error shows the key: %v", err)
		}
	}
}

// TestKubernetesMount: files as Kubernetes mounts secrets, swapped as a whole by a symbolic link.
func TestKubernetesMount(t *testing.T) {
	dir := t.TempDir()
	mount := filepath.Join(dir, "acme")
	swap := func(stamp, value string) {
		t.Helper()
		if err := os.MkdirAll(filepath.Join(mount, stamp), 0o755); err != nil {
			t.Fatal(err)
		}
		write(t, filepath.Join(mount, stamp, "token"), value, 0o644)
		tmp := filepath.Join(mount, "..data_tmp")
		if err := errors.Join(os.Symlink(stamp, tmp), os.Rename(tmp, filepath.Join(mount, "..data"))); err != nil {
			t.Fatal(err)
		}
	}
	swap("..2026_01_01", "one\n")
	if err := os.Symlink("..data/token", filepath.Join(mount, "token")); err != nil {
		t.Fatal(err)
	}
	r, err := New(Config{Dirs: []string{dir}})
	if err != nil {
		t.Fatal(err)
	}
	ref := "file://" + mount + "/token"
	for _, want := range []string{"one", "two"} {
		v, err := r.Fetch(t.Context(), who("acme", "ann"), ref)
		if err != nil || v.Text() != want || v.Scope != Server || v.Store != "file" {
			t.Errorf("%q %+v %v", v.Bytes, v.Scope, err)
		}
		swap("..2026_01_02", "two\n")
	}
	if _, err := r.Fetch(t.Context(), who("globex", "ann"), ref); codeOf(err) != toolkeep.SecretAccessDenied {
		t.Errorf("another tenant: %v", err)
	}
}

// TestCallsDoNotWaitForTheStore: a call whose secret is in a store that hangs is refused once LookUp ends the read.
func TestCallsDoNotWaitForTheStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		away := errors.New("away")
		l := NewLocal(LocalConfig{Store: hungItems{}, LookUp: func(ctx context.Context, read func(context.Context) error) error {
			limited, cancel := context.WithTimeout(ctx, 50*time.Millisecond)
			defer cancel()
			if read(limited) == nil {
				t.Error("a store that hangs was read")
			}
			return away
		}})
		p := &toolkeep.Principal{Tenant: "t", Subject: "alice"}
		began := time.Now()
		_, err := l.Read(t.Context(), p, "token")
		if !toolkeep.IsCode(err, toolkeep.SecretRetrievalFailed) || !errors.Is(err, away) || !toolkeep.AsError(err).Retryable {
			t.Errorf("%v", err)
		}
		if _, ok := l.Fingerprint(t.Context(), p, "token"); ok {
			t.Error("there is a fingerprint")
		}
		if took := time.Since(began); took != 100*time.Millisecond {
			t.Errorf("both took %s", took)
		}
	})
}

type hungItems struct{ *sqlite.Store }

func (hungItems) Document(ctx context.Context, _, _, _ string) (toolkeep.Document, error) {
	<-ctx.Done()
	return toolkeep.Document{}, ctx.Err()
}
