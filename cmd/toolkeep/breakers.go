package main

import (
	"fmt"
	"io"
	"net/http"
	"net/url"
	"time"

	"github.com/spf13/cobra"

	"github.com/toolkeep/toolkeep/control/breakers"
)

func (a *app) breakersCmd() *cobra.Command {
	c := group(&cobra.Command{
		Use:     "breakers list|show|open|close|reset",
		Short:   "See which tools and upstreams are not called because they failed, and force that",
		Example: "  toolkeep breakers list\n  toolkeep breakers open tool:shop.find --reason 'a migration'\n  toolkeep breakers reset tool:shop.find",
	})
	c.AddCommand(a.breakersListCmd(), a.breakersShowCmd(),
		a.breakersDoCmd(breakers.Open, "Refuse all calls of a tool or an upstream, until reset", "its calls are refused (E3903) until it is reset"),
		a.breakersDoCmd(breakers.Close, "Let all calls of a tool or an upstream through, whatever they end with, until reset", "its calls go through until it is reset"),
		a.breakersDoCmd(breakers.Reset, "Close a breaker, and have calls decide again", "it opens when calls fail"))
	return c
}

func (a *app) breakersListCmd() *cobra.Command {
	var page, size int
	c := &cobra.Command{
		Use:   "list",
		Short: "List the breakers that are not closed, and those of tools that were called lately",
		Long: `List the circuit breakers that are not closed, and then those of tools that the node which answers called lately. CALLS,
FAILED and SLOW are that node's, in the window.`,
		Example: "  toolkeep breakers list\n  toolkeep breakers list --json",
		Args:    noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := between("--page-size", size, 1, 200); err != nil {
				return err
			}
			var list struct {
				Breakers   []breakers.Breaker `json:"breakers"`
				TotalCount int                `json:"total_count"`
			}
			return a.ask(cmd.Context(), http.MethodGet, fmt.Sprintf("/api/v1/breakers?page=%d&page_size=%d", page, size), nil, &list, func(w io.Writer) error {
				err := table(w, "BREAKER|STATE|SINCE|REASON|CALLS|FAILED|SLOW|REFUSED", func(row func(...any)) {
					for _, b := range list.Breakers {
						since := ""
						if !b.Since.IsZero() {
							since = b.Since.Local().Format(time.DateTime)
						}
						row(b.ID, b.State, since, b.Reason, b.Window, b.Failing, b.Lagging, b.Refused)
					}
				})
				a.moreOf(page, size, len(list.Breakers), list.TotalCount, false, "no tool was called lately, and no breaker is open")
				return err
			})
		},
	}
	pageFlags(c, &page, &size, "breakers")
	return a.withJSON(c)
}

// breakerPath is the path of a breaker, such as tool:shop.find.
func breakerPath(id string, shared bool) string {
	path := "/api/v1/breakers/" + url.PathEscape(id)
	if shared {
		path += "?shared=true"
	}
	return path
}

func sharedFlag(c *cobra.Command, shared *bool) {
	c.Flags().BoolVar(shared, "shared", false, "the breaker of shared tools, where your own tenant has one of the same name")
}

func (a *app) breakersShowCmd() *cobra.Command {
	var shared bool
	c := &cobra.Command{
		Use:     "show BREAKER",
		Short:   "Show a breaker: its state, why and since when, and what it counts",
		Example: "  toolkeep breakers show tool:shop.find\n  toolkeep breakers show host:shop.example:443 --json",
		Args:    arguments(1, 1, "tool: and a tool's id, host: and a host with its port, or mcp: and a server"),
		RunE: func(cmd *cobra.Command, args []string) error {
			var b breakers.Breaker
			return a.ask(cmd.Context(), http.MethodGet, breakerPath(args[0], shared), nil, &b, func(w io.Writer) error {
				fmt.Fprintf(w, "%s is %s\n", b.ID, b.State)
				if !b.Since.IsZero() {
					fmt.Fprintf(w, "  since %s\n", b.Since.Local().Format(time.DateTime))
				}
				for _, line := range []struct{ name, text string }{{"because", b.Reason}, {"by", b.By}, {"node", b.Node}} {
					if line.text != "" {
						fmt.Fprintf(w, "  %s %s\n", line.name, line.text)
					}
				}
				if b.Of > 0 {
					fmt.Fprintf(w, "  it opened with %d failures and %d slow calls among %d\n", b.Failed, b.Slow, b.Of)
				}
				_, err := fmt.Fprintf(w, "  %d of %d test calls succeeded\n  now %d calls, %d failed, %d slow, the last %d in a row failed; %d refused since the node's start\n",
					b.Passed, b.Needed, b.Window, b.Failing, b.Lagging, b.InARow, b.Refused)
				return err
			})
		},
	}
	sharedFlag(c, &shared)
	return a.withJSON(c)
}

func (a *app) breakersDoCmd(action, short, done string) *cobra.Command {
	var reason string
	var shared bool
	c := &cobra.Command{
		Use:     action + " BREAKER",
		Short:   short,
		Long:    short + ". It holds on all nodes, also after a restart. It needs the permission system:operate, and is recorded.",
		Example: "  toolkeep breakers " + action + " tool:shop.find --reason 'a migration'\n  toolkeep breakers " + action + " host:shop.example:443",
		Args:    arguments(1, 1, "tool: and a tool's id, host: and a host with its port, or mcp: and a server"),
		RunE: func(cmd *cobra.Command, args []string) error {
			body := map[string]any{"action": action}
			if reason != "" {
				body["reason"] = reason
			}
			var b breakers.Breaker
			return a.ask(cmd.Context(), http.MethodPost, breakerPath(args[0], shared), body, &b, func(w io.Writer) error {
				_, err := fmt.Fprintf(w, "%s is %s: %s\n", b.ID, b.State, done)
				return err
			})
		},
	}
	sharedFlag(c, &shared)
	c.Flags().StringVar(&reason, "reason", "", "why, for those who look at it")
	return a.withJSON(c)
}
