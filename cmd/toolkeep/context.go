package main

import (
	"context"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	jsonv2 "github.com/go-json-experiment/json"
	"github.com/spf13/cobra"
)

func (a *app) contextCmd() *cobra.Command {
	c := group(&cobra.Command{
		Use:   "context set|get|delete",
		Short: "What an agent adds to a tool: credentials, tighter limits, facts",
		Example: "  toolkeep context set billing-agent shop.createOrder --timeout 5s --per-minute 30\n" +
			"  toolkeep context get billing-agent shop.createOrder\n  toolkeep context delete billing-agent shop.createOrder",
	})
	c.AddCommand(a.contextSetCmd(), a.contextGetCmd(), a.contextDeleteCmd())
	return c
}

// contextDocument is the body of a context.
type contextDocument struct {
	Credentials map[string]string `json:"credentials,omitzero"`
	Config      contextConfig     `json:"config,omitzero"`
	Facts       map[string]any    `json:"session_context,omitzero"`
}

type contextConfig struct {
	Timeout   int64 `json:"timeout,omitzero"`
	Attempts  int   `json:"retry_max_attempts,omitzero"`
	PerMinute int   `json:"rate_limit_per_minute,omitzero"`
}

func contextPath(args []string) string {
	return "/api/v1/context/agent/" + url.PathEscape(args[0]) + "/tool/" + url.PathEscape(args[1])
}

const wantContext = "the agent's subject and a tool id, or '*' for all of its tools"

func (a *app) contextSetCmd() *cobra.Command {
	var credentials, facts []string
	var timeout time.Duration
	var attempts, perMinute int
	c := &cobra.Command{
		Use:   "set AGENT TOOL [FILE]",
		Short: "Set what an agent adds to a tool, in place of what was stored",
		Long: "Set what an agent adds to a tool, in place of what was stored. It can only narrow: limits count where they are\n" +
			"below the tool's own, and a credential fills context://NAME in the tool's definition if its permissions.credentials\n" +
			"lists the reference. FILE has the JSON of the REST interface, - is standard input; without it the flags are the whole context.",
		Example: `  toolkeep context set billing-agent shop.createOrder --credential api_token=env://TOOLKEEP_SECRET_BILLING
  toolkeep context set billing-agent '*' --timeout 5s --attempts 1 --per-minute 30 --fact project_id=p-7
  toolkeep context set billing-agent shop.createOrder context.json`,
		Args: arguments(2, 3, wantContext),
		RunE: func(cmd *cobra.Command, args []string) error {
			body, err := a.contextBody(args[2:], credentials, facts, timeout, attempts, perMinute)
			if err != nil {
				return err
			}
			return a.changeContext(cmd.Context(), http.MethodPut, args, body, "set")
		},
	}
	f := c.Flags()
	f.StringArrayVar(&credentials, "credential", nil, "NAME=REFERENCE, such as api_token=secret://billing; repeatable")
	f.StringArrayVar(&facts, "fact", nil, "NAME=TEXT about the session; repeatable")
	f.DurationVar(&timeout, "timeout", 0, "longest call, such as 5s")
	f.IntVar(&attempts, "attempts", 0, "most attempts of a call")
	f.IntVar(&perMinute, "per-minute", 0, "most calls of the agent on the tool a minute")
	return a.withJSON(c)
}

// contextBody returns the file's content, or a document made from the flags.
func (a *app) contextBody(file, credentials, facts []string, timeout time.Duration, attempts, perMinute int) ([]byte, error) {
	var d contextDocument
	for _, flag := range []struct {
		name string
		all  []string
		add  func(name, value string)
	}{
		{"--credential", credentials, func(name, value string) {
			if d.Credentials == nil {
				d.Credentials = map[string]string{}
			}
			d.Credentials[name] = value
		}},
		{"--fact", facts, func(name, value string) {
			if d.Facts == nil {
				d.Facts = map[string]any{}
			}
			d.Facts[name] = value
		}},
	} {
		for _, text := range flag.all {
			name, value, ok := strings.Cut(text, "=")
			if !ok || name == "" {
				return nil, usagef("%s must be NAME=VALUE", flag.name)
			}
			flag.add(name, value)
		}
	}
	if timeout < 0 || timeout > 0 && timeout < time.Millisecond || attempts < 0 || perMinute < 0 {
		return nil, usagef("--timeout must be a millisecond or more, --attempts and --per-minute 1 or more")
	}
	d.Config = contextConfig{Timeout: timeout.Milliseconds(), Attempts: attempts, PerMinute: perMinute}
	empty := len(d.Credentials)+len(d.Facts) == 0 && d.Config == contextConfig{}
	switch {
	case len(file) == 0 && empty:
		return nil, usagef("name what the agent adds: a FILE, or --credential, --fact, --timeout, --attempts, --per-minute; `toolkeep context delete` removes it")
	case len(file) == 0:
		return jsonv2.Marshal(d)
	case !empty:
		return nil, usagef("a FILE is complete; leave the flags out")
	case file[0] == "-":
		raw, err := io.ReadAll(io.LimitReader(a.stdin, maxInput+1))
		if err == nil && len(raw) > maxInput {
			err = fmt.Errorf("it is over %d MiB", maxInput>>20)
		}
		if err != nil {
			return nil, usagef("standard input cannot be read: %v", err)
		}
		return raw, nil
	}
	raw, err := readFile(file[0])
	if err != nil {
		return nil, usagef("the context cannot be read: %v", err)
	}
	return raw, nil
}

func (a *app) changeContext(ctx context.Context, method string, args []string, body any, done string) error {
	return a.act(ctx, method, contextPath(args), body, map[string]any{"agent_id": args[0], "tool_id": args[1], done: true},
		fmt.Sprintf("The context of %s for %s is %s.", args[0], args[1], done))
}

func (a *app) contextGetCmd() *cobra.Command {
	c := &cobra.Command{
		Use:     "get AGENT TOOL",
		Short:   "Show what an agent adds to a tool, as stored",
		Example: "  toolkeep context get billing-agent shop.createOrder\n  toolkeep context get billing-agent '*' --json",
		Args:    arguments(2, 2, wantContext),
		RunE: func(cmd *cobra.Command, args []string) error {
			var d contextDocument
			return a.ask(cmd.Context(), http.MethodGet, contextPath(args), nil, &d, func(w io.Writer) error {
				return table(w, "WHAT|NAME|VALUE", func(row func(...any)) {
					for _, name := range slices.Sorted(maps.Keys(d.Credentials)) {
						row("credential", name, d.Credentials[name])
					}
					if d.Config.Timeout > 0 {
						row("limit", "timeout", time.Duration(d.Config.Timeout)*time.Millisecond)
					}
					if d.Config.Attempts > 0 {
						row("limit", "retry_max_attempts", d.Config.Attempts)
					}
					if d.Config.PerMinute > 0 {
						row("limit", "rate_limit_per_minute", d.Config.PerMinute)
					}
					for _, name := range slices.Sorted(maps.Keys(d.Facts)) {
						row("fact", name, d.Facts[name])
					}
				})
			})
		},
	}
	return a.withJSON(c)
}

func (a *app) contextDeleteCmd() *cobra.Command {
	c := &cobra.Command{
		Use:     "delete AGENT TOOL",
		Short:   "Remove what an agent adds to a tool from the store",
		Example: "  toolkeep context delete billing-agent shop.createOrder",
		Args:    arguments(2, 2, wantContext),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.changeContext(cmd.Context(), http.MethodDelete, args, nil, "deleted")
		},
	}
	return a.withJSON(c)
}
