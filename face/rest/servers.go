package rest

import (
	"context"

	"github.com/toolkeep/toolkeep"
	source "github.com/toolkeep/toolkeep/catalog/source/mcp"
	"github.com/toolkeep/toolkeep/control/servers"
	"github.com/toolkeep/toolkeep/face/gate"
	"github.com/toolkeep/toolkeep/upstream"
)

// ServerPlan is servers.Plan.
type ServerPlan struct {
	Server    string           `json:"server"`
	Tools     []ServerTool     `json:"tools"`
	Refused   []source.Refused `json:"refused" doc:"definitions that cannot become tools"`
	Warnings  []string         `json:"warnings"`
	Published int              `json:"published" doc:"versions that were published now"`
	Held      int              `json:"held" doc:"tools that wait for review"`

	Definition servers.Definition `json:"definition,omitempty" enum:"new,changed,same" doc:"how the definition that was sent compares with the stored one"`
}

// ServerTool is servers.Tool.
type ServerTool struct {
	source.PlannedTool
	State   servers.ToolState `json:"state" doc:"published, held, pending (not yet accepted) or blocked"`
	Changes []source.Change   `json:"changes,omitempty" doc:"what differs from the pinned definition"`

	Definition object `json:"definition,omitempty" doc:"of a new tool: what is offered, with the invisible characters of its texts and names escaped"`
}

// ServerState is servers.State.
type ServerState struct {
	upstream.Status
	Held    int      `json:"held" doc:"tools that wait for review"`
	Spec    object   `json:"spec" doc:"its definition, without literal values of environment and headers"`
	Pending []string `json:"pending,omitempty" doc:"offered tools that were not accepted yet"`
	// Nodes say what each of them does; the members above are this node's.
	Nodes []servers.OnNode `json:"nodes,omitempty" doc:"what each node that lives does for the server and the tenant, by its latest beat (3 s); the other members are of the node that answers"`
}

// ServerPath names a server.
type ServerPath struct {
	Name string `path:"name" maxLength:"64" doc:"name of the server, also the namespace of its tools"`
}

type putServerInput struct {
	ServerPath
	Shared  bool   `query:"shared" doc:"the server serves all tenants; needs catalog:admin"`
	DryRun  bool   `query:"dry_run" doc:"connect, read and compare; change nothing"`
	Compare bool   `query:"compare" doc:"check the definition and compare it with the stored one; connect and change nothing"`
	Body    object `doc:"definition: transport, command, env, dir, url, headers, network, session, capabilities, roots, on_change, limits, and folder, the name of the folder of configuration that it comes from"`
}

type serverPlanOutput struct{ Body ServerPlan }

func planOutput(p *servers.Plan, err error) (*serverPlanOutput, error) {
	if err != nil {
		return nil, err
	}
	out := &serverPlanOutput{Body: ServerPlan{Server: p.Server, Tools: []ServerTool{}, Refused: some(p.Refused), Warnings: some(p.Warnings),
		Published: p.Published, Held: p.Held, Definition: p.Definition}}
	for _, t := range p.Tools {
		out.Body.Tools = append(out.Body.Tools, ServerTool{t.PlannedTool, t.State, t.Changes, object(t.Definition)})
	}
	return out, nil
}

func (a *API) putServer(ctx context.Context, p *toolkeep.Principal, in *putServerInput) (*serverPlanOutput, error) {
	if in.Shared {
		if err := gate.Need(p, toolkeep.PermLifecycle); err != nil {
			return nil, err
		}
	}
	return planOutput(a.c.Servers.Import(ctx, p, in.Name, []byte(in.Body), servers.ImportOptions{Shared: in.Shared, DryRun: in.DryRun, Compare: in.Compare}))
}

type removeServerInput struct {
	ServerPath
	Folder string `query:"folder" maxLength:"64" doc:"remove it only if it was applied from the folder of configuration of this name, else E3963"`
}

func (a *API) removeServer(ctx context.Context, p *toolkeep.Principal, in *removeServerInput) (*struct{}, error) {
	return nil, a.c.Servers.Remove(ctx, p, in.Name, in.Folder)
}

type serversOutput struct {
	Body struct {
		Servers    []ServerState `json:"servers"`
		TotalCount int           `json:"total_count"`
	}
}

