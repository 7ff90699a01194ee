package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/datadir"
	"github.com/toolkeep/toolkeep/face/gate"
	"github.com/toolkeep/toolkeep/suggest"
)

// Exit codes, documented in `toolkeep help exit-codes`. Scripts rely on them.
const (
	exitOK          = 0
	exitToolFailed  = 1
	exitUsage       = 2
	exitRefused     = 3
	exitUnavailable = 4
)

// app is one run of the command: its input and output, and the global flags.
type app struct {
	stdin          io.Reader
	stdout, stderr io.Writer
	stopSignals    context.CancelFunc // afterwards a second signal kills the process
	data           string
	tls            clientTLS
	json           bool // JSON, or a form made of it, is printed
	out            output
	collect        func(*planned) error   // takes an import's plan in place of publishing it; nil but for apply
	mayRead        func(name string) bool // variables of this process that an import reads; nil but for apply: all
	began          bool                   // the command line was valid and the command runs
}

// failure is an error with its exit code; a quiet one was already printed.
type failure struct {
	code  int
	err   error
	quiet bool
}

func (f *failure) Error() string { return f.err.Error() }
func (f *failure) Unwrap() error { return f.err }

// between refuses an out-of-range number before anything is sent.
func between(flag string, n, least, most int) error {
	if n < least || n > most {
		return usagef("%s must be %d to %d, not %d", flag, least, most, n)
	}
	return nil
}

// readFile reads a file, pipe or device of at most maxInput.
func readFile(name string) ([]byte, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	raw, err := io.ReadAll(io.LimitReader(f, maxInput+1))
	if err == nil && len(raw) > maxInput {
		err = fmt.Errorf("%s is over %d MiB", name, maxInput>>20)
	}
	return raw, err
}

// noArguments is for commands that take only flags, and subcommands if they have some.
func noArguments(c *cobra.Command, args []string) error {
	if len(args) > 0 && c.HasAvailableSubCommands() {
		return noSubcommand(c, args[0])
	}
	if len(args) > 0 {
		return fmt.Errorf("unexpected argument %q: %s accepts only flags", args[0], c.CommandPath())
	}
	return nil
}

func usagef(format string, args ...any) error {
	return &failure{code: exitUsage, err: fmt.Errorf(format, args...)}
}

// run is the whole program.
func run(ctx context.Context, stopSignals context.CancelFunc, args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	a := &app{stdin: stdin, stdout: stdout, stderr: stderr, stopSignals: stopSignals}
	root := a.root()
	root.SetArgs(args)
	root.SetIn(stdin)
	root.SetOut(stdout)
	root.SetErr(stderr)
	ran, err := root.ExecuteContextC(ctx)
	if err == nil {
		return exitOK
	}
	if !a.began { // errors that cobra finds before a command runs are usage errors
		err = explainUsage(ran, err)
		a.json = a.json || a.out.machine() || wantsJSON(ran, args)
	}
	return a.report(err)
}

// wantsJSON reports whether the command line asks for JSON, also behind the flag at which it could not be read.
func wantsJSON(c *cobra.Command, args []string) bool {
	if i := slices.Index(args, "--"); i >= 0 {
		args = args[:i]
	}
	for _, name := range []string{"output", "format"} {
		if f := c.Flags().Lookup(name); f != nil && f.Value.Type() == (*formFlag)(nil).Type() {
			for i, arg := range args {
				if arg == "--"+name+"=json" || arg == "-ojson" || (arg == "--"+name || arg == "-o") && i+1 < len(args) && args[i+1] == "json" {
					return true
				}
			}
		}
	}
	f := c.Flags().Lookup("json")
	if f != nil && f.Value.Type() != "bool" { // of call: a value is the arguments
		i := slices.Index(args, "--json")
		return i >= 0 && (i+1 == len(args) || strings.HasPrefix(args[i+1], "-"))
	}
	return f != nil && (slices.Contains(args, "--json") || slices.Contains(args, "--json=true"))
}

