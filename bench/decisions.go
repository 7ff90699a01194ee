package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/access"
	"github.com/toolkeep/toolkeep/access/policy"
)

// noKeys is the store of an access that knows no keys.
type noKeys struct{ toolkeep.Watcher }

func (noKeys) Apply(context.Context, ...toolkeep.Change) error { return nil }

// decisions measures what it costs to decide whether a caller may call a tool: by roles, and by roles
// and then by a policy of 500 pairs of role and tag in this process.
func decisions(b *bench) (part, error) {
	p := part{set: "Set: one caller in this process; roles with 10 rules; the policy finds one of 500 roles by key in its data and looks at the caller and an argument. " +
		"Kept are answers to the same question; not kept are those that are made for each call."}
	var roles []access.Role
	for i := range 10 {
		roles = append(roles, access.Role{Name: fmt.Sprintf("role-%d", i), Allow: []access.Rule{{Tools: []string{fmt.Sprintf("team%d.*", i)}, MaxRisk: "medium"}}})
	}
	acc, err := access.New(access.Config{Store: noKeys{}, Roles: roles, Load: func(context.Context) ([]toolkeep.APIKey, int64, error) { return nil, 0, nil }})
	if err != nil {
		return part{}, err
	}
	var engines [2]*policy.Engine // kept and not
	for i, keep := range []time.Duration{time.Hour, -1} {
		if engines[i], err = benchPolicy(b.dir, keep); err != nil {
			return part{}, err
		}
	}
	caller := &toolkeep.Principal{Subject: "bot", Tenant: "default", Method: "api_key", KeyID: "k"}
	for i := range 10 {
		caller.Roles = append(caller.Roles, fmt.Sprintf("role-%d", i))
	}
	tool := func(digest string) *toolkeep.Tool {
		return &toolkeep.Tool{ID: "team9.refund", Version: "1.0.0", Digest: digest, Manifest: &toolkeep.Manifest{Risk: "low", SideEffects: "writes", Tags: []string{"production"}}}
	}
	known, unknown := tool("sha256:00aa"), tool("") // a version without a digest is decided each time
	call := &toolkeep.Call{Tool: known.ID}
	arguments := map[string]any{"amount": "5"}
	decide := func(t *toolkeep.Tool, e *policy.Engine) func(context.Context) error {
		return func(ctx context.Context) error {
			d := acc.Authorise(caller, t, call)
			if e != nil {
				d = d.Consult(ctx, e, &access.Question{Principal: caller, Tool: t, Call: call, Arguments: arguments}, func(s string) string { return s })
			}
			if !d.Allowed {
				return errors.Join(errors.New(d.Reason), d.Cause)
			}
			return nil
		}
	}
	for _, c := range []struct {
		name, goal string
		run        func(context.Context) error
	}{
		{"roles, kept", "-", decide(known, nil)},
		{"roles, not kept", "-", decide(unknown, nil)},
		{"roles and policy, kept", "5 µs", decide(known, engines[0])},
		{"roles and policy, not kept", "100 µs", decide(unknown, engines[1])},
	} {
		s := &side{run: c.run}
		if err := s.take(context.Background(), turn); err != nil { // what is kept from then on
			return part{}, err
		}
		*s = side{run: c.run}
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		if err := s.take(context.Background(), b.d); err != nil {
			return part{}, err
		}
		runtime.ReadMemStats(&after)
		p.rows = append(p.rows, []string{c.name, c.goal, us2(s.cpuPerCall()), us2(s.timePerCall()), fmt.Sprint((after.Mallocs - before.Mallocs) / uint64(s.calls))})
	}
	return p, nil
}

func us2(v float64) string { return fmt.Sprintf("%.2f µs", v) }

// benchPolicy makes the policy that is asked.
func benchPolicy(dir string, keep time.Duration) (*policy.Engine, error) {
	at := filepath.Join(dir, fmt.Sprint("policy", keep))
	if err := os.Mkdir(at, 0o700); err != nil {
		return nil, err
	}
	var tags []string
	for i := range 500 {
		tags = append(tags, fmt.Sprintf(`"role-%d":["production"]`, i))
	}
	for name, text := range map[string]string{
		"data.json": `{"by_role":{` + strings.Join(tags, ",") + `}}`,
		"p.rego": "package toolkeep\n\nallow if {\n\tsome tag in input.tool.tags\n\ttag in data.by_role[input.caller.roles[0]]\n}\n\n" +
			"deny contains \"x\" if input.caller.subject == \"mallory\"\n\nrequire_approval contains \"amount\" if input.arguments.amount == \"1000\"\n",
	} {
		if err := os.WriteFile(filepath.Join(at, name), []byte(text), 0o600); err != nil {
			return nil, err
		}
	}
	return policy.New(context.Background(), policy.Config{Path: at, KeepFor: keep})
}
