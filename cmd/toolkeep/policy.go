package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/access/policy"
	"github.com/toolkeep/toolkeep/control/policies"
)

func (a *app) policyCmd() *cobra.Command {
	c := group(&cobra.Command{
		Use:     "policy new|test|show|who|what",
		Short:   "Say who may call what; write and test the attribute policy that decides calls after the roles",
		Example: "  toolkeep policy who std.hash\n  toolkeep policy new policy\n  toolkeep policy test policy --replay 100",
	})
	c.AddCommand(a.policyNewCmd(), a.policyTestCmd(), a.policyShowCmd(), a.policyWhoCmd(), a.policyWhatCmd())
	return c
}

func (a *app) policyNewCmd() *cobra.Command {
	return &cobra.Command{
		Use:   "new DIR",
		Short: "Write a policy to start from: it changes nothing, and has examples and a test",
		Long: "Write toolkeep.rego and toolkeep_test.rego into a folder, which is made if it is not there. Files that are there\n" +
			"are not replaced. A server uses the folder with --set access.mode=rbac+abac --set policy.path=DIR.",
		Example: "  toolkeep policy new policy",
		Args:    arguments(1, 1, "the folder to write to"),
		RunE: func(_ *cobra.Command, args []string) error {
			if err := os.MkdirAll(args[0], 0o755); err != nil {
				return usagef("%v", err)
			}
			files := policy.Starter()
			for _, name := range slices.Sorted(maps.Keys(files)) {
				at := filepath.Join(args[0], name)
				f, err := os.OpenFile(at, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
				if errors.Is(err, os.ErrExist) {
					return usagef("%s is there; name another folder, or move it away", at)
				}
				if err != nil {
					return usagef("%v", err)
				}
				_, err = f.Write(files[name])
				if err = errors.Join(err, f.Close()); err != nil {
					return usagef("%v", err)
				}
				fmt.Fprintln(a.stdout, "wrote", at)
			}
			return nil
		},
	}
}

// tested is what `policy test` prints as JSON.
type tested struct {
	Digest string        `json:"digest"`
	Reads  []string      `json:"reads"`
	Tests  []policy.Test `json:"tests"`
	Passed bool          `json:"passed"`
	// Replay is what the policy would have decided about recorded calls, with --replay.
	Replay *policies.Replay `json:"replay,omitempty"`
}

func (a *app) policyTestCmd() *cobra.Command {
	var replay int
	var keys string
	c := &cobra.Command{
		Use:   "test DIR|BUNDLE",
		Short: "Compile a policy and run its tests, as a server does before it takes the policy",
		Long: "Compile the policy of a folder or of a bundle (.tar.gz), and run its tests: rules named test_ in files named\n" +
			"*_test.rego. It says what of the input the policy reads, without a server. The exit code is 1 if a test fails,\n" +
			"and 2 if a server would refuse the policy for another reason.\n\n" +
			"--replay has the server decide its newest calls again by the policy, with what it kept of them, and shows those\n" +
			"that would be decided otherwise. Arguments are not kept, so calls with some cannot be replayed if it reads them.",
		Example: "  toolkeep policy test policy\n  toolkeep policy test bundle.tar.gz --json\n  toolkeep policy test policy --replay 100",
		Args:    arguments(1, 1, "a folder or a bundle (.tar.gz) with the policy"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if cmd.Flags().Changed("replay") {
				if err := between("--replay", replay, 1, policies.MaxReplay); err != nil {
					return err
				}
			}
			files, err := policy.Read(args[0], keys)
			if err != nil {
				return usagef("the policy at %s cannot be used: %v", args[0], err)
			}
			out := tested{Digest: files.Digest(), Passed: true}
			if out.Reads, err = files.Check(cmd.Context()); err == nil {
				out.Tests, err = files.RunTests(cmd.Context())
			}
			if err != nil {
				return usagef("the policy at %s cannot be used: %v", args[0], err)
			}
			for _, t := range out.Tests {
				out.Passed = out.Passed && t.Passed
			}
			if replay > 0 && out.Passed {
				if out.Replay, err = a.replay(cmd, files, replay); err != nil {
					return err
				}
			}
			raw, err := json.Marshal(out)
			if err != nil {
				return err
			}
			if err := a.show(raw, out.print); err != nil {
				return err
			}
			if !out.Passed {
				return &failure{code: exitToolFailed, err: errors.New("a test of the policy failed"), quiet: true}
			}
			return nil
		},
	}
	c.Flags().StringVar(&keys, "key", "", "file of public keys that the policy must be signed by, as for policy.bundle_key_file")
	c.Flags().IntVar(&replay, "replay", 0, "also decide the server's newest calls again, this many, at most 1000")
	return a.withJSON(c)
}

// replay asks the server what the policy would have decided.
func (a *app) replay(cmd *cobra.Command, files policy.Files, n int) (*policies.Replay, error) {
	cl, err := a.connect()
	if err != nil {
		return nil, err
	}
	texts := make(map[string]string, len(files))
	for name, raw := range files {
		texts[name] = string(raw)
	}
	raw, err := cl.do(cmd.Context(), http.MethodPost, "/api/v1/policies/replay", map[string]any{"files": texts, "last": n})
	if err != nil {
		return nil, err
	}
	out := &policies.Replay{}
	return out, decode(raw, out)
}

// printReplay shows what would change.
func printReplay(w io.Writer, r *policies.Replay) error {
	if len(r.Changed) > 0 {
		err := table(w, "CALL|WHEN|AGENT|TOOL|WAS|WOULD BE|WHY", func(row func(...any)) {
			for _, c := range r.Changed {
				why := c.Reason
				if c.Rule != "" {
					why += " (rule " + c.Rule + ")"
				}
				row(c.InvocationID, c.At.Local().Format(time.DateTime), c.AgentID, joinRef(c.ToolID, c.ToolVersion), c.Was, c.Would, why)
			}
		})
		if err != nil {
			return err
		}
	}
	missing := map[string]int{}
	for _, u := range r.Unknown {
		missing[strings.Join(u.Missing, ", ")]++
	}
	for _, what := range slices.Sorted(maps.Keys(missing)) {
		fmt.Fprintf(w, "%d calls cannot be replayed: %s was not kept\n", missing[what], what)
	}
	if r.TimedOut {
		fmt.Fprintln(w, "the time for a replay ended before the last call")
	}
	_, err := fmt.Fprintf(w, "%d calls: %d would change, %d would not, %d were refused before a policy is asked, %d cannot be replayed\n",
		r.Calls, len(r.Changed), r.Same, r.NotAsked, len(r.Unknown))
	return err
}

func (a *app) policyWhoCmd() *cobra.Command {
	var page, size int
	c := &cobra.Command{
		Use:   "who TOOL[@VERSION]",
		Short: "Say which API keys may call a tool",
		Long: "Decide for each valid API key of your tenant whether its holder may call the tool: roles, scope, the tool's own\n" +
			"demands, the policy, and whether a person must approve. The policy is asked about a call without arguments;\n" +
			"toolkeep explain decides one exactly. Callers by access token are not known to the server.",
		Example: "  toolkeep policy who std.hash\n  toolkeep policy who shop.refund@^2 --json",
		Args:    arguments(1, 1, "the tool's id"),
		RunE: func(cmd *cobra.Command, args []string) error {
			tool, rng, err := splitRef(args[0])
			if err != nil {
				return err
			}
			q := url.Values{"tool_id": {tool}}
			if rng != "" {
				q.Set("tool_version", rng)
			}
			return a.rights(cmd, "who", q, page, size, "there is no valid API key")
		},
	}
	pageFlags(c, &page, &size, "keys")
	return a.withJSON(c)
}

func (a *app) policyWhatCmd() *cobra.Command {
	var page, size int
	var key string
	c := &cobra.Command{
		Use:   "what SUBJECT",
		Short: "Say which tools a subject's API keys may call",
		Long: "Decide for each tool that you see whether the subject may call it with its valid API keys; see who. The policy is\n" +
			"asked about a call without arguments.",
		Example: "  toolkeep policy what billing-agent\n  toolkeep policy what billing-agent --page 2 --json",
		Args:    arguments(1, 1, "whom the keys are for"),
		RunE: func(cmd *cobra.Command, args []string) error {
			q := url.Values{"subject": {args[0]}}
			if key != "" {
				q.Set("key_id", key)
			}
			return a.rights(cmd, "what", q, page, size, "there is no tool that you may see")
		},
	}
	c.Flags().StringVar(&key, "key", "", "the id of one of its keys; without it, all")
	pageFlags(c, &page, &size, "tools")
	return a.withJSON(c)
}

func pageFlags(c *cobra.Command, page, size *int, of string) {
	c.Flags().IntVar(page, "page", 1, "page, from 1")
	c.Flags().IntVar(size, "page-size", 50, of+" a page, at most 200")
}

// rights shows a page of who may call what.
func (a *app) rights(cmd *cobra.Command, which string, q url.Values, page, size int, none string) error {
	if err := errors.Join(between("--page", page, 1, 1_000_000), between("--page-size", size, 1, 200)); err != nil {
		return err
	}
	q.Set("page", strconv.Itoa(page))
	q.Set("page_size", strconv.Itoa(size))
	var list struct {
		Rights     []policies.Right `json:"rights"`
		Reads      []string         `json:"reads"`
		TotalCount int              `json:"total_count"`
	}
	return a.ask(cmd.Context(), http.MethodGet, "/api/v1/policies/"+which+"?"+q.Encode(), nil, &list, func(w io.Writer) error {
		keys := map[string]bool{}
		err := table(w, "SUBJECT|KEY|ROLES|TOOL|DECISION|WHY", func(row func(...any)) {
			for _, r := range list.Rights {
				keys[r.KeyID] = true
				why := r.Reason
				if r.Rule != "" {
					why += " (rule " + r.Rule + ")"
				}
				row(r.Subject, r.KeyID, strings.Join(r.Roles, ","), joinRef(r.ToolID, r.ToolVersion), r.Decision, why)
			}
		})
		shown := len(list.Rights)
		if which == "what" && len(keys) > 1 { // a row for each key of each tool
			shown /= len(keys)
		}
		a.moreOf(page, size, shown, list.TotalCount, false, none)
		return err
	})
}

func (o *tested) print(w io.Writer) error {
	failed := 0
	for _, t := range o.Tests {
		if !t.Passed {
			failed++
			fmt.Fprintf(w, "FAIL %s (%s:%d): %s\n", t.Name, t.File, t.Line, t.Reason)
		}
	}
	reads := "nothing of the input"
	if len(o.Reads) > 0 {
		reads = strings.Join(o.Reads, ", ")
	}
	_, err := fmt.Fprintf(w, "%d tests passed, %d failed\nreads %s\n%s\n", len(o.Tests)-failed, failed, reads, o.Digest)
	if err == nil && o.Replay != nil {
		err = printReplay(w, o.Replay)
	}
	return err
}

func (a *app) policyShowCmd() *cobra.Command {
	c := &cobra.Command{
		Use:     "show",
		Short:   "Show which policy the server asks, since when, and why a change was not taken",
		Example: "  toolkeep policy show\n  toolkeep policy show --json",
		Args:    noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			var list struct {
				Policies []policies.Policy `json:"policies"`
			}
			return a.ask(cmd.Context(), http.MethodGet, "/api/v1/policies", nil, &list, func(w io.Writer) error {
				if len(list.Policies) == 0 {
					_, err := fmt.Fprintln(w, "roles decide alone (access.mode is rbac)")
					return err
				}
				for _, p := range list.Policies {
					fmt.Fprintf(w, "%s\n  in use since %s, %d tests\n", p.Source, p.LoadedAt.Format(time.DateTime), p.Tests)
					for _, line := range []struct{ name, text string }{{"rules", strings.Join(p.Rules, ", ")}, {"reads", strings.Join(p.Reads, ", ")}, {"digest", p.Digest}} {
						if line.text != "" {
							fmt.Fprintf(w, "  %s %s\n", line.name, line.text)
						}
					}
					d := p.Decided
					fmt.Fprintf(w, "  %d evaluated, %d from kept answers, %d denied, %d failed\n", d.Evaluated, d.Kept, d.Denied, d.Failed)
					if p.Refused != "" {
						fmt.Fprintf(w, "  NOT TAKEN at %s: %s\n", p.RefusedAt.Format(time.DateTime), toolkeep.ClipBytes(p.Refused, 2000))
					}
				}
				return nil
			})
		},
	}
	return a.withJSON(c)
}
