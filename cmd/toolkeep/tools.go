package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/toolkeep/toolkeep"
)

type toolSummary struct {
	ToolID           string   `json:"tool_id"`
	Description      string   `json:"description"`
	ShortDescription string   `json:"short_description"`
	Category         string   `json:"category"`
	LatestVersion    string   `json:"latest_version"`
	State            string   `json:"state"`
	SideEffects      string   `json:"side_effects"`
	Risk             string   `json:"risk"`
	Tags             []string `json:"tags"`
}

func (t toolSummary) short() string {
	s := t.ShortDescription
	if s == "" {
		s, _, _ = strings.Cut(t.Description, "\n")
	}
	return cut(s, 70)
}

// splitRef cuts namespace.name@range.
func splitRef(ref string) (tool, rng string) {
	tool, rng, _ = strings.Cut(ref, "@")
	return tool, rng
}

func (a *app) toolsCmd() *cobra.Command {
	q := url.Values{}
	var category, tag, capability, namespace string
	var deprecated bool
	var page, size int
	c := &cobra.Command{
		Use:   "tools",
		Short: "List the tools that your key may see",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			for k, v := range map[string]string{"category": category, "tag": tag, "capability": capability, "namespace": namespace} {
				if v != "" {
					q.Set(k, v)
				}
			}
			if deprecated {
				q.Set("include_deprecated", "true")
			}
			q.Set("page", strconv.Itoa(page))
			q.Set("page_size", strconv.Itoa(size))
			cl, err := a.connect()
			if err != nil {
				return err
			}
			var list struct {
				Tools      []toolSummary `json:"tools"`
				TotalCount int           `json:"total_count"`
			}
			raw, err := cl.get(cmd.Context(), "/api/v1/tools?"+q.Encode(), &list)
			if err != nil {
				return err
			}
			return a.show(raw, func(w io.Writer) error {
				err := table(w, "TOOL|VERSION|EFFECTS|RISK|DESCRIPTION", func(row func(...any)) {
					for _, t := range list.Tools {
						version := t.LatestVersion
						if t.State != "active" {
							version += " (" + t.State + ")"
						}
						row(t.ToolID, version, t.SideEffects, t.Risk, t.short())
					}
				})
				if shown := len(list.Tools); shown < list.TotalCount {
					fmt.Fprintf(w, "%d of %d; --page %d shows the next\n", shown, list.TotalCount, page+1)
				}
				return err
			})
		},
	}
	f := c.Flags()
	f.StringVar(&category, "category", "", "only this category")
	f.StringVar(&tag, "tag", "", "only with this tag")
	f.StringVar(&capability, "capability", "", "only with this capability")
	f.StringVar(&namespace, "namespace", "", "only of this namespace")
	f.BoolVar(&deprecated, "deprecated", false, "show deprecated versions too")
	f.IntVar(&page, "page", 1, "page, from 1")
	f.IntVar(&size, "page-size", 200, "tools a page, at most 200")
	return a.withJSON(c)
}

func (a *app) searchCmd() *cobra.Command {
	var limit int
	c := &cobra.Command{
		Use:     "search WORDS…",
		Short:   "Find tools by names, descriptions and parameters",
		Example: "  toolkeep search hash a text\n  toolkeep search --limit 3 'order a book'",
		Args:    cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			cl, err := a.connect()
			if err != nil {
				return err
			}
			q := url.Values{"q": {strings.Join(args, " ")}, "limit": {strconv.Itoa(limit)}}
			var found struct {
				Data struct {
					Index []struct {
						ToolID           string   `json:"toolId"`
						Version          string   `json:"version"`
						ShortDescription string   `json:"shortDescription"`
						Score            float64  `json:"score"`
						Why              []string `json:"why"`
					} `json:"lightweightIndex"`
				} `json:"data"`
			}
			raw, err := cl.get(cmd.Context(), "/api/v1/tools/retrieval/search?"+q.Encode(), &found)
			if err != nil {
				return err
			}
			return a.show(raw, func(w io.Writer) error {
				return table(w, "TOOL|VERSION|SCORE|MATCHED|DESCRIPTION", func(row func(...any)) {
					for _, r := range found.Data.Index {
						row(r.ToolID, r.Version, fmt.Sprintf("%.2f", r.Score), strings.Join(r.Why, " "), cut(r.ShortDescription, 70))
					}
				})
			})
		},
	}
	c.Flags().IntVar(&limit, "limit", 10, "results at most")
	return a.withJSON(c)
}

