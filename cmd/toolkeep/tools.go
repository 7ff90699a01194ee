package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/suggest"
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
	Callable         *bool    `json:"callable"` // nil from servers before it was told
	Held             *toolkeep.Hold
	Authentication   *authentication `json:"authentication"`
}

func (t toolSummary) notCallable() bool { return t.Callable != nil && !*t.Callable }

// authentication is the state of a tool's secrets for the caller.
type authentication struct {
	State   string `json:"state"`
	Type    string `json:"type"`
	Scope   string `json:"scope"`
	Store   string `json:"store"`
	Checked bool   `json:"checked"`
}

// String returns the state in a word or two, "" if the tool needs no secret.
func (a *authentication) String() string {
	switch {
	case a == nil:
		return ""
	case a.State == "ready" && a.Scope != "":
		return a.State + " (" + a.Scope + ")"
	case a.State == "ready" && !a.Checked:
		return "not asked (" + a.Store + ")"
	}
	return a.State
}

func (t toolSummary) short() string {
	s := t.ShortDescription
	if s == "" {
		s, _, _ = strings.Cut(t.Description, "\n")
	}
	return s
}

// joinRef is the inverse of splitRef.
func joinRef(id, version string) string {
	if version == "" {
		return id
	}
	return id + "@" + version
}

// splitRef splits namespace.name@range. It refuses an empty range after the @, which is usually an unset variable
// in a script.
func splitRef(ref string) (tool, rng string, err error) {
	tool, rng, at := strings.Cut(ref, "@")
	switch {
	case tool == "":
		return "", "", usagef("%q is not a tool; write namespace.name, such as std.hash or std.hash@^1", ref)
	case at && rng == "":
		return "", "", usagef("the version after the @ of %q is missing; leave the @ out for the latest", ref)
	}
	return tool, rng, nil
}

