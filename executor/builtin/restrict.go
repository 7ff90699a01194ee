package builtin

import (
	"errors"
	"fmt"
	"math"
	"math/big"
	"strings"

	"github.com/itchyny/gojq"
)

// maxParts bounds the parts of a string with \(…), which are all in memory at once.
const maxParts = 16

// allowed are the permitted functions by name and number of arguments. Excluded are
// functions that loop, assign, read from outside, or in one step take far more time or
// memory than their input.
var allowed = map[string]bool{
	"abs/0": true, "add/0": true, "all/0": true, "all/1": true, "any/0": true, "any/1": true,
	"arrays/0": true, "ascii_downcase/0": true, "ascii_upcase/0": true, "booleans/0": true,
	"ceil/0": true, "contains/1": true, "empty/0": true, "endswith/1": true, "first/0": true,
	"first/1": true, "flatten/0": true, "floor/0": true, "from_entries/0": true,
	"group_by/1": true, "has/1": true, "isempty/1": true, "iterables/0": true, "join/1": true,
	"keys/0": true, "keys_unsorted/0": true, "last/0": true, "length/0": true, "limit/2": true,
	"ltrimstr/1": true, "map/1": true, "max/0": true, "max_by/1": true, "min/0": true,
	"min_by/1": true, "not/0": true, "nulls/0": true, "numbers/0": true, "objects/0": true,
	"range/1": true, "range/2": true, "reverse/0": true, "round/0": true, "rtrimstr/1": true,
	"scalars/0": true, "select/1": true, "sort/0": true, "sort_by/1": true, "split/1": true,
	"sqrt/0": true, "startswith/1": true, "strings/0": true, "test/1": true, "to_entries/0": true,
	"tojson/0": true, "tonumber/0": true, "tostring/0": true, "trim/0": true, "type/0": true,
	"unique/0": true, "unique_by/1": true, "values/0": true, "with_entries/1": true,
	"true/0": true, "false/0": true, "null/0": true,
}

// replaced maps functions to bounded replacements.
var replaced = map[string]string{
	"contains": "_contains_plain", "join": "_join_plain", "tonumber": "_number_plain",
}

// byKey sort or group; their keys are compared often and must be small.
var byKey = map[string]bool{"sort_by": true, "group_by": true, "unique_by": true, "min_by": true, "max_by": true}

// restrict rewrites a query in place, or returns what in it is not allowed.
func restrict(q *gojq.Query) error {
	if q == nil {
		return nil
	}
	if q.Meta != nil || len(q.Imports) > 0 || len(q.FuncDefs) > 0 {
		return errors.New("a query cannot define or import anything")
	}
	if q.Term != nil {
		return restrictTerm(q.Term)
	}
	if q.Left == nil || q.Right == nil {
		return errors.New("the query is empty")
	}
	if err := errors.Join(restrict(q.Left), restrict(q.Right)); err != nil {
		return err
	}
	for _, p := range q.Patterns {
		if p.Name == "" {
			return errors.New("as takes one $name here, no pattern")
		}
	}
	switch q.Op {
	case gojq.OpPipe, gojq.OpComma, gojq.OpAlt, gojq.OpAnd, gojq.OpOr,
		gojq.OpEq, gojq.OpNe, gojq.OpGt, gojq.OpLt, gojq.OpGe, gojq.OpLe:
	case gojq.OpDiv, gojq.OpMod, gojq.OpAdd:
		whole := *q
		*q = *checked(&gojq.Term{Type: gojq.TermTypeQuery, Query: &whole})
	case gojq.OpSub:
		*q = *calling("_minus", q.Left, q.Right)
	case gojq.OpMul:
		*q = *calling("_times", q.Left, q.Right)
	default:
		return fmt.Errorf("the operator %s is not allowed: a query reads and does not assign", q.Op)
	}
	return nil
}

// calling returns a query that calls a replacement function.
func calling(name string, args ...*gojq.Query) *gojq.Query {
	return &gojq.Query{Term: &gojq.Term{Type: gojq.TermTypeFunc, Func: &gojq.Func{Name: name, Args: args}}}
}

// checked is t followed by a check of its size.
func checked(t *gojq.Term) *gojq.Query {
	return piped(&gojq.Query{Term: t}, "_bounded")
}

func piped(q *gojq.Query, check string) *gojq.Query {
	return &gojq.Query{Left: q, Op: gojq.OpPipe, Right: calling(check)}
}

