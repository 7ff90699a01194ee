package inspect

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"runtime/metrics"
	"time"

	"github.com/itchyny/gojq"
	"github.com/maypok86/otter/v2"

	"github.com/toolkeep/toolkeep"
)

const (
	transformTime = time.Second // per run of a transform
	// How much the heap may grow during a run: transformMemory, or for large results four times their size, up to
	// the maximum.
	transformMemory    = 64 << 20
	transformMemoryMax = 512 << 20
)

var errMemory = errors.New("it took too much memory")
var errTooMuch = errors.New("its result is too large")
var errManyValues = errors.New("it returned more than one value; wrap it in [ ] to get a list")
var errNoValue = errors.New("it returned no value")

// transform runs the manifest's jq program on the result. The program has no environment, no further input and no
// modules.
func (i *Inspector) transform(r *result, clean toolkeep.Cleaner) error {
	if r.tool.Result == nil || r.tool.Result.Transform == "" {
		return nil
	}
	programs, err := i.program(r.tool.Result.Transform)
	if err != nil {
		return transformFailed("the tool's transform cannot be compiled", err, clean)
	}
	p, err := programs.take()
	if err != nil {
		return transformFailed("the tool's transform cannot be compiled", err, clean)
	}
	defer programs.put(p)
	// jq quotes parts of values in its errors, and half a secret would not be found.
	r.redact(clean)
	v, err := p.run(newGuard(r.value), r.value)
	if err == nil {
		// One value may occur in many places, so little memory can serialise to very long JSON.
		err = weigh(v, &weight{values: maxElements, bytes: i.hard}, maxNesting)
	}
	if err == nil {
		v, err = r.tidy(v, maxDepth)
	}
	if errors.Is(err, context.DeadlineExceeded) {
		return transformFailed(fmt.Sprintf("the tool's transform took longer than %s", transformTime), err, clean)
	}
	if err != nil {
		if r.hides() {
			err = errors.New("details are left out, because they may contain values that the tool hides")
		}
		return transformFailed("the tool's transform failed on this result", err, clean)
	}
	r.value, r.reshaped = v, true
	r.out.ContentType = jsonType
	return nil
}

// program returns the shelf of a text; it compiles the text at least once.
func (i *Inspector) program(text string) (*shelf, error) {
	if s, ok := i.programs.GetIfPresent(text); ok {
		return s, nil
	}
	return i.programs.Get(context.Background(), text,
		otter.LoaderFunc[string, *shelf](func(context.Context, string) (*shelf, error) {
			p, err := compile(text)
			if err != nil {
				return nil, err
			}
			return &shelf{text: text, free: []*program{p}}, nil
		}))
}

// guard stops a program that takes too much time or memory. The interpreter calls Done before each step, all in one
// goroutine, so no timer is needed; built-in functions call admit before they run. The interpreter's own steps
// allocate little, so the heap is checked only now and then.
type guard struct {
	context.Context
	begun, last time.Time
	limit       time.Duration
	steps       int
	most        int64 // bytes the heap may grow; a single call may use half
	made        int64 // approximate bytes that calls made since the last heap check
	heap        int64 // smallest heap seen
	err         error
}

var over = func() chan struct{} { c := make(chan struct{}); close(c); return c }()

// newGuard makes a guard for a program with input v.
func newGuard(v any) *guard {
	now := time.Now()
	g := &guard{Context: context.Background(), begun: now, last: now, limit: transformTime, heap: heapBytes(), most: transformMemoryMax / 4}
	if left := g.most; spell(v, &left, maxNesting) {
		g.most = max(transformMemory, 4*(g.most-left))
	} else {
		g.most = transformMemoryMax
	}
	return g
}

func (g *guard) Err() error { return g.err }

func (g *guard) Done() <-chan struct{} {
	if g.err != nil {
		return over
	}
	now := time.Now()
	// A step that takes part of a millisecond has made something large.
	g.steps++
	slow := now.Sub(g.last) > 300*time.Microsecond || g.steps%4096 == 0
	g.last = now
	switch {
	case now.Sub(g.begun) > g.limit:
		g.err = context.DeadlineExceeded
	case slow && g.large():
		g.err = errMemory
	default:
		return nil
	}
	return over
}

// large reports whether the heap has grown too much. The heap belongs to the whole process, so it collects garbage
// before blaming this program.
func (g *guard) large() bool {
	if g.grown() <= g.most {
		return false
	}
	runtime.GC()
	return g.grown() > g.most
}

func (g *guard) grown() int64 {
	heap := heapBytes()
	g.heap = min(g.heap, heap)
	return heap - g.heap
}

func heapBytes() int64 {
	sample := []metrics.Sample{{Name: "/memory/classes/heap/objects:bytes"}}
	metrics.Read(sample)
	return int64(sample[0].Value.Uint64())
}

// weight is the remaining budget of a value.
type weight struct {
	values int
	bytes  int64
}

// weigh refuses a value that would be too long to write. It stops as soon as that is known.
func weigh(v any, w *weight, depth int) error {
	if depth == 0 {
		return errTooMuch
	}
	w.values--
	switch v := v.(type) {
	case string:
		w.bytes -= int64(len(v))
	case []any:
		for _, el := range v {
			if err := weigh(el, w, depth-1); err != nil {
				return err
			}
		}
	case map[string]any:
		for k, el := range v {
			w.bytes -= int64(len(k))
			if err := weigh(el, w, depth-1); err != nil {
				return err
			}
		}
	}
	if w.values < 0 || w.bytes < 0 {
		return errTooMuch
	}
	return nil
}

// run returns the single output of the program for v.
func (p *program) run(g *guard, v any) (out any, err error) {
	n := 0
	err = p.each(g, v, func(next any) error {
		if n++; n > 1 {
			return errManyValues
		}
		out = next
		return nil
	})
	if err == nil && n == 0 {
		err = errNoValue
	}
	if err != nil {
		return nil, err
	}
	return out, nil
}

// each passes the outputs of the program for v to take, until it returns an error.
func (p *program) each(g *guard, v any, take func(any) error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("the program broke off: %v", p)
		}
	}()
	p.guard = g
	iter := p.code.RunWithContext(g, v)
	for {
		next, ok := iter.Next()
		if !ok {
			return nil
		}
		if err, isErr := next.(error); isErr {
			var halt *gojq.HaltError
			if errors.As(err, &halt) && halt.Value() == nil {
				return nil
			}
			return err
		}
		if err := take(next); err != nil {
			return err
		}
	}
}

// transformFailed puts jq's message, cleaned and cut, into details.
func transformFailed(message string, err error, clean toolkeep.Cleaner) error {
	reason := err.Error()
	if clean != nil {
		reason = clean.Clean(reason)
	}
	reason = cutText(reason, 200)
	return toolkeep.NewError(toolkeep.TransformationFailed, "%s; its publisher must correct it", message).
		With("reason", reason).Because(errors.New(reason))
}
