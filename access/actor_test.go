package access

import (
	"slices"
	"strings"
	"testing"

	"github.com/toolkeep/toolkeep"
)

// TestActors: who acts for whom, as the act claim of a token says.
func TestActors(t *testing.T) {
	s := listen(t)
	now := &clock{}
	nested := func(n int) any {
		var act any
		for range n {
			one := map[string]any{"sub": "a"}
			if act != nil {
				one["act"] = act
			}
			act = one
		}
		return act
	}
	type m = map[string]any
	for name, c := range map[string]struct {
		act               any
		claim             string // oauth.subject_claim
		more              m
		subject, onBehalf string // "" is refused
		chain             []string
	}{
		"none":               {nil, "", nil, "alice", "", nil},
		"an agent":           {m{"sub": "bot"}, "", nil, "bot", "alice", []string{"alice"}},
		"nested":             {m{"sub": "bot", "act": m{"sub": "planner", "act": m{"sub": "portal"}}}, "", nil, "bot", "alice", []string{"alice", "portal", "planner"}},
		"itself":             {m{"sub": "alice"}, "", nil, "alice", "", nil},
		"itself, for others": {m{"sub": "alice", "act": m{"sub": "bot"}}, "", nil, "alice", "", []string{"alice", "bot"}},
		"this issuer's":      {m{"sub": "bot", "iss": s.url}, "", nil, "bot", "alice", []string{"alice"}},
		"another issuer's":   {m{"sub": "alice", "iss": "https://x.example"}, "", nil, "https://x.example#alice", "alice", []string{"alice"}},
		"by a claim":         {m{"sub": "1", "email": "bot@x"}, "email", m{"email": "ann@x"}, "bot@x", "ann@x", []string{"ann@x"}},
		"without the claim":  {m{"sub": "bot"}, "email", m{"email": "ann@x"}, "bot", "ann@x", []string{"ann@x"}},
		"the client's claim": {m{"sub": "bot"}, "client_id", m{"client_id": "bot"}, "bot", "", nil},
		"16":                 {nested(16), "", nil, "a", "alice", append([]string{"alice"}, slices.Repeat([]string{"a"}, 15)...)},
		"17":                 {nested(17), "", nil, "", "", nil},
		"a text":             {"bot", "", nil, "", "", nil},
		"a list":             {[]any{m{"sub": "bot"}}, "", nil, "", "", nil},
		"no name":            {m{"client": "bot"}, "", nil, "", "", nil},
		"a number":           {m{"sub": 7}, "", nil, "", "", nil},
		"a control":          {m{"sub": "b\not"}, "", nil, "", "", nil},
		"too long":           {m{"sub": strings.Repeat("b", maxClaim+1)}, "", nil, "", "", nil},
		"an issuer's number": {m{"sub": "bot", "iss": 7}, "", nil, "", "", nil},
		"too long together":  {m{"sub": strings.Repeat("b", 200), "iss": strings.Repeat("i", 100)}, "", nil, "", "", nil},
		"no name within":     {m{"sub": "bot", "act": m{}}, "", nil, "", "", nil},
	} {
		t.Run(name, func(t *testing.T) {
			o := s.config()
			o.SubjectClaim = c.claim
			a := open(t, Config{OAuth: o, Clock: now.Now})
			claims := m{"act": c.act}
			for k, v := range c.more {
				claims[k] = v
			}
			p, err := a.Authenticate(t.Context(), s.token(t, claims), addr)
			if c.subject == "" {
				if !toolkeep.IsCode(err, toolkeep.Unauthenticated) || !strings.Contains(err.Error(), "act") {
					t.Errorf("%+v %v", p, err)
				}
				return
			}
			if err != nil || p.Subject != c.subject || p.OnBehalf != c.onBehalf || !slices.Equal(p.Chain, c.chain) || !slices.Equal(p.Roles, []string{Agent}) || len(p.Chain) > toolkeep.MaxChain {
				t.Errorf("%+v %v", p, err)
			}
			if now, err := a.Refresh(t.Context(), p); err != nil || now.OnBehalf != p.OnBehalf || !slices.Equal(now.Chain, p.Chain) {
				t.Errorf("later: %+v %v", now, err)
			}
		})
	}
}
