package usage

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"time"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/discover"
)

// Feedback is a user's feedback on a search.
type Feedback struct {
	Retrieval string // id of its event; "" if Session and Query identify it
	Session   string
	Query     string
	Tool      string   // the chosen tool; "" if none fits
	Relevance *float64 // 0 to 1: how well it, or the whole result, fits
	Success   *bool    // whether its call worked
}

// maxRetrievalID is the longest id of a search, in bytes.
const maxRetrievalID = 64

// Check refuses feedback that names no search or says nothing, and values out of
// bounds. E3301, E3312.
func (f Feedback) Check() error {
	malformed := func(text string) error { return toolkeep.NewError(toolkeep.MalformedRequest, "%s", text) }
	switch {
	case (f.Retrieval == "") == (f.Query == ""):
		return malformed("name the search either by its retrieval id, or by its query and, if it had one, its session")
	case f.Retrieval != "" && f.Session != "":
		return malformed("the session goes with the query; the retrieval id says it all")
	case f.Tool == "" && f.Relevance == nil:
		return malformed("say which tool was chosen, how well the answer fits (relevance), or both")
	case f.Tool == "" && f.Success != nil:
		return malformed("whether the execution succeeded goes with the tool that was chosen")
	case len(f.Retrieval) > maxRetrievalID, len(f.Query) > 4*discover.MaxQuestion:
		return toolkeep.NewError(toolkeep.InvalidParameters, "a retrieval id has at most %d bytes, a query %d", maxRetrievalID, 4*discover.MaxQuestion)
	case f.Relevance != nil && !(*f.Relevance >= 0 && *f.Relevance <= 1):
		return toolkeep.NewError(toolkeep.InvalidParameters, "relevance must be from 0 to 1")
	}
	return nil
}

// feedbackWait bounds the wait for a search made a moment ago.
const feedbackWait = 2 * time.Second

// Feedback records the principal's feedback on one of its own searches and returns the search id.
// again is true if the same feedback was given before: then nothing is recorded. Searches of other
// users, and those too old, give E3013.
func (u *Usage) Feedback(ctx context.Context, p *toolkeep.Principal, f Feedback) (id string, again bool, err error) {
	id, again, found := u.lookUp(p, &f)
	if !found {
		// The search may still be on its way to the store, or another node made it.
		wait, cancel := context.WithTimeout(ctx, feedbackWait)
		defer cancel()
		u.writer.write(wait, 1)
		if err := u.catchUp(wait); err != nil {
			return "", false, fmt.Errorf("whether there was such a search cannot be read now; try again: %w", err)
		}
		id, again, found = u.lookUp(p, &f)
	}
	if !found {
		return "", false, toolkeep.NewError(toolkeep.ResourceNotFound,
			"you made no such search lately; name it by metadata.retrievalId of its answer, or by the session and the query as they were sent")
	}
	if again {
		return id, true, nil
	}
	e, err := eventOf(EventFeedback, p.Tenant, "", u.c.Clock(), feedbackData{EventID: id, UserID: short(p.Person()), AgentDID: short(p.Subject), Tool: f.Tool, Relevance: f.Relevance, Success: f.Success})
	if err != nil {
		return "", false, err
	}
	e.Person = p.Person()
	return id, false, u.c.Store.Apply(ctx, toolkeep.AppendEvent{Event: e})
}

// lookUp finds the search of a feedback, and whether the same feedback was given before.
func (u *Usage) lookUp(p *toolkeep.Principal, f *Feedback) (id string, again, ok bool) {
	subject, query := short(p.Person()), plain(u.kept(f.Query))
	u.mu.RLock()
	defer u.mu.RUnlock()
	t, ok := u.state.tenants.get(p.Tenant)
	if !ok {
		return "", false, false
	}
	r := t.retrieval(f.Retrieval)
	if f.Retrieval == "" {
		for _, l := range t.retrievals() {
			for o := range l.all() {
				if o.User == subject && o.Session == short(f.Session) && o.Query == query && (r == nil || o.At >= r.At) {
					r = o
				}
			}
		}
	}
	if r == nil || r.User != subject {
		return "", false, false
	}
	said := ratingOf(f.Tool, f.Relevance, f.Success)
	again = slices.ContainsFunc(r.Rated, func(o rating) bool {
		o.Learned = false // not part of the feedback
		return o == said
	})
	return r.ID, again, true
}

