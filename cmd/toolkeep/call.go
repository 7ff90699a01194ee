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

	"github.com/spf13/cobra"

	"github.com/toolkeep/toolkeep"
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
	var from string
	c := &cobra.Command{
		Use:   "call TOOL[@VERSION] [key=value… | --json '{…}' | -]",
		Short: "Call a tool and print its result",
		Long: `Call a tool and print its result.

Arguments are given as key=value (text; converted to a number or boolean where the tool requires
one), key:=JSON (typed), key=@FILE (the file's text), a whole JSON object after --json, or - to read
that object from standard input. A dot leads into an object (body.plate=AB), unless a parameter has it in its own name.
A key given several times makes a list, and so does one value where the tool expects a list.

The result is printed on standard output, warnings and errors on standard error. --json without an
object, or --answer, prints the whole answer instead of the result alone. Ctrl-C cancels a call that
is waited for, on the server too; one that was queued with --async goes on.`,
		Example: `  toolkeep call std.hash text=hello
  toolkeep call std.hash@^1 text=@README.md
  toolkeep call std.math operation=add 'numbers:=[1,2,3]'
  toolkeep call bookshop.createOrder body.customer=Ada 'body.lines:=[{"book_id":"moby-dick","quantity":1}]'
  toolkeep call std.math operation=add numbers=1 numbers=2 --json
  toolkeep call std.echo --json '{"message":"hello"}'
  echo '{"message":"hello"}' | toolkeep call std.echo -
  toolkeep call std.note_append text=once --idempotency-key note-1
  toolkeep call std.wait duration_ms=5000 --async --wait
  toolkeep call --from answer.json`,
		Args: func(cmd *cobra.Command, args []string) error {
			if from != "" {
				return nil
			}
			return arguments(1, -1, "the tool's id, such as std.hash")(cmd, args)
		},
		ValidArgsFunction: a.completeCall,
		RunE: func(cmd *cobra.Command, args []string) error {
			if from != "" {
				return a.callFrom(cmd, &f, from, args)
			}
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
	c.Flags().StringVar(&from, "from", "", "a model's answer or tool calls, in this file or on standard input (-), in place of TOOL")
	return c
}

// callFrom carries out a model's tool calls and prints the messages to send back.
func (a *app) callFrom(cmd *cobra.Command, f *callFlags, from string, args []string) error {
	for _, name := range []string{"async", "wait", "timeout", "priority", "no-cache", "require-approval"} {
		if cmd.Flags().Changed(name) {
			return usagef("--%s is for one call; --from takes those of a model as they are", name)
		}
	}
	if len(args) > 0 || f.jsonText != "" && f.jsonText != noValue {
		return usagef("--from FILE takes the tools and their arguments from the model's message; leave %s out", append(args, "the object after --json")[0])
	}
	raw, err := a.readInput(from)
	if err != nil {
		return usagef("%v", err)
	}
	if !json.Valid(raw) {
		return usagef("%s is no JSON; give what came from the model's provider, or the tool calls in it", orStdin(from))
	}
	cl, err := a.connect()
	if err != nil {
		return err
	}
	var answer struct {
		Messages json.RawMessage `json:"messages"`
		Calls    []struct {
			Name         string `json:"name"`
			InvocationID string `json:"invocation_id"`
			Status       string `json:"status"`
			ErrorCode    string `json:"error_code"`
		} `json:"calls"`
	}
	var headers []string
	if f.key != "" {
		headers = append(headers, "Idempotency-Key", f.key)
	}
	if f.session != "" {
		headers = append(headers, "X-Session-ID", f.session)
	}
	_, done := a.patience("calling for a model")
	body, err := cl.post(cmd.Context(), "/api/v1/tools/invoke/model", raw, &answer, headers...)
	done()
	if err != nil {
		return err
	}
	for _, c := range answer.Calls {
		if c.Status != "success" {
			fmt.Fprintf(a.errText(), "toolkeep: %s: %s %s, recorded as %s\n", c.Name, c.Status, c.ErrorCode, c.InvocationID)
		}
	}
	if f.whole || f.jsonText == noValue {
		return a.printJSON(body)
	}
	return a.printJSON(answer.Messages)
}

func (a *app) explainCmd() *cobra.Command {
	var f callFlags
	var as, keyID string
	c := &cobra.Command{
		Use:   "explain TOOL[@VERSION] [key=value… | --json '{…}' | -]",
		Short: "Show what a call would do, step by step, without making it",
		Long: `Run every step of the call without consuming, claiming or sending anything, and go on after a refusal.
Exit code 3 means that the call would be refused. Arguments are those of call.

--as SUBJECT explains the call of another subject, with each of its API keys or with --key-id alone, also where the subject
does not see the tool. It needs the permission keys:admin, and is recorded.`,
		Example: `  toolkeep explain std.hash text=hello
  toolkeep explain std.hash text:=5 --json
  toolkeep explain std.hash --as bot
  TOOLKEEP_KEY=tk_… toolkeep explain bookshop.createOrder --json '{"body":{}}'`,
		Args:              arguments(1, -1, "the tool's id, such as std.hash"),
		ValidArgsFunction: a.completeCall,
		RunE: func(cmd *cobra.Command, args []string) error {
			body, err := a.callBody(cmd, &f, args)
			if err != nil {
				return err
			}
			if keyID != "" && as == "" {
				return usagef("--key-id chooses among the keys of a subject: add --as SUBJECT")
			}
			path := "/api/v1/tools/invoke"
			if as != "" {
				path = "/api/v1/policies/explain"
				for _, name := range []string{"idempotency-key", "session", "timeout", "priority", "no-cache", "require-approval"} {
					if cmd.Flags().Changed(name) {
						return usagef("--%s is of a call of your own; --as takes a tool and its arguments", name)
					}
				}
				body["subject"] = as
				if keyID != "" {
					body["key_id"] = keyID
				}
			} else {
				body["dry_run"] = true
			}
			cl, err := a.connect()
			if err != nil {
				return err
			}
			return a.doExplain(cmd.Context(), cl, path, body)
		},
	}
	f.add(c)
	c.Flags().StringVar(&as, "as", "", "explain the call of this subject, with each of its API keys")
	c.Flags().StringVar(&keyID, "key-id", "", "with --as: with this key alone")
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
	parameters, err := parametersOf(text, where, pairs, func() *callSchema { return a.schemaOf(cmd.Context(), id, rng) })
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

// showCall prints the result on stdout and the rest on stderr. The rest comes also where an expression fails on the result.
func (a *app) showCall(raw []byte, answer *callAnswer) error {
	show := func(raw []byte) error {
		err := a.printJSON(raw)
		var f *failure
		if errors.As(err, &f) {
			err = &failure{code: f.code, err: fmt.Errorf("%w\n  recorded as %s", f.err, answer.InvocationID)}
		}
		return err
	}
	var unshown error
	if a.json {
		unshown = show(raw)
	}
	if f := answer.Metadata.Fallback; f != nil {
		fmt.Fprintf(a.errText(), "toolkeep: the tool failed (%s), so its fallback %s@%s was asked (invocation %s)\n", f.Reason, f.Tool, f.Version, f.InvocationID)
	}
	for _, w := range answer.Metadata.Warnings {
		fmt.Fprintf(a.errText(), "toolkeep: warning %s: %s\n", w.Code, w.Message)
	}
	switch {
	case answer.Error != nil:
		code := toolkeep.Code(answer.Error.ErrorCode)
		exit, what := exitToolFailed, "the tool failed"
		if code.Info().Kind == toolkeep.KindRefusal { // such as a waiting call that was cancelled
			exit, what = exitCodeOf(code), "the call was not executed to its end"
		}
		fmt.Fprintf(a.errText(), "toolkeep: %s: %s %s: %s\n", what, code, answer.Error.Name, answer.Error.Message)
		if len(answer.Error.Details) > 0 {
			if d, err := json.Marshal(answer.Error.Details); err == nil {
				fmt.Fprintf(a.errText(), "  %s\n", toolkeep.Clip(string(d), 2000))
			}
		}
		fmt.Fprintf(a.errText(), "  recorded as %s\n", answer.InvocationID)
		if unshown != nil {
			a.report(unshown)
		}
		return &failure{code: exit, err: errors.New(answer.Error.ErrorCode), quiet: true}
	case a.json:
		return unshown
	case answer.Status != "success": // there is no result for an expression yet
		switch {
		case !a.out.machine():
			unshown = a.write(answer.InvocationID + "\n")
		case !a.out.reshaped():
			unshown = show(raw)
		}
		fmt.Fprintf(a.errText(), "toolkeep: the call is %s; `toolkeep invocations get %s` shows its end\n", answer.Status, answer.InvocationID)
		return unshown
	}
	if answer.Metadata.Truncated {
		for _, at := range answer.Metadata.Attachments {
			fmt.Fprintf(a.errText(), "toolkeep: the result was cut; `toolkeep blobs get %s -o FILE` fetches the whole (%d bytes)\n", blobID(at.URL), at.Bytes)
		}
	}
	if len(answer.Result) == 0 {
		answer.Result = json.RawMessage("null")
	}
	return show(answer.Result)
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

// explanation is the part of a dry run's answer that explain reads.
type explanation struct {
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

func (x *explanation) print(w io.Writer) error {
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
}

// doExplain prints an explanation, or one for each key of another subject.
func (a *app) doExplain(ctx context.Context, cl *client, path string, body map[string]any) error {
	var own explanation
	var answer struct {
		Of []struct {
			KeyID       string      `json:"key_id"`
			Subject     string      `json:"subject"`
			Roles       []string    `json:"roles"`
			Scope       []string    `json:"scope"`
			Explanation explanation `json:"explanation"`
		} `json:"explanations"`
	}
	raw, err := cl.post(ctx, path, body, &answer)
	if err == nil && len(answer.Of) == 0 {
		err = decode(raw, &own)
	}
	if err != nil {
		return err
	}
	execute := own.Execute || len(answer.Of) > 0
	for _, one := range answer.Of {
		execute = execute && one.Explanation.Execute
	}
	err = a.show(raw, func(w io.Writer) error {
		if len(answer.Of) == 0 {
			return own.print(w)
		}
		for i, one := range answer.Of {
			if i > 0 {
				fmt.Fprintln(w)
			}
			scope := "all tools"
			if len(one.Scope) > 0 {
				scope = strings.Join(one.Scope, ", ")
			}
			fmt.Fprintf(w, "%s with key %s (roles %s; scope %s): ", one.Subject, one.KeyID, strings.Join(one.Roles, ", "), scope)
			if err := one.Explanation.print(w); err != nil {
				return err
			}
		}
		return nil
	})
	if err == nil && !execute {
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
