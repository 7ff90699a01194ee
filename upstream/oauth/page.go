package oauth

import (
	"crypto/subtle"
	"errors"
	"html/template"
	"net/http"
	"net/url"
	"strings"

	"github.com/go-json-experiment/json"

	"github.com/toolkeep/toolkeep"
)

// MetadataPath is where the client metadata document stands (OAuth Client ID
// Metadata Document), which serves as our client id where we are reached by https.
const MetadataPath = "/oauth/client-metadata.json"

const cookie = "toolkeep_login"

// Handler serves /oauth/login/{id}, /oauth/callback and the client metadata. None
// of them needs a key: the id is 128 bits of a hash that only the caller was
// told, and the callback's state is the authorization server's to bring.
func (l *Logins) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /oauth/login/{id}", l.login)
	mux.HandleFunc("GET /oauth/callback", l.callback)
	mux.HandleFunc("GET "+MetadataPath, l.metadata)
	return mux
}

func (l *Logins) metadata(w http.ResponseWriter, _ *http.Request) {
	base := l.c.PublicURL()
	doc, _ := json.Marshal(map[string]any{
		"client_id": base + MetadataPath, "client_name": "Toolkeep", "redirect_uris": []string{base + "/oauth/callback"},
		"grant_types": []string{"authorization_code", "refresh_token"}, "response_types": []string{"code"}, "token_endpoint_auth_method": "none",
	}, json.Deterministic(true))
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "max-age=3600")
	_, _ = w.Write(doc)
}

var page = template.Must(template.New("").Parse(`<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width"><title>Toolkeep</title>
<style>body{font:16px/1.5 system-ui,sans-serif;max-width:34em;margin:4em auto;padding:0 1em;color:#1a1a1a;background:#fff}
a.go{display:inline-block;padding:.6em 1.2em;background:#1b4b8f;color:#fff;text-decoration:none;border-radius:4px}
@media(prefers-color-scheme:dark){body{color:#eee;background:#161616}}</style></head>
<body><h1>{{.Title}}</h1>
{{range .Lines}}<p>{{.}}</p>
{{end}}{{if .URL}}<p><a class="go" rel="noreferrer" href="{{.URL}}">Go to {{.Host}}</a></p>{{end}}</body></html>
`))

type view struct {
	Title string
	Lines []string
	URL   string
	Host  string
}

func show(w http.ResponseWriter, status int, v view) {
	h := w.Header()
	h.Set("Content-Type", "text/html; charset=utf-8")
	h.Set("Cache-Control", "no-store")
	h.Set("Content-Security-Policy", "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'; base-uri 'none'")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Referrer-Policy", "no-referrer")
	w.WriteHeader(status)
	_ = page.Execute(w, v)
}

var gone = view{Title: "This login is over", Lines: []string{"It was finished, or not within its time. Call the tool again to get a new address."}}

// find gives a login that is under way.
func (l *Logins) find(r *http.Request, id string) (loginItem, int64, *view) {
	it, err := l.c.Store.Item(r.Context(), LoginKind, "", id)
	if errors.Is(err, toolkeep.ErrNotFound) {
		return loginItem{}, 0, &gone
	}
	var body loginItem
	if err == nil {
		body, err = l.openLogin(it)
	}
	switch {
	case err != nil:
		l.c.Log.Error("a login cannot be read", "error", err)
		return body, 0, &view{Title: "This does not work now", Lines: []string{"The login cannot be read. Try again in a moment."}}
	case !l.c.Clock().Before(body.Until), body.Code != "", body.Denied != "":
		return body, 0, &gone
	}
	return body, it.Revision, nil
}

func (l *Logins) login(w http.ResponseWriter, r *http.Request) {
	body, _, fault := l.find(r, r.PathValue("id"))
	if fault != nil {
		show(w, http.StatusGone, *fault)
		return
	}
	u, err := url.Parse(body.URL)
	if err != nil || u.Scheme != "https" && u.Scheme != "http" {
		show(w, http.StatusBadGateway, view{Title: "This does not work", Lines: []string{"The MCP server names no address on the web to log in at."}})
		return
	}
	http.SetCookie(w, &http.Cookie{Name: cookie + "_" + r.PathValue("id"), Value: body.Nonce, Path: "/oauth", HttpOnly: true,
		SameSite: http.SameSiteLaxMode, Secure: strings.HasPrefix(l.c.PublicURL(), "https://"), MaxAge: int(l.c.LoginTime.Seconds())})
	show(w, http.StatusOK, view{Title: "Log in at " + body.Server, URL: body.URL, Host: u.Host, Lines: []string{
		"Toolkeep's " + body.Subject + " (tenant " + body.Tenant + ") asks to use the MCP server " + body.Server + " with an account of yours.",
		"If you go on, " + body.Subject + " may do there what you allow on the next page. If you do not know who that is, or somebody sent you this address, close this window.",
	}})
}

func (l *Logins) callback(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	state := q.Get("state")
	id := stateID(state)
	body, revision, fault := l.find(r, id)
	if state == "" || fault != nil {
		if fault == nil {
			fault = &gone
		}
		show(w, http.StatusGone, *fault)
		return
	}
	mark, err := r.Cookie(cookie + "_" + id)
	if err != nil || subtle.ConstantTimeCompare([]byte(mark.Value), []byte(body.Nonce)) != 1 {
		show(w, http.StatusForbidden, view{Title: "Another browser began this login", Lines: []string{
			"Open the address that the tool call named in this browser, and go on from there."}})
		return
	}
	body.Code, body.State, body.Iss = q.Get("code"), state, q.Get("iss")
	done := view{Title: "You are logged in at " + body.Server, Lines: []string{"This window can be closed. The tool can be called again now."}}
	if body.Code == "" {
		body.Denied = "no code"
		if e := q.Get("error"); e != "" {
			body.Denied = e[:min(len(e), 200)]
		}
		done = view{Title: "There was no login at " + body.Server, Lines: []string{"The authorization server answered: " + body.Denied}}
	}
	if err := l.putLogin(r.Context(), id, body, revision); err != nil {
		if errors.Is(err, toolkeep.ErrStale) {
			show(w, http.StatusGone, gone)
			return
		}
		l.c.Log.Error("a login could not be kept", "error", err)
		show(w, http.StatusServiceUnavailable, view{Title: "This does not work now", Lines: []string{"The login cannot be kept. Load this page again in a moment."}})
		return
	}
	show(w, http.StatusOK, done)
}