func (a *API) listServers(_ context.Context, p *toolkeep.Principal, _ *struct{}) (*serversOutput, error) {
	out := &serversOutput{}
	out.Body.Servers = []ServerState{}
	for _, s := range a.c.Servers.List(p) {
		out.Body.Servers = append(out.Body.Servers, serverState(s))
	}
	out.Body.TotalCount = len(out.Body.Servers)
	return out, nil
}

func serverState(s servers.State) ServerState {
	return ServerState{Status: s.Status, Held: s.Held, Spec: s.Spec, Pending: s.Pending, Nodes: s.Nodes}
}

type serverOutput struct{ Body ServerState }

func (a *API) getServer(_ context.Context, p *toolkeep.Principal, in *ServerPath) (*serverOutput, error) {
	for _, s := range a.c.Servers.List(p) {
		if s.Name == in.Name {
			return &serverOutput{Body: serverState(s)}, nil
		}
	}
	return nil, toolkeep.NewError(toolkeep.ResourceNotFound, "there is no MCP server %q", toolkeep.ClipBytes(in.Name, 64))
}

func (a *API) diffServer(ctx context.Context, p *toolkeep.Principal, in *ServerPath) (*serverPlanOutput, error) {
	return planOutput(a.c.Servers.Diff(ctx, p, in.Name))
}

type acceptInput struct {
	ServerPath
	Body struct {
		Tools []string `json:"tools,omitempty" maxItems:"10000" doc:"tool ids to accept; all without it"`

		Expected map[string]string `json:"expected,omitempty" doc:"by tool id, the digest that diff showed, empty where the definition is gone: what differs from it, or is not in it, is E3963 and nothing is accepted"`
	}
}

func (a *API) acceptServer(ctx context.Context, p *toolkeep.Principal, in *acceptInput) (*serverPlanOutput, error) {
	return planOutput(a.c.Servers.Accept(ctx, p, in.Name, in.Body.Tools, in.Body.Expected))
}

// onServer is a route that does one thing to a server and answers nothing.
func onServer(do func(context.Context, *toolkeep.Principal, string) error) func(context.Context, *toolkeep.Principal, *ServerPath) (*struct{}, error) {
	return func(ctx context.Context, p *toolkeep.Principal, in *ServerPath) (*struct{}, error) {
		return nil, do(ctx, p, in.Name)
	}
}

type logsOutput struct {
	Body struct {
		Log string `json:"log" doc:"the latest lines of its standard error and of what happened to its sessions"`
	}
}

func (a *API) serverLogs(_ context.Context, p *toolkeep.Principal, in *ServerPath) (*logsOutput, error) {
	raw, err := a.c.Servers.Logs(p, in.Name)
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
	const all, server = "/api/v1/servers", "/api/v1/servers/{name}"
	op := func(method, path, id, summary string) route { return op(method, path, id, tagServers, summary) }
	register(a, op("GET", all, "listServers", "List the MCP servers behind this one, with their state"), toolkeep.PermOperate, a.listServers)
	register(a, op("GET", server, "getServer", "Read one MCP server"), toolkeep.PermOperate, a.getServer)
	register(a, op("GET", server+"/logs", "serverLogs", "Read the latest lines of an MCP server's log"), toolkeep.PermOperate, a.serverLogs)
	register(a, op("GET", server+"/diff", "diffServer", "Compare what an MCP server offers now with what is pinned; change nothing"), toolkeep.PermOperate, a.diffServer)
	put := op("PUT", server, "putServer", "Add or change an MCP server and publish the tools of a new one")
	register(a, put, toolkeep.PermServers, a.putServer)
	register(a, op("DELETE", server, "removeServer", "Remove an MCP server and block its tools"), toolkeep.PermServers, a.removeServer)
	register(a, op("POST", server+"/accept", "acceptServer", "Accept what an MCP server offers now"), toolkeep.PermServers, a.acceptServer)
	register(a, op("POST", server+"/restart", "restartServer", "End an MCP server's sessions on every node and reset its count of failures"), toolkeep.PermOperate, onServer(a.c.Servers.Restart))
	register(a, op("POST", server+"/refresh", "refreshServer", "Read an MCP server's definitions now, and hold the tools that changed"), toolkeep.PermOperate, onServer(a.c.Servers.Refresh))
	register(a, op("POST", server+"/login", "loginServer", "Begin your login at an MCP server: E3407 has the address"), "", onServer(a.c.Servers.Login))
	register(a, op("POST", server+"/logout", "logoutServer", "Forget your login at an MCP server"), "", onServer(a.c.Servers.Logout))
}
