package invoke

import (
	"context"
	"strconv"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/canon"
)

// validate coerces, fills defaults and checks; it reports all faults at once.
func (p *Pipeline) validate(ctx context.Context, a *activeCall) (*toolkeep.Result, error) {
	t := a.tool
	if a.arguments == nil { // only in a dry run, after admit refused
		arguments, err := canon.ParseObject(a.call.Arguments, p.Arguments)
		if err != nil {
			return nil, err
		}
		a.arguments = arguments
	}
	s, err := p.Schemas.Get(t.Digest, t.Manifest.ParametersSchema)
	if err != nil {
		return nil, toolkeep.NewError(toolkeep.InvalidManifest, "the parameters schema of %s cannot be compiled", t.Ref()).Because(err)
	}
	if a.args, a.faults = s.Prepare(ctx, a.arguments); len(a.faults) > 0 {
		// The message quotes invalid values, and one may be a password.
		return nil, p.cleaned(argumentError(t, a.faults), p.withSensitive(p.clean(a), t, a.arguments))
	}
	a.row.ArgsHash = canon.Hash(a.args)
	if a.row.CallID == "" {
		a.row.CallID = canon.CallID(t.ID, t.Version, a.row.ArgsHash, p.sequence.next(a))
	}
	if !a.decision.Allowed { // only in a dry run, after authorise refused
		return nil, nil
	}
	p.consultValidated(ctx, a)
	return nil, p.decided(a)
}

// argumentError picks the narrowest code for the faults.
func argumentError(t *toolkeep.Tool, faults []toolkeep.Fault) *toolkeep.Error {
	code, summary := toolkeep.InputValidationFailed, "the arguments do not fit "+t.Ref()
	if len(faults) == 1 {
		switch faults[0].Rule {
		case "required":
			code = toolkeep.MissingParameter
		case "type":
			code = toolkeep.InvalidParameters
		}
		summary += ": " + faults[0].Message
		if faults[0].Pointer != "" {
			summary += " (at " + faults[0].Pointer + ")"
		}
	} else {
		summary += " in " + strconv.Itoa(toolkeep.CountFaults(faults)) + " places"
	}
	e := toolkeep.FaultsError(code, summary, faults)
	e.FaultSaid = len(faults) == 1
	return e
}
