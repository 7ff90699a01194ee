package mcpserver

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"strconv"
	"sync"
	"time"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/canon"
	"github.com/toolkeep/toolkeep/mcp"
)

// askable reports whether the client can be asked anything.
func askable(caps []byte) bool {
	for name, v := range mcp.Members(caps) {
		if (name == "elicitation" || name == "sampling" || name == "roots") && mcp.IsObject(v) {
			return true
		}
	}
	return false
}

// mayAsk returns why a client cannot be asked this; nil if it can.
func mayAsk(caps []byte, method string, params []byte) error {
	var name string
	switch method {
	case mcp.MethodElicit:
		name = "elicitation"
	case mcp.MethodCreateMessage:
		name = "sampling"
	case mcp.MethodListRoots:
		name = "roots"
	default:
		return toolkeep.NewError(toolkeep.InvalidParameters, "a caller cannot be asked %s", toolkeep.ClipBytes(method, 100))
	}
	have := mcp.Get(caps, name)
	if !mcp.IsObject(have) {
		return noAnswer("the caller's client did not declare the capability " + name)
	}
	if name == "elicitation" && mcp.Text(params, "mode") == "url" && mcp.Get(have, "url") == nil {
		return noAnswer("the caller's client does not accept elicitations of mode url")
	}
	if len(params) > questionBytes {
		return toolkeep.NewError(toolkeep.RequestTooLarge, "the question has more than %d bytes", questionBytes)
	}
	return nil
}

// noAnswer says why a question got no answer. The tool decides what its call does then.
func noAnswer(why string) error {
	return toolkeep.NewError(toolkeep.MCPError, "%s", "the question got no answer: "+why)
}

// shuts returns a channel that is closed when calls stop waiting for answers to this method; nil
// for never. A program answers soon or not at all; a person may take any time.
func (s *Server) shuts(method string) <-chan struct{} {
	if method == mcp.MethodElicit {
		return s.drains
	}
	return nil
}

// shutsDown is the reason given when the server stops waiting for a person.
func shutsDown() error { return noAnswer("the server is shutting down") }

// askClient sends a question to a client with a session, on the stream of the call that raised it,
// or on the session's own stream if the call's stream takes no events.
func (x *exchange) askClient(ctx context.Context, method string, params []byte) ([]byte, error) {
	if err := mayAsk(x.caps, method, params); err != nil {
		return nil, err
	}
	ses := x.ses
	if ses == nil {
		return nil, noAnswer("the caller has no MCP session")
	}
	id, answer, ok := ses.ask()
	if !ok {
		return nil, noAnswer("too many questions are open in the session, or it has ended")
	}
	defer ses.unask(id)
	data := (&mcp.Message{ID: id, Method: method, Params: params}).Bytes()
	if (x.reply == nil || !x.reply.send(data, true, "")) && !ses.sendOwn(data) {
		return nil, noAnswer("the caller's client has no event stream open")
	}
	late := time.NewTimer(x.s.limits.answerWithin)
	defer late.Stop()
	select {
	case m := <-answer:
		if m.Err != nil {
			return nil, m.Err
		}
		return m.Result, nil
	case <-late.C:
		return nil, noAnswer("the caller did not answer in time")
	case <-ses.ended:
		return nil, noAnswer("the caller's session ended")
	case <-x.s.shuts(method):
		x.unasked(ses, id)
		return nil, shutsDown()
	case <-ctx.Done():
		x.unasked(ses, id)
		return nil, ctx.Err()
	}
}

// unasked tells the client that the answer is no longer needed.
func (x *exchange) unasked(ses *session, id []byte) {
	cancelled := append(append([]byte(`{"requestId":`), id...), '}')
	note := (&mcp.Message{Method: mcp.NotificationCancelled, Params: cancelled}).Bytes()
	if x.reply == nil || !x.reply.send(note, false, "") {
		ses.own.add(note, false, "")
	}
}

