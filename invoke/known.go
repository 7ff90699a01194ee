package invoke

import (
	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/redact"
)

// view cleans what the call shows: for a child all that its parent's does.
func (f *flight) view() *redact.Cleaner {
	if f.clean == nil {
		f.clean = f.p.Redact.For(f.principal)
	}
	return f.clean
}

// clear takes out of a result that another's call brought what this caller has as a secret
// and that one had not.
func (f *flight) clear(res *toolkeep.Result) {
	if f.tool().Manifest.PublicResult() && len(res.Output) > 0 {
		res.Output = f.view().CleanJSON(res.Output)
	}
}
