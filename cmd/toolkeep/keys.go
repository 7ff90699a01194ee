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
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/node"
)

func (a *app) keysCmd() *cobra.Command {
	c := group(&cobra.Command{
		Use:     "keys create|list|scope|rotate|revoke|recover",
		Short:   "Create, list, rotate and revoke API keys, and replace a lost admin key",
		Example: "  toolkeep keys create my-agent --role agent --scope 'bookshop.*'\n  toolkeep keys list\n  toolkeep keys revoke jgkvuvqpxlor",
	})
	c.AddCommand(a.keysCreateCmd(), a.keysListCmd(), a.keysScopeCmd(), a.keysRotateCmd(), a.keysRevokeCmd(), a.keysRecoverCmd())
	return c
}

func (a *app) keysCreateCmd() *cobra.Command {
	var name, workspace string
	var sign bool
	var roles, scope []string
	var expires time.Duration
	c := &cobra.Command{
		Use:   "create SUBJECT",
		Short: "Make a key for an agent or a person; its text is shown once",
		Example: `  toolkeep keys create billing-agent --role agent --scope 'shop.*' --expires 720h
  export TOOLKEEP_KEY=$(toolkeep keys create me --role agent)
  toolkeep keys create ci --role publisher --name 'publishes manifests' --json
  toolkeep keys create runtime --role agent --require-signature`,
		Args: arguments(1, 1, "the subject of the key: the agent or person that uses it"),
		RunE: func(cmd *cobra.Command, args []string) error {
			ends, err := expiresAt(cmd, expires)
			if err != nil {
				return err
			}
			body := map[string]any{"subject": args[0], "roles": roles}
			if name != "" {
				body["name"] = name
			}
			if len(scope) > 0 {
				body["scope"] = scope
			}
			if workspace != "" {
				body["workspace"] = workspace
			}
			if ends != "" {
				body["expires_at"] = ends
			}
			if sign {
				body["require_signature"] = true
			}
			if err := a.makeKey(cmd.Context(), "/api/v1/keys", body); err != nil || len(scope) == 0 {
				return err
			}
			cl, err := a.connect()
			if err == nil {
				a.tellUnmatched(cmd.Context(), cl, scope)
			}
			return err
		},
	}
	f := c.Flags()
	f.StringVar(&name, "name", "", "what it is for")
	f.StringArrayVar(&roles, "role", []string{"agent"}, "role, repeatable: admin, publisher, operator, agent, auditor or your own")
	f.StringArrayVar(&scope, "scope", nil, "narrow the key to tools that match this pattern, such as 'shop.*'; repeatable")
	_ = c.RegisterFlagCompletionFunc("role", cobra.FixedCompletions([]string{"admin", "publisher", "operator", "agent", "auditor"}, cobra.ShellCompDirectiveNoFileComp))
	f.StringVar(&workspace, "workspace", "", "workspace whose secrets come before the organisation's")
	f.BoolVar(&sign, "require-signature", false, "demand that each request with the key is signed, with a second secret that is printed behind it")
	f.DurationVar(&expires, "expires", 0, "lifetime, such as 720h; without it the key does not expire")
	return a.withJSON(c)
}

// makeKey asks for a new key, and prints its text.
func (a *app) makeKey(ctx context.Context, path string, body any) error {
	var answer struct {
		ID      string `json:"id"`
		Subject string `json:"subject"`
		Secret  string `json:"secret"`
		Sign    string `json:"signing_secret"`
	}
	return a.ask(ctx, http.MethodPost, path, body, &answer, func(w io.Writer) error {
		fmt.Fprintf(a.stderr, "Key %s for %s. Store it now, it is not shown again:\n", answer.ID, answer.Subject)
		_, err := fmt.Fprintln(w, answer.Secret)
		if answer.Sign != "" {
			fmt.Fprintf(a.stderr, "Its requests must be signed with this second secret, which is not shown again either (%s):\n", envSigning)
			_, err = fmt.Fprintln(w, answer.Sign)
		}
		return err
	})
}

type keyList struct {
	Keys       []keyLine `json:"keys"`
	TotalCount int       `json:"total_count"`
}

type keyLine struct {
	ID, Subject, Name string
	Roles, Scope      []string
	Successor         string
	ExpiresAt         *time.Time `json:"expires_at"`
	RevokedAt         *time.Time `json:"revoked_at"`
	Signed            bool       `json:"require_signature"`
}

