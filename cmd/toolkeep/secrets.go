package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/toolkeep/toolkeep/control/secrets"
	"github.com/toolkeep/toolkeep/secret"
)

// maxSecret is the maximum size of a value; reading one more byte detects a larger one.
const maxSecret = 64 << 10

func (a *app) secretsCmd() *cobra.Command {
	c := group(&cobra.Command{
		Use:   "secrets set|list|test|delete|rotate",
		Short: "Manage the secrets that tools authenticate with; their values are sealed and never shown",
		Example: "  toolkeep secrets set github < token.txt\n  toolkeep secrets list\n" +
			"  toolkeep secrets test secret://github\n  toolkeep secrets rotate --seal-key",
	})
	c.AddCommand(a.secretsSetCmd(), a.secretsListCmd(), a.secretsTestCmd(), a.secretsDeleteCmd(), a.secretsRotateCmd())
	return c
}

// secretScope holds the scope flags of a secret.
type secretScope struct{ scope, user, workspace string }

func (s *secretScope) flags(c *cobra.Command) {
	f := c.Flags()
	f.StringVar(&s.scope, "scope", "", "user (default), workspace or organisation")
	f.StringVar(&s.user, "user", "", "a user other than you")
	f.StringVar(&s.workspace, "workspace", "", "the workspace; without it your key's")
	_ = c.RegisterFlagCompletionFunc("scope", cobra.FixedCompletions([]string{"user", "workspace", "organisation"}, cobra.ShellCompDirectiveNoFileComp))
}

// fields returns the request fields. Naming a workspace or user sets the scope.
func (s *secretScope) fields() (map[string]string, error) {
	s.scope = string(secret.ScopeNamed(s.scope))
	if s.scope == "" && s.workspace != "" {
		s.scope = "workspace"
	}
	switch {
	case s.scope != "" && s.scope != "user" && s.scope != "workspace" && s.scope != "organisation":
		return nil, usagef("--scope must be user, workspace or organisation, not %s", s.scope)
	case s.workspace != "" && s.scope != "workspace":
		return nil, usagef("--workspace goes with --scope workspace")
	case s.user != "" && s.scope != "" && s.scope != "user":
		return nil, usagef("--user goes with --scope user")
	}
	out := map[string]string{}
	for name, v := range map[string]string{"scope": s.scope, "user": s.user, "workspace": s.workspace} {
		if v != "" {
			out[name] = v
		}
	}
	return out, nil
}

// whose returns the scope with its owner.
func whose(s secrets.Info) string {
	if owner := s.User + s.Workspace; owner != "" {
		return s.Scope + " " + owner
	}
	return s.Scope
}

func (a *app) secretsSetCmd() *cobra.Command {
	var where secretScope
	var file string
	var expires time.Duration
	c := &cobra.Command{
		Use:   "set NAME",
		Short: "Set a secret; tools name it secret://NAME, and the next call uses it",
		Long: "Set a secret from standard input, or a file; a newline at its end is dropped. The value is never given on the\n" +
			"command line, which other processes and the shell's history can see. If a name has values in several scopes, a\n" +
			"call uses the user's, else the workspace's, else the organisation's.",
		Example: `  toolkeep secrets set github < token.txt
  pass show shop/token | toolkeep secrets set shop --scope organisation
  toolkeep secrets set shop --workspace billing --file token.txt --expires 720h`,
		Args: arguments(1, 1, "the name of the secret; its value comes from standard input or --file"),
		RunE: func(cmd *cobra.Command, args []string) error {
			ends, err := expiresAt(cmd, expires)
			if err != nil {
				return err
			}
			fields, err := where.fields()
			if err != nil {
				return err
			}
			cl, err := a.connect()
			if err != nil {
				return err
			}
			value, err := a.secretValue(file)
			if err != nil {
				return err
			}
			defer clear(value)
			if !utf8.Valid(value) || bytes.IndexByte(value, 0) >= 0 {
				return usagef("the value is not text: it has a NUL or bytes that are not UTF-8")
			}
			switch n := utf8.RuneCount(bytes.TrimSpace(value)); {
			case n < 4:
				fmt.Fprintln(a.stderr, "toolkeep: a value of fewer than 4 characters is not taken out of results, errors and logs: use a longer one")
			case n < 8:
				fmt.Fprintln(a.stderr, "toolkeep: a value of fewer than 8 characters cannot safely be taken out of results, errors and logs: use a longer one")
			}
			body := map[string]any{"value": string(value)}
			for k, v := range fields {
				body[k] = v
			}
			if ends != "" {
				body["expires_at"] = ends
			}
			raw, err := cl.do(cmd.Context(), http.MethodPut, "/api/v1/secrets/"+url.PathEscape(args[0]), body)
			if err != nil {
				return err
			}
			var info secrets.Info
			if err := json.Unmarshal(raw, &info); err != nil {
				return err
			}
			return a.show(raw, func(w io.Writer) error {
				_, err := fmt.Fprintf(w, "The secret %s (%s) has version %d.\n", info.Name, whose(info), info.Version)
				return err
			})
		},
	}
	where.flags(c)
	c.Flags().StringVar(&file, "file", "", "file with the value; without it standard input")
	c.Flags().DurationVar(&expires, "expires", 0, "lifetime, such as 720h; without it it does not expire")
	return a.withJSON(c)
}

