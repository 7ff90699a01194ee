package toolkeeptest_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/access"
	"github.com/toolkeep/toolkeep/toolkeeptest"
)

// browser is a logged in browser, as far as the server can tell.
type browser struct {
	t            testing.TB
	base         string
	cookie, csrf string
	session      struct {
		Subject     string    `json:"subject"`
		Permissions []string  `json:"permissions"`
		Method      string    `json:"method"`
		Until       time.Time `json:"until"`
		IdleUntil   time.Time `json:"idle_until"`
	}
}

// ask sends a request, with more headers; one that is "" is left out.
func ask(t testing.TB, method, url, body string, headers ...string) (*http.Response, string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	if body != "" {
		r.Header.Set("Content-Type", "application/json")
	}
	for i := 0; i+1 < len(headers); i += 2 {
		if headers[i+1] != "" {
			r.Header.Set(headers[i], headers[i+1])
		}
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	raw, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp, string(raw)
}

// logIn logs in with a key, or by the token of a link.
func logIn(t testing.TB, base, key, link string) *browser {
	t.Helper()
	b, path, body := &browser{t: t, base: base}, "/api/v1/session", ""
	if link != "" {
		path, body = path+"/redeem", fmt.Sprintf(`{"token":%q}`, link)
	}
	bearer := ""
	if key != "" {
		bearer = "Bearer " + key
	}
	resp, text := ask(t, "POST", base+path, body, "Authorization", bearer)
	if resp.StatusCode != 201 || len(resp.Cookies()) != 1 {
		t.Fatalf("%d %s", resp.StatusCode, text)
	}
	c := resp.Cookies()[0]
	if !c.HttpOnly || c.SameSite != http.SameSiteStrictMode || c.Path != "/" || c.MaxAge <= 0 {
		t.Errorf("cookie %s", c)
	}
	b.cookie = c.Name + "=" + c.Value
	var begun struct {
		Token   string `json:"csrf_token"`
		Session json.RawMessage
	}
	if err := json.Unmarshal([]byte(text), &begun); err != nil || json.Unmarshal(begun.Session, &b.session) != nil {
		t.Fatal(err, text)
	}
	if b.csrf = begun.Token; strings.Contains(b.cookie, b.csrf) {
		t.Error("the cookie has the token")
	}
	return b
}

// does sends a request of the session, and wants a status and, in a refusal, a reason.
func (b *browser) does(method, path, body string, status int, reason string, headers ...string) string {
	b.t.Helper()
	resp, text := ask(b.t, method, b.base+path, body, append([]string{"Cookie", b.cookie, "X-Toolkeep-CSRF", b.csrf}, headers...)...)
	if resp.StatusCode != status || reason != "" && !strings.Contains(text, reason) {
		b.t.Errorf("%s %s: %d %s, want %d %s", method, path, resp.StatusCode, text, status, reason)
	}
	return text
}

func TestSessionsNeedCookieAndHeader(t *testing.T) {
	t.Parallel()
	k := toolkeeptest.New(t)
	b := logIn(t, k.URL(), k.AdminKey, "")
	if b.session.Subject == "" || b.session.Method != "key" || b.session.IdleUntil.After(b.session.Until) {
		t.Errorf("session %+v", b.session)
	}
	b.does("GET", "/api/v1/session", "", 200, `"method":"key"`)
	b.does("GET", "/api/v1/tools", "", 200, "")
	b.does("POST", "/api/v1/tools/invoke", `{"tool_id":"std.hash","parameters":{"text":"a"}}`, 200, "succe")

	other := logIn(t, k.URL(), k.Key("default", "bot", "agent"), "")
	for name, headers := range map[string][2][]string{
		"cookie alone":           {{"X-Toolkeep-CSRF", ""}, {"CSRF_MISSING"}},
		"header alone":           {{"Cookie", ""}, {"no API key"}},
		"wrong header":           {{"X-Toolkeep-CSRF", "x" + b.csrf}, {"CSRF_WRONG"}},
		"header of another":      {{"X-Toolkeep-CSRF", other.csrf}, {"CSRF_WRONG"}},
		"cookie of another":      {{"Cookie", other.cookie}, {"CSRF_WRONG"}},
		"altered cookie":         {{"Cookie", b.cookie[:len(b.cookie)-3] + "AAA"}, {"SESSION_OVER"}},
		"link in place of it":    {{"Cookie", "toolkeep_session=" + loginLink(t, k.URL(), k.AdminKey)}, {"SESSION_OVER"}},
		"cookie as bearer":       {{"Cookie", "", "Authorization", "Bearer " + strings.TrimPrefix(b.cookie, "toolkeep_session=")}, {"not an API key"}},
		"cookie by another name": {{"Cookie", "__Host-" + b.cookie}, {"no API key"}},
	} {
		for _, r := range [][3]string{{"GET", "/api/v1/tools", ""}, {"POST", "/api/v1/tools/invoke", `{"tool_id":"std.hash","parameters":{"text":"a"}}`}, {"DELETE", "/api/v1/session", ""}} {
			t.Run(name+" "+r[1], func(t *testing.T) {
				(&browser{t: t, base: b.base, cookie: b.cookie, csrf: b.csrf}).does(r[0], r[1], r[2], 401, headers[1][0], blanks(headers[0])...)
			})
		}
	}
	for _, origin := range []string{"https://evil.example", "null", "http://127.0.0.1:1"} {
		b.does("GET", "/api/v1/tools", "", 403, "ORIGIN_NOT_ALLOWED", "Origin", origin)
		b.does("DELETE", "/api/v1/session", "", 403, "ORIGIN_NOT_ALLOWED", "Origin", origin)
	}
	b.does("GET", "/api/v1/tools", "", 200, "", "Origin", k.URL())
	for _, kind := range []string{"text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x"} {
		resp, text := ask(t, "POST", k.URL()+"/api/v1/session/redeem", `{"token":"x"}`, "Content-Type", kind)
		if resp.StatusCode != 415 && resp.StatusCode != 400 || resp.Cookies() != nil && len(resp.Cookies()) > 0 {
			t.Errorf("%s: %d %s", kind, resp.StatusCode, text)
		}
	}
	// It is for REST alone.
	resp, text := ask(t, "POST", k.URL()+"/mcp", `{"jsonrpc":"2.0","id":1,"method":"ping"}`, "Cookie", b.cookie, "X-Toolkeep-CSRF", b.csrf, "Accept", "application/json, text/event-stream")
	if resp.StatusCode != 401 {
		t.Errorf("mcp: %d %s", resp.StatusCode, text)
	}
	// A session begets neither a session nor a link, and what narrows a key has none.
	b.does("POST", "/api/v1/session", "", 403, "not with another session")
	b.does("POST", "/api/v1/session/links", "", 403, "not with another session")
	if resp, text := ask(t, "POST", k.URL()+"/api/v1/session", "", "Authorization", "Bearer "+k.AdminKey, "X-User-ID", "ann"); resp.StatusCode != 403 {
		t.Errorf("as another: %d %s", resp.StatusCode, text)
	}
	if strings.Contains(k.Log(), b.csrf) || strings.Contains(k.Log(), strings.TrimPrefix(b.cookie, "toolkeep_session=")) {
		t.Error("the log has what a session consists of")
	}
}

// blanks replaces "" by a value that is not sent as the credential, so that ask overrides the one before.
func blanks(headers []string) []string {
	out := append([]string{}, headers...)
	for i := 1; i < len(out); i += 2 {
		if out[i] == "" && out[i-1] == "Cookie" {
			out[i] = "other=1"
		} else if out[i] == "" {
			out[i] = " "
		}
	}
	return out
}

// loginLink makes a login link and returns its token.
func loginLink(t testing.TB, base, key string) string {
	t.Helper()
	resp, text := ask(t, "POST", base+"/api/v1/session/links", "", "Authorization", "Bearer "+key)
	var made struct {
		URL     string    `json:"url"`
		Expires time.Time `json:"expires_at"`
	}
	if err := json.Unmarshal([]byte(text), &made); err != nil || resp.StatusCode != 201 {
		t.Fatal(resp.StatusCode, text)
	}
	at, token, ok := strings.Cut(made.URL, "#")
	if !ok || at != base+"/login" || time.Until(made.Expires) > access.LinkLife {
		t.Error(text)
	}
	return token
}

func TestLoginLinks(t *testing.T) {
	t.Parallel()
	k := toolkeeptest.New(t)
	token := loginLink(t, k.URL(), k.Key("default", "ann", "agent"))
	// Many browsers at once: one is logged in.
	var wg sync.WaitGroup
	var mu sync.Mutex
	var in int
	for range 8 {
		wg.Go(func() {
			resp, text := ask(t, "POST", k.URL()+"/api/v1/session/redeem", fmt.Sprintf(`{"token":%q}`, token))
			mu.Lock()
			defer mu.Unlock()
			switch {
			case resp.StatusCode == 201:
				in++
			case resp.StatusCode != 401 || !strings.Contains(text, "LINK_USED") || len(resp.Cookies()) > 0:
				t.Errorf("%d %s", resp.StatusCode, text)
			}
		})
	}
	if wg.Wait(); in != 1 {
		t.Errorf("%d browsers came in by one link", in)
	}
	b := logIn(t, k.URL(), "", loginLink(t, k.URL(), k.AdminKey))
	if b.session.Method != "link" {
		t.Errorf("session %+v", b.session)
	}
	b.does("GET", "/api/v1/keys", "", 200, "")
	for _, wrong := range []string{"x", strings.TrimPrefix(b.cookie, "toolkeep_session=")} {
		if resp, text := ask(t, "POST", k.URL()+"/api/v1/session/redeem", fmt.Sprintf(`{"token":%q}`, wrong)); resp.StatusCode != 401 {
			t.Errorf("%d %s", resp.StatusCode, text)
		}
	}
	if strings.Contains(k.Log(), token) {
		t.Error("the log has the link")
	}
	_, text := k.Do("GET", "/api/v1/audit/events?type=ai.agent.auth.session_begun", "")
	if !strings.Contains(text, `"method":"link"`) || strings.Contains(text, token) {
		t.Errorf("events %s", text)
	}
}

// A session ends with its key: at the next request, and at a stream within a second.
func TestSessionsEndWithTheirKey(t *testing.T) {
	t.Parallel()
	k := toolkeeptest.New(t)
	for name, change := range map[string]func(id string){
		"revoked": func(id string) { k.Do("DELETE", "/api/v1/keys/"+id, "") },
		"rotated": func(id string) { k.Do("POST", "/api/v1/keys/"+id+"/rotate", `{"overlap_s":3600}`) },
	} {
		key := k.Key("default", name, "agent")
		b := logIn(t, k.URL(), key, "")
		before := loginLink(t, k.URL(), key)
		change(strings.SplitN(key, "_", 3)[1])
		b.does("GET", "/api/v1/tools", "", 401, "")
		if resp, text := ask(t, "POST", k.URL()+"/api/v1/session/redeem", fmt.Sprintf(`{"token":%q}`, before)); resp.StatusCode != 401 {
			t.Errorf("%s: link: %d %s", name, resp.StatusCode, text)
		}
	}
	// A narrower scope counts at once.
	key := k.AddKey(toolkeep.APIKey{Tenant: "default", Subject: "narrowed", Roles: []string{"agent"}})
	b := logIn(t, k.URL(), key, "")
	b.does("GET", "/api/v1/tools/std.hash", "", 200, "")
	if status, text := k.Do("PATCH", "/api/v1/keys/"+strings.SplitN(key, "_", 3)[1], `{"scope":["other.*"]}`); status != 200 {
		t.Fatal(status, text)
	}
	b.does("GET", "/api/v1/tools/std.hash", "", 404, "")
	// Logging out ends the session for good, and no other one of the key.
	again := logIn(t, k.URL(), key, "")
	b.does("DELETE", "/api/v1/session", "", 204, "")
	b.does("GET", "/api/v1/session", "", 401, "SESSION_OVER")
	again.does("GET", "/api/v1/session", "", 200, "")
	if resp, text := ask(t, "GET", k.URL()+"/api/v1/session", "", "Authorization", "Bearer "+key); resp.StatusCode != 200 || !strings.Contains(text, `"method":"bearer"`) {
		t.Errorf("%d %s", resp.StatusCode, text)
	}
}

// A stream ends with the session that opened it.
func TestStreamsEndWithTheirSession(t *testing.T) {
	t.Parallel()
	k := toolkeeptest.New(t)
	b := logIn(t, k.URL(), k.AdminKey, "")
	_, text := ask(t, "POST", k.URL()+"/api/v1/tools/invoke", `{"tool_id":"std.wait","parameters":{"duration_ms":25000},"execution_options":{"async_mode":true}}`, "Cookie", b.cookie, "X-Toolkeep-CSRF", b.csrf)
	var call struct {
		ID string `json:"invocation_id"`
	}
	if err := json.Unmarshal([]byte(text), &call); err != nil || call.ID == "" {
		t.Fatal(err, text)
	}
	r, err := http.NewRequestWithContext(t.Context(), "GET", k.URL()+"/api/v1/invocations/"+call.ID+"/events", nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Cookie", b.cookie)
	r.Header.Set("X-Toolkeep-CSRF", b.csrf)
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	lines := bufio.NewScanner(resp.Body)
	if !lines.Scan() {
		t.Fatal("no event came")
	}
	b.does("DELETE", "/api/v1/session", "", 204, "")
	var last string
	for lines.Scan() {
		last += lines.Text()
	}
	if !strings.Contains(last, "E3214") {
		t.Errorf("the stream ended with %s", last)
	}
	k.Do("POST", "/api/v1/invocations/"+call.ID+"/cancel", "{}")
}

// The console is at /, and what is not its own is answered as without it.
func TestConsoleAmongRoutes(t *testing.T) {
	t.Parallel()
	k := toolkeeptest.New(t)
	for path, status := range map[string][]int{"/": {200, 503}, "/login": {200, 503}, "/none.such": {404}, "/api/v1/none": {404}, "/cache/invalidate/x": {405}, "/api/v1/session/redeem": {405}, "/openapi.json": {200}} {
		resp, text := ask(t, "GET", k.URL()+path, "")
		if !slices.Contains(status, resp.StatusCode) {
			t.Errorf("%s: %d %s", path, resp.StatusCode, text)
		}
		if page := path == "/" || path == "/login"; page && (resp.Header.Get("X-Frame-Options") != "DENY" || !strings.Contains(resp.Header.Get("Content-Security-Policy"), "frame-ancestors 'none'")) {
			t.Errorf("%s: %v", path, resp.Header)
		}
	}
	if resp, _ := ask(t, "POST", k.URL()+"/", "{}"); resp.StatusCode != 404 {
		t.Errorf("POST /: %d", resp.StatusCode)
	}
	// Another site's page gets nothing of it, and neither does one that made its own name point here.
	for _, header := range [][2]string{{"Origin", "https://evil.example"}, {"Origin", "null"}} {
		if resp, _ := ask(t, "GET", k.URL()+"/", "", header[0], header[1]); resp.StatusCode != 403 {
			t.Errorf("%v: %d", header, resp.StatusCode)
		}
	}

	off := toolkeeptest.New(t, toolkeeptest.Option{Settings: map[string]string{"console.enabled": "false"}})
	if resp, _ := ask(t, "GET", off.URL()+"/", ""); resp.StatusCode != 404 {
		t.Errorf("it is off: %d", resp.StatusCode)
	}
	if status, text := off.Do("POST", "/api/v1/session", ""); status != 403 || !strings.Contains(text, "console.enabled") {
		t.Errorf("%d %s", status, text)
	}
	if status, text := off.Do("GET", "/api/v1/session", ""); status != 200 {
		t.Errorf("%d %s", status, text)
	}
}

// What a browser reads does not use up what its subject's agents may send, and has a limit of its own.
func TestLimitsOfTheConsole(t *testing.T) {
	t.Parallel()
	k := toolkeeptest.New(t, toolkeeptest.Option{Limits: true, Settings: map[string]string{"limits.agent_per_minute": "3", "limits.console_per_minute": "5"}})
	key := k.Key("default", "ann", "agent")
	b := logIn(t, k.URL(), key, "") // the first of the agent's three
	for range 5 {
		b.does("GET", "/api/v1/tools", "", 200, "")
	}
	b.does("GET", "/api/v1/tools", "", 429, `"console"`)
	b.does("POST", "/api/v1/tools/invoke", `{"tool_id":"std.hash","parameters":{"text":"a"}}`, 200, "")
	if resp, text := ask(t, "GET", k.URL()+"/api/v1/tools", "", "Authorization", "Bearer "+key); resp.StatusCode != 200 {
		t.Errorf("%d %s", resp.StatusCode, text)
	}
	// Calls of a session count as any.
	b.does("POST", "/api/v1/tools/invoke", `{"tool_id":"std.hash","parameters":{"text":"a"}}`, 429, `"agent"`)
}
