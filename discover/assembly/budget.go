package assembly

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	"github.com/toolkeep/toolkeep"
)

// used returns the tokens of the current context, in its format.
func (b *builder) used() int { return atMost(b.c.Text(), b.budget) }

// cost returns the tokens that one part adds. It is an estimate, because tokens at the seams
// differ; fit counts the whole.
func (b *builder) cost(part any, markdown func(*strings.Builder)) int {
	if b.c.format == JSON {
		return atMost(string(marshal(part)), b.budget) + 1
	}
	s := &strings.Builder{}
	markdown(s)
	return atMost(s.String(), b.budget)
}

// detail is a tool shown in full, at one level.
type detail struct {
	tool     *toolkeep.Tool
	whole    *toolkeep.Tool // the same
	level    int
	costs    [levels]int // 0: not counted yet
	examples []Example
}

// tokens returns about how many tokens the tool takes with all its parts.
func (b *builder) tokens(d *detail) int {
	raw, _ := manifestAt(d.tool, levelWhole)
	n := atMost(string(raw), b.budget)
	for i := range d.examples {
		n += b.cost(d.examples[i], d.examples[i].markdown)
	}
	return n
}

// leave records that a tool does not fit in full, and returns the cost of its index line.
func (b *builder) leave(d *detail) int {
	b.left = append(b.left, LeftOut{What: "manifest", ToolID: oneLine(d.tool.ID), Tokens: b.tokens(d), Why: whyBudget})
	return b.line(d.tool)
}

// line adds an index line for a tool the request names, since the caller is about to call it, and
// returns the line's cost; 0 for any other tool.
func (b *builder) line(t *toolkeep.Tool) int {
	if !slices.Contains(b.named, t) {
		return 0
	}
	e := entry(t)
	b.c.LightweightIndex = append(b.c.LightweightIndex, e)
	place := func(e Entry) int {
		return slices.IndexFunc(b.named, func(t *toolkeep.Tool) bool { return oneLine(t.ID) == e.ToolID })
	}
	slices.SortStableFunc(b.c.LightweightIndex, func(x, y Entry) int { return place(x) - place(y) })
	return b.cost(e, e.markdown)
}

// at renders the tool at a level.
func (d *detail) at(level int) Detail {
	raw, omitted := manifestAt(d.whole, level)
	return Detail{ToolID: oneLine(d.tool.ID), Manifest: raw, Omitted: omitted}
}

// details shows tools in full within budget tokens. While they are too large, parts are left out
// one by one, starting with the last tool; then whole tools.
func (b *builder) details(tools []*toolkeep.Tool, budget int) {
	list := make([]detail, 0, len(tools))
	for _, t := range tools {
		whole, err := t.Whole()
		if err != nil {
			b.left = append(b.left, LeftOut{What: "manifest", ToolID: oneLine(t.ID), Why: whyDamaged})
			budget -= b.line(t)
			continue
		}
		list = append(list, detail{tool: t, whole: whole, examples: examplesOf(whole)})
	}
	cost := func(d *detail) int {
		if d.costs[d.level] == 0 {
			one := d.at(d.level)
			n := b.cost(one, one.markdown)
			if d.level < levelNoExamples {
				for i := range d.examples {
					n += b.cost(d.examples[i], d.examples[i].markdown)
				}
			}
			d.costs[d.level] = n
		}
		return d.costs[d.level]
	}
	// A tool that does not fit even at its smallest is left out.
	room := budget
	kept := list[:0]
	for _, d := range list {
		d.level = levels - 1
		if n := cost(&d); n <= room {
			room -= n
			d.level = levelWhole
			kept = append(kept, d)
			continue
		}
		n := b.leave(&d)
		room -= n
		budget -= n
	}
	total := 0
	for i := range kept {
		total += cost(&kept[i])
	}
	for total > budget && lower(kept, func(d *detail) int { return cost(d) }, &total) {
	}
	b.whole = kept
	b.showDetails()
}

