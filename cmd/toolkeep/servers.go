package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/toolkeep/toolkeep"
)

func (a *app) serversCmd() *cobra.Command {
	c := &cobra.Command{
		Use:   "servers [list|diff|accept|logs|restart|login|logout|remove]",
		Short: "Manage the MCP servers behind Toolkeep",
		Long: `Manage the MCP servers behind Toolkeep. Without a subcommand it lists them.

The definitions of a server's tools are pinned when it is imported. A tool whose definition changes is held
for review (E3012): diff shows the change, accept publishes it.`,
		Example: "  toolkeep servers\n  toolkeep servers diff files\n  toolkeep servers accept files\n  toolkeep servers logs files",
		Args:    noArguments,
		RunE:    func(cmd *cobra.Command, _ []string) error { return a.listServers(cmd.Context()) },
	}
	list := a.withJSON(&cobra.Command{Use: "list", Short: "List the servers: transport, state, process, memory, sessions, tools, last error",
		Example: "  toolkeep servers list\n  toolkeep servers list --json", Args: noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error { return a.listServers(cmd.Context()) }})
	diff := a.withJSON(&cobra.Command{Use: "diff NAME", Short: "Compare what a server offers now with the pinned definitions",
		Long: `Read what a server offers now and compare it with the pinned definitions. A tool whose definition changed
is held, as whenever Toolkeep reads the server's tools.`,
		Example: "  toolkeep servers diff files", Args: arguments(1, 1, "the server's name"),
		RunE: func(cmd *cobra.Command, args []string) error { return a.diffServer(cmd.Context(), args[0]) }})
	accept := a.withJSON(&cobra.Command{Use: "accept NAME [TOOL…]", Short: "Accept what a server offers now, for all tools or some",
		Long: `Accept what a server offers now: new and changed tools are published, tools that are gone are blocked. If a
change is more than an addition, older versions are removed: a call of one gets E3009 with the new version.`,
		Example: "  toolkeep servers accept files\n  toolkeep servers accept files files.read_file", Args: arguments(1, -1, "the server's name"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.serverPlan(cmd.Context(), http.MethodPost, serverPath(args[0])+"/accept", map[string]any{"tools": args[1:]})
		}})
	logs := a.withJSON(&cobra.Command{Use: "logs NAME", Short: "Show the latest log lines of a server: its standard error and its sessions",
		Example: "  toolkeep servers logs files", Args: arguments(1, 1, "the server's name"),
		RunE: func(cmd *cobra.Command, args []string) error { return a.serverLogs(cmd.Context(), args[0]) }})
	c.AddCommand(list, diff, accept, logs,
		a.steerCmd("restart", "End a server's sessions on every node and reset its count of failures", "Restarted."),
		a.steerCmd("login", "Log in at a server that requires OAuth, as the principal of your key", "You are logged in."),
		a.steerCmd("logout", "Delete your login at a server", "Your login is deleted here; the server may still list it."),
		a.steerCmd("remove", "Remove a server; its tools are blocked and its history stays", "Removed."))
	for _, sub := range c.Commands() {
		if sub.Name() != "list" {
			sub.ValidArgsFunction = a.completeServers
		}
	}
	return a.withJSON(c)
}

func serverPath(name string) string { return "/api/v1/servers/" + url.PathEscape(name) }

func (a *app) completeServers(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return a.completing(cmd, func(ctx context.Context, cl *client) []string {
		var list serverList
		if _, err := cl.get(ctx, "/api/v1/servers", &list); err != nil {
			return nil
		}
		var names []string
		for _, s := range list.Servers {
			names = append(names, s.Name)
		}
		return names
	})
}

func (a *app) steerCmd(action, short, done string) *cobra.Command {
	return a.withJSON(&cobra.Command{Use: action + " NAME", Short: short, Example: "  toolkeep servers " + action + " files",
		Args: arguments(1, 1, "the server's name"),
		RunE: func(cmd *cobra.Command, args []string) error {
			method, path := http.MethodPost, serverPath(args[0])+"/"+action
			if action == "remove" {
				method, path = http.MethodDelete, serverPath(args[0])
			}
			return a.explainLogin(a.act(cmd.Context(), method, path, nil, map[string]any{"done": true}, done))
		}})
}

