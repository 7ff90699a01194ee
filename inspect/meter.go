package inspect

import (
	"encoding/json"
	"errors"
	"math"
	"math/big"
	"reflect"
	"regexp"
	"strings"
	"sync"
	"unicode/utf8"
	"unsafe"

	"github.com/itchyny/gojq"
)

// Estimated memory cost of values, in bytes.
const (
	slotBytes  = 16  // per array element
	fieldBytes = 64  // per object member
	matchBytes = 640 // per match, and per group in it
)

const (
	maxWork    = 30_000_000  // comparisons per step, about a second
	maxScanned = 500_000_000 // bytes that one step may read repeatedly
	maxNesting = 10_000      // of a value that a step traverses
	maxNodes   = 4_000_000   // of a value that a step compares
)

var errWork = errors.New("one of its steps would take too long")

// program is a compiled transform whose built-in functions ask a guard before they run. It serves one run at a
// time.
type program struct {
	code  *gojq.Code
	guard *guard
}

// shelf pools the programs of one text.
type shelf struct {
	text string
	mu   sync.Mutex
	free []*program
}

func (s *shelf) take() (*program, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if n := len(s.free); n > 0 {
		p := s.free[n-1]
		s.free = s.free[:n-1]
		return p, nil
	}
	return compile(s.text)
}

func (s *shelf) put(p *program) {
	p.guard = nil
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.free) < 4 {
		s.free = append(s.free, p)
	}
}

func compile(text string) (*program, error) {
	q, err := gojq.Parse(text)
	if err != nil {
		return nil, err
	}
	code, err := gojq.Compile(q, gojq.WithEnvironLoader(func() []string { return nil }))
	if err != nil {
		return nil, err
	}
	p := &program{code: code}
	return p, p.meter()
}

// meter puts the guard before each of the program's built-in functions. One call of a built-in can use gigabytes or
// take hours, and the interpreter offers no limit: it checks its context only between calls, and its built-ins
// cannot be overridden. Therefore meter replaces the compiled calls, an internal of the interpreter; if they are
// not where the version in go.mod has them, no program runs.
func (p *program) meter() error {
	changed := errors.New("the jq interpreter has changed, and its memory cannot be bounded any more")
	codes := reflect.ValueOf(p.code).Elem().FieldByName("codes")
	if codes.Kind() != reflect.Slice {
		return changed
	}
	for i := range codes.Len() {
		el := codes.Index(i)
		if el.Kind() != reflect.Pointer || el.Elem().Kind() != reflect.Struct {
			return changed
		}
		v := el.Elem().FieldByName("v")
		if v.Kind() != reflect.Interface {
			return changed
		}
		slot, ok := reflect.NewAt(v.Type(), unsafe.Pointer(v.UnsafeAddr())).Interface().(*any)
		if !ok {
			return changed
		}
		call, ok := (*slot).([3]any)
		if !ok {
			continue
		}
		native, ok := call[0].(func(any, []any) any)
		name, named := call[2].(string)
		if !ok || !named {
			return changed
		}
		call[0] = func(x any, args []any) any {
			if err := p.guard.admit(name, x, args); err != nil {
				return err
			}
			return native(x, args)
		}
		*slot = call
	}
	return nil
}

// admit lets a built-in function run on these values, or stops the program.
func (g *guard) admit(name string, x any, args []any) error {
	if g.err != nil {
		return g.err
	}
	n, err := g.cost(name, x, args)
	if err == nil && n > g.most/2 {
		err = errMemory
	}
	if g.made += n; err == nil && g.made > g.most/8 {
		g.made = 0
		if g.large() {
			err = errMemory
		}
	}
	g.err = err
	return err
}

