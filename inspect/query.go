package inspect

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// Bounds of a run of a Query, beside those of its memory, which are a transform's.
const (
	queryTime   = 10 * time.Second
	queryValues = 10_000_000 // of all outputs
	queryText   = 256 << 20  // bytes of their strings and names
)

// Query is a jq program whose runs end: after 10 s, 10 million values or 256 MiB of text in its outputs, or where the heap
// grows by more than a transform's may (64 MiB, or four times the input, up to 512 MiB), to which outputs that take keeps
// count: that is reached before. It has no environment, no further input and no modules. One goroutine uses
// it at a time.
type Query struct {
	p      *program
	time   time.Duration
	values int
}

// ParseQuery compiles a program. The error says what is wrong with it.
func ParseQuery(text string) (*Query, error) {
	p, err := compile(text)
	if err != nil {
		return nil, err
	}
	return &Query{p, queryTime, queryValues}, nil
}

// Run passes each output for v to take, until it returns an error. Numbers of v and of the outputs may be
// json.Number, which keep their digits where the program only passes them on.
func (q *Query) Run(v any, take func(any) error) error {
	g := newGuard(v)
	g.limit = q.time
	left := &weight{values: q.values, bytes: queryText}
	err := q.p.each(g, v, func(out any) error {
		if err := weigh(out, left, maxNesting); err != nil {
			return err
		}
		return take(out)
	})
	if errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("it took longer than %s", q.time)
	}
	return err
}