// Known counts what Forget removes.
type Known struct {
	Conversations int
	Searches      int  // with a choice, or that may still get one
	Questions     int  // that led to a tool
	Numbers       bool // there are counts of the user's own calls and searches
}

// Any reports whether there is anything.
func (k Known) Any() bool { return k != Known{} }

// ofUser counts the data about users, and with drop removes it. What a user's calls added to the
// counts of tools stays: it names no user.
func (t *tenant) ofUser(is func(user string) bool, drop bool) (k Known) {
	for us := range t.Users.all() {
		if is(us.ID) {
			k.Numbers = true
			if drop {
				t.Users.drop(us.ID)
			}
		}
	}
	for s := range t.Sessions.all() {
		if is(s.User) {
			k.Conversations++
			if drop {
				t.Sessions.drop(s.key())
			}
		}
	}
	for _, l := range t.retrievals() {
		for r := range l.all() {
			if is(r.User) {
				k.Searches++
				if drop {
					l.drop(r.ID)
				}
			}
		}
	}
	for f := range t.Early.all() {
		if drop && slices.ContainsFunc(f.Said, func(d feedbackData) bool { return is(short(d.UserID)) }) {
			t.Early.drop(f.EventID)
		}
	}
	for q := range t.Questions.all() {
		i := slices.IndexFunc(q.By, func(a asker) bool { return is(a.User) })
		if i < 0 {
			continue
		}
		k.Questions++
		if drop {
			t.dirty = true
			q.Count -= min(q.Count, q.By[i].N)
			if q.By = slices.Delete(q.By, i, i+1); q.Count == 0 || len(q.By) == 0 {
				t.dropQuery(q)
			}
		}
	}
	return k
}

// Known returns how much is stored about a user of the principal's tenant, including what any node
// wrote before the call. Errors: those of the store.
func (u *Usage) Known(ctx context.Context, p *toolkeep.Principal, user string) (k Known, err error) {
	u.writer.write(ctx, 1)
	if err := u.catchUp(ctx); err != nil {
		return k, err
	}
	u.mu.RLock()
	defer u.mu.RUnlock()
	if t, ok := u.state.tenants.get(p.Tenant); ok {
		k = t.ofUser(func(id string) bool { return id == short(user) }, false)
	}
	return k, nil
}

// forgetTries is how often Forget rewrites the checkpoint when another node is faster.
const forgetTries = 5

// Forget makes all nodes forget a user of the principal's tenant: this one at once, the others with
// the checkpoint that it writes then. The events of the user's searches stay in the store's journal
// until its retention ends. Errors: those of the store; ErrStale if other nodes kept writing
// checkpoints, of which the next has it.
func (u *Usage) Forget(ctx context.Context, p *toolkeep.Principal, user string) error {
	e, err := eventOf(EventForgotten, p.Tenant, "", u.c.Clock(), forgottenData{UserID: userMark(p.Tenant, short(user)), By: p.Subject})
	if err != nil {
		return err
	}
	e.Person = user        // an erasure of the user takes the mark out of the journal too; the checkpoint has it for Keep
	u.writer.write(ctx, 1) // events of this node's calls by the user go first
	if err := u.c.Store.Apply(ctx, toolkeep.AppendEvent{Event: e}); err != nil {
		return err
	}
	for range forgetTries {
		if err = u.catchUp(ctx); err != nil {
			return err
		}
		if err = u.Checkpoint(ctx); !lostRace(err) {
			break
		}
		// Another node wrote one first, which may not include the event.
		if err := u.take(ctx); err != nil {
			return err
		}
	}
	return err
}

// userMark identifies a user in an event that outlives the user's data.
func userMark(tenant, user string) string {
	sum := sha256.Sum256([]byte("usage\x00" + tenant + "\x00" + user))
	return hex.EncodeToString(sum[:])
}