// cost returns an upper estimate of the bytes a call makes; errWork if the call would run practically forever.
func (g *guard) cost(name string, x any, args []any) (int64, error) {
	switch name {
	case "_add":
		return flat(args[0]) + flat(args[1]), nil
	case "_subtract":
		return flat(args[0]), work(length(args[0]), length(args[1]))
	case "_multiply":
		return multiplied(args[0], args[1])
	case "_divide":
		return pieces(args[0], args[1]), nil
	case "_equal", "_notequal", "_greater", "_less", "_greatereq", "_lesseq":
		return 0, compared(args[0], args[1])
	case "contains", "inside":
		return 0, work(nodes(x), nodes(args[0]))
	case "indices", "index", "rindex":
		if _, isText := x.(string); isText {
			return 3 * slotBytes * flat(x), nil
		}
		return flat(x), work(length(x), length(args[0]))
	case "add":
		var n int64
		for _, el := range array(x) {
			n += flat(el)
		}
		return n, nil
	case "join":
		n := flat(x)
		for _, el := range array(x) {
			n += flat(el) + flat(args[0])
		}
		return n, nil
	case "split":
		return pieces(x, args[0]), nil
	case "explode":
		return 3 * slotBytes * flat(x), nil
	case "error", "halt_error":
		if len(args) > 0 {
			x = args[0]
		}
		return g.written(x)
	case "tojson", "tostring", "format", "_tohtml", "_touri", "_tosh", "_tocsv", "_totsv", "flatten":
		return g.written(x)
	case "_match":
		return matches(x, args)
	case "fromjson":
		s, _ := x.(string)
		return int64(len(s)) + 5*fieldBytes*int64(strings.Count(s, "{")) + 3*slotBytes*int64(strings.Count(s, "[")+strings.Count(s, ",")), nil
	case "transpose":
		rows, most := array(x), 0
		for _, row := range rows {
			most = max(most, len(array(row)))
		}
		return product(slotBytes*int64(len(rows)), int64(most)), nil
	case "setpath":
		return placed(x, args[0])
	case "delpaths":
		// Each path copies the containers along it once.
		if length(args[0]) > maxWork {
			return 0, errWork
		}
		return g.written(x)
	case "sort", "unique", "min", "max", "_sort_by", "_group_by", "_unique_by", "_min_by", "_max_by":
		by := x
		if len(args) > 0 {
			by = args[0]
		}
		if nodes(by) > maxNodes {
			return 0, errWork
		}
		return 4 * flat(x), nil
	case "strftime", "strflocaltime":
		return 32 * flat(args[0]), nil
	case "getpath":
		return 0, nil
	case "keys":
		return 2 * flat(x), nil
	}
	// All others make at most a copy of their input.
	return flat(x), nil
}

func array(v any) []any { a, _ := v.([]any); return a }

func length(v any) int64 {
	switch v := v.(type) {
	case string:
		return int64(len(v))
	case []any:
		return int64(len(v))
	case map[string]any:
		return int64(len(v))
	}
	return 1
}

// flat returns the cost of a shallow copy.
func flat(v any) int64 {
	switch v := v.(type) {
	case string:
		return int64(len(v))
	case json.Number:
		return int64(len(v))
	case []any:
		return slotBytes * int64(len(v))
	case map[string]any:
		return fieldBytes * int64(len(v))
	case *big.Int:
		return int64(v.BitLen()/8) + slotBytes
	}
	return slotBytes
}

func product(a, b int64) int64 {
	if a > 0 && b > math.MaxInt64/2/a {
		return math.MaxInt64 / 2
	}
	return a * b
}

func work(a, b int64) error {
	if product(a, b) > maxWork {
		return errWork
	}
	return nil
}

func multiplied(l, r any) (int64, error) {
	text, isText := l.(string)
	times := r
	if s, ok := r.(string); ok && !isText {
		text, isText, times = s, true, l
	}
	if isText {
		n, ok := gojq.ToFloat64(times)
		if !ok || n <= 0 {
			return 0, nil
		}
		return product(int64(len(text)), int64(math.Ceil(min(n, math.MaxInt32)))), nil
	}
	if _, ok := l.(map[string]any); ok {
		if nodes(l)+nodes(r) > maxNodes {
			return 0, errWork
		}
		return fieldBytes * (nodes(l) + nodes(r)), nil
	}
	n := flat(l) + flat(r)
	if n > 1<<16 { // of two numbers: a longer one takes seconds to write
		return 0, errWork
	}
	return n, nil
}

