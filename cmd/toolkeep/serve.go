package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/access"
	"github.com/toolkeep/toolkeep/config"
	"github.com/toolkeep/toolkeep/datadir"
	"github.com/toolkeep/toolkeep/node"
	"github.com/toolkeep/toolkeep/node/settings"
)

// serveFlags are the settings that have a flag; --set reaches all others.
type serveFlags struct {
	file     string
	addr     string
	grpc     string
	metrics  string
	port     int
	examples bool
	level    string
	set      []string
}

// addSettings adds the flags that reach every setting.
func (f *serveFlags) addSettings(c *cobra.Command) {
	fl := c.Flags()
	fl.StringVar(&f.file, "config", os.Getenv("TOOLKEEP_CONFIG"), "YAML file of settings (TOOLKEEP_CONFIG)")
	fl.StringArrayVar(&f.set, "set", nil, "any setting, as `KEY=VALUE`; repeatable (see docs/configuration.md)")
}

func (f *serveFlags) add(c *cobra.Command) {
	f.addSettings(c)
	fl := c.Flags()
	fl.StringVar(&f.addr, "addr", "", "address of REST and health, default 127.0.0.1:8080")
	fl.StringVar(&f.grpc, "grpc-addr", "", "address of gRPC, default 127.0.0.1:50053; off for none")
	fl.StringVar(&f.metrics, "metrics-addr", "", "address of /metrics, default 127.0.0.1:9090")
	fl.IntVar(&f.port, "port", 8080, "`N` moves all of them: REST to N, gRPC to N+1, /metrics to N+2, the bookshop to N+3; 0 takes free ports; an address in a flag wins")
	fl.BoolVar(&f.examples, "examples", false, "publish the example tools, std.* and bookshop.*, and start the bookshop")
	fl.StringVar(&f.level, "log-level", "", "DEBUG, INFO, WARN or ERROR")
}

// load reads the settings; flags override the environment, which overrides the file. With an error of the settings
// themselves it returns those that could be read.
func (a *app) load(cmd *cobra.Command, f *serveFlags) (*config.Config, error) {
	flags := map[string]string{}
	if cmd.Flags().Changed("data") || os.Getenv("TOOLKEEP_DATA") == "" && cmd.InheritedFlags().Changed("data") {
		flags["data"] = a.data
	}
	put := func(flag, key, value string) {
		if cmd.Flags().Changed(flag) {
			flags[key] = value
		}
	}
	put("addr", "http.addr", f.addr)
	put("grpc-addr", "grpc.addr", f.grpc)
	put("metrics-addr", "metrics.addr", f.metrics)
	put("examples", "examples.enabled", fmt.Sprint(f.examples))
	put("log-level", "log.level", f.level)
	for _, s := range f.set {
		key, value, ok := strings.Cut(s, "=")
		if !ok {
			return nil, usagef("--set %q: write KEY=VALUE", s)
		}
		flags[key] = value
	}
	var port *int
	if cmd.Flags().Changed("port") {
		if err := between("--port", f.port, 0, config.MaxPort); err != nil {
			return nil, err
		}
		port = &f.port
	}
	c, err := config.Load(config.Sources{File: f.file, Environ: os.Environ(), Flags: flags, Port: port, Ignore: ignoredNames()})
	if err != nil {
		return c, &failure{code: exitUsage, err: err}
	}
	return c, nil
}

func (a *app) serveCmd() *cobra.Command {
	var f serveFlags
	var bridge bool
	c := &cobra.Command{
		Use:   "serve",
		Short: "Start Toolkeep",
		Long: `Start Toolkeep on loopback, with all its data in the data directory. The first start makes an admin key,
which the client commands on this machine find automatically.

The first signal (Ctrl-C, SIGTERM) drains: new calls are refused (beyond loopback after drain.grace), running calls
end. A second signal ends the process at once.`,
		Example: "  toolkeep serve --examples\n  toolkeep serve --data /var/lib/toolkeep --config /etc/toolkeep.yaml\n  toolkeep serve --set limits.agent_per_minute=1000",
		Args:    noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			// A terminal that closes, or an operator who expects it to reload, must not end a
			// server. Ignoring it instead would pass on to the programs that it starts.
			signal.Notify(make(chan os.Signal, 1), syscall.SIGHUP)
			c, err := a.load(cmd, &f)
			if err := checkSettings(cmd.Context(), c, err); err != nil {
				return err
			}
			return a.serve(cmd.Context(), c, startedWith(cmd, bridge))
		},
	}
	f.add(c)
	c.Flags().BoolVar(&bridge, bridgeFlag, false, "toolkeep mcp starts it")
	_ = c.Flags().MarkHidden(bridgeFlag)
	return c
}