func (a *app) toolsCmd() *cobra.Command {
	var category, tag, capability, namespace string
	var deprecated bool
	var page, size int
	c := &cobra.Command{
		Use:     "tools",
		Short:   "List the tools that your key may see, or show how well one works",
		Example: "  toolkeep tools\n  toolkeep tools health bookshop.createOrder\n  toolkeep tools --namespace bookshop --json\n  toolkeep tools --page-size 50 --page 2",
		Args:    noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := errors.Join(between("--page", page, 1, 1_000_000), between("--page-size", size, 1, 200)); err != nil {
				return err
			}
			q := url.Values{}
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
			var list struct {
				Tools      []toolSummary `json:"tools"`
				TotalCount int           `json:"total_count"`
			}
			return a.ask(cmd.Context(), http.MethodGet, "/api/v1/tools?"+q.Encode(), nil, &list, func(w io.Writer) error {
				head := "TOOL|VERSION|EFFECTS|RISK"
				secrets := slices.ContainsFunc(list.Tools, func(t toolSummary) bool { return t.Authentication != nil })
				if secrets {
					head += "|SECRET"
				}
				refused := slices.ContainsFunc(list.Tools, toolSummary.notCallable)
				if refused {
					head += "|YOU MAY CALL IT"
				}
				err := table(w, head+"|DESCRIPTION", func(row func(...any)) {
					for _, t := range list.Tools {
						version := t.LatestVersion
						if t.Held != nil {
							version += " (held)"
						} else if t.State != "active" {
							version += " (" + t.State + ")"
						}
						cells := []any{t.ToolID, version, t.SideEffects, t.Risk}
						if secrets {
							cells = append(cells, t.Authentication)
						}
						if refused && t.notCallable() {
							cells = append(cells, "no")
						} else if refused {
							cells = append(cells, "yes")
						}
						row(append(cells, t.short())...)
					}
				})
				a.more(page, size, len(list.Tools), list.TotalCount, "no tool fits that you may see"+a.namespaceMeant(cmd.Context(), namespace, list.TotalCount))
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
	_ = c.RegisterFlagCompletionFunc("namespace", a.completeNamespaces)
	c.AddCommand(a.toolHealthCmd())
	return a.withJSON(c)
}

func or(s, absent string) string {
	if s == "" {
		return absent
	}
	return s
}

// quote quotes s as one shell word.
func quote(s string) string {
	if s != "" && !strings.ContainsFunc(s, special) {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}

// special reports whether a shell may treat the rune specially.
func special(r rune) bool {
	return !strings.ContainsRune("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-./:@=", r)
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
	if l.Folder != "" {
		s += ", applied from the folder " + l.Folder
	}
	if l.Held != nil {
		s += ", held: " + l.Held.Why
	}
	return s
}

func (a *app) diffCmd() *cobra.Command {
	c := &cobra.Command{
		Use:               "diff TOOL@FROM TOOL@TO",
		Short:             "Compare two versions: what breaks callers, what is new",
		Example:           "  toolkeep diff std.hash@1.0.0 std.hash@1.1.0\n  toolkeep diff std.hash@1.0.0 latest --json",
		Args:              arguments(2, 2, "two versions, as std.hash@1.0.0 std.hash@2.0.0"),
		ValidArgsFunction: a.completeTools,
		RunE: func(cmd *cobra.Command, args []string) error {
			id, from, err := splitRef(args[0])
			if err != nil {
				return err
			}
			other, to := id, args[1]
			if strings.Contains(to, "@") {
				if other, to, err = splitRef(to); err != nil {
					return err
				}
			}
			if other != id || from == "" || to == "" {
				return usagef("name two versions of one tool: toolkeep diff %s@1.0.0 %s@2.0.0", id, id)
			}
			var d struct {
				From, To, Bump string
				Differences    []struct{ Pointer, Kind, Message string }
			}
			return a.ask(cmd.Context(), http.MethodGet, "/api/v1/tools/"+url.PathEscape(id)+"/diff?"+url.Values{"from": {from}, "to": {to}}.Encode(), nil, &d, func(w io.Writer) error {
				if len(d.Differences) == 0 {
					_, err := fmt.Fprintf(w, "%s: %s and %s are the same\n", id, d.From, d.To)
					return err
				}
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
	var now, yes bool
	c := &cobra.Command{
		Use:   "lifecycle TOOL@VERSION|PATTERN active|deprecated|sunset|blocked|removed",
		Short: "Change the state of a version, or of all versions that a pattern fits",
		Long: `Change the state of a version. A deprecated version still executes, with a warning; a sunset
version executes until its date, and only if its exact version is named; a blocked one never executes; a
removed one answers with the version to move to. Removal needs 90 days of deprecation, or --now.

A pattern, such as 'big.*' or 'big.*@1.0.0', is quoted for the shell. It is every version of the tools in
` + "`toolkeep tools --deprecated`" + ` that it fits, but for those that are in the state already or removed. They are
shown first; on a terminal type yes, elsewhere repeat the command with --yes. Where some cannot be changed, the
others are, and the exit code is 1.`,
		Example: `  toolkeep lifecycle demo.greet@1.0.0 deprecated --successor 1.1.0 --reason 'wrong for names with accents'
  toolkeep lifecycle demo.greet@1.0.0 sunset --date 2027-09-01
  toolkeep lifecycle demo.greet@1.1.0 blocked --reason 'leaks addresses'
  toolkeep lifecycle demo.greet@1.0.0 removed --now
  toolkeep lifecycle 'big.*' deprecated --reason 'use shop.*' --yes`,
		Args:              arguments(2, 2, "a version and its new state, as demo.greet@1.0.0 deprecated"),
		ValidArgsFunction: a.completeLifecycle,
		RunE: func(cmd *cobra.Command, args []string) error {
			id, version, err := splitRef(args[0])
			if err != nil {
				return err
			}
			if !slices.Contains(versionStates, args[1]) {
				return usagef("%q is not a state; the states are %s, as in toolkeep lifecycle demo.greet@1.0.0 deprecated", args[1], strings.Join(versionStates, ", "))
			}
			pattern := strings.ContainsAny(id, "*?[")
			if version == "" && !pattern {
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
					return usagef("--date must be YYYY-MM-DD, not %q", date)
				}
				body["date"] = t.Format(time.RFC3339)
			}
			if now {
				body["now"] = true
			}
			if pattern {
				return a.changeAll(cmd.Context(), id, version, body, yes)
			}
			var answer struct {
				Lifecycle toolkeep.Lifecycle `json:"lifecycle"`
			}
			return a.ask(cmd.Context(), http.MethodPost, "/api/v1/tools/"+url.PathEscape(id)+"/versions/"+url.PathEscape(version)+"/state", body, &answer, func(w io.Writer) error {
				_, err := fmt.Fprintf(w, "%s@%s is %s\n", id, version, lifeLine(answer.Lifecycle))
				return err
			})
		},
	}
	f := c.Flags()
	f.StringVar(&reason, "reason", "", "why, shown to callers")
	f.StringVar(&successor, "successor", "", "version to move to")
	f.StringVar(&date, "date", "", "end of execution of a sunset version, or earliest removal (YYYY-MM-DD)")
	f.BoolVar(&now, "now", false, "remove without waiting 90 days")
	f.BoolVar(&yes, "yes", false, "of a pattern: do it, without asking")
	return a.withJSON(c)
}

var versionStates = []string{"active", "deprecated", "sunset", "blocked", "removed"}

// completeLifecycle completes tool, version, and then the state.
func (a *app) completeLifecycle(cmd *cobra.Command, args []string, prefix string) ([]string, cobra.ShellCompDirective) {
	switch len(args) {
	case 0:
		return a.completeTools(cmd, args, prefix)
	case 1:
		return versionStates, cobra.ShellCompDirectiveNoFileComp
	}
	return nil, cobra.ShellCompDirectiveNoFileComp
}

// completeTools completes a tool id, and after an @ its version.
func (a *app) completeTools(cmd *cobra.Command, args []string, prefix string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 && cmd.Name() != "diff" || len(args) > 1 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return a.completing(cmd, func(ctx context.Context, cl *client) []string {
		if id, version, ok := strings.Cut(prefix, "@"); ok {
			return cl.versionsWith(ctx, id, version)
		}
		return cl.toolsWith(ctx, prefix)
	})
}

func (c *client) versionsWith(ctx context.Context, id, prefix string) (refs []string) {
	var all versionList
	if _, err := c.get(ctx, "/api/v1/tools/"+url.PathEscape(id)+"/versions", &all); err != nil {
		return nil
	}
	for _, v := range all.Versions {
		if strings.HasPrefix(v.Version, prefix) {
			refs = append(refs, id+"@"+v.Version+"\t"+string(v.Lifecycle.State))
		}
	}
	return refs
}

// maxCompletions limits the offered completions.
const maxCompletions = 1000

func (c *client) toolsWith(ctx context.Context, prefix string) (ids []string) {
	namespace, _, named := strings.Cut(prefix, ".")
	if !named {
		namespace = ""
	}
	// An error offers what came before it.
	_ = c.eachTool(ctx, namespace, func(t toolSummary) bool {
		if strings.HasPrefix(t.ToolID, prefix) {
			ids = append(ids, t.ToolID+"\t"+toolkeep.Clip(t.short(), 70))
		}
		return len(ids) < maxCompletions
	})
	return ids
}

// namespaces lists the namespaces of the tools that the key may see.
func (c *client) namespaces(ctx context.Context) (all []string) {
	// An error offers what came before it.
	_ = c.eachTool(ctx, "", func(t toolSummary) bool {
		name, _, _ := strings.Cut(t.ToolID, ".")
		if at, found := slices.BinarySearch(all, name); !found {
			all = slices.Insert(all, at, name)
		}
		return len(all) < maxCompletions
	})
	return all
}

func (a *app) completeNamespaces(cmd *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
	return a.completing(cmd, func(ctx context.Context, cl *client) []string { return cl.namespaces(ctx) })
}

// namespaceMeant asks whether another namespace is meant, where one is given and has no tools.
func (a *app) namespaceMeant(ctx context.Context, given string, found int) string {
	cl, err := a.connect()
	if given == "" || found > 0 || err != nil {
		return ""
	}
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	all := cl.namespaces(ctx)
	if meant := suggest.Suggest(given, all); meant != "" && meant != given {
		return "; did you mean the namespace " + meant + "?"
	}
	return ""
}

// eachTool visits the active tools of a namespace, "" for all, until visit returns false.
func (c *client) eachTool(ctx context.Context, namespace string, visit func(toolSummary) bool) error {
	q := url.Values{}
	if namespace != "" {
		q.Set("namespace", namespace)
	}
	return c.eachToolOf(ctx, q, visit)
}

// eachToolOf is eachTool for the tools of a query.
func (c *client) eachToolOf(ctx context.Context, q url.Values, visit func(toolSummary) bool) error {
	const size = 200
	q.Set("page_size", strconv.Itoa(size))
	for page := 1; ; page++ {
		var list struct {
			Tools      []toolSummary `json:"tools"`
			TotalCount int           `json:"total_count"`
		}
		q.Set("page", strconv.Itoa(page))
		if _, err := c.get(ctx, "/api/v1/tools?"+q.Encode(), &list); err != nil {
			return err
		}
		for _, t := range list.Tools {
			if !visit(t) {
				return nil
			}
		}
		if len(list.Tools) == 0 || page*size >= list.TotalCount {
			return nil
		}
	}
}

// published returns a version of a tool with its stored manifest; an empty range is the latest.
func (c *client) published(ctx context.Context, id, rng string) (*describedRaw, error) {
	raw, err := c.do(ctx, http.MethodGet, "/api/v1/tools/"+url.PathEscape(id)+"?version="+url.QueryEscape(rng), nil)
	if err != nil {
		return nil, err
	}
	var t describedRaw
	return &t, decode(raw, &t)
}

// newest returns the highest version of a tool in any state: a re-import also continues from a blocked version,
// whose number is taken.
func (c *client) newest(ctx context.Context, id string) (*describedRaw, error) {
	var all struct {
		Versions []struct {
			Version string `json:"version"`
		} `json:"versions"`
	}
	if _, err := c.get(ctx, "/api/v1/tools/"+url.PathEscape(id)+"/versions", &all); err != nil {
		return nil, err
	}
	if len(all.Versions) == 0 {
		return nil, fmt.Errorf("the server lists %s without versions", id)
	}
	return c.published(ctx, id, all.Versions[0].Version)
}

type describedRaw struct {
	ToolID   string          `json:"tool_id"`
	Version  string          `json:"version"`
	Manifest json.RawMessage `json:"manifest"`
}