// keyOf returns a key of the caller's tenant by its id, nil if there is none.
func (c *client) keyOf(ctx context.Context, id string) (*keyLine, error) {
	for page, seen := 1, 0; ; page++ {
		var list keyList
		if _, err := c.get(ctx, fmt.Sprintf("/api/v1/keys?page=%d&page_size=200", page), &list); err != nil {
			return nil, err
		}
		for i := range list.Keys {
			if list.Keys[i].ID == id {
				return &list.Keys[i], nil
			}
		}
		if seen += len(list.Keys); len(list.Keys) == 0 || seen >= list.TotalCount {
			return nil, nil
		}
	}
}

func (a *app) keysListCmd() *cobra.Command {
	var page, size int
	c := &cobra.Command{
		Use:     "list",
		Short:   "List the keys of your tenant, never their secrets",
		Example: "  toolkeep keys list\n  toolkeep keys list --json --page 2",
		Args:    noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := errors.Join(between("--page", page, 1, 1_000_000), between("--page-size", size, 1, 200)); err != nil {
				return err
			}
			var list keyList
			return a.ask(cmd.Context(), http.MethodGet, fmt.Sprintf("/api/v1/keys?page=%d&page_size=%d", page, size), nil, &list, func(w io.Writer) error {
				a.more(page, size, len(list.Keys), list.TotalCount, "there is no key")
				return table(w, "ID|SUBJECT|ROLES|SCOPE|STATE|NAME", func(row func(...any)) {
					for _, k := range list.Keys {
						state := "valid"
						switch {
						case k.RevokedAt != nil:
							state = "revoked " + k.RevokedAt.Format(time.DateOnly)
						case k.ExpiresAt != nil && k.ExpiresAt.Before(time.Now()):
							state = "expired " + k.ExpiresAt.Format(time.DateOnly)
						case k.ExpiresAt != nil:
							state = "until " + k.ExpiresAt.Format(time.DateOnly)
						}
						if k.Successor != "" {
							state += ", then " + k.Successor
						}
						if k.Signed {
							state += ", signs"
						}
						row(k.ID, k.Subject, strings.Join(k.Roles, ","), strings.Join(k.Scope, ","), state, k.Name)
					}
				})
			})
		},
	}
	c.Flags().IntVar(&page, "page", 1, "page, from 1")
	c.Flags().IntVar(&size, "page-size", 200, "keys a page, at most 200")
	return a.withJSON(c)
}

func (a *app) keysScopeCmd() *cobra.Command {
	var scope []string
	var all bool
	c := &cobra.Command{
		Use:               "scope ID (--scope PATTERN… | --all)",
		Short:             "Give a key another scope, which counts at once",
		Example:           "  toolkeep keys scope jgkvuvqpxlor --scope 'shop.*' --scope 'mail.send'\n  toolkeep keys scope jgkvuvqpxlor --all",
		Args:              arguments(1, 1, "the key's id, which `toolkeep keys list` shows"),
		ValidArgsFunction: a.completeKeys,
		RunE: func(cmd *cobra.Command, args []string) error {
			if all == (len(scope) > 0) {
				return usagef("give --scope PATTERN, once or more, or --all for all tools that the key's roles allow")
			}
			var k keyLine
			err := a.ask(cmd.Context(), http.MethodPatch, "/api/v1/keys/"+url.PathEscape(args[0]), map[string]any{"scope": append([]string{}, scope...)}, &k, func(w io.Writer) error {
				_, err := fmt.Fprintf(w, "Key %s of %s: scope %s.\n", k.ID, k.Subject, or(strings.Join(k.Scope, ","), "all tools"))
				return err
			})
			if err != nil || all {
				return err
			}
			cl, err := a.connect()
			if err == nil {
				a.tellUnmatched(cmd.Context(), cl, scope)
			}
			return err
		},
	}
	c.Flags().StringArrayVar(&scope, "scope", nil, "narrow the key to tools that match this pattern, such as 'shop.*'; repeatable")
	c.Flags().BoolVar(&all, "all", false, "do not narrow the key")
	return a.withJSON(c)
}

