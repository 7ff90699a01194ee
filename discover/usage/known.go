package usage

import (
	"context"
	"slices"

	"github.com/toolkeep/toolkeep"
)

// Known counts what Forget takes out.
type Known struct {
	Conversations int
	Searches      int  // that something was chosen of, or may be yet
	Questions     int  // that led to a tool
	Numbers       bool // there are numbers of the user's own calls and searches
}

// Any tells whether there is anything.
func (k Known) Any() bool { return k != Known{} }

// Known tells how much is known of a user of the principal's tenant, with what was
// written before it was asked. Errors: those of the store.
func (u *Usage) Known(ctx context.Context, p *toolkeep.Principal, user string) (Known, error) {
	u.writer.flush(ctx)
	if err := u.catchUp(ctx); err != nil {
		return Known{}, err
	}
	var k Known
	user = short(user)
	u.mu.Lock()
	defer u.mu.Unlock()
	t, ok := u.tenants.get(p.Tenant)
	if !ok {
		return k, nil
	}
	for us := range t.byUser.all() {
		k.Numbers = k.Numbers || us.id == user
	}
	for s := range t.bySession.all() {
		if s.key.subject == user {
			k.Conversations++
		}
	}
	for _, l := range []*retrievals{&t.waiting, &t.chosen} {
		for r := range l.order.all() {
			if r.user == user {
				k.Searches++
			}
		}
	}
	for q := range t.led.order.all() {
		if slices.ContainsFunc(q.by, func(a asker) bool { return a.user == user }) {
			k.Questions++
		}
	}
	return k, nil
}
