package httptool

import (
	"bytes"
	"context"
	"io"
	"maps"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/canon"
	"github.com/toolkeep/toolkeep/egress"
	"github.com/toolkeep/toolkeep/executor/bindings"
	"github.com/toolkeep/toolkeep/redact"
)

const (
	maxRedirects    = 5
	maxRedirectWait = 10 * time.Second
	defaultMaxBytes = 100 << 20
)

// Config configures an Executor. The zero value works.
type Config struct {
	// Egress configures the pool of connections.
	Egress egress.PoolConfig
	// Clock returns the time, for Retry-After dates; nil is time.Now.
	Clock func() time.Time
}

// Executor is the executor of kind "http". It is safe for concurrent use.
type Executor struct {
	pool  *egress.Pool
	clock func() time.Time

	bindings bindings.Kept[binding]
}

var (
	_ toolkeep.Executor      = (*Executor)(nil)
	_ toolkeep.UpstreamNamer = (*Executor)(nil)
	_ toolkeep.Reacher       = (*Executor)(nil)
	_ toolkeep.Prober        = (*Executor)(nil)
)

// UpstreamOf implements toolkeep.UpstreamNamer: the upstream of a tool is its host.
func (e *Executor) UpstreamOf(_ *toolkeep.Principal, t *toolkeep.Tool) string {
	b, err := e.bindings.Of(t, parse)
	if err != nil {
		return ""
	}
	return redact.Host((&url.URL{Host: b.host}).Hostname())
}

// Reach implements toolkeep.Reacher: a tool's calls begin at its host. Where redirects and
// pages lead is checked when they are followed.
func (e *Executor) Reach(t *toolkeep.Tool) (toolkeep.Reach, error) {
	b, err := e.bindings.Of(t, parse)
	if err != nil {
		return toolkeep.Reach{}, err
	}
	host, port := hostPort(&url.URL{Scheme: b.scheme, Host: b.host})
	return toolkeep.Reach{Hosts: []toolkeep.HostPort{{Host: host, Port: port}}}, nil
}

func hostPort(u *url.URL) (string, int) {
	port, _ := strconv.Atoi(egress.Port(u))
	return u.Hostname(), port
}

// New returns an Executor.
func New(c Config) *Executor {
	e := &Executor{pool: egress.NewPool(c.Egress), clock: c.Clock}
	if e.clock == nil {
		e.clock = time.Now
	}
	return e
}

// Close closes idle connections. It may be called twice.
func (e *Executor) Close() { e.pool.Close() }

// Kind is "http".
func (e *Executor) Kind() string { return "http" }

// Check returns every fault of the binding and of auth.
func (e *Executor) Check(m *toolkeep.Manifest) []toolkeep.Fault {
	_, faults := parse(m)
	return faults
}

// Execute sends one request and follows redirects.
//
// Errors: E3302 and E3320 an argument cannot be sent; E3402 the credential cannot be
// sent, or HTTP 401 or 403; E3501 DNS, connect, reset; E3502 the attempt's deadline, or
// HTTP 408; E3503 TLS; E3504 the response is not valid HTTP or a redirect must not be
// followed; E3505 forbidden destination; E3510 other HTTP 4xx; E3520 HTTP 5xx; E3710
// the response is over MaxBytes (default 100 MiB); E3801 HTTP 429; E3902 ctx was
// cancelled. If there was a response, details.status is its HTTP status.
//
// BytesSent and BytesRecv count the bodies as sent over the wire.
func (e *Executor) Execute(ctx context.Context, x *toolkeep.Execution) (*toolkeep.Output, error) {
	b, err := e.bindings.Of(x.Tool, parse)
	if err != nil {
		return nil, err
	}
	r, err := b.build(x)
	if err != nil {
		return nil, err
	}
	tenant := ""
	if x.Principal != nil {
		tenant = x.Principal.Tenant
	}
	a := &attempt{executor: e, x: x, binding: b, tenant: tenant}
	out, err := a.run(ctx, r)
	if err != nil {
		return nil, err
	}
	return out, nil
}

// attempt is one Execute.
type attempt struct {
	executor *Executor
	x        *toolkeep.Execution
	binding  *binding
	tenant   string
	sending  egress.SentTracker
	sent     int64
	percent  int           // of a stream, as last reported
	repairs  canon.Repairs // of the pages or events

	parent context.Context // the caller's
	ctx    context.Context // of the requests
	stop   func()          // ends ctx
}

func (a *attempt) run(ctx context.Context, r *request) (*toolkeep.Output, *toolkeep.Error) {
	// Ending the context closes the connection of an abandoned response.
	a.parent = ctx
	a.ctx, a.stop = context.WithCancel(a.sending.Trace(ctx))
	defer a.stop()
	if a.binding.pages != nil {
		return a.pages(r)
	}
	resp, r, err := a.exchange(r, true)
	if err != nil {
		return nil, err
	}
	out, err := a.answer(r, resp)
	resp.Body.Close()
	return out, err
}

