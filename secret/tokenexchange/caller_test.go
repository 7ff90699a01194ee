package tokenexchange

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"math/big"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/toolkeep/toolkeep"
)

// authority is an authorization server that checks what it is sent: signature, end and audience of subject tokens and
// assertions, the client, and what the client may have. What it issues is signed too, or text that names its person.
type authority struct {
	*server
	t      *testing.T
	name   string // its issuer
	key    *ecdsa.PrivateKey
	trusts *authority // whose assertions it takes; nil for none
	client string     // id:secret
	now    func() time.Time

	mu     sync.Mutex
	refuse string // answered instead
	issued map[string]string
}

func newAuthority(t *testing.T, name, client string, now func() time.Time) *authority {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	a := &authority{t: t, name: name, key: key, client: client, now: now, issued: map[string]string{}}
	a.server = newServer(t, a.answer)
	return a
}

func (a *authority) sign(typ string, claims map[string]any) string {
	h, err1 := json.Marshal(map[string]any{"alg": "ES256", "typ": typ})
	c, err2 := json.Marshal(claims)
	if err1 != nil || err2 != nil {
		a.t.Fatal(err1, err2)
	}
	text := base64.RawURLEncoding.EncodeToString(h) + "." + base64.RawURLEncoding.EncodeToString(c)
	sum := sha256.Sum256([]byte(text))
	r, s, err := ecdsa.Sign(rand.Reader, a.key, sum[:])
	if err != nil {
		a.t.Fatal(err)
	}
	return text + "." + base64.RawURLEncoding.EncodeToString(append(r.FillBytes(make([]byte, 32)), s.FillBytes(make([]byte, 32))...))
}

// verify returns the claims of a token that this authority has signed and that has not ended, nil otherwise.
func (a *authority) verify(token, typ string) map[string]any {
	parts := strings.Split(token, ".")
	if len(parts) != 3 {
		return nil
	}
	sum := sha256.Sum256([]byte(parts[0] + "." + parts[1]))
	sig, err := base64.RawURLEncoding.DecodeString(parts[2])
	if err != nil || len(sig) != 64 || !ecdsa.Verify(a.key.Public().(*ecdsa.PublicKey), sum[:], new(big.Int).SetBytes(sig[:32]), new(big.Int).SetBytes(sig[32:])) {
		return nil
	}
	var head, claims map[string]any
	for i, into := range []*map[string]any{&head, &claims} {
		raw, err := base64.RawURLEncoding.DecodeString(parts[i])
		if err != nil || json.Unmarshal(raw, into) != nil {
			return nil
		}
	}
	if end, _ := claims["exp"].(float64); head["typ"] != typ || !a.now().Before(time.Unix(int64(end), 0)) {
		return nil
	}
	return claims
}

// person returns a token of the authority for a person.
func (a *authority) person(name string, more map[string]any) (string, time.Time) {
	end := a.now().Add(time.Hour)
	claims := map[string]any{"iss": a.name, "sub": name, "aud": "toolkeep", "exp": end.Unix()}
	for k, v := range more {
		claims[k] = v
	}
	return a.sign("JWT", claims), end
}