// lower removes one part from the last tool among those with the most parts, and corrects total.
func lower(list []detail, cost func(*detail) int, total *int) bool {
	at := -1
	for i := range list {
		if list[i].level < levels-1 && (at < 0 || list[i].level <= list[at].level) {
			at = i
		}
	}
	if at < 0 {
		return false
	}
	d := &list[at]
	if total != nil {
		*total -= cost(d)
	}
	d.level++
	if total != nil {
		*total += cost(d)
	}
	return true
}

// showDetails writes b.whole into the context.
func (b *builder) showDetails() {
	b.c.DetailedTools, b.c.Examples = nil, nil
	for i := range b.whole {
		d := &b.whole[i]
		b.c.DetailedTools = append(b.c.DetailedTools, d.at(d.level))
		if d.level < levelNoExamples {
			b.c.Examples = append(b.c.Examples, d.examples...)
		}
	}
	// Examples beyond the maximum are those of the least important tools.
	if over := len(b.c.Examples) - maxExamples; over > 0 {
		b.c.Examples = b.c.Examples[:maxExamples]
	}
	b.c.Metadata.ToolsRetrieved = len(b.c.DetailedTools)
}

// examplesOf returns a tool's first examples.
func examplesOf(t *toolkeep.Tool) []Example {
	var out []Example
	for _, e := range t.Manifest.Examples {
		if len(out) == 3 {
			break
		}
		out = append(out, Example{ToolID: oneLine(t.ID), Scenario: oneLine(e.Scenario), Input: value(e.Input), Output: value(e.Output), Explanation: oneLine(e.Explanation)})
	}
	return out
}

// index adds a line for each tool not shown in full, best first, and counts the rest. Lines of near
// tools have their parameters; the others only say what the tool does, so that more fit. In
// InitialPlanning it ends with the budget; in ToolSelection, where the request is known, also when
// the remaining tools are far from it.
func (b *builder) index() {
	order := b.order()
	b.rest = map[string]int{}
	for _, t := range order {
		b.rest[category(t)]++
	}
	b.setRest(len(order))
	b.brief, b.ended = 0, false
	room := b.budget - b.used()
	for i, t := range order {
		if b.c.Metadata.Phase == ToolSelection && !b.atLeast(t, b.r.Shares.listed()) {
			b.ended = true
			break
		}
		e := entry(t)
		if b.brief > 0 || !b.atLeast(t, b.r.Shares.near()) {
			if b.brief == 0 && i > 0 {
				room -= briefHead
			}
			e = e.brief()
			b.brief++
		}
		n := b.cost(e, e.markdown)
		if n > room {
			if e.isBrief {
				b.brief--
			}
			break
		}
		room -= n
		b.c.LightweightIndex = append(b.c.LightweightIndex, e)
		b.rest[category(t)]--
	}
	b.setRest(len(order) - len(b.c.LightweightIndex))
}

// briefHead is about the cost of the note that lines are brief.
const briefHead = 40

func category(t *toolkeep.Tool) string {
	return toolkeep.ClipBytes(oneLine(t.Manifest.Category), entryName)
}

// setRest counts the tools not in the index.
func (b *builder) setRest(n int) {
	b.c.IndexRest = RestOf(n, b.rest)
}

// RestOf tells of n tools that are not in an index, by category; nil for none.
func RestOf(n int, byCategory map[string]int) *Rest {
	if n == 0 {
		return nil
	}
	var list []CategoryCount
	for _, c := range slices.Sorted(maps.Keys(byCategory)) {
		if byCategory[c] > 0 {
			list = append(list, CategoryCount{c, byCategory[c]})
		}
	}
	slices.SortStableFunc(list, func(x, y CategoryCount) int { return cmp.Compare(y.Tools, x.Tools) })
	return &Rest{Tools: n, Categories: list[:min(len(list), maxCategories)],
		Hint: "Search for them in words that say what you want to do, or within one category."}
}

