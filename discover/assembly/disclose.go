package assembly

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/discover"
)

// Phase of a conversation (Discovery 6.1).
type Phase string

// Phases.
const (
	InitialPlanning      Phase = "initial_planning"      // which tools there are
	ToolSelection        Phase = "tool_selection"        // the best of them in full
	ExecutionPreparation Phase = "execution_preparation" // a tool with what it needs
	ErrorRecovery        Phase = "error_recovery"        // what helps after a failure
)

// Phases returns all phases in order.
func Phases() []Phase {
	return []Phase{InitialPlanning, ToolSelection, ExecutionPreparation, ErrorRecovery}
}

// Budgets are the token budgets of the phases; zero fields take Discovery's upper value.
type Budgets struct {
	InitialPlanning      int // default 3,000
	ToolSelection        int // default 5,000
	ExecutionPreparation int // default 4,000
	ErrorRecovery        int // default 5,000
}

// Of returns the budget of a phase.
func (b Budgets) Of(p Phase) int {
	set, def := b.InitialPlanning, 3000
	switch p {
	case ToolSelection:
		set, def = b.ToolSelection, 5000
	case ExecutionPreparation:
		set, def = b.ExecutionPreparation, 4000
	case ErrorRecovery:
		set, def = b.ErrorRecovery, 5000
	}
	if set <= 0 {
		return def
	}
	return set
}

// Shares are thresholds on a found tool's score, as a share of the best score. A zero field takes
// its default; a negative one disables the threshold: then every tool is near, or the index goes on
// as long as there is room.
type Shares struct {
	// Near is the share from which a tool may be shown in full, and from which its index line has
	// its tags and parameters. Default 0.5.
	Near float64
	// Listed is the share from which a tool has a line in the index of ToolSelection. Default 0.2.
	// InitialPlanning continues with other kinds of tools instead, since it shows what exists.
	Listed float64
}

func (s Shares) near() float64 { return shareOr(s.Near, 0.5) }

func (s Shares) listed() float64 { return shareOr(s.Listed, 0.2) }

func shareOr(set, def float64) float64 {
	switch {
	case set == 0:
		return def
	case set < 0:
		return 0
	}
	return set
}

// Limits of a budget in tokens. Below the minimum there is no room for the context's own metadata.
const (
	MinBudget = 500
	MaxBudget = 100_000
)

// Bounds of a request.
const (
	MaxChosen   = 20  // tools that it names
	MaxMessages = 500 // of the conversation
)

// Format of a context; its tokens are counted in this format.
type Format string

// Formats.
const (
	JSON     Format = "json"
	Markdown Format = "markdown"
)

// Request is the input of a context. Found and All hold only tools the caller may see; the package
// shows no others.
type Request struct {
	Query    string
	Phase    Phase // "": detected from the following fields
	Messages []Message
	Chosen   []string // ids of tools named by the model or a person; at most 20
	Failure  *Failure // the failure, for error recovery
	Found    []discover.Match
	All      []*toolkeep.Tool // every visible tool, in any order
	// Alike finds visible tools that could replace tool, best first; nil: the found tools of its
	// category.
	Alike func(tool *toolkeep.Tool, limit int) []*toolkeep.Tool
	// Pairings and Failures return what was learned about a tool for the requesting tenant, as in
	// Usage; nil: nothing.
	Pairings func(tool string, n int) []Pairing
	Failures func(tool string) []SeenError
	// Degraded and Cut are the search's own report.
	Degraded string
	Cut      bool
	Budgets  Budgets
	Shares   Shares
	Budget   int    // of this context; 0: the phase's
	Format   Format // "" is JSON
	// CountAll fills in Metadata.TokensOfAll.
	CountAll bool
}

