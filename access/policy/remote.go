package policy

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"sync/atomic"
	"time"

	"github.com/open-policy-agent/opa/v1/ast"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/access"
	"github.com/toolkeep/toolkeep/canon"
)

// maxAnswer bounds the answer of a remote policy in bytes.
const maxAnswer = 64 << 10

// checkPath is the path of a service of kind ABAC.
const checkPath = "/api/v1/abac/check-permission"

// Remote asks a policy outside of this process. One of OPA and ABAC is set.
type Remote struct {
	// OPA is the address of a decision of an OPA server, such as
	// http://127.0.0.1:8181/v1/data/toolkeep. Its value is true or false, or an object with
	// the rules that package toolkeep has.
	OPA string
	// ABAC is the address of a service that answers POST /api/v1/abac/check-permission.
	ABAC   string
	Client *http.Client
	// Bearer returns the token to send; nil sends none.
	Bearer func(ctx context.Context) (string, error)

	failed atomic.Pointer[failure] // of the last request that was not broken off; nil: it was answered
}

// failure is why a request brought no answer.
type failure struct {
	error
	unreached bool // the service did not answer at all
}

// Health returns why the service did not answer the last question, nil if it did. One that did not answer at all
// is looked for, within ctx, so that it counts as back before a call asks it.
func (r *Remote) Health(ctx context.Context) error {
	last := r.failed.Load()
	if last == nil {
		return nil
	}
	if last.unreached && r.answers(ctx) && r.failed.CompareAndSwap(last, nil) {
		return nil
	}
	return fmt.Errorf("calls are refused (E3206): %w", last)
}

// answers reports whether the service is there, whatever it says to a GET without a token.
func (r *Remote) answers(ctx context.Context) bool {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, r.Address(), nil)
	if err != nil {
		return false
	}
	resp, err := r.Client.Do(req)
	if err != nil {
		return false
	}
	_ = resp.Body.Close()
	return true
}

// Address returns the address that is asked.
func (r *Remote) Address() string {
	if r.OPA != "" {
		return r.OPA
	}
	at, err := url.JoinPath(r.ABAC, checkPath)
	if err != nil {
		return r.ABAC + checkPath
	}
	return at
}

// decide asks about a call.
func (r *Remote) decide(ctx context.Context, q *question) (answer, error) {
	in, err := input(q, partAll)
	if err != nil {
		return answer{}, err
	}
	tree, err := ast.JSON(in)
	if err != nil {
		return answer{}, err
	}
	if r.OPA != "" {
		got, err := r.noted(ctx, map[string]any{"input": tree})
		if err != nil {
			return answer{}, err
		}
		result, defined := q.hide(got).(map[string]any)["result"]
		if !defined {
			return answer{verdict: access.Verdict{Reason: "the policy does not define a decision for the call"}}, nil
		}
		return decisionOf(result)
	}
	p := q.Principal
	got, err := r.noted(ctx, map[string]any{"agent_id": p.Subject, "resource_type": "tool", "resource_id": q.Tool.ID, "action": "execute", "context": tree})
	if err != nil {
		return answer{}, err
	}
	got = q.hide(got).(map[string]any)
	allowed, ok := got["allowed"].(bool)
	if !ok {
		return answer{}, errors.New("the answer has no allowed, which is true or false")
	}
	a := answer{verdict: access.Verdict{Allow: allowed, Rule: "abac"}, life: 300 * time.Second} // the source document's default
	if reason, _ := got["reason"].(string); !allowed {
		a.verdict.Reason = toolkeep.ClipBytes(reason, maxReasonBytes)
	}
	if a.verdict.Obligations, err = obligationsOf(got["obligations"]); err != nil {
		return answer{}, err
	}
	return a, a.lives(got)
}

// visible is not asked: a remote policy hides nothing.
func (r *Remote) visible(context.Context, *question) (answer, error) {
	return answer{visible: true}, nil
}

// noted is ask, and keeps for Health what came of it.
func (r *Remote) noted(ctx context.Context, body map[string]any) (map[string]any, error) {
	got, err := r.ask(ctx, body)
	switch {
	case err == nil:
		r.failed.Store(nil)
	case !errors.Is(ctx.Err(), context.Canceled): // else the caller left
		r.failed.Store(&failure{error: err, unreached: errors.Is(err, errUnreached)})
	}
	return got, err
}

