package main

import (
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/toolkeep/toolkeep/control/nodes"
)

func (a *app) nodesCmd() *cobra.Command {
	c := &cobra.Command{
		Use:   "nodes",
		Short: "List the nodes that share the store, and what each does for all",
		Long: `List the nodes that share the store and were seen within the last 15 s. LEADS is the work that a node does for
all; when it dies, another takes it over within 15 s. The queue's own upkeep has a leader that is not listed.`,
		Example: "  toolkeep nodes\n  toolkeep nodes --json",
		Args:    noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			var list struct {
				Nodes []nodes.Node `json:"nodes"`
			}
			return a.ask(cmd.Context(), http.MethodGet, "/api/v1/admin/nodes", nil, &list, func(w io.Writer) error {
				return table(w, "NODE|VERSION|ADDRESS|STARTED|LEADS", func(row func(...any)) {
					for _, n := range list.Nodes {
						if n.Self {
							n.Name += " (answers)"
						}
						row(n.Name, n.Version, n.URL, n.StartedAt.Format(time.DateTime), strings.Join(n.Leads, ", "))
					}
				})
			})
		},
	}
	return a.withJSON(c)
}
