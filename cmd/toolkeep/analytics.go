package main

import (
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
)

func (a *app) analyticsCmd() *cobra.Command {
	var from, to, by string
	var limit int
	groups := []string{"tool", "user", "strategy"}
	c := &cobra.Command{
		Use:   "analytics",
		Short: "Show how tools are found, chosen and called in your tenant",
		Long: `Show how tools are found, chosen and called in your tenant, from one day to another (UTC), by default the last 30
days. FOUND counts the searches that returned the tool, that the user made, or that used the strategy. CHOSEN counts
those that a call of a found tool followed. PLACE is the mean rank of the tool that was called first.`,
		Example: "  toolkeep analytics\n  toolkeep analytics --by strategy --from 2026-11-01 --to 2026-11-07\n  toolkeep analytics forget --user billing-agent",
		Args:    noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := between("--limit", limit, 1, 1000); err != nil {
				return err
			}
			if !slices.Contains(groups, by) {
				return usagef("--by must be tool, user or strategy, not %q", by)
			}
			q := url.Values{"groupBy": {by}, "limit": {strconv.Itoa(limit)}}
			for k, v := range map[string]string{"startDate": from, "endDate": to} {
				if v != "" {
					q.Set(k, v)
				}
			}
			var answer struct {
				Data analyticsReport `json:"data"`
			}
			return a.ask(cmd.Context(), http.MethodGet, "/api/v1/tools/admin/analytics?"+q.Encode(), nil, &answer, func(w io.Writer) error { return answer.Data.print(w, by) })
		},
	}
	f := c.Flags()
	f.StringVar(&from, "from", "", "first day, such as 2026-11-01")
	f.StringVar(&to, "to", "", "last day; default today")
	f.StringVar(&by, "by", "tool", "tool, user or strategy")
	f.IntVar(&limit, "limit", 50, "most lines, at most 1000")
	_ = c.RegisterFlagCompletionFunc("by", cobra.FixedCompletions(groups, cobra.ShellCompDirectiveNoFileComp))
	c.AddCommand(a.analyticsForgetCmd(), a.analyticsLearnCmd(), a.analyticsResetCmd())
	return a.withJSON(c)
}

type analyticsReport struct {
	StartDate string          `json:"startDate"`
	EndDate   string          `json:"endDate"`
	Groups    []analyticsLine `json:"groups"`
	More      int             `json:"more"`
	Total     analyticsLine   `json:"total"`
	Ranking   rankingState    `json:"ranking"`
	Dropped   int64           `json:"droppedEvents"`
}

type analyticsLine struct {
	Key           string  `json:"key"`
	Retrievals    int     `json:"retrievals"`
	Selected      int     `json:"selected"`
	SelectionRate float64 `json:"selectionRate"`
	MeanPosition  float64 `json:"meanPosition"`
	Calls         int     `json:"calls"`
	SuccessRate   float64 `json:"successRate"`
	Mean          float64 `json:"avgExecutionTimeMs"`
	P95           float64 `json:"p95ExecutionTimeMs"`
}

func (l analyticsLine) row(name string) []any {
	share := func(of int, v float64) string {
		if of == 0 {
			return "-"
		}
		return strconv.FormatFloat(100*v, 'f', 0, 64) + " %"
	}
	number := func(of int, v float64) string {
		if of == 0 {
			return "-"
		}
		return strconv.FormatFloat(v, 'f', 1, 64)
	}
	return []any{name, l.Calls, share(l.Calls, l.SuccessRate), number(l.Calls, l.Mean), number(l.Calls, l.P95), l.Retrievals, share(l.Retrievals, l.SelectionRate), number(l.Selected, l.MeanPosition)}
}

