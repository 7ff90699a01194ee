package record

import (
	"encoding/binary"
	"math"
	"time"

	"github.com/toolkeep/toolkeep"
)

// Parts selects which parts of a call go into its record. ID and tenant are columns of
// every row with a record; sealed arguments are only in their own column, so that
// erasing them there is enough.
type Parts struct {
	Waiting bool // fields that only waiting calls have
	Output  bool // the output, for calls recorded once at their end
}

const (
	flagWrites = 1 << iota
	flagRetryable
	flagAsync
	flagSent
	flagCached
	flagTruncated
	flagSkipCache
)

func callFlags(v *toolkeep.Invocation) (f uint64) {
	for _, x := range [...]struct {
		set bool
		bit uint64
	}{
		{v.Writes, flagWrites}, {v.Retryable, flagRetryable}, {v.Async, flagAsync}, {v.Sent, flagSent},
		{v.Cached, flagCached}, {v.Truncated, flagTruncated}, {v.SkipCache, flagSkipCache},
	} {
		if x.set {
			f |= x.bit
		}
	}
	return f
}

// AppendCall encodes a call: version, the length-prefixed record of a waiting call
// (empty for others), then the record of every call.
func AppendCall(b []byte, v *toolkeep.Invocation, parts Parts) ([]byte, error) {
	b = append(b, codecVersion)
	if parts.Waiting {
		waiting, err := appendWaiting(nil, v)
		if err != nil {
			return nil, err
		}
		b = appendBytes(b, waiting)
	} else {
		b = append(b, 0)
	}
	flags := callFlags(v)
	if !parts.Waiting {
		flags &^= flagSkipCache
	}
	b = binary.AppendUvarint(b, flags)

	for _, s := range [...]string{
		v.Subject, v.OnBehalf, v.Session, v.Plan, v.Task, v.Face, v.KeyID,
		v.ToolID, v.Version, v.Range, v.Digest, v.Category, v.Kind,
		string(v.State), string(v.Code), v.Message,
	} {
		b = appendString(b, s)
	}
	b = appendBytes(b, v.Details)
	b = appendInt(b, int64(v.RetryS))

	b = appendString(b, v.Key)
	b = appendHash(b, &v.AskHash)
	b = appendHash(b, &v.ArgsHash)
	b = appendString(b, v.CallID)
	b = appendInt(b, int64(v.ArgsSize))
	b = appendString(b, string(v.Priority))
	b = appendString(b, v.Parent)
	b = appendInt(b, int64(v.Ordinal))

	for _, t := range [...]time.Time{v.CreatedAt, v.StartedAt, v.EndedAt, v.Deadline, v.ExpiresAt, v.FetchedAt} {
		b = appendTime(b, t)
	}
	for _, n := range [...]int64{int64(v.Attempts), v.ToolUS, v.TotalUS, v.BytesSent, v.BytesRecv, int64(v.OutputSize)} {
		b = appendInt(b, n)
	}
	b = appendFloat(b, v.CostUSD)
	if parts.Output {
		b = appendBytes(b, v.Output)
	} else {
		b = append(b, 0)
	}
	b, err := appendExtras(b, v)
	if err != nil {
		return nil, err
	}
	b = appendString(b, v.Addr) // absent, as all after it, in rows of older programs
	b = appendString(b, v.UserAgent)
	b = appendStrings(b, v.Chain)
	b = appendString(b, v.ResultSummary)
	b = appendStrings(b, v.PriorTools)
	b = appendBytes(b, v.Sealed)
	b = appendString(b, string(v.Withheld))
	b = appendBytes(b, v.Input)
	actor := v.Actor
	if parts.Waiting { // it is in that part
		actor = ""
	}
	b = appendString(b, actor)
	var other []byte
	if f := v.Fallback; f != nil {
		for _, s := range [...]string{f.Tool, f.Version, f.InvocationID, string(f.Reason)} {
			other = appendString(other, s)
		}
	}
	b = appendBytes(b, other)
	b = appendString(b, v.AllowedRole)
	b = appendString(b, v.AllowedPolicy)
	b = appendString(b, v.Certificate)
	b = appendSteps(b, &v.Steps)
	b = binary.AppendUvarint(b, uint64(len(v.Tries)))
	for _, t := range v.Tries {
		e := appendInt(nil, t.AtUS)
		e = appendInt(e, t.TookUS)
		e = appendString(e, string(t.Code))
		b = appendBytes(b, appendString(e, t.Tool))
	}
	return appendString(b, v.TraceID), nil
}

