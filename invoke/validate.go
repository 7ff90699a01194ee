package invoke

import (
	"context"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/canon"
)

// validate coerces, fills defaults and checks; every fault is told at once.
func (p *Pipeline) validate(_ context.Context, f *flight) (*toolkeep.Result, error) {
	t := f.tool()
	if f.asked == nil { // only while looking, after admit refused
		asked, err := canon.ParseObject(f.call.Arguments, p.Arguments)
		if err != nil {
			return nil, err
		}
		f.asked = asked
	}
	s, err := p.Schemas.Get(t.Digest, t.Manifest.ParametersSchema)
	if err != nil {
		return nil, toolkeep.NewError(toolkeep.InvalidManifest, "the parameters schema of %s cannot be compiled", t.Ref()).Because(err)
	}
	args, faults := s.Prepare(f.asked)
	if len(faults) > 0 {
		f.faults = faults
		// What does not fit is quoted, and may be a password.
		return nil, p.cleaned(argumentError(t, faults), p.hiding(t, f.asked, f.view()))
	}
	f.args = args
	f.row.ArgsHash = canon.Hash(args)
	if f.row.CallID == "" {
		f.row.CallID = canon.CallID(t.ID, t.Version, f.row.ArgsHash, p.sequence.next(f, t))
	}
	return nil, nil
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
		summary += "; details.errors lists every fault"
	}
	return toolkeep.FaultsError(code, summary, faults)
}