// explainLogin prints the login address in a refusal, which its reader needs.
func (a *app) explainLogin(err error) error {
	var r *refusedError
	if errors.As(err, &r) && r.Code == string(toolkeep.LoginRequired) {
		if at, _ := r.Details["url"].(string); at != "" && !a.json {
			fmt.Fprintf(a.stderr, "Open this address in a browser, then repeat the command:\n  %s\n", at)
			return &failure{code: exitRefused, err: err, quiet: true}
		}
	}
	return err
}

// explainStart prints the log of a server that an import could not read.
func (a *app) explainStart(err error) {
	var r *refusedError
	if !errors.As(err, &r) || a.json {
		return
	}
	if log, _ := r.Details["log"].(string); log != "" {
		fmt.Fprintln(a.stderr, "The server's log:")
		printSide(a.stderr, "", log)
	}
}

type serverList struct {
	Servers []struct {
		Name      string    `json:"name"`
		Owner     string    `json:"owner"`
		Transport string    `json:"transport"`
		State     string    `json:"state"`
		PID       int       `json:"pid"`
		RSS       int64     `json:"rss_bytes"`
		Sessions  int       `json:"sessions"`
		Tools     int       `json:"tools"`
		Held      int       `json:"held"`
		Pending   []string  `json:"pending"`
		LastError string    `json:"last_error"`
		ErrorAt   time.Time `json:"last_error_at"`
		Nodes     []struct {
			Node      string    `json:"node"`
			State     string    `json:"state"`
			PID       int       `json:"pid"`
			StartedAt time.Time `json:"started_at"`
			Sessions  int       `json:"sessions"`
			Defined   time.Time `json:"definition_at"`
		} `json:"nodes"`
	} `json:"servers"`
}

func (a *app) listServers(ctx context.Context) error {
	var list serverList
	return a.ask(ctx, http.MethodGet, "/api/v1/servers", nil, &list, func(w io.Writer) error {
		if len(list.Servers) == 0 {
			_, err := fmt.Fprintln(w, "There is no MCP server. `toolkeep import mcp NAME -- COMMAND ARGS…` adds one.")
			return err
		}
		several := false
		err := table(w, "NAME|TRANSPORT|STATE|PID|RSS|SESSIONS|TOOLS|HELD|PENDING|LAST ERROR", func(row func(...any)) {
			for _, s := range list.Servers {
				pid, rss := "-", "-"
				if s.PID > 0 {
					pid, rss = strconv.Itoa(s.PID), fmt.Sprintf("%.0f MB", float64(s.RSS)/1e6)
				}
				row(s.Name, s.Transport, s.State, pid, rss, s.Sessions, s.Tools, s.Held, len(s.Pending), s.LastError)
				several = several || len(s.Nodes) > 1
			}
		})
		if err != nil || !several {
			return err
		}
		if _, err := fmt.Fprintln(w); err != nil {
			return err
		}
		return table(w, "NAME|NODE|STATE|PID|STARTED|SESSIONS|DEFINITION OF", func(row func(...any)) {
			for _, s := range list.Servers {
				for _, n := range s.Nodes {
					pid := "-"
					if n.PID > 0 {
						pid = strconv.Itoa(n.PID)
					}
					row(s.Name, n.Node, n.State, pid, orNone(n.StartedAt), n.Sessions, orNone(n.Defined))
				}
			}
		})
	})
}

// orNone is a time to the second, in UTC; a dash if there is none.
func orNone(at time.Time) string {
	if at.IsZero() {
		return "-"
	}
	return at.UTC().Format(time.RFC3339)
}

func (a *app) serverLogs(ctx context.Context, name string) error {
	var answer struct{ Log string }
	return a.ask(ctx, http.MethodGet, serverPath(name)+"/logs", nil, &answer, func(w io.Writer) error {
		_, err := io.WriteString(w, answer.Log)
		return err
	})
}

type plannedServerTool struct {
	ToolID   string `json:"tool_id"`
	Tool     string `json:"tool"`
	Version  string `json:"version"`
	Change   string `json:"change"`
	State    string `json:"state"`
	Findings []struct {
		Rule     string `json:"rule"`
		Severity string `json:"severity"`
		Pointer  string `json:"pointer"`
		Text     string `json:"text"`
		Message  string `json:"message"`
	} `json:"findings"`
	Changes []struct {
		Pointer string `json:"pointer"`
		Op      string `json:"op"`
		Kind    string `json:"kind"`
		Message string `json:"message"`
		Old     string `json:"old"`
		New     string `json:"new"`
	} `json:"changes"`
}

