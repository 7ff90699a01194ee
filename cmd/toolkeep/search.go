package main

import (
	"cmp"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/toolkeep/toolkeep/discover"
)

// searchWish holds the flags of search.
type searchWish struct {
	limit                       int
	strategy, category, session string
	explain                     bool
	context                     shownContext
}

func (a *app) searchCmd() *cobra.Command {
	var s searchWish
	c := &cobra.Command{
		Use:   "search WORDS…",
		Short: "Find tools by their purpose",
		Long: `Find tools by their purpose: by the words of names, descriptions and parameters, by their meaning if an
embedding model is installed (toolkeep models), and by how they were used. --explain shows the parts of
each score and their weights. --context prints the tools as a context for a language model in a phase of its
conversation.`,
		Example: "  toolkeep search hash a text\n  toolkeep search --limit 3 'order a book'\n  toolkeep search --explain 'will I need an umbrella'\n  toolkeep search --context --phase tool_selection order a book",
		Args:    arguments(1, -1, "what to look for"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if strings.TrimSpace(strings.Join(args, "")) == "" {
				return usagef("the query is missing: toolkeep search order a book")
			}
			if err := s.context.check(cmd); err != nil {
				return err
			}
			if s.context.asked {
				return a.printContext(cmd, strings.Join(args, " "), s.context, s.session)
			}
			return a.search(cmd, strings.Join(args, " "), &s)
		},
	}
	f := c.Flags()
	f.IntVar(&s.limit, "limit", 10, "results at most, up to 50")
	f.StringVar(&s.strategy, "strategy", "", "hybrid, semantic, keyword, category or session; default hybrid")
	f.StringVar(&s.session, "session", "", "the conversation that the query belongs to; tools called in it rank higher")
	f.StringVar(&s.category, "category", "", "only tools of this category")
	f.BoolVar(&s.explain, "explain", false, "show the parts of each score")
	s.context.flags(c)
	return a.withJSON(c)
}

// maxInURL is the longest query, in bytes, that is sent in a URL.
const maxInURL = 2000

func (a *app) search(cmd *cobra.Command, words string, s *searchWish) error {
	if err := between("--limit", s.limit, 1, 50); err != nil {
		return err
	}
	q := url.Values{"q": {words}, "limit": {strconv.Itoa(s.limit)}}
	if s.strategy != "" {
		q.Set("strategy", s.strategy)
	}
	if s.category != "" {
		q.Set("category", s.category)
	}
	if s.explain {
		q.Set("explain", "true")
	}
	var header []string
	if s.session != "" {
		header = []string{"X-Session-ID", s.session}
	}
	method, path, body := http.MethodGet, "/api/v1/tools/retrieval/search", any(nil)
	if len(words) <= maxInURL {
		path += "?" + q.Encode()
	} else {
		method = http.MethodPost
		body = map[string]any{"q": words, "limit": s.limit, "strategy": cmp.Or(s.strategy, "hybrid"), "category": s.category, "explain": s.explain}
	}
	var found foundTools
	return a.ask(cmd.Context(), method, path, body, &found, func(w io.Writer) error {
		if found.Data.Metadata.QueryCut {
			fmt.Fprintln(a.stderr, "toolkeep:", discover.CutNotice)
		}
		if degraded := found.Data.Metadata.Degraded; s.explain && degraded != "" {
			fmt.Fprintln(a.stderr, "toolkeep:", degraded)
		}
		if n := len(found.Data.Index) - len(found.Data.Detailed); n > 0 {
			found.Data.Index = found.Data.Index[:len(found.Data.Detailed)]
			fmt.Fprintf(a.stderr, "toolkeep: at least %d more match; --limit shows up to 50\n", n)
		}
		if s.explain {
			return found.explain(w)
		}
		return found.print(w)
	}, header...)
}

// foundTools is the printed part of a search response.
type foundTools struct {
	Data struct {
		Index []struct {
			ToolID           string     `json:"toolId"`
			Version          string     `json:"version"`
			ShortDescription string     `json:"shortDescription"`
			Score            float64    `json:"score"`
			Why              []string   `json:"why"`
			Explanation      scoreParts `json:"explanation"`
		} `json:"lightweightIndex"`
		Detailed []struct {
			ToolID string `json:"toolId"`
		} `json:"detailedTools"`
		Metadata struct {
			Degraded string     `json:"degraded"`
			QueryCut bool       `json:"queryCut"`
			Weights  scoreParts `json:"weights"`
		} `json:"metadata"`
	} `json:"data"`
}

// scoreParts holds the parts of a score, or their weights.
type scoreParts struct {
	Semantic   float64 `json:"semantic"`
	Keyword    float64 `json:"keyword"`
	History    float64 `json:"history"`
	Success    float64 `json:"success"`
	Complexity float64 `json:"complexity"`
	Action     float64 `json:"action"`  // not among the weights
	Learned    float64 `json:"learned"` // not among the weights
	Named      bool    `json:"named"`   // not among the weights
}

func (f *foundTools) print(w io.Writer) error {
	return table(w, "TOOL|VERSION|SCORE|MATCHED|DESCRIPTION", func(row func(...any)) {
		for _, r := range f.Data.Index {
			row(r.ToolID, r.Version, fmt.Sprintf("%.2f", r.Score), strings.Join(r.Why, " "), r.ShortDescription)
		}
	})
}

func (f *foundTools) explain(w io.Writer) error {
	part := func(v float64) string { return fmt.Sprintf("%.2f", v) }
	err := table(w, "TOOL|VERSION|SCORE|MEANING|WORDS|HISTORY|SUCCESS|COMPLEX|ACTION|LEARNED|MATCHED|DESCRIPTION", func(row func(...any)) {
		for _, r := range f.Data.Index {
			e := r.Explanation
			matched := strings.Join(r.Why, " ")
			if e.Named {
				matched = "named: " + matched
			}
			row(r.ToolID, r.Version, part(r.Score), part(e.Semantic), part(e.Keyword), part(e.History), part(e.Success), part(e.Complexity), part(e.Action), part(e.Learned),
				matched, r.ShortDescription)
		}
	})
	if err != nil {
		return err
	}
	by := f.Data.Metadata.Weights
	_, err = fmt.Fprintf(w, "\nWeights: meaning %g, words %g, history %g, success %g; complexity subtracts %g; an action adds 0.05\n", by.Semantic, by.Keyword, by.History, by.Success, by.Complexity)
	return err
}
