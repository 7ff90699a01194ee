package inspect

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/itchyny/gojq"
	"github.com/maypok86/otter/v2"

	"github.com/toolkeep/toolkeep"
)

// transformTime bounds one run of a transform.
const transformTime = time.Second

var errManyValues = errors.New("it gave more than one value; wrap it in [ ] to get a list")
var errNoValue = errors.New("it gave no value")

// transform runs the manifest's jq program over the result. The program has no
// environment, no further input and no modules.
func (i *Inspector) transform(r *result, clean toolkeep.Cleaner) error {
	if r.tool.Result == nil || r.tool.Result.Transform == "" {
		return nil
	}
	code, err := i.program(r.tool.Result.Transform)
	if err != nil {
		return transformFailed("the tool's transform cannot be compiled", err, clean)
	}
	// jq quotes parts of values in its errors, and half a secret is not found any more.
	r.redact(clean)
	v, err := run(code, r.value)
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

func (i *Inspector) program(text string) (*gojq.Code, error) {
	if code, ok := i.programs.GetIfPresent(text); ok {
		return code, nil
	}
	return i.programs.Get(context.Background(), text,
		otter.LoaderFunc[string, *gojq.Code](func(context.Context, string) (*gojq.Code, error) {
			q, err := gojq.Parse(text)
			if err != nil {
				return nil, err
			}
			return gojq.Compile(q, gojq.WithEnvironLoader(func() []string { return nil }))
		}))
}

func run(code *gojq.Code, v any) (out any, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), transformTime)
	defer cancel()
	defer func() {
		if p := recover(); p != nil {
			out, err = nil, fmt.Errorf("the program broke off: %v", p)
		}
	}()
	iter := code.RunWithContext(ctx, v)
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
