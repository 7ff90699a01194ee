package usage

import (
	"cmp"
	"slices"

	"github.com/toolkeep/toolkeep/discover"
)

const (
	maxQuestions   = 20_000 // of a tenant
	maxToolQueries = 20
	maxAskers      = 16
	maxFromOne     = 3 // how often the same query of one user counts
)

type learnedQueryKey struct {
	text string
	tool int32
}

// learnedQuery is a query that led to a tool.
type learnedQuery struct {
	Text  string
	Tool  int32
	Count uint32
	Last  int64 // microseconds
	By    []asker
}

func (q *learnedQuery) key() learnedQueryKey { return learnedQueryKey{q.Text, q.Tool} }

// asker is a user who made the query, recorded so that the user can be forgotten.
type asker struct {
	User string
	N    uint32
}

// learnQuestion counts that a search's query led to a tool; false if it has counted often enough.
func (t *tenant) learnQuestion(r *retrieval, x *tool) bool {
	if r.Query == "" || x == nil {
		return false
	}
	q, ok := t.Questions.get(learnedQueryKey{r.Query, x.No})
	if !ok {
		q = &learnedQuery{Text: r.Query, Tool: x.No}
		if len(x.queries) == maxToolQueries {
			t.dropQuery(slices.MinFunc(x.queries, func(a, b *learnedQuery) int {
				return cmp.Or(cmp.Compare(a.Count, b.Count), cmp.Compare(a.Last, b.Last), cmp.Compare(a.Text, b.Text))
			}))
		}
		x.queries = append(x.queries, q)
	}
	q.Last = max(q.Last, r.At)
	t.Questions.put(q)
	for old := range t.Questions.evict(maxQuestions) {
		t.dropQuery(old)
	}
	t.dirty = true
	i := slices.IndexFunc(q.By, func(a asker) bool { return a.User == r.User })
	switch {
	case i >= 0 && q.By[i].N == maxFromOne:
		return false
	case i >= 0:
		q.By[i].N++
	case len(q.By) < maxAskers:
		q.By = append(q.By, asker{r.User, 1})
	}
	q.Count++
	return true
}

// unlearnQuery reverts learnQuestion.
func (t *tenant) unlearnQuery(key learnedQueryKey, user string) {
	q, ok := t.Questions.get(key)
	if !ok {
		return
	}
	i := slices.IndexFunc(q.By, func(a asker) bool { return a.User == user })
	if i < 0 && len(q.By) < maxAskers {
		return // all counts are in By, and the user was forgotten
	}
	t.dirty = true
	q.Count--
	if i >= 0 {
		if q.By[i].N--; q.By[i].N == 0 {
			q.By = slices.Delete(q.By, i, i+1)
		}
	}
	if q.Count == 0 {
		t.dropQuery(q)
	}
}

func (t *tenant) dropQuery(q *learnedQuery) {
	t.dirty = true
	t.Questions.drop(q.key())
	if x := t.byNo[q.Tool]; x != nil {
		x.queries = slices.DeleteFunc(x.queries, func(o *learnedQuery) bool { return o == q })
	}
}

// forgetQuestions removes the text of every search.
func (t *tenant) forgetQuestions() {
	for q := range t.Questions.all() {
		t.dropQuery(q)
	}
	for _, l := range t.retrievals() {
		for r := range l.all() {
			r.Query = ""
		}
	}
}

// showExamples publishes the queries to searches, if they changed.
func (t *tenant) showExamples() {
	if !t.dirty {
		return
	}
	t.dirty = false
	t.examples = make([]discover.Example, 0, t.Questions.len())
	for q := range t.Questions.all() {
		t.examples = append(t.examples, discover.Example{Query: q.Text, Tool: t.byNo[q.Tool].ID, Count: int(q.Count)})
	}
	slices.Reverse(t.examples)
}