// Rename replaces each name of a tool in the request by what id returns for it.
func (r *Request) Rename(id func(string) string) {
	for i := range r.Chosen {
		r.Chosen[i] = id(r.Chosen[i])
	}
	failures := []*Failure{r.Failure}
	for i := range r.Messages {
		m := &r.Messages[i]
		m.ToolID = id(m.ToolID)
		for j := range m.ToolCalls {
			m.ToolCalls[j].ToolID = id(m.ToolCalls[j].ToolID)
		}
		failures = append(failures, m.ToolError)
	}
	for _, f := range failures {
		if f != nil {
			f.ToolID = id(f.ToolID)
		}
	}
}

// Context is what a model is shown. Its parts depend on the phase.
type Context struct {
	LightweightIndex []Entry        `json:"lightweightIndex,omitempty" doc:"tools in a line each, best first; those that are shown whole are not here again. Of execution_preparation and error_recovery, the tools asked about whose manifests do not fit"`
	IndexRest        *Rest          `json:"indexRest,omitempty" doc:"tools that are neither in the index nor shown whole"`
	DetailedTools    []Detail       `json:"detailedTools,omitempty" doc:"tools whole, best first"`
	Examples         []Example      `json:"examples,omitempty"`
	Patterns         []Pattern      `json:"patterns,omitempty" doc:"tools that go with those above"`
	Recovery         *Recovery      `json:"recovery,omitempty" doc:"what to do after the error"`
	ErrorPatterns    []ErrorPattern `json:"errorPatterns,omitempty" doc:"errors that the tool knows and that look like this one"`
	Alternatives     []Alternative  `json:"alternatives,omitempty" doc:"tools that may do it instead"`
	Metadata         Metadata       `json:"metadata"`

	format Format
}

// Entry is one line of the index (Discovery 2.2.3 b). Tools far from the query have no verb, tags
// or parameters; they come last, and Metadata.LeftOut counts them.
type Entry struct {
	ToolID           string   `json:"toolId"`
	Verb             string   `json:"verb,omitempty"`
	ShortDescription string   `json:"shortDescription"`
	Category         string   `json:"category"`
	Tags             []string `json:"tags,omitempty"`
	RequiredParams   []string `json:"requiredParams,omitempty"`
	OptionalParams   []string `json:"optionalParams,omitempty"`

	isBrief bool
}

// Rest counts the tools neither in the index nor shown in full.
type Rest struct {
	Tools      int             `json:"tools"`
	Categories []CategoryCount `json:"categories" doc:"most tools first"`
	Hint       string          `json:"hint" doc:"how to ask for them"`
}

// CategoryCount is how many tools a category has.
type CategoryCount struct {
	Category string `json:"category"`
	Tools    int    `json:"tools"`
}

// Detail is a tool in full, as far as a caller needs it: without its binding and secrets.
type Detail struct {
	ToolID   string          `json:"toolId"`
	Manifest json.RawMessage `json:"manifest"`
	Omitted  []string        `json:"-"` // parts left out, reported in Metadata.LeftOut
}

// Example is one worked example of a tool.
type Example struct {
	ToolID      string          `json:"toolId"`
	Scenario    string          `json:"scenario"`
	Input       json.RawMessage `json:"input,omitempty"`
	Output      json.RawMessage `json:"output,omitempty"`
	Explanation string          `json:"explanation,omitempty"`
}

// Pattern is a tool used together with another.
type Pattern struct {
	ToolID           string `json:"toolId"`
	With             string `json:"with" doc:"the tool it goes with"`
	Relationship     string `json:"relationship" enum:"dependency,pairing"`
	Sequence         string `json:"sequence,omitempty" enum:"before,after,parallel" doc:"when toolId is called, seen from the other tool"`
	ShortDescription string `json:"shortDescription"`
	Learned          bool   `json:"learned,omitempty,omitzero" doc:"from how tools were used; the manifest does not name it"`
}

// ErrorPattern is an error listed in a tool's manifest, or one it returned before.
type ErrorPattern struct {
	ToolID     string `json:"toolId"`
	Error      string `json:"error"`
	Resolution string `json:"resolution,omitempty"`
	Seen       int    `json:"seen,omitempty,omitzero" doc:"how often the tool gave it; absent for what the manifest tells"`
}

