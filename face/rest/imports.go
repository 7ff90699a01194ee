package rest

import (
	"context"
	"encoding/base64"
	"time"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/catalog"
	"github.com/toolkeep/toolkeep/catalog/source/function"
	"github.com/toolkeep/toolkeep/catalog/source/grpc"
	"github.com/toolkeep/toolkeep/control/imports"
)

// sourceImport is what imports of other things than OpenAPI documents take.
type sourceImport struct {
	Secret   string `json:"secret,omitempty" maxLength:"4096" doc:"grpc and functions: reference of the secret that calls need, such as secret://NAME"`
	SecretAs string `json:"secret_as,omitempty" maxLength:"300" doc:"how it is sent: bearer (default) or basic; grpc also metadata:NAME or mtls, functions header:NAME or query:NAME"`

	Protoset   string            `json:"protoset,omitempty" doc:"grpc: a FileDescriptorSet in base64, instead of the server's reflection"`
	Services   []string          `json:"services,omitempty" maxItems:"100" doc:"grpc: patterns of the services that are imported; all without"`
	Methods    []string          `json:"methods,omitempty" maxItems:"100" doc:"grpc: patterns of the methods that are imported, Method or Service/Method; all without"`
	Plaintext  bool              `json:"plaintext,omitempty" doc:"grpc: connect without TLS"`
	ServerName string            `json:"server_name,omitempty" maxLength:"253" doc:"grpc: name that the server's certificate must have, if not the host's"`
	CA         string            `json:"ca,omitempty" maxLength:"262144" doc:"grpc: authorities in PEM form to trust instead of the system's"`
	Metadata   map[string]string `json:"metadata,omitempty" maxProperties:"50" doc:"grpc: metadata of every call and of reflection; no secrets"`
	DeadlineMS int               `json:"deadline_ms,omitempty" minimum:"1" maximum:"86400000" doc:"grpc: deadline of each call; the call's own without"`
	MaxFrames  int               `json:"max_frames,omitempty" minimum:"1" maximum:"1000000" doc:"grpc: messages of a stream that are collected; 1,000 without"`

	Form        string `json:"form,omitempty" enum:"openai,anthropic,gemini,langchain,mcp" doc:"functions: their form; absent: detected of each"`
	HTTPMethod  string `json:"http_method,omitempty" enum:"POST,PUT,PATCH" doc:"functions: of the requests to server, default POST"`
	SideEffects string `json:"side_effects,omitempty" enum:"none,reads,writes" doc:"functions: what they do, default writes"`
}

// importSource imports what is no OpenAPI document.
func (a *API) importSource(ctx context.Context, p *toolkeep.Principal, in *importInput) (*imports.Plan, []catalog.Published, error) {
	b := &in.Body
	if b.Type == "functions" {
		if b.Document == "" || b.Server == "" || b.Location != "" {
			return nil, nil, toolkeep.NewError(toolkeep.MalformedRequest, "send the functions as document, and as server the URL that executes them; location is not used")
		}
		auth, err := imports.SecretAuth(b.Secret, b.SecretAs, "bearer", "basic", "header", "query")
		if err != nil {
			return nil, nil, err
		}
		return a.c.Imports.Functions(ctx, p, function.Options{Data: []byte(b.Document), Form: function.Form(b.Form), Namespace: b.Namespace, URL: b.Server,
			Method: b.HTTPMethod, Auth: auth, SideEffects: b.SideEffects}, b.options())
	}
	if b.Location == "" || b.Document != "" || b.Server != "" {
		return nil, nil, toolkeep.NewError(toolkeep.MalformedRequest, "send the gRPC server as location, HOST:PORT, and descriptors as protoset; document and server are not used")
	}
	auth, err := imports.SecretAuth(b.Secret, b.SecretAs, "bearer", "basic", "metadata", "mtls")
	if err != nil {
		return nil, nil, err
	}
	set, err := base64.StdEncoding.DecodeString(b.Protoset)
	if err != nil {
		return nil, nil, toolkeep.NewError(toolkeep.InvalidParameters, "protoset must be a FileDescriptorSet in base64").Because(err)
	}
	return a.c.Imports.GRPC(ctx, p, grpc.Options{Target: b.Location, Namespace: b.Namespace, Protoset: set, Plaintext: b.Plaintext, ServerName: b.ServerName,
		CA: []byte(b.CA), Metadata: b.Metadata, Auth: auth, Deadline: time.Duration(b.DeadlineMS) * time.Millisecond, MaxFrames: b.MaxFrames,
		Services: b.Services, Methods: b.Methods}, b.options())
}