// plainFlagError says what a flag takes, in place of what the library that reads it says, and which flag may be meant.
func plainFlagError(c *cobra.Command, err error) error {
	var none *pflag.NotExistError
	if errors.As(err, &none) && none.GetSpecifiedShortnames() == "" {
		var names []string
		c.Flags().VisitAll(func(f *pflag.Flag) {
			if !f.Hidden {
				names = append(names, f.Name)
			}
		})
		if meant := suggest.Suggest(none.GetSpecifiedName(), names); meant != "" {
			return fmt.Errorf("%w; did you mean --%s?", err, meant)
		}
		if c.Name() == "call" || c.Name() == "explain" {
			return fmt.Errorf("%w; the tool's arguments are written without dashes, as %s=VALUE", err, none.GetSpecifiedName())
		}
		return err
	}
	var bad *pflag.InvalidValueError
	if !errors.As(err, &bad) {
		return err
	}
	f := bad.GetFlag()
	value := f.Value
	if o, is := value.(*once); is {
		value = o.Value
	}
	if twice, is := errors.AsType[*twiceError](err); is {
		return fmt.Errorf("--%s %w", f.Name, twice)
	}
	if !strings.HasPrefix(fmt.Sprintf("%T", value), "*pflag.") { // a flag of our own says what it takes
		return fmt.Errorf("--%s: %w", f.Name, bad.Unwrap())
	}
	takes := "another value"
	switch f.Value.Type() {
	case "int", "int64", "int32", "count":
		takes = "a whole number"
	case "uint", "uint16", "uint32", "uint64":
		takes = "a whole number from 0"
	case "float64":
		takes = "a number"
	case "bool":
		takes = "true or false"
	case "duration":
		takes = "a duration with its unit, such as 90s, 15m or 24h"
	}
	return fmt.Errorf("--%s takes %s, not %q", f.Name, takes, toolkeep.ClipBytes(bad.GetValue(), 100))
}

// once is the value of a flag that takes one: another after it is refused, since the last would win in silence.
type once struct {
	pflag.Value
	given *string // nil before the first
}

type twiceError struct{ first, second string }

func (e *twiceError) Error() string {
	return fmt.Sprintf("takes one value and is given two, %q and %q", toolkeep.ClipBytes(e.first, 100), toolkeep.ClipBytes(e.second, 100))
}

func (o *once) Set(text string) error {
	if err := o.Value.Set(text); err != nil {
		return err
	}
	if o.given != nil && *o.given != text {
		return &twiceError{*o.given, text}
	}
	o.given = &text
	return nil
}

// refuseTwice makes all flags of c and its subcommands that are not lists take one value.
func refuseTwice(c *cobra.Command) {
	for _, set := range []*pflag.FlagSet{c.Flags(), c.PersistentFlags()} {
		set.VisitAll(func(f *pflag.Flag) {
			_, list := f.Value.(pflag.SliceValue)
			if _, done := f.Value.(*once); !list && !done {
				f.Value = &once{Value: f.Value}
				if f.DefValue == "0s" { // pflag does not see that a wrapped duration is zero, and the help would show it
					f.DefValue = "0"
				}
			}
		})
	}
	for _, sub := range c.Commands() {
		refuseTwice(sub)
	}
}

// explainUsage points a cobra error to the help.
func explainUsage(c *cobra.Command, err error) error {
	text := strings.TrimSpace(err.Error())
	if strings.HasPrefix(text, "unknown command") {
		what, meant, _ := strings.Cut(text, "\n\nDid you mean this?\n")
		if text = what; meant != "" {
			text += "; did you mean " + strings.Join(strings.Fields(meant), " or ") + "?"
		}
	}
	return usagef("%s\n  `%s --help` shows how it is used", text, c.CommandPath())
}

// arguments refuses a wrong number of arguments and says what is expected. A negative most is no limit.
func arguments(least, most int, want string) cobra.PositionalArgs {
	return func(c *cobra.Command, args []string) error {
		switch {
		case len(args) < least:
			return fmt.Errorf("an argument is missing: %s", want)
		case most >= 0 && len(args) > most:
			return fmt.Errorf("unexpected argument %q: %s accepts %s", args[most], c.CommandPath(), want)
		}
		return nil
	}
}

// group makes a parent command refuse to run without a subcommand.
func group(c *cobra.Command) *cobra.Command {
	c.Args = cobra.ArbitraryArgs
	c.RunE = func(c *cobra.Command, args []string) error {
		if len(args) == 0 {
			return explainUsage(c, fmt.Errorf("a subcommand is missing: %s %s", c.CommandPath(), strings.Join(subcommands(c), "|")))
		}
		return explainUsage(c, noSubcommand(c, args[0]))
	}
	return c
}