// sendOwn sends a question on the session's own stream if it has a reader.
func (ses *session) sendOwn(data []byte) bool {
	ses.own.mu.Lock()
	read := ses.own.reader != nil
	ses.own.mu.Unlock()
	return read && ses.own.add(data, true, "")
}

// parking holds the 2026-07-28 calls that wait for an answer.
type parking struct {
	s    *Server
	mu   sync.Mutex
	over bool
	all  map[[16]byte]*parked
	of   map[owner]int
}

func (g *parking) init(s *Server) {
	g.s, g.all, g.of = s, map[[16]byte]*parked{}, map[owner]int{}
}

// parked is one request that may ask its caller. It runs in its own goroutine, because it outlives
// the HTTP request that started it.
type parked struct {
	s      *Server
	key    [16]byte
	owner  owner
	bound  [4][32]byte // what the second request must match, see bound
	cancel context.CancelCauseFunc
	caps   []byte

	raised chan struct{} // there are questions
	done   chan struct{} // data and err are set

	data []byte
	err  error

	mu      sync.Mutex
	early   map[string][]byte // answers sent with the first request
	round   uint32
	open    []*inputRequest
	next    int
	waiting bool // an HTTP request is waiting for it
	reply   *reply
	missed  []event // notifications for the client while no request was waiting
	timer   *time.Timer
}

// inputRequest is what a tool asks of its caller: a message, a sampling or the roots.
type inputRequest struct {
	name   string
	method string
	params []byte
	answer chan []byte
}

// askable runs fn, which may ask questions through the exchange, and answers with fn's result or
// with its questions. If m's params have inputResponses they resume a parked call instead.
func (x *exchange) askable(ctx context.Context, m *mcp.Message, dst []byte, subject string, arguments []byte,
	fn func(ctx context.Context, x *exchange, dst []byte) ([]byte, error)) ([]byte, error) {
	if state := mcp.Get(m.Params, "requestState"); state != nil {
		return x.wake(ctx, m, dst, state, subject, arguments)
	}
	if !askable(x.caps) {
		return fn(ctx, x, dst)
	}
	own, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	c := &parked{s: x.s, owner: ownerOf(x.p), cancel: cancel, caps: clone(x.caps), bound: x.bound(m.Method, subject, arguments),
		raised: make(chan struct{}, 1), done: make(chan struct{}), waiting: true, reply: x.reply,
		early: earlyAnswers(mcp.Get(m.Params, "inputResponses"))}
	_, _ = rand.Read(c.key[:]) // never fails
	asking := *x
	asking.reply, asking.caps, asking.park, asking.header = nil, c.caps, c, nil
	started := x.s.spawn(func() {
		defer cancel(nil)
		defer close(c.done)
		defer func() {
			if v := recover(); v != nil {
				c.err = x.s.panicked(v)
			}
		}()
		c.data, c.err = fn(own, &asking, nil)
	})
	if !started {
		cancel(nil)
		return nil, draining()
	}
	return x.wait(ctx, c, dst)
}

// wait answers with the first of: the result, questions, or the client leaving, which ends the
// call.
func (x *exchange) wait(ctx context.Context, c *parked, dst []byte) ([]byte, error) {
	select {
	case <-c.done:
		return c.finished(dst)
	default:
	}
	select {
	case <-c.done:
		return c.finished(dst)
	case <-c.raised:
		return x.inputRequired(ctx, c, dst)
	case <-ctx.Done():
		c.cancel(context.Canceled)
		<-c.done
		return c.finished(dst)
	}
}

func (c *parked) finished(dst []byte) ([]byte, error) {
	c.s.parking.leave(c)
	if c.err != nil {
		return nil, c.err
	}
	return append(dst, c.data...), nil
}

