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
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/toolkeep/toolkeep/canon"
)

// callFlags are what call and explain share.
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
}

// noValue is what --json holds where no value follows it.
const noValue = "\x00"

func (f *callFlags) add(c *cobra.Command) {
	fl := c.Flags()
	fl.StringVar(&f.jsonText, "json", "", "arguments as one JSON object (`'{…}'`); alone: print the whole answer as JSON")
	fl.Lookup("json").NoOptDefVal = noValue
	fl.StringVar(&f.key, "idempotency-key", "", "the same key gets the same answer for 24 h and executes once")
	fl.StringVar(&f.session, "session", "", "session id, recorded with the call")
	fl.DurationVar(&f.timeout, "timeout", 0, "shorten the tool's own time limit, such as 5s")
	fl.StringVar(&f.priority, "priority", "", "low, normal or high, for calls that wait")
	fl.BoolVar(&f.fresh, "no-cache", false, "execute even if a result is cached")
	fl.BoolVar(&f.approval, "require-approval", false, "ask for a person's approval")
}

func (a *app) callCmd() *cobra.Command {
	var f callFlags
	c := &cobra.Command{
		Use:   "call TOOL[@VERSION] [key=value… | --json '{…}' | -]",
		Short: "Call a tool and print its result",
		Long: `Call a tool and print its result.

Arguments are given as key=value (text; it is turned into a number or boolean where the tool wants
one), key:=JSON (typed), key=@FILE (the file's text), a whole JSON object after --json, or - to read
that object from standard input. --json without an object prints the whole answer instead of the
result alone.`,
		Example: `  toolkeep call std.hash text=hello
  toolkeep call std.math op=add 'values:=[1,2,3]'
  toolkeep call std.echo --json '{"message":"hello"}'
  echo '{"message":"hello"}' | toolkeep call std.echo -
  toolkeep call std.wait duration_ms=5000 --async --wait`,
		Args:              cobra.MinimumNArgs(1),
		ValidArgsFunction: a.completeCall,
		RunE: func(cmd *cobra.Command, args []string) error {
			body, err := a.callBody(&f, args)
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
		Short:             "Say what would become of a call, step by step, without making it",
		Long:              "Carries the call through every step without taking, claiming or sending anything, and goes on\nafter a refusal. Exit code 3 says that the call would be refused.",
		Args:              cobra.MinimumNArgs(1),
		ValidArgsFunction: a.completeCall,
		RunE: func(cmd *cobra.Command, args []string) error {
			body, err := a.callBody(&f, args)
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

// callBody makes BC-2's request from the command line.
func (a *app) callBody(f *callFlags, args []string) (map[string]any, error) {
	id, rng := splitRef(args[0])
	text, pairs := f.jsonText, args[1:]
	if text == noValue {
		text = ""
		// pflag takes no separate value for a flag that may stand alone: the object
		// that follows --json arrives as an argument.
		if len(pairs) > 0 && strings.HasPrefix(strings.TrimSpace(pairs[0]), "{") {
			text, pairs = pairs[0], pairs[1:]
		} else {
			a.json = true
		}
	}
	if len(pairs) == 1 && pairs[0] == "-" {
		raw, err := io.ReadAll(io.LimitReader(a.stdin, 16<<20))
		if err != nil {
			return nil, usagef("standard input cannot be read: %v", err)
		}
		text, pairs = string(raw), nil
	}
	if text != "" && len(pairs) > 0 {
		return nil, usagef("give the arguments either as one JSON object or as key=value, not both (%q)", pairs[0])
	}
	parameters, err := parametersOf(text, pairs)
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
		body["timeout_seconds"] = max(1, int((f.timeout+time.Second-1)/time.Second))
	}
	return body, nil
}

// parametersOf reads the arguments; text is one JSON object.
func parametersOf(text string, pairs []string) ([]byte, error) {
	if text != "" {
		obj, err := canon.ParseObject([]byte(text), canon.Limits{Bytes: 16 << 20})
		if err != nil {
			return nil, &failure{code: exitUsage, err: err}
		}
		return canon.Append(nil, obj), nil
	}
	obj := make(map[string]any)
	for _, pair := range pairs {
		name, value, err := argument(pair)
		if err != nil {
			return nil, err
		}
		switch old := obj[name].(type) {
		case nil:
			obj[name] = value
		case []any:
			obj[name] = append(old, value)
		default:
			obj[name] = []any{old, value}
		}
	}
	return canon.Append(nil, obj), nil
}

// argument reads key=value, key:=JSON or key=@FILE.
func argument(pair string) (string, any, error) {
	name, value, ok := strings.Cut(pair, "=")
	if !ok || name == "" || name == ":" {
		return "", nil, usagef("%q is no argument: write key=value, key:=JSON or key=@FILE", pair)
	}
	if typed, isTyped := strings.CutSuffix(name, ":"); isTyped {
		v, err := canon.Parse([]byte(value), canon.Limits{})
		if err != nil {
			return "", nil, usagef("the value of %s is not JSON (%s); for text write %s=%s", typed, value, typed, value)
		}
		return typed, v, nil
	}
	if path, isFile := strings.CutPrefix(value, "@"); isFile && path != "" {
		raw, err := os.ReadFile(path)
		if err != nil {
			return "", nil, usagef("%s: %v", name, err)
		}
		return name, string(raw), nil
	}
	return name, value, nil
}

// callAnswer is what call reads of BC-2's response.
type callAnswer struct {
	InvocationID string          `json:"invocation_id"`
	Status       string          `json:"status"`
	Result       json.RawMessage `json:"result"`
	Error        *struct {
		Message   string         `json:"message"`
		ErrorCode string         `json:"error_code"`
		Name      string         `json:"name"`
		Details   map[string]any `json:"details"`
	} `json:"error"`
	Metadata struct {
		Warnings    []struct{ Code, Message string } `json:"warnings"`
		Truncated   bool                             `json:"truncated"`
		Attachments []struct {
			URL   string `json:"url"`
			Bytes int64  `json:"bytes"`
		} `json:"attachments"`
	} `json:"execution_metadata"`
}

func (a *app) doCall(ctx context.Context, cl *client, body map[string]any, wait bool) error {
	say, done := a.patience("calling " + fmt.Sprint(body["tool_id"]))
	var answer callAnswer
	raw, err := cl.post(ctx, "/api/v1/tools/invoke", body, &answer)
	if err == nil && wait && (answer.Status == "pending" || answer.Status == "running") {
		raw, err = cl.follow(ctx, answer.InvocationID, say)
		if err == nil {
			answer = callAnswer{}
			err = decode(raw, &answer)
		}
	}
	done()
	if err != nil {
		return err
	}
	return a.showCall(raw, &answer)
}

// showCall prints the result on stdout and everything else on stderr.
func (a *app) showCall(raw []byte, answer *callAnswer) error {
	if a.json {
		if err := a.printJSON(raw); err != nil {
			return err
		}
	}
	for _, w := range answer.Metadata.Warnings {
		fmt.Fprintf(a.stderr, "toolkeep: warning %s: %s\n", w.Code, w.Message)
	}
	switch {
	case answer.Error != nil:
		if !a.json {
			fmt.Fprintf(a.stderr, "toolkeep: the tool failed: %s %s: %s\n", answer.Error.ErrorCode, answer.Error.Name, answer.Error.Message)
			if len(answer.Error.Details) > 0 {
				if d, err := json.Marshal(answer.Error.Details); err == nil {
					fmt.Fprintf(a.stderr, "  %s\n", cut(string(d), 2000))
				}
			}
			fmt.Fprintf(a.stderr, "  recorded as %s\n", answer.InvocationID)
		}
		return &failure{code: exitToolFailed, err: errors.New(answer.Error.ErrorCode), quiet: true}
	case a.json:
		return nil
	case answer.Status != "success":
		fmt.Fprintf(a.stdout, "%s\n", answer.InvocationID)
		fmt.Fprintf(a.stderr, "toolkeep: the call is %s; `toolkeep invocations get %s` shows what becomes of it\n", answer.Status, answer.InvocationID)
		return nil
	}
	if answer.Metadata.Truncated {
		for _, at := range answer.Metadata.Attachments {
			fmt.Fprintf(a.stderr, "toolkeep: the result was cut; the whole (%d bytes) is at %s\n", at.Bytes, at.URL)
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
		return nil, c.unreachable(ctx, fmt.Errorf("stream: %w", err))
	}
	// The server closed the stream: ask for what there is.
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
			}
			Details map[string]any
		} `json:"steps"`
	}
	raw, err := cl.post(ctx, "/api/v1/tools/invoke", body, &x)
	if err != nil {
		return err
	}
	err = a.show(raw, func(w io.Writer) error {
		ref := x.Tool
		if x.Version != "" {
			ref += "@" + x.Version
		}
		verdict := "would be refused"
		if x.Execute {
			verdict = "would be executed"
		}
		fmt.Fprintf(w, "%s %s\n", ref, verdict)
		return table(w, "STEP|VERDICT|CODE|REASON", func(row func(...any)) {
			for _, s := range x.Steps {
				row(s.Step, s.Verdict, s.Code, s.Reason)
				for _, c := range s.Checks {
					word := "no"
					if c.Allowed {
						word = "yes"
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
	id, _ := splitRef(args[0])
	t, err := cl.published(ctx, id)
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
	var names []string
	for _, name := range sortedKeys(m.Schema.Properties) {
		given := slices.ContainsFunc(args[1:], func(s string) bool { return strings.HasPrefix(s, name+"=") || strings.HasPrefix(s, name+":=") })
		if !given && strings.HasPrefix(name, prefix) {
			_, text := parameterLine(m.Schema.Properties[name])
			names = append(names, name+"=\t"+cut(text, 60))
		}
	}
	return names, cobra.ShellCompDirectiveNoSpace | cobra.ShellCompDirectiveNoFileComp
}

func sortedKeys[V any](m map[string]V) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}
