package access

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/canon"
	"github.com/toolkeep/toolkeep/canon/yaml"
)

// maxIssuers bounds the issuers of a document.
const maxIssuers = 100

// issuers are those whose access tokens are accepted. A tenant belongs to one of them: those that name their tenants have
// these alone, and the one that names none has all others. So equal subjects of two issuers are never one caller.
type issuers []*issuer

// newIssuers checks the issuer of the settings, nil for none, and those of Config.IssuersFile. Its faults belong to E3008.
func newIssuers(first *OAuth, more []OAuth, rules ruleset, clock func() time.Time, log *slog.Logger) (all issuers, faults []toolkeep.Fault) {
	owner := map[string]string{} // of tenants
	var places []string
	add := func(c OAuth, at string) {
		o, found := newIssuer(c, at, rules, clock, log)
		if slices.ContainsFunc(all, func(other *issuer) bool { return other.c.Issuer == c.Issuer }) {
			found = append(found, toolkeep.Fault{Pointer: at + "/issuer", Rule: "unique", Message: "the issuer " + c.Issuer + " is there twice"})
		}
		for _, t := range c.Tenants {
			if other, taken := owner[t]; taken {
				found = append(found, toolkeep.Fault{Pointer: at + "/tenants", Rule: "unique", Message: fmt.Sprintf("the tenant %s is that of %s already; a tenant belongs to one issuer", t, other)})
			}
			owner[t] = c.Issuer
		}
		all, places, faults = append(all, o), append(places, at), append(faults, found...)
	}
	if first != nil {
		add(*first, "/oauth")
	}
	for i, c := range more {
		add(c, fmt.Sprintf("/oauth/issuers_file/issuers/%d", i))
	}
	for i, o := range all {
		o.owner = owner
		if t := o.c.DefaultTenant; t != "" && !o.mayName(t) {
			faults = append(faults, toolkeep.Fault{Pointer: places[i] + "/default_tenant", Rule: "enum", Message: fmt.Sprintf("the default tenant %s is not one of %s", t, o.c.Issuer)})
		}
	}
	return all, faults
}

// mayName reports whether the issuer's tokens may name a tenant.
func (o *issuer) mayName(tenant string) bool {
	if len(o.c.Tenants) > 0 {
		return slices.Contains(o.c.Tenants, tenant)
	}
	_, taken := o.owner[tenant]
	return !taken
}

// session verifies a token by the issuer that it names. err means that it cannot be verified now.
func (all issuers) session(ctx context.Context, token string) (*session, *refusal, error) {
	sum := sha256.Sum256([]byte(token))
	for _, o := range all {
		if s := o.remembered(sum); s != nil {
			if !o.now().Before(s.until) {
				return nil, o.expired(s.tenant, s.subject, s.until), nil
			}
			return s, nil, nil
		}
	}
	o := all.of(token)
	if o == nil {
		return nil, &refusal{reason: "wrong_issuer", message: "the token's issuer (iss) is none of those whose tokens are accepted"}, nil
	}
	return o.session(ctx, token, sum)
}

// of returns the issuer that a token names, which nothing has verified yet, nil for a token that names none of them. Where there is
// one alone, it looks at every token.
func (all issuers) of(token string) *issuer {
	if len(all) > 1 {
		_, rest, _ := strings.Cut(token, ".")
		payload, _, _ := strings.Cut(rest, ".")
		raw, err := base64.RawURLEncoding.Strict().DecodeString(payload)
		if m, invalid := canon.ParseObject(raw, canon.Limits{Depth: 32}); err == nil && invalid == nil {
			if i := slices.IndexFunc(all, func(o *issuer) bool { return m["iss"] == o.c.Issuer }); i >= 0 {
				return all[i]
			}
		}
		return nil
	}
	return all[0]
}

// roles are those that tokens of a tenant can have.
func (all issuers) roles(tenant string) []string {
	for _, o := range all {
		if o.mayName(tenant) {
			return o.roles
		}
	}
	return nil
}

// agentScopes are the scopes that make an agent at each of the issuers, sorted: a client does not tell yet which one it asks.
func (all issuers) agentScopes() []string {
	scopes := all[0].agentScopes()
	for _, o := range all[1:] {
		scopes = slices.DeleteFunc(scopes, func(s string) bool { return o.c.Scopes[s] != Agent })
	}
	return scopes
}

func (all issuers) health() error {
	var errs []error
	for _, o := range all {
		if err := o.health(); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", o.c.Issuer, err))
		}
	}
	return errors.Join(errs...)
}