func restrictTerm(t *gojq.Term) error {
	grows := false
	var err error
	switch t.Type {
	case gojq.TermTypeIdentity, gojq.TermTypeRecurse, gojq.TermTypeNull, gojq.TermTypeTrue, gojq.TermTypeFalse, gojq.TermTypeNumber:
	case gojq.TermTypeIndex:
		err = restrictIndex(t.Index)
	case gojq.TermTypeFunc:
		grows = true
		err = restrictFunc(t.Func)
	case gojq.TermTypeObject:
		grows = true
		err = restrictObject(t.Object)
	case gojq.TermTypeArray:
		grows = true
		err = restrict(t.Array.Query)
	case gojq.TermTypeUnary:
		err = restrictTerm(t.Unary.Term)
	case gojq.TermTypeFormat:
		grows = true
		err = restrictString(t.Str)
	case gojq.TermTypeString:
		grows = len(t.Str.Queries) > 0
		err = restrictString(t.Str)
	case gojq.TermTypeIf:
		err = restrictIf(t.If)
	case gojq.TermTypeTry:
		err = errors.Join(restrict(t.Try.Body), restrict(t.Try.Catch))
	case gojq.TermTypeQuery:
		err = restrict(t.Query)
	default:
		err = errors.New("reduce, foreach, label and break are not allowed in a query")
	}
	for _, s := range t.SuffixList {
		err = errors.Join(err, restrictIndex(s.Index))
	}
	if err != nil || !grows {
		return err
	}
	inner := *t
	inner.SuffixList = nil
	*t = gojq.Term{Type: gojq.TermTypeQuery, Query: checked(&inner), SuffixList: t.SuffixList}
	return nil
}

// restrictIndex allows plain keys: an array as key searches, which takes the product of
// both sizes.
func restrictIndex(i *gojq.Index) error {
	if i == nil {
		return nil
	}
	if err := errors.Join(restrictString(i.Str), restrict(i.Start), restrict(i.End)); err != nil {
		return err
	}
	if i.Start != nil {
		i.Start = piped(&gojq.Query{Term: &gojq.Term{Type: gojq.TermTypeQuery, Query: i.Start}}, "_plain_key")
	}
	return nil
}

func restrictFunc(f *gojq.Func) error {
	if strings.HasPrefix(f.Name, "$") {
		if len(f.Name) > 1 && f.Name[1] == '_' || f.Name == "$ENV" {
			return fmt.Errorf("%s is not allowed in a query", f.Name)
		}
		return nil
	}
	if !allowed[fmt.Sprintf("%s/%d", f.Name, len(f.Args))] {
		return fmt.Errorf("the function %s with %d arguments is not allowed in a query", f.Name, len(f.Args))
	}
	if f.Name == "test" && !isLiteral(f.Args[0]) {
		return errors.New("test takes its pattern as a text in quotes")
	}
	for i, arg := range f.Args {
		if err := restrict(arg); err != nil {
			return err
		}
		if byKey[f.Name] {
			f.Args[i] = piped(&gojq.Query{Term: &gojq.Term{Type: gojq.TermTypeQuery, Query: arg}}, "_small_key")
		}
	}
	if name, ok := replaced[f.Name]; ok {
		f.Name = name
	}
	return nil
}

func isLiteral(q *gojq.Query) bool {
	return q.Term != nil && q.Term.Type == gojq.TermTypeString && len(q.Term.Str.Queries) == 0 && len(q.Term.SuffixList) == 0
}

func restrictString(s *gojq.String) error {
	if s == nil {
		return nil
	}
	if len(s.Queries) > maxParts {
		return fmt.Errorf("a text has at most %d parts", maxParts)
	}
	for _, q := range s.Queries {
		if err := restrict(q); err != nil {
			return err
		}
	}
	return nil
}

func restrictObject(o *gojq.Object) error {
	for _, kv := range o.KeyVals {
		if strings.HasPrefix(kv.Key, "$_") || kv.Key == "$ENV" {
			return fmt.Errorf("%s is not allowed in a query", kv.Key)
		}
		if err := errors.Join(restrictString(kv.KeyString), restrict(kv.KeyQuery), restrict(kv.Val)); err != nil {
			return err
		}
	}
	return nil
}

func restrictIf(i *gojq.If) error {
	err := errors.Join(restrict(i.Cond), restrict(i.Then), restrict(i.Else))
	for _, e := range i.Elif {
		err = errors.Join(err, restrict(e.Cond), restrict(e.Then))
	}
	return err
}

