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
	transformTime = time.Second // of one run of a transform
	// By how much the heap may grow meanwhile: as much, or four times what the result
	// itself takes up to the greatest.
	transformMemory    = 64 << 20
	transformMemoryMax = 512 << 20
)

var errMemory = errors.New("it took too much memory")
var errTooMuch = errors.New("its result is too large")
var errManyValues = errors.New("it gave more than one value; wrap it in [ ] to get a list")
var errNoValue = errors.New("it gave no value")

// transform runs the manifest's jq program over the result. The program has no
// environment, no further input and no modules.
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
	// jq quotes parts of values in its errors, and half a secret is not found any more.
	r.redact(clean)
	v, err := p.run(newGuard(r.value), r.value)
	if err == nil {
		// One value may stand in many places, so that little memory writes very long.
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
			err = errors.New("its words are left out, because they may quote what the tool hides")
		}
		return transformFailed("the tool's transform failed on this result", err, clean)
	}
	r.value, r.reshaped = v, true
	r.out.ContentType = jsonType
	return nil
}

// program returns the programs of a text, which compiled at least once.
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

// guard ends a program that takes too long or too much memory. The interpreter asks
// for Done before each of its steps, all in one goroutine, so that no timer is
// needed, and the built-in functions ask admit before they run. What a step of the
// interpreter itself makes is small beside what there is, so that the heap is looked
// at now and then.
type guard struct {
	context.Context
	begun, last time.Time
	steps       int
	most        int64 // bytes by which the heap may grow; half of it in one call
	made        int64 // bytes that calls made since the heap was looked at, about
	heap        int64 // least size of the heap that was seen
	err         error
}

var over = func() chan struct{} { c := make(chan struct{}); close(c); return c }()

// newGuard watches a program that is given v.
func newGuard(v any) *guard {
	now := time.Now()
	g := &guard{Context: context.Background(), begun: now, last: now, heap: heapBytes(), most: transformMemoryMax / 4}
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
	// A step that takes a part of a millisecond has made something large.
	g.steps++
	slow := now.Sub(g.last) > 300*time.Microsecond || g.steps%4096 == 0
	g.last = now
	switch {
	case now.Sub(g.begun) > transformTime:
		g.err = context.DeadlineExceeded
	case slow && g.large():
		g.err = errMemory
	default:
		return nil
	}
	return over
}

// large reports whether the heap has grown too much. It is the whole process's, so
// that others' garbage is collected before this program is blamed.
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

// weight is how much a value may still hold.
type weight struct {
	values int
	bytes  int64
}

// weigh refuses a value that would be too long to be written. It stops as soon as
// that is known.
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

// run returns the one value that the program makes of v.
func (p *program) run(g *guard, v any) (out any, err error) {
	defer func() {
		if p := recover(); p != nil {
			out, err = nil, fmt.Errorf("the program broke off: %v", p)
		}
	}()
	p.guard = g
	iter := p.code.RunWithContext(g, v)
	for n := 0; ; n++ {
		next, ok := iter.Next()
		switch {
		case !ok && n == 0:
			return nil, errNoValue
		case !ok:
			return out, nil
		}
		if err, isErr := next.(error); isErr {
			var halt *gojq.HaltError
			if errors.As(err, &halt) && halt.Value() == nil && n == 1 {
				return out, nil
			}
			return nil, err
		}
		if n == 1 {
			return nil, errManyValues
		}
		out = next
	}
}

// transformFailed keeps jq's words in details, cleaned and cut.
func transformFailed(message string, err error, clean toolkeep.Cleaner) error {
	reason := err.Error()
	if clean != nil {
		reason = clean.Clean(reason)
	}
	reason = cutText(reason, 200)
	return toolkeep.NewError(toolkeep.TransformationFailed, "%s; its publisher must correct it", message).
		With("reason", reason).Because(errors.New(reason))
}
