package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
)

var relationships = []string{"dependencies", "pairings", "alternatives"}

// relatedTool is one related tool in the output.
type relatedTool struct {
	ToolID   string  `json:"toolId"`
	Version  string  `json:"version"`
	Score    float64 `json:"relationshipScore"`
	Sequence string  `json:"sequence"`
	Source   string  `json:"source"`
	Manifest struct {
		Description      string `json:"description"`
		ShortDescription string `json:"short_description"`
	} `json:"manifest"`
}

func (t *relatedTool) short() string {
	s := t.Manifest.ShortDescription
	if s == "" {
		s, _, _ = strings.Cut(t.Manifest.Description, "\n")
	}
	return s
}

func (a *app) relatedCmd() *cobra.Command {
	var kind string
	var limit int
	c := &cobra.Command{
		Use:   "related TOOL",
		Short: "Show tools related to a tool",
		Long: `Show tools related to a tool: dependencies, which must be called or exist first; pairings, which are
called before, after or beside it; and alternatives, which do something similar. They come from the
tool's manifest, from the calls of your tenant, and from search. Relationships of the manifest have the
score 1.`,
		Example:           "  toolkeep related std.hash\n  toolkeep related std.hash --type alternatives --limit 10",
		Args:              arguments(1, 1, "the tool's id, such as std.hash"),
		ValidArgsFunction: a.completeTools,
		RunE: func(cmd *cobra.Command, args []string) error {
			id, rng, err := splitRef(args[0])
			switch {
			case err != nil:
				return err
			case rng != "":
				return usagef("related tools are those of the latest version; leave the @ out")
			case kind != "" && !slices.Contains(relationships, kind):
				return usagef("%q is not a relationship; there are %s", kind, strings.Join(relationships, ", "))
			}
			if err := between("--limit", limit, 1, 10); err != nil {
				return err
			}
			kinds := relationships
			if kind != "" {
				kinds = []string{kind}
			}
			cl, err := a.connect()
			if err != nil {
				return err
			}
			found, all := map[string][]relatedTool{}, map[string]json.RawMessage{}
			for _, k := range kinds {
				var one struct {
					Data struct {
						RelatedTools []relatedTool `json:"relatedTools"`
					} `json:"data"`
				}
				q := url.Values{"relationshipType": {k}, "maxResults": {strconv.Itoa(limit)}}
				raw, err := cl.get(cmd.Context(), "/api/v1/tools/retrieval/related/"+url.PathEscape(id)+"?"+q.Encode(), &one)
				if err != nil {
					return err
				}
				found[k], all[k] = one.Data.RelatedTools, raw
			}
			raw := all[kind]
			if kind == "" {
				if raw, err = json.Marshal(all); err != nil {
					return err
				}
			}
			return a.show(raw, func(w io.Writer) error { return a.printRelated(w, id, kinds, found) })
		},
	}
	f := c.Flags()
	f.StringVar(&kind, "type", "", strings.Join(relationships, ", ")+"; default all of them")
	f.IntVar(&limit, "limit", 3, "tools of each kind at most, up to 10")
	_ = c.RegisterFlagCompletionFunc("type", cobra.FixedCompletions(relationships, cobra.ShellCompDirectiveNoFileComp))
	return a.withJSON(c)
}

func (a *app) printRelated(w io.Writer, id string, kinds []string, found map[string][]relatedTool) error {
	n := 0
	for _, k := range kinds {
		n += len(found[k])
	}
	if n == 0 {
		fmt.Fprintf(a.stderr, "toolkeep: no related tool of %s is visible to you\n", id)
		return nil
	}
	one := map[string]string{"dependencies": "needs", "pairings": "goes with", "alternatives": "or else"}
	return table(w, "RELATION|TOOL|VERSION|SCORE|CALLED|KNOWN FROM|DESCRIPTION", func(row func(...any)) {
		for _, k := range kinds {
			for _, t := range found[k] {
				row(one[k], t.ToolID, t.Version, fmt.Sprintf("%.2f", t.Score), t.Sequence, t.Source, t.short())
			}
		}
	})
}
