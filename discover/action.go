package discover

import (
	"strings"

	"github.com/toolkeep/toolkeep"
)

// action is what a query wants done, or what a tool does to its object. APIs have the same few
// actions for every kind of object, under many names; their words occur in so many tools that BM25
// gives them almost no weight.
type action uint8

const (
	noAction action = iota // unknown
	reads
	lists // reads several
	creates
	changes
	removes
	writes // changes something, unknown how
)

// actionVerbs are the verbs of actions.
var actionVerbs = func() map[string]action {
	m := map[string]action{}
	for d, verbs := range map[action]string{
		reads:   "get show find fetch read retrieve view see look lookup search check query inspect describe display browse download export count watch",
		lists:   "list enumerate",
		creates: "create add new make open insert register issue start post build generate provision launch allocate buy upload store save write put spin",
		changes: "update change edit modify set rename replace patch move resize fix adjust alter configure extend turn switch mark assign reset scale",
		removes: "delete remove destroy drop cancel discard erase purge clear revoke unassign detach kill terminate prune uninstall forget",
	} {
		for verb := range strings.FieldsSeq(verbs) {
			m[verb] = d
		}
	}
	return m
}()

var (
	questionWords = set("what which who whom whose when where why how is are was were am any")
	auxiliaries   = set("do does did has have had can could may might will would should must shall")
	pronouns      = set("i we you it they he she there any anybody anyone somebody someone")
	// polite words precede the request.
	polite = set("please hi hello i we you me us want wish need would like to let lets and then now also just help can could will")
	// away turns taking and throwing into a removal.
	away = set("away out off")
)

const actionWithin = 12 // words of a query that are examined

// wanted returns the action a query asks for: that of its first verb, reads for a question,
// noAction if unknown. It knows only English.
func wanted(text string) action {
	var list []string
	words(text, func(w string) {
		if len(list) < actionWithin {
			list = append(list, w)
		}
	})
	return several(list, wantedOf(list))
}

func wantedOf(list []string) action {
	// "Can you delete it" is a request, "can it be deleted" and "do we have one" are questions.
	if len(list) > 1 && auxiliaries[list[0]] {
		switch {
		case list[1] == "you" && list[0] != "do" && list[0] != "did" && list[0] != "have":
			list = list[2:]
		case list[0] == "do" || list[0] == "have":
			if !pronouns[list[1]] {
				return noAction
			}
			return reads
		default:
			return reads
		}
	}
	for len(list) > 0 && polite[list[0]] {
		list = list[1:]
	}
	if len(list) == 0 {
		return noAction
	}
	verb, rest := list[0], list[1:]
	next := func(w ...string) bool {
		for i := range w {
			if len(rest) > 0 && rest[0] == w[i] {
				return true
			}
		}
		return false
	}
	switch verb {
	case "tell", "give":
		if !next("me", "us") || len(rest) > 1 && (rest[1] == "when" || rest[1] == "if") {
			return noAction // "to be told later" is not a read
		}
		return reads
	case "get":
		if next("rid") {
			return removes
		}
	case "throw", "take", "kick":
		for _, w := range rest {
			if away[w] {
				return removes
			}
		}
	}
	if questionWords[verb] {
		return reads
	}
	return actionVerbs[verb]
}

// several turns reads into lists if the query asks for more than one object of a kind.
func several(list []string, d action) action {
	if d != reads {
		return d
	}
	for i, w := range list {
		switch w {
		case "which", "what", "who":
			if i == 0 {
				return lists
			}
		case "all", "list", "every", "any":
			return lists
		case "many":
			if i > 1 { // "how many" asks for one number
				return lists
			}
		}
	}
	return reads
}

// actionOf returns what a tool does: by its title's first verb, else any verb of the title, else
// its name, and by its side effects.
func actionOf(t *toolkeep.Tool) action {
	m := t.Manifest
	_, name, _ := strings.Cut(t.ID, ".")
	many := false
	first, last := noAction, noAction // of the title, or else the name: first word and all words
	for _, s := range []string{m.ToolName, m.Verb, name} {
		n := 0
		words(s, func(w string) {
			d := actionVerbs[w]
			if d == noAction {
				d = actionVerbs[strings.TrimSuffix(w, "s")] // "Creates a user"
			}
			many = many || d == lists || w == "all"
			if n++; n == 1 && first == noAction {
				first = d
			}
			if d != noAction && s == name {
				last = d
			}
		})
	}
	d := first
	if d == noAction {
		d = last // "container_delete"
	}
	switch {
	case m.SideEffects == "reads", m.SideEffects == "none", d == reads, d == lists:
		if many {
			return lists
		}
		return reads
	case d == noAction && m.SideEffects == "writes":
		return writes
	}
	return d
}

// Weight of a matching action in a score, and the penalty for the opposite action. It decides among
// tools about the same thing. Measured: half of it is nearly as good, twice as much no better.
const actionCounts = 0.05

// agrees returns 1 for a tool that does what is wanted, 1.4 if it lists what is asked for in the
// plural, -1 if it does something that is not wanted, and 0 if unknown.
func (d action) agrees(with action) float64 {
	switch {
	case d == noAction || with == noAction:
		return 0
	case d == lists && with == lists:
		return 1.4
	case d == with, d.reading() && with.reading():
		return 1
	case d.reading() || with.reading():
		return -1
	case with == removes || d == removes && with == creates:
		return -1
	}
	return 0
}

func (d action) reading() bool { return d == reads || d == lists }

// rankByAction prefers tools that do what the query wants. A query with several requests wants
// several actions, so it prefers none.
func (r *ranker) rankByAction(text string, list []candidate) []candidate {
	if len(r.q.subqueries) > 0 {
		return list
	}
	want := wanted(text)
	if want == noAction {
		return list
	}
	for i := range list {
		c := &list[i]
		c.parts.Action = want.agrees(r.p.docs[c.at].action)
		c.score = max(leastScore, c.score+actionCounts*c.parts.Action)
	}
	r.p.sortCandidates(list)
	return list
}
