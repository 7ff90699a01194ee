package node

import (
	"context"
	"errors"
	"net"
	"net/http"
	"os"
	"sync/atomic"

	"github.com/toolkeep/toolkeep/access"
	"github.com/toolkeep/toolkeep/config"
	"github.com/toolkeep/toolkeep/control/breakers"
	"github.com/toolkeep/toolkeep/control/caches"
	"github.com/toolkeep/toolkeep/control/erasure"
	"github.com/toolkeep/toolkeep/control/holds"
	"github.com/toolkeep/toolkeep/control/imports"
	"github.com/toolkeep/toolkeep/control/overview"
	"github.com/toolkeep/toolkeep/control/policies"
	"github.com/toolkeep/toolkeep/control/secrets"
	"github.com/toolkeep/toolkeep/control/tokens"
	"github.com/toolkeep/toolkeep/datadir"
	"github.com/toolkeep/toolkeep/egress"
	"github.com/toolkeep/toolkeep/examples/bookshop"
	"github.com/toolkeep/toolkeep/face/console"
	"github.com/toolkeep/toolkeep/face/gate"
	"github.com/toolkeep/toolkeep/face/listen"
	"github.com/toolkeep/toolkeep/face/mcpserver"
	"github.com/toolkeep/toolkeep/face/rest"
	"github.com/toolkeep/toolkeep/face/rpc"
)

// faces are the listeners and what answers on them.
type faces struct {
	gate      *gate.Gate // before all of them
	api       *rest.API
	imports   *imports.Imports
	mcp       *mcpserver.Server
	secrets   *secrets.Secrets
	sets      mcpserver.Sets // at /mcp/sets/{name}, and for exports
	listeners *listen.Listeners
	certs     atomic.Pointer[config.Certificates] // health asks for them
	url       atomic.Pointer[string]              // where the HTTP face is reached; requests ask for it
	grpc      string                              // host:port of the gRPC face, "" where it is off
	metrics   string                              // where the metrics are
}

// publicURL is the address under which people reach the server.
func (n *Node) publicURL() string {
	return n.config.HTTP.Public(n.URL())
}

// addresses are all under which the server is reached.
func (n *Node) addresses() []string { return n.config.HTTP.Addresses(n.URL()) }

// certificatesHealth asks for changed files of certificates that cannot be taken.
func (f *faces) certificatesHealth(a *access.Access) func(context.Context) error {
	return func(ctx context.Context) error {
		return errors.Join(f.certs.Load().Health(ctx), a.CertificatesHealth(ctx))
	}
}

// buildMCP makes the face for MCP clients.
func (n *Node) buildMCP(secrets *secrets.Secrets) error {
	c := n.config
	sets, err := mcpserver.ReadSets(c.MCP.SetsFile)
	if err != nil {
		return err
	}
	n.faces.sets = sets
	n.peers = mcpserver.NewPeers(mcpserver.PeersConfig{Store: n.store, Node: n.name, Members: n.members, Sessions: c.MCP.Sessions, Limits: n.faces.gate.Limits(),
		Cert: c.TLS.Cert, Key: c.TLS.Key, Clock: n.options.Clock, Log: n.logger("nodes")})
	n.faces.mcp = mcpserver.New(mcpserver.Config{
		Forward: n.peers.Forward,
		Gate:    n.faces.gate, Invoker: n.pipeline, Calls: n.pipeline, Catalog: n.catalog, Visible: n.access.Visible, Callable: n.access.Callable, Search: n.search, Audience: n.access.Audience, Guide: c.Search.Guide(n.search, n.usage), Reads: n.reads, Retrievals: n.usage, Sealer: n.sealer,
		Upstreams: mcpserver.Behind(n.upstream, n.servers.Names, n.servers.Exists), Set: sets.Find,
		ToolAuth: secrets.ToolAuth,
		View:     c.MCP.View, AutoTools: c.MCP.AutoTools, Node: n.name, BaseURL: c.HTTP.PublicURL,
		Version: n.options.Version, Log: n.logger("mcp_server"),
		Limits: mcpserver.Limits{Sessions: c.MCP.Sessions, SessionIdle: c.MCP.SessionIdle, PrincipalSessions: c.MCP.PrincipalSessions},
		Share:  n.limits.Share,
	})
	return nil
}

