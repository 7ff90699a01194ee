package usage

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	json "github.com/go-json-experiment/json"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/discover"
)

const (
	leastLessons = 200 // minimum number of retrievals with a choice to learn from
	heldShare    = 5   // one in this many, the newest, is held out
	trainEvery   = 7 * day
	// Learned weights must beat those in use on the held-out retrievals: their NDCG by betterNDCG,
	// or their log-loss by the share betterLoss without worse NDCG.
	betterNDCG = 0.01
	betterLoss = 0.02
	worseNDCG  = 0.002
	// leastQuestion is the minimum share of the query-related weights, so that search does not
	// degenerate into a list of earlier calls.
	leastQuestion = 0.5
	pull          = 0.003 // regularisation towards the weights in use
	rounds        = 300
	steepest      = 1.25
)

// KindWeights is the kind of the documents that hold a tenant's Training.
const KindWeights = "usage_weights"

const weightsID = "ranking"

// features are the parts of a score: semantic, keyword, history, success, and the negated
// complexity.
type features [5]float64

// Training is one training of a tenant's weights, kept in the store.
type Training struct {
	At      time.Time `json:"at"`
	Lessons int       `json:"lessons"` // retrievals with a choice
	Held    int       `json:"held"`    // of those, held out
	Before  Fit       `json:"before"`
	After   Fit       `json:"after"`
	Better  bool      `json:"better"`
	Verdict string    `json:"verdict"`
	// Weights are the latest ones that were better; nil if there never were any.
	Weights *discover.Weights `json:"weights"`
}

// Fit is how well weights explain the held-out choices.
type Fit struct {
	Weights discover.Weights `json:"weights"`
	NDCG    float64          `json:"ndcg"`
	LogLoss float64          `json:"log_loss"` // of the chosen tool against each other one
}

// lesson is one retrieval to learn from: the offered tools, and which were chosen.
type lesson struct {
	at      int64
	id      string
	offered []features
	chosen  []bool
}

// lessons returns a tenant's retrievals to learn from, oldest first.
func (t *tenant) lessons() []lesson {
	var out []lesson
	for _, l := range t.retrievals() {
		for r := range l.all() {
			if x, ok := r.lesson(); ok {
				out = append(out, x)
			}
		}
	}
	slices.SortFunc(out, func(a, b lesson) int { return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(a.id, b.id)) })
	return out
}

func (r *retrieval) lesson() (l lesson, ok bool) {
	if !r.Chosen || r.Strategy == string(discover.Semantic) { // Semantic diversifies its result
		return l, false
	}
	l = lesson{at: r.At, id: r.ID}
	n, best := 0, 0.0
	for i := range r.Offered {
		o := &r.Offered[i]
		f := features{float64(o.Parts[0]), float64(o.Parts[1]), float64(o.Parts[2]), float64(o.Parts[3]), -float64(o.Parts[4])}
		best = max(best, f[0])
		l.offered = append(l.offered, f)
		l.chosen = append(l.chosen, o.Chosen && !o.Poor)
		if l.chosen[i] {
			n++
		}
	}
	for i := range l.offered {
		if best > 0 {
			l.offered[i][0] /= best // as search does
		} else {
			l.offered[i][0] = l.offered[i][1] // without meanings, words get their weight too
		}
	}
	return l, n > 0 && n < len(l.offered)
}

func vector(w discover.Weights) features {
	return features{w.Semantic, w.Keyword, w.History, w.Success, w.Complexity}
}

func (f features) weights() discover.Weights {
	return discover.Weights{Semantic: f[0], Keyword: f[1], History: f[2], Success: f[3], Complexity: f[4]}
}

func (f features) dot(g features) (s float64) {
	for i := range f {
		s += f[i] * g[i]
	}
	return s
}

func (f features) sum() float64 { return f[0] + f[1] + f[2] + f[3] + f[4] }

func (f features) scaled(by float64) features {
	for i := range f {
		f[i] *= by
	}
	return f
}

