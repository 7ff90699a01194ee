package policy

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"reflect"
	"strings"
	"testing"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/access"
)

// claims returns a change of a question: its caller has an access token with these claims, "" for claims that are not known.
func claims(text string) func(*access.Question) {
	return func(q *access.Question) {
		q.Principal.Method, q.Principal.KeyID, q.Principal.Claims = access.MethodOAuth, "", nil
		if text != "" {
			q.Principal.Claims = toolkeep.NewClaims(arguments(text))
		}
	}
}

// TestClaimsDecide: in every way to name a claim, a policy decides by it, a caller with another value gets no kept answer,
// and one with the same value does, where the policy reads that claim alone.
func TestClaimsDecide(t *testing.T) {
	const finance, other, sales = `{"dept":"finance","jwt_is":1}`, `{"dept":"finance","jwt_is":2}`, `{"dept":"sales","jwt_is":1}`
	for form, c := range map[string]struct {
		rule  string
		alone bool // that claim
	}{
		"named":      {`allow if input.caller.claims.dept == "finance"`, true},
		"in quotes":  {`allow if input.caller.claims["dept"] == "finance"`, true},
		"imported":   {"import input.caller.claims as it\nallow if it.dept == \"finance\"", true},
		"with else":  {`allow := false if { input.action == "see" } else if input.caller.claims.dept == "finance"`, true},
		"elsewhere":  {"allow if data.lib.ok", true},
		"all":        {"allow if { c := input.caller.claims; c.dept == \"finance\" }", false},
		"a key":      {`allow if { some k; k == "dept"; input.caller.claims[k] == "finance" }`, false},
		"the caller": {"allow if is(input.caller)\nis(c) if c.claims.dept == \"finance\"", false},
		"a member":   {`allow if { some m; input.caller[m].dept == "finance" }`, false},
		"got":        {`allow if object.get(input.caller, ["claims", "dept"], "") == "finance"`, false},
	} {
		t.Run(form, func(t *testing.T) {
			t.Parallel()
			e, err := try(t, map[string]string{"p.rego": "package toolkeep\n" + c.rule, "lib.rego": "package lib\nok if input.caller.claims.dept == \"finance\""})
			if err != nil {
				t.Fatal(err)
			}
			for range 2 {
				for text, want := range map[string]bool{finance: true, other: true, sales: false, `{}`: false, `{"dept":["finance"]}`: false} {
					if v, err := e.Decide(t.Context(), ask(claims(text))); err != nil || v.Allow != want {
						t.Errorf("%s: %+v %v", text, v, err)
					}
				}
				if v, err := e.Decide(t.Context(), ask(func(q *access.Question) { q.Principal.Claims = nil })); err != nil || v.Allow {
					t.Errorf("a caller without a token: %+v %v", v, err)
				}
			}
			if n := e.Stats().Evaluated; c.alone && n != 5 { // finance and other are one question
				t.Errorf("%d evaluations of five different questions", n)
			}
		})
	}
}

// TestClaimsThatAreNotKnown: where the claims of a caller's token are not known, a policy that reads claims denies and
// hides, however it is written, and one that reads none decides as ever.
func TestClaimsThatAreNotKnown(t *testing.T) {
	unknown := ask(claims(""))
	none := ask(func(q *access.Question) { q.Principal.Claims = nil })
	for rules, denied := range map[string]bool{
		`deny contains "no" if input.caller.claims.contractor`:                                         true,
		"allow := true\ndeny contains \"no\" if { input.arguments.x; input.caller.claims.contractor }": true,
		`allow if not input.caller.claims.contractor`:                                                  true,
		`require_approval contains "x" if input.caller.claims.contractor`:                              true,
		`allow if input.caller.subject == "alice"`:                                                     false,
	} {
		e := engine(t, rules)
		for range 2 {
			if v, err := e.Decide(t.Context(), none); err != nil || !v.Allow {
				t.Errorf("%s: a caller without a token: %+v %v", rules, v, err)
			}
			v, err := e.Decide(t.Context(), unknown)
			if err != nil || v.Allow == denied || denied && v.Reason != noClaims {
				t.Errorf("%s: %+v %v", rules, v, err)
			}
		}
	}
	e := engine(t, "allow := true\nvisible if not input.caller.claims.contractor")
	if e.Sees(unknown.Principal, unknown.Tool) || !e.Sees(none.Principal, none.Tool) {
		t.Error("shown by claims that are not known")
	}
	a, _ := e.Audience(unknown.Principal)
	none.Principal.Method, none.Principal.KeyID = "", ""
	if b, _ := e.Audience(none.Principal); a == b {
		t.Error("a caller whose claims are not known is shown what one without a token is")
	}
	if e := engine(t, `deny contains "no" if input.caller.claims.contractor`); !e.Refuses(unknown.Principal, unknown.Tool) {
		t.Error("a tool is shown whose calls are refused")
	}
}

