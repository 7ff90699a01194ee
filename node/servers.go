package node

import (
	"context"
	"net/http"
	"path/filepath"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/canon"
	"github.com/toolkeep/toolkeep/control/servers"
	"github.com/toolkeep/toolkeep/datadir"
	"github.com/toolkeep/toolkeep/egress"
	"github.com/toolkeep/toolkeep/upstream"
	"github.com/toolkeep/toolkeep/upstream/oauth"
)

// buildPool makes the connections to MCP servers and to the services of settings.
func (n *Node) buildPool(context.Context) error {
	c, err := n.config.Egress.Pool()
	if err == nil {
		n.pool = egress.NewPool(c)
	}
	return err
}

// buildUpstream makes what runs the MCP servers. Which there are, buildServers' part says when it starts.
func (n *Node) buildUpstream(context.Context) error {
	n.logins = oauth.New(oauth.Config{Store: n.store, Sealer: n.sealer, PublicURL: n.publicURL, Client: n.client, Redact: n.redact,
		Clock: n.options.Clock, Log: n.logger("mcp_login")})
	n.credentials = &servers.Credentials{Secrets: n.secrets, Sealer: n.sealer, Logins: n.logins, Minter: n.keeping.minter, Redact: n.redact}
	c := upstream.Config{
		Reaper: n.options.Reaper, Dir: filepath.Join(n.config.Data, datadir.MCP),
		Client:  canon.Append(nil, map[string]any{"name": "toolkeep", "version": n.options.Version}),
		Secrets: n.credentials, Authorize: n.credentials.Authorize, Redact: n.redact, Log: n.logger("mcp"), Clock: n.options.Clock, HTTPClient: n.client,
		Accepted: func(owner, server, tool string) [][]byte {
			return n.servers.AcceptedDefinitions(owner, server, tool)
		},
	}
	n.probe = func() servers.Pool { return upstream.New(c) }
	running := c
	running.VerifyPinned = func(owner, server, tenant, tool string) error {
		return n.servers.VerifyPinned(owner, server, tenant, tool)
	}
	running.OnDefinitions = func(server, tenant string, d upstream.Definitions) {
		n.faces.mcp.UpstreamChanged(server, tenant)
		n.servers.DefinitionsRead(server, tenant, d)
	}
	n.upstream = upstream.New(running)
	return nil
}

func (n *Node) stopUpstream() {
	now, cancel := context.WithCancel(context.Background())
	cancel() // no call is under way any more
	n.logins.Stop()
	_ = n.upstream.Stop(now) // it has no error, and leaves nothing behind
}

// client reaches a tenant's servers and the inner addresses that are opened to it, and follows no redirect.
func (n *Node) client(tenant string, network []toolkeep.HostPort) *http.Client {
	return &http.Client{Transport: n.pool.Transport(tenant, egress.NewAllowList(network)),
		CheckRedirect: egress.NoRedirects}
}

// buildServers makes what people decide about MCP servers.
func (n *Node) buildServers(context.Context) error {
	n.servers = servers.New(servers.Config{Catalog: n.catalog, Store: n.store, Pool: n.upstream, Probe: n.probe, Credentials: n.credentials,
		Visible: n.access.Visible, StdioTenants: n.config.MCP.StdioTenants, Addresses: n.addresses, Members: n.members, Clock: n.options.Clock, Log: n.logger("mcp")})
	return nil
}
