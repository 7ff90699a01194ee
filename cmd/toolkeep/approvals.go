package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/toolkeep/toolkeep/control/approvals"
)

func (a *app) approvalsCmd() *cobra.Command {
	var state string
	var page, size int
	c := &cobra.Command{
		Use:   "approvals",
		Short: "Decide about calls that wait for a person",
		Long: "Calls of high risk, and those that rules or callers want approved, wait for a person. This lists them;\n" +
			"show prints the arguments, approve and deny decide. You decide about calls of others, never about your own.",
		Example: "  toolkeep approvals\n  toolkeep approvals show 01a21f9f-3123-7730-a182-cdb1880d30f8\n" +
			"  toolkeep approvals approve 01a21f9f-3123-7730-a182-cdb1880d30f8 --reason 'ticket OPS-7'",
		Args: noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := errors.Join(between("--page", page, 1, 1_000_000), between("--page-size", size, 1, 200)); err != nil {
				return err
			}
			q := url.Values{"page": {strconv.Itoa(page)}, "page_size": {strconv.Itoa(size)}}
			if state != "all" {
				q.Set("state", state)
			}
			var list struct {
				Approvals  []approvals.Approval `json:"approvals"`
				TotalCount int                  `json:"total_count"`
			}
			return a.ask(cmd.Context(), http.MethodGet, "/api/v1/approvals?"+q.Encode(), nil, &list, func(w io.Writer) error {
				err := table(w, "ID|WHEN|TOOL|AGENT|STATE|APPROVALS|UNTIL|YOURS", func(row func(...any)) {
					for _, v := range list.Approvals {
						yours := ""
						if v.YouDecide {
							yours = "yes"
						}
						row(v.InvocationID, v.CreatedAt.Local().Format(time.DateTime), joinRef(v.ToolID, v.ToolVersion), v.AgentID, v.State,
							fmt.Sprintf("%d of %d", v.Have, v.Needed), v.ExpiresAt.Local().Format(time.DateTime), yours)
					}
				})
				a.moreOf(page, size, len(list.Approvals), list.TotalCount, false, "no call waits for a person that you may see")
				return err
			})
		},
	}
	f := c.Flags()
	f.StringVar(&state, "state", "pending", "pending, approved, denied, expired, ended, or all; decided ones are kept for a day")
	f.IntVar(&page, "page", 1, "page, from 1")
	f.IntVar(&size, "page-size", 20, "approvals a page, at most 200")
	_ = c.RegisterFlagCompletionFunc("state", cobra.FixedCompletions([]string{"pending", "approved", "denied", "expired", "ended", "all"}, cobra.ShellCompDirectiveNoFileComp))
	c.AddCommand(a.approvalShowCmd(), a.approveCmd(), a.denyCmd(), a.approvalLinkCmd(), a.grantsCmd(), a.revokeGrantCmd())
	return a.withJSON(c)
}

func approvalPath(id, tail string) string { return "/api/v1/approvals/" + url.PathEscape(id) + tail }

func (a *app) approvalShowCmd() *cobra.Command {
	c := &cobra.Command{
		Use:               "show ID",
		Short:             "Show what waits: who asks, why, and the arguments that would run",
		Example:           "  toolkeep approvals show 01a21f9f-3123-7730-a182-cdb1880d30f8",
		Args:              arguments(1, 1, "the call's id"),
		ValidArgsFunction: a.completeCalls("pending_approval"),
		RunE: func(cmd *cobra.Command, args []string) error {
			var v approvals.Approval
			return a.ask(cmd.Context(), http.MethodGet, approvalPath(args[0], ""), nil, &v, func(w io.Writer) error { return printApproval(w, &v) })
		},
	}
	return a.withJSON(c)
}