// bridgeFlag tells serve that toolkeep mcp starts it.
const bridgeFlag = "started-by-mcp"

// startedWith is how this server was started. Values are left out: they can be secrets.
func startedWith(cmd *cobra.Command, bridge bool) datadir.StartedFile {
	f := datadir.StartedFile{PID: os.Getpid(), Bridge: bridge}
	cmd.Flags().Visit(func(flag *pflag.Flag) {
		if flag.Name != "data" && flag.Name != bridgeFlag {
			f.With = append(f.With, "--"+flag.Name)
		}
	})
	for _, v := range os.Environ() {
		name, value, _ := strings.Cut(v, "=")
		if strings.HasPrefix(name, "TOOLKEEP_") && value != "" && !slices.Contains([]string{"TOOLKEEP_DATA", "TOOLKEEP_KEY", "TOOLKEEP_URL", envSigning, envCA, envClientCert, envClientKey}, name) {
			f.With = append(f.With, name)
		}
	}
	slices.Sort(f.With)
	return f
}

// checkSettings returns the error of load, and what single settings do not show: faults of the files that they name,
// and what the node would refuse. A fault found here is one of the settings, not of the machine.
func checkSettings(ctx context.Context, c *config.Config, loaded error) error {
	if c == nil {
		return loaded
	}
	own, roles := access.ReadRoles(c.Access.Roles, c.Access.RolesFile)
	_, certificate := c.TLS.Server(nil)
	var identities, proxies, issuers error
	if roles == nil {
		proxies = access.CheckProxyRoles(c.Proxy.Roles, own)
		if file := c.Access.CertificatesFile; file != "" {
			_, identities = access.ReadCertificates(file, own)
		}
		if file := c.OAuth.IssuersFile; file != "" {
			issuers = access.ReadIssuers(file, c.OAuth.Access(func() string { return "" }), own)
		}
	}
	var found []error
	var all []toolkeep.Fault
	for _, of := range []struct {
		pointer string
		err     error
	}{{"", loaded}, {"/access/roles_file", roles}, {"/tls", certificate}, {"/access/certificates_file", identities}, {"/oauth/issuers_file", issuers}, {"/proxy/roles", proxies}, {"", settings.Check(ctx, c)}} {
		if of.err == nil {
			continue
		}
		faults := []toolkeep.Fault{{Pointer: of.pointer, Rule: "value", Message: of.err.Error()}}
		var e *toolkeep.Error
		if errors.As(of.err, &e) {
			faults[0].Message = e.Message
			if list, ok := e.Details["errors"].([]toolkeep.Fault); ok {
				faults = list
			}
		}
		// A setting that cannot be read has no value that could be checked once more.
		faults = slices.DeleteFunc(slices.Clone(faults), func(f toolkeep.Fault) bool {
			return slices.ContainsFunc(all, func(g toolkeep.Fault) bool { return f.Pointer != "" && f.Pointer == g.Pointer })
		})
		if len(faults) > 0 {
			found, all = append(found, of.err), append(all, faults...)
		}
	}
	switch len(found) {
	case 0:
		return nil
	case 1:
		return &failure{code: exitUsage, err: found[0]}
	}
	return &failure{code: exitUsage, err: config.Refusal(all)}
}

