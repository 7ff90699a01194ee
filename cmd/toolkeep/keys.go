package main

import (
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/spf13/cobra"
)

func (a *app) keysCmd() *cobra.Command {
	c := &cobra.Command{
		Use:   "keys",
		Short: "Create, list and revoke API keys",
	}
	c.AddCommand(a.keysCreateCmd(), a.keysListCmd(), a.keysRevokeCmd())
	return c
}

func (a *app) keysCreateCmd() *cobra.Command {
	var name string
	var roles, scope []string
	var expires time.Duration
	c := &cobra.Command{
		Use:   "create SUBJECT",
		Short: "Make a key for an agent or a person; its text is shown once",
		Example: `  toolkeep keys create billing-agent --role agent --scope 'shop.*' --expires 720h
  export TOOLKEEP_KEY=$(toolkeep keys create me --role agent)`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			cl, err := a.connect()
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
			if expires > 0 {
				body["expires_at"] = time.Now().Add(expires).UTC().Format(time.RFC3339)
			}
			var answer struct {
				ID     string `json:"id"`
				Secret string `json:"secret"`
			}
			raw, err := cl.post(cmd.Context(), "/api/v1/keys", body, &answer)
			if err != nil {
				return err
			}
			return a.show(raw, func(w io.Writer) error {
				fmt.Fprintf(a.stderr, "Key %s for %s. It is shown this once:\n", answer.ID, args[0])
				_, err := fmt.Fprintln(w, answer.Secret)
				return err
			})
		},
	}
	f := c.Flags()
	f.StringVar(&name, "name", "", "what it is for")
	f.StringArrayVar(&roles, "role", []string{"agent"}, "role, repeatable: admin, publisher, operator, agent, auditor or your own")
	f.StringArrayVar(&scope, "scope", nil, "narrow the key to tools that match this pattern, such as 'shop.*'; repeatable")
	f.DurationVar(&expires, "expires", 0, "lifetime, such as 720h; without it the key does not expire")
	return a.withJSON(c)
}

func (a *app) keysListCmd() *cobra.Command {
	c := &cobra.Command{
		Use:   "list",
		Short: "List the keys of your tenant, never their secrets",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			cl, err := a.connect()
			if err != nil {
				return err
			}
			var list struct {
				Keys []struct {
					ID, Subject, Name string
					Roles, Scope      []string
					ExpiresAt         *time.Time `json:"expires_at"`
					RevokedAt         *time.Time `json:"revoked_at"`
				} `json:"keys"`
			}
			raw, err := cl.get(cmd.Context(), "/api/v1/keys", &list)
			if err != nil {
				return err
			}
			return a.show(raw, func(w io.Writer) error {
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
						row(k.ID, k.Subject, strings.Join(k.Roles, ","), strings.Join(k.Scope, ","), state, k.Name)
					}
				})
			})
		},
	}
	return a.withJSON(c)
}

func (a *app) keysRevokeCmd() *cobra.Command {
	c := &cobra.Command{
		Use:   "revoke ID",
		Short: "End a key at once, on every node",
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			cl, err := a.connect()
			if err != nil {
				return err
			}
			raw, err := cl.do(cmd.Context(), http.MethodDelete, "/api/v1/keys/"+url.PathEscape(args[0]), nil)
			if err != nil {
				return err
			}
			if a.json && len(raw) > 0 {
				return a.printJSON(raw)
			}
			_, err = fmt.Fprintf(a.stdout, "Key %s is revoked.\n", args[0])
			return err
		},
	}
	return a.withJSON(c)
}
