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
		Short:   "Drop cached results of tools and of searches",
		Example: "  toolkeep cache invalidate bookshop.getBook\n  toolkeep cache invalidate --all",
	})
	c.AddCommand(a.cacheInvalidateCmd())
	return c
}

// searchStrategies lists the strategies of cached search results.
var searchStrategies = []string{"hybrid", "semantic", "keyword", "category", "session"}

func (a *app) cacheInvalidateCmd() *cobra.Command {
	var user, strategy string
	var all, tenants bool
	c := &cobra.Command{
		Use:   "invalidate TOOL | --user SUBJECT | --strategy NAME | --all | --all-tenants",
		Short: "Drop cached results of a tool and of searches",
		Long: `Drop the cached results of a tool, for all its versions and callers, and the cached search results that contain
it; the next call executes the tool. --user and --strategy drop only search results, --all drops everything.
All of that is your tenant's, on every node. --all-tenants, for operators of the tenant default, drops everything of
every tenant.

After a change of a tool or a permission this is not needed: outdated entries are not used.`,
		Example:           "  toolkeep cache invalidate bookshop.getBook\n  toolkeep cache invalidate --user billing-agent\n  toolkeep cache invalidate --all",
		Args:              arguments(0, 1, "the tool's id, such as bookshop.getBook, or --user, --strategy, --all or --all-tenants"),
		ValidArgsFunction: a.completeTools,
		RunE: func(cmd *cobra.Command, args []string) error {
			body, what, err := flushed(args, user, strategy, all, tenants)
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
					_, err := fmt.Fprintf(w, "Cached search results %s, if there were any, are dropped. Their owners are not stored, so a misspelt subject is not noticed.\n", what)
					return err
				case strategy != "":
					_, err := fmt.Fprintf(w, "The cached search results %s are dropped.\n", what)
					return err
				}
				_, err := fmt.Fprintf(w, "%d cached results %s are dropped, and the cached search results.\n", answer.Invalidated, what)
				return err
			})
		},
	}
	f := c.Flags()
	f.StringVar(&user, "user", "", "drop the search results of this subject")
	f.StringVar(&strategy, "strategy", "", "drop the search results of a strategy: "+strings.Join(searchStrategies, ", "))
	f.BoolVar(&all, "all", false, "drop everything of your tenant")
	f.BoolVar(&tenants, "all-tenants", false, "drop everything of every tenant")
	_ = c.RegisterFlagCompletionFunc("strategy", cobra.FixedCompletions(searchStrategies, cobra.ShellCompDirectiveNoFileComp))
	return a.withJSON(c)
}

// flushed returns the flush request and its description.
func flushed(args []string, user, strategy string, all, tenants bool) (body map[string]string, what string, err error) {
	n := len(args)
	if n == 1 && args[0] == "" {
		n = 0
	}
	for _, set := range []bool{user != "", strategy != "", all, tenants} {
		if set {
			n++
		}
	}
	switch {
	case n != 1:
		return nil, "", usagef("name exactly one thing to drop: a tool, --user, --strategy, --all or --all-tenants")
	case user != "":
		return map[string]string{"scope": "user", "userId": user}, "for " + user, nil
	case strategy != "":
		if !slices.Contains(searchStrategies, strategy) {
			return nil, "", usagef("%q is not a strategy; the strategies are %s", strategy, strings.Join(searchStrategies, ", "))
		}
		return map[string]string{"scope": "strategy", "strategy": strategy}, "by " + strategy, nil
	case all:
		return map[string]string{"scope": "all"}, "of all tools", nil
	case tenants:
		return map[string]string{"scope": "all_tenants"}, "of all tools and tenants", nil
	}
	if tool, _, versioned := strings.Cut(args[0], "@"); versioned {
		return nil, "", usagef("results of all versions are dropped together; leave the version out: toolkeep cache invalidate %s", tool)
	}
	return map[string]string{"scope": "tool", "toolId": args[0]}, "of " + args[0], nil
}

func (a *app) reindexCmd() *cobra.Command {
	var embeddings bool
	c := &cobra.Command{
		Use:   "reindex [TOOL…]",
		Short: "Index tools for search again, all or some",
		Long: `Index tools for search again, in the background and on every node: the named ones, or all that your tenant can
see. The index follows the catalogue automatically; this is for repairs. --embeddings also computes the vectors
of the tools again, which takes some hundredths of a second for each tool.`,
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
				_, err := fmt.Fprintf(w, "%d tools are queued for indexing, %d of them with their vectors.\n", answer.Queued, answer.Embeddings)
				return err
			})
		},
	}
	c.Flags().BoolVar(&embeddings, "embeddings", false, "compute their vectors again too")
	return a.withJSON(c)
}
