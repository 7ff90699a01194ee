// Command mcpconform is the client that the official MCP conformance suite runs in
// client mode: package upstream, with logins by package upstream/oauth and a
// browser that presses every button.
//
// Usage: mcpconform URL, with the scenario in MCP_CONFORMANCE_SCENARIO and what it
// needs in MCP_CONFORMANCE_CONTEXT (JSON).
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/canon"
	"github.com/toolkeep/toolkeep/mcp"
	"github.com/toolkeep/toolkeep/secret"
	"github.com/toolkeep/toolkeep/upstream"
	"github.com/toolkeep/toolkeep/upstream/oauth"
)

func main() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	os.Exit(run(ctx, os.Args, os.Getenv, os.Stderr))
}

func run(ctx context.Context, args []string, getenv func(string) string, stderr io.Writer) int {
	name := getenv("MCP_CONFORMANCE_SCENARIO")
	do := scenarios[name]
	if strings.HasPrefix(name, "auth/") && !beyond[name] {
		do = authorized
	}
	if len(args) != 2 || do == nil {
		fmt.Fprintf(stderr, "usage: mcpconform URL, with MCP_CONFORMANCE_SCENARIO one of auth/… and %s; it is %q\n",
			strings.Join(slices.Sorted(maps.Keys(scenarios)), ", "), name)
		return 2
	}
	c, err := newClient(args[1], []byte(getenv("MCP_CONFORMANCE_CONTEXT")), stderr)
	if err != nil {
		fmt.Fprintln(stderr, err)
		return 1
	}
	defer c.close()
	if err := do(ctx, c); err != nil {
		for ; err != nil; err = errors.Unwrap(err) {
			fmt.Fprintln(stderr, err)
		}
		return 1
	}
	return 0
}

// beyond lists scenarios of grants without a person.
var beyond = map[string]bool{
	"auth/client-credentials-basic": true, "auth/client-credentials-jwt": true, "auth/enterprise-managed-authorization": true,
	"auth/cross-app-access-complete-flow": true, "auth/dpop": true, "auth/dpop-nonce": true, "auth/wif-jwt-bearer": true,
}

var scenarios = map[string]func(context.Context, *client) error{
	"initialize":                          func(ctx context.Context, c *client) error { return second(c.tools(ctx)) },
	"request-metadata":                    func(ctx context.Context, c *client) error { return second(c.tools(ctx)) },
	"json-schema-ref-no-deref":            func(ctx context.Context, c *client) error { return second(c.tools(ctx)) },
	"tools_call":                          calls("add_numbers", `{"a":5,"b":3}`),
	"sse-retry":                           calls("test_reconnection", `{}`),
	"elicitation-sep1034-client-defaults": calls("test_client_elicitation_defaults", `{}`),
	"json-schema-2020-12-preservation":    echoSchema,
	"sep-2322-client-request-state":       questions,
	"http-standard-headers":               everyVerb,
	"http-custom-headers":                 givenCalls,
	"http-invalid-tool-headers":           everyTool,
}

func second[T any](_ T, err error) error { return err }

// calls lists the tools and calls one that must exist.
func calls(name, arguments string) func(context.Context, *client) error {
	return func(ctx context.Context, c *client) error {
		list, err := c.tools(ctx)
		if err != nil {
			return err
		}
		if list[name] == nil {
			return fmt.Errorf("the server has no tool %s", name)
		}
		return c.call(ctx, name, []byte(arguments))
	}
}

func authorized(ctx context.Context, c *client) error {
	if _, err := c.tools(ctx); err != nil {
		return err
	}
	return c.call(ctx, "test-tool", []byte(`{}`))
}

func echoSchema(ctx context.Context, c *client) error {
	list, err := c.tools(ctx)
	if err != nil {
		return err
	}
	schema := mcp.Get(list["json_schema_2020_12_tool"], "inputSchema")
	if schema == nil {
		return errors.New("the server has no json_schema_2020_12_tool")
	}
	return c.call(ctx, "json_schema_echo", mcp.Set(nil, schema, "schema"))
}

// questions answers the questions of a server of 2026-07-28; a server fault ends only that call.
func questions(ctx context.Context, c *client) error {
	for _, name := range []string{"test_mrtr_echo_state", "test_mrtr_no_state", "test_mrtr_unrelated", "test_mrtr_no_result_type"} {
		c.try(c.call(ctx, name, []byte(`{}`)))
	}
	return ctx.Err()
}

