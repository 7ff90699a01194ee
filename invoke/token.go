package invoke

import (
	"net"
	"strconv"

	"github.com/toolkeep/toolkeep"
)

// narrow goes on with what the call's capability token allows in place of its text, which
// nothing behind this point gets, and refuses what the tool reaches and the token does not allow.
func (p *Pipeline) narrow(a *activeCall) {
	g := a.decision.Grant
	if g == nil {
		return
	}
	own := *a.call
	own.Token, own.Grant = "", g
	a.call, a.row.Grant = &own, g
	if err := p.beyond(a.tool, g); err != nil {
		a.decision = a.decision.DenyToken(err)
	}
}

// beyond returns why a tool reaches more than a token's permissions allow, as far as that is
// known beforehand; what is not known counts as more. Executors check the rest, equip the
// secrets. E3203, E3204, E3205.
func (p *Pipeline) beyond(t *toolkeep.Tool, g *toolkeep.Grant) *toolkeep.Error {
	if !g.Permissions() {
		return nil
	}
	kind := t.Manifest.Execution.Kind
	var reach toolkeep.Reach
	ex, known := p.Executors[kind].(toolkeep.Reacher)
	if known {
		var err error
		reach, err = ex.Reach(t)
		known = err == nil
	}
	no := func(code toolkeep.Code, claim, why string) *toolkeep.Error {
		e := toolkeep.NewError(code, "the capability token's %s do not allow %s: %s", claim, t.ID, why)
		e.NothingSent = true
		return e
	}
	const unknown = "what tools of this kind reach cannot be known beforehand; use a token without this claim"
	switch {
	case g.Network == nil:
	case !known:
		return no(toolkeep.NetworkDenied, "network_permissions", unknown)
	case reach.Socket:
		return no(toolkeep.NetworkDenied, "network_permissions", "it connects to a socket of the server's machine")
	default:
		for _, h := range reach.Hosts {
			if !g.AllowsHost(h.Host, h.Port) {
				return no(toolkeep.NetworkDenied, "network_permissions", "it connects to "+net.JoinHostPort(h.Host, strconv.Itoa(h.Port)))
			}
		}
	}
	switch {
	case g.Files == nil:
	case !known:
		return no(toolkeep.FilesystemDenied, "filesystem_permissions", unknown)
	case reach.Socket, reach.OtherFiles:
		return no(toolkeep.FilesystemDenied, "filesystem_permissions", "it uses a file or socket of the server that no path of a token names")
	}
	if g.Secrets != nil && !known {
		return no(toolkeep.CredentialDenied, "credential_permissions", "its credentials belong to its server and not to the call; use a token without this claim")
	}
	return nil
}

// tokenAllows is E3205 if the call's capability token does not allow the secret.
func tokenAllows(g *toolkeep.Grant, ref string) error {
	if g.AllowsSecret(ref) {
		return nil
	}
	return toolkeep.NewError(toolkeep.CredentialDenied, "the tool uses the secret %s, which the capability token's credential_permissions do not list", ref)
}