// queryFunctions are the bounded functions of one run. Values that pass _bounded also
// count against the run's total: an array collects its elements before its own size is
// checked.
func queryFunctions() []gojq.CompilerOption {
	run := meter{nodes: runNodes, text: runText}
	return []gojq.CompilerOption{
		gojq.WithFunction("_bounded", 0, 0, func(v any, _ []any) any {
			m := meter{nodes: maxNodes, text: maxText}
			ok := m.add(v)
			run.nodes -= maxNodes - m.nodes
			run.text -= maxText - m.text
			if !ok || run.nodes < 0 || run.text < 0 {
				return errors.New("the values became too large")
			}
			return v
		}),
		gojq.WithFunction("_small_key", 0, 0, func(v any, _ []any) any {
			if m := (meter{nodes: 64, text: maxSortText}); !m.add(v) {
				return errors.New("a key to sort or group by is too large")
			}
			return v
		}),
		gojq.WithFunction("_plain_key", 0, 0, func(v any, _ []any) any {
			if _, isArray := v.([]any); isArray {
				return errors.New("an array cannot be used as a key")
			}
			return v
		}),
		gojq.WithFunction("_times", 2, 2, func(_ any, args []any) any { return times(args[0], args[1]) }),
		gojq.WithFunction("_minus", 2, 2, func(_ any, args []any) any { return minus(args[0], args[1]) }),
		gojq.WithFunction("_join_plain", 1, 1, func(v any, args []any) any { return joinPlain(v, args[0]) }),
		gojq.WithFunction("_contains_plain", 1, 1, func(v any, args []any) any { return containsPlain(v, args[0]) }),
		gojq.WithFunction("_number_plain", 0, 0, func(v any, _ []any) any {
			if _, isNumber := gojq.ToFloat64(v); isNumber {
				return v
			}
			r, ok := rational(v)
			switch {
			case !ok:
				return errors.New("tonumber takes a number, or a text that is one")
			case r.IsInt() && r.Num().IsInt64() && int64(int(r.Num().Int64())) == r.Num().Int64():
				return int(r.Num().Int64())
			case r.IsInt():
				return r.Num()
			}
			f, _ := r.Float64()
			return f
		}),
	}
}

// times multiplies only numbers, and large ones as floating point: gojq would repeat
// strings and let integers grow without limit.
func times(l, r any) any {
	if a, ok := l.(int); ok {
		if b, ok := r.(int); ok {
			if p := a * b; a == 0 || p/a == b && (a != -1 || b != math.MinInt) {
				return p
			}
		}
	}
	a, ok1 := gojq.ToFloat64(l)
	b, ok2 := gojq.ToFloat64(r)
	if !ok1 || !ok2 {
		return errors.New("only numbers can be multiplied in a query")
	}
	return a * b
}

func minus(l, r any) any {
	if a, ok := whole(l); ok {
		if b, ok := whole(r); ok {
			d := new(big.Int).Sub(a, b)
			if d.IsInt64() && int64(int(d.Int64())) == d.Int64() {
				return int(d.Int64())
			}
			return d
		}
	}
	a, ok1 := gojq.ToFloat64(l)
	b, ok2 := gojq.ToFloat64(r)
	if !ok1 || !ok2 {
		return errors.New("only numbers can be subtracted in a query")
	}
	return a - b
}

func whole(v any) (*big.Int, bool) {
	switch t := v.(type) {
	case int:
		return big.NewInt(int64(t)), true
	case *big.Int:
		return t, true
	}
	r, ok := rational(v)
	if !ok || !r.IsInt() {
		return nil, false
	}
	if _, isText := v.(string); isText {
		return nil, false
	}
	return r.Num(), true
}

func joinPlain(v, separator any) any {
	list, ok1 := v.([]any)
	sep, ok2 := separator.(string)
	if !ok1 || !ok2 {
		return errors.New("join takes an array and a text to put between")
	}
	parts := make([]string, len(list))
	size := len(sep) * len(list)
	for i, el := range list {
		switch t := el.(type) {
		case nil:
		case string:
			parts[i] = t
		case []any, map[string]any:
			return errors.New("join takes plain values")
		default:
			tree, _ := toTree(t) // a number or a boolean
			parts[i] = fmt.Sprint(tree)
		}
		if size += len(parts[i]); size > maxText {
			return errors.New("a value became too large")
		}
	}
	return strings.Join(parts, sep)
}

// containsPlain is contains for a string in a string, and a plain value in an array.
func containsPlain(v, needle any) any {
	if s, ok := v.(string); ok {
		n, ok := needle.(string)
		if !ok {
			return errors.New("a text can only contain a text")
		}
		return strings.Contains(s, n)
	}
	list, ok := v.([]any)
	wanted, isList := needle.([]any)
	if !isList {
		wanted = []any{needle}
	}
	if !ok || len(wanted) > 100 {
		return errors.New("contains takes a text, or an array and at most 100 plain values")
	}
	for _, w := range wanted {
		switch w.(type) {
		case []any, map[string]any:
			return errors.New("contains looks for plain values")
		}
		found := false
		for _, el := range list {
			if el, isText := el.(string); isText {
				if n, isText := w.(string); isText {
					found = found || strings.Contains(el, n)
					continue
				}
			}
			found = found || gojq.Compare(el, w) == 0
		}
		if !found {
			return false
		}
	}
	return true
}