func everyVerb(ctx context.Context, c *client) error {
	d, err := c.definitions(ctx)
	if err != nil {
		return err
	}
	if len(d.Tools) > 0 {
		c.try(c.call(ctx, mcp.Text(d.Tools[0], "name"), []byte(`{}`)))
	}
	if len(d.Resources) > 0 {
		c.try(c.do(ctx, "resources/read", mcp.Set(nil, mcp.Get(d.Resources[0], "uri"), "uri")))
	}
	if len(d.Prompts) > 0 {
		c.try(c.do(ctx, "prompts/get", mcp.Set(mcp.Set(nil, mcp.Get(d.Prompts[0], "name"), "name"), []byte(`{}`), "arguments")))
	}
	return nil
}

func givenCalls(ctx context.Context, c *client) error {
	if _, err := c.tools(ctx); err != nil {
		return err
	}
	for one := range mcp.Elements(mcp.Get(c.context, "toolCalls")) {
		arguments := mcp.Get(one, "arguments")
		if arguments == nil {
			arguments = []byte(`{}`)
		}
		c.try(c.call(ctx, mcp.Text(one, "name"), arguments))
	}
	return nil
}

func everyTool(ctx context.Context, c *client) error {
	list, err := c.tools(ctx)
	if err != nil {
		return err
	}
	for _, name := range slices.Sorted(maps.Keys(list)) {
		c.try(c.call(ctx, name, []byte(`{"region":"us-west1"}`)))
	}
	return nil
}

// client is one principal with one server.
type client struct {
	context []byte
	stderr  io.Writer
	servers *upstream.Servers
	logins  *oauth.Logins
	person  *http.Client
	dir     string
}

// publicURL is the address of the login pages; the suite expects the client's metadata document on this host.
const (
	publicURL = "https://conformance-test.local"
	clientID  = publicURL + "/client-metadata.json"
)

// name is the server's name, and principal its only user.
const name = "referee"

var principal = &toolkeep.Principal{Tenant: "conformance", Subject: "client"}

// maxLogins is the maximum number of logins per request.
const maxLogins = 3

func newClient(url string, given []byte, stderr io.Writer) (*client, error) {
	if len(given) > 0 {
		if _, err := canon.ParseObject(given, canon.Limits{}); err != nil {
			return nil, fmt.Errorf("MCP_CONFORMANCE_CONTEXT cannot be read: %w", err)
		}
	}
	spec := upstream.Spec{Name: name, Transport: upstream.HTTP, URL: url, Session: upstream.SessionPrincipal, Capabilities: []string{upstream.CapElicitation, upstream.CapRoots}}
	if faults := spec.Validate(); len(faults) > 0 {
		return nil, fmt.Errorf("%s: %s", faults[0].Pointer, faults[0].Message)
	}
	dir, err := os.MkdirTemp("", "mcpconform")
	if err != nil {
		return nil, err
	}
	sealer, err := secret.OpenSealer(filepath.Join(dir, "key"))
	if err != nil {
		return nil, err
	}
	log := slog.New(slog.NewTextHandler(stderr, nil))
	c := &client{context: given, stderr: stderr, dir: dir}
	store := newItems()
	c.logins = oauth.New(oauth.Config{
		Store: store, Sealer: sealer, PublicURL: func() string { return publicURL }, ClientID: clientID, Log: log,
		Client: func(string, []toolkeep.HostPort) *http.Client { return &http.Client{} },
	})
	store.follow = c.logins.Follow
	jar, err := cookiejar.New(nil)
	if err != nil {
		return nil, err
	}
	c.person = &http.Client{Jar: jar, Transport: pages{c.logins.Handler()}}
	c.servers = upstream.New(upstream.Config{Log: log, Client: []byte(`{"name":"mcpconform","version":"1"}`),
		Authorize: func(_ context.Context, s *upstream.Spec, p *toolkeep.Principal) (upstream.Authorizer, error) {
			r := oauth.Ref{Server: s.Name, URL: s.URL, Tenant: p.Tenant, Subject: p.Subject, ClientID: mcp.Text(given, "client_id")}
			if text := mcp.Text(given, "client_secret"); text != "" {
				r.ClientSecret = func(context.Context) (string, error) { return text, nil }
			}
			return c.logins.Account(r), nil
		}})
	c.servers.Set([]upstream.Spec{spec})
	return c, nil
}

