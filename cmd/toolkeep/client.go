package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	jsonv2 "github.com/go-json-experiment/json"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/access/signing"
	"github.com/toolkeep/toolkeep/datadir"
	"github.com/toolkeep/toolkeep/egress"
)

// client is a REST client of a running server.
type client struct {
	base string
	key  string
	http *http.Client
	tls  *clientTLS
}

// envSigning is the variable with the secret that signs requests.
const envSigning = "TOOLKEEP_SIGNING_SECRET"

// maxAnswer limits the size of a response.
const maxAnswer = 256 << 20

// connect finds the server and the key: TOOLKEEP_URL and TOOLKEEP_KEY, else the file that the server wrote into its
// data directory. An empty TOOLKEEP_KEY is refused. A data directory's key is sent only to that directory's server.
func (a *app) connect() (*client, error) {
	key, given := os.LookupEnv("TOOLKEEP_KEY")
	if given && strings.TrimSpace(key) == "" { // a lost key must not fall back to the administrator's
		return nil, usagef("TOOLKEEP_KEY is set and empty: put a key into it, or unset it to use the key of the data directory")
	}
	c := &client{base: strings.TrimRight(os.Getenv("TOOLKEEP_URL"), "/"), key: key, tls: &a.tls}
	info, err := datadir.ReadServerFile(a.data)
	if c.base == "" {
		if err != nil {
			return nil, &failure{code: exitUnavailable, err: fmt.Errorf(
				"no server was found for the data directory %s: start one with `toolkeep serve`, name another with --data, or set TOOLKEEP_URL", a.data)}
		}
		c.base = info.URL
	}
	if c.key == "" && c.base == info.URL {
		raw, err := os.ReadFile(filepath.Join(a.data, datadir.AdminKey))
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			return nil, usagef("the key file of the data directory cannot be read: %v", err)
		}
		c.key = strings.TrimSpace(string(raw))
	}
	u, err := url.Parse(c.base)
	if err == nil && (u.Scheme == "grpc" || u.Scheme == "grpcs") {
		return nil, usagef("TOOLKEEP_URL is a gRPC address (%s) and the command line speaks HTTP: set the server's HTTP address, such as http://127.0.0.1:8080", c.base)
	}
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "" {
		return nil, usagef("the server's address %q is not an http or https URL such as http://127.0.0.1:8080", c.base)
	}
	if c.key == "" {
		return nil, usagef("there is no key for %s: set TOOLKEEP_KEY; the key of a data directory (--data) is sent to its own server only", c.base)
	}
	settings, err := a.tls.config(u.Scheme)
	if err != nil {
		return nil, err
	}
	c.http = &http.Client{CheckRedirect: egress.NoRedirects}
	if settings != nil {
		t := http.DefaultTransport.(*http.Transport).Clone()
		t.TLSClientConfig = settings
		c.http.Transport = t
	}
	if secret := strings.TrimSpace(os.Getenv(envSigning)); secret != "" {
		if len(secret) < signing.MinKey {
			return nil, usagef("%s has %d bytes; a signing secret has at least %d", envSigning, len(secret), signing.MinKey)
		}
		c.http.Transport = &signing.Transport{Next: c.http.Transport, Key: []byte(secret)}
	}
	return c, nil
}

// refusedError is an error from a problem document.
type refusedError struct {
	Code         string         `json:"code"`
	Name         string         `json:"name"`
	Detail       string         `json:"detail"`
	RetryAfterS  int            `json:"retry_after_s"`
	InvocationID string         `json:"invocation_id"`
	Details      map[string]any `json:"details"`
	problem      []byte
}

func (e *refusedError) Error() string { return e.Code + " " + e.Name + ": " + e.Detail }

func (e *refusedError) print(w io.Writer) {
	fmt.Fprintln(w, "toolkeep:", e.Error())
	for _, list := range []string{"errors", "checks"} {
		items, _ := e.Details[list].([]any)
		var faults []toolkeep.Fault
		for _, it := range items {
			m, _ := it.(map[string]any)
			if allowed, ok := m["allowed"].(bool); !ok || !allowed {
				faults = append(faults, toolkeep.Fault{Pointer: first(m, "pointer", "check"), Message: first(m, "message", "reason")})
			}
		}
		printFaults(w, e.Detail, faults)
	}
	if body, ok := e.Details["body"]; ok && body != "" { // the upstream's body for a 401, 403 or 429
		if d, err := json.Marshal(body); err == nil {
			fmt.Fprintf(w, "  it said %s\n", toolkeep.Clip(string(d), 2000))
		}
	}
	if at, _ := e.Details["url"].(string); at != "" && e.Code == string(toolkeep.LoginRequired) {
		fmt.Fprintf(w, "  open %s in a browser, then repeat the command\n", at)
	}
	if e.RetryAfterS > 0 {
		fmt.Fprintf(w, "  try again after %d s\n", e.RetryAfterS)
	}
	if e.Code == string(toolkeep.PermissionDenied) && e.InvocationID != "" {
		fmt.Fprintln(w, "  `toolkeep explain` with the same arguments shows every check")
	}
	if e.InvocationID != "" {
		fmt.Fprintf(w, "  recorded as %s\n", e.InvocationID)
	}
}

func first(m map[string]any, keys ...string) string {
	for _, k := range keys {
		if s, ok := m[k].(string); ok {
			return s
		}
	}
	return ""
}