// inputRequired writes the open questions and the sealed state.
func (x *exchange) inputRequired(ctx context.Context, c *parked, dst []byte) ([]byte, error) {
	if !x.s.parking.enter(c) {
		// If the table is full the questions get no answer, and the tool continues without.
		c.fail()
		return x.wait(ctx, c, dst)
	}
	c.mu.Lock()
	if len(c.open) == 0 { // the tool has stopped waiting meanwhile
		c.mu.Unlock()
		return x.wait(ctx, c, dst)
	}
	defer c.mu.Unlock()
	c.round++
	c.waiting, c.reply = false, nil
	until := time.Now().Add(c.s.limits.answerWithin)
	state, err := c.seal(until)
	if err != nil {
		c.cancel(err)
		return nil, toolkeep.NewError(toolkeep.InternalError, "the state of the call cannot be sealed; the server's log has the cause").Because(err)
	}
	c.timer = time.AfterFunc(time.Until(until), func() { c.abandon(noAnswer("the caller did not answer in time")) })
	dst = append(dst, `{"resultType":"input_required","inputRequests":{`...)
	for i, q := range c.open {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = canon.AppendString(dst, q.name)
		dst = canon.AppendString(append(dst, `:{"method":`...), q.method)
		dst = append(append(append(dst, `,"params":`...), q.params...), '}')
	}
	dst = canon.AppendString(append(dst, `},"requestState":`...), state)
	return append(dst, '}'), nil
}

// earlyAnswers are inputResponses without a state. They belong to no parked call: the call starts
// from the beginning, and questions with these names get these answers. A client does this if it
// knows the server's questions.
func earlyAnswers(responses []byte) map[string][]byte {
	var early map[string][]byte
	for name, raw := range mcp.Members(responses) {
		if len(early) == maxOpen {
			break
		}
		if mcp.IsObject(raw) {
			if early == nil {
				early = map[string][]byte{}
			}
			early[name] = clone(raw)
		}
	}
	return early
}

// ask puts one question; the code that runs the call uses it.
func (c *parked) ask(ctx context.Context, method string, params []byte) ([]byte, error) {
	q := &inputRequest{method: method, params: params}
	if err := c.put(q); err != nil {
		return nil, err
	}
	return c.await(ctx, q)
}

// askAll puts several questions at once, under their own names.
func (c *parked) askAll(ctx context.Context, list []*inputRequest) ([][]byte, error) {
	if err := c.put(list...); err != nil {
		return nil, err
	}
	answers := make([][]byte, len(list))
	var failed error
	for i, q := range list {
		a, err := c.await(ctx, q)
		if err != nil && failed == nil {
			failed = err
		}
		answers[i] = a
	}
	return answers, failed
}

// put adds questions to the open ones.
func (c *parked) put(list ...*inputRequest) error {
	for _, q := range list {
		if err := mayAsk(c.caps, q.method, q.params); err != nil {
			return err
		}
		if len(q.params) == 0 {
			q.params = []byte("{}")
		}
		q.answer = make(chan []byte, 1)
	}
	c.mu.Lock()
	if len(c.open)+len(list) > maxOpen {
		c.mu.Unlock()
		return noAnswer("the call has too many questions open")
	}
	for _, q := range list { // a question that would not wait is not shown either
		select {
		case <-c.s.shuts(q.method):
			if _, ok := c.early[q.name]; !ok || q.name == "" {
				c.mu.Unlock()
				return shutsDown()
			}
		default:
		}
	}
	asks := false
	for _, q := range list {
		if a, ok := c.early[q.name]; ok && q.name != "" {
			delete(c.early, q.name) // an early answer is used once
			q.answer <- a
			continue
		}
		for q.name == "" || len(q.name) > 200 || c.asks(q.name) {
			c.next++
			q.name = "q" + strconv.Itoa(c.next)
		}
		c.open, asks = append(c.open, q), true
	}
	c.mu.Unlock()
	if !asks {
		return nil
	}
	select {
	case c.raised <- struct{}{}:
	default:
	}
	return nil
}

// maxOpen bounds the open questions of one call.
const maxOpen = 16

// asks reports whether a question of this name is open. c.mu is held.
func (c *parked) asks(name string) bool {
	for _, q := range c.open {
		if q.name == name {
			return true
		}
	}
	return false
}

