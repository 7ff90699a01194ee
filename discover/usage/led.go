package usage

import (
	"cmp"
	"container/list"
	"slices"

	"github.com/toolkeep/toolkeep/discover"
)

const (
	maxQuestions     = 20_000 // of a tenant
	maxToolQuestions = 20
	maxAskers        = 16
	maxFromOne       = 3 // how often the same question of one user counts
)

// ledger holds the questions after which tools were chosen, by when they last did.
type ledger struct {
	byKey map[ledKey]*question
	order recency[*question]
	dirty bool
}

type ledKey struct {
	text string
	tool *tool
}

// question is one question that led to one tool.
type question struct {
	key   ledKey
	at    *list.Element
	count uint32
	last  int64 // milliseconds
	by    []asker
}

// asker is a user who asked it, so that what a user did can be forgotten.
type asker struct {
	user string
	n    uint32
}

func (l *ledger) init() { l.byKey = map[ledKey]*question{} }

// learn counts that a user's question led to a tool; false where it did so often enough.
func (l *ledger) learn(text, user string, x *tool, at int64) bool {
	if text == "" || x.gone.Load() {
		return false
	}
	key := ledKey{text, x}
	q := l.byKey[key]
	if q == nil {
		q = &question{key: key}
		l.byKey[key] = q
		if len(x.led) == maxToolQuestions {
			l.remove(slices.MinFunc(x.led, func(a, b *question) int {
				return cmp.Or(cmp.Compare(a.count, b.count), cmp.Compare(a.last, b.last), cmp.Compare(a.key.text, b.key.text))
			}))
		}
		x.led = append(x.led, q)
	}
	q.last = max(q.last, at)
	q.at = l.order.touch(q, q.at)
	counts := q.credit(user)
	if counts {
		q.count++
	}
	l.dirty = true
	for l.order.len() > maxQuestions {
		old, _ := l.order.oldest()
		l.remove(old)
	}
	return counts
}

// credit tells whether one more from the user counts.
func (q *question) credit(user string) bool {
	for i := range q.by {
		if q.by[i].user == user {
			if q.by[i].n == maxFromOne {
				return false
			}
			q.by[i].n++
			return true
		}
	}
	if len(q.by) < maxAskers {
		q.by = append(q.by, asker{user, 1})
	}
	return true
}

// unlearn takes back what learn counted.
func (l *ledger) unlearn(text, user string, x *tool) {
	q := l.byKey[ledKey{text, x}]
	if q == nil {
		return
	}
	i := slices.IndexFunc(q.by, func(a asker) bool { return a.user == user })
	if i < 0 && len(q.by) < maxAskers {
		return // all who count are there, and the user was forgotten
	}
	l.dirty = true
	q.count--
	if i >= 0 {
		if q.by[i].n--; q.by[i].n == 0 {
			q.by = slices.Delete(q.by, i, i+1)
		}
	}
	if q.count == 0 {
		l.remove(q)
	}
}

func (l *ledger) remove(q *question) {
	l.dirty = true
	delete(l.byKey, q.key)
	if q.at != nil {
		l.order.remove(q.at)
	}
	q.key.tool.led = slices.DeleteFunc(q.key.tool.led, func(o *question) bool { return o == q })
}

// drop forgets what was not asked since.
func (l *ledger) drop(before int64) {
	for q := range l.order.all() {
		if q.last >= before {
			return
		}
		l.remove(q)
	}
}

// forget takes out what a user asked.
func (l *ledger) forget(is func(user string) bool) {
	for q := range l.order.all() {
		i := slices.IndexFunc(q.by, func(a asker) bool { return is(a.user) })
		if i < 0 {
			continue
		}
		l.dirty = true
		q.count -= min(q.count, q.by[i].n)
		q.by = slices.Delete(q.by, i, i+1)
		if q.count == 0 || len(q.by) == 0 {
			l.remove(q)
		}
	}
}

// forgetQuestions takes out all that was asked.
func (t *tenant) forgetQuestions() {
	for q := range t.led.order.all() {
		t.led.remove(q)
	}
	for _, l := range []*retrievals{&t.waiting, &t.chosen} {
		for r := range l.order.all() {
			r.query = ""
		}
	}
	t.showLed()
}

// showLed publishes the questions, if they changed.
func (t *tenant) showLed() {
	if !t.led.dirty {
		return
	}
	t.led.dirty = false
	out := make([]discover.Led, 0, t.led.order.len())
	for q := range t.led.order.all() {
		out = append(out, discover.Led{Query: q.key.text, Tool: q.key.tool.id, Count: int(q.count)})
	}
	slices.Reverse(out)
	t.ledView.Store(&out)
}
