package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/face/rest"
	"github.com/toolkeep/toolkeep/proto/l03v1"
	"github.com/toolkeep/toolkeep/rpcclient"
)

// overGRPC gives to the requests that the commands make of REST what gRPC answers,
// in REST's words, so that a command prints the same over both. What the gRPC
// contract does not hold is left out.
type overGRPC struct {
	c       *rpcclient.Client
	base    string
	command string
	tls     *clientTLS
}

// grpcCommands are the commands whose requests gRPC has methods for.
var grpcCommands = []string{"toolkeep tools", "toolkeep search", "toolkeep describe", "toolkeep call", "toolkeep explain",
	"toolkeep invocations get", "toolkeep invocations cancel", "toolkeep invocations watch"}

// grpcURL is how TOOLKEEP_URL names the gRPC face at host:port.
func grpcURL(hostPort string, secure bool) string {
	if secure {
		return "grpcs://" + hostPort
	}
	return "grpc://" + hostPort
}

// dial makes the client speak gRPC. A command that gRPC cannot serve is refused
// before it does half of its work.
func (a *app) dial(c *client, u *url.URL, settings *tls.Config) error {
	g := &overGRPC{base: c.base, command: a.command, tls: &a.tls}
	completing := strings.HasPrefix(a.command, "toolkeep __complete") // what gRPC does not know is not offered
	if !completing && !slices.Contains(grpcCommands, a.command) {
		return g.unserved()
	}
	if u.Path != "" {
		return usagef("the server's address %q has a path; write %s", c.base, u.Scheme+"://"+u.Host)
	}
	var err error
	if g.c, err = rpcclient.Dial(u.Host, rpcclient.Options{Key: c.key, TLS: settings, MaxBytes: maxAnswer, UserAgent: "toolkeep/" + version}); err != nil {
		return usagef("TOOLKEEP_URL: %v", err)
	}
	a.leave = append(a.leave, func() { _ = g.c.Close() })
	c.rpc = g
	return nil
}

func (g *overGRPC) unserved() error {
	return usagef("gRPC has no method for `%s`: set TOOLKEEP_URL to the server's HTTP address, such as http://127.0.0.1:8080, in place of %s", g.command, g.base)
}

// do answers a request of REST.
func (g *overGRPC) do(ctx context.Context, method, path string, body any, say func(string)) ([]byte, error) {
	u, err := url.Parse(path)
	if err != nil {
		return nil, usagef("the request cannot be made: %v", err)
	}
	q := u.Query()
	rest, _ := strings.CutPrefix(u.EscapedPath(), "/api/v1/")
	part := strings.Split(rest, "/")
	for i := range part {
		if part[i], err = url.PathUnescape(part[i]); err != nil {
			return nil, usagef("the request cannot be made: %v", err)
		}
	}
	switch len(part) {
	case 1:
		part = append(part, "", "")
	case 2:
		part = append(part, "")
	}
	var answer any
	switch {
	case len(part) > 3:
		return nil, g.unserved()
	case method == http.MethodPost && rest == "tools/invoke":
		fields, _ := body.(map[string]any)
		return g.invoke(ctx, fields, say)
	case method == http.MethodPost && part[0] == "invocations" && part[2] == "cancel":
		fields, _ := body.(map[string]any)
		answer, err = g.cancel(ctx, part[1], fields)
	case method != http.MethodGet:
		return nil, g.unserved()
	case rest == "tools":
		answer, err = g.tools(ctx, q)
	case rest == "tools/retrieval/search":
		answer, err = g.search(ctx, q)
	case part[0] == "tools" && part[1] != "" && part[2] == "":
		answer, err = g.tool(ctx, part[1], q.Get("version"))
	case part[0] == "tools" && part[2] == "versions":
		answer, err = g.versions(ctx, part[1])
	case part[0] == "invocations" && part[1] != "" && part[2] == "":
		answer, err = g.invocation(ctx, part[1])
	default:
		return nil, g.unserved()
	}
	if err != nil {
		return nil, g.failed(ctx, err)
	}
	return plainJSON(answer)
}

// plainJSON writes as REST does: no escapes for HTML.
func plainJSON(v any) ([]byte, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return nil, &failure{code: exitUnavailable, err: fmt.Errorf("the server's answer cannot be shown: %w", err)}
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), nil
}

