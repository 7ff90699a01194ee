package rest

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/canon"
	"github.com/toolkeep/toolkeep/catalog/export"
	"github.com/toolkeep/toolkeep/face/gate"
	"github.com/toolkeep/toolkeep/mcp"
)

// ModelAnswer is what came of a model's tool calls.
type ModelAnswer struct {
	Form     string        `json:"form" enum:"openai,openai-responses,anthropic,gemini"`
	Messages objects       `json:"messages" doc:"what to send to the model after its own message, as the provider takes it; none for a message without calls"`
	Calls    []ModelCalled `json:"calls" doc:"the calls in their order"`
}

// objects is a list of objects that is passed on as it is.
type objects json.RawMessage

// MarshalJSON gives the bytes.
func (o objects) MarshalJSON() ([]byte, error) { return o, nil }

func (objects) describe(*components) tree {
	return tree{"type": "array", "items": tree{"type": "object"}}
}

// ModelCalled is one of the calls.
type ModelCalled struct {
	ID           string `json:"id,omitempty" doc:"the provider's id of the call"`
	Name         string `json:"name"`
	InvocationID string `json:"invocation_id,omitempty"`
	Status       string `json:"status" enum:"pending,running,success,error,timeout,cancelled,permission_denied,pending_approval"`
	ErrorCode    string `json:"error_code,omitempty"`

	Warnings []toolkeep.Warning `json:"warnings,omitempty" doc:"for the program; the model is not told of them"`
}

// modelRoutes are the routes for what comes from a model as it is.
func (a *API) modelRoutes() {
	r := op("POST", "/api/v1/tools/invoke/model", "invokeForModel", tagCalls, "Carry out a model's tool calls and write the messages to send back")
	r.description = "The body is what came from Chat Completions, Responses, Messages (Anthropic) or generateContent (Gemini): the whole answer, the message in it, or its tool calls. " +
		"Names are those of an export, or tool ids. What goes wrong with a call, arguments that are no JSON too, is a message for the model; the answer is 200. " +
		"Tools that read run at the same time, others in their order."
	r.params = []tree{
		headerParam("Idempotency-Key", "by which a message that is sent again is carried out once, in place of the provider's ids of the calls"),
		headerParam("X-Session-ID", "the conversation; within it, and without it never, a provider's id of a call that is random is the call's idempotency key"),
		headerParam("X-User-ID", "the person that the agent acts for"),
		headerParam("traceparent", "W3C Trace Context"),
	}
	r.body = tree{"required": true, "content": content(gate.JSONType, tree{"type": []any{"object", "array"}, "description": "what the model's provider answered"})}
	r.responses = answers200("the calls have ended, or wait", gate.JSONType, a.components.ref(ModelAnswer{}))
	counted(r.responses)
	a.raw(r, a.invokeForModel)
}

// maxModelAnswer bounds the results of one message together, in bytes of JSON. A result that is longer by itself is cut to cutModelResult.
const (
	maxModelAnswer = 8 << 20
	cutModelResult = 1 << 20
)

// modelReads is how many calls of one message run at the same time.
const modelReads = 4

func (a *API) invokeForModel(w http.ResponseWriter, r *http.Request) {
	p, err := a.gate.AuthenticateHTTP(r)
	var form export.Form
	var calls []export.ModelCall
	if err == nil {
		form, calls, err = a.readModelCalls(r)
	}
	if err != nil {
		a.gate.Refuse(w, r, err)
		return
	}
	m := modelRun{a: a, r: r, p: p, form: form, calls: calls, tools: make([]*toolkeep.Tool, len(calls)),
		answered: make([]export.Answered, len(calls)), shown: make([]ModelCalled, len(calls))}
	if len(calls) == 0 { // else each call counts
		m.least, err = a.gate.Count(r.Context(), p)
	}
	m.run()
	gate.RateHeaders(w.Header(), m.least)
	if err != nil {
		a.gate.Refuse(w, r, err)
		return
	}
	body, err := gate.Marshal(ModelAnswer{Form: string(form), Messages: objects(export.Messages(form, m.answered)), Calls: m.shown})
	if err != nil {
		a.gate.Refuse(w, r, err)
		return
	}
	a.gate.Send(w, r, http.StatusOK, gate.JSONType, body)
}