// TestSessionThatIsNotKnown: where the session of a caller is not known, a policy that reads it denies, and others decide as ever.
func TestSessionThatIsNotKnown(t *testing.T) {
	q := ask(func(q *access.Question) {
		q.Principal.Method, q.Principal.KeyID, q.Principal.Session, q.Principal.SessionUnknown = access.MethodProxy, "", "", true
	})
	for rules, allowed := range map[string]bool{
		"allow := true\ndeny contains \"ended\" if input.caller.session == \"o1\"": false,
		`allow if input.caller.subject == "alice"`:                                 true,
	} {
		v, err := engine(t, rules).Decide(t.Context(), q)
		if err != nil || v.Allow != allowed || !allowed && v.Reason != noSession {
			t.Errorf("%s: %+v %v", rules, v, err)
		}
	}
}

const canary = "canary-4711-zürich"

// TestClaimsAreNotSaid: what a policy says has no claim that it read, nor has what the engine logs, wherever it stands.
func TestClaimsAreNotSaid(t *testing.T) {
	var log strings.Builder
	logs := func(c *Config) { c.Log = slog.New(slog.NewTextHandler(&log, nil)) }
	q := ask(claims(`{"dept":"`+canary+`","deep":{"n":[471147.5]},"sub":"alice","dept2":"canary-4711","quoted":{"a":"can\"ary<b"},"bad":{"x@canary":true},
		"mail":"Ann@Canary.example","plain":{"office":"x"}}`), func(q *access.Question) { q.Principal.Session = "session-4712" })
	for _, rules := range []string{
		`deny contains sprintf("%v and %v of alice", [input.caller.claims.dept, input.caller.claims.deep]) if true`,
		`deny contains {"rule": input.caller.claims.dept, "reason": "of alice"} if true`,
		"allow := true\nrequire_approval contains sprintf(\"%v %v\", [input.caller.subject, input.caller.claims]) if true # alice",
		`allow if to_number(input.caller.claims.dept) > 0`,
		`allow := input.caller.claims.deep`,
		`deny contains input.caller.session if true`,
		`deny contains input.caller.claims.deep if true`,
		"allow := true\nvisible if to_number(input.caller.claims.dept) > 0",
		`deny contains sprintf("%v", [input.caller.claims.quoted]) if true`,
		`deny contains json.marshal(input.caller.claims.quoted) if true`,
		`deny contains sprintf("%v", [input.caller.claims.bad]) if true`,
		`deny contains concat(" ", [k | some k, _ in input.caller.claims.bad]) if true`,
		`deny contains sprintf("%v is not of Alice", [lower(input.caller.claims.mail)]) if true # alice`,
		`deny contains upper(input.caller.claims.mail) if true`,
		`deny contains sprintf("alice has no office: %v", [input.caller.claims.plain.office]) if true`,
	} {
		e := engine(t, rules, logs)
		for range 2 {
			v, err := e.Decide(t.Context(), q)
			e.Sees(q.Principal, q.Tool)
			e.Refuses(q.Principal, q.Tool)
			said := fmt.Sprintf("%+v %v %s", v, err, log.String())
			if low := strings.ToLower(said); strings.Contains(low, "ary") || strings.Contains(said, "471147") || strings.Contains(said, "4712") {
				t.Errorf("%s: %s", rules, said)
			}
			if strings.Contains(rules, "has no office") && !strings.Contains(said, "alice has no office") {
				t.Errorf("%s: a member that the policy names is hidden: %s", rules, said)
			}
			if strings.Contains(rules, "alice") && !strings.Contains(said, "alice") {
				t.Errorf("%s: what the record has anyway is missing: %s", rules, said)
			}
		}
	}
	q.Principal.Session = ""
	if s := fmt.Sprintf("%v %+v %#v", q.Principal.Claims, *q.Principal, q.Principal.Claims); strings.Contains(s, "canary") {
		t.Error(s)
	}
	if raw, err := json.Marshal(map[string]any{"p": q.Principal, "c": q.Principal.Claims}); err != nil || strings.Contains(string(raw), "canary") {
		t.Error(string(raw), err)
	}
}