func (a *app) serve(ctx context.Context, c *config.Config, how datadir.StartedFile) error {
	if err := checkPorts(c); err != nil {
		return err
	}
	if file, ok := a.stderr.(*os.File); c.Log.Format == "auto" && ok && isTerminal(file) {
		c.Log.Format = "text"
	}
	pace, stopPacing := context.WithCancel(context.WithoutCancel(ctx))
	defer stopPacing()
	started := paceCollector(pace)
	n, err := node.New(ctx, c, node.Options{Version: version, LogTo: a.stderr, Hook: crashHook(),
		Reaper: []string{"/proc/self/exe", reaperArg}})
	if err != nil {
		if ctx.Err() != nil {
			fmt.Fprintln(a.stderr, "toolkeep: stopped before it served:", err)
			return nil
		}
		before, none := datadir.ReadStartedFile(c.Data)
		if pid, _ := datadir.Holder(c.Data); none == nil && before.Bridge && pid != 0 && pid == before.PID {
			err = fmt.Errorf("%w. toolkeep mcp started that process for a client, and starts another when the client asks again: start yours at once after the stop", err)
		}
		return &failure{code: exitUnavailable, err: err}
	}
	if how.Bridge { // decided under the lock of the data directory
		err = mayStart(c.Data)
	}
	if err == nil {
		err = how.Write(c.Data)
	}
	if err == nil {
		err = n.Start(context.WithoutCancel(ctx))
	}
	if err == nil {
		a.welcome(n, c)
		started()
		debug.FreeOSMemory() // memory needed only for the start
		select {
		case <-ctx.Done():
		case err = <-n.Failed():
			err = fmt.Errorf("a listener ended: %w", err)
		}
	}
	if errors.Is(err, syscall.EADDRINUSE) {
		err = fmt.Errorf("%w; %s", err, movePorts("N"))
	}
	signalled := ctx.Err() != nil
	a.stopSignals() // the next signal kills the process
	if signalled {
		fmt.Fprintf(a.stderr, "toolkeep: draining for up to %s; a second signal ends at once\n", c.Drain.Grace+c.Drain.Timeout)
	}
	drain, cancel := context.WithTimeout(context.WithoutCancel(ctx), c.Drain.Grace+c.Drain.Timeout)
	defer cancel()
	if err = errors.Join(err, n.Stop(drain)); err != nil {
		return &failure{code: exitUnavailable, err: err}
	}
	return nil
}

// samePath reports whether both name one place, relative to the working directory or not.
func samePath(a, b string) bool {
	a, aErr := filepath.Abs(a)
	b, bErr := filepath.Abs(b)
	return aErr == nil && bErr == nil && a == b
}

// welcome prints the addresses; the key itself is never printed.
func (a *app) welcome(n *node.Node, c *config.Config) {
	w := a.stdout
	fmt.Fprintf(w, "Toolkeep %s on %s, metrics on %s\n", version, n.URL(), n.MetricsURL())
	if at := n.GRPCAddr(); at != "" {
		scheme := "grpc"
		if c.TLS.Enabled() {
			scheme = "grpcs"
		}
		fmt.Fprintf(w, "gRPC on %s://%s\n", scheme, at)
	}
	keyFile := filepath.Join(c.Data, datadir.AdminKey)
	switch {
	case n.AdminKey != "":
		fmt.Fprintf(w, "A new admin key is in %s; commands on this machine find it automatically.\n", keyFile)
	default:
		if _, err := os.Stat(keyFile); err == nil {
			fmt.Fprintf(w, "The admin key is in %s.\n", keyFile)
		}
	}
	a.welcomeConsole(n, c, keyFile)
	for _, note := range c.Notes {
		fmt.Fprintln(a.stderr, "toolkeep: note:", note)
	}
	data := ""
	if !samePath(c.Data, dataDefault()) {
		data = " --data " + quote(c.Data)
	}
	try := []string{"tools"}
	if c.Examples.Std() {
		try = append(try, "call std.hash text=hello")
	}
	if c.Examples.Enabled {
		try = append(try, "call bookshop.searchBooks q=island")
	} else {
		try = append(try, "import openapi FILE-OR-URL", "import mcp NAME -- COMMAND")
	}
	fmt.Fprint(w, "\nTry:\n")
	for _, command := range try {
		fmt.Fprintf(w, "  toolkeep%s %s\n", data, command)
	}
	fmt.Fprint(w, "\nCtrl-C stops it.\n")
}