// await waits for the answer to a question.
func (c *parked) await(ctx context.Context, q *inputRequest) ([]byte, error) {
	defer c.forget(q)
	take := func(a []byte, ok bool) ([]byte, error) {
		if !ok {
			return nil, noAnswer("the caller did not answer in time, or there is no room for its call to wait")
		}
		return a, nil
	}
	select {
	case a, ok := <-q.answer: // it was sent with the request
		return take(a, ok)
	default:
	}
	select {
	case a, ok := <-q.answer:
		return take(a, ok)
	case <-c.s.shuts(q.method):
		return nil, shutsDown()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// send sends a notification to the client now, or when it returns.
func (c *parked) send(data []byte, key string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.reply != nil {
		return c.reply.send(data, false, key)
	}
	for i := range c.missed {
		if key != "" && c.missed[i].key == key {
			c.missed[i].data = data
			return true
		}
	}
	const most = 16
	if len(c.missed) == most {
		c.missed = c.missed[1:]
	}
	c.missed = append(c.missed, event{data: data, key: key})
	return true
}

func (c *parked) forget(q *inputRequest) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for i := range c.open {
		if c.open[i] == q {
			c.open = append(c.open[:i:i], c.open[i+1:]...)
			return
		}
	}
}

// fail ends all open questions without an answer.
func (c *parked) fail() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, q := range c.open {
		close(q.answer)
	}
	c.open = nil
}

// abandon ends a call whose caller did not return.
func (c *parked) abandon(why error) {
	c.mu.Lock()
	if c.waiting {
		c.mu.Unlock()
		return
	}
	c.mu.Unlock()
	c.s.parking.leave(c)
	c.cancel(why)
}

// enter adds a call to the table, or finds it there.
func (g *parking) enter(c *parked) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.all[c.key] == c {
		return true
	}
	if g.over || len(g.all) >= maxParked || g.of[c.owner] >= g.s.limits.principalParked {
		return false
	}
	g.all[c.key] = c
	g.of[c.owner]++
	return true
}

func (g *parking) leave(c *parked) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.all[c.key] != c {
		return
	}
	delete(g.all, c.key)
	if g.of[c.owner]--; g.of[c.owner] == 0 {
		delete(g.of, c.owner)
	}
}

func (g *parking) close() {
	g.mu.Lock()
	g.over = true
	all := make([]*parked, 0, len(g.all))
	for _, c := range g.all {
		all = append(all, c)
	}
	g.mu.Unlock()
	for _, c := range all {
		c.mu.Lock()
		if c.timer != nil {
			c.timer.Stop()
		}
		c.mu.Unlock()
		g.leave(c)
		c.cancel(errSessionEnded)
	}
}

// The state that a client carries: a version, the node, the call, the round, its expiry, and
// digests of what the second request must repeat.
const stateSize = 1 + 16 + 16 + 4 + 8 + 4*32

var stateContext = []byte("toolkeep mcp requestState 1")

// bound returns digests of the request: principal with actor and workspace, view, method and
// subject, arguments.
func (x *exchange) bound(method, subject string, arguments []byte) [4][32]byte {
	return [4][32]byte{
		sha256.Sum256([]byte(x.p.Tenant + "\x00" + x.p.Subject + "\x00" + x.p.OnBehalf + "\x00" + x.p.Workspace)),
		sha256.Sum256([]byte(x.v.key)),
		sha256.Sum256([]byte(method + "\x00" + subject)),
		digestOf(arguments),
	}
}

// digestOf ignores white space and member order.
func digestOf(arguments []byte) [32]byte {
	v, err := canon.Parse(arguments, canon.Limits{Bytes: int64(len(arguments)) + 1, Depth: messageDepth, Properties: 1 << 20, Elements: 1 << 20})
	if err != nil {
		return sha256.Sum256(arguments)
	}
	return canon.Hash(v)
}

