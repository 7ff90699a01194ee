package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/toolkeep/toolkeep/access/capability"
	"github.com/toolkeep/toolkeep/access/jwt"
)

func (a *app) tokenCmd() *cobra.Command {
	c := group(&cobra.Command{
		Use:   "token mint|inspect|revoke",
		Short: "Make, read and revoke capability tokens, which narrow what one call may do",
		Long: `A capability token is sent beside a key, in the header X-Capability-Token, and narrows what a call may do; it never
widens. Its agent may hand a narrower one to a sub-agent: mint with --parent. Revoking a token revokes those too.`,
		Example: "  toolkeep token mint billing-agent --tool 'shop.*' --ttl 15m\n  toolkeep token inspect < token.jwt\n  toolkeep token revoke 019ab…",
	})
	c.AddCommand(a.tokenMintCmd(), a.tokenInspectCmd(), a.tokenRevokeCmd())
	return c
}

func (a *app) tokenMintCmd() *cobra.Command {
	var tools, operations, paths, hosts, secrets []string
	var ports []int
	var version, mode, parent string
	var ttl time.Duration
	c := &cobra.Command{
		Use:   "mint AGENT",
		Short: "Make a token for an agent, the subject of its key; the token is shown once",
		Long: `Make a token for an agent, the subject of its key. It needs the permission tokens:admin, or --parent with a file that
holds your own token: what you leave out is then the parent's, and the rest must be within it. An empty list, such as
--secret '', allows nothing.`,
		Example: `  toolkeep token mint billing-agent --tool 'shop.*' --operation read --ttl 15m
  toolkeep token mint report-agent --tool files.read --path /srv/reports --host '*.example.com' --port 443
  toolkeep token mint sub-agent --tool shop.orders --parent token.jwt`,
		Args: arguments(1, 1, "the agent whose calls the token is for"),
		RunE: func(cmd *cobra.Command, args []string) error {
			body := map[string]any{"agent_did": args[0]}
			given := func(flag string, list []string) ([]string, bool) {
				if len(list) == 1 && list[0] == "" {
					list = []string{}
				}
				return list, cmd.Flags().Changed(flag)
			}
			for _, f := range []struct {
				flag, claim string
				list        []string
			}{{"tool", "tool_id", tools}, {"operation", "allowed_operations", operations}} {
				if list, ok := given(f.flag, f.list); ok {
					body[f.claim] = list
				}
			}
			if version != "" {
				body["tool_version"] = version
			}
			if list, ok := given("path", paths); ok {
				body["filesystem_permissions"] = map[string]any{"allowed_paths": list, "mode": mode}
			} else if cmd.Flags().Changed("mode") {
				return usagef("--mode goes with --path")
			}
			if list, ok := given("host", hosts); ok {
				network := map[string]any{"allowed_hosts": list}
				if cmd.Flags().Changed("port") {
					network["allowed_ports"] = ports
				}
				body["network_permissions"] = network
			} else if cmd.Flags().Changed("port") {
				return usagef("--port goes with --host")
			}
			if list, ok := given("secret", secrets); ok {
				body["credential_permissions"] = map[string]any{"allowed_secrets": list}
			}
			if ttl > 0 {
				body["ttl_seconds"] = max(1, int(ttl/time.Second))
			}
			if parent != "" {
				text, err := readToken(a.stdin, parent)
				if err != nil {
					return err
				}
				body["parent"] = text
			}
			var answer struct {
				Token   string    `json:"token"`
				ID      string    `json:"jti"`
				Expires time.Time `json:"expires_at"`
			}
			return a.ask(cmd.Context(), http.MethodPost, "/api/v1/tokens", body, &answer, func(w io.Writer) error {
				fmt.Fprintf(a.stderr, "Token %s for %s, until %s. Store it now, it is not shown again:\n", answer.ID, args[0], answer.Expires.Format(time.RFC3339))
				_, err := fmt.Fprintln(w, answer.Token)
				return err
			})
		},
	}
	f := c.Flags()
	f.StringArrayVar(&tools, "tool", nil, "tool id or pattern, such as 'shop.*'; repeatable")
	f.StringVar(&version, "version-range", "", "SemVer range of the tools' versions, such as ^1.2.0")
	f.StringArrayVar(&operations, "operation", nil, "execute, or read for tools that do not write; repeatable; default execute")
	f.StringArrayVar(&paths, "path", nil, "folder or file of the server that file tools may use; repeatable")
	f.StringVar(&mode, "mode", "ro", "of the paths: ro or rw")
	f.StringArrayVar(&hosts, "host", nil, "host that tools may connect to, or '*.NAME' for all below NAME; repeatable")
	f.IntSliceVar(&ports, "port", nil, "port of these hosts; repeatable; default every port")
	f.StringArrayVar(&secrets, "secret", nil, "secret that tools may use, as manifests name it; repeatable")
	f.DurationVar(&ttl, "ttl", 0, "lifetime; default 1h, or the parent's")
	f.StringVar(&parent, "parent", "", "file with your own token, - for standard input; the new one is within it")
	return a.withJSON(c)
}