// exchange sends one request and follows redirects to the final response. It also
// returns the request that was answered. first says that nothing was sent before.
func (a *attempt) exchange(r *request, first bool) (*http.Response, *request, *toolkeep.Error) {
	for hop := 0; ; hop++ {
		if host, port := hostPort(r.url); !a.x.Grant.AllowsHost(host, port) {
			e := toolkeep.NewError(toolkeep.NetworkDenied, "the capability token's network_permissions do not allow %s, to which the tool's upstream leads", net.JoinHostPort(host, strconv.Itoa(port)))
			e.NothingSent = first && hop == 0
			return nil, nil, e
		}
		req, terr := a.http(a.ctx, r)
		if terr != nil {
			return nil, nil, terr
		}
		resp, err := a.transport(r).RoundTrip(req)
		if err != nil {
			return nil, nil, failure(a.parent, a.x, err, first && hop == 0 && a.sending.NothingSent())
		}
		a.sent += int64(len(r.body))
		if !isRedirect(resp.StatusCode) {
			return resp, r, nil
		}
		// Read a short body to its end, so that the connection can be reused.
		io.CopyN(io.Discard, resp.Body, 4<<10)
		resp.Body.Close()
		wait := egress.RetryAfter(resp.Header.Get("Retry-After"), a.executor.clock())
		if hop == maxRedirects {
			return nil, nil, badRedirect(resp.StatusCode, "the upstream redirected more than 5 times").After(wait)
		}
		next, terr := a.follow(r, resp)
		if terr == nil {
			terr = a.pause(wait, resp.StatusCode)
		}
		if terr != nil {
			return nil, nil, terr.After(wait)
		}
		r = next
	}
}

// pause waits before following a redirect, if the upstream requests it.
func (a *attempt) pause(d time.Duration, status int) *toolkeep.Error {
	if d <= 0 {
		return nil
	}
	if d > maxRedirectWait {
		return badRedirect(status, "the upstream redirected and asks for a longer wait than one call allows")
	}
	if !toolkeep.Sleep(a.parent, d) {
		return failure(a.parent, a.x, a.parent.Err(), false)
	}
	return nil
}

// transport returns the transport for the tenant, the allow-list, the request's
// certificate and the binding's authorities.
func (a *attempt) transport(r *request) *http.Transport {
	return a.executor.pool.TransportFor(a.tenant, a.binding.allow, egress.TransportOptions{Certificate: r.certificate, RootCAs: a.binding.roots})
}

// http builds the request for the transport, and signs it if required.
func (a *attempt) http(ctx context.Context, r *request) (*http.Request, *toolkeep.Error) {
	req := &http.Request{
		Method: r.method, URL: r.url, Host: r.url.Host, Header: r.header,
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
	}
	if r.method != "HEAD" && r.header.Get("Range") == "" {
		r.header["Accept-Encoding"] = []string{acceptEncoding}
	}
	switch {
	case len(r.body) > 0:
		req.Body, req.ContentLength = newBody(r.body), int64(len(r.body))
		if a.binding.replay {
			body := r.body
			req.GetBody = func() (io.ReadCloser, error) { return newBody(body), nil }
		}
	case a.binding.replay || !safeMethods[r.method]:
		req.Body = http.NoBody
	default:
		// net/http repeats a GET by itself if a reused connection breaks. A tool that
		// writes must not be repeated; a body that is not NoBody prevents it.
		req.Body = newBody(nil)
	}
	if r.sign != nil {
		req.Header = maps.Clone(r.header)
		if err := r.sign.apply(req, r.body, a.executor.clock()); err != nil {
			return nil, err
		}
	}
	return req.WithContext(ctx), nil
}

// safeMethods are those that net/http repeats.
var safeMethods = map[string]bool{"GET": true, "HEAD": true, "OPTIONS": true}

func newBody(b []byte) io.ReadCloser { return io.NopCloser(bytes.NewReader(b)) }

func isRedirect(status int) bool {
	switch status {
	case 301, 302, 303, 307, 308:
		return true
	}
	return false
}

func badRedirect(status int, why string) *toolkeep.Error {
	return toolkeep.NewError(toolkeep.InvalidResponse, "%s", why).With("status", status)
}

// follow builds the request for a redirect.
func (a *attempt) follow(r *request, resp *http.Response) (*request, *toolkeep.Error) {
	status, location := resp.StatusCode, resp.Header.Get("Location")
	to, err := r.url.Parse(location)
	switch {
	case location == "" || err != nil:
		return nil, badRedirect(status, "the upstream redirected without saying where to")
	case to.Scheme != "http" && to.Scheme != "https" || to.Host == "":
		return nil, badRedirect(status, "the upstream redirected to something that is not HTTP")
	case r.url.Scheme == "https" && to.Scheme == "http":
		return nil, badRedirect(status, "the upstream redirected from https to http, which is not followed")
	}
	to.User, to.Fragment, to.RawFragment = nil, "", ""
	copied := *r
	next := &copied
	next.url, next.header = to, maps.Clone(r.header)
	if status == 303 && r.method != "HEAD" || (status == 301 || status == 302) && r.method == "POST" {
		next.method, next.body, next.hasBody = "GET", nil, false
		delete(next.header, "Content-Type")
	}
	if !egress.SameOrigin(r.url, to) {
		return a.leave(next, status)
	}
	next.addKeys()
	return next, nil
}

// leave removes what another origin must not receive.
func (a *attempt) leave(r *request, status int) (*request, *toolkeep.Error) {
	if r.hasBody {
		return nil, badRedirect(status, "the upstream redirected the request's body to another host, which is not followed")
	}
	if a.x.Cleaned(r.url.String()) != r.url.String() {
		return nil, badRedirect(status, "the upstream redirected to another host with a secret of this call, which is not followed")
	}
	header := make(http.Header, 4)
	for _, name := range []string{"Accept", "User-Agent"} {
		if v, ok := r.header[name]; ok {
			header[name] = v
		}
	}
	r.header, r.keys, r.sign, r.certificate = header, nil, nil, nil
	return r, nil
}

// addKeys adds query credentials again if the redirect dropped them.
func (r *request) addKeys() {
	if len(r.keys) == 0 {
		return
	}
	have := r.url.Query()
	w := pairs{sep: "&", buf: []byte(r.url.RawQuery)}
	for _, k := range r.keys {
		if !have.Has(k.name) {
			w.add(k.name, k.value, escStrict)
		}
	}
	r.url.RawQuery = string(w.buf)
}