// pairsOf yields the difference of each chosen tool to each other one, with a weight such that
// every retrieval counts as one.
func (l *lesson) pairsOf(each func(d features, weight float64)) {
	n := 0
	for _, c := range l.chosen {
		if c {
			n++
		}
	}
	weight := 1 / float64(n*(len(l.chosen)-n))
	for i, c := range l.chosen {
		if !c {
			continue
		}
		for k, other := range l.chosen {
			if other {
				continue
			}
			var d features
			for j := range d {
				d[j] = l.offered[i][j] - l.offered[k][j]
			}
			each(d, weight)
		}
	}
}

// logLoss returns the log-loss of the choices, for calibrated weights.
func logLoss(w features, ls []lesson) (sum float64) {
	for i := range ls {
		ls[i].pairsOf(func(d features, weight float64) { sum += weight * softplus(-w.dot(d)) })
	}
	return sum / float64(len(ls))
}

func softplus(x float64) float64 {
	if x > 30 {
		return x
	}
	return math.Log1p(math.Exp(x))
}

// ndcg returns how high the weights rank the chosen tools. Ties count as in the worst order.
func ndcg(w features, ls []lesson) (sum float64) {
	for i := range ls {
		l := &ls[i]
		order := make([]int, len(l.offered))
		for k := range order {
			order[k] = k
		}
		slices.SortStableFunc(order, func(a, b int) int {
			c := cmp.Compare(w.dot(l.offered[b]), w.dot(l.offered[a]))
			if c == 0 && l.chosen[a] != l.chosen[b] {
				if c = -1; l.chosen[a] {
					c = 1
				}
			}
			return c
		})
		got, ideal, n := 0.0, 0.0, 0
		for place, k := range order {
			if l.chosen[k] {
				got += 1 / math.Log2(float64(place)+2)
				ideal += 1 / math.Log2(float64(n)+2)
				n++
			}
		}
		sum += got / ideal
	}
	return sum / float64(len(ls))
}

// descend finds the non-negative weights that minimise the log-loss with a pull towards from. The
// loss is convex; its slope changes by at most a quarter of the square of a difference, whose five
// parts are at most 1 each, so the step is safe.
func descend(from features, ls []lesson) features {
	w, ahead, momentum := from, from, 1.0
	for range rounds {
		var slope features
		for i := range ls {
			ls[i].pairsOf(func(d features, weight float64) {
				p := weight / (1 + math.Exp(ahead.dot(d)))
				for j := range slope {
					slope[j] -= p * d[j]
				}
			})
		}
		var next features
		for j := range next {
			g := slope[j]/float64(len(ls)) + pull*(ahead[j]-from[j])
			next[j] = max(0, ahead[j]-g/(steepest+pull))
		}
		m := (1 + math.Sqrt(1+4*momentum*momentum)) / 2
		for j := range ahead {
			ahead[j] = next[j] + (momentum-1)/m*(next[j]-w[j])
		}
		w, momentum = next, m
	}
	return w
}

// calibrate scales weights to minimise the log-loss. Search only compares scores within one result,
// so scale does not matter there, but it does for a log-loss.
func calibrate(w features, ls []lesson) features {
	lo, hi := math.Log(0.05), math.Log(200)
	for range 60 { // the loss is convex along the ray
		a, b := lo+(hi-lo)/3, hi-(hi-lo)/3
		if logLoss(w.scaled(math.Exp(a)), ls) < logLoss(w.scaled(math.Exp(b)), ls) {
			hi = b
		} else {
			lo = a
		}
	}
	return w.scaled(math.Exp((lo + hi) / 2))
}

// train learns weights from choices and tests them on the newest ones.
func train(now time.Time, inUse discover.Weights, ls []lesson) Training {
	tr := Training{At: now, Lessons: len(ls), Before: Fit{Weights: inUse}}
	if len(ls) < leastLessons {
		tr.Verdict = fmt.Sprintf("%d retrievals with a choice are too few to learn from; it takes %d", len(ls), leastLessons)
		return tr
	}
	tr.Held = len(ls) / heldShare
	older, held := ls[:len(ls)-tr.Held], ls[len(ls)-tr.Held:]
	before := calibrate(vector(inUse), older)
	after := descend(before, older)
	tr.Before.NDCG, tr.Before.LogLoss = ndcg(before, held), logLoss(before, held)
	tr.After.NDCG, tr.After.LogLoss = ndcg(after, held), logLoss(after, held)
	if after.sum() <= 0 {
		tr.Verdict = "the choices do not depend on any part of the score"
		return tr
	}
	learned := after.scaled(vector(inUse).sum() / after.sum())
	for i := range learned {
		learned[i] = math.Round(min(1, learned[i])*1000) / 1000
	}
	tr.After.Weights = learned.weights()
	switch {
	case learned[0]+learned[1] < leastQuestion*(learned.sum()-learned[4]):
		tr.Verdict = "the query itself would count too little"
	case tr.After.NDCG >= tr.Before.NDCG+betterNDCG:
		tr.Better, tr.Verdict = true, "better: chosen tools stand further up"
	case tr.After.LogLoss <= tr.Before.LogLoss*(1-betterLoss) && tr.After.NDCG >= tr.Before.NDCG-worseNDCG:
		tr.Better, tr.Verdict = true, "better: the choices are less surprising"
	default:
		tr.Verdict = "not better by enough on the newest choices; the weights stay"
	}
	return tr
}