func (a *app) tokenInspectCmd() *cobra.Command {
	var file string
	c := &cobra.Command{
		Use:     "inspect",
		Short:   "Show what a token says, without asking a server and without its signature",
		Long:    "Show a token's header and claims. Nothing is verified: whether the signature is valid and the token revoked, the server decides.",
		Example: "  toolkeep token inspect < token.jwt\n  toolkeep token inspect --file token.jwt",
		Args:    noArguments,
		RunE: func(*cobra.Command, []string) error {
			text, err := readToken(a.stdin, file)
			if err != nil {
				return err
			}
			header, claims, err := capability.Show(text)
			if err != nil {
				return err
			}
			raw, err := json.Marshal(map[string]any{"header": json.RawMessage(header), "claims": json.RawMessage(claims)})
			if err != nil {
				return err
			}
			return a.show(raw, func(w io.Writer) error {
				for _, part := range [][]byte{header, claims} {
					text, err := indent(part)
					if err != nil {
						return err
					}
					if _, err := fmt.Fprintln(w, screenOf(w).clean(text)); err != nil {
						return err
					}
				}
				return nil
			})
		},
	}
	c.Flags().StringVar(&file, "file", "-", "file with the token, - for standard input")
	return a.withJSON(c)
}

// readToken reads a token from a file, or from stdin for "-".
func readToken(stdin io.Reader, file string) (string, error) {
	in := stdin
	if file != "-" {
		f, err := os.Open(file)
		if err != nil {
			return "", usagef("the file with the token cannot be read: %s", err)
		}
		defer f.Close()
		in = f
	}
	raw, err := io.ReadAll(io.LimitReader(in, jwt.MaxToken+2))
	if err != nil {
		return "", err
	}
	return strings.TrimSpace(string(raw)), nil
}

func (a *app) tokenRevokeCmd() *cobra.Command {
	return a.withJSON(&cobra.Command{
		Use:     "revoke JTI",
		Short:   "Revoke a token and all that were made from it",
		Long:    "Revoke a token of your tenant by its jti, and all that were made from it. Every node refuses them within a second. It needs the permission tokens:admin.",
		Example: "  toolkeep token inspect < token.jwt\n  toolkeep token revoke 019ab3c2-5a10-7c7e-9d3a-1f2e3d4c5b6a",
		Args:    arguments(1, 1, "the token's jti, which `toolkeep token inspect` shows"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.act(cmd.Context(), http.MethodDelete, "/api/v1/tokens/"+url.PathEscape(args[0]), nil, map[string]any{"jti": args[0], "revoked": true},
				"Token "+args[0]+" and all that were made from it are revoked.")
		},
	})
}
