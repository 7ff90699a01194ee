package toolkeep

import (
	"fmt"
	"slices"
	"testing"
	"time"
)

// TestAs: the chain goes on to say who acts for whom, the token does not stay, and the principal is not changed.
func TestAs(t *testing.T) {
	many := slices.Repeat([]string{"x"}, MaxChain)
	for name, x := range map[string]struct {
		behalf          string
		chain           []string
		subject, person string
		want            string // of Subject, OnBehalf and Chain; "" is refused
	}{
		"no chain, another person":    {"", nil, "", "bob", "bot bob []"},
		"no chain, another subject":   {"", nil, "porter", "", "porter  []"},
		"a person, another person":    {"ann", nil, "", "bob", "bot bob [bob ann]"},
		"a person, another subject":   {"ann", nil, "porter", "", "porter ann [ann bot]"},
		"a chain, another person":     {"ann", []string{"ann", "planner"}, "", "bob", "bot bob [bob ann planner]"},
		"a chain, another subject":    {"ann", []string{"ann", "planner"}, "porter", "", "porter ann [ann planner bot]"},
		"a chain, both":               {"ann", []string{"ann", "planner"}, "porter", "bob", "porter bob [bob ann planner bot]"},
		"a chain at its limit":        {"x", many[1:], "", "bob", "bot bob " + fmt.Sprint(append([]string{"bob"}, many[1:]...))},
		"a chain over its limit":      {"x", many, "", "bob", ""},
		"a chain over it by a sender": {"x", many, "porter", "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			chain := slices.Grow(slices.Clone(x.chain), 2)
			p := &Principal{Subject: "bot", OnBehalf: x.behalf, Chain: chain, Roles: []string{"agent"}, KeyID: "k", Token: NewCallerToken("t", time.Now())}
			q, err := p.As(x.subject, x.person)
			if x.want == "" {
				if !IsCode(err, PermissionDenied) {
					t.Errorf("%+v %v", q, err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if got := fmt.Sprint(q.Subject, " ", q.OnBehalf, " ", q.Chain); got != x.want || q.Token != nil || q.KeyID != "k" || len(q.Roles) != 1 {
				t.Errorf("%s, want %s; %+v", got, x.want, q)
			}
			if p.Subject != "bot" || p.OnBehalf != x.behalf || !slices.Equal(p.Chain, x.chain) || p.Token == nil || slices.Contains(chain[:cap(chain)], "bot") {
				t.Errorf("the principal was changed: %+v", p)
			}
		})
	}
}