// Alternative is a tool to use instead.
type Alternative struct {
	Entry
	Why string `json:"why" enum:"named by the tool,does the like,same category,fits the question"`
}

// Recovery is the error catalogue's advice for a failure.
type Recovery struct {
	ToolID      string   `json:"toolId,omitempty"`
	ErrorCode   string   `json:"errorCode,omitempty"`
	Name        string   `json:"name,omitempty"`
	Class       string   `json:"class,omitempty"`
	Message     string   `json:"message,omitempty"`
	Retryable   bool     `json:"retryable"`
	RetryAfterS int      `json:"retryAfterS,omitempty,omitzero"`
	Hints       []string `json:"hints" doc:"what to do, most important first"`
}

// Metadata says how a context was built.
type Metadata struct {
	Phase                Phase     `json:"phase" enum:"initial_planning,tool_selection,execution_preparation,error_recovery"`
	PhaseReason          string    `json:"phaseReason" doc:"why this phase"`
	TokensUsed           int       `json:"tokensUsed" doc:"of the context in the form that was asked for, this included"`
	TokenBudget          int       `json:"tokenBudget"`
	Tokenizer            string    `json:"tokenizer" enum:"o200k_base"`
	TotalToolsAvailable  int       `json:"totalToolsAvailable" doc:"tools that you may see"`
	ToolsRetrieved       int       `json:"toolsRetrieved" doc:"tools shown whole"`
	Degraded             string    `json:"degraded,omitempty" doc:"why meanings were not compared although they should be, or of how many of the tools that you may see they were not"`
	QueryCut             bool      `json:"queryCut,omitzero" doc:"what is to be done has more than 16,000 characters; the rest was not read"`
	LeftOut              []LeftOut `json:"leftOut,omitempty" doc:"what did not fit or does not exist"`
	TokensOfAll          int       `json:"tokensOfAll,omitempty,omitzero" doc:"where countAll asked for it: how many tokens the whole manifests of all tools that you may see would take"`
	TokensOfAllEstimated bool      `json:"tokensOfAllEstimated,omitempty,omitzero" doc:"it was not counted, but follows from the manifests' bytes"`
}

// LeftOut is a part left out of a context.
type LeftOut struct {
	What   string   `json:"what" enum:"manifest,manifest_parts,index_entries,index_parameters,examples,patterns,error_patterns,alternatives,chosen_tools,categories"`
	ToolID string   `json:"toolId,omitempty"`
	Parts  []string `json:"parts,omitempty"`
	Count  int      `json:"count,omitempty,omitzero"`
	Tokens int      `json:"tokens,omitempty,omitzero" doc:"about how many tokens the whole manifest takes, with its examples"`
	Why    string   `json:"why"`
}

// Reasons in LeftOut.
const (
	whyBudget  = "the token budget"
	whyDamaged = "the stored manifest cannot be read"
	whyUnknown = "there is no such tool"
	whyNoMatch = "they do not look like this error"
	whyLess    = "less near to what was asked"
	whyFar     = "far from what was asked"
)

// Number of tools shown in full per phase (Discovery 6.2).
var maxDetails = map[Phase]int{InitialPlanning: 0, ToolSelection: 3, ExecutionPreparation: 5, ErrorRecovery: 3}

// Maximum length of each list.
const (
	maxExamples     = 6 // in total
	maxPatterns     = 20
	maxErrors       = 10
	maxAlternatives = 5
	maxCategories   = 12
)