func printApproval(w io.Writer, v *approvals.Approval) error {
	return table(w, v.InvocationID+"|"+v.State, func(row func(...any)) {
		line := func(name, value string) {
			if value != "" {
				row(name, value)
			}
		}
		line("tool", joinRef(v.ToolID, v.ToolVersion))
		line("agent", v.AgentID)
		line("for", v.UserID)
		line("session", v.SessionID)
		line("why", v.Why)
		line("rule", v.Rule)
		line("approvals", fmt.Sprintf("%d of %d", v.Have, v.Needed))
		who := "those with approvals:decide"
		if len(v.Roles) > 0 {
			who = "the roles " + strings.Join(v.Roles, ", ")
		}
		line("decided by", who)
		line("until", v.ExpiresAt.Local().Format(time.DateTime))
		for _, d := range v.Decisions {
			text := d.By + " " + d.Verdict + " at " + d.At.Local().Format(time.DateTime)
			if d.Edited {
				text += ", with other arguments"
			}
			if d.Reason != "" {
				text += ": " + d.Reason
			}
			line("decision", text)
		}
		line("parameters", inline(v.Parameters))
		line("asked for", inline(v.Asked))
		line("digest", v.Digest)
	})
}

// inline is JSON in a line, "" for nothing.
func inline(v any) string {
	if v == nil {
		return ""
	}
	raw, err := json.Marshal(v)
	if err != nil {
		return err.Error()
	}
	return string(raw)
}

func (a *app) approveCmd() *cobra.Command {
	var reason, params, remember, digest string
	var remain time.Duration
	c := &cobra.Command{
		Use:   "approve ID",
		Short: "Approve a call: it runs once enough persons have approved it",
		Long: "The call runs with the arguments that its caller sent, or with those of --parameters, which are validated as\n" +
			"the caller's were. --remember also approves later calls of the same agent, person and version of the tool.",
		Example: "  toolkeep approvals approve 01a21f9f-3123-7730-a182-cdb1880d30f8\n" +
			"  toolkeep approvals approve 01a21f9f-3123-7730-a182-cdb1880d30f8 --parameters '{\"amount\": 50}' --reason 'at most 50'\n" +
			"  toolkeep approvals approve 01a21f9f-3123-7730-a182-cdb1880d30f8 --remember session --for 2h",
		Args:              arguments(1, 1, "the call's id"),
		ValidArgsFunction: a.completeCalls("pending_approval"),
		RunE: func(cmd *cobra.Command, args []string) error {
			body := map[string]any{}
			if reason != "" {
				body["reason"] = reason
			}
			if digest != "" {
				body["digest"] = digest
			}
			if params != "" {
				raw := []byte(params)
				if name, ok := strings.CutPrefix(params, "@"); ok {
					var err error
					if raw, err = os.ReadFile(name); err != nil {
						return err
					}
				}
				if !json.Valid(raw) {
					return usagef("--parameters is not JSON")
				}
				body["parameters"] = json.RawMessage(raw)
			}
			if remember != "" {
				body["remember"] = map[string]any{"for": remember, "until": time.Now().Add(remain).UTC().Format(time.RFC3339)}
			}
			return a.decideApproval(cmd, args[0], "/approve", body)
		},
	}
	f := c.Flags()
	f.StringVar(&reason, "reason", "", "kept with the decision")
	f.StringVar(&params, "parameters", "", "arguments to run instead, JSON or @FILE")
	f.StringVar(&digest, "digest", "", "approve only what has this digest, as show prints it")
	f.StringVar(&remember, "remember", "", "also approve later calls: arguments (the same ones) or session (all in the same session)")
	f.DurationVar(&remain, "for", time.Hour, "how long to remember, at most 24h")
	_ = c.RegisterFlagCompletionFunc("remember", cobra.FixedCompletions([]string{"arguments", "session"}, cobra.ShellCompDirectiveNoFileComp))
	return a.withJSON(c)
}