// do sends one request and returns the body of a 2xx response; a problem document is a *refusedError within a
// failure with its exit code.
func (c *client) do(ctx context.Context, method, path string, body any, header ...string) ([]byte, error) {
	resp, err := c.send(ctx, method, path, body, header...)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	raw, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	if err != nil {
		return nil, c.unreachable(ctx, method, err)
	}
	if resp.StatusCode/100 == 2 {
		return raw, nil
	}
	return nil, problemOf(resp, raw)
}

func (c *client) send(ctx context.Context, method, path string, body any, header ...string) (*http.Response, error) {
	var payload io.Reader
	if body != nil {
		raw, ok := body.([]byte)
		if !ok {
			var err error
			if raw, err = jsonv2.Marshal(body); err != nil {
				return nil, usagef("the request cannot be made: %v", err)
			}
		}
		payload = bytes.NewReader(raw)
	}
	req, err := http.NewRequestWithContext(ctx, method, c.base+path, payload)
	if err != nil {
		return nil, usagef("the request cannot be made: %v", err)
	}
	if c.key != "" {
		req.Header.Set("Authorization", "Bearer "+c.key)
	}
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	req.Header.Set("User-Agent", "toolkeep/"+version)
	for i := 0; i+1 < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return nil, c.unreachable(ctx, method, err)
	}
	return resp, nil
}

// unreachable tells why there is no answer. A request that may change something, and whose connection was there and
// ended, may have taken effect.
func (c *client) unreachable(ctx context.Context, method string, err error) error {
	if ctx.Err() != nil {
		return &failure{code: exitRefused, err: errors.New("interrupted")}
	}
	var wrapped *url.Error // repeats method and path
	if errors.As(err, &wrapped) {
		err = wrapped.Err
	}
	lost := errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, syscall.ECONNRESET)
	if lost && method != http.MethodGet {
		return &failure{code: exitUnavailable, err: fmt.Errorf("the server at %s ended the connection before its answer (%w); the request may have taken effect: look before you repeat it (toolkeep invocations shows calls), or repeat a call with the same --idempotency-key", c.base, err)}
	}
	return &failure{code: exitUnavailable, err: fmt.Errorf("the server at %s does not answer (%w); is it running, and is this its address?%s", c.base, err, c.tls.advice())}
}

func problemOf(resp *http.Response, raw []byte) error {
	e := &refusedError{problem: raw}
	if err := json.Unmarshal(raw, e); err != nil || e.Code == "" {
		return &failure{code: exitUnavailable, err: fmt.Errorf(
			"the server at this address is not Toolkeep: it answered %s without a problem document; check TOOLKEEP_URL", resp.Status)}
	}
	return &failure{code: exitCodeOf(toolkeep.Code(e.Code)), err: e}
}

// get decodes the response of a GET into v and returns its bytes.
func (c *client) get(ctx context.Context, path string, v any, header ...string) ([]byte, error) {
	raw, err := c.do(ctx, http.MethodGet, path, nil, header...)
	if err != nil {
		return nil, err
	}
	if v == nil {
		return raw, nil
	}
	return raw, decode(raw, v)
}

func (c *client) post(ctx context.Context, path string, body, v any, header ...string) ([]byte, error) {
	raw, err := c.do(ctx, http.MethodPost, path, body, header...)
	if err != nil || v == nil {
		return raw, err
	}
	return raw, decode(raw, v)
}

// ask sends one request, decodes the response into v and prints it: the JSON unchanged under --json, else what
// human writes.
func (a *app) ask(ctx context.Context, method, path string, body, v any, human func(w io.Writer) error, header ...string) error {
	cl, err := a.connect()
	if err != nil {
		return err
	}
	raw, err := cl.do(ctx, method, path, body, header...)
	if err == nil && v != nil {
		err = decode(raw, v)
	}
	if err != nil {
		return err
	}
	return a.show(raw, human)
}

// act sends a request that is answered without a body, and says what was done: with fields under --json.
func (a *app) act(ctx context.Context, method, path string, body any, fields map[string]any, said string) error {
	cl, err := a.connect()
	if err != nil {
		return err
	}
	if _, err := cl.do(ctx, method, path, body); err != nil {
		return err
	}
	raw, err := json.Marshal(fields)
	if err != nil {
		return err
	}
	return a.show(raw, func(w io.Writer) error {
		_, err := fmt.Fprintln(w, said)
		return err
	})
}

func decode(raw []byte, v any) error {
	if err := json.Unmarshal(raw, v); err != nil {
		return &failure{code: exitUnavailable, err: fmt.Errorf("the server's answer cannot be read, perhaps because its version differs: %w", err)}
	}
	return nil
}

// patience shows a line on stderr if something takes more than a second.
func (a *app) patience(what string) (say func(string), done func()) {
	file, ok := a.stderr.(*os.File)
	if !ok || !isTerminal(file) || dumb() {
		return func(string) {}, func() {}
	}
	texts, stop, stopped := make(chan string, 1), make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		began, text, shown := time.Now(), what, false
		tick := time.NewTicker(250 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case text = <-texts:
			case <-tick.C:
				if s := time.Since(began); s > time.Second {
					fmt.Fprintf(a.stderr, "\r\x1b[K%s … %ds", text, int(s.Seconds()))
					shown = true
				}
			case <-stop:
				if shown {
					fmt.Fprint(a.stderr, "\r\x1b[K")
				}
				return
			}
		}
	}()
	return func(s string) {
			select {
			case texts <- s:
			default:
			}
		}, func() {
			close(stop)
			<-stopped
		}
}