func (a *authority) answer(w http.ResponseWriter, r *http.Request, n int64) {
	reply := func(status int, v map[string]any) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(status)
		data, err := json.Marshal(v)
		if err == nil {
			_, _ = w.Write(data)
		}
	}
	no := func(code string) {
		reply(400, map[string]any{"error": code, "error_description": "about " + r.PostForm.Get("subject_token")})
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	f := r.PostForm
	id, hush := f.Get("client_id"), f.Get("client_secret")
	if user, password, ok := r.BasicAuth(); ok {
		id, _ = url.QueryUnescape(user)
		hush, _ = url.QueryUnescape(password)
	}
	if id+":"+hush != a.client {
		no("invalid_client")
		return
	}
	if a.refuse != "" {
		no(a.refuse)
		return
	}
	switch f.Get("grant_type") {
	case "client_credentials":
		token := fmt.Sprintf("self-%d", n)
		a.issued[token] = "toolkeep"
		reply(200, map[string]any{"access_token": token, "token_type": "Bearer"})
	case exchangeGrant:
		claims := a.verify(f.Get("subject_token"), "JWT")
		person, _ := claims["sub"].(string)
		switch {
		case claims == nil || claims["aud"] != "toolkeep":
			no("invalid_grant")
		case f.Get("actor_token") != "" && (a.issued[f.Get("actor_token")] != "toolkeep" || f.Get("actor_token_type") != typePrefix+"access_token"):
			no("invalid_request")
		case f.Get("audience") == "" || strings.Contains(f.Get("audience"), "elsewhere"):
			no("invalid_target")
		case f.Get("requested_token_type") == idJAG && f.Get("subject_token_type") != typePrefix+"id_token":
			no("invalid_request")
		case f.Get("requested_token_type") == idJAG:
			reply(200, map[string]any{"issued_token_type": idJAG, "token_type": "N_A", "expires_in": 300, "access_token": a.sign("oauth-id-jag+jwt",
				map[string]any{"iss": a.name, "sub": person, "aud": f.Get("audience"), "client_id": "tk", "scope": f.Get("scope"), "exp": a.now().Add(300 * time.Second).Unix()})})
		default:
			token := fmt.Sprintf("%s-%d", person, n)
			a.issued[token] = person
			reply(200, map[string]any{"access_token": token, "issued_token_type": typePrefix + "access_token", "token_type": "Bearer", "expires_in": 7200})
		}
	case jwtBearer:
		claims := a.trusts.verify(f.Get("assertion"), "oauth-id-jag+jwt")
		person, _ := claims["sub"].(string)
		if claims == nil || claims["aud"] != a.name || claims["client_id"] != id || claims["scope"] != f.Get("scope") {
			no("invalid_grant")
			return
		}
		token := fmt.Sprintf("%s-%d", person, n)
		a.issued[token] = person
		reply(200, map[string]any{"access_token": token, "token_type": "Bearer", "expires_in": 7200})
	default:
		no("unsupported_grant_type")
	}
}

// fail makes the authority refuse with an error code, "" not.
func (a *authority) fail(code string) { a.mu.Lock(); defer a.mu.Unlock(); a.refuse = code }

func caller(tenant, name string, token string, ends time.Time) *toolkeep.Principal {
	p := &toolkeep.Principal{Tenant: tenant, Subject: name}
	if token != "" {
		p.Token = toolkeep.NewCallerToken(token, ends)
	}
	return p
}

func exchangeSpec(url string, more map[string]any) toolkeep.AuthSpec {
	s := toolkeep.AuthSpec{Type: Exchange, Secret: "secret://x", TokenURL: url, Scopes: []string{"read"}, Settings: map[string]any{"audience": "https://api.example"}}
	for k, v := range more {
		s.Settings[k] = v
	}
	return s
}

