package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/canon"
)

// callFlags are the common flags of call and explain.
type callFlags struct {
	jsonText string
	key      string
	session  string
	timeout  time.Duration
	async    bool
	wait     bool
	priority string
	fresh    bool
	approval bool
	whole    bool
}

// noValue is the value of --json without an argument.
const noValue = "answer"

func (f *callFlags) add(c *cobra.Command) {
	fl := c.Flags()
	fl.StringVar(&f.jsonText, "json", "", "arguments as one JSON object (`'{…}'`); alone: print the whole answer as JSON")
	fl.Lookup("json").NoOptDefVal = noValue
	fl.StringVar(&f.key, "idempotency-key", "", "the same key gets the same answer for 24 h, or what the server sets, and executes once")
	fl.StringVar(&f.session, "session", "", "session id, recorded with the call")
	fl.DurationVar(&f.timeout, "timeout", 0, "shorten the tool's own time limit, in whole seconds such as 5s")
	fl.StringVar(&f.priority, "priority", "", "low, normal or high, for calls that wait (--async)")
	fl.BoolVar(&f.fresh, "no-cache", false, "execute even if a result is cached")
	fl.BoolVar(&f.approval, "require-approval", false, "ask for a person's approval")
	fl.BoolVar(&f.whole, "answer", false, "print the whole answer as JSON, as --json alone does")
	_ = c.RegisterFlagCompletionFunc("priority", cobra.FixedCompletions([]string{"low", "normal", "high"}, cobra.ShellCompDirectiveNoFileComp))
}

func (a *app) callCmd() *cobra.Command {
	var f callFlags
	c := &cobra.Command{
		Use:   "call TOOL[@VERSION] [key=value… | --json '{…}' | -]",
		Short: "Call a tool and print its result",
		Long: `Call a tool and print its result.

Arguments are given as key=value (text; converted to a number or boolean where the tool requires
one), key:=JSON (typed), key=@FILE (the file's text), a whole JSON object after --json, or - to read
that object from standard input. A key given several times makes a list.

The result is printed on standard output, warnings and errors on standard error. --json without an
object, or --answer, prints the whole answer instead of the result alone. Ctrl-C cancels a call that
is waited for, on the server too; one that was queued with --async goes on.`,
		Example: `  toolkeep call std.hash text=hello
  toolkeep call std.hash@^1 text=@README.md
  toolkeep call std.math operation=add 'numbers:=[1,2,3]'
  toolkeep call std.math operation=add numbers=1 numbers=2 --json
  toolkeep call std.echo --json '{"message":"hello"}'
  echo '{"message":"hello"}' | toolkeep call std.echo -
  toolkeep call std.note_append text=once --idempotency-key note-1
  toolkeep call std.wait duration_ms=5000 --async --wait`,
		Args:              arguments(1, -1, "the tool's id, such as std.hash"),
		ValidArgsFunction: a.completeCall,
		RunE: func(cmd *cobra.Command, args []string) error {
			body, err := a.callBody(cmd, &f, args)
			if err != nil {
				return err
			}
			cl, err := a.connect()
			if err != nil {
				return err
			}
			return a.doCall(cmd.Context(), cl, body, f.wait)
		},
	}
	f.add(c)
	c.Flags().BoolVar(&f.async, "async", false, "queue the call and print its id")
	c.Flags().BoolVar(&f.wait, "wait", false, "with --async: follow the call to its end")
	return c
}

func (a *app) explainCmd() *cobra.Command {
	var f callFlags
	c := &cobra.Command{
		Use:               "explain TOOL[@VERSION] [key=value… | --json '{…}' | -]",
		Short:             "Show what a call would do, step by step, without making it",
		Long:              "Run every step of the call without consuming, claiming or sending anything, and go on after a refusal.\nExit code 3 means that the call would be refused. Arguments are those of call.",
		Example:           "  toolkeep explain std.hash text=hello\n  toolkeep explain std.hash text:=5 --json\n  TOOLKEEP_KEY=tk_… toolkeep explain bookshop.createOrder --json '{\"body\":{}}'",
		Args:              arguments(1, -1, "the tool's id, such as std.hash"),
		ValidArgsFunction: a.completeCall,
		RunE: func(cmd *cobra.Command, args []string) error {
			body, err := a.callBody(cmd, &f, args)
			if err != nil {
				return err
			}
			body["dry_run"] = true
			cl, err := a.connect()
			if err != nil {
				return err
			}
			return a.doExplain(cmd.Context(), cl, body)
		},
	}
	f.add(c)
	return c
}

