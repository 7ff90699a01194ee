package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"runtime"

	"github.com/spf13/cobra"
	"go.yaml.in/yaml/v3"
)

func (a *app) configCmd() *cobra.Command {
	c := group(&cobra.Command{
		Use:     "config check|print",
		Short:   "Check the settings, or print what is in force and where it comes from",
		Example: "  toolkeep config check --config toolkeep.yaml\n  toolkeep config print",
	})
	var f serveFlags
	check := &cobra.Command{
		Use:   "check",
		Short: "Check the settings as serve would, and report everything that is wrong",
		Long: `Check the settings as serve would, and report everything that is wrong. Settings come from flags, the
environment, the YAML file and the defaults, in this order; docs/configuration.md lists them.`,
		Example: "  toolkeep config check --config toolkeep.yaml\n  toolkeep config check --set limits.agent_per_minute=1000 --json",
		Args:    noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := a.load(cmd, &f)
			if err := checkSettings(cmd.Context(), c, err); err != nil {
				return err
			}
			raw, err := json.Marshal(map[string]any{"ok": true, "notes": append([]string{}, c.Notes...)})
			if err != nil {
				return err
			}
			return a.show(raw, func(w io.Writer) error {
				for _, n := range c.Notes {
					fmt.Fprintln(w, "note:", n)
				}
				_, err := fmt.Fprintln(w, "The settings are valid.")
				return err
			})
		},
	}
	var g serveFlags
	show := &cobra.Command{
		Use:     "print",
		Short:   "Print every setting as YAML, with where it comes from; secrets are masked",
		Long:    "Print every setting as YAML, with where it comes from in a comment; secrets are masked. Other forms have no comments.",
		Example: "  toolkeep config print\n  toolkeep config print --config toolkeep.yaml | grep -v default\n  toolkeep config print --jq .http.addr",
		Args:    noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := a.load(cmd, &g)
			if err != nil {
				return err
			}
			// Written at once, so that `| head` does not break the pipe.
			var all bytes.Buffer
			if err := c.Print(&all); err != nil {
				return err
			}
			if !a.json {
				_, err = all.WriteTo(a.stdout)
				return err
			}
			var tree any
			if err := yaml.Unmarshal(all.Bytes(), &tree); err != nil {
				return err
			}
			raw, err := json.Marshal(tree)
			if err != nil {
				return err
			}
			return a.printJSON(raw)
		},
	}
	f.add(check)
	g.add(show)
	c.AddCommand(a.withJSON(check), a.withJSON(show))
	return c
}

func (a *app) versionCmd() *cobra.Command {
	c := &cobra.Command{
		Use:     "version",
		Short:   "Print the version",
		Example: "  toolkeep version\n  toolkeep version --json",
		Args:    noArguments,
		RunE: func(*cobra.Command, []string) error {
			raw, err := json.Marshal(map[string]string{"version": version, "go": runtime.Version(), "os": runtime.GOOS, "arch": runtime.GOARCH})
			if err != nil {
				return err
			}
			return a.show(raw, func(w io.Writer) error {
				_, err := fmt.Fprintf(w, "toolkeep %s (%s, %s/%s)\n", version, runtime.Version(), runtime.GOOS, runtime.GOARCH)
				return err
			})
		},
	}
	return a.withJSON(c)
}
