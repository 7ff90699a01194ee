package upstream

import (
	"bytes"
	"context"
	"errors"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/mcp"
	"github.com/toolkeep/toolkeep/redact"
)

// A server may say again what it was given: in results, errors, notifications and
// questions. What reaches a caller is cleaned of the secrets that are held for it. The
// secrets of a session are held for everybody who shares it, see server.hold.

// cleaned is an answer as the caller is shown it. That to a tools/call is left to the
// pipeline, which knows the call's arguments too.
func cleaned(v *redact.Cleaner, method string, a *Answer, err error) (*Answer, error) {
	if method == mcp.MethodCallTool {
		return a, err
	}
	if err != nil {
		return nil, cleanedError(v, err)
	}
	if result := v.CleanJSON(a.Result); !same(result, a.Result) {
		own := *a
		own.Result = result
		return &own, nil
	}
	return a, nil
}

// same tells whether nothing was taken out.
func same(a, b []byte) bool { return bytes.Equal(a, b) }

// cleanedError gives the error itself where there is nothing to take out.
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

// cleaned is what the server said of itself as the caller is shown it. Capabilities are
// left: they are no text.
func (i Info) cleaned(v *redact.Cleaner) Info {
	i.Server, i.Instructions = v.CleanJSON(i.Server), v.Clean(i.Instructions)
	return i
}

// cleaned is all but the tools as the caller is shown it.
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

// guarded is a Peer that is shown no secrets which are held for its principal; nil for
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
	peer Peer
	view *redact.Cleaner
}

// Ask implements Peer.
func (g guard) Ask(ctx context.Context, method string, params []byte) ([]byte, error) {
	return g.peer.Ask(ctx, method, g.view.CleanJSON(params))
}

// Notify implements Peer. Progress keeps the token by which the caller knows it.
func (g guard) Notify(method string, params []byte) {
	clean := g.view.CleanJSON(params)
	if method == mcp.NotificationProgress && !same(clean, params) {
		if token := mcp.Get(params, mcp.MetaProgressToken); token != nil {
			clean = mcp.Set(clean, token, mcp.MetaProgressToken)
		}
	}
	g.peer.Notify(method, clean)
}

// guardAll is a guard of a peer that takes all questions at once.
type guardAll struct {
	guard
	all toolkeep.BatchAsker
}

// AskAll implements toolkeep.BatchAsker. The server's names of the questions are kept.
func (g guardAll) AskAll(ctx context.Context, inputRequests []byte) ([]byte, error) {
	if !g.view.Holds() {
		return g.all.AskAll(ctx, inputRequests)
	}
	out := []byte{'{'}
	for name, q := range mcp.Members(inputRequests) {
		out = member(out, name, g.view.CleanJSON(q))
	}
	return g.all.AskAll(ctx, append(out, '}'))
}
