package policy

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/open-policy-agent/opa/v1/ast"

	"github.com/toolkeep/toolkeep/access"
	"github.com/toolkeep/toolkeep/canon"
)

// part is a set of parts of the input.
type part uint32

const (
	partAction part = 1 << iota
	partSubject
	partTenant
	partRoles
	partOnBehalf
	partChain
	partWorkspace
	partMethod
	partKeyID
	partPermissions
	partAddress
	partOwnSession
	partClaims
	partTool
	partSession
	partPlan
	partTask
	partParent
	partFace
	partAsync
	partPriority
	partToken
	partArguments
	partTime

	partAll    = partTime<<1 - 1
	partCaller = partSubject | partTenant | partRoles | partOnBehalf | partChain | partWorkspace | partMethod | partKeyID | partPermissions | partAddress | partOwnSession | partClaims
	partCall   = partSession | partPlan | partTask | partParent | partFace | partAsync | partPriority | partToken
	// partOpen is what is not known of a tool in a list.
	partOpen = partCall | partArguments | partTime
	// partAlways are in every key, whether the policy reads them or not.
	partAlways = partAction | partTenant | partTool
)

// member is one member of an object of the input.
type member struct {
	name *ast.Term
	part part
	of   func(q *question) *ast.Term
}

// question is an access.Question with what the engine adds.
type question struct {
	access.Question
	action string // invoke or see
	reads  claimSet
	kept   part // what an answer is kept by, besides partAlways
	// certain asks what refuses without the call.
	certain bool
	now     time.Time
	err     error // of arguments that cannot be converted
}

// count counts a question about a call.
func (q *question) count(n *atomic.Int64) {
	if q.Call != nil {
		n.Add(1)
	}
}

var callerMembers = []member{
	{ast.StringTerm("subject"), partSubject, func(q *question) *ast.Term { return ast.StringTerm(q.Principal.Subject) }},
	{ast.StringTerm("tenant"), partTenant, func(q *question) *ast.Term { return ast.StringTerm(q.Principal.Tenant) }},
	{ast.StringTerm("roles"), partRoles, func(q *question) *ast.Term { return texts(q.Principal.Roles) }},
	{ast.StringTerm("on_behalf_of"), partOnBehalf, func(q *question) *ast.Term { return ast.StringTerm(q.Principal.OnBehalf) }},
	{ast.StringTerm("chain"), partChain, func(q *question) *ast.Term {
		if q.Principal.Chain == nil {
			return nil
		}
		return texts(q.Principal.Chain)
	}},
	{ast.StringTerm("workspace"), partWorkspace, func(q *question) *ast.Term { return ast.StringTerm(q.Principal.Workspace) }},
	{ast.StringTerm("method"), partMethod, func(q *question) *ast.Term { return ast.StringTerm(q.Principal.Method) }},
	{ast.StringTerm("key_id"), partKeyID, func(q *question) *ast.Term { return ast.StringTerm(q.Principal.KeyID) }},
	{ast.StringTerm("permissions"), partPermissions, func(q *question) *ast.Term { return texts(q.Principal.Permissions) }},
	{ast.StringTerm("address"), partAddress, func(q *question) *ast.Term { return ast.StringTerm(q.Principal.Addr) }},
	{ast.StringTerm("session"), partOwnSession, func(q *question) *ast.Term { return ast.StringTerm(q.Principal.Session) }},
	{ast.StringTerm("claims"), partClaims, (*question).claimsTerm},
}

