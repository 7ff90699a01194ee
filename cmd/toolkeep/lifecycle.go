package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"path"

	"github.com/toolkeep/toolkeep"
)

// stateChange is one version whose state a pattern changes, and what became of it.
type stateChange struct {
	ToolID  string `json:"tool_id"`
	Version string `json:"version"`
	Was     string `json:"was"`
	Error   string `json:"error,omitempty"`
	err     error
}

// changeAll changes the state of all versions that a pattern fits; a version narrows it to that one of each tool.
func (a *app) changeAll(ctx context.Context, pattern, version string, body map[string]any, yes bool) error {
	if _, err := path.Match(pattern, ""); err != nil {
		return usagef("%q is not a pattern: write * for any characters, as in 'big.*'", pattern)
	}
	state := body["state"].(string)
	cl, err := a.connect()
	if err != nil {
		return err
	}
	say, done := a.patience("looking for versions")
	list, err := cl.versionsOf(ctx, pattern, version, state, say)
	done()
	if err != nil {
		return err
	}
	if len(list) == 0 {
		return &failure{code: exitRefused, err: fmt.Errorf("the pattern %s fits no version that could become %s; `toolkeep tools --deprecated` lists the tools that it is compared with. A tool that has only sunset, blocked or removed versions is not listed: name it, as in `toolkeep lifecycle demo.tool@1.0.0 %s`", joinRef(pattern, version), state, state)}
	}
	err = table(a.stderr, "TOOL|VERSION|IS|BECOMES", func(row func(...any)) {
		for _, c := range list {
			row(c.ToolID, c.Version, c.Was, state)
		}
	})
	if err == nil {
		err = a.confirm(ctx, yes, "make them "+state)
	}
	if err != nil {
		return err
	}
	changed, failed := []stateChange{}, []stateChange{}
	var down error // what kept the server from answering: the others would only wait for the same
	for _, c := range list {
		if c.err = cmp.Or(ctx.Err(), down); c.err == nil {
			body["expected"] = c.Was // what was shown and agreed to
			_, c.err = cl.do(ctx, http.MethodPost, "/api/v1/tools/"+url.PathEscape(c.ToolID)+"/versions/"+url.PathEscape(c.Version)+"/state", body)
		}
		if c.err == nil {
			changed = append(changed, c)
			continue
		}
		var f *failure
		if errors.As(c.err, &f) && f.code == exitUnavailable {
			down = c.err
		}
		c.Error = c.err.Error()
		failed = append(failed, c)
	}
	raw, err := json.Marshal(map[string]any{"state": state, "changed": changed, "failed": failed})
	if err != nil {
		return err
	}
	for _, c := range failed {
		fmt.Fprintf(a.stderr, "toolkeep: %s@%s stays %s: %s\n", c.ToolID, c.Version, c.Was, c.Error)
	}
	err = a.show(raw, func(w io.Writer) error {
		_, err := fmt.Fprintf(w, "Now %s: %d. Not changed: %d.\n", state, len(changed), len(failed))
		return err
	})
	switch {
	case err != nil || len(failed) == 0:
		return err
	case len(changed) > 0:
		return &failure{code: exitToolFailed, err: fmt.Errorf("%d of %d versions were not changed", len(failed), len(list)), quiet: true}
	}
	code := exitRefused
	var f *failure
	if errors.As(failed[0].err, &f) {
		code = f.code
	}
	return &failure{code: code, err: failed[0].err, quiet: true}
}

// versionsOf lists the versions of visible tools that a pattern fits and that are neither in the state nor removed.
func (c *client) versionsOf(ctx context.Context, pattern, version, state string, say func(string)) (list []stateChange, err error) {
	var ids []string
	err = c.eachToolOf(ctx, url.Values{"include_deprecated": {"true"}}, func(t toolSummary) bool {
		if toolkeep.MatchesAny([]string{pattern}, t.ToolID) {
			ids = append(ids, t.ToolID)
		}
		return true
	})
	for i, id := range ids {
		say(fmt.Sprintf("reading the versions of %d of %d tools", i+1, len(ids)))
		var all versionList
		if err == nil {
			_, err = c.get(ctx, "/api/v1/tools/"+url.PathEscape(id)+"/versions", &all)
		}
		var r *refusedError
		if errors.As(err, &r) && r.Code == string(toolkeep.ToolNotFound) {
			err = nil // it went after the list was read
		}
		for _, v := range all.Versions {
			if was := string(v.Lifecycle.State); (version == "" || v.Version == version) && was != state && was != string(toolkeep.Removed) {
				list = append(list, stateChange{ToolID: id, Version: v.Version, Was: was})
			}
		}
	}
	return list, err
}
