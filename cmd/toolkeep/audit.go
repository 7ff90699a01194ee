package main

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/toolkeep/toolkeep/audit"
)

func (a *app) auditCmd() *cobra.Command {
	c := &cobra.Command{
		Use:     "audit",
		Short:   "Read what was recorded, and verify that it is as it was recorded",
		Example: "  toolkeep audit list --decision refused\n  toolkeep audit verify\n  toolkeep audit export --since 24h >audit.jsonl",
		Args:    noArguments,
		RunE:    func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	c.AddCommand(a.auditListCmd(), a.auditShowCmd(), a.auditExportCmd(), a.auditVerifyCmd(), a.auditArchiveCmd(), a.auditHoldCmd(), a.auditEraseCmd())
	return c
}

// auditFilter are the flags by which entries are found.
type auditFilter struct {
	since, until, agent, tool, kind, decision string
	archive                                   bool
}

func (f *auditFilter) flags(c *cobra.Command) {
	fl := c.Flags()
	fl.StringVar(&f.since, "since", "", "only from then on: a time such as 2026-03-01T12:00:00Z, or how long ago, such as 24h")
	fl.StringVar(&f.until, "until", "", "only before then, as --since")
	fl.StringVar(&f.agent, "agent", "", "only of this agent")
	fl.StringVar(&f.tool, "tool", "", "only of this tool")
	fl.StringVar(&f.kind, "type", "", "only events of this type, such as failed or auth.failed")
	fl.BoolVar(&f.archive, "archive", false, "search the archive (audit.archive), and not what the store has")
	fl.StringVar(&f.decision, "decision", "", "only what was allowed, refused or failed")
	_ = c.RegisterFlagCompletionFunc("decision", cobra.FixedCompletions([]string{audit.Allowed, audit.Refused, audit.Failed}, cobra.ShellCompDirectiveNoFileComp))
}

// timeOf reads a flag that is a time or how long ago.
func timeOf(flag, value string) (string, error) {
	if value == "" {
		return "", nil
	}
	if ago, err := time.ParseDuration(value); err == nil {
		return time.Now().Add(-ago).UTC().Format(time.RFC3339), nil
	}
	if _, err := time.Parse(time.RFC3339, value); err != nil {
		return "", usagef("%s is neither a time such as 2026-03-01T12:00:00Z nor how long ago, such as 24h", flag)
	}
	return value, nil
}

func (f *auditFilter) query(size int) (url.Values, error) {
	since, err := timeOf("--since", f.since)
	if err != nil {
		return nil, err
	}
	until, err := timeOf("--until", f.until)
	if err != nil {
		return nil, err
	}
	q := url.Values{"page_size": {strconv.Itoa(size)}}
	if f.archive {
		q.Set("archive", "true")
	}
	for k, v := range map[string]string{"since": since, "until": until, "agent_id": f.agent, "tool_id": f.tool, "type": f.kind, "decision": f.decision} {
		if v != "" {
			q.Set(k, v)
		}
	}
	return q, nil
}

// auditPage is a page of entries.
type auditPage struct {
	Events []json.RawMessage `json:"events"`
	Next   string            `json:"next"`
	Left   []struct {
		Segment string `json:"segment"`
		Fault   string `json:"fault"`
	} `json:"left_out"`
}

// auditLine is what a list shows of an entry.
type auditLine struct {
	ID   string    `json:"id"`
	Type string    `json:"type"`
	Time time.Time `json:"time"`
	Data struct {
		Agent  string `json:"agent_did"`
		ToolID string `json:"tool_id"`
		Code   string `json:"error_code"`
	} `json:"data"`
}

// auditPages passes pages of entries until each returns false, or there are no more. Segments of the archive that are left
// out are told as they come; with any, left is the error with which the command ends.
func (a *app) auditPages(ctx context.Context, q url.Values, each func(auditPage) (bool, error)) (left error, err error) {
	cl, err := a.connect()
	if err != nil {
		return nil, err
	}
	told := map[string]bool{}
	for {
		raw, err := cl.do(ctx, http.MethodGet, "/api/v1/audit/events?"+q.Encode(), nil)
		if err != nil {
			return nil, err
		}
		var page auditPage
		if err := decode(raw, &page); err != nil {
			return nil, err
		}
		for _, s := range page.Left {
			if !told[s.Segment] {
				told[s.Segment] = true
				fmt.Fprintf(a.stderr, "toolkeep: the segment %s is left out: %s\n", s.Segment, s.Fault)
			}
		}
		more, err := each(page)
		if err != nil {
			return nil, err
		}
		if !more || page.Next == "" {
			break
		}
		q.Set("cursor", page.Next)
	}
	if len(told) > 0 {
		return &failure{code: exitRefused, err: fmt.Errorf("%d segments of the archive are left out; `toolkeep audit verify --archive` says what that means", len(told))}, nil
	}
	return nil, nil
}

func (a *app) auditListCmd() *cobra.Command {
	var f auditFilter
	var limit int
	c := &cobra.Command{
		Use:     "list",
		Short:   "List what was recorded, newest first",
		Example: "  toolkeep audit list --decision refused --since 24h\n  toolkeep audit list --agent alice --limit 5 --json",
		Args:    noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := between("--limit", limit, 1, 10_000); err != nil {
				return err
			}
			q, err := f.query(min(limit, audit.MaxPage))
			if err != nil {
				return err
			}
			all := []json.RawMessage{}
			left, err := a.auditPages(cmd.Context(), q, func(p auditPage) (bool, error) {
				all = append(all, p.Events[:min(len(p.Events), limit-len(all))]...)
				return len(all) < limit, nil
			})
			if err != nil {
				return err
			}
			raw, err := json.Marshal(map[string]any{"events": all})
			if err != nil {
				return err
			}
			err = a.show(raw, func(w io.Writer) error {
				return table(w, "WHEN|TYPE|AGENT|TOOL|ERROR|ID", func(row func(...any)) {
					for _, e := range all {
						var l auditLine
						if json.Unmarshal(e, &l) == nil {
							row(l.Time.Local().Format(time.DateTime), l.Type, l.Data.Agent, l.Data.ToolID, l.Data.Code, l.ID)
						}
					}
				})
			})
			return cmp.Or(err, left)
		},
	}
	f.flags(c)
	c.Flags().IntVar(&limit, "limit", 20, "entries at most, up to 10,000")
	return a.withJSON(c)
}

