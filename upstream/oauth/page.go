package oauth

import (
	"context"
	"crypto/subtle"
	"errors"
	"html/template"
	"net/http"
	"net/url"
	"strings"

	"github.com/go-json-experiment/json"

	"github.com/toolkeep/toolkeep"
)

// MetadataPath is the path of the client metadata document (OAuth Client ID Metadata
// Document), which serves as the client id if PublicURL is https.
const MetadataPath = "/oauth/client-metadata.json"

// Handler serves /oauth/login/{id}, /oauth/callback and the client metadata. None of
// them requires a key: the id is 128 bits of a hash that only the caller received, and
// the authorization server brings the callback's state.
func (l *Logins) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /oauth/login/{id}", l.loginPage)
	mux.HandleFunc("POST /oauth/login/{id}", l.goOn)
	mux.HandleFunc("GET /oauth/callback", l.callback)
	mux.HandleFunc("GET "+MetadataPath, l.metadata)
	return mux
}

func (l *Logins) metadata(w http.ResponseWriter, _ *http.Request) {
	base := l.c.PublicURL()
	doc := registrationFor(base+"/oauth/callback", methodNone)
	doc.ClientID = base + MetadataPath
	data, err := json.Marshal(doc)
	if err != nil {
		http.Error(w, "the document cannot be written", http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "max-age=3600")
	_, _ = w.Write(data)
}

var page = template.Must(template.New("").Parse(`<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width"><title>Toolkeep</title>
<style>body{font:16px/1.5 system-ui,sans-serif;max-width:34em;margin:4em auto;padding:0 1em;color:#1a1a1a;background:#fff}
dl{display:grid;grid-template-columns:auto 1fr;gap:.3em 1em}dt{opacity:.7}dd{margin:0;overflow-wrap:anywhere}
button{font:inherit;padding:.6em 1.2em;background:#1b4b8f;color:#fff;border:0;border-radius:4px;cursor:pointer}
@media(prefers-color-scheme:dark){body{color:#eee;background:#161616}}</style></head>
<body><h1>{{.Title}}</h1>
{{range .Lines}}<p>{{.}}</p>
{{end}}{{with .Facts}}<dl>{{range .}}<dt>{{.Name}}</dt><dd>{{.Value}}</dd>{{end}}</dl>
{{end}}{{with .Button}}<form method="post"><button>{{.}}</button></form>
{{end}}</body></html>
`))

type pageData struct {
	Title  string
	Lines  []string
	Facts  []fact
	Button string // continues, by a POST to the same address
}

type fact struct{ Name, Value string }

// show writes a page. It cannot be framed, loads and runs nothing, and sends no Referer
// to other sites. Its own POST has a Referer, because without one browsers drop the
// Origin too, which tells other sites' requests apart.
func show(w http.ResponseWriter, status int, v pageData) {
	h := w.Header()
	h.Set("Content-Type", "text/html; charset=utf-8")
	h.Set("Cache-Control", "no-store")
	h.Set("Content-Security-Policy", "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'; base-uri 'none'")
	h.Set("X-Frame-Options", "DENY")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	h.Set("Referrer-Policy", "same-origin")
	w.WriteHeader(status)
	_ = page.Execute(w, v)
}

func (l *Logins) fail(w http.ResponseWriter, err error) {
	if errors.Is(err, errOver) {
		show(w, http.StatusGone, pageData{Title: "This login is over", Lines: []string{"It was finished, or not within its time. Call the tool again to get a new address."}})
		return
	}
	l.c.Log.Error("a login cannot be read or stored", "error", err)
	show(w, http.StatusServiceUnavailable, pageData{Title: "This does not work now", Lines: []string{"The login cannot be read or stored at the moment. Load this page again in a while."}})
}

func (l *Logins) loginPage(w http.ResponseWriter, r *http.Request) {
	g, _, err := l.find(r.Context(), r.PathValue("id"))
	if err != nil {
		l.fail(w, err)
		return
	}
	u, err := url.Parse(g.URL)
	if err != nil {
		l.fail(w, err)
		return
	}
	scopes := strings.Join(g.Scopes, " ")
	if scopes == "" {
		scopes = "what the server gives without being asked"
	}
	show(w, http.StatusOK, pageData{Title: "Log in at " + g.Server, Button: "Go on to " + u.Host,
		Lines: []string{
			g.Subject + " asks to use the MCP server " + g.Server + " with an account of yours.",
			"If you go on, " + g.Subject + " may do there what you allow on the next page, until you log out. If you do not know who that is, or if another person sent you this address, close this window.",
		},
		Facts: []fact{{"Who asks", g.Subject}, {"Tenant", g.Tenant}, {"Server", g.Address}, {"Login at", g.Issuer}, {"Scopes", scopes}},
	})
}

// cookieName contains the login's id, so that concurrent logins stay separate. The
// prefix makes browsers accept it only from this host over https.
func (l *Logins) cookieName(id string) string {
	if l.secure() {
		return "__Host-toolkeep_login_" + id
	}
	return "toolkeep_login_" + id
}

func (l *Logins) secure() bool { return strings.HasPrefix(l.c.PublicURL(), "https://") }

func (l *Logins) cookie(id, value string, seconds int) *http.Cookie {
	// Lax: the authorization server redirects the browser back from another site.
	return &http.Cookie{Name: l.cookieName(id), Value: value, Path: "/", HttpOnly: true, SameSite: http.SameSiteLaxMode, Secure: l.secure(), MaxAge: seconds}
}

// sameSite reports whether the request comes from one of this server's pages.
func (l *Logins) sameSite(r *http.Request) bool {
	check := http.NewCrossOriginProtection()
	if u, err := url.Parse(l.c.PublicURL()); err == nil && u.Host != "" {
		_ = check.AddTrustedOrigin(origin(u)) // a proxy may have changed Host
	}
	return check.Check(r) == nil
}

// goOn sets the cookie after the person has seen the page, and redirects the browser.
func (l *Logins) goOn(w http.ResponseWriter, r *http.Request) {
	if !l.sameSite(r) {
		show(w, http.StatusForbidden, pageData{Title: "Another site sent you here", Lines: []string{"Open the address that the tool call named, and go on from there."}})
		return
	}
	id := r.PathValue("id")
	g, _, err := l.find(r.Context(), id)
	if err != nil {
		l.fail(w, err)
		return
	}
	http.SetCookie(w, l.cookie(id, g.Mark, int(l.c.loginTime.Seconds())))
	h := w.Header()
	h.Set("Cache-Control", "no-store")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Location", g.URL)
	w.WriteHeader(http.StatusSeeOther)
}

func (l *Logins) callback(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	for _, name := range []string{"code", "state", "iss", "error"} {
		if len(q[name]) > 1 {
			show(w, http.StatusBadRequest, pageData{Title: "This does not work", Lines: []string{"The answer of the authorization server has a parameter twice."}})
			return
		}
	}
	id := stateID(q.Get("state"))
	g, revision, err := l.find(r.Context(), id)
	if err != nil {
		l.fail(w, err)
		return
	}
	mark, err := r.Cookie(l.cookieName(id))
	if err != nil || subtle.ConstantTimeCompare([]byte(mark.Value), []byte(g.Mark)) != 1 {
		show(w, http.StatusForbidden, pageData{Title: "Another browser began this login", Lines: []string{
			"Open the address that the tool call named in this browser, and go on from there. If another person sent you a link, close this window."}})
		return
	}
	// The code works only once, so finish even if the browser disconnects.
	err = l.finish(context.WithoutCancel(r.Context()), id, g, revision, answer{code: q.Get("code"), issuer: q.Get("iss"), denied: q.Get("error")})
	switch {
	case err == nil:
		http.SetCookie(w, l.cookie(id, "", -1))
		l.c.Log.Info("a principal logged in at an MCP server", "server", g.Server, "tenant", g.Tenant, "agent_id", g.Subject)
		show(w, http.StatusOK, pageData{Title: "You are logged in at " + g.Server, Lines: []string{g.Subject + " can call its tools now. This window can be closed."}})
		return
	case errors.Is(err, errOver), toolkeep.IsCode(err, toolkeep.RecordUnavailable):
		l.fail(w, err)
		return
	}
	l.c.Log.Warn("a login at an MCP server did not succeed", "server", g.Server, "tenant", g.Tenant, "agent_id", g.Subject, "error", err)
	show(w, http.StatusForbidden, pageData{Title: "There was no login at " + g.Server, Lines: []string{
		"The authorization server " + g.Issuer + ": " + reason(err) + ".", "Call the tool again to get a new address."}})
}

// reason is what the person may read about a failed login.
func reason(err error) string {
	var said *refusal
	var status *statusError
	switch {
	case errors.As(err, &said):
		return said.why
	case errors.As(err, &status):
		return status.Error()
	}
	return "it cannot be reached now"
}
