package invoke

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/toolkeep/toolkeep"
)

// execute makes attempts until one succeeds, fails for good, or time is up.
func (p *Pipeline) execute(ctx context.Context, j *job, k *kit, res *toolkeep.Result) (*toolkeep.Output, error) {
	ex := p.Executors[j.tool.Manifest.Execution.Kind]
	r := retryOf(j.tool)
	r.attempts = j.context.AttemptsWithin(r.attempts)
	x := &toolkeep.Execution{
		Tool: j.tool, Args: j.args, Credentials: k.creds, Principal: j.principal, InvocationID: j.id,
		Session: j.call.Session, Key: j.call.Key, Traceparent: j.call.Traceparent, Caller: j.caller,
		MaxBytes: p.HardBytes, Clean: j.clean, Facts: j.context.FactsCopy(),
	}
	var last *toolkeep.Error
	var timedOut bool // an attempt did not answer within its own limit
	more := 0         // the attempt with secrets fetched afresh, which is beyond the tool's own
	for attempt := 1; ; attempt++ {
		x.Attempt, res.Attempts = attempt, attempt
		x.Child = j.child()
		out, err := p.attempt(ctx, ex, x)
		if out != nil {
			res.BytesSent += out.BytesSent
			res.BytesRecv += out.BytesRecv
			res.CostUSD += out.CostUSD
		}
		if err == nil {
			return out, nil
		}
		last = err
		timedOut = timedOut || err.Code == toolkeep.UpstreamTimeout
		if ctx.Err() != nil {
			return nil, ended(ctx, last, timedOut)
		}
		if p.renew(ctx, j, k, last) {
			more, x.Credentials = 1, k.creds
			continue
		}
		if attempt >= r.attempts+more || !r.again(last) {
			return nil, last
		}
		if !r.wait(ctx, attempt-more, last) {
			if ctx.Err() != nil {
				return nil, ended(ctx, last, timedOut)
			}
			return nil, last // the wait would outlast the deadline
		}
	}
}

// attempt is one try within the attempt's own limit. A tool that names none has the
// call's alone: two limits that end together would end a call as E3502 or E3901 by
// chance.
func (p *Pipeline) attempt(ctx context.Context, ex toolkeep.Executor, x *toolkeep.Execution) (*toolkeep.Output, *toolkeep.Error) {
	limit, own := x.Tool.Manifest.AttemptTimeout(), ctx
	if limit < x.Tool.Manifest.Timeout() {
		var cancel context.CancelFunc
		own, cancel = limited(ctx, limit, x.Caller)
		defer cancel()
	}
	out, err := ex.Execute(own, x)
	if err == nil {
		return out, nil
	}
	if ctx.Err() == nil && late(own) {
		var inner *toolkeep.Error
		switch {
		case !errors.As(err, &inner):
		case inner.Code == toolkeep.DBTimeout:
			return out, inner // it says more: the database stopped the statement
		}
		e := toolkeep.NewError(toolkeep.UpstreamTimeout, "the tool did not answer within %s", limit).Because(err)
		e.NothingSent = inner != nil && inner.NothingSent
		return out, e
	}
	return out, toolkeep.AsError(err)
}

// retry is a tool's retry rule with the defaults of DESIGN filled in.
type retry struct {
	policy, jitter string
	attempts       int
	base, cap      time.Duration
	codes          []toolkeep.Code
	statuses       []int
	repeatable     bool
}

func retryOf(t *toolkeep.Tool) retry {
	r := retry{policy: "exponential", jitter: "full", attempts: 3, base: time.Second, cap: 32 * time.Second,
		repeatable: !t.Writes() || t.Manifest.Idempotent}
	s := t.Manifest.Retry
	if s == nil {
		return r
	}
	r.codes, r.statuses = s.RetryableErrors, s.RetryableStatusCodes
	if s.Policy != "" {
		r.policy = s.Policy
	}
	if s.Jitter != "" {
		r.jitter = s.Jitter
	}
	if s.MaxAttempts > 0 {
		r.attempts = s.MaxAttempts
	}
	if s.BaseDelayMS != nil {
		r.base = time.Duration(*s.BaseDelayMS) * time.Millisecond
	}
	if s.MaxDelayMS != nil {
		r.cap = time.Duration(*s.MaxDelayMS) * time.Millisecond
	}
	if r.policy == "none" {
		r.attempts = 1
	}
	return r
}