// TestExchange: a caller's token becomes one of its person, for this token of this caller alone and no longer than it.
func TestExchange(t *testing.T) {
	m, c := newMinter(t, nil)
	a := newAuthority(t, "https://login.example", "tk:hush", c.Now)
	spec := exchangeSpec(a.URL, map[string]any{"resource": "https://api.example/v1", "requested_token_type": "access_token"})
	get := func(p *toolkeep.Principal, spec toolkeep.AuthSpec, fresh bool) (string, time.Time) {
		t.Helper()
		v, rotated, err := m.Mint(t.Context(), p, loopback, spec, "tk:hush", fresh)
		if err != nil || rotated != "" {
			t.Fatal(rotated, err)
		}
		return v.Text(), v.Expires
	}
	annToken, end := a.person("ann", nil)
	ann := caller("acme", "ann", annToken, end)
	first, expires := get(ann, spec, false)
	if !strings.HasPrefix(first, "ann-") || !expires.Equal(end) {
		t.Errorf("%s until %s, want %s", first, expires, end)
	}
	form, basic := a.last()
	want := url.Values{"grant_type": {exchangeGrant}, "subject_token": {annToken}, "subject_token_type": {typePrefix + "access_token"}, "requested_token_type": {typePrefix + "access_token"},
		"audience": {"https://api.example"}, "resource": {"https://api.example/v1"}, "scope": {"read"}}
	if form.Encode() != want.Encode() || basic != "tk:hush" {
		t.Errorf("%v %q", form, basic)
	}
	if again, _ := get(ann, spec, false); again != first {
		t.Errorf("%s, then %s", first, again)
	}
	if renewed, _ := get(ann, spec, true); renewed == first {
		t.Error("a refused token is given again")
	}
	// Each of these gets a token of its own.
	seen := map[string]bool{}
	bobToken, bobEnd := a.person("bob", nil)
	otherAnn, _ := a.person("ann", map[string]any{"jti": "2"})
	agent := caller("acme", "bot", annToken, end)
	agent.OnBehalf = "ann"
	space := caller("acme", "ann", annToken, end)
	space.Workspace = "w"
	for _, p := range []*toolkeep.Principal{ann, caller("acme", "bob", bobToken, bobEnd), caller("other", "ann", annToken, end), caller("acme", "ann", otherAnn, end), agent, space} {
		token, _ := get(p, spec, false)
		if seen[token] {
			t.Errorf("%s %s: %s is of another", p.Tenant, p.Subject, token)
		}
		seen[token] = true
	}
	if token, _ := get(ann, exchangeSpec(a.URL, map[string]any{"subject_token_type": "jwt"}), false); seen[token] {
		t.Error("another entry, the same token")
	}
	// Kept until the caller's token ends, and then not exchanged.
	kept, _ := get(ann, spec, false)
	c.add(time.Hour - time.Second)
	if again, _ := get(ann, spec, false); again != kept {
		t.Error("it is not kept")
	}
	before := a.requests.Load()
	c.add(time.Second)
	_, _, err := m.Mint(t.Context(), ann, loopback, spec, "tk:hush", false)
	if e := toolkeep.AsError(err); e == nil || e.Code != toolkeep.SecretAccessDenied || e.Details["reason"] != callerExpired || !e.NothingSent || a.requests.Load() != before {
		t.Errorf("after the end: %v, %d requests", err, a.requests.Load()-before)
	}
}

// TestActorToken: Toolkeep's own token goes along as the actor's.
func TestActorToken(t *testing.T) {
	m, c := newMinter(t, nil)
	a := newAuthority(t, "https://login.example", "tk:hush", c.Now)
	token, end := a.person("ann", nil)
	spec := exchangeSpec(a.URL, map[string]any{"actor": true, "auth_style": "body"})
	v, _, err := m.Mint(t.Context(), caller("acme", "ann", token, end), loopback, spec, "tk:hush", false)
	if err != nil || !strings.HasPrefix(v.Text(), "ann-") {
		t.Fatal(v.Text(), err)
	}
	if form, _ := a.last(); !strings.HasPrefix(form.Get("actor_token"), "self-") || form.Get("client_secret") != "hush" || a.requests.Load() != 2 {
		t.Errorf("%v", form)
	}
	if form := a.forms[0]; form.Has("subject_token") || form.Has("audience") || form.Get("grant_type") != "client_credentials" {
		t.Errorf("%v", form)
	}
}

