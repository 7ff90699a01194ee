package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/toolkeep/toolkeep"
)

const (
	watchEvery = time.Second
	watchRetry = 30 * time.Second // at most, between looks while the server does not answer
	watchPage  = 100              // calls that are looked at each time, at least
	watchPages = 10               // at most, where more than a page is new
	watchKnown = 2000             // calls whose state is remembered, at most
)

// watched is a call in a list, with all that the server says of it.
type watched struct {
	invocationLine
	raw json.RawMessage
}

func (v *watched) UnmarshalJSON(raw []byte) error {
	v.raw = slices.Clone(raw)
	return json.Unmarshal(raw, &v.invocationLine)
}

// watchCalls prints the latest calls, first at most, and then each that comes or changes its state, until ctx ends. Its
// errors are on stderr alone: a document among those of calls would be taken for a call.
func (a *app) watchCalls(ctx context.Context, q url.Values, first int) error {
	cl, err := a.connect()
	if err == nil {
		w := &callWatch{a: a, cl: cl, q: q, size: max(watchPage, first), every: watchEvery, known: map[string]invocationLine{}}
		err = w.run(ctx, first)
	}
	if err != nil {
		a.json, a.out = false, output{}
	}
	return err
}

type callWatch struct {
	a      *app
	cl     *client
	q      url.Values
	size   int           // of a page
	every  time.Duration // between two looks
	wait   time.Duration // until the next look while the server does not answer; 0 while it does
	known  map[string]invocationLine
	floor  invocationLine // calls up to it were never looked at, or are forgotten
	begun  bool
	headed bool
}

func (w *callWatch) run(ctx context.Context, first int) error {
	for {
		calls, err := w.look(ctx)
		if ctx.Err() != nil {
			return nil
		}
		pause, err := w.pause(err)
		if err != nil {
			return err
		}
		if first > 0 && len(calls) > first {
			calls = calls[len(calls)-first:]
		}
		first = 0
		if err := w.print(calls); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(pause):
		}
	}
}

// pause is the time until the next look. After the first, a server that does not answer, or cannot now, is waited for.
func (w *callWatch) pause(err error) (time.Duration, error) {
	var f *failure
	var refused *refusedError
	switch {
	case err == nil:
		if w.wait > 0 {
			fmt.Fprintln(w.a.errText(), "toolkeep: the server answers again")
		}
		w.wait = 0
		return w.every, nil
	case !w.begun || !errors.As(err, &f):
		return 0, err
	case f.code != exitUnavailable && (!errors.As(err, &refused) || !toolkeep.Code(refused.Code).Info().Retryable):
		return 0, err
	}
	if w.wait == 0 {
		fmt.Fprintf(w.a.errText(), "toolkeep: %v; the watch goes on when it answers\n", err)
		w.wait = w.every
	}
	w.wait = min(2*w.wait, watchRetry)
	return w.wait, nil
}

// after reports whether v stands before other in the list, which has the newest call first.
func (v *invocationLine) after(other *invocationLine) bool {
	return cmp.Or(v.CreatedAt.Compare(other.CreatedAt), cmp.Compare(v.InvocationID, other.InvocationID)) > 0
}

// look returns the calls that are new or have another state, oldest first. A call up to the floor is not new: it came
// onto the page because others left the state that is asked for.
func (w *callWatch) look(ctx context.Context) (changed []watched, err error) {
	now := map[string]invocationLine{}
	var last *invocationLine // the oldest that was looked at; nil if there is none before it
	w.q.Set("page_size", strconv.Itoa(w.size))
	for page := 1; ; page++ {
		w.q.Set("page", strconv.Itoa(page))
		var list struct {
			Invocations []watched `json:"invocations"`
		}
		if _, err := w.cl.get(ctx, "/api/v1/invocations?"+w.q.Encode(), &list); err != nil {
			return nil, err
		}
		all := true // of the page are new
		for _, v := range list.Invocations {
			was, known := w.known[v.InvocationID]
			fresh := !known && (!w.begun || v.after(&w.floor))
			all = all && fresh
			if _, twice := now[v.InvocationID]; twice { // it moved to this page meanwhile
				continue
			}
			if now[v.InvocationID] = v.invocationLine; fresh || known && was.State != v.State {
				changed = append(changed, v)
			}
		}
		if last = nil; len(list.Invocations) >= w.size {
			last = &list.Invocations[len(list.Invocations)-1].invocationLine
		}
		if !w.begun || !all || last == nil {
			break
		}
		if page == watchPages {
			fmt.Fprintf(w.a.errText(), "toolkeep: more than %d calls came within a moment; older ones of them are not printed\n", len(now))
			w.floor = *last
			break
		}
	}
	if !w.begun && last != nil {
		w.floor = *last
	}
	w.remember(now, last)
	w.begun = true
	slices.Reverse(changed)
	return changed, nil
}

// remember keeps what was looked at now, and of what was before only what stands behind it: the rest left the state that
// is asked for. Beyond watchKnown, the oldest half is forgotten.
func (w *callWatch) remember(now map[string]invocationLine, last *invocationLine) {
	for id, v := range w.known {
		if _, there := now[id]; !there && last != nil && last.after(&v) {
			now[id] = v
		}
	}
	if len(now) > watchKnown {
		byAge := slices.SortedFunc(maps.Values(now), func(x, y invocationLine) int {
			if x.after(&y) {
				return 1
			}
			return -1
		})
		for _, v := range byAge[:len(now)/2] {
			delete(now, v.InvocationID)
			if v.after(&w.floor) {
				w.floor = v
			}
		}
	}
	w.known = now
}

// watchWidths are the columns of callHeads; a longer value moves the rest of its line.
var watchWidths = []int{36, 19, 28, 16, 9, 5, 0}

// print writes a line for each call, or a document.
func (w *callWatch) print(calls []watched) error {
	var b strings.Builder
	to := screenOf(w.a.stdout)
	heads := strings.Split(callHeads, "|")
	line := func(at int, cells []string) {
		for i, cell := range cells {
			b.WriteString(to.tint(heads, at, i, cell) + strings.Repeat(" ", max(0, watchWidths[i]-wide(cell))))
			b.WriteString([]string{"  ", "\n"}[min(1, (i+1)/len(cells))])
		}
	}
	if !w.a.json && !w.headed {
		w.headed = true
		line(0, heads)
	}
	for _, v := range calls {
		switch {
		case w.a.json && (w.a.out.reshaped() || w.a.out.form == "yaml"):
			text, err := w.a.out.render(v.raw)
			if err != nil {
				return errors.Join(err, w.a.write(b.String()))
			}
			if w.a.out.form == "yaml" {
				text = "---\n" + text
			}
			b.WriteString(to.clean(text))
		case w.a.json:
			b.WriteString(to.clean(string(v.raw)) + "\n")
		default:
			var cells []string
			for _, cell := range v.row() {
				cells = append(cells, printable(fmt.Sprint(cell), ""))
			}
			line(1, cells)
		}
	}
	return w.a.write(b.String())
}