func (n *Node) buildFaces(context.Context) error {
	c := n.config
	n.faces.listeners = listen.New(n.logger("server"))
	n.faces.secrets = n.secretsControl()
	proxies, err := c.HTTP.TrustedProxies()
	if err != nil {
		return err
	}
	n.faces.gate = gate.New(gate.Config{
		Auth: n.access, Requests: n.limits, Limited: n.metrics.Limited, Sealer: n.sealer, BaseURL: n.publicURL, Hosts: c.HTTP.Names(), Proxies: proxies, Clean: n.redact.All().Clean, Log: n.logger("rest"),
		Pages: []gate.Pages{{Path: "/mcp", Origins: c.MCP.Origins, Allow: mcpserver.AllowPage},
			{Path: access.ResourceMetadataPath, Origins: []string{"*"}}},
		Challenge: func(path string, err error, sent bool) string { return n.access.Challenge(path, err, sent) },
		Limits:    gate.Limits{BodyBytes: c.HTTP.MaxBody, HeaderBytes: c.HTTP.MaxHeader, KeyBytes: c.HTTP.MaxKey},
	})
	if err := n.buildMCP(n.faces.secrets); err != nil {
		return err
	}
	mounts := map[string]http.Handler{"/mcp": n.faces.mcp, "/mcp/": n.faces.mcp, "/oauth/": n.logins.Handler()}
	if n.access.TakesTokens() {
		mounts[access.ResourceMetadataPath], mounts[access.ResourceMetadataPath+"/"] = n.access.ResourceMetadata(), n.access.ResourceMetadata()
	}
	n.faces.imports = imports.New(imports.Config{Catalog: n.catalog, Visible: n.access.Visible,
		Transport: func(tenant string) http.RoundTripper { return n.pool.Transport(tenant, egress.AllowList{}) }, Dialer: n.pool.Dialer})
	n.faces.api = rest.New(rest.Config{
		Policies: policies.New(policies.Config{Explainer: n.pipeline, Store: n.store, Engine: n.policy, Access: n.access, Catalog: n.catalog, Approvals: n.approvals,
			Calls: n.store.Invocations(), Timeout: c.Policy.Timeout, Clock: n.options.Clock}),
		Tokens:  tokens.New(tokens.Config{Tokens: n.tokens, Store: n.store, Clock: n.options.Clock}),
		Servers: n.servers, Breakers: &breakers.Breakers{Source: n.breakers, Catalog: n.catalog}, Overview: overview.New(overview.Config{Node: n.name, Recent: n.metrics.Recent, Calls: n.store.Invocations(), Approvals: n.approvals, Rates: c.Limits.Rates(), Bulkheads: n.pipeline.Bulkheads.Stats, Clock: n.options.Clock}), ToolHealth: n.monitor.Of, Nodes: n.members, Audit: n.audit, Erasure: erasure.New(erasure.Config{Records: n.persons, Forget: n.usage.Forget, Documents: n.store.Documents, Clock: n.options.Clock, Log: n.logger("audit")}),
		Holds: &holds.Holds{Store: n.store, Clock: n.options.Clock}, Sinks: n.sinks, Contexts: n.contexts, Secrets: n.faces.secrets, Approvals: n.approving,
		Mounts: mounts, Gate: n.faces.gate, Invoker: n.pipeline, Calls: n.pipeline, Catalog: n.catalog, Imports: n.faces.imports, Visible: n.access.Visible, Callable: n.access.Callable,
		Reads: n.reads, Retrievals: n.usage, Learning: n.usage, Guide: c.Search.Guide(n.search, n.usage), Analytics: n.usage.Analytics, Indexing: n.index,
		Search: n.search, Audience: n.access.Audience, SearchAdmin: n.searchControl, Keys: n.access, Blobs: n.blobs, Set: n.faces.sets.Member,
		Console:  console.New(console.Config{Off: !c.Console.Enabled, Gate: n.faces.gate, BaseURL: n.publicURL, Login: []string{"key"}}).Serve,
		Sessions: n.access, NodeName: n.name, BaseURL: n.publicURL, Invalidate: n.recall.Drop, Health: n.health.Handler(), TraceURL: c.Calls.TraceURL,
		Caches:  &caches.Caches{Node: n.name, Results: n.recall, MostResults: c.Cache.Bytes, Search: n.searchCache, MostSearch: c.Search.Cache.Bytes},
		Version: n.options.Version, Addr: c.HTTP.Addr, Log: n.logger("rest"),
	})
	return nil
}