// Build builds the context of a request. E3312 for a request that contradicts itself or exceeds a
// limit.
func Build(r Request) (*Context, error) {
	if err := r.Check(); err != nil {
		return nil, err
	}
	phase, why := r.Phase, "asked for"
	if phase == "" {
		phase, why = Detect(r.Messages, r.Chosen, r.Failure)
	}
	budget := r.Budget
	if budget == 0 {
		budget = min(max(r.Budgets.Of(phase), MinBudget), MaxBudget)
	}
	all := newCatalogue(r.All)
	b := &builder{r: r, all: all, budget: budget, c: &Context{format: r.Format}}
	if b.c.format == "" {
		b.c.format = JSON
	}
	b.c.Metadata = Metadata{Phase: phase, PhaseReason: why, TokenBudget: budget, Tokenizer: Tokenizer, TotalToolsAvailable: len(all.tools), Degraded: toolkeep.ClipBytes(oneLine(r.Degraded), 160), QueryCut: r.Cut}
	if r.CountAll {
		b.c.Metadata.TokensOfAll, b.c.Metadata.TokensOfAllEstimated = tokensOf(all.tools), true
	}
	b.choose()
	switch phase {
	case InitialPlanning:
	case ToolSelection:
		b.details(b.pick(maxDetails[phase]), budget*3/4)
	case ExecutionPreparation:
		b.prepare(maxDetails[phase])
	case ErrorRecovery:
		b.recover(maxDetails[phase])
	}
	if phase == InitialPlanning || phase == ToolSelection {
		b.index()
	}
	b.fit()
	return b.c, nil
}

// Check refuses what no context can be made of. E3301.
func (r *Request) Check() error {
	for _, m := range r.Messages {
		switch m.Role {
		case System, User, Assistant, Tool:
		default:
			return toolkeep.NewError(toolkeep.InvalidParameters, "a message has the role %q; the roles are system, user, assistant and tool", toolkeep.ClipBytes(string(m.Role), 100))
		}
	}
	switch {
	case len(r.Messages) > MaxMessages:
		return toolkeep.NewError(toolkeep.InvalidParameters, "the conversation has more than %d messages; send the newest", MaxMessages)
	case r.Phase != "" && !slices.Contains(Phases(), r.Phase):
		return toolkeep.NewError(toolkeep.InvalidParameters, "%q is not a phase; the phases are initial_planning, tool_selection, execution_preparation, error_recovery", toolkeep.ClipBytes(string(r.Phase), 100))
	case r.Format != "" && r.Format != JSON && r.Format != Markdown:
		return toolkeep.NewError(toolkeep.InvalidParameters, "%q is not a format; the formats are json and markdown", toolkeep.ClipBytes(string(r.Format), 100))
	case r.Budget != 0 && (r.Budget < MinBudget || r.Budget > MaxBudget):
		return toolkeep.NewError(toolkeep.InvalidParameters, "the budget is %d tokens and must be from %d to %d", r.Budget, MinBudget, MaxBudget)
	case len(r.Chosen) > MaxChosen:
		return toolkeep.NewError(toolkeep.InvalidParameters, "%d tools are named, at most %d are read", len(r.Chosen), MaxChosen)
	}
	return nil
}

// catalogue holds all visible tools by id, each once.
type catalogue struct {
	tools []*toolkeep.Tool // sorted by id
	byID  map[string]*toolkeep.Tool
}

// newCatalogue keeps the shared one of two tools with the same id, as the catalogue does.
func newCatalogue(all []*toolkeep.Tool) *catalogue {
	c := &catalogue{tools: make([]*toolkeep.Tool, 0, len(all)), byID: make(map[string]*toolkeep.Tool, len(all))}
	for _, t := range all {
		if t != nil && t.Manifest != nil {
			c.tools = append(c.tools, t)
		}
	}
	slices.SortFunc(c.tools, func(a, b *toolkeep.Tool) int {
		return cmp.Or(strings.Compare(a.ID, b.ID), strings.Compare(a.Tenant, b.Tenant))
	})
	c.tools = slices.CompactFunc(c.tools, func(a, b *toolkeep.Tool) bool { return a.ID == b.ID })
	for _, t := range c.tools {
		c.byID[t.ID] = t
	}
	return c
}