// appendSteps takes a byte where they are not known, else about 16.
func appendSteps(b []byte, s *toolkeep.CallSteps) []byte {
	if *s == (toolkeep.CallSteps{}) {
		return append(b, 0)
	}
	at := len(b)
	b = append(b, 0, s.Ended) // the length is at most 61, one byte
	for _, us := range s.US {
		b = binary.AppendUvarint(b, uint64(us))
	}
	b[at] = byte(len(b) - at - 1)
	return b
}

func decodeSteps(d *decoder, s *toolkeep.CallSteps) {
	span := d.span()
	if len(span) == 0 {
		return
	}
	s.Ended = span[0]
	e := &decoder{b: span[1:]}
	for i := range s.US {
		s.US[i] = uint32(min(e.uint(), math.MaxUint32))
	}
	if e.err != nil {
		d.fail()
	}
}

func decodeTries(d *decoder, v *toolkeep.Invocation) {
	for range d.count() {
		e := &decoder{b: d.span()}
		v.Tries = append(v.Tries, toolkeep.Try{AtUS: e.int(), TookUS: e.int(), Code: toolkeep.Code(e.string()), Tool: e.string()})
		if e.err != nil {
			d.fail()
			return
		}
	}
}

func appendExtras(b []byte, v *toolkeep.Invocation) ([]byte, error) {
	b, err := appendBeside(b, v)
	if err != nil {
		return nil, err
	}
	b = binary.AppendUvarint(b, uint64(len(v.Secrets)))
	for _, u := range v.Secrets {
		e := appendString(nil, u.Hash)
		e = appendString(e, u.Scope)
		e = appendString(e, u.Store)
		e = appendString(e, u.Version)
		b = appendBytes(b, appendString(e, string(u.Code)))
	}
	return b, nil
}

// appendBeside encodes what accompanies an output.
func appendBeside(b []byte, v *toolkeep.Invocation) ([]byte, error) {
	b = binary.AppendUvarint(b, uint64(len(v.Warnings)))
	for _, w := range v.Warnings {
		var details []byte
		if len(w.Details) != 0 {
			var err error
			if details, err = Marshal(w.Details); err != nil {
				return nil, err
			}
		}
		e := appendString(nil, string(w.Code))
		e = appendString(e, w.Message)
		b = appendBytes(b, appendBytes(e, details))
	}
	b = binary.AppendUvarint(b, uint64(len(v.Attachments)))
	for _, a := range v.Attachments {
		e := appendString(nil, a.Kind)
		e = appendString(e, a.URL)
		e = appendString(e, a.ContentType)
		e = appendInt(e, a.Bytes)
		b = appendBytes(b, appendString(e, a.SHA256)) // absent in rows of older programs
	}
	return b, nil
}

func appendWaiting(b []byte, v *toolkeep.Invocation) ([]byte, error) {
	b = appendStrings(b, v.Roles)
	b = appendStrings(b, v.Scope)
	b = appendInt(b, int64(v.Timeout))
	b = appendInt(b, int64(v.CacheTTL))
	b = appendString(b, v.Traceparent)
	b = appendString(b, v.LeaseOwner)
	b = appendTime(b, v.LeaseUntil)
	b = appendInt(b, int64(v.Requeued))
	b = appendString(b, v.CancelBy)
	b = appendString(b, v.CancelWhy)
	b = appendBytes(b, AppendProgress(nil, v.Progress))
	b = appendString(b, v.Workspace)
	b = appendString(b, v.Approved)
	var grant []byte
	if v.Grant != nil {
		var err error
		if grant, err = Marshal(v.Grant); err != nil {
			return nil, err
		}
	}
	b = appendBytes(b, grant)
	b = appendString(b, v.Actor)
	b = appendString(b, v.Method)
	return appendBytes(b, v.SealedCaller), nil
}

// AppendProgress encodes progress.
func AppendProgress(b []byte, p toolkeep.Progress) []byte {
	b = appendInt(b, int64(p.Percent))
	b = appendString(b, p.Phase)
	return appendString(b, p.Message)
}

// DecodeProgress reads what AppendProgress wrote; empty input is no progress.
func DecodeProgress(b []byte) (toolkeep.Progress, error) {
	d := &decoder{b: b}
	p := toolkeep.Progress{Percent: int(d.int()), Phase: d.string(), Message: d.string()}
	return p, d.err
}