func (c *client) close() {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	_ = c.servers.Stop(ctx) // it returns no error
	c.logins.Stop()
	_ = os.RemoveAll(c.dir)
}

// try logs an error after which the scenario continues.
func (c *client) try(err error) {
	if err != nil {
		fmt.Fprintln(c.stderr, err)
	}
}

// withLogin acts like an agent that gets E3407: its person logs in, and it repeats the request.
func (c *client) withLogin(ctx context.Context, f func() error) error {
	for n := 0; ; n++ {
		err := f()
		var e *toolkeep.Error
		if !errors.As(err, &e) || e.Code != toolkeep.LoginRequired || n == maxLogins {
			return err
		}
		at, _ := e.Details["url"].(string)
		if err := c.logIn(ctx, at); err != nil {
			return err
		}
	}
}

// logIn opens the page, presses its button and follows the redirects.
func (c *client) logIn(ctx context.Context, at string) error {
	for _, method := range []string{http.MethodGet, http.MethodPost} {
		req, err := http.NewRequestWithContext(ctx, method, at, nil)
		if err != nil {
			return err
		}
		if method == http.MethodPost {
			req.Header.Set("Origin", publicURL)
		}
		resp, err := c.person.Do(req)
		if err != nil {
			return err
		}
		page, err := io.ReadAll(io.LimitReader(resp.Body, 1<<20))
		_ = resp.Body.Close()
		if err != nil {
			return err
		}
		if resp.StatusCode != http.StatusOK {
			return fmt.Errorf("the login ended with HTTP %d:\n%s", resp.StatusCode, page)
		}
	}
	return nil
}

// pages serves the login pages in process; every other host is on the network.
type pages struct{ http.Handler }

func (p pages) RoundTrip(r *http.Request) (*http.Response, error) {
	if "https://"+r.URL.Host != publicURL {
		return http.DefaultTransport.RoundTrip(r)
	}
	in := r.Clone(r.Context())
	in.RequestURI, in.Host = r.URL.RequestURI(), r.URL.Host
	w := httptest.NewRecorder()
	p.ServeHTTP(w, in)
	resp := w.Result()
	resp.Request = r
	return resp, nil
}

func (c *client) definitions(ctx context.Context) (d upstream.Definitions, err error) {
	err = c.withLogin(ctx, func() error {
		d, err = c.servers.Refresh(ctx, principal, name)
		return err
	})
	return d, err
}

// tools returns the raw tools by name.
func (c *client) tools(ctx context.Context) (map[string][]byte, error) {
	d, err := c.definitions(ctx)
	list := map[string][]byte{}
	for _, raw := range d.Tools {
		list[mcp.Text(raw, "name")] = raw
	}
	return list, err
}

func (c *client) call(ctx context.Context, tool string, arguments []byte) error {
	return c.do(ctx, "tools/call", mcp.Set(mcp.Set(nil, mcp.Quote(tool), "name"), arguments, "arguments"))
}

func (c *client) do(ctx context.Context, method string, params []byte) error {
	return c.withLogin(ctx, func() error {
		_, err := c.servers.Do(ctx, &upstream.Request{Principal: principal, Server: name, Method: method, Params: params, Session: "one", Peer: c,
			PeerCapabilities: []byte(`{"elicitation":{},"roots":{}}`)})
		return err
	})
}

// Ask answers a form with its schema's defaults, or true without one.
func (c *client) Ask(_ context.Context, method string, params []byte) ([]byte, error) {
	switch method {
	case "roots/list":
		return []byte(`{"roots":[]}`), nil
	case "elicitation/create":
	default:
		return nil, mcp.NewError(mcp.CodeMethodNotFound, "this client has no model")
	}
	content := []byte(`{}`)
	for field, schema := range mcp.Members(mcp.Get(params, "requestedSchema", "properties")) {
		value := mcp.Get(schema, "default")
		if value == nil && mcp.Text(schema, "type") == "boolean" {
			value = []byte(`true`)
		}
		if value != nil {
			content = mcp.Set(content, value, field)
		}
	}
	return mcp.Set([]byte(`{"action":"accept"}`), content, "content"), nil
}

// Notify discards notifications.
func (c *client) Notify(string, []byte) {}
