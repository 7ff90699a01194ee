package policy

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/open-policy-agent/opa/v1/ast"
	"github.com/open-policy-agent/opa/v1/rego"
	"github.com/open-policy-agent/opa/v1/storage"
	"github.com/open-policy-agent/opa/v1/storage/inmem"
	"github.com/open-policy-agent/opa/v1/tester"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/access"
)

// packageName is the package whose rules are asked.
const packageName = "toolkeep"

// The rules that are asked, in the order of the query.
const (
	ruleAllow = iota
	ruleDeny
	ruleApproval
	ruleVisible
	ruleCount
)

var ruleNames = [ruleCount]string{"allow", "deny", "require_approval", "visible"}

// Limits of what a policy answers and of its tests.
const (
	maxReasons     = 20
	maxReasonBytes = 500
	maxTestTime    = 2 * time.Second
	maxGateTime    = 20 * time.Second
	maxFaults      = 20
)

// compiled is a policy that can be asked. It is immutable.
type compiled struct {
	calls  rego.PreparedEvalQuery // allow, deny and require_approval
	sees   rego.PreparedEvalQuery // visible
	has    [ruleCount]bool
	reads  [2]part // of calls and of visible
	claims claimSet
	// certain is the part that refuses by caller and tool alone, nil if there is none.
	certain *compiled
}

// Test is the outcome of one test of a policy.
type Test struct {
	Name     string        `json:"name"`
	File     string        `json:"file"`
	Line     int           `json:"line"`
	Passed   bool          `json:"passed"`
	Reason   string        `json:"reason,omitempty"` // why it did not pass
	Duration time.Duration `json:"-"`
}

// isTest reports whether a file has tests, which are no part of the policy itself.
func isTest(name string) bool { return strings.HasSuffix(name, "_test.rego") }

// parse parses the Rego files; all faults together.
func (f Files) parse(tests bool) (map[string]*ast.Module, error) {
	modules := map[string]*ast.Module{}
	var faults []error
	for _, name := range slices.Sorted(maps.Keys(f)) {
		if path.Ext(name) != ".rego" || isTest(name) && !tests {
			continue
		}
		m, err := ast.ParseModuleWithOpts(name, string(f[name]), ast.ParserOptions{RegoVersion: ast.RegoV1})
		switch {
		case err != nil:
			faults = append(faults, err)
		case m == nil:
			faults = append(faults, fmt.Errorf("%s is empty", name))
		default:
			modules[name] = m
			if isTest(name) {
				faults = append(faults, askedIn(m)...)
			}
		}
	}
	if len(faults) > 0 {
		return nil, plain(errors.Join(faults...))
	}
	return modules, nil
}

// askedIn returns a fault for each rule in a file of tests that would be asked elsewhere.
func askedIn(tests *ast.Module) (faults []error) {
	for _, r := range tests.Rules {
		for i, name := range ruleNames {
			if r.Ref().HasPrefix(asked(i)) {
				faults = append(faults, fmt.Errorf("%s:%d: %s.%s is in a file of tests, whose rules are not asked; move it to a file that is not named *_test.rego",
					r.Location.File, r.Location.Row, packageName, name))
			}
		}
	}
	return faults
}

// plain makes OPA's errors one line each, at most maxFaults.
func plain(err error) error {
	var lines []string
	for line := range strings.SplitSeq(err.Error(), "\n") {
		line = strings.TrimSpace(line)
		if line == "" || strings.HasSuffix(line, "occurred:") || strings.HasSuffix(line, "errors occurred") {
			continue
		}
		if name, ok := strings.CutPrefix(line, "undefined function "); ok || strings.Contains(line, "undefined function ") {
			if !ok {
				_, name, _ = strings.Cut(line, "undefined function ")
			}
			line += "; a policy may not use " + name + " here, or it does not exist"
		}
		if lines = append(lines, toolkeep.ClipBytes(line, maxReasonBytes)); len(lines) == maxFaults {
			break
		}
	}
	return errors.New(strings.Join(lines, "\n"))
}

// compile compiles a policy and checks its rules.
func (f Files) compile(ctx context.Context) (*compiled, error) {
	modules, err := f.parse(false)
	if err != nil {
		return nil, err
	}
	data, err := f.data()
	if err != nil {
		return nil, err
	}
	c := ast.NewCompiler().WithCapabilities(capabilities()).WithDefaultRegoVersion(ast.RegoV1)
	if c.Compile(modules); c.Failed() {
		return nil, plain(c.Errors)
	}
	p := &compiled{}
	if err := p.findRules(c); err != nil {
		return nil, err
	}
	p.reads = [2]part{readsOf(c, rulesOf(c, ruleAllow, ruleDeny, ruleApproval)...), readsOf(c, rulesOf(c, ruleVisible)...)}
	p.claims = claimsOf(c)
	store := inmem.NewFromObjectWithOpts(data, inmem.OptReturnASTValuesOnRead(true), inmem.OptRoundTripOnWrite(false))
	if p.calls, err = p.prepare(ctx, c, store, ruleAllow, ruleDeny, ruleApproval); err != nil {
		return nil, plain(err)
	}
	if p.sees, err = p.prepare(ctx, c, store, ruleVisible); err != nil {
		return nil, plain(err)
	}
	if p.certain, err = certainOf(ctx, c, modules, store); err != nil {
		return nil, plain(err)
	}
	return p, nil
}