func (a *app) auditShowCmd() *cobra.Command {
	c := &cobra.Command{
		Use:     "show ID",
		Short:   "Show one entry as a CloudEvent",
		Example: "  toolkeep audit show 01a21f9f-3123-7730-a182-cdb1880d30f8",
		Args:    arguments(1, 1, "the entry's id: that of a call or of an event"),
		RunE: func(cmd *cobra.Command, args []string) error {
			var found json.RawMessage
			_, err := a.auditPages(cmd.Context(), url.Values{"id": {args[0]}, "page_size": {"1"}}, func(p auditPage) (bool, error) {
				if len(p.Events) > 0 {
					found = p.Events[0]
				}
				return found == nil, nil
			})
			if err != nil {
				return err
			}
			if found == nil {
				return &failure{code: exitRefused, err: fmt.Errorf("no entry has the id %s: it may be another tenant's, past its retention, or a call that has not ended", args[0])}
			}
			return a.show(found, func(w io.Writer) error {
				_, err := fmt.Fprintf(w, "%s\n", found)
				return err
			})
		},
	}
	return a.withJSON(c)
}

func (a *app) auditExportCmd() *cobra.Command {
	var f auditFilter
	var format string
	c := &cobra.Command{
		Use:   "export",
		Short: "Write what was recorded as JSON Lines, newest first",
		Long: `Write what was recorded as JSON Lines, newest first: each line is a CloudEvent of version 1.0, or with
--format ocsf an event of OCSF 1.3 (API Activity, class 6003).`,
		Example: "  toolkeep audit export --since 24h >audit.jsonl\n  toolkeep audit export --format ocsf --decision refused",
		Args:    noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if format != "cloudevents" && format != "ocsf" {
				return usagef("--format is cloudevents or ocsf")
			}
			q, err := f.query(audit.MaxPage)
			if err != nil {
				return err
			}
			left, err := a.auditPages(cmd.Context(), q, func(p auditPage) (bool, error) {
				for _, e := range p.Events {
					line := []byte(e)
					if format == "ocsf" {
						if line, err = audit.OCSF(e); err != nil {
							return false, err
						}
					}
					if _, err := fmt.Fprintf(a.stdout, "%s\n", line); err != nil {
						return false, err
					}
				}
				return true, nil
			})
			return cmp.Or(err, left)
		},
	}
	f.flags(c)
	c.Flags().StringVar(&format, "format", "cloudevents", "cloudevents or ocsf")
	_ = c.RegisterFlagCompletionFunc("format", cobra.FixedCompletions([]string{"cloudevents", "ocsf"}, cobra.ShellCompDirectiveNoFileComp))
	return c
}

func (a *app) auditVerifyCmd() *cobra.Command {
	var since string
	var archive bool
	c := &cobra.Command{
		Use:   "verify",
		Short: "Compare what was recorded with its hashes and the signed checkpoints",
		Long: `Compare the tenant's entries with their hashes and with the signed checkpoints, from --since on, or all that
retention keeps whole. It exits with 3 if anything is not as it was recorded, and says what and where. Keep the digest
of the newest checkpoint elsewhere: it shows later that the database was not put back.`,
		Example: "  toolkeep audit verify\n  toolkeep audit verify --since 48h --json\n  toolkeep audit verify --archive",
		Args:    noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			from, err := timeOf("--since", since)
			if err != nil {
				return err
			}
			cl, err := a.connect()
			if err != nil {
				return err
			}
			q := url.Values{}
			if from != "" {
				q.Set("since", from)
			}
			if archive {
				q.Set("archive", "true")
			}
			all := audit.Report{Intact: true, Faults: []audit.Fault{}}
			for more := true; more; {
				raw, err := cl.do(cmd.Context(), http.MethodGet, "/api/v1/audit/verify?"+q.Encode(), nil)
				if err != nil {
					return err
				}
				var part audit.Report
				if err := decode(raw, &part); err != nil {
					return err
				}
				all.Add(&part)
				q.Set("cursor", part.Next)
				more = part.Next != ""
			}
			raw, err := json.Marshal(all)
			if err != nil {
				return err
			}
			if err := a.show(raw, all.Print); err != nil {
				return err
			}
			if !all.Intact {
				return &failure{code: exitRefused, err: fmt.Errorf("the audit found %d faults", len(all.Faults))}
			}
			return nil
		},
	}
	c.Flags().BoolVar(&archive, "archive", false, "verify the archive (audit.archive), and not what the store has")
	c.Flags().StringVar(&since, "since", "", "begin there: a time such as 2026-03-01T12:00:00Z, or how long ago, such as 48h")
	return a.withJSON(c)
}
