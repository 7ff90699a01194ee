package capability

import (
	"context"
	"encoding/base64"
	"fmt"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/Masterminds/semver/v3"
	"github.com/go-json-experiment/json"
	"github.com/google/uuid"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/access/jwt"
	"github.com/toolkeep/toolkeep/canon"
)

// minted is the payload of a token that this server makes.
type minted struct {
	toolkeep.Grant
	Audience  []string `json:"aud,omitempty"`
	IssuedAt  int64    `json:"iat"`
	NotBefore int64    `json:"nbf,omitzero"`
	Expires   int64    `json:"exp"`
}

// Mint makes a token of this server. Of c, the issuer, the id, IssuedAt and Audience are the
// server's to fill in. With a parent, what c leaves out is the parent's, and the rest must be
// within it. It checks no permission. E3301 lists the faults; E3965; E3402 if the key cannot
// be opened.
func (t *Tokens) Mint(ctx context.Context, c Claims, parent *Token) (text string, _ *Claims, err error) {
	now := t.c.Clock().UTC().Truncate(time.Second)
	c.Grant.Issuer, c.IssuedAt, c.Audience, c.Grant.Parents = Issuer, now, nil, nil
	c.Expires, c.NotBefore = c.Expires.Truncate(time.Second), c.NotBefore.Truncate(time.Second)
	if len(t.c.Audience) > 0 {
		c.Audience = t.c.Audience[:1]
	}
	id, err := uuid.NewV7()
	if err != nil {
		return "", nil, err
	}
	c.Grant.ID = id.String()
	var faults []toolkeep.Fault
	if parent != nil {
		c, faults = within(c, parent)
	}
	faults = append(faults, t.check(&c, now)...)
	if len(faults) > 0 {
		return "", nil, toolkeep.FaultsError(toolkeep.InvalidParameters, "the token cannot be made: "+faults[0].Pointer+": "+faults[0].Message, faults)
	}
	p := minted{Grant: c.Grant, Audience: c.Audience, IssuedAt: c.IssuedAt.Unix(), Expires: c.Expires.Unix()}
	if !c.NotBefore.IsZero() {
		p.NotBefore = c.NotBefore.Unix()
	}
	payload, err := json.Marshal(p, json.Deterministic(true))
	if err != nil {
		return "", nil, err
	}
	// What this server would refuse is never handed out.
	read, err := readClaims(payload, "")
	if err != nil {
		return "", nil, toolkeep.NewError(toolkeep.InvalidParameters, "the token cannot be made: %s", err)
	}
	if text, err = t.sign(ctx, payload); err != nil {
		return "", nil, err
	}
	if len(text) > jwt.MaxToken {
		return "", nil, toolkeep.NewError(toolkeep.InvalidParameters, "the token would have %d bytes; at most %d are allowed: name fewer tools, paths, hosts or secrets", len(text), jwt.MaxToken)
	}
	return text, read, nil
}

// check returns what is wrong with claims of which others are the server's.
func (t *Tokens) check(c *Claims, now time.Time) (faults []toolkeep.Fault) {
	fault := func(pointer, format string, args ...any) {
		faults = append(faults, toolkeep.Fault{Pointer: pointer, Rule: "format", Message: fmt.Sprintf(format, args...)})
	}
	if err := checkText(c.Grant.Agent); err != nil {
		fault("/agent_did", "who may use the token: it %s", err)
	}
	if len(c.Grant.Tools) == 0 {
		fault("/tool_id", "name at least one tool, or a pattern such as weather.*")
	}
	switch {
	case !c.Expires.After(now):
		fault("/exp", "the token would be expired at once")
	case c.Expires.Sub(now) > t.c.Life:
		fault("/exp", "a token lives at most %s here (tokens.max_life)", t.c.Life)
	case !c.NotBefore.Before(c.Expires):
		fault("/nbf", "the token would never be valid: nbf is not before exp")
	}
	for _, op := range c.Grant.Operations {
		if op != toolkeep.OperationExecute && op != toolkeep.OperationRead {
			fault("/allowed_operations", "there is no operation %q; there are %s and %s", op, toolkeep.OperationExecute, toolkeep.OperationRead)
		}
	}
	return faults
}

