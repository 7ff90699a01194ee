package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/toolkeep/toolkeep"
)

// callStates lists the values of --state.
var callStates = []string{"accepted", "queued", "running", "succeeded", "failed", "refused", "cancelled", "expired", "unknown"}

// callView is what `invocations get` shows of a call.
type callView struct {
	InvocationID    string          `json:"invocation_id"`
	State           string          `json:"state"`
	ToolID          string          `json:"tool_id"`
	ToolVersion     string          `json:"tool_version"`
	AgentID         string          `json:"agent_id"`
	AllowedBy       []string        `json:"allowed_by"`
	SessionID       string          `json:"session_id"`
	CallID          string          `json:"call_id"`
	CreatedAt       time.Time       `json:"created_at"`
	ProgressPercent *int            `json:"progress_percent"`
	CurrentPhase    string          `json:"current_phase"`
	CancelRequested bool            `json:"cancel_requested"`
	Result          json.RawMessage `json:"result"`
	Error           *callError      `json:"error"`
	Metadata        struct {
		callMetadata
		StartedAt   *time.Time `json:"started_at"`
		CompletedAt *time.Time `json:"completed_at"`
		RetryCount  int        `json:"retry_count"`
		CacheHit    bool       `json:"cache_hit"`
		CacheAgeS   float64    `json:"cache_age_s"`
		Replayed    bool       `json:"idempotency_replayed"`
	} `json:"execution_metadata"`
}

func (v *callView) print(w io.Writer) error {
	line := func(name, format string, args ...any) {
		fmt.Fprintf(w, "%-9s %s\n", name, fmt.Sprintf(format, args...))
	}
	line("Call", "%s", v.InvocationID)
	line("Tool", "%s", joinRef(v.ToolID, v.ToolVersion))
	line("Agent", "%s", v.AgentID)
	if v.SessionID != "" {
		line("Session", "%s", v.SessionID)
	}
	line("State", "%s", v.stateLine())
	if v.AllowedBy != nil {
		line("Allowed", "by %s", strings.Join(v.AllowedBy, "; "))
	}
	if !v.CreatedAt.IsZero() {
		line("Asked", "%s", v.CreatedAt.Local().Format(time.DateTime))
	}
	m := &v.Metadata
	if m.StartedAt != nil && m.CompletedAt != nil {
		line("Ended", "%s, %s after it started", m.CompletedAt.Local().Format(time.DateTime), m.CompletedAt.Sub(*m.StartedAt).Round(10*time.Microsecond))
	}
	for _, n := range m.Warnings {
		line("Warning", "%s %s", n.Code, n.Message)
	}
	if v.Error != nil {
		line("Error", "%s %s: %s", v.Error.ErrorCode, v.Error.Name, v.Error.Message)
		if d, err := json.Marshal(v.Error.Details); err == nil && len(v.Error.Details) > 0 {
			line("", "%s", toolkeep.Clip(string(d), 2000))
		}
	}
	for _, at := range m.Attachments {
		line("Whole", "%d bytes; `toolkeep blobs get %s -o FILE` fetches them", at.Bytes, blobID(at.URL))
	}
	if len(v.Result) == 0 {
		return nil
	}
	out, err := indent(v.Result)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(w, "Result\n%s\n", out)
	return err
}

func (v *callView) stateLine() string {
	words := []string{v.State}
	running := v.State == "running"
	if v.ProgressPercent != nil && running {
		words = append(words, fmt.Sprintf("%d %%", *v.ProgressPercent))
	}
	if v.CurrentPhase != "" && running {
		words = append(words, v.CurrentPhase)
	}
	if v.CancelRequested && running {
		words = append(words, "asked to stop")
	}
	if v.Metadata.CacheHit {
		word := "from the cache"
		if age := v.Metadata.CacheAgeS; age > 0 {
			word += fmt.Sprintf(" (%.0f s old)", age)
		}
		words = append(words, word)
	}
	if v.Metadata.Replayed {
		words = append(words, "answered by its idempotency key")
	}
	if n := v.Metadata.RetryCount; n > 0 {
		words = append(words, fmt.Sprintf("after %d retries", n))
	}
	return strings.Join(words, ", ")
}

// more reports on stderr that a list is empty or has further pages.
func (a *app) more(page, size, shown, total int, none string) {
	a.moreOf(page, size, shown, total, false, none)
}

// moreOf is more for a total that may be the least that there are.
func (a *app) moreOf(page, size, shown, total int, least bool, none string) {
	first := (page-1)*size + 1
	all := strconv.Itoa(total)
	if least {
		all += " or more"
	}
	if least && shown == size {
		total = max(total, first+shown) // there may be a next page
	}
	switch {
	case total == 0:
		fmt.Fprintln(a.stderr, "toolkeep:", none)
	case shown == 0:
		fmt.Fprintf(a.stderr, "toolkeep: page %d is past the end of %s\n", page, all)
	case first+shown-1 < total:
		fmt.Fprintf(a.stderr, "toolkeep: %d to %d of %s; --page %d shows the next\n", first, first+shown-1, all, page+1)
	case page > 1:
		fmt.Fprintf(a.stderr, "toolkeep: %d to %d of %s\n", first, first+shown-1, all)
	}
}

type completion func(cmd *cobra.Command, args []string, prefix string) ([]string, cobra.ShellCompDirective)

// completing asks a running server for at most two seconds; without one it offers nothing.
func (a *app) completing(cmd *cobra.Command, ask func(ctx context.Context, cl *client) []string) ([]string, cobra.ShellCompDirective) {
	cl, err := a.connect()
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	ctx, cancel := context.WithTimeout(cmd.Context(), 2*time.Second)
	defer cancel()
	return ask(ctx, cl), cobra.ShellCompDirectiveNoFileComp
}

// completeCalls completes ids of the newest calls in the states; none means any.
func (a *app) completeCalls(states ...string) completion {
	return func(cmd *cobra.Command, args []string, prefix string) ([]string, cobra.ShellCompDirective) {
		if len(args) > 0 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return a.completing(cmd, func(ctx context.Context, cl *client) (ids []string) {
			if len(states) == 0 {
				states = []string{""}
			}
			for _, state := range states {
				var list struct {
					Invocations []invocationLine `json:"invocations"`
				}
				q := url.Values{"page_size": {"50"}}
				if state != "" {
					q.Set("state", state)
				}
				if _, err := cl.get(ctx, "/api/v1/invocations?"+q.Encode(), &list); err != nil {
					return ids
				}
				for _, v := range list.Invocations {
					if strings.HasPrefix(v.InvocationID, prefix) {
						ids = append(ids, v.InvocationID+"\t"+v.ToolID+" "+v.State)
					}
				}
			}
			return ids
		})
	}
}

// completeKeys completes ids of keys that are not revoked.
func (a *app) completeKeys(cmd *cobra.Command, args []string, prefix string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return a.completing(cmd, func(ctx context.Context, cl *client) (ids []string) {
		var list keyList
		if _, err := cl.get(ctx, "/api/v1/keys?page_size=200", &list); err != nil {
			return nil
		}
		for _, k := range list.Keys {
			if k.RevokedAt == nil && strings.HasPrefix(k.ID, prefix) {
				ids = append(ids, k.ID+"\t"+k.Subject)
			}
		}
		return ids
	})
}