// TestAssertion: the identity provider's assertion becomes a token of the upstream's own authorization server.
func TestAssertion(t *testing.T) {
	m, c := newMinter(t, nil)
	idp := newAuthority(t, "https://idp.example", "sso:quiet", c.Now)
	chat := newAuthority(t, "https://auth.chat.example", "tk:hush", c.Now)
	chat.trusts = idp
	const hush = `{"client_id":"tk","client_secret":"hush","idp_client_id":"sso","idp_client_secret":"quiet"}`
	spec := toolkeep.AuthSpec{Type: Assertion, Secret: "secret://x", TokenURL: chat.URL, Scopes: []string{"chat.read"},
		Settings: map[string]any{"idp_token_url": idp.URL, "audience": "https://auth.chat.example", "resource": "https://mcp.chat.example"}}
	token, end := idp.person("ann", nil)
	ann := caller("acme", "ann", token, end)
	v, _, err := m.Mint(t.Context(), ann, loopback, spec, hush, false)
	if err != nil || !strings.HasPrefix(v.Text(), "ann-") || v.Expires.After(end) {
		t.Fatal(v.Text(), v.Expires, err)
	}
	form, basic := idp.last()
	want := url.Values{"grant_type": {exchangeGrant}, "subject_token": {token}, "subject_token_type": {typePrefix + "id_token"}, "requested_token_type": {idJAG},
		"audience": {"https://auth.chat.example"}, "resource": {"https://mcp.chat.example"}, "scope": {"chat.read"}}
	if form.Encode() != want.Encode() || basic != "sso:quiet" {
		t.Errorf("%v %q", form, basic)
	}
	form, basic = chat.last()
	if form.Has("subject_token") || form.Has("audience") || form.Get("grant_type") != jwtBearer || form.Get("scope") != "chat.read" || basic != "tk:hush" || strings.Contains(form.Encode(), token) {
		t.Errorf("%v %q", form, basic)
	}
	if _, _, err := m.Mint(t.Context(), ann, loopback, spec, hush, false); err != nil || idp.requests.Load() != 1 || chat.requests.Load() != 1 {
		t.Errorf("%v, %d and %d requests", err, idp.requests.Load(), chat.requests.Load())
	}
	for name, change := range map[string]func(w http.ResponseWriter, r *http.Request, n int64){
		"an access token": func(w http.ResponseWriter, _ *http.Request, _ int64) {
			fmt.Fprint(w, `{"access_token":"x","issued_token_type":"`+typePrefix+`access_token","token_type":"Bearer"}`)
		},
		"no type": func(w http.ResponseWriter, _ *http.Request, _ int64) {
			fmt.Fprint(w, `{"access_token":"x","token_type":"N_A"}`)
		},
		"a refresh token": func(w http.ResponseWriter, _ *http.Request, _ int64) {
			fmt.Fprint(w, `{"refresh_token":"x","issued_token_type":"`+idJAG+`"}`)
		},
		"a forged answer": func(w http.ResponseWriter, _ *http.Request, _ int64) {
			fmt.Fprint(w, `{"access_token":"x.y.z","issued_token_type":"`+idJAG+`","token_type":"N_A"}`)
		},
		"more than 256 kB": func(w http.ResponseWriter, _ *http.Request, _ int64) {
			fmt.Fprint(w, `{"access_token":"`+strings.Repeat("x", 300<<10)+`"}`)
		},
	} {
		idp.set(change)
		before := chat.requests.Load()
		if v, _, err := m.Mint(t.Context(), ann, loopback, spec, hush, true); err == nil || name != "a forged answer" && chat.requests.Load() != before {
			t.Errorf("%s: %s, %d requests", name, v.Text(), chat.requests.Load()-before)
		}
	}
}

// TestExchangeRefused: what cannot be exchanged is refused with its reason, and no error holds what was sent.
func TestExchangeRefused(t *testing.T) {
	m, c := newMinter(t, nil)
	a := newAuthority(t, "https://login.example", "tk:hush", c.Now)
	forger := newAuthority(t, "https://login.example", "", c.Now)
	good, end := a.person("ann", nil)
	forged, _ := forger.person("ann", nil)
	foreign, _ := a.person("ann", map[string]any{"aud": "another"})
	ended, _ := a.person("ann", map[string]any{"exp": c.Now().Add(-time.Minute).Unix()})
	for name, x := range map[string]struct {
		token  string
		ends   time.Time
		fail   string // of the server
		more   map[string]any
		reason any
		code   any // OAuth's
		secret string
		sent   bool
	}{
		"no token":          {"", end, "", nil, callerMissing, nil, "", false},
		"ended":             {good, c.Now(), "", nil, callerExpired, nil, "", false},
		"ended there":       {ended, end, "", nil, callerRefused, "invalid_grant", "", true},
		"forged":            {forged, end, "", nil, callerRefused, "invalid_grant", "", true},
		"another audience":  {foreign, end, "", nil, callerRefused, "invalid_grant", "", true},
		"another target":    {good, end, "", map[string]any{"audience": "https://elsewhere.example"}, targetRefused, "invalid_target", "", true},
		"another client":    {good, end, "", nil, nil, "invalid_client", "tk:wrong", true},
		"consent":           {good, end, "consent_required", nil, callerAsked, "consent_required", "", true},
		"interaction":       {good, end, "interaction_required", nil, callerAsked, "interaction_required", "", true},
		"an unknown error":  {good, end, "very_" + good, nil, nil, nil, "", true},
		"another type":      {good, end, "", map[string]any{"requested_token_type": "urn:x:y"}, nil, nil, "", true},
		"no secret of ours": {good, end, "", nil, nil, nil, "tk", false},
	} {
		t.Run(name, func(t *testing.T) {
			a.fail(x.fail)
			before := a.requests.Load()
			if x.secret == "" {
				x.secret = "tk:hush"
			}
			v, _, err := m.Mint(t.Context(), caller("acme", "ann", x.token, x.ends), loopback, exchangeSpec(a.URL, x.more), x.secret, false)
			e := toolkeep.AsError(err)
			if e == nil || e.Code != toolkeep.SecretAccessDenied || e.Details["reason"] != x.reason || e.Details["oauth_error"] != x.code || !e.NothingSent || e.Retryable {
				t.Fatalf("%s %+v", v.Text(), e)
			}
			if (a.requests.Load() != before) != x.sent {
				t.Errorf("%d requests", a.requests.Load()-before)
			}
			if text := fmt.Sprintf("%v %+v %v", err, e.Details, e.Cause); x.token != "" && strings.Contains(text, x.token[20:]) || strings.Contains(text, "hush") {
				t.Errorf("the error holds what was sent: %s", text)
			}
		})
	}
}