// again tells whether the failure may be tried again: it is of a kind that can
// pass, and repeating it cannot do the work twice.
func (r retry) again(e *toolkeep.Error) bool {
	passes := e.Retryable
	if len(r.codes) > 0 {
		passes = slices.Contains(r.codes, e.Code)
	}
	if status, ok := statusOf(e); ok && slices.Contains(r.statuses, status) {
		passes = true
	}
	return passes && (r.repeatable || e.NothingSent)
}

func statusOf(e *toolkeep.Error) (int, bool) {
	switch s := e.Details["status"].(type) {
	case int:
		return s, true
	case json.Number:
		n, err := strconv.Atoi(s.String())
		return n, err == nil
	}
	return 0, false
}

// wait sleeps before the next attempt; false if there is no time for it.
func (r retry) wait(ctx context.Context, attempt int, e *toolkeep.Error) bool {
	d := r.delay(attempt)
	if e.RetryAfter > 0 {
		d = e.RetryAfter
	}
	if deadline, ok := ctx.Deadline(); ok && time.Until(deadline) <= d {
		return false
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// delay is the pause after the given attempt.
func (r retry) delay(attempt int) time.Duration {
	d := r.base
	if r.policy == "linear" {
		d *= time.Duration(attempt)
	} else {
		for i := 1; i < attempt && d < r.cap; i++ {
			d *= 2
		}
	}
	d = min(d, r.cap)
	if d <= 0 {
		return 0
	}
	switch r.jitter {
	case "none":
		return d
	case "equal":
		return d/2 + rand.N(d/2+1)
	case "spread": // plus or minus 20 %
		return d - d/5 + rand.N(2*d/5+1)
	case "decorrelated":
		return min(r.cap, r.base+rand.N(3*d+1))
	}
	return rand.N(d + 1)
}

// inspect checks the output and puts what is over the cut into the blob store.
func (p *Pipeline) inspect(ctx context.Context, j *job, out *toolkeep.Output, res *toolkeep.Result) error {
	// The type is the upstream's text too, and reading it changes its case.
	own := *out
	own.ContentType = j.clean.Clean(out.ContentType)
	got, err := p.Inspector.Inspect(j.tool, &own, j.clean)
	if err != nil {
		return err
	}
	res.Output, res.Truncated = got.Output, got.Truncated
	res.Warnings = append(res.Warnings, got.Warnings...)
	if !got.Truncated && !got.Attached {
		return nil
	}
	whole := toolkeep.Blob{Tenant: j.principal.Tenant, Subject: j.principal.Subject, ContentType: got.ContentType}
	if j.tool.Manifest.PublicResult() && !j.private() {
		whole.Subject = "" // whoever gets the cached result may fetch the whole of it
	}
	b, err := p.Blobs.Put(ctx, whole, bytes.NewReader(got.Whole))
	if err != nil {
		p.Log.Error("a cut or binary result could not be kept whole", "invocation_id", j.id, "error", err)
		message := "the result was cut and the whole of it could not be kept"
		if !got.Truncated {
			message = "the result is binary and its bytes could not be kept"
		}
		res.Warnings = append(res.Warnings, toolkeep.Warning{Code: toolkeep.ResultTooLarge, Message: message})
		return nil
	}
	kind := "blob"
	if got.Attached && strings.HasPrefix(got.ContentType, "image/") {
		kind = "image"
	}
	res.Attachments = append(res.Attachments, toolkeep.Attachment{Kind: kind, URL: "/api/v1/blobs/" + b.ID, ContentType: b.ContentType, Bytes: b.Bytes})
	return nil
}
