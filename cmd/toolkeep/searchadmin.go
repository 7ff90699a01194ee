package main

import (
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"

	"github.com/spf13/cobra"
)

func (a *app) cacheCmd() *cobra.Command {
	c := group(&cobra.Command{
		Use:     "cache invalidate",
		Short:   "Drop cached results of tools and kept answers of search",
		Example: "  toolkeep cache invalidate bookshop.getBook\n  toolkeep cache invalidate --all",
	})
	c.AddCommand(a.cacheInvalidateCmd())
	return c
}

// searchStrategies lists the strategies of cached search results.
var searchStrategies = []string{"hybrid", "semantic", "keyword", "category", "session"}

func (a *app) cacheInvalidateCmd() *cobra.Command {
	var user, strategy string
	var all bool
	c := &cobra.Command{
		Use:   "invalidate TOOL | --user SUBJECT | --strategy NAME | --all",
		Short: "Drop cached results of a tool, and kept answers of search",
		Long: `Drop the cached results of a tool, of all its versions and callers, and the kept answers of search
in which it is: the next call executes it. With --user or --strategy answers of search alone, with --all
everything. Answers are dropped for your tenant on every node; results on the node that is asked.

Nothing of this is needed after a change: what a changed tool or permission makes wrong is not given again.`,
		Example:           "  toolkeep cache invalidate bookshop.getBook\n  toolkeep cache invalidate --user billing-agent\n  toolkeep cache invalidate --all",
		Args:              arguments(0, 1, "the tool's id, such as bookshop.getBook, or --user, --strategy or --all"),
		ValidArgsFunction: a.completeTools,
		RunE: func(cmd *cobra.Command, args []string) error {
			body, what, err := flushed(args, user, strategy, all)
			if err != nil {
				return err
			}
			var answer struct {
				Invalidated int `json:"invalidated"`
			}
			return a.ask(cmd.Context(), http.MethodDelete, "/api/v1/tools/admin/cache/invalidate", body, &answer, func(w io.Writer) error {
				switch {
				case user != "":
					// Results are cached under hashes, so their owners cannot be counted.
					_, err := fmt.Fprintf(w, "If answers of search were kept %s, they are not given again. Whose they are is not noted, so a subject that nobody has is not noticed.\n", what)
					return err
				case strategy != "":
					_, err := fmt.Fprintf(w, "The kept answers of search %s were dropped.\n", what)
					return err
				}
				_, err := fmt.Fprintf(w, "%d cached results %s were dropped, and the kept answers of search.\n", answer.Invalidated, what)
				return err
			})
		},
	}
	f := c.Flags()
	f.StringVar(&user, "user", "", "drop what this subject was answered")
	f.StringVar(&strategy, "strategy", "", "drop the answers of a strategy: "+strings.Join(searchStrategies, ", "))
	f.BoolVar(&all, "all", false, "drop everything")
	_ = c.RegisterFlagCompletionFunc("strategy", cobra.FixedCompletions(searchStrategies, cobra.ShellCompDirectiveNoFileComp))
	return a.withJSON(c)
}

// flushed returns the flush request and its description.
func flushed(args []string, user, strategy string, all bool) (body map[string]string, what string, err error) {
	n := len(args)
	if n == 1 && args[0] == "" {
		n = 0
	}
	for _, set := range []bool{user != "", strategy != "", all} {
		if set {
			n++
		}
	}
	switch {
	case n != 1:
		return nil, "", usagef("name one thing to drop: a tool, --user, --strategy or --all")
	case user != "":
		return map[string]string{"scope": "user", "userId": user}, "for " + user, nil
	case strategy != "":
		if !slices.Contains(searchStrategies, strategy) {
			return nil, "", usagef("%q is no strategy; the strategies are %s", strategy, strings.Join(searchStrategies, ", "))
		}
		return map[string]string{"scope": "strategy", "strategy": strategy}, "by " + strategy, nil
	case all:
		return map[string]string{"scope": "all"}, "of all tools", nil
	}
	if tool, _, versioned := strings.Cut(args[0], "@"); versioned {
		return nil, "", usagef("results are dropped of all versions: toolkeep cache invalidate %s", tool)
	}
	return map[string]string{"scope": "tool", "toolId": args[0]}, "of " + args[0], nil
}

func (a *app) reindexCmd() *cobra.Command {
	var embeddings bool
	c := &cobra.Command{
		Use:   "reindex [TOOL…]",
		Short: "Have search take tools apart anew, all or some",
		Long: `Have search take tools apart anew, in the background and on every node: all that your tenant can see,
or those that are named. The index follows the catalogue by itself; this is for after a repair. With
--embeddings the vectors of the tools are made anew too, which takes some hundredths of a second for each.`,
		Example:           "  toolkeep reindex\n  toolkeep reindex --embeddings bookshop.getBook bookshop.createOrder",
		Args:              arguments(0, 1000, "ids of tools"),
		ValidArgsFunction: a.completeTools,
		RunE: func(cmd *cobra.Command, args []string) error {
			body := map[string]any{"scope": "all", "forceEmbeddingRegeneration": embeddings}
			if len(args) > 0 {
				body["scope"], body["toolIds"] = "specific", args
			}
			var answer struct{ Queued, Embeddings int }
			return a.ask(cmd.Context(), http.MethodPost, "/api/v1/tools/admin/reindex", body, &answer, func(w io.Writer) error {
				_, err := fmt.Fprintf(w, "%d tools are indexed anew, %d of them with their vectors.\n", answer.Queued, answer.Embeddings)
				return err
			})
		},
	}
	c.Flags().BoolVar(&embeddings, "embeddings", false, "make their vectors anew too")
	return a.withJSON(c)
}