// serverPlan is the visible part of a plan.
type serverPlan struct {
	Server  string              `json:"server"`
	Tools   []plannedServerTool `json:"tools"`
	Refused []struct {
		Tool   string `json:"tool"`
		Reason string `json:"reason"`
	} `json:"refused"`
	Warnings  []string `json:"warnings"`
	Published int      `json:"published"`
	Held      int      `json:"held"`
}

// diffServer makes the server reread its definitions and hold changed ones, so that accept applies to exactly what
// is shown, and prints the plan.
func (a *app) diffServer(ctx context.Context, name string) error {
	cl, err := a.connect()
	if err != nil {
		return err
	}
	if _, err := cl.do(ctx, http.MethodPost, serverPath(name)+"/refresh", nil); err != nil {
		return a.explainLogin(err)
	}
	return a.serverPlan(ctx, http.MethodGet, serverPath(name)+"/diff", nil)
}

func (a *app) serverPlan(ctx context.Context, method, path string, body any) error {
	cl, err := a.connect()
	if err != nil {
		return err
	}
	raw, err := cl.do(ctx, method, path, body)
	if err != nil {
		return a.explainLogin(err)
	}
	return a.showServerPlan(raw, false)
}

// showServerPlan prints a plan; dry says that it was not saved.
func (a *app) showServerPlan(raw []byte, dry bool) error {
	var plan serverPlan
	if err := json.Unmarshal(raw, &plan); err != nil {
		return err
	}
	return a.show(raw, func(w io.Writer) error {
		err := table(w, "TOOL|VERSION|CHANGE|STATE|FINDINGS", func(row func(...any)) {
			for _, t := range plan.Tools {
				row(t.ToolID, t.Version, t.Change, t.State, len(t.Findings))
			}
		})
		for _, t := range plan.Tools {
			for _, f := range t.Findings {
				fmt.Fprintf(w, "\n%s: %s (%s) at %s: %s\n  %s\n", t.ToolID, f.Rule, f.Severity, orWhole(f.Pointer), f.Message, f.Text)
			}
			for _, c := range t.Changes {
				fmt.Fprintf(w, "\n%s %s %s", t.ToolID, c.Kind, orWhole(c.Pointer))
				if c.Message != "" {
					fmt.Fprintf(w, ": %s", c.Message)
				}
				fmt.Fprintln(w)
				printSide(w, "- ", c.Old)
				printSide(w, "+ ", c.New)
			}
		}
		for _, r := range plan.Refused {
			fmt.Fprintf(w, "\nrefused %s: %s\n", r.Tool, r.Reason)
		}
		for _, warning := range plan.Warnings {
			fmt.Fprintln(a.stderr, "toolkeep: warning:", warning)
		}
		fmt.Fprintf(w, "\n%s: %d tools, %d published now, %d held, %d refused.\n", plan.Server, len(plan.Tools), plan.Published, plan.Held, len(plan.Refused))
		waiting := 0
		for _, t := range plan.Tools {
			if t.State == "pending" || t.State == "held" {
				waiting++
			}
		}
		if waiting > 0 && !dry {
			fmt.Fprintf(w, "%d wait for `toolkeep servers accept %s`.\n", waiting, plan.Server)
		}
		return err
	})
}

func printSide(w io.Writer, mark, text string) {
	if text == "" {
		return
	}
	for line := range strings.Lines(text) {
		fmt.Fprintln(w, "  "+mark+strings.TrimRight(line, "\n"))
	}
}

// importMCP holds the flags of `import mcp`.
type importMCP struct {
	spec    serverSpec
	url     string
	env     []string
	headers []string
	network []string
	file    string
	only    []string
	shared  bool
	dryRun  bool
}

