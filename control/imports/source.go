package imports

import (
	"cmp"
	"context"
	"net"
	"slices"
	"strconv"
	"strings"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/catalog"
	"github.com/toolkeep/toolkeep/catalog/source"
	"github.com/toolkeep/toolkeep/catalog/source/function"
	"github.com/toolkeep/toolkeep/catalog/source/grpc"
)

// GRPC plans the methods of a gRPC server, from its reflection or from o.Protoset, and publishes what is new or
// changed, unless DryRun is set. Reflection takes at most 30 s. An internal address of the target needs
// catalog:network. Of o, files, certificates and what reflection is sent beside Metadata are not taken.
//
// Errors: E3201; E3011 the services cannot be read; those of catalog.Publish.
func (m *Imports) GRPC(ctx context.Context, p *toolkeep.Principal, o grpc.Options, pub catalog.PublishOptions) (*Plan, []catalog.Published, error) {
	o.Protos, o.ImportPaths, o.ReflectMetadata, o.Certificate = nil, nil, nil, nil
	return m.source(ctx, p, pub, func(ctx context.Context, previous source.Previous) (*source.Plan, error) {
		var inside []toolkeep.HostPort
		if host, port, err := net.SplitHostPort(o.Target); err == nil && p.May(toolkeep.PermNetwork) {
			n, _ := strconv.Atoi(port) // grpc.Read refuses what is no number
			inside = []toolkeep.HostPort{{Host: host, Port: n}}
		}
		o.Previous, o.Dial = previous, m.c.Dialer(inside)
		return grpc.Read(ctx, o)
	})
}

// Functions plans the functions of o.Data, which o.URL executes, and publishes what is new or changed, unless DryRun
// is set. It connects to nothing.
//
// Errors: E3201; E3011 the functions cannot be read; those of catalog.Publish.
func (m *Imports) Functions(ctx context.Context, p *toolkeep.Principal, o function.Options, pub catalog.PublishOptions) (*Plan, []catalog.Published, error) {
	o.Name = cmp.Or(o.Name, "functions")
	return m.source(ctx, p, pub, func(_ context.Context, previous source.Previous) (*source.Plan, error) {
		o.Previous = previous
		return function.Read(o)
	})
}

// source publishes what read plans.
func (m *Imports) source(ctx context.Context, p *toolkeep.Principal, pub catalog.PublishOptions, read func(context.Context, source.Previous) (*source.Plan, error)) (*Plan, []catalog.Published, error) {
	if err := mayPublish(p, pub); err != nil {
		return nil, nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, importTime)
	defer cancel()
	reading, stop := context.WithTimeout(ctx, fetchTime)
	plan, err := read(reading, func(id string) *toolkeep.Tool { return m.c.Catalog.Highest(p, id) })
	stop()
	if err != nil {
		return nil, nil, err
	}
	out := &Plan{Title: plan.Title, Version: plan.Version, Digest: plan.Digest, Operations: plan.Items, Tools: []PlannedTool{}, Refused: []RefusedTool{}, Warnings: append([]string{}, plan.Warnings...)}
	var changed []*catalog.Checked
	for _, t := range plan.Tools {
		out.Namespace, _, _ = strings.Cut(t.Name, ".")
		out.Tools = append(out.Tools, PlannedTool{Name: t.Name, Path: t.Origin, Version: t.Version, Change: t.Change})
		if t.Checked != nil {
			changed = append(changed, t.Checked)
		}
	}
	for _, r := range plan.Refused {
		out.Refused = append(out.Refused, RefusedTool{r.Origin, r.Reason})
	}
	if len(changed) == 0 {
		return out, nil, nil
	}
	published, err := m.c.Catalog.PublishChecked(ctx, p, changed, pub)
	if err != nil {
		return nil, nil, err
	}
	if pub.DryRun {
		return out, nil, nil
	}
	return out, published, nil
}

func mayPublish(p *toolkeep.Principal, o catalog.PublishOptions) error {
	if o.Force || o.Shared {
		if err := need(p, toolkeep.PermLifecycle); err != nil {
			return err
		}
	}
	return need(p, toolkeep.PermPublish)
}

// SecretAuth says how a tool sends a secret: nil without one. how is "" or bearer, or one of the kinds, or a place of
// the kinds with a name, such as header:X-Key.
//
// Errors: E3301.
func SecretAuth(secret, how string, kinds ...string) (*toolkeep.AuthSpec, error) {
	bad := func(what string) error {
		return toolkeep.NewError(toolkeep.InvalidParameters, "%s", what)
	}
	switch {
	case secret == "" && how == "":
		return nil, nil
	case secret == "":
		return nil, bad("secret_as says how a secret is sent; name the secret with secret")
	case !strings.Contains(secret, "://"):
		return nil, bad("secret must be a reference such as secret://NAME or env://NAME, never the secret itself")
	}
	kind, name, named := strings.Cut(cmp.Or(how, "bearer"), ":")
	if !slices.Contains(kinds, kind) || named && name == "" || named != (kind == "header" || kind == "query" || kind == "metadata") {
		return nil, bad("secret_as is one of " + strings.Join(kinds, ", ") + "; header, query and metadata with a name, such as header:X-Key")
	}
	switch kind {
	case "metadata":
		return &toolkeep.AuthSpec{Type: "api_key", Secret: secret, In: "header", Name: strings.ToLower(name)}, nil
	case "header", "query":
		return &toolkeep.AuthSpec{Type: "api_key", Secret: secret, In: kind, Name: name}, nil
	}
	return &toolkeep.AuthSpec{Type: kind, Secret: secret}, nil
}