func subcommands(c *cobra.Command) (names []string) {
	for _, sub := range c.Commands() {
		if sub.IsAvailableCommand() {
			names = append(names, sub.Name())
		}
	}
	return names
}

// noSubcommand names the subcommands of c, and the one that may be meant.
func noSubcommand(c *cobra.Command, wrong string) error {
	names := subcommands(c)
	err := fmt.Errorf("%s has no %q; it has %s", c.CommandPath(), wrong, strings.Join(names, ", "))
	if meant := suggest.Suggest(wrong, names); meant != "" {
		err = fmt.Errorf("%w; did you mean %s?", err, meant)
	}
	return err
}

// report prints an error once and returns the exit code.
func (a *app) report(err error) int {
	code := exitUnavailable // such as a full disk
	var f *failure
	if errors.As(err, &f) {
		code = f.code
		if f.quiet {
			return code
		}
	}
	var refusal *refusedError
	switch {
	case errors.As(err, &refusal):
		refusal.print(a.errText())
		a.printProblem(refusal.problem)
		return code
	}
	var e *toolkeep.Error
	if errors.As(err, &e) {
		printError(a.errText(), e)
		code = max(code, exitCodeOf(e.Code))
	} else {
		fmt.Fprintln(a.errText(), "toolkeep:", err)
	}
	if raw, jErr := json.Marshal(ownProblem(err, code)); jErr == nil {
		a.printProblem(raw)
	}
	return code
}

// printProblem prints a problem document where one is asked for. An expression is made for the answer, not for that.
func (a *app) printProblem(raw []byte) {
	if (a.json || a.out.machine()) && !a.out.reshaped() {
		_ = a.printJSON(raw)
	}
}

// problem is an error of the command itself as RFC 9457 has it. One without a code is about:blank.
type problem struct {
	Type      string         `json:"type"`
	Title     string         `json:"title"`
	Detail    string         `json:"detail"`
	Code      string         `json:"code,omitempty"`
	Name      string         `json:"name,omitempty"`
	Class     string         `json:"class,omitempty"`
	Retryable bool           `json:"retryable"`
	Details   map[string]any `json:"details,omitempty"`
	ExitCode  int            `json:"exit_code"`
}

func ownProblem(err error, code int) problem {
	var e *toolkeep.Error
	if errors.As(err, &e) {
		p := gate.NewProblem(e, "")
		return problem{p.Type, p.Title, p.Detail, p.Code, p.Name, p.Class, p.Retryable, p.Details, code}
	}
	titles := map[int]string{exitToolFailed: "Failed", exitUsage: "Usage", exitRefused: "Refused", exitUnavailable: "Unavailable"}
	return problem{Type: "about:blank", Title: titles[code], Detail: err.Error(), ExitCode: code}
}

func printError(w io.Writer, e *toolkeep.Error) {
	fmt.Fprintln(w, "toolkeep:", e.Error())
	if faults, ok := e.Details["errors"].([]toolkeep.Fault); ok {
		printFaults(w, e.Message, faults)
	}
}

// printFaults lists faults, except a single one that the message above already gives.
func printFaults(w io.Writer, said string, faults []toolkeep.Fault) {
	if len(faults) == 1 && strings.Contains(said, faults[0].Message) {
		return
	}
	for _, f := range faults {
		fmt.Fprintf(w, "  %s: %s\n", orWhole(f.Pointer), f.Message)
	}
}

func orWhole(pointer string) string {
	if pointer == "" {
		return "(the whole)"
	}
	return pointer
}

// exitCodeOf returns the exit code for a refusal with the code.
func exitCodeOf(c toolkeep.Code) int {
	info := c.Info()
	switch {
	case info.HTTP == 503 && info.Class != "POLICY_DENIED":
		return exitUnavailable
	case info.Class == "VALIDATION_ERROR" && (info.HTTP == 400 || info.HTTP == 413 || info.HTTP == 422):
		return exitUsage
	}
	return exitRefused
}

