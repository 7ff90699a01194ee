package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/toolkeep/toolkeep/access"
	"github.com/toolkeep/toolkeep/config"
	"github.com/toolkeep/toolkeep/node"
)

func (a *app) consoleCmd() *cobra.Command {
	c := &cobra.Command{
		Use:   "console",
		Short: "Make a link that logs a browser in to the web console, once",
		Long: `Make a link that logs a browser in to the web console with the key that this command uses. It can be used once, within
ten minutes; the session then has what the key may, and ends with it. Who has the link has the session: send it to no one.`,
		Example: "  toolkeep console\n  TOOLKEEP_KEY=tk_... toolkeep console --json",
		Args:    noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			var link struct {
				URL     string    `json:"url"`
				Expires time.Time `json:"expires_at"`
			}
			return a.ask(cmd.Context(), http.MethodPost, "/api/v1/session/links", nil, &link, func(w io.Writer) error {
				_, err := fmt.Fprintf(w, "%s\n\nOpen it in a browser within %d minutes; it logs in once.\n", link.URL, int(access.LinkLife/time.Minute))
				return err
			})
		},
	}
	return a.withJSON(c)
}

// welcomeConsole tells where the web console is. On a terminal the address logs in with the admin key, once: what is written to
// a file or a journal could be read later.
func (a *app) welcomeConsole(n *node.Node, c *config.Config, keyFile string) {
	if !c.Console.Enabled {
		return
	}
	at := c.HTTP.Public(n.URL())
	if out, ok := a.stdout.(*os.File); ok && isTerminal(out) {
		key := n.AdminKey
		if key == "" {
			text, _ := os.ReadFile(keyFile) // without it the address alone is told
			key = strings.TrimSpace(string(text))
		}
		if link := loginLink(n.Access(), key); link != "" {
			fmt.Fprintf(out, "Web console: %s/login#%s\nThis link logs a browser in once, within %d minutes; toolkeep console makes others.\n", at, link, int(access.LinkLife/time.Minute))
			return
		}
	}
	fmt.Fprintf(a.stdout, "Web console on %s/; toolkeep console makes a link that logs in.\n", at)
}

// loginLink makes the text of a login link for a key, "" if there is none or it may have no session.
func loginLink(from *access.Access, key string) string {
	if key == "" {
		return ""
	}
	p, err := from.Authenticate(context.Background(), key, "")
	if err != nil {
		return ""
	}
	text, _, _ := from.MakeLink(p) // "" with an error
	return text
}