// callBody builds BC-2's request from the command line.
func (a *app) callBody(cmd *cobra.Command, f *callFlags, args []string) (map[string]any, error) {
	id, rng, err := splitRef(args[0])
	if err != nil {
		return nil, err
	}
	if err := f.check(cmd); err != nil {
		return nil, err
	}
	a.json = f.whole
	text, pairs, where := f.jsonText, args[1:], "the object after --json"
	if text == noValue {
		text = ""
		// pflag takes no separate value for a flag with an optional one: the object after --json arrives as an
		// argument.
		if len(pairs) > 0 && isObject(pairs[0]) {
			text, pairs = pairs[0], pairs[1:]
		} else {
			a.json = true
		}
	}
	if len(pairs) == 1 && pairs[0] == "-" {
		if text != "" {
			return nil, usagef("give the arguments either after --json or on standard input (-), not both")
		}
		raw, err := io.ReadAll(io.LimitReader(a.stdin, maxInput))
		if err != nil {
			return nil, usagef("standard input cannot be read: %v", err)
		}
		if len(bytes.TrimSpace(raw)) == 0 {
			return nil, usagef("standard input is empty; for a call without arguments send {} or leave the - out")
		}
		text, pairs, where = string(raw), nil, "standard input"
	}
	if text != "" && len(pairs) > 0 || len(pairs) > 1 && slices.ContainsFunc(pairs, isObject) {
		return nil, usagef("give the arguments either as one JSON object or as key=value, not both")
	}
	parameters, err := parametersOf(text, where, pairs)
	if err != nil {
		return nil, err
	}
	body := map[string]any{"tool_id": id, "parameters": json.RawMessage(parameters)}
	if rng != "" {
		body["tool_version"] = rng
	}
	options := map[string]any{}
	set := func(m map[string]any, k string, v any, ok bool) {
		if ok {
			m[k] = v
		}
	}
	set(options, "async_mode", true, f.async)
	set(options, "priority", f.priority, f.priority != "")
	set(options, "idempotency_key", f.key, f.key != "")
	set(options, "require_approval", true, f.approval)
	set(body, "execution_options", options, len(options) > 0)
	set(body, "skip_cache", true, f.fresh)
	set(body, "agent_context", map[string]any{"session_id": f.session}, f.session != "")
	if f.timeout > 0 {
		body["timeout_seconds"] = int(f.timeout / time.Second)
	}
	return body, nil
}

// check refuses flags that would have no effect or a misleading one.
func (f *callFlags) check(c *cobra.Command) error {
	switch {
	case c.Flags().Changed("timeout") && (f.timeout <= 0 || f.timeout%time.Second != 0):
		return usagef("--timeout must be whole seconds, such as 5s, not %s", f.timeout)
	case f.priority != "" && !f.async && c.Flags().Lookup("async") != nil:
		return usagef("--priority orders calls that wait: add --async, and --wait to wait for the result")
	}
	return nil
}

// maxInput limits arguments and manifests read from a file or standard input; the server's own limit is lower
// unless it was raised.
const maxInput = 16 << 20

func isObject(s string) bool { return strings.HasPrefix(strings.TrimSpace(s), "{") }

