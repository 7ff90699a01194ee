package main

import (
	"fmt"
	"io"
	"net/http"
	"net/url"
	"time"

	"github.com/spf13/cobra"
)

func (a *app) auditHoldCmd() *cobra.Command {
	c := group(&cobra.Command{
		Use:   "hold add|list|remove",
		Short: "Hold what was recorded, so that retention does not remove it",
		Long: `While a legal hold stands, retention removes nothing that was recorded of your tenant in its time, neither from the
store nor from the archive. Full results in the blob folder are not held. Making and removing one needs the permission audit:hold, and each is recorded.`,
		Example: "  toolkeep audit hold add --from 2026-03-01T00:00:00Z --until 2026-04-01T00:00:00Z --reason 'case 4711'\n  toolkeep audit hold list",
	})
	c.AddCommand(a.holdAddCmd(), a.holdListCmd(), a.holdRemoveCmd())
	return c
}

// holdLine is what is shown of a hold.
type holdLine struct {
	ID     string     `json:"id"`
	From   time.Time  `json:"from"`
	Until  *time.Time `json:"until"`
	Agent  string     `json:"agent_did"`
	Tool   string     `json:"tool_id"`
	Reason string     `json:"reason"`
	By     string     `json:"by"`
	At     time.Time  `json:"at"`
}

func (a *app) holdAddCmd() *cobra.Command {
	var from, until, agent, tool, reason string
	c := &cobra.Command{
		Use:   "add",
		Short: "Make a legal hold",
		Long: `Make a legal hold on what was recorded from --from on, until --until, or on what is still to come too. Retention goes by
tenant and time: --agent and --tool say who and what is meant, and what others recorded in that time is kept too. The
hold is observed within a minute. What retention removed before is gone, and full results in the blob folder go after
store.keep_calls all the same.`,
		Example: "  toolkeep audit hold add --from 720h --reason 'case 4711'\n  toolkeep audit hold add --from 2026-03-01T00:00:00Z --until 2026-04-01T00:00:00Z --agent billing --reason 'case 4711'",
		Args:    noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if from == "" || reason == "" {
				return usagef("--from and --reason are needed")
			}
			body := map[string]any{"reason": reason}
			for flag, value := range map[string]string{"from": from, "until": until} {
				at, err := timeOf("--"+flag, value)
				if err != nil {
					return err
				}
				if at != "" {
					body[flag] = at
				}
			}
			for k, v := range map[string]string{"agent_did": agent, "tool_id": tool} {
				if v != "" {
					body[k] = v
				}
			}
			var made holdLine
			return a.ask(cmd.Context(), http.MethodPost, "/api/v1/audit/holds", body, &made, func(w io.Writer) error {
				_, err := fmt.Fprintf(w, "Hold %s stands. Retention observes it within a minute.\n", made.ID)
				return err
			})
		},
	}
	f := c.Flags()
	f.StringVar(&from, "from", "", "from then on: a time such as 2026-03-01T12:00:00Z, or how long ago, such as 720h")
	f.StringVar(&until, "until", "", "before then, as --from; without it, what is still to come too")
	f.StringVar(&agent, "agent", "", "the agent that is meant")
	f.StringVar(&tool, "tool", "", "the tool that is meant")
	f.StringVar(&reason, "reason", "", "why, such as the number of a case")
	return a.withJSON(c)
}

func (a *app) holdListCmd() *cobra.Command {
	c := &cobra.Command{
		Use:     "list",
		Short:   "List the legal holds of your tenant",
		Example: "  toolkeep audit hold list\n  toolkeep audit hold list --json",
		Args:    noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			var list struct {
				Holds []holdLine `json:"holds"`
			}
			return a.ask(cmd.Context(), http.MethodGet, "/api/v1/audit/holds", nil, &list, func(w io.Writer) error {
				return table(w, "ID|FROM|UNTIL|AGENT|TOOL|BY|MADE|REASON", func(row func(...any)) {
					for _, h := range list.Holds {
						until := ""
						if h.Until != nil {
							until = h.Until.Format(time.RFC3339)
						}
						row(h.ID, h.From.Format(time.RFC3339), until, h.Agent, h.Tool, h.By, h.At.Local().Format(time.DateTime), h.Reason)
					}
				})
			})
		},
	}
	return a.withJSON(c)
}

func (a *app) holdRemoveCmd() *cobra.Command {
	return a.withJSON(&cobra.Command{
		Use:     "remove ID",
		Short:   "Remove a legal hold",
		Long:    "Remove a legal hold. Retention may then remove what is past its time, from its next pass on.",
		Example: "  toolkeep audit hold remove 019ab3c2-5a10-7c7e-9d3a-1f2e3d4c5b6a",
		Args:    arguments(1, 1, "the hold's id, which `toolkeep audit hold list` shows"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.act(cmd.Context(), http.MethodDelete, "/api/v1/audit/holds/"+url.PathEscape(args[0]), nil,
				map[string]any{"id": args[0], "removed": true}, "Hold "+args[0]+" is removed.")
		},
	})
}