func (a *app) describeCmd() *cobra.Command {
	c := &cobra.Command{
		Use:               "describe TOOL[@VERSION]",
		Short:             "Show a tool: parameters, effects, versions, examples",
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: a.completeTools,
		RunE: func(cmd *cobra.Command, args []string) error {
			cl, err := a.connect()
			if err != nil {
				return err
			}
			id, rng := splitRef(args[0])
			var t describedTool
			raw, err := cl.get(cmd.Context(), "/api/v1/tools/"+url.PathEscape(id)+"?version="+url.QueryEscape(rng), &t)
			if err != nil {
				return err
			}
			var all struct {
				Versions []struct {
					Version   string             `json:"version"`
					Lifecycle toolkeep.Lifecycle `json:"lifecycle"`
				} `json:"versions"`
			}
			if _, err := cl.get(cmd.Context(), "/api/v1/tools/"+url.PathEscape(id)+"/versions", &all); err != nil {
				return err
			}
			return a.show(raw, func(w io.Writer) error {
				t.print(w)
				fmt.Fprintln(w, "\nVersions:")
				for _, v := range all.Versions {
					fmt.Fprintf(w, "  %s  %s\n", v.Version, lifeLine(v.Lifecycle))
				}
				return nil
			})
		},
	}
	return a.withJSON(c)
}

type describedTool struct {
	ToolID    string             `json:"tool_id"`
	Version   string             `json:"version"`
	Digest    string             `json:"digest"`
	Lifecycle toolkeep.Lifecycle `json:"lifecycle"`
	Manifest  toolkeep.Manifest  `json:"manifest"`
}

func (t *describedTool) print(w io.Writer) {
	m := &t.Manifest
	fmt.Fprintf(w, "%s@%s  %s\n%s\n\n%s\n", t.ToolID, t.Version, lifeLine(t.Lifecycle), t.Digest, strings.TrimSpace(m.Description))
	fmt.Fprintf(w, "\nSide effects: %s   Risk: %s   Category: %s   Kind: %s   Timeout: %s\n", m.SideEffects, m.Risk, m.Category,
		m.Execution.Kind, m.Timeout())
	if len(m.Tags) > 0 {
		fmt.Fprintf(w, "Tags: %s\n", strings.Join(m.Tags, ", "))
	}
	for _, s := range m.Auth {
		secret := s.Secret
		if secret == "" && s.Type != "none" {
			secret = "no secret named; import again with --secret"
		}
		fmt.Fprintf(w, "Authenticates by: %s %s (%s)\n", s.Type, s.Name, secret)
	}
	var schema struct {
		Properties map[string]json.RawMessage `json:"properties"`
		Required   []string                   `json:"required"`
	}
	if json.Unmarshal(m.ParametersSchema, &schema) == nil && len(schema.Properties) > 0 {
		fmt.Fprintln(w, "\nParameters:")
		_ = table(w, "  NAME|TYPE|REQUIRED|DESCRIPTION", func(row func(...any)) {
			for _, name := range sortedKeys(schema.Properties) {
				typ, text := parameterLine(schema.Properties[name])
				required := ""
				for _, r := range schema.Required {
					if r == name {
						required = "yes"
					}
				}
				row("  "+name, typ, required, cut(text, 90))
			}
		})
	}
	for _, e := range m.Examples {
		fmt.Fprintf(w, "\nExample: %s\n  toolkeep call %s --json '%s'\n", e.Scenario, t.ToolID, e.Input)
	}
}

func parameterLine(raw json.RawMessage) (typ, text string) {
	var p struct {
		Type        any    `json:"type"`
		Enum        []any  `json:"enum"`
		Ref         string `json:"$ref"`
		Description string `json:"description"`
		Default     any    `json:"default"`
	}
	if json.Unmarshal(raw, &p) != nil {
		return "any", ""
	}
	switch t := p.Type.(type) {
	case string:
		typ = t
	case []any:
		typ = strings.Trim(fmt.Sprint(t), "[]")
		typ = strings.ReplaceAll(typ, " ", "|")
	default:
		typ = "any"
		if p.Ref != "" {
			typ = strings.TrimPrefix(p.Ref, "#/$defs/")
		}
	}
	if len(p.Enum) > 0 {
		typ = cut(strings.Trim(fmt.Sprint(p.Enum), "[]"), 40)
	}
	text = strings.Join(strings.Fields(p.Description), " ")
	if p.Default != nil {
		text += fmt.Sprintf(" (default %v)", p.Default)
	}
	return typ, text
}

func lifeLine(l toolkeep.Lifecycle) string {
	s := string(l.State)
	if l.Successor != "" {
		s += ", move to " + l.Successor
	}
	if !l.SunsetAt.IsZero() {
		s += ", executes until " + l.SunsetAt.Format(time.DateOnly)
	}
	if l.Reason != "" {
		s += " (" + l.Reason + ")"
	}
	if l.Forced {
		s += " [published with --force]"
	}
	return s
}