// failed tells a refusal of the server apart from a server that does not answer.
func (g *overGRPC) failed(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return &failure{code: exitRefused, err: errors.New("interrupted")}
	}
	var e *toolkeep.Error
	if !errors.As(err, &e) {
		return err
	}
	var lost *rpcclient.Lost
	switch {
	case errors.As(err, &lost) && e.Code == toolkeep.NetworkError:
		return &failure{code: exitUnavailable, err: fmt.Errorf("the server at %s does not answer (%s); is it running, and is this its address?%s", g.base, lost.Status.Message(), g.tls.advice())}
	case lost != nil && e.Code == toolkeep.APIVersionUnsupported:
		return &failure{code: exitUnavailable, err: fmt.Errorf("what answers at %s is no Toolkeep server, or one of another version: %s; look at TOOLKEEP_URL", g.base, lost.Status.Message())}
	case lost != nil:
		return &failure{code: exitCodeOf(e.Code), err: e}
	}
	return refusalOf(e)
}

// refusalOf is the refusal as REST tells it.
func refusalOf(e *toolkeep.Error) error {
	info := e.Code.Info()
	p := rest.Problem{Type: "urn:toolkeep:error:" + string(e.Code), Title: title(info.Name), Status: info.HTTP, Detail: e.Message,
		Code: string(e.Code), Name: info.Name, Class: info.Class, Retryable: e.Retryable, RetryAfterS: e.RetryAfterSeconds(),
		Details: e.Details, InvocationID: e.InvocationID, InvocationStatus: toolkeep.CallRefused.BC2(e.Code),
		Error: rest.ProblemError{Code: info.BC2, Message: e.Message, Details: e.Details, Retryable: e.Retryable}}
	if e.Code == toolkeep.Cancelled {
		p.InvocationStatus = toolkeep.CallCancelled.BC2(e.Code)
	}
	told := struct {
		rest.Problem
		Instance string `json:"instance,omitempty"`
	}{Problem: p}
	if e.InvocationID != "" {
		told.Instance = "/api/v1/invocations/" + e.InvocationID
	}
	raw, err := plainJSON(told)
	if err != nil {
		return err
	}
	r := &refusedError{problem: raw}
	if err := decode(raw, r); err != nil {
		return err
	}
	return &failure{code: exitCodeOf(e.Code), err: r}
}

func title(name string) string {
	words := strings.ReplaceAll(name, "_", " ")
	if words == "" {
		return ""
	}
	return strings.ToUpper(words[:1]) + words[1:]
}

// progress is a Caller that says how far a call is.
type progress func(string)

func (p progress) Progress(at toolkeep.Progress) {
	p(progressLine("running", at.Percent, at.Phase))
}

func progressLine(status string, percent int, phase string) string {
	return strings.TrimSpace(fmt.Sprintf("%s %d%% %s", status, percent, phase))
}

// invoke carries the call out, or explains it. A call with a key is not streamed:
// while another request with its key runs, a stream would wait for it past the
// call's own deadline, and REST would not.
func (g *overGRPC) invoke(ctx context.Context, body map[string]any, say func(string)) ([]byte, error) {
	raw, err := plainJSON(body)
	if err != nil {
		return nil, err
	}
	var ask struct {
		ToolID     string          `json:"tool_id"`
		Version    string          `json:"tool_version"`
		Parameters json.RawMessage `json:"parameters"`
		Options    struct {
			Async    bool              `json:"async_mode"`
			Priority toolkeep.Priority `json:"priority"`
			Key      string            `json:"idempotency_key"`
			Approval bool              `json:"require_approval"`
		} `json:"execution_options"`
		Fresh bool `json:"skip_cache"`
		Agent struct {
			Session string `json:"session_id"`
		} `json:"agent_context"`
		Seconds int  `json:"timeout_seconds"`
		DryRun  bool `json:"dry_run"`
	}
	if err := json.Unmarshal(raw, &ask); err != nil {
		return nil, usagef("the request cannot be made: %v", err)
	}
	call := &toolkeep.Call{Tool: ask.ToolID, Range: ask.Version, Arguments: ask.Parameters, Key: ask.Options.Key,
		Timeout: time.Duration(ask.Seconds) * time.Second, Async: ask.Options.Async, Priority: ask.Options.Priority,
		RequireApproval: ask.Options.Approval, SkipCache: ask.Fresh, Session: ask.Agent.Session}
	if ask.DryRun {
		out, err := g.c.Explain(ctx, call)
		if err != nil {
			return nil, g.failed(ctx, err)
		}
		return out, nil
	}
	if say != nil && call.Key == "" && !call.Async {
		call.Caller = progress(say)
	}
	r, err := g.c.Invoke(ctx, nil, call)
	if err != nil {
		return nil, g.failed(ctx, err)
	}
	return plainJSON(responseOf(r))
}

