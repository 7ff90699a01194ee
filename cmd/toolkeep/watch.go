package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
)

const (
	watchEvery = time.Second
	watchPage  = 100 // calls that are looked at each time
	watchPages = 10  // at most, where more than a page is new
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

// watchCalls prints the latest calls, first at most, and then each that comes or changes its state, until ctx ends.
func (a *app) watchCalls(ctx context.Context, q url.Values, first int) error {
	cl, err := a.connect()
	if err != nil {
		return err
	}
	w := &callWatch{a: a, cl: cl, q: q, known: map[string]string{}}
	tick := time.NewTicker(watchEvery)
	defer tick.Stop()
	for {
		calls, err := w.look(ctx)
		if ctx.Err() != nil {
			return nil
		}
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
		case <-tick.C:
		}
	}
}

type callWatch struct {
	a      *app
	cl     *client
	q      url.Values
	known  map[string]string // state by id, of the newest calls
	begun  bool
	headed bool
}

// look returns the calls that are new or have another state, oldest first.
func (w *callWatch) look(ctx context.Context) (changed []watched, err error) {
	now := map[string]string{}
	w.q.Set("page_size", strconv.Itoa(watchPage))
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
			state, known := w.known[v.InvocationID]
			all = all && !known
			if _, twice := now[v.InvocationID]; twice { // it moved to this page meanwhile
				continue
			}
			if now[v.InvocationID] = v.State; state != v.State {
				changed = append(changed, v)
			}
		}
		if !w.begun || !all || len(list.Invocations) < watchPage {
			break
		}
		if page == watchPages {
			fmt.Fprintf(w.a.stderr, "toolkeep: more than %d calls came within a moment; older ones of them are not printed\n", len(now))
			break
		}
	}
	w.known, w.begun = now, true
	slices.Reverse(changed)
	return changed, nil
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
				return err
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