func (a *app) approvalLinkCmd() *cobra.Command {
	var approver string
	var life time.Duration
	c := &cobra.Command{
		Use:   "link ID",
		Short: "Make a link by which an approver decides once, without a key",
		Long: "The link decides one call, once, until the call's deadline or --ttl. Who has it decides as the approver: you, or\n" +
			"--for, whose API key must be one that may decide. You must be asked about the call too, and the decision counts as\n" +
			"one of you both. Opening the link shows what waits and changes nothing.",
		Example: "  toolkeep approvals link 01a21f9f-3123-7730-a182-cdb1880d30f8\n" +
			"  toolkeep approvals link 01a21f9f-3123-7730-a182-cdb1880d30f8 --for lea --ttl 1h",
		Args:              arguments(1, 1, "the call's id"),
		ValidArgsFunction: a.completeCalls("pending_approval"),
		RunE: func(cmd *cobra.Command, args []string) error {
			body := map[string]any{}
			if approver != "" {
				body["approver"] = approver
			}
			if life < 0 {
				return usagef("--ttl is not less than 0")
			}
			if life > 0 {
				body["expires_at"] = time.Now().Add(life).UTC().Format(time.RFC3339)
			}
			cl, err := a.connect()
			if err != nil {
				return err
			}
			var l approvals.DecisionLink
			return a.ask(cmd.Context(), http.MethodPost, approvalPath(args[0], "/links"), body, &l, func(w io.Writer) error {
				_, err := fmt.Fprintln(w, strings.TrimSuffix(cl.base, "/")+l.Path)
				fmt.Fprintf(a.stderr, "toolkeep: %s decides by it until %s\n", l.Approver, l.ExpiresAt.Local().Format(time.DateTime))
				return err
			})
		},
	}
	c.Flags().StringVar(&approver, "for", "", "who decides by it; without it, you")
	c.Flags().DurationVar(&life, "ttl", 0, "how long it lives; without it, until the call's deadline")
	return a.withJSON(c)
}

func (a *app) denyCmd() *cobra.Command {
	var reason string
	c := &cobra.Command{
		Use:               "deny ID",
		Short:             "Deny a call: its caller gets E3212 and the reason",
		Example:           "  toolkeep approvals deny 01a21f9f-3123-7730-a182-cdb1880d30f8 --reason 'not on a Friday'",
		Args:              arguments(1, 1, "the call's id"),
		ValidArgsFunction: a.completeCalls("pending_approval"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.decideApproval(cmd, args[0], "/deny", map[string]any{"reason": reason})
		},
	}
	c.Flags().StringVar(&reason, "reason", "", "the caller gets it")
	return a.withJSON(c)
}

func (a *app) decideApproval(cmd *cobra.Command, id, tail string, body map[string]any) error {
	var v approvals.Approval
	return a.ask(cmd.Context(), http.MethodPost, approvalPath(id, tail), body, &v, func(w io.Writer) error {
		text := v.State
		if v.State == "pending" {
			text = fmt.Sprintf("approved by %d of %d; it goes on waiting", v.Have, v.Needed)
		}
		_, err := fmt.Fprintf(w, "%s of %s: %s\n", joinRef(v.ToolID, v.ToolVersion), v.AgentID, text)
		return err
	})
}

func (a *app) grantsCmd() *cobra.Command {
	c := &cobra.Command{
		Use:     "grants",
		Short:   "List standing approvals, under which calls are not asked about",
		Example: "  toolkeep approvals grants",
		Args:    noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			var list struct {
				Grants     []approvals.Grant `json:"grants"`
				TotalCount int               `json:"total_count"`
			}
			return a.ask(cmd.Context(), http.MethodGet, "/api/v1/approvals/grants?page_size=200", nil, &list, func(w io.Writer) error {
				err := table(w, "ID|TOOL|AGENT|FOR|BY|UNTIL", func(row func(...any)) {
					for _, g := range list.Grants {
						what := g.For
						if g.SessionID != "" {
							what += " " + g.SessionID
						}
						row(g.ID, joinRef(g.ToolID, g.ToolVersion), g.AgentID, what, g.By, g.Until.Local().Format(time.DateTime))
					}
				})
				a.moreOf(1, 200, len(list.Grants), list.TotalCount, false, "there is no standing approval that you may see")
				return err
			})
		},
	}
	return a.withJSON(c)
}

func (a *app) revokeGrantCmd() *cobra.Command {
	return a.withJSON(&cobra.Command{
		Use:     "revoke ID",
		Short:   "Take a standing approval back: later calls are asked about again",
		Example: "  toolkeep approvals revoke 01a21f9f-3123-7730-a182-cdb1880d30f8",
		Args:    arguments(1, 1, "the standing approval's id"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.act(cmd.Context(), http.MethodDelete, "/api/v1/approvals/grants/"+url.PathEscape(args[0]), nil, map[string]any{"id": args[0], "revoked": true}, "taken back")
		},
	})
}
