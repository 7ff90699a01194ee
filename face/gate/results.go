package gate

import (
	"slices"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/access/signing"
)

// ResultKeys is what an Auth can have beside: the key that signs results.
type ResultKeys interface {
	// ResultKey returns the key, nil if results are not signed. It is called while a caller waits.
	ResultKey() ([]byte, error)
}

// SignResult signs a result that a caller gets over REST or gRPC, if results are signed, its call was carried out, and
// its outcome is in it. One that cannot be signed now is given with a warning (E3725).
func (g *Gate) SignResult(p *toolkeep.Principal, r *toolkeep.Result) {
	g.sign(p, r, func(e *toolkeep.Error) ([]byte, error) { return signing.Outcome(r, e) })
}

// SignAnswer is SignResult for a CallToolResult, of which answer is all before _meta, without the last brace;
// false if no results are signed.
func (g *Gate) SignAnswer(p *toolkeep.Principal, r *toolkeep.Result, answer []byte) (signs bool) {
	return g.sign(p, r, func(*toolkeep.Error) ([]byte, error) {
		return signing.MCPContent(append(slices.Clip(answer), '}'))
	})
}

func (g *Gate) sign(p *toolkeep.Principal, r *toolkeep.Result, content func(*toolkeep.Error) ([]byte, error)) (signs bool) {
	keys, ok := g.auth.(ResultKeys)
	if !ok || r == nil || !r.State.Ended() || r.State == toolkeep.CallRefused || r.NoOutcome || r.EndedAt.IsZero() {
		return false
	}
	key, err := keys.ResultKey()
	if key == nil && err == nil {
		return false
	}
	var e *toolkeep.Error
	if r.Error != nil {
		e = Shown(r.Error)
	}
	of := signing.Result{Tenant: p.Tenant, Invocation: r.InvocationID, Tool: r.ToolID, Version: r.ToolVersion, Status: StatusOf(r), Completed: r.EndedAt}
	if err == nil {
		of.Content, err = content(e)
	}
	if err == nil {
		r.Signature, err = of.Sign(key)
	}
	if err != nil {
		g.failed.Warn("a result was given without a signature", "code", toolkeep.ResultUnsigned, "invocation_id", r.InvocationID, "error", err)
		r.Warnings = append(slices.Clip(r.Warnings), toolkeep.Warning{Code: toolkeep.ResultUnsigned,
			Message: "the result is whole, and is given without a signature because it could not be signed now"})
	}
	return true
}

// StatusOf is the BC-2 status of a result.
func StatusOf(r *toolkeep.Result) string {
	if r.Error == nil {
		return r.State.BC2("")
	}
	return r.State.BC2(Shown(r.Error).Code)
}