func (a *API) readModelCalls(r *http.Request) (export.Form, []export.ModelCall, error) {
	body, err := gate.ReadBody(r, a.limits.BodyBytes, true)
	if err != nil {
		return "", nil, err
	}
	message, err := canon.Parse(body, canon.Limits{Bytes: a.limits.BodyBytes, Properties: 100_000})
	if err != nil {
		return "", nil, err
	}
	return export.ReadCalls(message)
}

// modelRun carries out the calls of one message.
type modelRun struct {
	a        *API
	r        *http.Request
	p        *toolkeep.Principal
	form     export.Form
	calls    []export.ModelCall
	tools    []*toolkeep.Tool // nil where there is none for who acts
	answered []export.Answered
	shown    []ModelCalled

	mu    sync.Mutex
	least toolkeep.RateLeft
	bytes int // of the results so far
}

// run carries out reading calls beside each other; a call that writes waits for those before it, and those after it wait. A tool that is
// not found counts as one that writes. Reads for which there is no place beside the others run again, one after the other.
func (m *modelRun) run() {
	var reading sync.WaitGroup
	var crowded []int
	beside, places := 0, make(chan struct{}, modelReads)
	settle := func() {
		reading.Wait()
		if beside > 1 {
			slices.Sort(crowded)
			for _, i := range crowded {
				m.one(i)
			}
		}
		crowded, beside = nil, 0
	}
	for i := range m.calls {
		if m.find(i); m.writes(i) {
			settle()
			m.one(i)
			continue
		}
		beside++
		places <- struct{}{}
		reading.Go(func() {
			if m.one(i) == toolkeep.ConcurrencyLimitExceeded {
				m.mu.Lock()
				crowded = append(crowded, i)
				m.mu.Unlock()
			}
			<-places
		})
	}
	settle()
}

func (m *modelRun) writes(i int) bool { return m.tools[i] == nil || m.tools[i].Writes() }

// call is a call of the message, with what the request says of all.
func (m *modelRun) call(i int) *toolkeep.Call {
	// Calls after it, and the model, do not wait for a person.
	c := &toolkeep.Call{Face: "rest", Tool: m.calls[i].Name, Arguments: m.calls[i].Arguments, ApprovalWait: time.Millisecond}
	m.a.gate.Call(gate.HTTP(m.r.Header), c)
	c.Key = m.key(c, i)
	return c
}

// find looks for the tool of a call as it exists for who acts in it.
func (m *modelRun) find(i int) {
	acting := m.a.gate.For(m.p, m.call(i))
	if v, _, err := m.a.c.Catalog.Describe(m.r.Context(), acting, m.calls[i].Name, "", m.a.visible(acting)); err == nil {
		m.tools[i] = v.Tool
	}
}

// one carries out a call and returns the code with which it was refused, or failed.
func (m *modelRun) one(i int) toolkeep.Code {
	from, c := m.calls[i], m.call(i)
	c.Told = func(left toolkeep.RateLeft) {
		m.mu.Lock()
		defer m.mu.Unlock()
		m.least = m.least.Least(left)
	}
	res, err := m.a.c.Invoker.Invoke(m.r.Context(), m.p, c)
	to, shown := export.Answered{Call: from}, ModelCalled{ID: from.ID, Name: from.Name}
	failed := func(e *toolkeep.Error) {
		to.Failed, to.Output = true, canon.AppendString(nil, gate.Text(e))
		shown.ErrorCode = string(e.Code)
	}
	if err != nil {
		p := gate.NewProblem(err, "")
		shown.InvocationID, shown.Status = p.InvocationID, p.InvocationStatus
	} else {
		shown.InvocationID, shown.Status, shown.Warnings = res.InvocationID, res.State.BC2(codeOf(res.Error)), res.Warnings
	}
	switch {
	case err != nil:
		failed(gate.Shown(err))
	case res.Error != nil:
		failed(gate.Shown(res.Error))
	case !res.State.Ended():
		to.Output = canon.AppendString(nil, waitingText(res))
	default:
		to.Output = m.bounded(i, outputOf(res, m.tools[i]), res.InvocationID, c.Key != "")
		to.Notes = notesOf(res)
	}
	m.answered[i], m.shown[i] = to, shown
	return toolkeep.Code(shown.ErrorCode)
}