// TestKeptAnswersSayNoClaims: a kept answer has no claim of the caller that it was made for, though that one's record has it.
func TestKeptAnswersSayNoClaims(t *testing.T) {
	e := engine(t, `deny contains sprintf("%v may not", [input.caller.claims.boss]) if true`)
	for _, subject := range []string{"canary", "other"} {
		v, err := e.Decide(t.Context(), ask(claims(`{"boss":"canary"}`), func(q *access.Question) { q.Principal.Subject = subject }))
		if err != nil || v.Reason != "[claim] may not" {
			t.Errorf("%s: %+v %v", subject, v, err)
		}
	}
}

// TestThePolicysOwnTextsStay: a text that stands in a policy, and the kind of an obligation, are said as they are, whatever
// the claims of the caller.
func TestThePolicysOwnTextsStay(t *testing.T) {
	q := ask(claims(`{"employment":"contractor","dept":"finance","kind":"require_approval"}`))
	for rules, want := range map[string]access.Verdict{
		`deny contains "contractors may not pay" if input.caller.claims.employment == "contractor"`: {
			Reason: "contractors may not pay", Rule: "data.toolkeep.deny"},
		`deny contains {"rule": "finance-limit", "reason": "of finance"} if input.caller.claims.dept == "finance"`: {
			Reason: "of finance", Rule: "finance-limit"},
		"allow := true\nrequire_approval contains {\"rule\": \"finance-limit\", \"reason\": sprintf(\"it is %v\", [input.caller.claims.dept])} if true": {
			Allow: true, Rule: "data.toolkeep.allow", Obligations: []access.Obligation{{Kind: access.ObligeApproval, Reason: "it is [claim]", Rule: "finance-limit"}}},
	} {
		if v, err := engine(t, rules).Decide(t.Context(), q); err != nil || !reflect.DeepEqual(v, want) {
			t.Errorf("%s: %+v %v", rules, v, err)
		}
	}
	s := newService(t, `{"allowed":true,"obligations":[{"kind":"require_approval","reason":"of finance"}]}`)
	v, err := remote(t, &Remote{ABAC: s.URL}).Decide(t.Context(), q)
	if want := (access.Obligation{Kind: access.ObligeApproval, Reason: "of [claim]", Rule: "abac"}); err != nil || len(v.Obligations) != 1 || v.Obligations[0] != want {
		t.Errorf("%+v %v", v, err)
	}
}

// TestRemoteGetsClaims: a service gets all claims, and never the ids of tokens; what it quotes of them is not said.
func TestRemoteGetsClaims(t *testing.T) {
	s := newService(t, `{"result":{"allow":true,"deny":["`+canary+` is denied"]}}`)
	e := remote(t, &Remote{OPA: s.URL + "/v1/data/toolkeep"})
	v, err := e.Decide(t.Context(), ask(claims(`{"dept":"`+canary+`"}`)))
	if err != nil || v.Allow || v.Reason != "[claim] is denied" {
		t.Errorf("%+v %v", v, err)
	}
	in, _ := json.Marshal(s.body["input"])
	if !strings.Contains(string(in), `"claims":{"dept":"`+canary+`"}`) || strings.Contains(string(in), "j1") || !strings.Contains(string(in), `"tool_id":["billing.*"]`) {
		t.Errorf("%s", in)
	}
	asked := s.asked
	if v, err := e.Decide(t.Context(), ask(claims(""))); err != nil || v.Allow || s.asked != asked {
		t.Errorf("%+v %v", v, err)
	}
}
