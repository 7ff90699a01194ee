package invoke

import (
	"bytes"
	"errors"
	"strings"

	jsonv2 "github.com/go-json-experiment/json"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/canon"
	"github.com/toolkeep/toolkeep/redact"
)

// clean redacts what the call shows; for a child it redacts at least its parent's
// secrets. Until the call is prepared nothing can have come from its upstream: then only
// tokens are found, because a refusal that repeats arguments would tell which is a secret.
func (p *Pipeline) clean(a *activeCall) *redact.Cleaner {
	if a.cleaner == nil {
		a.cleaner = p.Redact.For(a.principal)
	}
	return a.cleaner
}

// upstreamOf names the upstream that gets a tool's credentials and may repeat them. A tool
// whose executor names none, such as a function of this process, is its own.
func (p *Pipeline) upstreamOf(pr *toolkeep.Principal, t *toolkeep.Tool) string {
	if named, ok := p.Executors[t.Manifest.Execution.Kind].(toolkeep.UpstreamNamer); ok {
		if u := named.UpstreamOf(pr, t); u != "" {
			return u
		}
	}
	return "tool:" + t.Tenant + "/" + t.ID
}

// cleanShared redacts this caller's secrets from another caller's result, whose
// redaction may not have covered them.
func (p *Pipeline) cleanShared(a *activeCall, res *toolkeep.Result) {
	if a.tool.Manifest.PublicResult() && len(res.Output) > 0 {
		res.Output = p.clean(a).From(p.upstreamOf(a.principal, a.tool)).CleanJSON(res.Output)
	}
}

// resultLimits bound the parsing of error details made by this process.
var resultLimits = canon.Limits{Bytes: 16 << 20, Depth: 1000, Properties: 1 << 20, Elements: 1 << 20}

// cleaned redacts an error's message and details. The details are redacted as JSON, as
// they are shown; details that are not JSON are dropped.
func (p *Pipeline) cleaned(e *toolkeep.Error, c textCleaner) *toolkeep.Error {
	e.Message = c.Clean(e.Message)
	// The log's redactor knows the process's secrets, not one call's.
	if own := (errCause{}); e.Cause != nil && !errors.As(e.Cause, &own) {
		if text := e.Cause.Error(); c.Clean(text) != text {
			e.Cause = errors.New(c.Clean(text))
		}
	}
	if len(e.Details) == 0 {
		return e
	}
	raw, err := jsonv2.Marshal(e.Details)
	var tree map[string]any
	if err == nil {
		tree, err = canon.ParseObject(raw, resultLimits)
	}
	if err != nil {
		p.Log.Error("the details of an error are dropped: they are not JSON", "code", e.Code)
		e.Details = nil
		return e
	}
	before := canon.Append(nil, tree)
	clean, _ := c.CleanValue(cleanPointers(tree, c)).(map[string]any)
	if !bytes.Equal(before, canon.Append(nil, clean)) {
		e.Details = clean
	}
	return e
}

// cleanPointers redacts JSON Pointers of faults, whose names are escaped.
func cleanPointers(v any, c textCleaner) any {
	switch t := v.(type) {
	case map[string]any:
		for k, e := range t {
			if s, ok := e.(string); ok && k == "pointer" && strings.Contains(s, "~") {
				if plain := canon.Unescape(s); c.Clean(plain) != plain {
					t[k] = c.Clean(plain)
				}
				continue
			}
			t[k] = cleanPointers(e, c)
		}
	case []any:
		for i, e := range t {
			t[i] = cleanPointers(e, c)
		}
	}
	return v
}
