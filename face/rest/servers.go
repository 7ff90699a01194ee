package rest

import (
	"context"
	"net/http"

	"github.com/danielgtaylor/huma/v2"

	"github.com/toolkeep/toolkeep"
	source "github.com/toolkeep/toolkeep/catalog/source/mcp"
	"github.com/toolkeep/toolkeep/upstream"
)

// Servers keeps the MCP servers behind this one.
type Servers interface {
	// PutServer adds or changes a server, and publishes the tools of a new one. Of a
	// known one it does what ServerPlan would, and no more. E3008, E3011, E3407,
	// E3541 and what the server answers.
	PutServer(ctx context.Context, p *toolkeep.Principal, name string, spec []byte, o ServerOptions) (*ServerPlan, error)
	// RemoveServer ends a server and blocks its tools. E3013.
	RemoveServer(ctx context.Context, p *toolkeep.Principal, name string) error
	// ListServers gives every server of the principal's tenant and of all.
	ListServers(ctx context.Context, p *toolkeep.Principal) ([]ServerState, error)
	// ServerDiff reads the server's definitions now and compares them with the
	// pinned ones. It changes nothing. E3013, E3541.
	ServerDiff(ctx context.Context, p *toolkeep.Principal, name string) (*ServerPlan, error)
	// AcceptServer publishes what the server offers now: of the named tools, or all.
	AcceptServer(ctx context.Context, p *toolkeep.Principal, name string, tools []string) (*ServerPlan, error)
	// SteerServer does one of restart, refresh, login, logout. Of login the error is
	// E3407 with the address, nil where no login is needed.
	SteerServer(ctx context.Context, p *toolkeep.Principal, name, action string) error
	// ServerLogs gives the latest lines of the server. E3013.
	ServerLogs(ctx context.Context, p *toolkeep.Principal, name string) ([]byte, error)
}

// ServerOptions say how a server is put.
type ServerOptions struct {
	Shared bool // it serves all tenants
	DryRun bool // connect, read and compare, and change nothing
}

// ServerPlan is what a server's definitions are against the pinned ones.
type ServerPlan struct {
	Server    string           `json:"server"`
	Tools     []ServerTool     `json:"tools"`
	Refused   []source.Refused `json:"refused" doc:"definitions that cannot become tools"`
	Warnings  []string         `json:"warnings"`
	Published int              `json:"published" doc:"versions that were published now"`
	Held      int              `json:"held" doc:"tools that wait for review"`
}

// ServerTool is one definition.
type ServerTool struct {
	source.PlannedTool
	State   string          `json:"state" doc:"published, held, pending (not yet accepted) or blocked"`
	Changes []source.Change `json:"changes,omitempty" doc:"what differs from the pinned definition"`
}

// ServerState is a server with what it does now.
type ServerState struct {
	upstream.Status
	Held    int      `json:"held" doc:"tools that wait for review"`
	Spec    object   `json:"spec" doc:"its definition, without literal values of environment and headers"`
	Pending []string `json:"pending,omitempty" doc:"tools of the server that nobody has accepted yet"`
}

// ServerPath names a server.
type ServerPath struct {
	Name string `path:"name" maxLength:"64" doc:"name of the server, also the namespace of its tools"`
}

type putServerInput struct {
	ServerPath
	Shared bool   `query:"shared" doc:"the server serves all tenants; needs catalog:admin"`
	DryRun bool   `query:"dry_run" doc:"connect, read and compare; change nothing"`
	Body   object `doc:"definition: transport, command, env, dir, url, headers, network, session, capabilities, roots, on_change and limits"`
}

type serverPlanOutput struct{ Body ServerPlan }

func planOutput(p *ServerPlan, err error) (*serverPlanOutput, error) {
	if err != nil {
		return nil, err
	}
	p.Tools, p.Refused, p.Warnings = some(p.Tools), some(p.Refused), some(p.Warnings)
	return &serverPlanOutput{Body: *p}, nil
}

func (a *API) putServer(ctx context.Context, p *toolkeep.Principal, in *putServerInput) (*serverPlanOutput, error) {
	if in.Shared {
		if err := need(p, toolkeep.PermLifecycle); err != nil {
			return nil, err
		}
	}
	return planOutput(a.c.Servers.PutServer(ctx, p, in.Name, []byte(in.Body), ServerOptions{Shared: in.Shared, DryRun: in.DryRun}))
}

type serversOutput struct {
	Body struct {
		Servers    []ServerState `json:"servers"`
		TotalCount int           `json:"total_count"`
	}
}