// secretValue reads the value.
func (a *app) secretValue(file string) ([]byte, error) {
	from := a.stdin
	if file != "" && file != "-" {
		f, err := os.Open(file)
		if err != nil {
			return nil, usagef("the value cannot be read: %v", err)
		}
		defer f.Close()
		from = f
	} else if terminal, ok := a.stdin.(*os.File); ok {
		if fi, err := terminal.Stat(); err == nil && fi.Mode()&os.ModeCharDevice != 0 {
			fmt.Fprintln(a.stderr, "toolkeep: the value is read from here, and seen while you type; end it with Ctrl-D")
		}
	}
	value, err := io.ReadAll(io.LimitReader(from, maxSecret+2))
	if err != nil {
		return nil, usagef("the value cannot be read: %v", err)
	}
	text := strings.TrimSuffix(strings.TrimSuffix(string(value), "\n"), "\r")
	clear(value)
	switch {
	case text == "":
		return nil, usagef("the value is empty; give it on standard input or with --file")
	case len(text) > maxSecret:
		return nil, usagef("the value is over 64 KiB")
	}
	return []byte(text), nil
}

func (a *app) secretsListCmd() *cobra.Command {
	var page, size int
	c := &cobra.Command{
		Use:     "list",
		Short:   "List the secrets that your calls can use, without their values",
		Example: "  toolkeep secrets list\n  toolkeep secrets list --json --page 2",
		Args:    noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := errors.Join(between("--page", page, 1, 1_000_000), between("--page-size", size, 1, 200)); err != nil {
				return err
			}
			var list struct {
				Secrets    []secrets.Info `json:"secrets"`
				TotalCount int            `json:"total_count"`
			}
			return a.ask(cmd.Context(), http.MethodGet, fmt.Sprintf("/api/v1/secrets?page=%d&page_size=%d", page, size), nil, &list, func(w io.Writer) error {
				a.more(page, size, len(list.Secrets), list.TotalCount, "there is no secret")
				if slices.ContainsFunc(list.Secrets, func(s secrets.Info) bool { return s.State == "unreadable" }) {
					fmt.Fprintln(a.stderr, "toolkeep: unreadable secrets were sealed with a key that the server does not have: put that key back, or set them again")
				}
				return table(w, "NAME|SCOPE|VERSION|STATE|UPDATED|TOOLS", func(row func(...any)) {
					for _, s := range list.Secrets {
						state := s.State
						if s.ExpiresAt != nil {
							state += " until " + s.ExpiresAt.Format(time.DateOnly)
							if s.State == "expired" {
								state = "expired " + s.ExpiresAt.Format(time.DateOnly)
							}
						}
						row(s.Name, whose(s), s.Version, state, s.UpdatedAt.Format(time.DateOnly), strings.Join(s.Tools, ","))
					}
				})
			})
		},
	}
	c.Flags().IntVar(&page, "page", 1, "page, from 1")
	c.Flags().IntVar(&size, "page-size", 200, "secrets a page, at most 200")
	return a.withJSON(c)
}

