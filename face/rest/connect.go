package rest

import (
	"cmp"
	"context"
	"slices"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/clientconfig"
)

// keyPlaceholder stands in snippets where the API key goes. It is none of the names in them.
const keyPlaceholder = "YOUR_TOOLKEEP_KEY"

// Connectable is an MCP client that Toolkeep knows the configuration of.
type Connectable struct {
	Client string `json:"client" example:"claude-code"`
	Title  string `json:"title"`
	Docs   string `json:"docs" doc:"address of the client's documentation"`
}

type listClientsOutput struct {
	Body struct {
		Clients []Connectable `json:"clients"`
	} `nameHint:"ClientList"`
}

func (a *API) listClients(context.Context, *toolkeep.Principal, *struct{}) (*listClientsOutput, error) {
	out := &listClientsOutput{}
	for _, c := range clientconfig.Clients() {
		out.Body.Clients = append(out.Body.Clients, Connectable{c.Name, c.Title, c.Docs})
	}
	return out, nil
}

type connectInput struct {
	Client string `path:"client" maxLength:"64"`
	OS     string `query:"os" enum:"linux,macos,windows" default:"linux" doc:"where the client runs"`
	View   string `query:"view" maxLength:"80" doc:"which tools it is shown, below /mcp: auto, all, search, sets/NAME or servers/NAME; absent is the server's setting mcp.view"`
}

type connectOutput struct {
	Body struct {
		Connectable
		Placeholder string `json:"placeholder" doc:"stands in snippet where the API key goes; no key is made or sent here"`
		File        string `json:"file" doc:"the client's own file of the user, with ~ or %USERPROFILE% for the home folder"`
		Format      string `json:"format" enum:"json,toml,yaml"`
		Snippet     string `json:"snippet" doc:"the file with this one entry; beside others, take over what is below the table of servers"`
		Apply       string `json:"apply" doc:"what makes the client read the file again"`
		Command     string `json:"command,omitempty" doc:"command that makes a key and writes the entry, where the server is reached as it is here; absent with view"`
	} `nameHint:"ClientConnection"`
}

func (a *API) connectClient(_ context.Context, _ *toolkeep.Principal, in *connectInput) (*connectOutput, error) {
	if !clientconfig.IsView(in.View) {
		return nil, toolkeep.NewError(toolkeep.InvalidParameters, "view is auto, all, search, sets/NAME or servers/NAME")
	}
	all := clientconfig.Clients()
	i := slices.IndexFunc(all, func(c clientconfig.Client) bool { return c.Name == in.Client })
	if i < 0 {
		return nil, toolkeep.NewError(toolkeep.ResourceNotFound, "there is no client %q; GET /api/v1/connect lists them", toolkeep.ClipBytes(in.Client, 64))
	}
	c, base := all[i], "http://"+cmp.Or(a.c.Addr, "127.0.0.1:8080")
	if a.c.BaseURL != nil {
		base = a.c.BaseURL()
	}
	s := clientconfig.Server{Command: "toolkeep", Args: []string{"mcp"}, Key: keyPlaceholder,
		Env: clientconfig.Entry{{Name: "TOOLKEEP_URL", Value: base}, {Name: "TOOLKEEP_KEY", Value: keyPlaceholder}}}
	if in.View != "" {
		s.Args = append(s.Args, "--view", in.View)
	}
	if c.HTTP {
		s.URL = base + "/mcp"
		if in.View != "" {
			s.URL += "/" + in.View
		}
	}
	entry, err := c.Entry(s)
	var file []byte
	if err == nil {
		file, err = c.Set(nil, "toolkeep", entry)
	}
	if err != nil { // of http.public_url
		return nil, toolkeep.NewError(toolkeep.InvalidParameters, "no entry can be written for this server's address: %v", err)
	}
	goos := in.OS
	if goos == "macos" {
		goos = "darwin"
	}
	out := &connectOutput{}
	b := &out.Body
	b.Connectable, b.Placeholder, b.File, b.Format, b.Snippet, b.Apply = Connectable{c.Name, c.Title, c.Docs}, keyPlaceholder, c.Path(clientconfig.Elsewhere(goos)), c.Format.String(), string(file), c.Apply
	if in.View == "" {
		b.Command = "toolkeep connect " + c.Name
	}
	return out, nil
}

func (a *API) connectRoutes() {
	register(a, op("GET", "/api/v1/connect", "listClients", tagSystem, "List the MCP clients whose configuration is known"), "", a.listClients)
	register(a, op("GET", "/api/v1/connect/{client}", "connectClient", tagSystem, "Write what an MCP client's configuration needs to reach this server"), "", a.connectClient)
}