// parametersOf parses the arguments; text is a JSON object, where names its source.
func parametersOf(text, where string, pairs []string) ([]byte, error) {
	if text != "" {
		obj, err := canon.ParseObject([]byte(text), canon.Limits{Bytes: maxInput})
		var e *toolkeep.Error
		if errors.As(err, &e) {
			return nil, usagef("%s cannot be used: %s %s: %s", where, e.Code, e.Code.Info().Name, e.Message)
		}
		return canon.Append(nil, obj), err
	}
	values := make(map[string][]any)
	for _, pair := range pairs {
		name, value, err := argument(pair)
		if err != nil {
			return nil, err
		}
		values[name] = append(values[name], value)
	}
	obj := make(map[string]any, len(values))
	for name, list := range values {
		if obj[name] = list; len(list) == 1 {
			obj[name] = list[0]
		}
	}
	return canon.Append(nil, obj), nil
}

// argument parses key=value, key:=JSON or key=@FILE.
func argument(pair string) (string, any, error) {
	name, value, ok := strings.Cut(pair, "=")
	if !utf8.ValidString(pair) {
		return "", nil, usagef("%q is not UTF-8 text", toolkeep.Clip(pair, 60))
	}
	if isObject(pair) {
		return "", nil, usagef("%s is a JSON object: put --json before it", toolkeep.Clip(pair, 60))
	}
	if !ok || name == "" || name == ":" {
		return "", nil, usagef("%q is not an argument: write key=value, key:=JSON, key=@FILE or --json '{…}'", pair)
	}
	if typed, isTyped := strings.CutSuffix(name, ":"); isTyped {
		v, err := canon.Parse([]byte(value), canon.Limits{Bytes: maxInput})
		if err != nil {
			if json.Valid([]byte(value)) { // valid JSON but refused: NUL, a duplicate name, too deep
				return "", nil, usagef("the value of %s cannot be sent: %s", typed, toolkeep.AsError(err).Message)
			}
			return "", nil, usagef("the value of %s is not JSON: %s; for text write %s=%s", typed, toolkeep.Clip(value, 60), typed, toolkeep.Clip(value, 60))
		}
		return typed, v, nil
	}
	if path, isFile := strings.CutPrefix(value, "@"); isFile && path != "" {
		raw, err := readFile(path)
		if err != nil {
			return "", nil, usagef("%s: %v; for text that begins with @ write '%s:=\"@…\"'", name, err, name)
		}
		if !utf8.Valid(raw) {
			return "", nil, usagef("%s: %s is not UTF-8 text; tools accept bytes as base64, if their description says so", name, path)
		}
		return name, string(raw), nil
	}
	return name, value, nil
}

// callAnswer is the part of BC-2's response that call reads.
type callAnswer struct {
	InvocationID string          `json:"invocation_id"`
	Status       string          `json:"status"`
	Result       json.RawMessage `json:"result"`
	Error        *callError      `json:"error"`
	Metadata     callMetadata    `json:"execution_metadata"`
}

type callError struct {
	Message   string         `json:"message"`
	ErrorCode string         `json:"error_code"`
	Name      string         `json:"name"`
	Details   map[string]any `json:"details"`
}

type callMetadata struct {
	Warnings    []struct{ Code, Message string } `json:"warnings"`
	Truncated   bool                             `json:"truncated"`
	Fallback    *toolkeep.Fallback               `json:"fallback"`
	Attachments []struct {
		URL   string `json:"url"`
		Bytes int64  `json:"bytes"`
	} `json:"attachments"`
}

func (a *app) doCall(ctx context.Context, cl *client, body map[string]any, wait bool) error {
	say, done := a.patience("calling " + fmt.Sprint(body["tool_id"]))
	var answer callAnswer
	raw, err := cl.post(ctx, "/api/v1/tools/invoke", body, &answer)
	if err == nil && wait && (answer.Status == "pending" || answer.Status == "running") {
		raw, err = cl.follow(ctx, answer.InvocationID, say)
		if err != nil {
			done()
			return notFollowed(err, answer.InvocationID)
		}
		answer = callAnswer{}
		err = decode(raw, &answer)
	}
	done()
	if err != nil {
		return err
	}
	return a.showCall(raw, &answer)
}

// notFollowed adds to an error that the call itself continues.
func notFollowed(err error, id string) error {
	var f *failure
	var refused *refusedError
	if !errors.As(err, &f) || errors.As(err, &refused) {
		return err
	}
	return &failure{code: f.code, err: fmt.Errorf("%w\n  the call goes on: `toolkeep invocations watch %s` waits for it, `toolkeep invocations cancel %s` stops it", f.err, id, id)}
}