// DecodeCall reads what AppendCall wrote.
func DecodeCall(tenant, id string, data []byte) (*toolkeep.Invocation, error) {
	v := &toolkeep.Invocation{Tenant: tenant, ID: id}
	d := open(data)
	waiting := d.span()
	flags := d.uint()
	v.Writes = flags&flagWrites != 0
	v.Retryable = flags&flagRetryable != 0
	v.Async = flags&flagAsync != 0
	v.Sent = flags&flagSent != 0
	v.Cached = flags&flagCached != 0
	v.Truncated = flags&flagTruncated != 0
	v.SkipCache = flags&flagSkipCache != 0

	for _, s := range [...]*string{
		&v.Subject, &v.OnBehalf, &v.Session, &v.Plan, &v.Task, &v.Face, &v.KeyID,
		&v.ToolID, &v.Version, &v.Range, &v.Digest, &v.Category, &v.Kind,
		(*string)(&v.State), (*string)(&v.Code), &v.Message,
	} {
		*s = d.string()
	}
	v.Details = d.bytes()
	v.RetryS = int(d.int())

	v.Key = d.string()
	v.AskHash = d.hash()
	v.ArgsHash = d.hash()
	v.CallID = d.string()
	v.ArgsSize = int(d.int())
	v.Priority = toolkeep.Priority(d.string())
	v.Parent = d.string()
	v.Ordinal = int(d.int())

	for _, t := range [...]*time.Time{&v.CreatedAt, &v.StartedAt, &v.EndedAt, &v.Deadline, &v.ExpiresAt, &v.FetchedAt} {
		*t = d.time()
	}
	v.Attempts = int(d.int())
	for _, n := range [...]*int64{&v.ToolUS, &v.TotalUS, &v.BytesSent, &v.BytesRecv} {
		*n = d.int()
	}
	v.OutputSize = int(d.int())
	v.CostUSD = d.float()
	v.Output = d.bytes()
	decodeExtras(d, v)
	v.Addr, v.UserAgent = d.string(), d.string()
	v.Chain = d.strings()
	v.ResultSummary, v.PriorTools = d.string(), d.strings()
	v.Sealed, v.Withheld = d.bytes(), toolkeep.Withheld(d.string())
	v.Input = d.bytes()
	v.Actor = d.string()
	if other := d.span(); d.err == nil && len(other) != 0 {
		e := &decoder{b: other}
		v.Fallback = &toolkeep.Fallback{Tool: e.string(), Version: e.string(), InvocationID: e.string(), Reason: toolkeep.Code(e.string())}
		if e.err != nil {
			d.fail()
		}
	}
	v.AllowedRole, v.AllowedPolicy, v.Certificate = d.string(), d.string(), d.string()
	decodeSteps(d, &v.Steps)
	decodeTries(d, v)
	v.TraceID = d.string()
	if d.err == nil && len(waiting) != 0 {
		d = &decoder{b: waiting}
		decodeWaiting(d, v)
	}
	return v, d.err
}

func decodeBeside(d *decoder, v *toolkeep.Invocation) {
	for range d.count() {
		e := &decoder{b: d.span()}
		w := toolkeep.Warning{Code: toolkeep.Code(e.string()), Message: e.string()}
		if details := e.span(); len(details) != 0 {
			if err := Unmarshal(details, &w.Details); err != nil {
				e.fail()
			}
		}
		if e.err != nil {
			d.fail()
			return
		}
		v.Warnings = append(v.Warnings, w)
	}
	for range d.count() {
		e := &decoder{b: d.span()}
		a := toolkeep.Attachment{Kind: e.string(), URL: e.string(), ContentType: e.string(), Bytes: e.int(), SHA256: e.string()}
		if e.err != nil {
			d.fail()
			return
		}
		v.Attachments = append(v.Attachments, a)
	}
}

func decodeExtras(d *decoder, v *toolkeep.Invocation) {
	decodeBeside(d, v)
	for range d.count() {
		e := &decoder{b: d.span()}
		u := toolkeep.SecretUse{Hash: e.string(), Scope: e.string(), Store: e.string(), Version: e.string(), Code: toolkeep.Code(e.string())}
		if e.err != nil {
			d.fail()
			return
		}
		v.Secrets = append(v.Secrets, u)
	}
}

func decodeWaiting(d *decoder, v *toolkeep.Invocation) {
	v.Roles = d.strings()
	v.Scope = d.strings()
	v.Timeout = time.Duration(d.int())
	v.CacheTTL = time.Duration(d.int())
	v.Traceparent = d.string()
	v.LeaseOwner = d.string()
	v.LeaseUntil = d.time()
	v.Requeued = int(d.int())
	v.CancelBy = d.string()
	v.CancelWhy = d.string()
	p, err := DecodeProgress(d.span())
	if err != nil {
		d.fail()
	}
	v.Progress = p
	v.Workspace = d.string()
	v.Approved = d.string() // as the workspace, absent in rows of older programs
	if grant := d.span(); d.err == nil && len(grant) != 0 {
		v.Grant = new(toolkeep.Grant)
		if Unmarshal(grant, v.Grant) != nil {
			d.fail()
		}
	}
	v.Actor = d.string()
	v.Method = d.string()
	v.SealedCaller = d.bytes()
}
