package policy

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/open-policy-agent/opa/v1/ast"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/access"
)

// Config configures an Engine.
type Config struct {
	// Path is a directory or a gzipped tar archive; Bundle is one at an address, and Remote answers
	// instead, where they are set.
	Path   string
	Bundle *Bundle
	Remote *Remote
	// KeyFile has public keys in PEM, at most 10: RSA of at least 2,048 bits (RS256), P-256, P-384 and P-521 (ES256, ES384,
	// ES512), Ed25519 (EdDSA). With it, files are taken that one of them has signed as OPA does, and no others. It is read
	// again with the files. "" takes those that are not signed, and no signed ones.
	KeyFile string
	// Timeout bounds one evaluation; default 100 ms.
	Timeout time.Duration
	// KeepFor is how long an answer is kept; default 5 minutes, less than 0 keeps none.
	KeepFor time.Duration
	// Poll is the pause between two looks at Path; default 2 s. A change is taken once two
	// looks have seen the same files.
	Poll time.Duration
	// OnChange is called after another policy was taken, and after one was refused; it must
	// not block.
	OnChange func(State)
	Clock    func() time.Time // default time.Now
	Log      *slog.Logger     // default discards
}

// Connect gives a Remote or Bundle what it asks with: client makes one for its address alone, credential may be nil,
// and keep is the folder of kept bundles.
func (c *Config) Connect(client func(address string) *http.Client, credential func(context.Context) (string, error), keep string) {
	if r := c.Remote; r != nil {
		r.Client, r.Bearer = client(r.Address()), credential
	}
	if b := c.Bundle; b != nil {
		b.Client, b.Credential, b.Keep = client(b.Address()), credential, keep
		b.Client.CheckRedirect = Redirects
	}
}

func (c *Config) source() string {
	if c.Bundle != nil {
		return c.Bundle.URL
	}
	return c.Path
}

// evaluator answers questions without keeping anything.
type evaluator interface {
	decide(ctx context.Context, q *question) (answer, error)
	visible(ctx context.Context, q *question) (answer, error)
}

// generation is a policy with the answers that were made from it.
type generation struct {
	evaluator
	reads  [2]part
	claims claimSet
	shows  bool // has a rule that hides tools
	// certain is what refuses calls by the caller and the tool alone, nil if nothing does.
	certain *compiled
	digest  string
	kept    answers // about calls
	// shown are the answers of Sees and Refuses: lists of tools ask for so many that they would push out those about calls.
	shown answers
}

// State says which policy decides.
type State struct {
	Source   string    `json:"source"` // a path, or the address of a service
	Digest   string    `json:"digest,omitempty"`
	LoadedAt time.Time `json:"loaded_at"`
	Rules    []string  `json:"rules,omitempty"`
	Files    int       `json:"files,omitempty"`
	Tests    int       `json:"tests"` // that passed
	// Reads says what of the input the policy can read, and Keeps whether its answers are kept.
	Reads []string `json:"reads,omitempty"`
	Keeps bool     `json:"keeps_answers"`
	// Refused says why the newest files were not taken, "" if they were.
	Refused   string    `json:"refused,omitempty"`
	RefusedAt time.Time `json:"refused_at,omitzero"`
}

// Stats counts since the start.
type Stats struct {
	Kept, Evaluated, Denied, Failed, Changes, Refusals int64
}

// Engine decides calls by a policy. It implements access.Policy.
type Engine struct {
	c       Config
	seldom  *slog.Logger // for lines that each list of tools can cause
	current atomic.Pointer[generation]

	kept, evaluated, denied, failed, changes, refusals atomic.Int64

	mu    sync.Mutex
	state State

	refusedFiles string        // digest of those that were refused last; of what follows alone
	wake         chan struct{} // to look at the bundle
	stop         context.CancelFunc
	done         sync.WaitGroup
}