func (a *API) listServers(ctx context.Context, p *toolkeep.Principal, _ *struct{}) (*serversOutput, error) {
	list, err := a.c.Servers.ListServers(ctx, p)
	if err != nil {
		return nil, err
	}
	out := &serversOutput{}
	out.Body.Servers, out.Body.TotalCount = some(list), len(list)
	return out, nil
}

type serverOutput struct{ Body ServerState }

func (a *API) getServer(ctx context.Context, p *toolkeep.Principal, in *ServerPath) (*serverOutput, error) {
	list, err := a.c.Servers.ListServers(ctx, p)
	if err != nil {
		return nil, err
	}
	for _, s := range list {
		if s.Name == in.Name {
			return &serverOutput{Body: s}, nil
		}
	}
	return nil, toolkeep.NewError(toolkeep.ResourceNotFound, "there is no MCP server %q", clip(in.Name, 64))
}

func (a *API) removeServer(ctx context.Context, p *toolkeep.Principal, in *ServerPath) (*struct{}, error) {
	return nil, a.c.Servers.RemoveServer(ctx, p, in.Name)
}

func (a *API) diffServer(ctx context.Context, p *toolkeep.Principal, in *ServerPath) (*serverPlanOutput, error) {
	return planOutput(a.c.Servers.ServerDiff(ctx, p, in.Name))
}

type acceptInput struct {
	ServerPath
	Body struct {
		Tools []string `json:"tools,omitempty" maxItems:"10000" doc:"tool ids to accept; all without it"`
	}
}

func (a *API) acceptServer(ctx context.Context, p *toolkeep.Principal, in *acceptInput) (*serverPlanOutput, error) {
	return planOutput(a.c.Servers.AcceptServer(ctx, p, in.Name, in.Body.Tools))
}

func (a *API) steerServer(action string) func(context.Context, *toolkeep.Principal, *ServerPath) (*struct{}, error) {
	return func(ctx context.Context, p *toolkeep.Principal, in *ServerPath) (*struct{}, error) {
		return nil, a.c.Servers.SteerServer(ctx, p, in.Name, action)
	}
}

type logsOutput struct {
	Body struct {
		Log string `json:"log" doc:"the latest lines of its standard error and of what happened to its sessions"`
	}
}

func (a *API) serverLogs(ctx context.Context, p *toolkeep.Principal, in *ServerPath) (*logsOutput, error) {
	raw, err := a.c.Servers.ServerLogs(ctx, p, in.Name)
	if err != nil {
		return nil, err
	}
	out := &logsOutput{}
	out.Body.Log = string(raw)
	return out, nil
}

// serverRoutes are the routes of MCP servers.
func (a *API) serverRoutes() {
	if a.c.Servers == nil {
		return
	}
	const servers, server = "/api/v1/servers", "/api/v1/servers/{name}"
	op := func(method, path, id, summary string) huma.Operation {
		return huma.Operation{Method: method, Path: path, OperationID: id, Tags: []string{tagServers}, Summary: summary}
	}
	register(a, op(http.MethodGet, servers, "listServers", "List the MCP servers behind this one, with their state"), toolkeep.PermOperate, a.listServers)
	register(a, op(http.MethodGet, server, "getServer", "Read one MCP server"), toolkeep.PermOperate, a.getServer)
	register(a, op(http.MethodGet, server+"/logs", "serverLogs", "Read the latest lines of an MCP server's log"), toolkeep.PermOperate, a.serverLogs)
	register(a, op(http.MethodGet, server+"/diff", "diffServer", "Compare what an MCP server offers now with what is pinned; change nothing"), toolkeep.PermOperate, a.diffServer)
	put := op(http.MethodPut, server, "putServer", "Add or change an MCP server and publish the tools of a new one")
	register(a, put, toolkeep.PermServers, a.putServer)
	register(a, op(http.MethodDelete, server, "removeServer", "Remove an MCP server and block its tools"), toolkeep.PermServers, a.removeServer)
	register(a, op(http.MethodPost, server+"/accept", "acceptServer", "Accept what an MCP server offers now"), toolkeep.PermServers, a.acceptServer)
	register(a, op(http.MethodPost, server+"/restart", "restartServer", "End an MCP server's sessions and forget its failures"), toolkeep.PermOperate, a.steerServer("restart"))
	register(a, op(http.MethodPost, server+"/refresh", "refreshServer", "Read an MCP server's definitions now, and hold the tools that changed"), toolkeep.PermOperate, a.steerServer("refresh"))
	register(a, op(http.MethodPost, server+"/login", "loginServer", "Begin your login at an MCP server: E3407 has the address"), "", a.steerServer("login"))
	register(a, op(http.MethodPost, server+"/logout", "logoutServer", "Forget your login at an MCP server"), "", a.steerServer("logout"))
}