// ranking is a tenant's latest Training. It is kept apart from the folded state, since it has its
// own document.
type ranking struct {
	Training
	revision int64 // of its document
}

// Train learns a tenant's weights from the known choices, and stores the outcome, from where all
// nodes read it.
func (u *Usage) Train(ctx context.Context, tenant string) (Training, error) {
	tr, err := u.train(ctx, tenant)
	if errors.Is(err, toolkeep.ErrStale) { // another node trained at the same time
		if err := u.feed.Await(ctx, u.c.Store); err != nil {
			return tr, err
		}
		tr, err = u.train(ctx, tenant)
	}
	return tr, err
}

func (u *Usage) train(ctx context.Context, tenant string) (Training, error) {
	u.mu.RLock()
	var ls []lesson
	if t, ok := u.state.tenants.get(tenant); ok {
		ls = t.lessons()
	}
	old := u.rankings[tenant]
	u.mu.RUnlock()
	inUse := u.c.Weights
	if old.Weights != nil && u.c.Learning == LearnOn {
		inUse = *old.Weights
	}
	tr := train(u.c.Clock(), inUse, ls)
	tr.Weights = old.Weights
	if tr.Better {
		tr.Weights = new(tr.After.Weights)
	}
	body, err := json.Marshal(&tr)
	if err != nil {
		return tr, err
	}
	changes := []toolkeep.Change{toolkeep.PutDocument{Expect: old.revision, // 0 is toolkeep.NoRevision
		Document: toolkeep.Document{Kind: KindWeights, Tenant: tenant, ID: weightsID, Body: body, UpdatedAt: tr.At, UpdatedBy: u.c.Node}}}
	if tr.Better {
		e, err := eventOf(EventRanking, tenant, "", tr.At, &tr)
		if err != nil {
			return tr, err
		}
		changes = append(changes, toolkeep.AppendEvent{Event: e})
	}
	return tr, u.c.Store.Apply(ctx, changes...)
}

// ResetWeights drops a tenant's learned weights, until the next training.
func (u *Usage) ResetWeights(ctx context.Context, p *toolkeep.Principal) error {
	now := u.c.Clock()
	e, err := eventOf(EventRanking, p.Tenant, "", now, map[string]any{"at": stamp(now), "verdict": "reset", "by": p.Subject})
	if err != nil {
		return err
	}
	err = u.c.Store.Apply(ctx, toolkeep.DeleteDocument{Kind: KindWeights, Tenant: p.Tenant, ID: weightsID, Expect: toolkeep.AnyRevision, By: p.Subject},
		toolkeep.AppendEvent{Event: e})
	if lostRace(err) { // nothing was learned
		return nil
	}
	return err
}

// ranked reads a stored Training; u.mu is held.
func (u *Usage) ranked(it *toolkeep.Document) {
	r := ranking{revision: it.Revision}
	if it.ID == weightsID && it.Revision > u.rankings[it.Tenant].revision && json.Unmarshal(it.Body, &r.Training) == nil {
		u.rankings[it.Tenant] = r
	}
}

// WeightNames returns the weights by the names of Discovery 4.3.
func WeightNames(w discover.Weights) map[string]float64 {
	return map[string]float64{"semantic_similarity": w.Semantic, "keyword_match": w.Keyword, "user_history": w.History, "success_rate": w.Success, "complexity_penalty": w.Complexity}
}