// TestPersonsAtOnce: of many callers at once each gets a token of its own person.
func TestPersonsAtOnce(t *testing.T) {
	m, c := newMinter(t, func(c *Config) { c.kept = 8 })
	a := newAuthority(t, "https://login.example", "tk:hush", c.Now)
	var all sync.WaitGroup
	for i := range 20 {
		name := fmt.Sprintf("p%d", i%10)
		token, end := a.person(name, nil)
		all.Go(func() {
			for n := range 20 {
				v, _, err := m.Mint(t.Context(), caller("acme", name, token, end), loopback, exchangeSpec(a.URL, nil), "tk:hush", n%5 == 0)
				if err != nil || !strings.HasPrefix(v.Text(), name+"-") {
					t.Errorf("%s got %s, %v", name, v.Text(), err)
				}
			}
		})
	}
	all.Wait()
}

// TestCallerEntries: entries that could never work are found when their tool is published.
func TestCallerEntries(t *testing.T) {
	for name, x := range map[string]struct {
		kind string
		more map[string]any
		want []string // pointers
	}{
		"an exchange":          {Exchange, nil, nil},
		"all of one":           {Exchange, map[string]any{"actor": true, "subject_token_type": "id_token", "requested_token_type": "urn:a:b", "params": map[string]any{"x": "y"}}, nil},
		"an unknown type":      {Exchange, map[string]any{"subject_token_type": "saml"}, []string{"/auth/0/settings/subject_token_type"}},
		"an actor's name":      {Exchange, map[string]any{"actor": "me"}, []string{"/auth/0/settings/actor"}},
		"a subject of its own": {Exchange, map[string]any{"params": map[string]any{"subject_token": "x"}}, []string{"/auth/0/settings/params/subject_token"}},
		"an actor of its own":  {Assertion, map[string]any{"idp_token_url": "https://idp.example", "params": map[string]any{"actor_token": "x"}}, []string{"/auth/0/settings/params/actor_token"}},
		"an assertion":         {Assertion, map[string]any{"idp_token_url": "https://idp.example"}, nil},
		"no identity provider": {Assertion, nil, []string{"/auth/0/settings/idp_token_url"}},
		"one in the clear":     {Assertion, map[string]any{"idp_token_url": "http://idp.example"}, []string{"/auth/0/settings/idp_token_url"}},
		"no address":           {Assertion, map[string]any{"idp_token_url": "idp"}, []string{"/auth/0/settings/idp_token_url"}},
		"no audience":          {Assertion, map[string]any{"idp_token_url": "https://idp.example", "audience": nil}, []string{"/auth/0/settings/audience"}},
	} {
		t.Run(name, func(t *testing.T) {
			s := exchangeSpec("https://login.example", x.more)
			s.Type = x.kind
			var got []string
			for _, f := range CheckManifest(&toolkeep.Manifest{Auth: []toolkeep.AuthSpec{s}}) {
				got = append(got, f.Pointer)
			}
			if !slices.Equal(got, x.want) {
				t.Errorf("%v, want %v", got, x.want)
			}
		})
	}
}
