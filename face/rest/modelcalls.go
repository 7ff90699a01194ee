package rest

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"net/http"
	"regexp"
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
}

// modelRoutes are the routes for what comes from a model as it is.
func (a *API) modelRoutes() {
	r := op("POST", "/api/v1/tools/invoke/model", "invokeForModel", tagCalls, "Carry out a model's tool calls and write the messages to send back")
	r.description = "The body is what came from Chat Completions, Responses, Messages (Anthropic) or generateContent (Gemini): the whole answer, the message in it, or its tool calls. " +
		"Names are those of an export, or tool ids. What goes wrong with a call, arguments that are no JSON too, is a message for the model; the answer is 200. " +
		"Tools that read run at the same time, others in their order."
	r.params = []tree{
		headerParam("Idempotency-Key", "instead of the provider's ids of the calls, by which a message that is sent again is carried out once"),
		headerParam("X-Session-ID", "the conversation; a provider's id means the same call in one session alone"),
		headerParam("X-User-ID", "the person that the agent acts for"),
		headerParam("traceparent", "W3C Trace Context"),
	}
	r.body = tree{"required": true, "content": content(gate.JSONType, tree{"type": []any{"object", "array"}, "description": "what the model's provider answered"})}
	r.responses = answers200("the calls have ended, or wait", gate.JSONType, a.components.ref(ModelAnswer{}))
	counted(r.responses)
	a.raw(r, a.invokeForModel)
}

// maxModelAnswer bounds the results of one message together, in bytes of JSON.
const maxModelAnswer = 8 << 20

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
	m := modelRun{a: a, r: r, p: p, form: form, calls: calls, answered: make([]export.Answered, len(calls)), shown: make([]ModelCalled, len(calls)), writes: make([]bool, len(calls))}
	m.run()
	gate.RateHeaders(w.Header(), m.least)
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
	answered []export.Answered
	shown    []ModelCalled
	writes   []bool

	mu    sync.Mutex
	least toolkeep.RateLeft
}

// run carries out reading calls beside each other; a call that writes waits for those before it, and those after it wait.
func (m *modelRun) run() {
	var reading sync.WaitGroup
	places := make(chan struct{}, modelReads)
	for i := range m.calls {
		v, _, err := m.a.c.Catalog.Find(m.p, m.calls[i].Name, "", m.a.visible(m.p))
		if m.writes[i] = err == nil && v.Tool.Writes(); m.writes[i] {
			reading.Wait()
			m.one(i, v.Tool)
			continue
		}
		places <- struct{}{}
		reading.Go(func() { m.one(i, v.Tool); <-places })
	}
	reading.Wait()
	size := 0
	for i := range m.answered {
		to := &m.answered[i]
		if size += len(to.Output); size <= maxModelAnswer {
			continue
		}
		what := "Call the tool again, alone, to get it."
		if m.writes[i] {
			what = "The call was carried out: do not repeat it."
		}
		to.Output = canon.AppendString(nil, "The result has "+strconv.Itoa(len(to.Output))+" bytes, too many beside the others. "+what)
	}
}

// one carries out a call. t is its tool, nil if there is none.
func (m *modelRun) one(i int, t *toolkeep.Tool) {
	from := m.calls[i]
	// Calls after it, and the model, do not wait for a person.
	c := &toolkeep.Call{Face: "rest", Tool: from.Name, Arguments: from.Arguments, ApprovalWait: time.Millisecond}
	c.Told = func(left toolkeep.RateLeft) {
		m.mu.Lock()
		defer m.mu.Unlock()
		m.least = m.least.Least(left)
	}
	m.a.gate.Call(gate.HTTP(m.r.Header), c)
	c.Key = m.key(c, i)
	res, err := m.a.c.Invoker.Invoke(m.r.Context(), m.p, c)
	to, shown := export.Answered{Call: from}, ModelCalled{ID: from.ID, Name: from.Name}
	fail := func(e *toolkeep.Error) {
		to.Failed, to.Output = true, canon.AppendString(nil, gate.Text(e))
		shown.ErrorCode = string(e.Code)
	}
	if err != nil {
		p := gate.NewProblem(err, "")
		shown.InvocationID, shown.Status = p.InvocationID, p.InvocationStatus
	} else {
		shown.InvocationID, shown.Status = res.InvocationID, res.State.BC2(codeOf(res.Error))
	}
	switch {
	case err != nil:
		fail(gate.Shown(err))
	case res.Error != nil:
		fail(gate.Shown(res.Error))
	case !res.State.Ended():
		to.Output = canon.AppendString(nil, waitingText(res))
	default:
		to.Output, to.Notes = outputOf(res, t), notesOf(res)
	}
	m.answered[i], m.shown[i] = to, shown
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
		notes = append(notes, "The result was longer than the tool allows and is cut.")
	}
	for _, at := range res.Attachments {
		notes = append(notes, "The whole "+at.Kind+" is at "+at.URL+"; fetch it with the same credentials.")
	}
	return notes
}

// uniqueID is what an id of a call looks like that no other call has: not call_0 or functions.name:0, which some
// servers of models count.
var uniqueID = regexp.MustCompile(`^[A-Za-z0-9_-]{9,512}$`)

// key is the idempotency key of a call: by the caller's, else by the provider's id in the session.
func (m *modelRun) key(c *toolkeep.Call, i int) string {
	switch {
	case c.Key != "" && len(m.calls) > 1:
		return c.Key + "/" + strconv.Itoa(i+1)
	case c.Key != "" || !uniqueID.MatchString(m.calls[i].ID):
		return c.Key
	}
	sum := sha256.Sum256([]byte(string(m.form) + "\x00" + c.Session + "\x00" + m.calls[i].ID))
	return "model-" + hex.EncodeToString(sum[:16])
}