// bounded is a result, or what the model is told in its place; what is left out is not kept in memory. kept says that the record of
// the call has the result.
func (m *modelRun) bounded(i int, out []byte, invocation string, kept bool) []byte {
	what := "Call the tool again, alone, to get it."
	switch {
	case kept:
		what = "It is at " + statusURL(invocation) + "."
	case m.writes(i):
		what = "The call was carried out: do not repeat it."
	}
	n := strconv.Itoa(len(out))
	if len(out) > maxModelAnswer {
		if !kept && !m.writes(i) {
			what = "Ask the tool for less."
		}
		out = canon.AppendString(nil, toolkeep.CutBytes(string(out[:cutModelResult]), cutModelResult-1)+"\nThe result has "+n+" bytes and is cut here. "+what)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.bytes+len(out) > maxModelAnswer {
		return canon.AppendString(nil, "The result has "+n+" bytes, too many beside the others. "+what)
	}
	m.bytes += len(out)
	return out
}

// waitingText tells a model of a call that has not ended.
func waitingText(res *toolkeep.Result) string {
	why := "It is not carried out yet"
	if res.State == toolkeep.CallPendingApproval {
		why = "A person has to approve it first"
	}
	return "The call is " + res.State.BC2("") + " as invocation " + res.InvocationID + ". " + why +
		"; do not call the tool again for it. Its result will be at " + statusURL(res.InvocationID) + "."
}

// outputOf is the result for a model: of a tool of an MCP server that answers with text, the text.
func outputOf(res *toolkeep.Result, t *toolkeep.Tool) []byte {
	if len(res.Output) == 0 {
		return []byte("null")
	}
	if t == nil || t.Manifest.Execution.Kind != "mcp" {
		return res.Output
	}
	var all []string
	for block := range mcp.Elements(mcp.Get(res.Output, "content")) {
		if mcp.Text(block, "type") != "text" {
			return res.Output
		}
		all = append(all, mcp.Text(block, "text"))
	}
	if len(all) == 0 {
		return res.Output
	}
	return canon.AppendString(nil, strings.Join(all, "\n"))
}

func notesOf(res *toolkeep.Result) (notes []string) {
	if res.Truncated {
		notes = append(notes, "The result was too long and is cut.")
	}
	for _, at := range res.Attachments {
		notes = append(notes, "The whole "+at.Kind+" is at "+at.URL+"; fetch it with the same credentials.")
	}
	return notes
}

// randomID is what providers call a tool call of which there is one in the world: not call_0 or functions.name:0, which some servers
// of models count.
var randomID = regexp.MustCompile(`^(?:call_|fc_|toolu_(?:bdrk_|vrtx_)?|chatcmpl-tool-)([A-Za-z0-9]{16,})$`)

// isRandom reports whether a call's id is random: at least 16 characters with letters and digits, and no number after zeros.
func isRandom(id string) bool {
	m := randomID.FindStringSubmatch(id)
	if m == nil {
		return false
	}
	distinct := map[rune]bool{}
	for _, c := range m[1] {
		distinct[c] = true
	}
	return len(distinct) >= 8 && strings.ContainsAny(m[1], "0123456789") && strings.Trim(m[1], "0123456789") != ""
}

// key is the idempotency key of a call: by the caller's, else by the provider's id in the session, at its place and of its tool.
func (m *modelRun) key(c *toolkeep.Call, i int) string {
	switch {
	case c.Key != "" && len(m.calls) > 1:
		return c.Key + "/" + strconv.Itoa(i+1)
	case c.Key != "" || c.Session == "" || !isRandom(m.calls[i].ID):
		return c.Key
	}
	sum := sha256.Sum256([]byte(strings.Join([]string{string(m.form), c.Session, m.calls[i].ID, m.calls[i].Name, strconv.Itoa(i)}, "\x00")))
	return "model-" + hex.EncodeToString(sum[:16])
}