// certainOf returns the part of a policy that can refuse a call by its caller and its tool alone: those
// rules deny that read nothing else, and the rules allow if all of them read nothing else. nil if
// there is none.
func certainOf(ctx context.Context, c *ast.Compiler, modules map[string]*ast.Module, store storage.Store) (*compiled, error) {
	p := &compiled{}
	open := map[*ast.Location]bool{} // rules deny that are left out
	for _, r := range rulesOf(c, ruleDeny) {
		if reads := readsOf(c, r); reads&partOpen != 0 {
			open[r.Location] = true
		} else {
			p.reads[0] |= reads
			p.has[ruleDeny] = true
		}
	}
	if all := rulesOf(c, ruleAllow); len(all) > 0 {
		if reads := readsOf(c, all...); reads&partOpen == 0 {
			p.reads[0] |= reads
			p.has[ruleAllow] = true
		}
	}
	if !p.has[ruleDeny] && !p.has[ruleAllow] {
		return nil, nil
	}
	if len(open) > 0 { // what depends on a rule that is left out is open itself
		for _, m := range modules {
			m.Rules = slices.DeleteFunc(m.Rules, func(r *ast.Rule) bool { return open[r.Location] })
		}
		c = ast.NewCompiler().WithCapabilities(capabilities()).WithDefaultRegoVersion(ast.RegoV1)
		if c.Compile(modules); c.Failed() {
			return nil, c.Errors
		}
	}
	var err error
	p.calls, err = p.prepare(ctx, c, store, ruleAllow, ruleDeny, ruleApproval)
	return p, err
}

// Check compiles a policy and returns what of the input its rules for calls read.
func (f Files) Check(ctx context.Context) (reads []string, err error) {
	p, err := f.compile(ctx)
	if err != nil {
		return nil, err
	}
	return p.reads[0].names(), nil
}

// asked returns the reference to a rule that is asked.
func asked(rule int) ast.Ref {
	return ast.MustParseRef("data." + packageName + "." + ruleNames[rule])
}

// findRules checks that the rules that are asked have the right form. A rule below such a name,
// as deny.x or in a package toolkeep.deny, would make it an object.
func (p *compiled) findRules(c *ast.Compiler) error {
	for i, name := range ruleNames {
		ref := asked(i)
		set := i == ruleDeny || i == ruleApproval
		for _, r := range c.GetRulesWithPrefix(ref) {
			p.has[i] = true
			what := fmt.Sprintf("%s:%d: %s.%s", r.Location.File, r.Location.Row, packageName, name)
			below := len(r.Ref()) > len(ref)
			if below {
				what = fmt.Sprintf("%s:%d: the rule is below %s.%s, which", r.Location.File, r.Location.Row, packageName, name)
			}
			switch {
			case len(r.Head.Args) > 0 && !below:
				return fmt.Errorf("%s is a function; it must be a rule without arguments", what)
			case set && (below || r.Head.RuleKind() != ast.MultiValue):
				return fmt.Errorf("%s must be a set of reasons, such as: %s contains reason if { … }", what, name)
			case !set && (below || r.Head.RuleKind() != ast.SingleValue):
				return fmt.Errorf("%s must be true or false, such as: %s if { … }", what, name)
			}
		}
	}
	if !p.has[ruleAllow] && !p.has[ruleDeny] && !p.has[ruleApproval] {
		return fmt.Errorf("package %s has none of the rules allow, deny and require_approval, so the policy decides nothing", packageName)
	}
	return nil
}

// prepare prepares the query for the values of rules: for each an array of its value, which is
// empty where the rule is not defined.
func (p *compiled) prepare(ctx context.Context, c *ast.Compiler, store storage.Store, rules ...int) (rego.PreparedEvalQuery, error) {
	var parts []string
	for _, i := range rules {
		if p.has[i] {
			parts = append(parts, fmt.Sprintf("[v | v := data.%s.%s]", packageName, ruleNames[i]))
		} else {
			parts = append(parts, "[]")
		}
	}
	return rego.New(rego.Query("answer := ["+strings.Join(parts, ", ")+"]"), rego.Compiler(c), rego.Store(store),
		rego.StrictBuiltinErrors(true), rego.SetRegoVersion(ast.RegoV1)).PrepareForEval(ctx)
}