// pieces returns the cost of splitting a text at each separator.
func pieces(text, separator any) int64 {
	s, _ := text.(string)
	sep, _ := separator.(string)
	n := utf8.RuneCountInString(s)
	if sep != "" {
		n = strings.Count(s, sep) + 1
	}
	return 3 * slotBytes * int64(n)
}

// compared refuses to compare two values that are both practically endless, as happens if one value occurs in many
// places.
func compared(a, b any) error {
	if isContainer(a) && isContainer(b) && length(a) > 0 && length(b) > 0 && nodes(a) > maxNodes && nodes(b) > maxNodes {
		return errWork
	}
	return nil
}

func isContainer(v any) bool {
	switch v.(type) {
	case []any, map[string]any:
		return true
	}
	return false
}

// nodes counts the values in a value, up to slightly over maxNodes; too deep counts as too many.
func nodes(v any) int64 {
	left := int64(maxNodes)
	if !visit(v, &left, maxNesting) {
		return maxNodes + 1
	}
	return maxNodes - left
}

func visit(v any, left *int64, depth int) bool {
	if *left--; *left < 0 || depth == 0 {
		return false
	}
	switch v := v.(type) {
	case []any:
		for _, el := range v {
			if !visit(el, left, depth-1) {
				return false
			}
		}
	case map[string]any:
		for _, el := range v {
			if !visit(el, left, depth-1) {
				return false
			}
		}
	}
	return true
}

// written returns the size of a value as text. It stops at the limit of a step.
func (g *guard) written(v any) (int64, error) {
	left := g.most
	if !spell(v, &left, maxNesting) {
		return 0, errMemory
	}
	return 2 * (g.most - left), nil
}

func spell(v any, left *int64, depth int) bool {
	if *left -= 2 + flat(v); *left < 0 || depth == 0 {
		return false
	}
	switch v := v.(type) {
	case []any:
		for _, el := range v {
			if !spell(el, left, depth-1) {
				return false
			}
		}
	case map[string]any:
		for k, el := range v {
			if *left -= int64(len(k)); !spell(el, left, depth-1) {
				return false
			}
		}
	}
	return true
}

// matches returns the cost of a regular expression's matches. It counts them only if the possible maximum is too
// high.
func matches(x any, args []any) (int64, error) {
	s, _ := x.(string)
	re, _ := args[0].(string)
	flags, _ := args[1].(string)
	if args[2] == true || !strings.Contains(flags, "g") {
		return matchBytes * int64(1+strings.Count(re, "(")), nil
	}
	groups := int64(1 + strings.Count(re, "("))
	n := int64(len(s)) + 1
	if product(n, n) > maxScanned || product(matchBytes*groups, n) > 1<<24 {
		// Empty matches next to others, which the interpreter adds, at most double it.
		options := ""
		for flag, option := range map[string]string{"i": "(?i)", "m": "(?s)"} {
			if strings.Contains(flags, flag) {
				options += option
			}
		}
		r, err := regexp.Compile(options + re)
		if err != nil {
			return 0, nil // the function itself reports it
		}
		most := min(maxScanned/n+1, 1<<20)
		n = 2 * int64(len(r.FindAllStringIndex(s, int(most))))
		if n >= 2*most {
			return 0, errWork
		}
	}
	return product(matchBytes*groups, n), nil
}

// placed returns the cost of setpath: arrays up to the index, and copies of existing values.
func placed(x, path any) (int64, error) {
	names := array(path)
	if len(names) > maxNesting {
		return 0, errWork
	}
	var n int64
	for _, name := range names {
		n += flat(x) + fieldBytes
		switch name := name.(type) {
		case string:
			m, _ := x.(map[string]any)
			x = m[name]
		default:
			at, ok := gojq.ToFloat64(name)
			if !ok {
				x = nil // a slice, which replaces the existing values
				continue
			}
			if at > 0 {
				n += slotBytes * int64(min(at+1, math.MaxInt32))
			}
			if a := array(x); at >= 0 && at < float64(len(a)) {
				x = a[int(at)]
			} else {
				x = nil
			}
		}
	}
	return n, nil
}