func (a *app) importMCPCmd() *cobra.Command {
	var o importMCP
	c := &cobra.Command{
		Use:   "mcp NAME (-- COMMAND ARGS… | --url URL) | mcp --from FILE",
		Short: "Put an MCP server behind Toolkeep and publish its tools",
		Long: `Put an MCP server behind Toolkeep: a program that speaks MCP over standard input and output, or an
address. It is started once, its tools are read, scanned, published as NAME.TOOL, and pinned: a tool that
changes later is held until ` + "`toolkeep servers accept`" + `.

--from imports the servers of a client's file (mcpServers of Claude, Cursor and Gemini, servers of VS Code,
context_servers of Zed). Relative paths are taken from the current folder. Values of environment and headers are
sealed in the store; secrets that the server can read itself are better written as env://NAME or file:///PATH.`,
		Example: `  toolkeep import mcp files -- npx -y @modelcontextprotocol/server-filesystem /srv/data
  toolkeep import mcp tracker --url https://tracker.example/mcp --header 'Authorization=Bearer env://TOOLKEEP_SECRET_TRACKER'
  toolkeep import mcp --from ~/.cursor/mcp.json --dry-run`,
		Args: cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			servers, err := o.servers(args, cmd.ArgsLenAtDash())
			if err != nil {
				return err
			}
			return a.importServers(cmd.Context(), &o, servers)
		},
	}
	f := c.Flags()
	f.StringVar(&o.url, "url", "", "address of a server over HTTP")
	f.BoolFunc("sse", "the address speaks the older HTTP with server-sent events", func(string) error { o.spec.Transport = "sse"; return nil })
	f.StringArrayVar(&o.env, "env", nil, "`NAME=VALUE` for the program's environment, which is otherwise nearly empty; VALUE may be env://NAME or file:///PATH; repeatable")
	f.StringArrayVar(&o.headers, "header", nil, "`NAME=VALUE` sent with each request; repeatable")
	f.StringVar(&o.spec.Dir, "dir", "", "working directory of the program; a private one without it")
	f.StringArrayVar(&o.network, "allow", nil, "internal `HOST[:PORT]` at which the server may be reached; repeatable")
	f.StringVar(&o.spec.Session, "session", "", "shared (one for each tenant), principal or call")
	f.StringSliceVar(&o.spec.Capabilities, "capability", nil, "what the server may ask its caller for: sampling, elicitation, roots")
	f.StringVar(&o.spec.OnChange, "on-change", "", "hold (default): hold every change; additive: accept changes that only add")
	f.Var((*secondsFlag)(&o.spec.CallTimeoutS), "call-timeout", "how long a call of its tools may take, and the server may be silent, such as `2m`; 30s without it, at most 1h")
	f.Var((*secondsFlag)(&o.spec.StartTimeoutS), "start-timeout", "how long the server may take to start, such as `1m`; 30s without it, at most 1h")
	f.IntVar(&o.spec.MaxSessions, "max-sessions", 0, "sessions at once; 32 of a program and 1000 over HTTP without it")
	f.StringVar(&o.file, "from", "", "a client's file of servers")
	f.StringSliceVar(&o.only, "only", nil, "names to import from the file")
	f.BoolVar(&o.shared, "shared", false, "the server serves all tenants")
	f.BoolVar(&o.dryRun, "dry-run", false, "start it, show its tools, and store nothing")
	c.SetFlagErrorFunc(func(c *cobra.Command, err error) error {
		var none *pflag.NotExistError
		given := c.Flags().Args()
		if errors.As(err, &none) && (len(given) > 1 || len(given) == 1 && none.GetSpecifiedShortnames() != "") {
			return fmt.Errorf("%w; if it is one of the server's command: %s", err, mcpForm(given))
		}
		return plainFlagError(c, err)
	})
	return a.withJSON(c)
}

// secondsFlag is a duration that the API takes as seconds.
type secondsFlag float64

func (s *secondsFlag) String() string {
	if s == nil || *s == 0 {
		return ""
	}
	return time.Duration(float64(*s) * float64(time.Second)).String()
}

func (*secondsFlag) Type() string { return "duration" }

func (s *secondsFlag) Set(text string) error {
	d, err := time.ParseDuration(text)
	if err != nil || d <= 0 || d > time.Hour {
		return errors.New("write a duration of at most 1h, such as 90s or 2m")
	}
	*s = secondsFlag(d.Seconds())
	return nil
}

// mcpForm says how the arguments of an import are written that has no --.
func mcpForm(args []string) string {
	for i, arg := range args[:min(len(args), 2)] { // behind them it is an argument of the command
		if strings.Contains(arg, "://") {
			name := "NAME"
			if i > 0 {
				name = args[0]
			}
			return fmt.Sprintf("an address stands after --url: toolkeep import mcp %s --url ADDRESS", name)
		}
	}
	if len(args) < 2 {
		return "write the server's NAME, then -- and the command: toolkeep import mcp NAME -- COMMAND ARGS…"
	}
	return fmt.Sprintf("write one NAME, then -- and the command: toolkeep import mcp %s -- %s …", args[0], args[1])
}