// response is BC-2's answer; rest.InvokeResponse with the result as it came.
type response struct {
	InvocationID string             `json:"invocation_id"`
	Status       string             `json:"status"`
	Result       json.RawMessage    `json:"result,omitempty"`
	Error        *rest.InvokeError  `json:"error,omitempty"`
	Metadata     *executionMetadata `json:"execution_metadata,omitempty"`
	CallID       string             `json:"call_id,omitempty"`
	PollingInfo  *rest.PollingInfo  `json:"polling_info,omitempty"`
}

type executionMetadata struct {
	DurationMS  int64                 `json:"duration_ms"`
	StartedAt   *time.Time            `json:"started_at,omitempty"`
	CompletedAt *time.Time            `json:"completed_at,omitempty"`
	CPUUsed     int64                 `json:"cpu_used_millicore_seconds"`
	MemoryPeak  int64                 `json:"memory_peak_mb"`
	Sent        int64                 `json:"network_bytes_sent"`
	Received    int64                 `json:"network_bytes_received"`
	Documents   []any                 `json:"documents_accessed"`
	Checkpoints []any                 `json:"checkpoints_created"`
	ToolVersion string                `json:"tool_version,omitempty"`
	OverheadUS  int64                 `json:"overhead_us"`
	CacheHit    bool                  `json:"cache_hit"`
	Replayed    bool                  `json:"idempotency_replayed"`
	RetryCount  int                   `json:"retry_count"`
	Truncated   bool                  `json:"truncated"`
	CostUSD     float64               `json:"cost_usd"`
	Attachments []toolkeep.Attachment `json:"attachments"`
	Warnings    []toolkeep.Warning    `json:"warnings"`
}

func responseOf(r *toolkeep.Result) *response {
	m := &executionMetadata{StartedAt: moment(r.StartedAt), CompletedAt: moment(r.EndedAt), Sent: r.BytesSent, Received: r.BytesRecv,
		ToolVersion: r.ToolVersion, OverheadUS: r.Overhead.Microseconds(), CacheHit: r.Cached, Replayed: r.Replayed,
		Documents: []any{}, Checkpoints: []any{}, RetryCount: max(r.Attempts-1, 0), Truncated: r.Truncated, CostUSD: r.CostUSD,
		Attachments: append([]toolkeep.Attachment{}, r.Attachments...), Warnings: append([]toolkeep.Warning{}, r.Warnings...)}
	if m.StartedAt != nil && m.CompletedAt != nil {
		m.DurationMS = r.EndedAt.Sub(r.StartedAt).Milliseconds()
	}
	a := &response{InvocationID: r.InvocationID, Status: r.State.BC2(codeOf(r.Error)), Result: r.Output, Metadata: m, CallID: r.CallID}
	if e := r.Error; e != nil {
		info := e.Code.Info()
		a.Error = &rest.InvokeError{Code: info.BC2, Message: e.Message, Details: e.Details, Retryable: e.Retryable, ErrorCode: string(e.Code),
			Name: info.Name, Class: info.Class, RetryAfterS: e.RetryAfterSeconds()}
	}
	if !r.State.Ended() {
		a.PollingInfo = &rest.PollingInfo{StatusURL: "/api/v1/invocations/" + r.InvocationID}
	}
	return a
}

func codeOf(e *toolkeep.Error) toolkeep.Code {
	if e == nil {
		return ""
	}
	return e.Code
}

func moment(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	return &t
}

// invocation is how a call stands, without what GetInvocation does not tell: tool,
// agent, session and when it was asked for.
func (g *overGRPC) invocation(ctx context.Context, id string) (any, error) {
	r, err := g.c.Get(ctx, id)
	if err != nil {
		return nil, err
	}
	a := struct {
		*response
		State           toolkeep.CallState `json:"state"`
		ProgressPercent *int               `json:"progress_percent,omitempty"`
		CurrentPhase    string             `json:"current_phase,omitempty"`
	}{response: responseOf(r), State: r.State}
	if r.Progress != (toolkeep.Progress{}) {
		a.ProgressPercent, a.CurrentPhase = &r.Progress.Percent, r.Progress.Phase
	}
	if !r.State.Ended() {
		a.Metadata, a.PollingInfo = nil, nil
	}
	return a, nil
}