// rulesOf are the rules of the names that are asked.
func rulesOf(c *ast.Compiler, names ...int) (all []*ast.Rule) {
	for _, i := range names {
		all = append(all, c.GetRulesExact(asked(i))...)
	}
	return all
}

// readsOf finds the parts of the input that rules can read, with all rules that they depend on.
func readsOf(c *ast.Compiler, rules ...*ast.Rule) (reads part) {
	seen := map[*ast.Rule]bool{}
	var follow func(r *ast.Rule)
	follow = func(r *ast.Rule) {
		if seen[r] {
			return
		}
		seen[r] = true
		reads |= readsOfRule(r)
		for on := range c.Graph.Dependencies(r) {
			if other, ok := on.(*ast.Rule); ok {
				follow(other)
			}
		}
		if r.Else != nil { // the graph has it as a rule of its own
			follow(r.Else)
		}
	}
	for _, r := range rules {
		follow(r)
	}
	return reads
}

// readsOfRule finds the parts of the input that a rule itself can read.
func readsOfRule(r *ast.Rule) (reads part) {
	var visit *ast.GenericVisitor
	visit = ast.NewGenericVisitor(func(x any) bool {
		switch x := x.(type) {
		case ast.Ref:
			if head, ok := x[0].Value.(ast.Var); ok && head.Equal(ast.InputRootDocument.Value) {
				reads |= readsBy(x)
			} else {
				visit.Walk(x[0].Value)
			}
			if x.Equal(ast.NowNanos.Ref()) {
				reads |= partTime
			}
			for _, t := range x[1:] {
				visit.Walk(t)
			}
			return true
		case ast.Var:
			if x.Equal(ast.InputRootDocument.Value) {
				reads |= partAll
			}
		}
		return false
	})
	visit.Walk(r)
	return reads
}

// readsBy returns the parts that one reference to the input can read.
func readsBy(ref ast.Ref) part {
	if len(ref) == 1 {
		return partAll
	}
	name, ok := ref[1].Value.(ast.String)
	if !ok {
		return partAll
	}
	for _, m := range inputMembers {
		if !m.name.Equal(ref[1]) {
			continue
		}
		var members []member
		switch string(name) {
		case "caller":
			members = callerMembers
		case "call":
			members = callMembers
		default:
			return m.part
		}
		if len(ref) == 2 {
			return m.part
		}
		if _, constant := ref[2].Value.(ast.String); !constant {
			return m.part
		}
		for _, sub := range members {
			if sub.name.Equal(ref[2]) {
				return sub.part
			}
		}
	}
	return 0 // there is no such member in any input
}

// RunTests runs the tests of a policy. An error means that they could not be run.
func (f Files) RunTests(ctx context.Context) ([]Test, error) {
	if !slices.ContainsFunc(slices.Collect(maps.Keys(f)), isTest) {
		return nil, nil
	}
	modules, err := f.parse(true)
	if err != nil {
		return nil, err
	}
	data, err := f.data()
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, maxGateTime)
	defer cancel()
	store := inmem.NewFromObjectWithOpts(data, inmem.OptReturnASTValuesOnRead(true), inmem.OptRoundTripOnWrite(false))
	txn, err := store.NewTransaction(ctx)
	if err != nil {
		return nil, err
	}
	defer store.Abort(ctx, txn)
	c := ast.NewCompiler().WithCapabilities(capabilities(testBuiltins...)).WithDefaultRegoVersion(ast.RegoV1)
	results, err := tester.NewRunner().SetCompiler(c).SetStore(store).SetModules(modules).SetTimeout(maxTestTime).
		SetDefaultRegoVersion(ast.RegoV1).SetParallel(1).RaiseBuiltinErrors(true).RunTests(ctx, txn)
	if err != nil {
		return nil, plain(err)
	}
	var all []Test
	for r := range results {
		t := Test{Name: strings.TrimPrefix(r.Package+"."+r.Name, "data."), Passed: r.Pass(), Duration: r.Duration}
		if r.Location != nil {
			t.File, t.Line = r.Location.File, r.Location.Row
		}
		switch {
		case r.Skip:
			continue // named todo_test_
		case r.Error != nil:
			t.Reason = toolkeep.ClipBytes(r.Error.Error(), maxReasonBytes)
		case !t.Passed:
			t.Reason = "it did not become true"
		}
		all = append(all, t)
	}
	if ctx.Err() != nil {
		return nil, fmt.Errorf("the tests of the policy took longer than %s", maxGateTime)
	}
	slices.SortFunc(all, func(a, b Test) int { return strings.Compare(a.Name, b.Name) })
	return all, nil
}

// until is a cancel that follows a context.
type until struct{ ctx context.Context }