// New returns an Engine with its policy, which for a Bundle comes with Start. E3008 for a policy that cannot be read or compiled, or
// whose tests fail.
func New(ctx context.Context, c Config) (*Engine, error) {
	if c.Timeout <= 0 {
		c.Timeout = 100 * time.Millisecond
	}
	if c.KeepFor == 0 {
		c.KeepFor = 5 * time.Minute
	}
	if c.Poll <= 0 {
		c.Poll = 2 * time.Second
	}
	if c.Clock == nil {
		c.Clock = time.Now
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	e := &Engine{c: c, seldom: toolkeep.Seldom(c.Log, 1, nil), wake: make(chan struct{}, 1)}
	if c.Remote != nil {
		e.current.Store(&generation{evaluator: c.Remote, reads: [2]part{partAll &^ partTime, 0}, claims: claimSet{all: true}})
		e.state = State{Source: c.Remote.Address(), LoadedAt: c.Clock(), Keeps: c.KeepFor > 0}
		return e, nil
	}
	if c.Bundle != nil {
		e.current.Store(&generation{evaluator: absent{}})
		e.state = State{Source: c.source()}
		return e, nil
	}
	files, err := Read(c.Path, c.KeyFile)
	var g *generation
	if err == nil {
		g, e.state, err = e.load(ctx, files)
	}
	if err != nil {
		return nil, e.unusable(err)
	}
	e.current.Store(g)
	return e, nil
}

func (e *Engine) unusable(err error) error {
	return toolkeep.NewError(toolkeep.InvalidManifest, "the policy at %s cannot be used: %s", e.c.source(), err).Because(err)
}

// absent answers before Start has fetched a bundle.
type absent struct{}

var errAbsent = errors.New("the policy's bundle is not fetched yet")

func (absent) decide(context.Context, *question) (answer, error)  { return answer{}, errAbsent }
func (absent) visible(context.Context, *question) (answer, error) { return answer{}, errAbsent }

// Trial returns an Engine that answers by a policy which is tried out: it follows no path, keeps no
// answers, and does not run the policy's own tests. E3008.
func Trial(ctx context.Context, c Config, files Files) (*Engine, error) {
	c.Path, c.Bundle, c.Remote, c.KeepFor, c.Log = "", nil, nil, -1, slog.New(slog.DiscardHandler)
	p, err := files.compile(ctx)
	if err != nil {
		return nil, toolkeep.NewError(toolkeep.InvalidManifest, "the policy cannot be used: %s", err).Because(err)
	}
	e := &Engine{c: c, seldom: c.Log}
	reads := p.reads[0]
	if p.has[ruleVisible] {
		reads |= p.reads[1]
	}
	e.state = State{Digest: files.Digest(), Files: len(files), Reads: reads.names()}
	e.current.Store(p.generation(e.state.Digest))
	return e, nil
}

// Aside returns an Engine that answers by the policy of now. It counts and keeps nothing of that: what it is asked is
// no call.
func (e *Engine) Aside() *Engine {
	aside := &Engine{c: e.c, seldom: e.seldom, state: e.State()}
	aside.c.KeepFor = -1
	aside.current.Store(e.current.Load())
	return aside
}

// load makes a generation of files that compile and whose tests pass.
func (e *Engine) load(ctx context.Context, files Files) (*generation, State, error) {
	p, err := files.compile(ctx)
	if err != nil {
		return nil, State{}, err
	}
	tests, err := files.RunTests(ctx)
	if err != nil {
		return nil, State{}, err
	}
	var failures []error
	for _, t := range tests {
		if !t.Passed && len(failures) < maxFaults {
			failures = append(failures, fmt.Errorf("%s:%d: the test %s failed: %s", t.File, t.Line, t.Name, t.Reason))
		}
	}
	if len(failures) > 0 {
		return nil, State{}, errors.Join(failures...)
	}
	s := State{Source: e.c.source(), Digest: files.Digest(), LoadedAt: e.c.Clock(), Files: len(files), Tests: len(tests),
		Reads: p.reads[0].names(), Keeps: e.c.KeepFor > 0 && p.reads[0]&partTime == 0}
	for i, name := range ruleNames {
		if p.has[i] {
			s.Rules = append(s.Rules, name)
		}
	}
	return p.generation(s.Digest), s, nil
}

func (p *compiled) generation(digest string) *generation {
	return &generation{evaluator: p, reads: p.reads, claims: p.claims, shows: p.has[ruleVisible], certain: p.certain, digest: digest}
}

// State returns which policy decides.
func (e *Engine) State() State {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.state
}

// Stats returns what was counted.
func (e *Engine) Stats() Stats {
	return Stats{Kept: e.kept.Load(), Evaluated: e.evaluated.Load(), Denied: e.denied.Load(), Failed: e.failed.Load(),
		Changes: e.changes.Load(), Refusals: e.refusals.Load()}
}

// Health returns why the newest files were not taken, or why a Remote does not answer; nil if all is well.
func (e *Engine) Health(ctx context.Context) error {
	if e.c.Remote != nil {
		return e.c.Remote.Health(ctx)
	}
	if s := e.State(); s.Refused != "" {
		return errors.New("the policy of " + s.LoadedAt.UTC().Format(time.RFC3339) + " goes on: its newest files cannot be used: " + s.Refused)
	}
	return nil
}

// ReadsArguments reports whether an answer may depend on the call's arguments.
func (e *Engine) ReadsArguments() bool { return e.current.Load().reads[0]&partArguments != 0 }

// Decide answers whether a call may be made.
func (e *Engine) Decide(ctx context.Context, asked *access.Question) (access.Verdict, error) {
	g := e.current.Load()
	q := &question{Question: *asked, action: "invoke", reads: g.claims, now: e.c.Clock()}
	v, err := e.answer(ctx, g, q, g.reads[0], g.decide)
	if err != nil {
		return access.Verdict{}, fmt.Errorf("policy: %w", err)
	}
	if !v.verdict.Allow {
		e.denied.Add(1)
	}
	return v.verdict, nil
}

// Sees reports whether the principal may see the tool.
func (e *Engine) Sees(p *toolkeep.Principal, t *toolkeep.Tool) bool {
	g := e.current.Load()
	if !g.shows {
		return true
	}
	q := &question{Question: access.Question{Principal: p, Tool: t}, action: "see", reads: g.claims, now: e.c.Clock()}
	v, err := e.answer(context.Background(), g, q, g.reads[1], g.visible)
	if err != nil {
		e.seldom.Warn("the policy could not decide whether a tool is visible, so it is hidden", "cause", access.CauseOf(err), "tool_id", t.ID, "error", err)
	}
	return err == nil && v.visible
}

// Refuses reports whether the policy refuses every call of the tool by the principal. It asks those
// rules alone that read neither the call nor the time: what others decide is open until there is a call.
func (e *Engine) Refuses(p *toolkeep.Principal, t *toolkeep.Tool) bool {
	g := e.current.Load()
	if g.certain == nil {
		return false
	}
	q := &question{Question: access.Question{Principal: p, Tool: t}, action: "invoke", reads: g.claims, certain: true, now: e.c.Clock()}
	v, err := e.answer(context.Background(), g, q, g.certain.reads[0], g.certain.decide)
	if err != nil {
		e.seldom.Warn("the policy could not decide whether a caller may call a tool, so the tool is shown; its calls are refused", "cause", access.CauseOf(err), "tool_id", t.ID, "error", err)
	}
	return err == nil && !v.verdict.Allow
}

// Audience names what Sees and Refuses depend on besides the tool: principals of one name are shown
// the same. ok is false if that depends on the time.
func (e *Engine) Audience(p *toolkeep.Principal) (name string, ok bool) {
	g := e.current.Load()
	reads := g.reads[1]
	switch {
	case g.certain != nil:
		reads |= g.certain.reads[0]
	case !g.shows:
		return "", true
	}
	q := &question{Question: access.Question{Principal: p, Tool: &toolkeep.Tool{Digest: g.digest}}, action: "see", reads: g.claims}
	key, ok := keyOf(q, reads)
	return string(key[:]), ok
}

// answer returns a kept answer, or asks and keeps it. Questions about calls are counted. What needs claims or a session that
// are not known is denied and hidden.
func (e *Engine) answer(ctx context.Context, g *generation, q *question, reads part, ask func(context.Context, *question) (answer, error)) (answer, error) {
	if reads&partClaims != 0 && q.claimsUnknown() {
		return answer{verdict: access.Verdict{Reason: noClaims}}, nil
	}
	if reads&partOwnSession != 0 && q.Principal.SessionUnknown {
		return answer{verdict: access.Verdict{Reason: noSession}}, nil
	}
	q.kept = reads
	key, keep := [32]byte{}, false
	of, times := &g.kept, 1
	if q.action == "see" || q.certain {
		of, times = &g.shown, shownTimes
	}
	if e.c.KeepFor > 0 {
		if key, keep = keyOf(q, reads); keep {
			if v, ok := of.get(key, q.now); ok {
				q.count(&e.kept)
				return v, nil
			}
		}
	}
	q.count(&e.evaluated)
	ctx, cancel := context.WithTimeoutCause(ctx, e.c.Timeout, fmt.Errorf("the policy took longer than %s", e.c.Timeout))
	defer cancel()
	v, err := ask(ctx, q)
	if err != nil {
		q.count(&e.failed)
		cause := "evaluation"
		if ctx.Err() != nil {
			cause = "timeout"
		} else if e.c.Remote != nil {
			cause = "service"
		}
		return answer{}, &access.Undecided{Cause: cause, Err: err}
	}
	if life := min(v.life, e.c.KeepFor); keep && life > 0 {
		v.until = q.now.Add(life)
		of.put(key, v, times)
	}
	return v, nil
}

// names lists the parts of the input.
func (p part) names() (all []string) {
	for _, m := range inputMembers {
		var members []member
		switch m.part {
		case partCaller:
			members = callerMembers
		case partCall:
			members = callMembers
		}
		for _, sub := range members {
			if p&sub.part != 0 {
				all = append(all, word(m.name)+"."+word(sub.name))
			}
		}
		if members == nil && p&m.part != 0 {
			all = append(all, word(m.name))
		}
	}
	return all
}

func word(t *ast.Term) string { return string(t.Value.(ast.String)) }