// order returns the tools not shown in full: first the chosen ones, then those found, then one per
// namespace and category in turn, so that the remaining room shows what kinds of tools exist.
func (b *builder) order() []*toolkeep.Tool {
	out := make([]*toolkeep.Tool, 0, len(b.all.tools))
	seen := make(map[*toolkeep.Tool]bool, len(b.all.tools))
	for i := range b.whole {
		seen[b.whole[i].tool] = true
	}
	add := func(t *toolkeep.Tool) {
		if !seen[t] {
			seen[t] = true
			out = append(out, t)
		}
	}
	for _, t := range b.chosen {
		add(t)
	}
	for _, t := range b.ranked {
		add(t)
	}
	kinds := map[string][]*toolkeep.Tool{}
	for _, t := range b.all.tools {
		if !seen[t] {
			namespace, _, _ := strings.Cut(t.ID, ".")
			kinds[t.Manifest.Category+"\x00"+namespace] = append(kinds[t.Manifest.Category+"\x00"+namespace], t)
		}
	}
	names := slices.Sorted(maps.Keys(kinds))
	for i := 0; len(out) < len(b.all.tools)-len(b.whole); i++ {
		for _, k := range names {
			if i < len(kinds[k]) {
				add(kinds[k][i])
			}
		}
	}
	return out
}

// fit counts the whole context and removes the least useful parts until it is within the budget.
func (b *builder) fit() {
	steps := []func(over int) bool{b.dropEntries, b.dropPart, b.dropExample, b.dropAlternative, b.dropError, b.dropPattern, b.dropCategory, b.dropDetail, b.dropMessage, b.dropHint, b.slimNamed, b.dropLeft, b.dropNamed}
	for {
		b.note()
		// A number with as many digits or fewer has no more tokens, so this is the maximum.
		b.c.Metadata.TokensUsed = b.budget
		used := b.used()
		if used <= b.budget {
			b.c.Metadata.TokensUsed = b.exact(used)
			return
		}
		done := true
		for _, step := range steps {
			if step(used - b.budget) {
				done = false
				break
			}
		}
		if done {
			// Only what MinBudget has room for is left.
			b.c.Metadata.TokensUsed = used
			return
		}
	}
}

// exact returns the token count of the context that contains this very number. If no number is
// self-consistent, which is possible at a change of digits, it is the higher one.
func (b *builder) exact(n int) int {
	for range 3 {
		b.c.Metadata.TokensUsed = n
		m := b.used()
		if m == n {
			return n
		}
		n = m
	}
	return max(n, b.c.Metadata.TokensUsed)
}

// note records what is left out.
func (b *builder) note() {
	out := slices.Clone(b.left)
	for _, d := range b.c.DetailedTools {
		if len(d.Omitted) > 0 {
			out = append(out, LeftOut{What: "manifest_parts", ToolID: d.ToolID, Parts: d.Omitted, Why: whyBudget})
		}
	}
	for i := range b.whole {
		d := &b.whole[i]
		if d.level >= levelNoExamples {
			continue // noted with the manifest's parts
		}
		shown := 0
		for _, e := range b.c.Examples {
			if e.ToolID == oneLine(d.tool.ID) {
				shown++
			}
		}
		if n := len(d.whole.Manifest.Examples) - shown; n > 0 {
			out = append(out, LeftOut{What: "examples", ToolID: oneLine(d.tool.ID), Count: n, Why: whyBudget})
		}
	}
	if b.brief > 0 {
		out = append(out, LeftOut{What: "index_parameters", Count: b.brief, Why: whyLess})
	}
	if b.c.IndexRest != nil {
		why := whyBudget
		if b.ended {
			why = whyFar
		}
		out = append(out, LeftOut{What: "index_entries", Count: b.c.IndexRest.Tools, Why: why})
	}
	b.c.Metadata.LeftOut = out
}

// dropEntries removes the last lines of the index, as many as are certainly too many.
func (b *builder) dropEntries(over int) bool {
	n := len(b.c.LightweightIndex)
	if n == 0 || b.rest == nil { // the lines of named tools, not a full index
		return false
	}
	b.ended = false
	for over > 0 && n > 0 {
		n--
		e := &b.c.LightweightIndex[n]
		if e.isBrief {
			b.brief--
		}
		over -= b.cost(*e, e.markdown)
		b.rest[e.Category]++
	}
	b.c.LightweightIndex = b.c.LightweightIndex[:n]
	if n == 0 {
		b.c.LightweightIndex = nil
	}
	b.setRest(b.c.Metadata.TotalToolsAvailable - len(b.whole) - n)
	return true
}

