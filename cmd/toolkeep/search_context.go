package main

import (
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"

	"github.com/spf13/cobra"
)

// shownContext holds the flags of search --context.
type shownContext struct {
	asked  bool
	phase  string
	tools  []string
	budget int
}

var phases = []string{"initial_planning", "tool_selection", "execution_preparation", "error_recovery"}

func (s *shownContext) flags(c *cobra.Command) {
	f := c.Flags()
	f.BoolVar(&s.asked, "context", false, "print the tools as a context for a language model, Markdown within a budget of tokens")
	f.StringVar(&s.phase, "phase", "", "with --context: "+strings.Join(phases, ", ")+"; default by the query")
	f.StringArrayVar(&s.tools, "tool", nil, "with --context: a tool that was chosen; may be repeated")
	f.IntVar(&s.budget, "budget", 0, "with --context: tokens at most, 500 to 100000; default by phase")
	_ = c.RegisterFlagCompletionFunc("phase", cobra.FixedCompletions(phases, cobra.ShellCompDirectiveNoFileComp))
}

// check refuses flags that do not go together.
func (s *shownContext) check(c *cobra.Command) error {
	for _, name := range []string{"phase", "tool", "budget"} {
		if !s.asked && c.Flags().Changed(name) {
			return usagef("--%s goes with --context", name)
		}
	}
	for _, name := range []string{"limit", "strategy", "category", "explain"} {
		if s.asked && c.Flags().Changed(name) {
			return usagef("--%s does not go with --context", name)
		}
	}
	if s.phase != "" && !slices.Contains(phases, s.phase) {
		return usagef("%q is not a phase; the phases are %s", s.phase, strings.Join(phases, ", "))
	}
	if c.Flags().Changed("budget") {
		return between("--budget", s.budget, 500, 100_000)
	}
	return nil
}

// printContext asks the server and prints the Markdown, or all of it as JSON under --json.
func (a *app) printContext(c *cobra.Command, query string, s shownContext, session string) error {
	body := map[string]any{"q": query, "format": "markdown"}
	if a.json {
		body["format"] = "json"
	}
	if s.phase != "" {
		body["phase"] = s.phase
	}
	if len(s.tools) > 0 {
		body["toolIds"] = s.tools
	}
	if s.budget != 0 {
		body["budget"] = s.budget
	}
	var answer struct {
		Data struct {
			Markdown string `json:"markdown"`
		} `json:"data"`
	}
	var header []string
	if session != "" {
		header = []string{"X-Session-ID", session}
	}
	return a.ask(c.Context(), http.MethodPost, "/api/v1/tools/retrieval/context", body, &answer, func(w io.Writer) error {
		_, err := fmt.Fprint(w, answer.Data.Markdown)
		return err
	}, header...)
}
