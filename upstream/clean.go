package upstream

import (
	"bytes"
	"context"
	"errors"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/mcp"
	"github.com/toolkeep/toolkeep/redact"
)

// A server may repeat secrets it was given: in results, errors, notifications and
// requests. What a caller sees is redacted for its principal. A session's secrets are
// held for everyone who shares it, see server.hold.

// cleaned redacts a response for the caller. The pipeline redacts results of
// tools/call, because it knows the call's arguments too.
func cleaned(v *redact.Cleaner, method string, a *Answer, err error) (*Answer, error) {
	if method == mcp.MethodCallTool {
		return a, err
	}
	if err != nil {
		return nil, cleanedError(v, err)
	}
	if result := v.CleanJSON(a.Result); !bytes.Equal(result, a.Result) {
		own := *a
		own.Result = result
		return &own, nil
	}
	return a, nil
}

// cleanedError returns err itself if there is nothing to redact.
func cleanedError(v *redact.Cleaner, err error) error {
	var rpc *mcp.Error
	if errors.As(err, &rpc) {
		own := *rpc
		own.Message, own.Data = v.Clean(rpc.Message), v.CleanJSON(rpc.Data)
		return &own
	}
	var e *toolkeep.Error
	if errors.As(err, &e) {
		if said := v.Clean(e.Message); said != e.Message {
			own := *e
			own.Message = said
			return &own
		}
	}
	return err
}

// cleaned redacts the server's info for the caller. Capabilities are no text and stay.
func (i Info) cleaned(v *redact.Cleaner) Info {
	i.Server, i.Instructions = v.CleanJSON(i.Server), v.Clean(i.Instructions)
	return i
}

// cleaned redacts everything but the tools.
func (d Definitions) cleaned(v *redact.Cleaner) Definitions {
	if !v.Holds() {
		return d
	}
	d.Info = d.Info.cleaned(v)
	for _, list := range []*[][]byte{&d.Prompts, &d.Resources, &d.Templates} {
		out := make([][]byte, len(*list))
		for i, def := range *list {
			out[i] = v.CleanJSON(def)
		}
		*list = out
	}
	return d
}

// guarded wraps a Peer so that it sees no secrets held for its principal; nil stays
// nil.
func guarded(p Peer, v *redact.Cleaner) Peer {
	if p == nil {
		return nil
	}
	g := guard{p, v}
	if all, ok := p.(toolkeep.BatchAsker); ok {
		return guardAll{g, all}
	}
	return g
}

type guard struct {
	peer    Peer
	cleaner *redact.Cleaner
}

// Ask implements Peer.
func (g guard) Ask(ctx context.Context, method string, params []byte) ([]byte, error) {
	return g.peer.Ask(ctx, method, g.cleaner.CleanJSON(params))
}

// Notify implements Peer. A progress notification keeps the caller's own token.
func (g guard) Notify(method string, params []byte) {
	clean := g.cleaner.CleanJSON(params)
	if method == mcp.NotificationProgress && !bytes.Equal(clean, params) {
		if token := mcp.Get(params, mcp.MetaProgressToken); token != nil {
			clean = mcp.Set(clean, token, mcp.MetaProgressToken)
		}
	}
	g.peer.Notify(method, clean)
}

// guardAll is a guard for a peer that takes all requests at once.
type guardAll struct {
	guard
	all toolkeep.BatchAsker
}

// AskAll implements toolkeep.BatchAsker. The server's keys of the requests stay.
func (g guardAll) AskAll(ctx context.Context, inputRequests []byte) ([]byte, error) {
	if !g.cleaner.Holds() {
		return g.all.AskAll(ctx, inputRequests)
	}
	out := []byte{'{'}
	for name, q := range mcp.Members(inputRequests) {
		out = member(out, name, g.cleaner.CleanJSON(q))
	}
	return g.all.AskAll(ctx, append(out, '}'))
}