// showCall prints the result on stdout and the rest on stderr.
func (a *app) showCall(raw []byte, answer *callAnswer) error {
	if a.json {
		if err := a.printJSON(raw); err != nil {
			return err
		}
	}
	if f := answer.Metadata.Fallback; f != nil {
		fmt.Fprintf(a.stderr, "toolkeep: the tool failed (%s), so its fallback %s@%s was asked (invocation %s)\n", f.Reason, f.Tool, f.Version, f.InvocationID)
	}
	for _, w := range answer.Metadata.Warnings {
		fmt.Fprintf(a.stderr, "toolkeep: warning %s: %s\n", w.Code, w.Message)
	}
	switch {
	case answer.Error != nil:
		code := toolkeep.Code(answer.Error.ErrorCode)
		exit, what := exitToolFailed, "the tool failed"
		if code.Info().Kind == toolkeep.KindRefusal { // such as a waiting call that was cancelled
			exit, what = exitCodeOf(code), "the call was not executed to its end"
		}
		fmt.Fprintf(a.stderr, "toolkeep: %s: %s %s: %s\n", what, code, answer.Error.Name, answer.Error.Message)
		if len(answer.Error.Details) > 0 {
			if d, err := json.Marshal(answer.Error.Details); err == nil {
				fmt.Fprintf(a.stderr, "  %s\n", toolkeep.Clip(string(d), 2000))
			}
		}
		fmt.Fprintf(a.stderr, "  recorded as %s\n", answer.InvocationID)
		return &failure{code: exit, err: errors.New(answer.Error.ErrorCode), quiet: true}
	case a.json:
		return nil
	case answer.Status != "success":
		fmt.Fprintf(a.stdout, "%s\n", answer.InvocationID)
		fmt.Fprintf(a.stderr, "toolkeep: the call is %s; `toolkeep invocations get %s` shows its end\n", answer.Status, answer.InvocationID)
		return nil
	}
	if answer.Metadata.Truncated {
		for _, at := range answer.Metadata.Attachments {
			fmt.Fprintf(a.stderr, "toolkeep: the result was cut; `toolkeep blobs get %s -o FILE` fetches the whole (%d bytes)\n", blobID(at.URL), at.Bytes)
		}
	}
	if len(answer.Result) == 0 {
		answer.Result = json.RawMessage("null")
	}
	return a.printJSON(answer.Result)
}

// follow reads a call's event stream to its result.
func (c *client) follow(ctx context.Context, id string, say func(string)) ([]byte, error) {
	resp, err := c.send(ctx, http.MethodGet, "/api/v1/invocations/"+id+"/events", nil, "Accept", "text/event-stream")
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		raw, _ := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
		return nil, problemOf(resp, raw)
	}
	lines := bufio.NewScanner(resp.Body)
	lines.Buffer(nil, maxAnswer)
	var event string
	var data []byte
	for lines.Scan() {
		line := lines.Bytes()
		switch {
		case bytes.HasPrefix(line, []byte("event:")):
			event = string(bytes.TrimSpace(line[6:]))
		case bytes.HasPrefix(line, []byte("data:")):
			data = append(data, bytes.TrimSpace(line[5:])...)
		case len(line) == 0:
			if event == "result" {
				return data, nil
			}
			sayProgress(say, data)
			event, data = "", data[:0]
		}
	}
	if err := lines.Err(); err != nil {
		return nil, c.unreachable(ctx, http.MethodGet, fmt.Errorf("stream: %w", err))
	}
	// The server closed the stream: fetch the record.
	return c.get(ctx, "/api/v1/invocations/"+id, nil)
}

func sayProgress(say func(string), data []byte) {
	var p struct {
		Status  string `json:"status"`
		Percent int    `json:"progress_percent"`
		Phase   string `json:"current_phase"`
	}
	if json.Unmarshal(data, &p) == nil {
		say(strings.TrimSpace(fmt.Sprintf("%s %d%% %s", p.Status, p.Percent, p.Phase)))
	}
}