func (u until) Cancel()         {}
func (u until) Cancelled() bool { return u.ctx.Err() != nil }

// values evaluates a query; the values of its rules are in order.
func values(ctx context.Context, pq *rego.PreparedEvalQuery, q *question, reads part, rules int) ([]any, error) {
	in, err := input(q, reads)
	if err != nil {
		return nil, err
	}
	rs, err := pq.Eval(ctx, rego.EvalParsedInput(in), rego.EvalTime(q.now), rego.EvalExternalCancel(until{ctx}))
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	if err != nil {
		return nil, q.hideError(err)
	}
	if len(rs) != 1 {
		return nil, errors.New("the policy gave no answer")
	}
	all, ok := rs[0].Bindings["answer"].([]any)
	if !ok || len(all) != rules {
		return nil, errors.New("the policy gave an answer of another form")
	}
	return q.hide(all).([]any), nil
}

// decide asks the policy about a call.
func (p *compiled) decide(ctx context.Context, q *question) (answer, error) {
	all, err := values(ctx, &p.calls, q, p.reads[0], ruleVisible)
	if err != nil {
		return answer{}, err
	}
	v, err := verdictOf(all, p.has[ruleAllow])
	return answer{verdict: v, life: forever}, err
}

const noAllow = "no rule of the policy allows the call"

// verdictOf makes a verdict of the values of allow, deny and require_approval, each an array of
// at most one value. mayAllow says that there is a rule allow, which must be true.
func verdictOf(all []any, mayAllow bool) (v access.Verdict, err error) {
	reasons, err := reasonsOf(all[ruleDeny], ruleNames[ruleDeny])
	if err != nil {
		return v, err
	}
	if len(reasons) > 0 {
		var why, rules []string
		for _, r := range reasons {
			why, rules = append(why, r.Reason), append(rules, r.Rule)
		}
		slices.Sort(rules)
		v.Reason, v.Rule = strings.Join(why, "; "), strings.Join(slices.Compact(rules), ", ")
		return v, nil
	}
	if mayAllow {
		v.Rule = "data." + packageName + "." + ruleNames[ruleAllow]
		allowed, err := boolean(all[ruleAllow], ruleNames[ruleAllow])
		if err != nil {
			return access.Verdict{}, err
		}
		if !allowed {
			v.Reason = noAllow
			return v, nil
		}
	}
	if v.Obligations, err = reasonsOf(all[ruleApproval], ruleNames[ruleApproval]); err != nil {
		return access.Verdict{}, err
	}
	v.Allow = true
	return v, nil
}

// visible asks the policy whether a tool is shown.
func (p *compiled) visible(ctx context.Context, q *question) (answer, error) {
	all, err := values(ctx, &p.sees, q, p.reads[1], 1)
	if err != nil {
		return answer{}, err
	}
	shown, err := boolean(all[0], ruleNames[ruleVisible])
	return answer{visible: shown, life: forever}, err
}

// boolean reads an array of at most one boolean; none is false.
func boolean(v any, rule string) (bool, error) {
	list, _ := v.([]any)
	if len(list) == 0 {
		return false, nil
	}
	b, ok := list[0].(bool)
	if !ok {
		return false, fmt.Errorf("data.%s.%s is %T, and must be true or false", packageName, rule, list[0])
	}
	return b, nil
}

// reasonsOf reads an array of at most one set of reasons.
func reasonsOf(v any, rule string) ([]access.Obligation, error) {
	list, _ := v.([]any)
	if len(list) == 0 {
		return nil, nil
	}
	set, ok := list[0].([]any)
	if !ok {
		return nil, fmt.Errorf("data.%s.%s is %T, and must be a set of reasons", packageName, rule, list[0])
	}
	var all []access.Obligation
	for _, e := range set[:min(len(set), maxReasons)] {
		o := access.Obligation{Kind: rule, Rule: "data." + packageName + "." + rule}
		switch e := e.(type) {
		case string:
			o.Reason = e
		case map[string]any:
			reason, isText := e["reason"].(string)
			if !isText {
				return nil, fmt.Errorf("data.%s.%s has an object without a text as reason", packageName, rule)
			}
			o.Reason = reason
			if name, has := e["rule"]; has {
				if o.Rule, isText = name.(string); !isText {
					return nil, fmt.Errorf("data.%s.%s has an object whose rule is no text", packageName, rule)
				}
			}
		default:
			return nil, fmt.Errorf("data.%s.%s has an element of type %T; a reason is a text, or an object with reason and rule", packageName, rule, e)
		}
		o.Reason, o.Rule = toolkeep.ClipBytes(o.Reason, maxReasonBytes), toolkeep.ClipBytes(o.Rule, maxReasonBytes)
		all = append(all, o)
	}
	return all, nil
}