// startPeers makes this node known to the others on its store. Where only one process
// has the store there are none.
func (n *Node) startPeers(ctx context.Context) error {
	return n.peers.Start(ctx, n.config.HTTP.Peer(n.URL()))
}

// closeFaces ends what buildFaces made.
func (n *Node) closeFaces() {
	n.faces.listeners.Interrupt()
	n.faces.listeners.Wait()
	n.faces.mcp.Close()
}

// listen opens the listeners.
func (n *Node) listen(context.Context) error {
	c, f := n.config, &n.faces
	certs, err := c.TLS.Server(n.logger("server"))
	if err != nil {
		return err
	}
	cert := certs.Config
	f.certs.Store(certs)
	addr, err := f.listeners.HTTP(f.api.Server(), c.HTTP.Addr, cert)
	if err != nil {
		return err
	}
	at := listen.URL(addr, cert)
	f.url.Store(&at)
	forMetrics := c.Metrics.Speaks(cert)
	if addr, err = f.listeners.HTTP(n.metrics.Server(n.health), c.Metrics.Addr, forMetrics); err != nil {
		return err
	}
	f.metrics = listen.URL(addr, forMetrics) + "/metrics"
	if !c.GRPC.Enabled() {
		return nil
	}
	addr, err = f.listeners.Serve(rpc.New(rpc.Config{
		Gate: f.gate, Invoker: n.pipeline, Calls: n.pipeline, Catalog: n.catalog, Visible: n.access.Visible, Callable: n.access.Callable, Search: n.search, Audience: n.access.Audience,
		ToolAuth: f.secrets.ToolAuth, ToolHealth: n.monitor.Of, Guide: c.Search.Guide(n.search, n.usage), Reads: n.reads, Retrievals: n.usage, Ready: n.health.Ready, TLS: cert, Log: n.logger("grpc"),
	}), "gRPC", c.GRPC.Addr)
	if err == nil {
		f.grpc = listen.Reachable(addr)
	}
	return err
}

// Failed is sent what ended a listener that should still listen.
func (n *Node) Failed() <-chan error { return n.faces.listeners.Failed() }

// URL is the address of the HTTP face, after Start.
func (n *Node) URL() string {
	if at := n.faces.url.Load(); at != nil {
		return *at
	}
	return ""
}

// GRPCAddr is the host:port of the gRPC face, after Start; "" where it is off.
func (n *Node) GRPCAddr() string { return n.faces.grpc }

// MetricsURL is the address of the metrics, after Start.
func (n *Node) MetricsURL() string { return n.faces.metrics }

// announce tells probes that the node serves, and clients on this machine where.
func (n *Node) announce(context.Context) error {
	n.health.SetStarted()
	f := datadir.ServerFile{URL: n.URL(), Addr: n.config.HTTP.Addr, GRPC: n.faces.grpc, Metrics: n.faces.metrics, PID: os.Getpid(), Version: n.options.Version}
	return f.Write(n.config.Data)
}

var _ gate.Refresher = (*access.Access)(nil)

// startExamples runs the bookshop and imports its document.
func (n *Node) startExamples(ctx context.Context) error {
	return bookshop.Serve(ctx, bookshop.Serving{Secrets: n.config.SecretDirs()[0], By: access.System(), Imports: n.faces.imports,
		Listen: func(s *http.Server) (net.Addr, error) { return n.faces.listeners.HTTP(s, n.config.Examples.Addr, nil) }})
}