func (a *app) diffCmd() *cobra.Command {
	c := &cobra.Command{
		Use:               "diff TOOL@FROM TOOL@TO",
		Short:             "Compare two versions: what breaks callers, what is new",
		Example:           "  toolkeep diff std.hash@1.0.0 std.hash@1.1.0\n  toolkeep diff std.hash@1.0.0 latest",
		Args:              cobra.ExactArgs(2),
		ValidArgsFunction: a.completeTools,
		RunE: func(cmd *cobra.Command, args []string) error {
			id, from := splitRef(args[0])
			other, to := splitRef(args[1])
			if !strings.Contains(args[1], "@") {
				other, to = id, args[1]
			}
			if other != id || from == "" || to == "" {
				return usagef("name two versions of one tool: toolkeep diff %s@1.0.0 %s@2.0.0", id, id)
			}
			cl, err := a.connect()
			if err != nil {
				return err
			}
			var d struct {
				From, To, Bump string
				Differences    []struct{ Pointer, Kind, Message string }
			}
			raw, err := cl.get(cmd.Context(), "/api/v1/tools/"+url.PathEscape(id)+"/diff?"+url.Values{"from": {from}, "to": {to}}.Encode(), &d)
			if err != nil {
				return err
			}
			return a.show(raw, func(w io.Writer) error {
				fmt.Fprintf(w, "%s: %s to %s is a %s change\n", id, d.From, d.To, d.Bump)
				return table(w, "KIND|WHERE|WHAT", func(row func(...any)) {
					for _, x := range d.Differences {
						row(x.Kind, orWhole(x.Pointer), x.Message)
					}
				})
			})
		},
	}
	return a.withJSON(c)
}

func (a *app) lifecycleCmd() *cobra.Command {
	var reason, successor, date string
	var now bool
	c := &cobra.Command{
		Use:   "lifecycle TOOL@VERSION active|deprecated|sunset|blocked|removed",
		Short: "Change the state of a version",
		Long: `Change the state of a version. Deprecated versions still execute with a warning; a sunset
version executes until its date and only if named exactly; a blocked one never does; a removed one
answers with the version to move to, 90 days after its deprecation unless --now is given.`,
		Args:              cobra.ExactArgs(2),
		ValidArgsFunction: a.completeTools,
		RunE: func(cmd *cobra.Command, args []string) error {
			id, version := splitRef(args[0])
			if version == "" {
				return usagef("name the version: toolkeep lifecycle %s@1.0.0 %s", id, args[1])
			}
			body := map[string]any{"state": args[1]}
			if reason != "" {
				body["reason"] = reason
			}
			if successor != "" {
				body["successor"] = successor
			}
			if date != "" {
				t, err := time.Parse(time.DateOnly, date)
				if err != nil {
					return usagef("--date wants YYYY-MM-DD, not %q", date)
				}
				body["date"] = t.Format(time.RFC3339)
			}
			if now {
				body["now"] = true
			}
			cl, err := a.connect()
			if err != nil {
				return err
			}
			var answer struct {
				Lifecycle toolkeep.Lifecycle `json:"lifecycle"`
			}
			raw, err := cl.post(cmd.Context(), "/api/v1/tools/"+url.PathEscape(id)+"/versions/"+url.PathEscape(version)+"/state", body, &answer)
			if err != nil {
				return err
			}
			return a.show(raw, func(w io.Writer) error {
				_, err := fmt.Fprintf(w, "%s@%s is %s\n", id, version, lifeLine(answer.Lifecycle))
				return err
			})
		},
	}
	f := c.Flags()
	f.StringVar(&reason, "reason", "", "why, shown to callers")
	f.StringVar(&successor, "successor", "", "version to move to")
	f.StringVar(&date, "date", "", "end of execution of a sunset version, or earliest removal (YYYY-MM-DD)")
	f.BoolVar(&now, "now", false, "waive the 90 days before a removal")
	return a.withJSON(c)
}

// completeTools completes tool ids from the running server.
func (a *app) completeTools(cmd *cobra.Command, args []string, prefix string) ([]string, cobra.ShellCompDirective) {
	cl, err := a.connect()
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	ctx, cancel := context.WithTimeout(cmd.Context(), 2*time.Second)
	defer cancel()
	var ids []string
	for page := 1; page <= 50; page++ {
		var list struct {
			Tools      []toolSummary `json:"tools"`
			TotalCount int           `json:"total_count"`
		}
		if _, err := cl.get(ctx, "/api/v1/tools?page_size=200&page="+strconv.Itoa(page), &list); err != nil {
			break
		}
		for _, t := range list.Tools {
			if strings.HasPrefix(t.ToolID, prefix) {
				ids = append(ids, t.ToolID+"\t"+t.short())
			}
		}
		if page*200 >= list.TotalCount {
			break
		}
	}
	return ids, cobra.ShellCompDirectiveNoFileComp
}

// published gives the latest version of a tool with its manifest as it is stored.
func (c *client) published(ctx context.Context, id string) (*describedRaw, error) {
	raw, err := c.do(ctx, http.MethodGet, "/api/v1/tools/"+url.PathEscape(id), nil)
	if err != nil {
		return nil, err
	}
	var t describedRaw
	return &t, decode(raw, &t)
}

type describedRaw struct {
	ToolID   string          `json:"tool_id"`
	Version  string          `json:"version"`
	Manifest json.RawMessage `json:"manifest"`
}
