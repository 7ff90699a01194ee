package main

import (
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/toolkeep/toolkeep/audit/outbox"
	"github.com/toolkeep/toolkeep/control/sinks"
)

func (a *app) outboxCmd() *cobra.Command {
	c := &cobra.Command{
		Use:     "outbox",
		Short:   "See what is delivered to sinks, and send again what they refused",
		Example: "  toolkeep outbox list\n  toolkeep outbox replay siem",
		Args:    noArguments,
		RunE:    func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	c.AddCommand(a.outboxListCmd(), a.outboxReplayCmd())
	return c
}

func (a *app) outboxListCmd() *cobra.Command {
	c := &cobra.Command{
		Use:   "list",
		Short: "List the sinks, and how far each is",
		Long: `List the sinks of outbox.sinks_file: BEHIND is how many entries of the journal a sink has not had, and how old the
oldest of them is. DEAD LETTERS are events that it refused, by the node that has them.`,
		Example: "  toolkeep outbox list\n  toolkeep outbox list --json",
		Args:    noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			var list struct {
				Sinks []sinks.Sink `json:"sinks"`
			}
			return a.ask(cmd.Context(), http.MethodGet, "/api/v1/admin/sinks", nil, &list, func(w io.Writer) error {
				if len(list.Sinks) == 0 {
					_, err := fmt.Fprintln(w, "no sinks: outbox.sinks_file names none")
					return err
				}
				return table(w, "SINK|KIND|TARGET|STATE|BEHIND|DEAD LETTERS|LOST|ERROR", func(row func(...any)) {
					for _, s := range list.Sinks {
						behind := fmt.Sprint(s.Behind)
						if s.Behind > 0 {
							behind += ", " + (time.Duration(s.BehindMS) * time.Millisecond).Round(time.Second).String()
						}
						row(s.Name, s.Kind, s.Target, s.State, behind, deadLetters(s.DeadLetters), s.Lost, s.Error)
					}
				})
			})
		},
	}
	return a.withJSON(c)
}

// deadLetters is how many there are on each node.
func deadLetters(by map[string]int) string {
	var all []string
	for _, node := range slices.Sorted(maps.Keys(by)) {
		all = append(all, fmt.Sprintf("%d on %s", by[node], node))
	}
	return strings.Join(all, ", ")
}

func (a *app) outboxReplayCmd() *cobra.Command {
	c := &cobra.Command{
		Use:   "replay SINK",
		Short: "Send the events again that a sink refused",
		Long: `Send the dead letters of a sink again, the oldest first. They are those in the data directory of the node that
answers; with --url ask the others that have some. Those that the sink refuses again stay.`,
		Example: "  toolkeep outbox replay siem",
		Args:    arguments(1, 1, "the sink's name"),
		RunE: func(cmd *cobra.Command, args []string) error {
			var r outbox.Replayed
			err := a.ask(cmd.Context(), http.MethodPost, "/api/v1/admin/sinks/"+url.PathEscape(args[0])+"/replay", nil, &r, func(w io.Writer) error {
				_, err := fmt.Fprintf(w, "%d sent, %d remain\n", r.Sent, r.Remaining)
				return err
			})
			if err == nil && r.Error != "" {
				return &failure{code: exitRefused, err: fmt.Errorf("the sink does not take all: %s", r.Error)}
			}
			return err
		},
	}
	return a.withJSON(c)
}