func (c *parked) seal(until time.Time) (string, error) {
	plain := make([]byte, 0, stateSize)
	plain = append(plain, 1)
	plain = append(plain, c.s.node[:]...)
	plain = append(plain, c.key[:]...)
	plain = binary.BigEndian.AppendUint32(plain, c.round)
	plain = binary.BigEndian.AppendUint64(plain, uint64(until.Unix())) //nolint:gosec // not before 1970
	for _, d := range c.bound {
		plain = append(plain, d[:]...)
	}
	sealed, err := c.s.c.Sealer.Seal(plain, stateContext)
	return base64.RawURLEncoding.EncodeToString(sealed), err
}

// wake passes the answers to a parked call and waits for its next outcome.
func (x *exchange) wake(ctx context.Context, m *mcp.Message, dst, rawState []byte, subject string, arguments []byte) ([]byte, error) {
	c, round, err := x.parkedOf(rawState, m.Method, subject, arguments)
	if err != nil {
		return nil, err
	}
	answers := mcp.Get(m.Params, "inputResponses") // missing answers are asked for again
	c.mu.Lock()
	if c.waiting || c.round != round {
		c.mu.Unlock()
		return nil, badState("it was used already")
	}
	c.waiting = true
	c.timer.Stop()
	c.reply = x.reply
	for _, e := range c.missed {
		c.reply.send(e.data, false, e.key)
	}
	c.missed = nil
	for name, raw := range mcp.Members(answers) {
		for i, q := range c.open {
			if q.name == name {
				c.open = append(c.open[:i:i], c.open[i+1:]...)
				q.answer <- clone(raw)
				break
			}
		}
	}
	// Unanswered questions are asked again.
	if len(c.open) > 0 {
		select {
		case c.raised <- struct{}{}:
		default:
		}
	} else {
		select {
		case <-c.raised:
		default:
		}
	}
	c.mu.Unlock()
	return x.wait(ctx, c, dst)
}

func badState(why string) error {
	return mcp.NewError(mcp.CodeInvalidParams, "requestState cannot be used: "+why+"; send the request again without requestState and inputResponses")
}

// parkedOf opens a state and finds its call.
func (x *exchange) parkedOf(raw []byte, method, subject string, arguments []byte) (*parked, uint32, error) {
	text, ok := mcp.Unquote(raw)
	if !ok || len(text) > 4*stateSize {
		return nil, 0, badState("it is not what this server sent")
	}
	sealed, err := base64.RawURLEncoding.DecodeString(text)
	if err != nil {
		return nil, 0, badState("it is not what this server sent")
	}
	plain, err := x.s.c.Sealer.Open(sealed, stateContext)
	if err != nil || len(plain) != stateSize || plain[0] != 1 {
		return nil, 0, badState("it is not what this server sent")
	}
	bound := x.bound(method, subject, arguments)
	for i, what := range [...]string{"it belongs to another caller", "it belongs to another view", "it belongs to another request", "the arguments are not those of the first request"} {
		if [32]byte(plain[45+32*i:]) != bound[i] {
			return nil, 0, badState(what)
		}
	}
	if time.Now().Unix() > int64(binary.BigEndian.Uint64(plain[37:])) { //nolint:gosec // made by seal
		return nil, 0, badState("it has expired")
	}
	if [16]byte(plain[1:]) != x.s.node {
		return nil, 0, badState("the call waits on another node, or on this one before it was restarted")
	}
	x.s.parking.mu.Lock()
	c := x.s.parking.all[[16]byte(plain[17:])]
	x.s.parking.mu.Unlock()
	if c == nil {
		return nil, 0, badState("the call has ended")
	}
	return c, binary.BigEndian.Uint32(plain[33:]), nil
}

// nodeID derives 16 bytes from a node's name; a node without a name gets random ones, which change
// at a restart.
func nodeID(name string) (id [16]byte) {
	if name == "" {
		_, _ = rand.Read(id[:]) // never fails
		return id
	}
	sum := sha256.Sum256([]byte(name))
	copy(id[:], sum[:])
	return id
}
