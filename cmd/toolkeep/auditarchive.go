package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"

	"github.com/spf13/cobra"

	"github.com/toolkeep/toolkeep/audit"
	"github.com/toolkeep/toolkeep/datadir"
)

func (a *app) auditArchiveCmd() *cobra.Command {
	c := &cobra.Command{
		Use:     "archive",
		Short:   "See what is in the archive",
		Example: "  toolkeep audit archive list",
		Args:    noArguments,
		RunE:    func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	c.AddCommand(a.auditSegmentsCmd())
	return c
}

// segmentPage is a page of segments.
type segmentPage struct {
	Segments []audit.Segment `json:"segments"`
	Next     string          `json:"next"`
}

func (a *app) auditSegmentsCmd() *cobra.Command {
	c := &cobra.Command{
		Use:   "list",
		Short: "List the segments of the archive, oldest first, and whether each is whole",
		Long: `List the tenant's segments of the archive (audit.archive), oldest first. The server reads each, and says whether it is as
it was written. It exits with 3 if one is not; toolkeep audit verify --archive says what that means for the entries.`,
		Example: "  toolkeep audit archive list\n  toolkeep audit archive list --json",
		Args:    noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			cl, err := a.connect()
			if err != nil {
				return err
			}
			all, damaged := []audit.Segment{}, 0
			for q := (url.Values{}); ; {
				raw, err := cl.do(cmd.Context(), http.MethodGet, "/api/v1/audit/archive?"+q.Encode(), nil)
				if err != nil {
					return err
				}
				var page segmentPage
				if err := decode(raw, &page); err != nil {
					return err
				}
				all = append(all, page.Segments...)
				if page.Next == "" {
					break
				}
				q.Set("cursor", page.Next)
			}
			raw, err := json.Marshal(map[string]any{"segments": all})
			if err != nil {
				return err
			}
			err = a.show(raw, func(w io.Writer) error {
				return table(w, "DAY|KIND|WRITER|FIRST|LAST|ENTRIES|SIZE|STATE|SEGMENT", func(row func(...any)) {
					for _, s := range all {
						state := "whole"
						if !s.Whole {
							state = "NOT whole: " + s.Fault
						}
						row(s.Day, s.Kind, s.Writer, s.First, s.Last, s.Count, datadir.SizeText(uint64(s.Bytes)), state, s.Path)
					}
				})
			})
			for _, s := range all {
				if !s.Whole {
					damaged++
				}
			}
			if err == nil && damaged > 0 {
				return &failure{code: exitRefused, err: fmt.Errorf("%d of %d segments are not whole", damaged, len(all))}
			}
			return err
		},
	}
	return a.withJSON(c)
}
