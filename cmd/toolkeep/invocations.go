package main

import (
	"fmt"
	"io"
	"net/url"
	"strconv"
	"time"

	"github.com/spf13/cobra"
)

func (a *app) invocationsCmd() *cobra.Command {
	var tool, state, agent, session string
	var page, size int
	c := &cobra.Command{
		Use:     "invocations",
		Aliases: []string{"calls"},
		Short:   "Read what happened: the calls that you may see, newest first",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			q := url.Values{"page": {strconv.Itoa(page)}, "page_size": {strconv.Itoa(size)}}
			for k, v := range map[string]string{"tool_id": tool, "state": state, "agent_id": agent, "session_id": session} {
				if v != "" {
					q.Set(k, v)
				}
			}
			cl, err := a.connect()
			if err != nil {
				return err
			}
			var list struct {
				Invocations []invocationLine `json:"invocations"`
				TotalCount  int              `json:"total_count"`
			}
			raw, err := cl.get(cmd.Context(), "/api/v1/invocations?"+q.Encode(), &list)
			if err != nil {
				return err
			}
			return a.show(raw, func(w io.Writer) error {
				return table(w, "ID|WHEN|TOOL|AGENT|STATE|ERROR|MS", func(row func(...any)) {
					for _, v := range list.Invocations {
						row(v.row()...)
					}
				})
			})
		},
	}
	f := c.Flags()
	f.StringVar(&tool, "tool", "", "only calls of this tool")
	f.StringVar(&state, "state", "", "only calls in this state, such as failed")
	f.StringVar(&agent, "agent", "", "only this agent's calls")
	f.StringVar(&session, "session", "", "only of this session")
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

func (v invocationLine) row() []any {
	ref := v.ToolID
	if v.ToolVersion != "" {
		ref += "@" + v.ToolVersion
	}
	return []any{v.InvocationID, v.CreatedAt.Local().Format(time.DateTime), ref, v.AgentID, v.State, v.ErrorCode, fmt.Sprintf("%.1f", v.DurationMS)}
}

func (a *app) invocationGetCmd() *cobra.Command {
	c := &cobra.Command{
		Use:   "get ID",
		Short: "Show one call with its answer",
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			cl, err := a.connect()
			if err != nil {
				return err
			}
			raw, err := cl.get(cmd.Context(), "/api/v1/invocations/"+url.PathEscape(args[0]), nil)
			if err != nil {
				return err
			}
			return a.printJSON(raw)
		},
	}
	return a.withJSON(c)
}

func (a *app) invocationCancelCmd() *cobra.Command {
	var reason string
	c := &cobra.Command{
		Use:   "cancel ID",
		Short: "Stop a call that waits or runs",
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			cl, err := a.connect()
			if err != nil {
				return err
			}
			var answer struct {
				Cancelled bool   `json:"cancelled"`
				Message   string `json:"message"`
			}
			raw, err := cl.post(cmd.Context(), "/api/v1/invocations/"+url.PathEscape(args[0])+"/cancel", map[string]any{"reason": reason}, &answer)
			if err != nil {
				return err
			}
			return a.show(raw, func(w io.Writer) error {
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
		Use:   "watch ID",
		Short: "Follow a call to its end, then print its result",
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			cl, err := a.connect()
			if err != nil {
				return err
			}
			say, done := a.patience("waiting")
			raw, err := cl.follow(cmd.Context(), args[0], say)
			done()
			if err != nil {
				return err
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