// ParseIssuers reads a document in YAML:
//
//	issuers:
//	  - issuer: https://login.partner.example/   # as in the tokens' iss
//	    tenants: [partner]                       # which its tokens may name, and no other issuer's; required
//	    scopes: {"tools:call": agent}            # the role of each; required
//	    default_tenant: partner                  # of tokens without the claim
//	    audience: [https://tools.example]
//	    jwks_url: https://login.partner.example/keys
//	    subject_claim: sub
//	    tenant_claim: tenant
//	    workspace_claim: team
//
// What is left out is as in OAuth. The error is E3008 with every fault and its line; New checks URLs, roles and tenants.
func ParseIssuers(data []byte) ([]OAuth, error) {
	r := &reader{lines: make(map[string]int)}
	var all []OAuth
	r.whole(data, []string{"issuers"}, func(_ string, n *yaml.Node, at string) {
		r.sequence(n, at, func(n *yaml.Node, at string) { all = append(all, r.issuer(n, at)) })
	})
	if len(all) == 0 && len(r.faults) == 0 {
		r.fault(0, "/issuers", "required", "the document names no issuer")
	}
	if len(all) > maxIssuers {
		r.fault(0, "/issuers", "maxItems", "there are more than %d issuers", maxIssuers)
	}
	if len(r.faults) > 0 {
		return nil, toolkeep.FaultsError(toolkeep.InvalidManifest, "the issuers cannot be used: "+r.faults[0].Message, r.faults)
	}
	return all, nil
}

func (r *reader) issuer(n *yaml.Node, at string) (o OAuth) {
	texts := map[string]*string{"issuer": &o.Issuer, "jwks_url": &o.JWKSURL, "subject_claim": &o.SubjectClaim, "tenant_claim": &o.TenantClaim,
		"default_tenant": &o.DefaultTenant, "workspace_claim": &o.WorkspaceClaim}
	known := append(slices.Sorted(maps.Keys(texts)), "audience", "scopes", "tenants")
	r.mapping(n, at, known, func(key string, n *yaml.Node, at string) {
		switch key {
		case "audience":
			o.Audience = r.texts(n, at)
		case "tenants":
			o.Tenants = r.texts(n, at)
		case "scopes":
			o.Scopes = map[string]string{}
			r.mapping(n, at, nil, func(scope string, n *yaml.Node, at string) { o.Scopes[scope] = r.text(n, at) })
		default:
			*texts[key] = r.text(n, at)
		}
	})
	if len(o.Tenants) == 0 && !r.reported(at+"/tenants") {
		r.fault(n.Line, at+"/tenants", "required", "the issuer has no tenants; name those that its tokens may be of")
	}
	return o
}

// ReadIssuers reads a document of issuers from a file, and checks it beside the issuer of the settings, nil for none, and the
// custom roles.
func ReadIssuers(file string, first *OAuth, own []Role) error {
	more, err := readIssuers(file, func() string { return "" })
	if err != nil {
		return err
	}
	rules, _ := compile(own)
	_, faults := newIssuers(first, more, rules, time.Now, slog.New(slog.DiscardHandler))
	return issuersFault(faults)
}

func readIssuers(file string, baseURL func() string) (all []OAuth, err error) {
	raw, err := readYAML(file, "oauth.issuers_file")
	if err != nil {
		return nil, err
	}
	if all, err = ParseIssuers(raw); err != nil {
		return nil, relined(err, func(line string) string { return file + ", " + line })
	}
	for i := range all {
		all[i].BaseURL = baseURL
	}
	return all, nil
}

// sumOf identifies issuers by what is said of them, however the file is laid out.
func sumOf(all []OAuth) string {
	if all == nil {
		return canon.Digest(nil)
	}
	raw, err := json.Marshal(all)
	if err != nil {
		panic(err) // texts alone
	}
	return canon.Digest(raw)
}

// IssuersSum identifies the issuers of Config.IssuersFile as New read it, for nodes to compare: without a file that is an
// empty one.
func (a *Access) IssuersSum() string { return a.issuersSum }

// IssuersSum is that of a file as it is now, "" if it cannot be used.
func IssuersSum(file string) string {
	if file == "" {
		return sumOf(nil)
	}
	all, err := readIssuers(file, nil)
	if err != nil {
		return ""
	}
	return sumOf(all)
}

func issuersFault(faults []toolkeep.Fault) error {
	if len(faults) == 0 {
		return nil
	}
	return toolkeep.FaultsError(toolkeep.InvalidManifest, "OAuth cannot be used: "+faults[0].Pointer+": "+faults[0].Message, faults)
}