func (a *app) keysRotateCmd() *cobra.Command {
	var overlap time.Duration
	c := &cobra.Command{
		Use:   "rotate ID",
		Short: "Replace a key by one like it; the old one goes on for a while",
		Long: `Make a key with the subject, name, roles, scope, workspace and lifetime of this one, and print its text once. The old key expires after
--overlap, so that who uses it has time to take the new one; with 0 it ends at once. A key is rotated once.

The key in admin.key of the data directory stays there: write the new text to that file, or set TOOLKEEP_KEY.`,
		Example:           "  toolkeep keys rotate jgkvuvqpxlor\n  toolkeep keys rotate jgkvuvqpxlor --overlap 24h --json",
		Args:              arguments(1, 1, "the key's id, which `toolkeep keys list` shows"),
		ValidArgsFunction: a.completeKeys,
		RunE: func(cmd *cobra.Command, args []string) error {
			if overlap < 0 || overlap > 30*24*time.Hour || overlap%time.Second != 0 {
				return usagef("--overlap must be whole seconds up to 720h, not %s", overlap)
			}
			return a.makeKey(cmd.Context(), "/api/v1/keys/"+url.PathEscape(args[0])+"/rotate", map[string]any{"overlap_s": int(overlap.Seconds())})
		},
	}
	c.Flags().DurationVar(&overlap, "overlap", time.Hour, "how long the old key stays valid")
	return a.withJSON(c)
}

func (a *app) keysRevokeCmd() *cobra.Command {
	c := &cobra.Command{
		Use:               "revoke ID",
		Short:             "Revoke a key at once",
		Example:           "  toolkeep keys list\n  toolkeep keys revoke jgkvuvqpxlor",
		Args:              arguments(1, 1, "the key's id, which `toolkeep keys list` shows"),
		ValidArgsFunction: a.completeKeys,
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.act(cmd.Context(), http.MethodDelete, "/api/v1/keys/"+url.PathEscape(args[0]), nil,
				map[string]any{"id": args[0], "revoked": true}, "Key "+args[0]+" is revoked.")
		},
	}
	return a.withJSON(c)
}

func (a *app) keysRecoverCmd() *cobra.Command {
	var f serveFlags
	c := &cobra.Command{
		Use:   "recover",
		Short: "Make a new admin key for a stopped server whose first one is lost",
		Long: `Make an admin key in the store of a stopped server, and write it to admin.key in the data directory,
where the client commands find it. The command needs write access to the data directory and no key. It
makes nothing if the admin.key that is there still works.

The lost key stays valid: once the server runs, find it with toolkeep keys list and revoke it.

With PostgreSQL (store.dsn) other nodes may run: they accept the key a moment later.`,
		Example: "  toolkeep keys recover\n  toolkeep keys recover --data /var/lib/toolkeep --config /etc/toolkeep.yaml",
		Args:    noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := a.load(cmd, &f)
			if err != nil {
				return err
			}
			id, file, err := node.RecoverKey(cmd.Context(), c, node.Options{Version: version, LogTo: a.stderr})
			var e *toolkeep.Error
			if errors.As(err, &e) {
				return &failure{code: exitCodeOf(e.Code), err: err}
			} else if err != nil {
				return &failure{code: exitUnavailable, err: err}
			}
			raw, err := json.Marshal(map[string]any{"id": id, "file": file})
			if err != nil {
				return err
			}
			return a.show(raw, func(w io.Writer) error {
				_, err := fmt.Fprintf(w, "The new admin key %s is in %s. Start the server, and revoke the lost key: toolkeep keys list, toolkeep keys revoke ID.\n", id, file)
				return err
			})
		},
	}
	f.addSettings(c)
	return a.withJSON(c)
}

// expiresAt returns the expiry for the lifetime of --expires, "" if none.
func expiresAt(cmd *cobra.Command, lifetime time.Duration) (string, error) {
	switch {
	case !cmd.Flags().Changed("expires"):
		return "", nil
	case lifetime < time.Minute:
		return "", usagef("--expires must be a minute or more, such as 720h, not %s", lifetime)
	}
	return time.Now().Add(lifetime).UTC().Format(time.RFC3339), nil
}

// tellUnmatched names the patterns of a scope that no tool matches now.
func (a *app) tellUnmatched(ctx context.Context, cl *client, scope []string) {
	if len(scope) == 0 {
		return
	}
	left := slices.Clone(scope)
	namespace := ""
	for i, pattern := range scope {
		of, _, _ := strings.Cut(pattern, ".")
		if i > 0 && of != namespace || strings.ContainsAny(of, `*?[\`) {
			namespace = "" // they are in several
			break
		}
		namespace = of
	}
	err := cl.eachTool(ctx, namespace, func(t toolSummary) bool {
		left = slices.DeleteFunc(left, func(pattern string) bool { return toolkeep.MatchesAny([]string{pattern}, t.ToolID) })
		return len(left) > 0
	})
	for _, pattern := range left {
		if err != nil {
			fmt.Fprintf(a.stderr, "toolkeep: whether a tool matches the scope %q could not be looked up: %v\n", pattern, err)
			return
		}
		fmt.Fprintf(a.stderr, "toolkeep: no active tool matches the scope %q now; `toolkeep tools` lists their ids\n", pattern)
	}
}