var callMembers = []member{
	{ast.StringTerm("session"), partSession, func(q *question) *ast.Term { return ast.StringTerm(q.Call.Session) }},
	{ast.StringTerm("plan"), partPlan, func(q *question) *ast.Term { return ast.StringTerm(q.Call.Plan) }},
	{ast.StringTerm("task"), partTask, func(q *question) *ast.Term { return ast.StringTerm(q.Call.Task) }},
	{ast.StringTerm("parent"), partParent, func(q *question) *ast.Term { return ast.StringTerm(q.Call.Parent) }},
	{ast.StringTerm("face"), partFace, func(q *question) *ast.Term { return ast.StringTerm(q.Call.Face) }},
	{ast.StringTerm("async"), partAsync, func(q *question) *ast.Term { return ast.BooleanTerm(q.Call.Async) }},
	{ast.StringTerm("priority"), partPriority, func(q *question) *ast.Term { return ast.StringTerm(priority(q)) }},
	{ast.StringTerm("token"), partToken, (*question).tokenTerm},
}

// inputMembers are the members of the input.
var inputMembers = []struct {
	name *ast.Term
	part part
	of   func(q *question, reads part) *ast.Term
}{
	{ast.StringTerm("action"), partAction, func(q *question, _ part) *ast.Term { return ast.StringTerm(q.action) }},
	{ast.StringTerm("caller"), partCaller, func(q *question, reads part) *ast.Term { return object(callerMembers, q, reads) }},
	{ast.StringTerm("tool"), partTool, func(q *question, _ part) *ast.Term { return toolTerm(q) }},
	{ast.StringTerm("call"), partCall, func(q *question, reads part) *ast.Term { return object(callMembers, q, reads) }},
	{ast.StringTerm("arguments"), partArguments, func(q *question, _ part) *ast.Term { return q.argumentsTerm() }},
	{ast.StringTerm("time"), partTime, func(q *question, _ part) *ast.Term { return timeTerm(q.now) }},
}

func priority(q *question) string {
	if q.Call.Priority == "" {
		return "normal"
	}
	return string(q.Call.Priority)
}

// input makes the parts of the input that the policy reads. The call of a question about
// visibility has no members.
func input(q *question, reads part) (ast.Value, error) {
	o := ast.NewObjectWithCapacity(len(inputMembers))
	for _, m := range inputMembers {
		if reads&m.part != 0 && (q.Call != nil || m.part&(partCall|partArguments) == 0) {
			o.Insert(m.name, m.of(q, reads))
		}
	}
	return o, q.err
}

func object(members []member, q *question, reads part) *ast.Term {
	o := ast.NewObjectWithCapacity(len(members))
	for _, m := range members {
		if reads&m.part == 0 {
			continue
		}
		if v := m.of(q); v != nil {
			o.Insert(m.name, v)
		}
	}
	return ast.NewTerm(o)
}

func texts(list []string) *ast.Term {
	all := make([]*ast.Term, len(list))
	for i, s := range list {
		all[i] = ast.StringTerm(s)
	}
	return ast.ArrayTerm(all...)
}

// Names of the members of tool and time.
var (
	nameID, nameNamespace, nameVersion        = ast.StringTerm("id"), ast.StringTerm("namespace"), ast.StringTerm("version")
	nameDigest, nameTenant, nameCategory      = ast.StringTerm("digest"), ast.StringTerm("tenant"), ast.StringTerm("category")
	nameTags, nameCapabilities, nameRisk      = ast.StringTerm("tags"), ast.StringTerm("capabilities"), ast.StringTerm("risk")
	nameEffects, nameIdempotent, nameKind     = ast.StringTerm("side_effects"), ast.StringTerm("idempotent"), ast.StringTerm("kind")
	nameApproval, nameRFC3339, nameUnixNS     = ast.StringTerm("requires_approval"), ast.StringTerm("rfc3339"), ast.StringTerm("unix_ns")
	nameHour, nameMinute, nameWeekday, nameOf = ast.StringTerm("hour"), ast.StringTerm("minute"), ast.StringTerm("weekday"), ast.StringTerm("of_day")
)

