package record

import "github.com/toolkeep/toolkeep"

// What the record of an ended call tells of its person is in fields of its own, which are sealed with
// that person's key: package store/personal takes them out before a store gets the record, and puts
// them back when it is read. The output is not among them: it is sealed by itself, because lists omit it.

// AppendPersonal encodes these fields. New ones are added at the end.
func AppendPersonal(b []byte, v *toolkeep.Invocation) ([]byte, error) {
	b = append(b, codecVersion)
	b = appendString(b, v.OnBehalf)
	b = appendString(b, v.Message)
	b = appendBytes(b, v.Details)
	b = appendHash(b, &v.AskHash)
	b = appendHash(b, &v.ArgsHash)
	b = appendString(b, v.CallID)
	b, err := appendBeside(b, v)
	if err != nil {
		return nil, err
	}
	b = appendString(b, v.CancelBy)
	b = appendString(b, v.CancelWhy)
	b = appendBytes(b, AppendProgress(nil, v.Progress))
	b = appendString(b, v.Addr)
	b = appendString(b, v.UserAgent)
	b = appendStrings(b, v.Chain)
	b = appendString(b, v.ResultSummary)
	b = appendBytes(b, v.Input)
	return appendString(b, v.Actor), nil
}

// ClearPersonal empties the fields that AppendPersonal encodes.
func ClearPersonal(v *toolkeep.Invocation) {
	v.OnBehalf, v.Message, v.Details, v.CallID = "", "", nil, ""
	v.AskHash, v.ArgsHash = [32]byte{}, [32]byte{}
	v.Warnings, v.Attachments = nil, nil
	v.CancelBy, v.CancelWhy, v.Progress = "", "", toolkeep.Progress{}
	v.Addr, v.UserAgent, v.Chain, v.ResultSummary, v.Input, v.Actor = "", "", nil, "", nil, ""
}

// DecodePersonal fills the fields from what AppendPersonal wrote. What a store has in columns beside
// the record, since it changes there, stays.
func DecodePersonal(v *toolkeep.Invocation, data []byte) error {
	d := open(data)
	v.OnBehalf, v.Message, v.Details = d.string(), d.string(), d.bytes()
	v.AskHash, v.ArgsHash, v.CallID = d.hash(), d.hash(), d.string()
	v.Warnings, v.Attachments = nil, nil
	decodeBeside(d, v)
	by, why := d.string(), d.string()
	progress, err := DecodeProgress(d.span())
	if err != nil {
		d.fail()
	}
	if v.CancelBy == "" {
		v.CancelBy, v.CancelWhy = by, why
	}
	if v.Progress == (toolkeep.Progress{}) {
		v.Progress = progress
	}
	v.Addr, v.UserAgent = d.string(), d.string()
	v.Chain, v.ResultSummary = d.strings(), d.string()
	v.Input = d.bytes()
	if actor := d.string(); actor != "" { // a row that waited has it, whose part older programs did not clear
		v.Actor = actor
	}
	return d.err
}
