package builtin

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"math/big"
	"strconv"
	"time"

	"github.com/itchyny/gojq"

	"github.com/toolkeep/toolkeep"
)

// A jq program comes from the caller, and gojq bounds neither time nor memory: a short
// program can double a string forty times, or request an array of 500 million elements.
// So a program is rewritten before it is compiled (see restrict): only functions that
// read and reshape are allowed, and every step that can grow a value is followed by a
// size check. Steps are counted, and a deadline stops what is still too slow.
const (
	maxProgram  = 2000       // characters
	maxSteps    = 1_000_000  // of gojq's machine
	maxNodes    = 200_000    // values within one value
	maxText     = 4 << 20    // bytes of text within one value
	runNodes    = 10_000_000 // of all values checked in one run
	runText     = 128 << 20
	maxOutputs  = 10_000
	queryTime   = time.Second
	maxSortText = 1 << 10 // bytes of a sort or group key
)

func jsonQuery(ctx context.Context, x *toolkeep.Execution) (v any, failed *toolkeep.Error) {
	// A caller's program runs in a third-party interpreter: a panic there must fail the
	// call, not the server.
	defer func() {
		if r := recover(); r != nil {
			v, failed = nil, queryFailed("the query cannot be run").Because(fmt.Errorf("gojq panicked: %v", r))
		}
	}()
	program := text(x.Args, "query", "")
	if len(program) > maxProgram {
		return nil, bad("/query", "maxLength", "the query is over 2000 characters")
	}
	query, err := gojq.Parse(program)
	if err != nil {
		return nil, bad("/query", "syntax", "the query is not a jq program: "+err.Error())
	}
	if err := restrict(query); err != nil {
		return nil, bad("/query", "unsupported", err.Error())
	}
	code, err := gojq.Compile(query, queryFunctions()...)
	if err != nil {
		return nil, bad("/query", "syntax", "the query cannot be compiled: "+err.Error())
	}
	limited, cancel := context.WithTimeout(ctx, queryTime)
	defer cancel()
	return runQuery(ctx, &steps{Context: limited, left: maxSteps, out: make(chan struct{})}, code, x.Args["data"])
}

func runQuery(ctx context.Context, s *steps, code *gojq.Code, data any) (any, *toolkeep.Error) {
	results := []any{}
	whole := meter{nodes: maxNodes, text: maxText}
	for it := code.RunWithContext(s, data); ; {
		v, ok := it.Next()
		if !ok {
			return map[string]any{"results": results, "count": number(int64(len(results)))}, nil
		}
		if err, isErr := v.(error); isErr {
			switch {
			case ctx.Err() != nil:
				return nil, ended(ctx)
			case s.Err() != nil:
				return nil, queryFailed("the query takes too many steps; make it simpler or the data smaller")
			}
			return nil, queryFailed("the query failed: " + err.Error())
		}
		if len(results) == maxOutputs || !whole.add(v) {
			return nil, queryFailed("the query returns too many or too large results; ask for less")
		}
		tree, ok := toTree(v)
		if !ok {
			return nil, queryFailed("the query returns a number that JSON cannot hold")
		}
		results = append(results, tree)
	}
}

// queryFailed is the failure of a valid program. It never has an effect.
func queryFailed(message string) *toolkeep.Error {
	if len(message) > 500 {
		message = message[:500] + "…"
	}
	e := toolkeep.NewError(toolkeep.TransformationFailed, "%s", message)
	e.NothingSent = true
	return e
}

// steps is a context that ends after a number of calls of Done: gojq calls Done before
// each step of its machine.
type steps struct {
	context.Context
	left int
	out  chan struct{}
}

var errSteps = errors.New("too many steps")

func (s *steps) Done() <-chan struct{} {
	if s.left > 0 {
		if s.left--; s.left == 0 {
			close(s.out)
		}
	}
	if s.left == 0 {
		return s.out
	}
	return s.Context.Done()
}

func (s *steps) Err() error {
	if s.left == 0 {
		return errSteps
	}
	return s.Context.Err()
}

// meter counts down while it walks a value. Values share parts, so a small program can
// build one whose text is endless.
type meter struct{ nodes, text int }

func (m *meter) add(v any) bool {
	if m.nodes--; m.nodes < 0 || m.text < 0 {
		return false
	}
	switch t := v.(type) {
	case string:
		m.text -= len(t)
	case *big.Int:
		m.text -= t.BitLen() / 3
	case json.Number:
		m.text -= len(t)
	case []any:
		for _, el := range t {
			if !m.add(el) {
				return false
			}
		}
	case map[string]any:
		for k, el := range t {
			m.text -= len(k)
			if !m.add(el) {
				return false
			}
		}
	}
	return m.text >= 0
}

// toTree turns gojq's numbers into JSON numbers. It copies values: gojq's may share
// parts with the arguments.
func toTree(v any) (any, bool) {
	switch t := v.(type) {
	case int:
		return number(int64(t)), true
	case *big.Int:
		return json.Number(t.String()), true
	case float64:
		if math.IsNaN(t) || math.IsInf(t, 0) {
			return nil, false
		}
		if t == math.Trunc(t) && math.Abs(t) < 1e15 {
			return json.Number(strconv.FormatFloat(t, 'f', -1, 64)), true
		}
		return json.Number(strconv.FormatFloat(t, 'g', -1, 64)), true
	case []any:
		out := make([]any, len(t))
		for i, el := range t {
			var ok bool
			if out[i], ok = toTree(el); !ok {
				return nil, false
			}
		}
		return out, true
	case map[string]any:
		out := make(map[string]any, len(t))
		for k, el := range t {
			var ok bool
			if out[k], ok = toTree(el); !ok {
				return nil, false
			}
		}
		return out, true
	}
	return v, true
}
