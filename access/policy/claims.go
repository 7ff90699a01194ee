package policy

import (
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/open-policy-agent/opa/v1/ast"

	"github.com/toolkeep/toolkeep/access"
	"github.com/toolkeep/toolkeep/canon"
)

// claimSet is which claims of a caller's token a policy reads. It is given no others, and no others are part of what
// its answers are kept by.
type claimSet struct {
	all   bool
	names []string // sorted
	// own are the texts that stand in the policy itself: a claim that is the same does not make them personal.
	own map[string]bool
}

// read adds the claims that a reference to the input reads, if it reads any.
func (s *claimSet) read(ref ast.Ref) {
	if readsBy(ref)&partClaims == 0 {
		return
	}
	if len(ref) > 3 { // input.caller.claims.NAME
		_, of := ref[1].Value.(ast.String)
		_, claims := ref[2].Value.(ast.String)
		if name, constant := ref[3].Value.(ast.String); constant && of && claims {
			s.names = append(s.names, string(name))
			return
		}
	}
	s.all = true
}

// claimsOf finds the claims that the rules of a policy can read.
func claimsOf(c *ast.Compiler) claimSet {
	s := claimSet{own: map[string]bool{}}
	input := ast.InputRootDocument.Value
	for _, m := range c.Modules {
		var visit *ast.GenericVisitor
		visit = ast.NewGenericVisitor(func(x any) bool {
			switch x := x.(type) {
			case ast.Ref:
				if head, ok := x[0].Value.(ast.Var); !ok || !head.Equal(input) {
					return false
				}
				s.read(x)
				for _, t := range x[1:] {
					visit.Walk(t)
				}
				return true
			case ast.Var:
				s.all = s.all || x.Equal(input)
			case ast.String:
				s.own[string(x)] = true
			}
			return false
		})
		visit.Walk(m)
	}
	slices.Sort(s.names)
	s.names = slices.Compact(s.names)
	return s
}

// claims returns what the policy reads of the claims of the caller's token.
func (q *question) claims() map[string]any {
	tree := q.Principal.Claims.Tree()
	if q.reads.all || tree == nil {
		return tree
	}
	some := make(map[string]any, len(q.reads.names))
	for _, name := range q.reads.names {
		if v, there := tree[name]; there {
			some[name] = v
		}
	}
	return some
}

func (q *question) claimsTerm() *ast.Term {
	if tree := q.claims(); tree != nil {
		return q.term(tree)
	}
	return ast.ObjectTerm()
}

// appendClaims appends what tells the claims that the policy reads from others.
func (q *question) appendClaims(b []byte) []byte {
	switch {
	case q.claimsUnknown():
		return append(b, 0)
	case q.Principal.Claims == nil:
		return append(b, 1)
	case q.reads.all:
		sum := q.Principal.Claims.Sum()
		return append(append(b, 3), sum[:]...)
	}
	return canon.Append(append(b, 2), q.claims())
}

// claimsUnknown reports whether the caller has a token whose claims are not known; see toolkeep.Principal.
func (q *question) claimsUnknown() bool {
	return q.Principal.Claims == nil && q.Principal.Method == access.MethodOAuth
}

// noClaims answers a question for which the claims would be needed and are not known.
const noClaims = "the policy reads claims of the caller's token, which are not known: the token has more than 64 claims or 8 levels of them, or the call waited and they were not kept"

// noSession answers a question for which the caller's session would be needed and is not known.
const noSession = "the policy reads the session of the caller, which is not known: the call waited and it was not kept"

// quoted is how short a claim is not looked for in what a policy says: such texts stand in any sentence.
const quoted = 4

// hide takes claims that the policy read, and the session of a token, out of what it says: its words are logged and recorded, and claims are not. What
// the answer is kept by and the record has anyway stays, and each whole text that stands in the policy.
func (q *question) hide(v any) any {
	claims, p := q.claims(), q.Principal
	if len(claims) == 0 && p.Session == "" || !q.personal(v) {
		return v
	}
	var known []string
	for _, f := range [...]struct {
		part  part
		texts []string
	}{
		{partSubject, []string{p.Subject}}, {partTenant, []string{p.Tenant}}, {partOnBehalf, []string{p.OnBehalf}},
		{partWorkspace, []string{p.Workspace}}, {partChain, p.Chain}, {partRoles, p.Roles},
	} {
		if (q.kept|partAlways)&f.part != 0 {
			known = append(known, f.texts...)
		}
	}
	forms := map[string]bool{}
	var find func(v any)
	find = func(v any) {
		switch v := v.(type) {
		case string:
			if len(v) < quoted || slices.Contains(known, v) {
				return
			}
			html, _ := json.Marshal(v) // a text has a form
			for _, form := range [...]string{`"` + v + `"`, strconv.Quote(v), string(canon.Append(nil, v)), string(html)} {
				forms[form[1:len(form)-1]] = true
			}
		case json.Number:
			find(string(v))
		case []any:
			for _, e := range v {
				find(e)
			}
		case map[string]any:
			for k, e := range v {
				if !q.reads.own[k] { // a policy that names it makes it no claim
					find(k)
				}
				find(e)
			}
		}
	}
	for _, v := range claims { // their own names are the issuer's, not the caller's
		find(v)
	}
	if p.Method == access.MethodOAuth { // else it is the call's, which is recorded
		find(p.Session)
	}
	if len(forms) == 0 {
		return v
	}
	found := slices.SortedFunc(maps.Keys(forms), func(a, b string) int { return len(b) - len(a) }) // one may be part of another
	var exact, lower []string
	for _, s := range found {
		exact, lower = append(exact, s, "[claim]"), append(lower, strings.ToLower(s), "[claim]")
	}
	return q.replaceTexts(v, strings.NewReplacer(exact...), strings.NewReplacer(lower...))
}

// personal reports whether an answer has a text that does not stand in the policy.
func (q *question) personal(v any) bool {
	switch v := v.(type) {
	case string:
		return !q.own(v)
	case []any:
		return slices.ContainsFunc(v, q.personal)
	case map[string]any:
		for _, e := range v {
			if q.personal(e) {
				return true
			}
		}
	}
	return false
}

func (q *question) own(text string) bool {
	return text == access.ObligeApproval || q.reads.own[text]
}

func (q *question) hideError(err error) error {
	text := err.Error()
	if hidden := q.hide(text); hidden != text {
		return errors.New(hidden.(string))
	}
	return err
}

// replaceTexts replaces texts; one that has a claim in other letters, capital or small, becomes small as a whole.
func (q *question) replaceTexts(v any, exact, lower *strings.Replacer) any {
	switch v := v.(type) {
	case string:
		if q.own(v) {
			return v
		}
		said := exact.Replace(v)
		small := strings.ToLower(said)
		if hidden := lower.Replace(small); hidden != small {
			return hidden
		}
		return said
	case []any:
		for i, e := range v {
			v[i] = q.replaceTexts(e, exact, lower)
		}
	case map[string]any:
		for k, e := range v {
			v[k] = q.replaceTexts(e, exact, lower)
		}
	}
	return v
}