// within fills what a child leaves out from its parent, and returns what is not within the
// parent's. Only what is certain counts: of patterns, those that the parent repeats and ids
// that match; of ranges, the same text and exact versions inside.
func within(c Claims, parent *Token) (Claims, []toolkeep.Fault) {
	var faults []toolkeep.Fault
	wider := func(pointer, format string, args ...any) {
		faults = append(faults, toolkeep.Fault{Pointer: pointer, Rule: "narrower", Message: fmt.Sprintf(format, args...)})
	}
	g, of := &c.Grant, &parent.Grant
	if g.Tenant != of.Tenant {
		wider("/tenant_id", "the parent is for another tenant")
	}
	g.Parents = append(slices.Clone(of.Parents), of.ID)
	if len(g.Parents) > MaxDepth {
		wider("/parent", "a token is made from at most %d others, one after another", MaxDepth)
	}
	if parent.Audience != nil { // it stays valid where its parent is
		c.Audience = parent.Audience
	}
	if g.Tools == nil {
		g.Tools = of.Tools
	}
	for _, p := range g.Tools {
		if !patternWithin(p, of.Tools) {
			wider("/tool_id", "%q is not certainly within the parent's [%s]; repeat one of its patterns or name tool ids that match", p, strings.Join(of.Tools, ", "))
		}
	}
	switch {
	case g.Version == "":
		g.Version = of.Version
	case of.Version != "" && g.Version != of.Version:
		if _, err := semver.StrictNewVersion(g.Version); err != nil || !parent.allowsVersion(g.Version) {
			wider("/tool_version", "%q is not certainly within the parent's %q; repeat it or name one version within it", g.Version, of.Version)
		}
	}
	if g.Operations == nil {
		g.Operations = of.Operations
	}
	for _, op := range g.Operations {
		if !slices.Contains(of.Operations, op) && !of.AllowsOperation(op != toolkeep.OperationRead) {
			wider("/allowed_operations", "%q is not within the parent's [%s]", op, strings.Join(of.Operations, ", "))
		}
	}
	filesWithin(g, of, wider)
	networkWithin(g, of, wider)
	switch {
	case g.Secrets == nil:
		g.Secrets = of.Secrets
	case of.Secrets != nil:
		for _, s := range g.Secrets.Secrets {
			if !of.AllowsSecret(s) && !slices.Contains(of.Secrets.Secrets, "secret://"+s) {
				wider("/credential_permissions", "the secret %q is not one of the parent's", s)
			}
		}
	}
	if c.Expires.IsZero() || c.Expires.After(parent.Expires) {
		if !c.Expires.IsZero() {
			wider("/exp", "the parent expires earlier, at %s", parent.Expires.UTC().Format(time.RFC3339))
		}
		c.Expires = parent.Expires
	}
	if c.NotBefore.Before(parent.NotBefore) {
		c.NotBefore = parent.NotBefore
	}
	return c, faults
}

func patternWithin(p string, of []string) bool {
	if slices.Contains(of, p) {
		return true
	}
	return !strings.ContainsAny(p, `*?[\`) && slices.ContainsFunc(of, func(q string) bool {
		ok, err := path.Match(q, p)
		return ok && err == nil
	})
}

func filesWithin(g, of *toolkeep.Grant, wider func(pointer, format string, args ...any)) {
	switch {
	case g.Files == nil:
		g.Files = of.Files
	case of.Files != nil:
		for _, p := range g.Files.Paths {
			if !slices.ContainsFunc(of.Files.Paths, func(dir string) bool { return dir == "/" || p == dir || strings.HasPrefix(p, dir+"/") }) {
				wider("/filesystem_permissions", "the path %q is not within the parent's", p)
			}
		}
		if g.Files.Write() && !of.Files.Write() {
			wider("/filesystem_permissions", "the parent may only read (mode ro)")
		}
	}
}

func networkWithin(g, of *toolkeep.Grant, wider func(pointer, format string, args ...any)) {
	switch {
	case g.Network == nil:
		g.Network = of.Network
	case of.Network != nil:
		for _, h := range g.Network.Hosts {
			if !slices.ContainsFunc(of.Network.Hosts, func(pattern string) bool { return toolkeep.HostWithin(h, pattern) }) {
				wider("/network_permissions", "the host %q is not within the parent's", h)
			}
		}
		own := *g.Network
		if own.Ports == nil {
			own.Ports = of.Network.Ports
		}
		g.Network = &own
		for _, p := range own.Ports {
			if of.Network.Ports != nil && !slices.Contains(of.Network.Ports, p) {
				wider("/network_permissions", "the port %d is not one of the parent's", p)
			}
		}
	}
}

// Show reads a token's header and claims for people. It verifies nothing, and leaves out the
// signature. E3301.
func Show(text string) (header, claims []byte, err error) {
	parts := strings.Split(strings.TrimSpace(text), ".")
	if len(parts) != 3 || len(text) > jwt.MaxToken {
		return nil, nil, toolkeep.NewError(toolkeep.InvalidParameters, "this is not a signed token: it has three parts with dots between them, and at most %d bytes", jwt.MaxToken)
	}
	for i, to := range []*[]byte{&header, &claims} {
		raw, err := base64.RawURLEncoding.DecodeString(parts[i])
		if err == nil {
			_, err = canon.ParseObject(raw, canon.Limits{Bytes: jwt.MaxToken, Depth: 32})
		}
		if err != nil {
			return nil, nil, toolkeep.NewError(toolkeep.InvalidParameters, "part %d of the token is not a JSON object in base64url", i+1)
		}
		*to = raw
	}
	return header, claims, nil
}