// ask sends one request and reads the object that answers it. Its errors have neither the
// address nor the answer.
func (r *Remote) ask(ctx context.Context, body map[string]any) (map[string]any, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, r.Address(), bytes.NewReader(canon.Append(nil, body)))
	if err != nil {
		return nil, errors.New("the request cannot be made")
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", "application/json")
	if r.Bearer != nil {
		token, err := r.Bearer(ctx)
		if err != nil {
			return nil, fmt.Errorf("the token for the policy's service: %s", toolkeep.AsError(err).Code)
		}
		req.Header.Set("Authorization", "Bearer "+token)
	}
	resp, err := r.Client.Do(req)
	if err != nil {
		return nil, withoutAddress(ctx, err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("the policy's service answered with status %d", resp.StatusCode)
	}
	raw, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer+1))
	if err != nil {
		return nil, withoutAddress(ctx, err)
	}
	if len(raw) > maxAnswer {
		return nil, fmt.Errorf("the policy's service answered with more than %d KiB", maxAnswer>>10)
	}
	got, err := canon.ParseObject(raw, canon.Limits{Bytes: maxAnswer, Depth: 20})
	if err != nil {
		return nil, fmt.Errorf("the answer of the policy's service is not a JSON object (%s)", toolkeep.AsError(err).Code)
	}
	return got, nil
}

// errUnreached is in each error of a service that did not answer.
var errUnreached = errors.New("the policy's service")

func withoutAddress(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return fmt.Errorf("%w did not answer in time", errUnreached)
	}
	var wrapped *url.Error
	if errors.As(err, &wrapped) {
		err = wrapped.Err
	}
	return fmt.Errorf("%w cannot be reached: %w", errUnreached, err)
}

// decisionOf reads what OPA's decision is: true or false, or an object with the rules that a
// policy here may have. An object that has none of them is an error, and one without allow denies.
func decisionOf(result any) (a answer, err error) {
	if allowed, ok := result.(bool); ok {
		return answer{verdict: access.Verdict{Allow: allowed, Rule: "opa"}}, nil
	}
	object, ok := result.(map[string]any)
	if !ok {
		return a, errors.New("the decision is neither true or false, nor an object with allow, deny or require_approval")
	}
	var all [ruleVisible]any
	has := [ruleCount]bool{}
	for i := range all {
		v, defined := object[ruleNames[i]]
		if defined {
			all[i], has[i] = []any{v}, true
		}
	}
	if has == [ruleCount]bool{} && len(object) > 0 { // an empty one is what OPA gives of a package whose rules are all undefined
		return a, errors.New("the decision is an object without allow, deny and require_approval")
	}
	// OPA leaves an undefined rule out as one that is not written, so an allow is demanded in any case.
	if a.verdict, err = verdictOf(all[:], true); err != nil {
		return answer{}, err
	}
	if !has[ruleAllow] && a.verdict.Reason == noAllow {
		a.verdict.Reason = "the policy does not define allow for the call"
	}
	return a, a.lives(object)
}

// lives reads how long an answer may be kept.
func (a *answer) lives(from map[string]any) error {
	v, given := from["cache_ttl_seconds"]
	if !given {
		return nil
	}
	n, _ := v.(json.Number)
	seconds, err := n.Int64()
	if err != nil || seconds < 0 {
		return errors.New("cache_ttl_seconds of the answer is not a whole number from 0")
	}
	a.life = time.Duration(min(seconds, int64(toolkeep.MaxCacheTTL/time.Second))) * time.Second
	return nil
}

// obligationsOf reads the obligations of an ABAC service: an array of objects with kind and reason.
func obligationsOf(v any) (all []access.Obligation, err error) {
	if v == nil {
		return nil, nil
	}
	list, ok := v.([]any)
	if !ok || len(list) > maxReasons {
		return nil, fmt.Errorf("obligations of the answer is not an array of at most %d objects", maxReasons)
	}
	for _, e := range list {
		o, _ := e.(map[string]any)
		kind, ok := o["kind"].(string)
		if !ok {
			return nil, errors.New("an obligation of the answer is not an object with a kind")
		}
		reason, _ := o["reason"].(string)
		all = append(all, access.Obligation{Kind: toolkeep.ClipBytes(kind, 100), Reason: toolkeep.ClipBytes(reason, maxReasonBytes), Rule: "abac"})
	}
	return all, nil
}