// follow waits for the end of a call.
func (g *overGRPC) follow(ctx context.Context, id string, say func(string)) ([]byte, error) {
	r, err := g.c.Follow(ctx, id, func(r *toolkeep.Result) {
		say(progressLine(r.State.BC2(codeOf(r.Error)), r.Progress.Percent, r.Progress.Phase))
	})
	if err != nil {
		return nil, g.failed(ctx, err)
	}
	return plainJSON(responseOf(r))
}

func (g *overGRPC) cancel(ctx context.Context, id string, body map[string]any) (any, error) {
	why, _ := body["reason"].(string)
	cancelled, message, err := g.c.Cancel(ctx, id, why)
	return struct {
		InvocationID string `json:"invocation_id"`
		Cancelled    bool   `json:"cancelled"`
		Message      string `json:"message"`
	}{id, cancelled, message}, err
}

// lookups bounds how many tools are asked about at once.
const lookups = 8

// each asks about tools side by side and keeps the first error.
func each(ctx context.Context, n int, ask func(context.Context, int) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var wg sync.WaitGroup
	slots := make(chan struct{}, lookups)
	for i := range n {
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			if ctx.Err() != nil {
				return
			}
			if err := ask(ctx, i); err != nil {
				cancel(err)
			}
		})
	}
	wg.Wait()
	return context.Cause(ctx)
}

// stateOf is what a version's refusal says of its state; ok is false for a refusal
// that is about something else.
func stateOf(err error) (state toolkeep.VersionState, ok bool) {
	var e *toolkeep.Error
	if !errors.As(err, &e) {
		return "", false
	}
	switch e.Code {
	case toolkeep.ToolBlocked:
		return toolkeep.Blocked, true
	case toolkeep.ToolRemoved:
		return toolkeep.Removed, true
	}
	return "", false
}

func listed(s *l03v1.ToolSummary) rest.ToolSummary {
	return rest.ToolSummary{ToolID: s.GetToolId(), ToolName: s.GetToolName(), Description: s.GetDescription(), Category: s.GetCategory(),
		Versions: append([]string{}, s.GetVersions()...), LatestVersion: s.GetLatestVersion(), Tags: append([]string{}, s.GetTags()...),
		RequiresApproval: s.GetRequiresApproval()}
}

// complete adds what a summary lacks from the version's manifest. One that was
// blocked or removed since it was listed stays without.
func (g *overGRPC) complete(ctx context.Context, t *rest.ToolSummary) (*toolkeep.Manifest, error) {
	v, err := g.c.Tool(ctx, t.ToolID, t.LatestVersion)
	if state, ok := stateOf(err); ok {
		t.State = string(state)
		return &toolkeep.Manifest{}, nil
	}
	if err != nil {
		return nil, err
	}
	var m toolkeep.Manifest
	if err := decode(v.GetManifestJson(), &m); err != nil {
		return nil, err
	}
	t.State, t.ShortDescription = v.GetState(), m.ShortDescription
	t.SideEffects, t.Risk = or(m.SideEffects, "writes"), or(m.Risk, "low")
	return &m, nil
}

func (g *overGRPC) tools(ctx context.Context, q url.Values) (any, error) {
	number := func(name string) uint32 {
		n, _ := strconv.ParseUint(q.Get(name), 10, 32)
		return uint32(n)
	}
	ask := &l03v1.ListToolsRequest{Filters: map[string]string{}, Page: max(number("page"), 1), PageSize: number("page_size"),
		IncludeDeprecated: q.Get("include_deprecated") == "true"}
	for _, name := range []string{"category", "tag", "capability", "namespace"} {
		if v := q.Get(name); v != "" {
			ask.Filters[name] = v
		}
	}
	found, total, err := g.c.List(ctx, ask)
	if err != nil {
		return nil, err
	}
	list := make([]rest.ToolSummary, len(found))
	err = each(ctx, len(found), func(ctx context.Context, i int) error {
		list[i] = listed(found[i])
		_, err := g.complete(ctx, &list[i])
		return err
	})
	return struct {
		Tools      []rest.ToolSummary `json:"tools"`
		TotalCount int                `json:"total_count"`
		Page       uint32             `json:"page"`
		PageSize   uint32             `json:"page_size"`
	}{list, total, ask.Page, ask.PageSize}, err
}