// builder builds one context.
type builder struct {
	r      Request
	all    *catalogue
	c      *Context
	budget int
	ranked []*toolkeep.Tool           // found, best first, each once
	share  map[*toolkeep.Tool]float64 // of the best score, of each of ranked
	chosen []*toolkeep.Tool           // named by the request, in order
	named  []*toolkeep.Tool           // tools with at least a line if there is no full index
	whole  []detail                   // of c.DetailedTools
	brief  int                        // entries at the end of the index without parameters
	ended  bool                       // the index ends because the remaining tools are far
	rest   map[string]int             // tools not in the context, by category
	left   []LeftOut                  // of Metadata, except what is derived when written
}

// choose finds the tools named by the request, or else by the conversation.
func (b *builder) choose() {
	seen, best := map[string]bool{}, 0.0
	b.share = make(map[*toolkeep.Tool]float64, len(b.r.Found))
	for _, m := range b.r.Found {
		// Found tools are looked up in All, so that a tool removed between the two is in neither.
		if m.Tool == nil || seen[m.Tool.ID] {
			continue
		}
		if t := b.all.byID[m.Tool.ID]; t != nil {
			seen[t.ID] = true
			b.ranked = append(b.ranked, t)
			b.share[t] = m.Score
			best = max(best, m.Score)
		}
	}
	// Learned ranks, and a name in the query, move tools ahead of others with a higher score: a
	// tool is as near as any ranked behind it.
	nearest := 0.0
	for _, t := range slices.Backward(b.ranked) {
		nearest = max(nearest, b.share[t])
		b.share[t] = 1
		if best > 0 {
			b.share[t] = nearest / best
		}
	}
	clear(seen)
	add := func(id string) bool {
		t := b.all.byID[id]
		if t != nil && !seen[id] {
			seen[id] = true
			b.chosen = append(b.chosen, t)
		}
		return t != nil
	}
	unknown := 0
	for _, id := range b.r.Chosen {
		if !add(b.idOf(id)) {
			unknown++
		}
	}
	if unknown > 0 {
		b.left = append(b.left, LeftOut{What: "chosen_tools", Count: unknown, Why: whyUnknown})
	}
	if len(b.chosen) > 0 || len(b.r.Chosen) > 0 {
		return
	}
	// During tool selection, completed calls belong to an earlier task.
	if ids, done := called(b.r.Messages); !done || b.c.Metadata.Phase != ToolSelection {
		for _, id := range ids {
			add(b.idOf(id))
		}
	}
	if len(b.chosen) == 0 {
		for _, id := range mentioned(b.r.Messages) {
			add(b.idOf(id))
		}
	}
}

// atLeast reports whether a tool has a share of the best score. Chosen tools always do, and if
// nothing was found all tools do, since nothing tells them apart.
func (b *builder) atLeast(t *toolkeep.Tool, share float64) bool {
	if share <= 0 || len(b.ranked) == 0 || slices.Contains(b.chosen, t) {
		return true
	}
	has, found := b.share[t]
	return found && has >= share
}

// idOf returns the id for a name: providers allow no dot in names, so a model writes
// namespace__name for namespace.name.
func (b *builder) idOf(name string) string {
	if b.all.byID[name] == nil {
		if namespace, rest, ok := strings.Cut(name, "__"); ok && !strings.Contains(namespace, ".") {
			return namespace + "." + rest
		}
	}
	return name
}

// pick returns the tools shown in full: the chosen tools, then the best near ones found.
func (b *builder) pick(most int) []*toolkeep.Tool {
	out := slices.Clone(b.chosen)
	for _, t := range b.ranked {
		if len(out) >= most || !b.atLeast(t, b.r.Shares.near()) {
			break
		}
		if !slices.Contains(out, t) {
			out = append(out, t)
		}
	}
	if len(out) > most {
		b.left = append(b.left, LeftOut{What: "chosen_tools", Count: len(out) - most, Why: fmt.Sprintf("at most %d tools are shown whole in this phase", most)})
		out = out[:most]
	}
	return out
}