func (a *app) secretsTestCmd() *cobra.Command {
	var user, workspace string
	c := &cobra.Command{
		Use:   "test NAME|REFERENCE",
		Short: "Read a secret as your calls would, and show which scope it comes from",
		Example: `  toolkeep secrets test github
  toolkeep secrets test vault://secret/acme/shop#token
  toolkeep secrets test shop --user carol --workspace billing`,
		Args: arguments(1, 1, "the name of a secret, or a reference such as vault://secret/acme/shop#token"),
		RunE: func(cmd *cobra.Command, args []string) error {
			body := map[string]any{"reference": args[0]}
			if user != "" {
				body["user"] = user
			}
			if workspace != "" {
				body["workspace"] = workspace
			}
			var st secrets.State
			err := a.ask(cmd.Context(), http.MethodPost, "/api/v1/secrets/test", body, &st, func(w io.Writer) error {
				line := st.Reference + ": " + st.State
				for _, part := range []struct{ name, value string }{{"scope", st.Scope}, {"store", st.Store}, {"version", st.Version}} {
					if part.value != "" {
						line += ", " + part.name + " " + part.value
					}
				}
				if st.ExpiresAt != nil {
					line += ", expires " + st.ExpiresAt.Format(time.RFC3339)
				}
				if st.Stale {
					line += " (the secret store cannot be reached; this is its last value)"
				}
				_, err := fmt.Fprintln(w, line)
				return err
			})
			if err == nil && st.State != "ready" {
				return &failure{code: exitRefused, err: errors.New(st.Reason)}
			}
			return err
		},
	}
	c.Flags().StringVar(&user, "user", "", "test as this user")
	c.Flags().StringVar(&workspace, "workspace", "", "test as this workspace")
	return a.withJSON(c)
}

func (a *app) secretsDeleteCmd() *cobra.Command {
	var where secretScope
	c := &cobra.Command{
		Use:     "delete NAME",
		Short:   "Delete a secret; calls then use the one of a broader scope, if there is one",
		Example: "  toolkeep secrets delete github\n  toolkeep secrets delete shop --scope organisation",
		Args:    arguments(1, 1, "the name of the secret"),
		RunE: func(cmd *cobra.Command, args []string) error {
			fields, err := where.fields()
			if err != nil {
				return err
			}
			q := url.Values{}
			for k, v := range fields {
				q.Set(k, v)
			}
			path := "/api/v1/secrets/" + url.PathEscape(args[0])
			if len(q) > 0 {
				path += "?" + q.Encode()
			}
			return a.act(cmd.Context(), http.MethodDelete, path, nil, map[string]any{"name": args[0], "deleted": true},
				fmt.Sprintf("The secret %s (%s) is deleted.", args[0], or(where.scope, "user")))
		},
	}
	where.flags(c)
	return a.withJSON(c)
}

func (a *app) secretsRotateCmd() *cobra.Command {
	var sealKey, only bool
	c := &cobra.Command{
		Use:   "rotate --seal-key",
		Short: "Make a new sealing key and reseal all stored secrets with it",
		Long: "Make a new sealing key and reseal all stored data with it: secrets, logins at MCP servers, contexts, values of MCP\n" +
			"servers' definitions. The old keys stay, so data that is still sealed with them can be read at any time;\n" +
			"--reseal-only finishes a rotation that ended half way. To change a secret, set it again.",
		Example: "  toolkeep secrets rotate --seal-key\n  toolkeep secrets rotate --seal-key --reseal-only   # the newest key is there already",
		Args:    noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if !sealKey {
				return usagef("--seal-key is missing; to rotate a single secret, set it again")
			}
			var done secrets.Resealed
			err := a.ask(cmd.Context(), http.MethodPost, "/api/v1/secrets/rotate", map[string]any{"new_key": !only}, &done, func(w io.Writer) error {
				_, err := fmt.Fprintf(w, "The key %s seals now; there are %d keys. Resealed: %d, unchanged: %d, failed: %d.\n", done.Key, done.Keys, done.Resealed, done.Unchanged, done.Failed)
				return err
			})
			if err == nil && done.Failed > 0 {
				return &failure{code: exitToolFailed, err: fmt.Errorf("%d items are still sealed with an old key; the server's log says why", done.Failed)}
			}
			return err
		},
	}
	c.Flags().BoolVar(&sealKey, "seal-key", false, "rotate the key that seals stored data")
	c.Flags().BoolVar(&only, "reseal-only", false, "make no new key; reseal with the newest one")
	return a.withJSON(c)
}