func (o *importMCP) servers(args []string, dash int) ([]fileServer, error) {
	if o.file != "" {
		if len(args) > 0 || o.url != "" || len(o.env)+len(o.headers) > 0 || o.spec.Dir != "" || o.spec.Transport != "" {
			return nil, usagef("--from names the servers itself; leave NAME, the command, --url, --sse, --env, --header and --dir out")
		}
		raw, err := readFile(o.file)
		if err != nil {
			return nil, usagef("%v", err)
		}
		all, err := readMCPFile(raw, os.LookupEnv)
		if err != nil {
			return nil, usagef("%s: %v", o.file, err)
		}
		if len(o.only) > 0 {
			all = slices.DeleteFunc(all, func(s fileServer) bool { return !slices.Contains(o.only, s.Name) })
			if len(all) != len(o.only) {
				return nil, usagef("%s does not have all of %s", o.file, strings.Join(o.only, ", "))
			}
		}
		network, err := hostPorts(o.network)
		for i := range all {
			s := &all[i].Spec
			s.Session, s.Capabilities, s.OnChange, s.Network = o.spec.Session, o.spec.Capabilities, o.spec.OnChange, slices.Clone(network)
			s.CallTimeoutS, s.StartTimeoutS, s.MaxSessions = o.spec.CallTimeoutS, o.spec.StartTimeoutS, o.spec.MaxSessions
			if all[i].Problem != "" {
				continue
			}
			if err := s.here(); err != nil {
				all[i].Problem = err.Error()
				continue
			}
			if own, ok := innerAddress(s.URL); ok && loopback(own.Host) && !slices.Contains(s.Network, own) {
				s.Network = append(s.Network, own)
			}
		}
		return all, err
	}
	if len(o.only) > 0 {
		return nil, usagef("--only chooses among the servers of --from FILE")
	}
	if len(args) == 0 {
		return nil, usagef("an argument is missing: the server's NAME, or --from FILE")
	}
	if err := ofOtherImport(o.url); err != nil {
		return nil, err
	}
	s := fileServer{Name: args[0], Spec: o.spec}
	switch {
	case dash < 0 && (len(args) > 1 || strings.Contains(args[0], "://")):
		return nil, usagef("%s", mcpForm(args))
	case dash >= 0 && dash != 1:
		return nil, usagef("write one NAME before the --: toolkeep import mcp NAME -- COMMAND ARGS…")
	}
	s.Spec.Command = args[1:]
	switch {
	case len(s.Spec.Command) > 0 && o.url != "":
		return nil, usagef("a server has a command or --url, not both")
	case len(s.Spec.Command) == 0 && o.url == "":
		return nil, usagef("an argument is missing: the command after --, or --url")
	case o.url == "" && (s.Spec.Transport != "" || len(o.headers)+len(o.network) > 0):
		return nil, usagef("--sse, --header and --allow are for servers with --url")
	case o.url != "" && (len(o.env) > 0 || s.Spec.Dir != ""):
		return nil, usagef("--env and --dir are for servers that are commands")
	case o.url == "":
		s.Spec.Transport = "stdio"
		if err := s.Spec.here(); err != nil {
			return nil, err
		}
	default:
		s.Spec.URL = o.url
		if s.Spec.Transport == "" {
			s.Spec.Transport = "http"
		}
	}
	var err error
	if s.Spec.Env, err = pairs("--env", o.env); err != nil {
		return nil, err
	}
	if s.Spec.Headers, err = pairs("--header", o.headers); err != nil {
		return nil, err
	}
	if s.Spec.Network, err = hostPorts(o.network); err != nil {
		return nil, err
	}
	if own, ok := innerAddress(o.url); ok && !slices.Contains(s.Spec.Network, own) {
		s.Spec.Network = append(s.Spec.Network, own)
	}
	return []fileServer{s}, nil
}

// here makes paths absolute, because the program will run in another folder: its working directory,
// the program, and of its arguments the files and folders of the folder where the user stands. With
// --dir the arguments are the program's own business.
func (s *serverSpec) here() (err error) {
	own := s.Dir != ""
	if own {
		if s.Dir, err = filepath.Abs(s.Dir); err != nil {
			return err
		}
	}
	s.Command = slices.Clone(s.Command)
	for i, name := range s.Command {
		switch {
		case i == 0 && strings.ContainsRune(name, filepath.Separator):
		case i == 0 || own || !isPath(name):
			continue
		}
		if s.Command[i], err = filepath.Abs(name); err != nil {
			return err
		}
	}
	return nil
}