// toolTerm has the defaults of a manifest as the catalogue reads them: an empty risk is low.
func toolTerm(q *question) *ast.Term {
	t, m := q.Tool, q.Tool.Manifest
	namespace := t.ID
	if i := strings.LastIndexByte(t.ID, '.'); i >= 0 {
		namespace = t.ID[:i]
	}
	risk := m.Risk
	if risk == "" {
		risk = "low"
	}
	return ast.ObjectTerm(
		ast.Item(nameID, ast.StringTerm(t.ID)), ast.Item(nameNamespace, ast.StringTerm(namespace)),
		ast.Item(nameVersion, ast.StringTerm(t.Version)), ast.Item(nameDigest, ast.StringTerm(t.Digest)),
		ast.Item(nameTenant, ast.StringTerm(t.Tenant)), ast.Item(nameCategory, ast.StringTerm(m.Category)),
		ast.Item(nameTags, texts(m.Tags)), ast.Item(nameCapabilities, texts(m.Capabilities)),
		ast.Item(nameRisk, ast.StringTerm(risk)), ast.Item(nameEffects, ast.StringTerm(m.SideEffects)),
		ast.Item(nameIdempotent, ast.BooleanTerm(m.Idempotent)), ast.Item(nameKind, ast.StringTerm(m.Execution.Kind)),
		ast.Item(nameApproval, ast.BooleanTerm(m.RequiresApproval)))
}

// timeTerm is in UTC; of_day is the source document's morning (6 to 12), afternoon (to 18),
// evening (to 22) and night.
func timeTerm(now time.Time) *ast.Term {
	now = now.UTC()
	of := "night"
	switch h := now.Hour(); {
	case h >= 6 && h < 12:
		of = "morning"
	case h >= 12 && h < 18:
		of = "afternoon"
	case h >= 18 && h < 22:
		of = "evening"
	}
	return ast.ObjectTerm(
		ast.Item(nameRFC3339, ast.StringTerm(now.Format(time.RFC3339))), ast.Item(nameUnixNS, ast.NumberTerm(number(now.UnixNano()))),
		ast.Item(nameHour, ast.NumberTerm(number(int64(now.Hour())))), ast.Item(nameMinute, ast.NumberTerm(number(int64(now.Minute())))),
		ast.Item(nameWeekday, ast.StringTerm(now.Weekday().String())), ast.Item(nameOf, ast.StringTerm(of)))
}

func number(n int64) json.Number { return json.Number(strconv.FormatInt(n, 10)) }

// grant returns what the capability token of the call says, without the ids of tokens; nil for none.
func (q *question) grant() map[string]any {
	if q.Call.Grant == nil {
		return nil
	}
	g := *q.Call.Grant
	g.ID, g.Parents = "", nil
	raw, err := json.Marshal(g)
	if err == nil {
		var tree map[string]any
		if tree, err = canon.ParseObject(raw, canon.Limits{}); err == nil {
			delete(tree, "jti")
			return tree
		}
	}
	q.err = fmt.Errorf("the capability token has no form in JSON: %w", err)
	return nil
}

func (q *question) tokenTerm() *ast.Term {
	if g := q.grant(); g != nil {
		return q.term(g)
	}
	return nil
}

func (q *question) argumentsTerm() *ast.Term {
	if q.Arguments == nil {
		return ast.ObjectTerm()
	}
	return q.term(q.Arguments)
}

// term converts a tree of package canon.
func (q *question) term(v any) *ast.Term {
	switch v := v.(type) {
	case nil:
		return ast.NullTerm()
	case bool:
		return ast.BooleanTerm(v)
	case string:
		return ast.StringTerm(v)
	case json.Number:
		return ast.NumberTerm(v)
	case []any:
		all := make([]*ast.Term, len(v))
		for i, e := range v {
			all[i] = q.term(e)
		}
		return ast.ArrayTerm(all...)
	case map[string]any:
		o := ast.NewObjectWithCapacity(len(v))
		for k, e := range v {
			o.Insert(ast.StringTerm(k), q.term(e))
		}
		return ast.NewTerm(o)
	}
	q.err = fmt.Errorf("an argument is a %T, which has no form in JSON", v)
	return ast.NullTerm()
}
