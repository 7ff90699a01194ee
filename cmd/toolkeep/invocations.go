package main

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/spf13/cobra"
)

func (a *app) invocationsCmd() *cobra.Command {
	var tool, state, agent, session string
	var page, size int
	var watch bool
	c := &cobra.Command{
		Use:     "invocations",
		Aliases: []string{"calls"},
		Short:   "Read what happened: the calls that you may see, newest first",
		Long: `Read what happened: the calls that you may see, newest first.

--watch prints the latest, oldest first, and then each call as it comes, and again when its state changes; with
-o json a JSON document for each. It asks once a second, which counts against no limit, waits for a server that does
not answer, and ends with Ctrl-C. Of calls that stand behind the newest 100 no change is seen.`,
		Example: "  toolkeep invocations --state failed --page-size 5\n  toolkeep invocations --tool std.hash --json\n  toolkeep invocations --watch --state failed\n  toolkeep invocations get 01a21f9f-3123-7730-a182-cdb1880d30f8",
		Args:    noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := errors.Join(between("--page", page, 1, 1_000_000), between("--page-size", size, 1, 200)); err != nil {
				return err
			}
			q := url.Values{"page": {strconv.Itoa(page)}, "page_size": {strconv.Itoa(size)}}
			for k, v := range map[string]string{"tool_id": tool, "state": state, "agent_id": agent, "session_id": session} {
				if v != "" {
					q.Set(k, v)
				}
			}
			if watch {
				if page != 1 {
					return usagef("--page does not go with --watch; --page-size says how many of the latest are printed first")
				}
				return a.watchCalls(cmd.Context(), q, size)
			}
			var list struct {
				Invocations []invocationLine `json:"invocations"`
				TotalCount  int              `json:"total_count"`
				IsLeast     bool             `json:"total_is_least"`
			}
			return a.ask(cmd.Context(), http.MethodGet, "/api/v1/invocations?"+q.Encode(), nil, &list, func(w io.Writer) error {
				err := table(w, callHeads, func(row func(...any)) {
					for _, v := range list.Invocations {
						row(v.row()...)
					}
				})
				a.moreOf(page, size, len(list.Invocations), list.TotalCount, list.IsLeast, "no call is recorded that fits and that you may see")
				return err
			})
		},
	}
	f := c.Flags()
	f.StringVar(&tool, "tool", "", "only calls of this tool")
	f.StringVar(&state, "state", "", "only calls in this state, such as failed")
	f.StringVar(&agent, "agent", "", "only this agent's calls")
	f.StringVar(&session, "session", "", "only of this session")
	_ = c.RegisterFlagCompletionFunc("state", cobra.FixedCompletions(callStates, cobra.ShellCompDirectiveNoFileComp))
	_ = c.RegisterFlagCompletionFunc("tool", a.completeTools)
	f.BoolVar(&watch, "watch", false, "go on and print each call as it comes")
	f.IntVar(&page, "page", 1, "page, from 1")
	f.IntVar(&size, "page-size", 20, "calls a page, at most 200")
	c.AddCommand(a.invocationGetCmd(), a.invocationCancelCmd(), a.invocationWatchCmd())
	return a.withJSON(c)
}

type invocationLine struct {
	InvocationID string    `json:"invocation_id"`
	State        string    `json:"state"`
	ToolID       string    `json:"tool_id"`
	ToolVersion  string    `json:"tool_version"`
	AgentID      string    `json:"agent_id"`
	ErrorCode    string    `json:"error_code"`
	CreatedAt    time.Time `json:"created_at"`
	DurationMS   float64   `json:"duration_ms"`
}

const callHeads = "ID|WHEN|TOOL|AGENT|STATE|ERROR|MS"

func (v invocationLine) row() []any {
	return []any{v.InvocationID, v.CreatedAt.Local().Format(time.DateTime), joinRef(v.ToolID, v.ToolVersion), v.AgentID, v.State, v.ErrorCode, fmt.Sprintf("%.1f", v.DurationMS)}
}

func (a *app) invocationGetCmd() *cobra.Command {
	c := &cobra.Command{
		Use:   "get ID",
		Short: "Show one call: what was called, when, and how it ended",
		Example: "  toolkeep invocations get 01a21f9f-3123-7730-a182-cdb1880d30f8\n" +
			"  toolkeep invocations get 01a21f9f-3123-7730-a182-cdb1880d30f8 --json",
		Args:              arguments(1, 1, "the call's id"),
		ValidArgsFunction: a.completeCalls(),
		RunE: func(cmd *cobra.Command, args []string) error {
			var v callView
			return a.ask(cmd.Context(), http.MethodGet, "/api/v1/invocations/"+url.PathEscape(args[0]), nil, &v, v.print)
		},
	}
	return a.withJSON(c)
}

func (a *app) invocationCancelCmd() *cobra.Command {
	var reason string
	c := &cobra.Command{
		Use:               "cancel ID",
		Short:             "Stop a call that waits or runs",
		Example:           "  toolkeep invocations cancel 01a21f9f-3123-7730-a182-cdb1880d30f8 --reason 'not needed any more'",
		Args:              arguments(1, 1, "the call's id"),
		ValidArgsFunction: a.completeCalls("running", "queued"),
		RunE: func(cmd *cobra.Command, args []string) error {
			var answer struct {
				Cancelled bool   `json:"cancelled"`
				Message   string `json:"message"`
			}
			return a.ask(cmd.Context(), http.MethodPost, "/api/v1/invocations/"+url.PathEscape(args[0])+"/cancel", map[string]any{"reason": reason}, &answer, func(w io.Writer) error {
				_, err := fmt.Fprintln(w, answer.Message)
				return err
			})
		},
	}
	c.Flags().StringVar(&reason, "reason", "", "kept with the call")
	return a.withJSON(c)
}

func (a *app) invocationWatchCmd() *cobra.Command {
	c := &cobra.Command{
		Use:               "watch ID",
		Short:             "Follow a call to its end, then print its result",
		Example:           "  ID=$(toolkeep call std.wait duration_ms=5000 --async)\n  toolkeep invocations watch $ID",
		Args:              arguments(1, 1, "the call's id"),
		ValidArgsFunction: a.completeCalls("running", "queued"),
		RunE: func(cmd *cobra.Command, args []string) error {
			cl, err := a.connect()
			if err != nil {
				return err
			}
			say, done := a.patience("waiting")
			raw, err := cl.follow(cmd.Context(), args[0], say)
			done()
			if err != nil {
				return notFollowed(err, args[0])
			}
			var answer callAnswer
			if err := decode(raw, &answer); err != nil {
				return err
			}
			return a.showCall(raw, &answer)
		},
	}
	return a.withJSON(c)
}
