package httptool

import (
	"context"
	"crypto/x509"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/egress"
)

const (
	healthAt     = "/health/endpoint"
	maxEndpoint  = 2 << 10  // bytes of a health endpoint
	maxProbeBody = 64 << 10 // bytes read of a probe's answer
)

// CheckProbe implements toolkeep.Prober. The endpoint is an http or https URL, or, of a tool of kind http, a path on its server
// that begins with /. A URL names the tool's server, or a host and port of permissions.network.
func (e *Executor) CheckProbe(m *toolkeep.Manifest) []toolkeep.Fault {
	b, faults := &binding{}, []toolkeep.Fault(nil)
	if m.Execution.Kind == e.Kind() {
		if b, faults = parse(m); len(faults) > 0 {
			return nil // Check tells of them
		}
	}
	if _, why := b.endpoint(m); why != "" {
		return []toolkeep.Fault{{Pointer: healthAt, Rule: "endpoint", Message: why}}
	}
	return nil
}

// Probe implements toolkeep.Prober: GET, through the egress guard with the tool's permissions.network and the authorities of its
// binding. It sends no credentials, follows no redirect, and reads at most 64 KiB of the answer.
//
// Outcomes: nil for HTTP 2xx; E3008 no endpoint can be asked; E3501, E3502, E3503, E3505 and E3902 as Execute; E3504 the answer is
// not HTTP, or a redirect; E3520 HTTP 5xx; E3510 any other status. details.status is the status.
func (e *Executor) Probe(ctx context.Context, t *toolkeep.Tool) error {
	m := t.Manifest
	b := &binding{}
	if m.Execution.Kind == e.Kind() {
		var err *toolkeep.Error
		// Of an outline the whole tool is read once, as long as its binding is kept.
		if b, err = e.bindings.Of(t, func(*toolkeep.Manifest) (*binding, []toolkeep.Fault) {
			whole, err := t.Whole()
			if err != nil {
				return nil, []toolkeep.Fault{{Message: "the manifest cannot be read"}}
			}
			return parse(whole.Manifest)
		}); err != nil {
			return err
		}
	} else if m.Permissions != nil {
		b.allow = egress.NewAllowList(m.Permissions.Network)
	}
	u, why := b.endpoint(m)
	if why != "" {
		return toolkeep.NewError(toolkeep.InvalidManifest, "%s: %s", healthAt, why)
	}
	return e.get(ctx, t.Tenant, b.allow, b.roots, u)
}

func (e *Executor) get(ctx context.Context, tenant string, allow egress.AllowList, roots *x509.CertPool, u *url.URL) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	req := (&http.Request{Method: http.MethodGet, URL: u, Host: u.Host, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: http.Header{"User-Agent": {"toolkeep"}, "Accept": {"*/*"}}}).WithContext(ctx)
	resp, err := e.pool.TransportFor(tenant, allow, egress.TransportOptions{RootCAs: roots}).RoundTrip(req)
	if err != nil {
		return failure(ctx, &toolkeep.Execution{}, err, false)
	}
	// Read to its end, so that the connection can be reused.
	_, _ = io.CopyN(io.Discard, resp.Body, maxProbeBody)
	resp.Body.Close()
	status := resp.StatusCode
	switch {
	case status >= 200 && status <= 299:
		return nil
	case isRedirect(status):
		return badRedirect(status, "the health endpoint redirects, which a probe does not follow: name the address that answers")
	case status >= 500:
		return toolkeep.NewError(toolkeep.UpstreamServerError, "the health endpoint answers HTTP %d", status).With("status", status)
	}
	return toolkeep.NewError(toolkeep.UpstreamClientError, "the health endpoint answers HTTP %d; it must answer without credentials", status).With("status", status)
}

// endpoint is the address that a manifest's health names, or why there is none.
func (b *binding) endpoint(m *toolkeep.Manifest) (u *url.URL, why string) {
	text := ""
	if m.Health != nil {
		text = m.Health.Endpoint
	}
	server := &url.URL{Scheme: b.scheme, Host: b.host}
	u, err := url.Parse(text)
	switch {
	case text == "" || len(text) > maxEndpoint:
		return nil, fmt.Sprintf("the endpoint must have 1 to %d bytes", maxEndpoint)
	case err != nil || u.User != nil || u.Fragment != "" || u.Opaque != "":
		return nil, "the endpoint must be a URL or a path, without a user, a password and a fragment"
	case u.Scheme == "" && u.Host == "":
		if b.host == "" {
			return nil, "a tool of kind " + m.Execution.Kind + " has no HTTP server, so its endpoint must be an absolute http or https URL"
		}
		if !strings.HasPrefix(u.Path, "/") {
			return nil, "a path must begin with /; it is one on the tool's server"
		}
		return server.ResolveReference(u), ""
	case u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "":
		return nil, "the endpoint must be an absolute http or https URL, or a path on the tool's server that begins with /"
	}
	host, port := hostPort(u)
	if own, at := hostPort(server); b.host != "" && strings.EqualFold(own, host) && at == port {
		return u, ""
	}
	if m.Permissions != nil {
		for _, h := range m.Permissions.Network {
			if strings.EqualFold(h.Host, host) && (h.Port == 0 || h.Port == port) {
				return u, ""
			}
		}
	}
	return nil, fmt.Sprintf("%s is not the tool's server; to probe it, add {\"host\": %q, \"port\": %d} to permissions.network", net.JoinHostPort(host, strconv.Itoa(port)), host, port)
}