func (r *analyticsReport) print(w io.Writer, by string) error {
	if len(r.Groups) == 0 {
		_, err := fmt.Fprintf(w, "No calls or searches are recorded from %s to %s.\n", r.StartDate, r.EndDate)
		return err
	}
	err := table(w, strings.ToUpper(by)+"|CALLS|WORKED|MEAN MS|P95 MS|FOUND|CHOSEN|PLACE", func(row func(...any)) {
		for _, g := range r.Groups {
			row(g.row(g.Key)...)
		}
		row(r.Total.row("all")...)
	})
	if err != nil {
		return err
	}
	if r.More > 0 {
		fmt.Fprintf(w, "%d more are not shown; see --limit.\n", r.More)
	}
	if r.Dropped > 0 {
		fmt.Fprintf(w, "%d searches could not be recorded since the server started.\n", r.Dropped)
	}
	return r.Ranking.print(w)
}

type rankingState struct {
	Mode    string             `json:"mode"`
	At      string             `json:"at"`
	Verdict string             `json:"verdict"`
	Weights map[string]float64 `json:"weights"`
}

func (r *rankingState) print(w io.Writer) error {
	var b strings.Builder
	fmt.Fprintf(&b, "The setting search.learning is %s.", r.Mode)
	if r.Verdict != "" {
		fmt.Fprintf(&b, " Last result: %s.", r.Verdict)
	}
	if len(r.Weights) > 0 {
		b.WriteString(" Learned:")
		for _, name := range slices.Sorted(maps.Keys(r.Weights)) {
			fmt.Fprintf(&b, " %s %g", name, r.Weights[name])
		}
		b.WriteByte('.')
	}
	_, err := fmt.Fprintln(w, b.String())
	return err
}

func (a *app) analyticsForgetCmd() *cobra.Command {
	var user string
	c := &cobra.Command{
		Use:   "forget --user SUBJECT",
		Short: "Delete the usage data of a user of your tenant",
		Long: `Delete a user's conversations, queries, preferences and counts, on every node. What the user's calls added to
the counts of tools stays, because it names no user. The records of calls and searches stay in the store for as
long as store.keep_calls and store.keep_events say.`,
		Example: "  toolkeep analytics forget --user billing-agent",
		Args:    noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if user == "" {
				return usagef("name the user with --user, as the subject of the credentials")
			}
			var answer struct {
				Data struct {
					Known                              bool
					Conversations, Searches, Questions int
				} `json:"data"`
			}
			return a.ask(cmd.Context(), http.MethodDelete, "/api/v1/tools/admin/analytics/users/"+url.PathEscape(user), nil, &answer, func(w io.Writer) error {
				d := answer.Data
				if !d.Known {
					_, err := fmt.Fprintf(w, "There is no usage data of %s. A user is the subject of a credential; `toolkeep analytics --by user` lists the users that have data.\n", user)
					return err
				}
				_, err := fmt.Fprintf(w, "The usage data of %s is deleted: %d conversations, %d searches, %d queries that led to a tool, and counts.\n", user, d.Conversations, d.Searches, d.Questions)
				return err
			})
		},
	}
	c.Flags().StringVar(&user, "user", "", "subject of the user's credentials")
	return a.withJSON(c)
}

func (a *app) analyticsLearnCmd() *cobra.Command {
	c := &cobra.Command{
		Use:     "learn",
		Short:   "Learn the weights of your tenant's search from the chosen tools, and use them if they are better",
		Example: "  toolkeep analytics learn\n  toolkeep analytics learn --json",
		Args:    noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			var answer struct {
				Data rankingState `json:"data"`
			}
			return a.ask(cmd.Context(), http.MethodPost, "/api/v1/tools/admin/weights", nil, &answer, answer.Data.print)
		},
	}
	return a.withJSON(c)
}

func (a *app) analyticsResetCmd() *cobra.Command {
	return a.withJSON(&cobra.Command{
		Use:     "reset",
		Short:   "Drop the learned weights and use those of the configuration",
		Example: "  toolkeep analytics reset",
		Args:    noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.act(cmd.Context(), http.MethodDelete, "/api/v1/tools/admin/weights", nil, map[string]any{"done": true}, "Search uses the weights of the configuration again.")
		},
	})
}
