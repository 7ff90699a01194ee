package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/access/policy"
	"github.com/toolkeep/toolkeep/control/policies"
)

func (a *app) policyCmd() *cobra.Command {
	c := group(&cobra.Command{
		Use:     "policy new|test|show",
		Short:   "Write and test the attribute policy that decides calls after the roles",
		Example: "  toolkeep policy new policy\n  toolkeep policy test policy\n  toolkeep policy show",
	})
	c.AddCommand(a.policyNewCmd(), a.policyTestCmd(), a.policyShowCmd())
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
}

func (a *app) policyTestCmd() *cobra.Command {
	c := &cobra.Command{
		Use:   "test DIR|BUNDLE",
		Short: "Compile a policy and run its tests, as a server does before it takes the policy",
		Long: "Compile the policy of a folder or of a bundle (.tar.gz), and run its tests: rules named test_ in files named\n" +
			"*_test.rego. It says what of the input the policy reads, without a server. The exit code is 1 if a test fails,\n" +
			"and 2 if a server would refuse the policy for another reason.",
		Example: "  toolkeep policy test policy\n  toolkeep policy test bundle.tar.gz --json",
		Args:    arguments(1, 1, "a folder or a bundle (.tar.gz) with the policy"),
		RunE: func(cmd *cobra.Command, args []string) error {
			files, err := policy.Read(args[0])
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
	return a.withJSON(c)
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