func (a *app) doExplain(ctx context.Context, cl *client, body map[string]any) error {
	var x struct {
		Tool    string `json:"tool"`
		Version string `json:"version"`
		Execute bool   `json:"would_execute"`
		Steps   []struct {
			Step, Verdict, Code, Reason string
			Checks                      []struct {
				Check   string
				Allowed bool
				Reason  string
				Rule    string
			}
			Details map[string]any
		} `json:"steps"`
	}
	raw, err := cl.post(ctx, "/api/v1/tools/invoke", body, &x)
	if err != nil {
		return err
	}
	err = a.show(raw, func(w io.Writer) error {
		verdict := "would be refused"
		refused, waits := false, false
		for _, s := range x.Steps {
			refused, waits = refused || s.Verdict == "refuse" || s.Verdict == "unknown", waits || s.Verdict == "wait"
		}
		switch {
		case x.Execute:
			verdict = "would be executed"
		case waits && !refused:
			verdict = "would wait for a person"
		}
		fmt.Fprintf(w, "%s %s\n", joinRef(x.Tool, x.Version), verdict)
		return table(w, "STEP|VERDICT|CODE|REASON", func(row func(...any)) {
			for _, s := range x.Steps {
				row(s.Step, s.Verdict, s.Code, s.Reason)
				for _, c := range s.Checks {
					word := "no"
					if c.Allowed {
						word = "yes"
					}
					if c.Rule != "" {
						c.Reason += " (rule " + c.Rule + ")"
					}
					row("", word, "", c.Check+": "+c.Reason)
				}
			}
		})
	})
	if err == nil && !x.Execute {
		return &failure{code: exitRefused, err: errors.New("would be refused"), quiet: true}
	}
	return err
}

// completeCall completes the tool, then the names of its parameters.
func (a *app) completeCall(cmd *cobra.Command, args []string, prefix string) ([]string, cobra.ShellCompDirective) {
	if len(args) == 0 {
		return a.completeTools(cmd, args, prefix)
	}
	cl, err := a.connect()
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	ctx, cancel := context.WithTimeout(cmd.Context(), 2*time.Second)
	defer cancel()
	id, rng, _ := splitRef(args[0])
	t, err := cl.published(ctx, id, rng)
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	var m struct {
		Schema struct {
			Properties map[string]json.RawMessage `json:"properties"`
		} `json:"parameters_schema"`
	}
	if json.Unmarshal(t.Manifest, &m) != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	if name, _, ok := strings.Cut(prefix, "="); ok {
		return completeValue(name, m.Schema.Properties[name])
	}
	var names []string
	for _, name := range sortedKeys(m.Schema.Properties) {
		given := slices.ContainsFunc(args[1:], func(s string) bool { return strings.HasPrefix(s, name+"=") || strings.HasPrefix(s, name+":=") })
		if !given && strings.HasPrefix(name, prefix) {
			of := (&parameterTree{reads: 1}).read(m.Schema.Properties[name], 0)
			_, text := of.line()
			names = append(names, name+"=\t"+toolkeep.Clip(text, 60))
		}
	}
	return names, cobra.ShellCompDirectiveNoSpace | cobra.ShellCompDirectiveNoFileComp
}

// completeValue offers the values of an enum or a boolean.
func completeValue(name string, schema json.RawMessage) ([]string, cobra.ShellCompDirective) {
	var p struct {
		Type any   `json:"type"`
		Enum []any `json:"enum"`
	}
	if len(schema) == 0 || json.Unmarshal(schema, &p) != nil {
		return nil, cobra.ShellCompDirectiveDefault // such as a file after =@
	}
	if p.Type == "boolean" {
		p.Enum = []any{true, false}
	}
	var values []string
	for _, v := range p.Enum {
		values = append(values, fmt.Sprintf("%s=%v", name, v))
	}
	return values, cobra.ShellCompDirectiveNoFileComp
}

func sortedKeys[V any](m map[string]V) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}