type indexEntry struct {
	ToolID           string   `json:"toolId"`
	ToolName         string   `json:"toolName,omitempty"`
	Version          string   `json:"version"`
	ShortDescription string   `json:"shortDescription"`
	Category         string   `json:"category"`
	Tags             []string `json:"tags"`
	Score            float64  `json:"score"`
	Why              []string `json:"why"`

	Explanation map[string]any `json:"explanation,omitempty"`
}

func (g *overGRPC) search(ctx context.Context, q url.Values) (any, error) {
	limit, _ := strconv.Atoi(q.Get("limit"))
	found, err := g.c.Query(ctx, &l03v1.QueryByCapabilityRequest{Query: q.Get("q"), MaxTools: uint32(max(0, limit)),
		Strategy: q.Get("strategy"), Category: q.Get("category"), SessionId: q.Get("session")})
	if err != nil {
		return nil, err
	}
	index := make([]indexEntry, len(found))
	metadata := map[string]any{"toolsRetrieved": len(index)}
	if len(found) > 0 {
		how := found[0].GetExplanation().GetFields()
		if how["degraded"] != nil {
			metadata["degraded"] = how["degraded"].GetStringValue()
		}
		metadata["retrievalStrategy"], metadata["weights"] = how["strategy"].GetStringValue(), how["weights"].AsInterface()
	}
	err = each(ctx, len(found), func(ctx context.Context, i int) error {
		t := listed(found[i].GetTool())
		m, err := g.complete(ctx, &t)
		if err != nil {
			return err
		}
		e := indexEntry{ToolID: t.ToolID, ToolName: t.ToolName, Version: t.LatestVersion, ShortDescription: m.ShortDescription,
			Category: t.Category, Tags: t.Tags, Score: found[i].GetScore(), Why: []string{}}
		if e.ShortDescription == "" {
			e.ShortDescription = t.Description
		}
		why := found[i].GetExplanation().GetFields()
		for _, w := range why["why"].GetListValue().GetValues() {
			e.Why = append(e.Why, w.GetStringValue())
		}
		if q.Get("explain") != "" {
			e.Explanation = map[string]any{}
			for _, part := range []string{"semantic", "keyword", "history", "success", "complexity", "learned", "named"} {
				e.Explanation[part] = why[part].AsInterface()
			}
		}
		index[i] = e
		return nil
	})
	return map[string]any{"status": "success", "data": map[string]any{"lightweightIndex": index, "metadata": metadata}}, err
}

// life is what gRPC tells of a version's lifecycle: the state alone.
type life struct {
	State string `json:"state"`
}

func (g *overGRPC) tool(ctx context.Context, id, rng string) (any, error) {
	t, err := g.c.Tool(ctx, id, rng)
	if err != nil {
		return nil, err
	}
	return struct {
		ToolID    string          `json:"tool_id"`
		Version   string          `json:"version"`
		Digest    string          `json:"digest"`
		Lifecycle life            `json:"lifecycle"`
		Manifest  json.RawMessage `json:"manifest"`
	}{t.GetToolId(), t.GetVersion(), t.GetDigest(), life{t.GetState()}, t.GetManifestJson()}, nil
}

func (g *overGRPC) versions(ctx context.Context, id string) (any, error) {
	t, err := g.c.Tool(ctx, id, "")
	if err != nil {
		return nil, err
	}
	type version struct {
		Version   string `json:"version"`
		Digest    string `json:"digest,omitempty"`
		Lifecycle life   `json:"lifecycle"`
	}
	list := make([]version, len(t.GetVersions()))
	err = each(ctx, len(list), func(ctx context.Context, i int) error {
		list[i].Version = t.GetVersions()[i]
		v, err := g.c.Tool(ctx, id, list[i].Version)
		if state, ok := stateOf(err); ok {
			list[i].Lifecycle.State = string(state)
			return nil
		}
		list[i].Digest, list[i].Lifecycle.State = v.GetDigest(), v.GetState()
		return err
	})
	return struct {
		ToolID   string    `json:"tool_id"`
		Versions []version `json:"versions"`
	}{id, list}, err
}