// isPath reports whether an argument is a relative path of something that exists. A bare word, such as
// run or build, is none, even if there is a folder of that name.
func isPath(arg string) bool {
	if filepath.IsAbs(arg) || strings.HasPrefix(arg, "-") || arg != "." && !strings.ContainsRune(arg, filepath.Separator) && filepath.Ext(arg) == "" {
		return false
	}
	_, err := os.Stat(arg)
	return err == nil
}

func loopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// innerAddress returns the host of a URL with an address of this machine or its network: the user typed it, so no
// --allow is needed.
func innerAddress(address string) (toolkeep.HostPort, bool) {
	u, err := url.Parse(address)
	if err != nil {
		return toolkeep.HostPort{}, false
	}
	host := u.Hostname()
	ip := net.ParseIP(host)
	if host != "localhost" && (ip == nil || !ip.IsLoopback() && !ip.IsPrivate()) {
		return toolkeep.HostPort{}, false
	}
	port := map[string]int{"http": 80, "https": 443}[u.Scheme]
	if p, err := strconv.Atoi(u.Port()); err == nil {
		port = p
	}
	return toolkeep.HostPort{Host: host, Port: port}, true
}

func hostPorts(list []string) (out []toolkeep.HostPort, err error) {
	for _, h := range list {
		e, err := hostPort(h)
		if err != nil {
			return nil, err
		}
		out = append(out, e)
	}
	return out, nil
}

func pairs(flag string, list []string) (map[string]string, error) {
	if len(list) == 0 {
		return nil, nil
	}
	out := make(map[string]string, len(list))
	for _, s := range list {
		name, value, ok := strings.Cut(s, "=")
		if !ok || name == "" {
			return nil, usagef("%s %q: write NAME=VALUE", flag, toolkeep.Clip(s, 20))
		}
		out[name] = value
	}
	return out, nil
}

func hostPort(s string) (toolkeep.HostPort, error) {
	host, port, has := s, "", false
	if i := strings.LastIndexByte(s, ':'); i > 0 && !strings.HasSuffix(s, "]") && strings.Count(s, ":") == 1 || strings.Contains(s, "]:") {
		host, port, has = s[:i], s[i+1:], true
	}
	e := toolkeep.HostPort{Host: strings.Trim(host, "[]")}
	if !has {
		return e, nil
	}
	n, err := strconv.Atoi(port)
	if err != nil || n < 1 || n > 65535 {
		return e, usagef("--allow %q: write HOST or HOST:PORT", s)
	}
	e.Port = n
	return e, nil
}

func (a *app) importServers(ctx context.Context, o *importMCP, servers []fileServer) error {
	cl, err := a.connect()
	if err != nil {
		return err
	}
	var last error
	failed := 0
	for _, s := range servers {
		if s.Problem != "" {
			fmt.Fprintf(a.stderr, "toolkeep: %s is left out: %s\n", s.Name, s.Problem)
			if !s.Off {
				failed++
			}
			continue
		}
		q := url.Values{}
		if o.shared {
			q.Set("shared", "true")
		}
		if o.dryRun {
			q.Set("dry_run", "true")
		}
		say, done := a.patience("starting " + s.Name + " and reading its tools")
		say("starting " + s.Name + " and reading its tools")
		raw, err := cl.do(ctx, http.MethodPut, serverPath(s.Name)+"?"+q.Encode(), s.Spec)
		done()
		if err == nil {
			err = a.showServerPlan(raw, o.dryRun)
		} else {
			err = a.explainLogin(err)
			a.explainStart(err)
		}
		if err != nil {
			failed++
			last = err
			if len(servers) > 1 {
				a.report(err)
			}
		}
	}
	switch {
	case len(servers) == 1 && last != nil:
		return last
	case failed > 0:
		return &failure{code: exitRefused, err: fmt.Errorf("%d of %d servers were not imported", failed, len(servers))}
	case o.dryRun && !a.json:
		fmt.Fprintln(a.stdout, "Nothing was changed (--dry-run).")
	}
	return nil
}