func (a *app) root() *cobra.Command {
	root := &cobra.Command{
		Use:   "toolkeep",
		Short: "The one place between AI agents and their tools",
		Long: `Toolkeep holds every tool in one catalogue and carries out each call safely:
authorised, validated, limited, recorded.

  toolkeep serve --examples                     start it, with a small example catalogue
  toolkeep import openapi petstore.yaml         every operation becomes a tool
  toolkeep search "send a letter"               find the right one
  toolkeep call std.hash text=hello             call it
  toolkeep connect claude-code                  give it to an agent
  toolkeep invocations                          read what happened

The client commands find the server and the key in the data directory (--data), or in
TOOLKEEP_URL (http or https) and TOOLKEEP_KEY.`,
		SilenceErrors: true,
		SilenceUsage:  true,
		PersistentPreRunE: func(c *cobra.Command, _ []string) error {
			if err := a.checkOutput(c); err != nil {
				return err
			}
			a.began = true
			return nil
		},
		Version: version,
	}
	root.PersistentFlags().StringVar(&a.data, "data", dataDefault(), "data directory of the server (TOOLKEEP_DATA)")
	root.AddGroup(&cobra.Group{ID: "run", Title: "Run:"}, &cobra.Group{ID: "tools", Title: "Tools:"},
		&cobra.Group{ID: "calls", Title: "Calls:"}, &cobra.Group{ID: "admin", Title: "Administration:"})
	add := func(group string, cmds ...*cobra.Command) {
		for _, c := range cmds {
			c.GroupID = group
			root.AddCommand(c)
		}
	}
	add("run", a.serveCmd(), a.connectCmd(), a.mcpCmd(), a.configCmd(), a.versionCmd())
	add("tools", a.importCmd(), a.registryCmd(), withFolderExport(a, a.exportCmd()), a.toolsCmd(), a.searchCmd(), a.relatedCmd(), a.describeCmd(), withFolderDiff(a, a.diffCmd()))
	add("calls", a.withJSON(a.callCmd()), a.withJSON(a.explainCmd()), a.invocationsCmd(), a.approvalsCmd(), a.blobsCmd(), a.verifyCmd())
	add("admin", a.consoleCmd(), a.applyCmd(), a.keysCmd(), a.tokenCmd(), a.policyCmd(), a.breakersCmd(), a.lifecycleCmd(), a.serversCmd(), a.contextCmd(), a.secretsCmd(), a.modelsCmd(), a.cacheCmd(), a.reindexCmd(), a.analyticsCmd(), a.nodesCmd(), a.auditCmd(), a.outboxCmd(), a.doctorCmd(), a.backupCmd(), a.restoreCmd())
	for _, c := range root.Commands() {
		if c.GroupID != "run" && c.Name() != "backup" && c.Name() != "restore" || c.Name() == "mcp" || c.Name() == "connect" {
			a.tls.addFlags(c)
		}
	}
	root.AddCommand(exitCodesTopic())
	root.SetFlagErrorFunc(plainFlagError)
	refuseTwice(root)
	root.SetHelpCommandGroupID("run")
	root.SetCompletionCommandGroupID("run")
	return root
}

func exitCodesTopic() *cobra.Command {
	return &cobra.Command{
		Use:   "exit-codes",
		Short: "What the exit codes mean",
		Long: `0  the command did what it says
1  the tool was executed and failed, or the command did only a part of its work
2  usage: an unknown flag, or arguments that the tool's schema refuses; of diff -f and apply --dry-run: something differs
3  refused: not found, not allowed, over a limit, in conflict, cancelled or interrupted
4  unavailable: no server answers, or it cannot serve now

An import that leaves out single operations or tools of a source, because they cannot become tools, has
done what it says: it exits with 0 and names each with the reason. Run it with --dry-run to see them before.
Where all operations of a document are refused, an import without --dry-run publishes nothing and exits with 2.

Results are printed on standard output, everything else on standard error. With --json a refusal is
printed on standard output too, as the problem document of REST; so is an error of the command itself,
as such a document with exit_code and, if it has no code of the catalogue, the type about:blank. So it is
with -o yaml. --jq and -o jsonpath=… are made for the answer: with them standard output stays empty then.`,
	}
}

func dataDefault() string {
	if d := os.Getenv("TOOLKEEP_DATA"); d != "" {
		return d
	}
	return datadir.Default(os.Getenv)
}