func (b *builder) dropPart(int) bool {
	if !lower(b.whole, nil, nil) {
		return false
	}
	b.showDetails()
	return true
}

func (b *builder) dropExample(int) bool { return dropLast(&b.c.Examples) }

func (b *builder) dropAlternative(int) bool {
	return dropLast(&b.c.Alternatives) && b.tell("alternatives")
}

func (b *builder) dropError(int) bool {
	return dropLast(&b.c.ErrorPatterns) && b.tell("error_patterns")
}

func (b *builder) dropPattern(int) bool { return dropLast(&b.c.Patterns) && b.tell("patterns") }

func (b *builder) dropCategory(int) bool {
	return b.c.IndexRest != nil && dropLast(&b.c.IndexRest.Categories)
}

func (b *builder) dropDetail(int) bool {
	if len(b.whole) == 0 {
		return false
	}
	before := b.whole
	b.leave(&before[len(before)-1])
	var rest []*toolkeep.Tool
	for _, d := range before[:len(before)-1] {
		rest = append(rest, d.tool)
	}
	// The other tools may use the room that it leaves.
	b.whole = nil
	b.showDetails()
	b.note()
	b.details(rest, b.budget-b.used())
	if b.rest != nil { // the index, now empty, counts them
		for _, d := range before[len(b.whole):] {
			b.rest[category(d.tool)]++
		}
		b.setRest(b.c.Metadata.TotalToolsAvailable - len(b.whole))
	}
	return true
}

// dropMessage shortens the caller's error message, which the caller already has.
func (b *builder) dropMessage(int) bool {
	if b.c.Recovery == nil || b.c.Recovery.Message == "" {
		return false
	}
	if n := len(b.c.Recovery.Message); n > 64 {
		b.c.Recovery.Message = toolkeep.ClipBytes(b.c.Recovery.Message, n/2)
	} else {
		b.c.Recovery.Message = ""
	}
	return true
}

// dropHint removes the last hints, which may list parameter names. The first two say what to do.
func (b *builder) dropHint(int) bool {
	return b.c.Recovery != nil && len(b.c.Recovery.Hints) > 2 && dropLast(&b.c.Recovery.Hints)
}

// slimNamed removes from a named tool's line, last tool first, what a call does not need.
func (b *builder) slimNamed(int) bool {
	for i := range slices.Backward(b.c.LightweightIndex) {
		e := &b.c.LightweightIndex[i]
		if len(e.Tags) > 0 || len(e.OptionalParams) > 0 {
			e.Tags, e.OptionalParams = nil, nil
			return true
		}
	}
	return false
}

// dropNamed removes the last line of a named tool.
func (b *builder) dropNamed(int) bool { return b.rest == nil && dropLast(&b.c.LightweightIndex) }

// dropLeft replaces the names of omitted manifests by a count.
func (b *builder) dropLeft(int) bool {
	n := 0
	b.left = slices.DeleteFunc(b.left, func(l LeftOut) bool {
		if l.What == "manifest" && l.ToolID != "" {
			n++
			return true
		}
		return false
	})
	if n == 0 {
		return false
	}
	b.left = append(b.left, LeftOut{What: "manifest", Count: n, Why: whyBudget})
	return true
}

// tell counts one more omission of a kind.
func (b *builder) tell(what string) bool {
	for i := range b.left {
		if b.left[i].What == what && b.left[i].Why == whyBudget {
			b.left[i].Count++
			return true
		}
	}
	b.left = append(b.left, LeftOut{What: what, Count: 1, Why: whyBudget})
	return true
}

func dropLast[T any](list *[]T) bool {
	if len(*list) == 0 {
		return false
	}
	*list = (*list)[:len(*list)-1]
	return true
}
