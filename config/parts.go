package config

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/access"
	"github.com/toolkeep/toolkeep/access/capability"
	"github.com/toolkeep/toolkeep/access/policy"
	"github.com/toolkeep/toolkeep/approval"
	"github.com/toolkeep/toolkeep/audit/archive"
	"github.com/toolkeep/toolkeep/catalog"
	"github.com/toolkeep/toolkeep/control/approvals"
	"github.com/toolkeep/toolkeep/datadir"
	"github.com/toolkeep/toolkeep/discover"
	"github.com/toolkeep/toolkeep/discover/assembly"
	"github.com/toolkeep/toolkeep/discover/pgvector"
	"github.com/toolkeep/toolkeep/discover/remote"
	"github.com/toolkeep/toolkeep/egress"
	"github.com/toolkeep/toolkeep/limit"
	"github.com/toolkeep/toolkeep/limit/breaker"
	"github.com/toolkeep/toolkeep/limit/bulkhead"
	"github.com/toolkeep/toolkeep/limit/overload"
	"github.com/toolkeep/toolkeep/redact"
	"github.com/toolkeep/toolkeep/secret/vault"
)

// What settings mean to the parts that they are for.

// SharesLimits reports whether Redis counts the limits of all nodes.
func (c *Config) SharesLimits() bool {
	return c.Redis.URL != "" && c.Store.DSN != "" && c.Limits.Shared
}

// SharesResults reports whether Redis keeps results of tools for all nodes.
func (c *Config) SharesResults() bool {
	return c.Redis.URL != "" && c.Cache.Enabled && c.Cache.Shared
}

// Pool is how tools' servers are reached. Each pool that is made of it has connections of
// its own. E3008 where a setting cannot be used.
func (e Egress) Pool() (egress.PoolConfig, error) {
	c := egress.PoolConfig{ConnsPerHost: e.MaxConns, IdlePerHost: e.IdleConns, Idle: 4 * e.IdleConns, IdleTimeout: e.IdleTimeout,
		ConnectTimeout: e.ConnectTimeout, MaxHeaderBytes: e.MaxHeader}
	if e.TLSMin == "1.3" {
		c.MinTLS = tls.VersionTLS13
	}
	var err error
	if c.RootCAs, err = egress.LoadRoots(e.CAFiles); err != nil {
		return c, toolkeep.NewError(toolkeep.InvalidManifest, "egress.ca_files: %s", err)
	}
	if e.Proxy != "" {
		if c.Proxy, err = egress.NewProxy(egress.ProxyConfig{URL: e.Proxy, Bypass: e.ProxyBypass, TrustNames: e.ProxyNames == "trusted"}); err != nil {
			return c, toolkeep.NewError(toolkeep.InvalidManifest, "egress.proxy: %s", err)
		}
	}
	return c, nil
}

// Store is how Vault is reached; data is the data directory.
func (v Vault) Store(data string) vault.Config {
	return vault.Config{
		Address: v.Address, Namespace: v.Namespace,
		TLS: vault.TLS{CAFile: v.CAFile, ServerName: v.ServerName, CertFile: v.ClientCert, KeyFile: v.ClientKey},
		Auth: vault.Auth{Method: v.Auth, Mount: v.AuthMount, Role: v.Role, Token: v.Token, TokenFile: v.TokenFile,
			SecretID: v.SecretID, SecretIDFile: v.SecretIDFile, Wrapped: v.Wrapped, JWTFile: v.JWTFile,
			ServiceAccount: v.ServiceAccount, Region: v.Region, Resource: v.Resource, ServerID: v.ServerID,
			NonceFile: filepath.Join(data, datadir.VaultNonce)},
		Paths: v.Paths, Prefix: v.Prefix, Mounts: v.Mounts, Timeout: v.Timeout,
	}
}

// Check is E3008 where Vault cannot be used with these settings and the files that they name.
// It connects to nothing.
func (v Vault) Check(data string) error {
	if !v.Enabled() {
		return nil
	}
	s, err := vault.New(v.Store(data))
	if err != nil {
		return err
	}
	defer s.Close(context.Background())
	if v.TransitKey != "" {
		_, err = s.Transit(v.TransitMount, v.TransitKey)
	}
	return err
}

// Access is whose access tokens are taken, nil without one.
func (o OAuth) Access(baseURL func() string) *access.OAuth {
	if o.Issuer == "" {
		return nil
	}
	return &access.OAuth{Issuer: o.Issuer, BaseURL: baseURL, Audience: o.Audience, JWKSURL: o.JWKSURL, SubjectClaim: o.SubjectClaim,
		TenantClaim: o.TenantClaim, DefaultTenant: o.DefaultTenant, Tenants: o.Tenants, WorkspaceClaim: o.WorkspaceClaim, Scopes: o.Roles()}
}

// Capability configures capability tokens, but for the store and the sealer.
func (t Tokens) Capability(baseURL func() string) capability.Config {
	return capability.Config{KeysFile: t.KeysFile, Issuers: t.Issuers, Audience: t.Audience, BaseURL: baseURL, Algorithm: t.Algorithm, Life: t.MaxLife}
}

// Callers configures who may come in, but for the stores and the policy. credential reads a secret.
func (c *Config) Callers(credential func(ref string) func(context.Context) (string, error)) access.Config {
	read := func(refs []string) (all []access.Secret) {
		for _, ref := range refs {
			all = append(all, credential(ref))
		}
		return all
	}
	var sessions access.Sessions
	if c.Console.Enabled {
		sessions.Life, sessions.Idle = c.Console.Session, c.Console.Idle
	}
	return access.Config{Sessions: sessions, TokenRequired: c.Access.TokenRequired(), CertificatesFile: c.Access.CertificatesFile, IssuersFile: c.OAuth.IssuersFile, RolesText: c.Access.Roles, RolesFile: c.Access.RolesFile, SameSubject: c.Access.SameSubject,
		Failures: c.Access.Failures(), Signing: access.Signing{Faces: c.Signing.Required, Shared: read(c.Signing.Keys), Skew: c.Signing.Skew,
			Results: credential(c.Results.SigningKey), Proxy: read(c.Proxy.Keys), ProxyRoles: c.Proxy.Roles, ProxyTenants: c.Proxy.Tenants}}
}

// Failures are the limits of failed authentications and authorisations.
func (a Access) Failures() access.FailureLimits {
	return access.FailureLimits{PerAgent: a.AgentFailures, AgentBlock: a.AgentBlock, PerAddr: a.AddressFailures, AddrBlock: a.AddressBlock, Global: a.FailureAlarm}
}

// Weights are those of the parts of a score.
func (s Search) Weights() discover.Weights {
	return discover.Weights{Semantic: s.SemanticWeight, Keyword: s.KeywordWeight, History: s.HistoryWeight, Success: s.SuccessWeight, Complexity: s.ComplexityWeight}
}

// Ranking are the settings that answers depend on; those that rank nothing are left out.
func (s Search) Ranking() Search {
	s.Cache, s.ModelsDir, s.EmbeddingsKey, s.VectorsDSN = SearchCache{}, "", "", ""
	return s
}

// Service is the embedding service, with the URL "" where none is set, and without its key.
func (s Search) Service() remote.Config {
	return remote.Config{URL: s.EmbeddingsURL, Model: s.EmbeddingsModel, Dimensions: s.EmbeddingsDimensions}
}

// Guide makes contexts and finds related tools.
func (s Search) Guide(search assembly.Search, learned assembly.Usage) *assembly.Guide {
	bound := func(share float64) float64 {
		if share == 0 {
			return -1 // none, where 0 is the default there
		}
		return share
	}
	b := s.Budgets
	return &assembly.Guide{Search: search, Usage: learned, Shares: assembly.Shares{Near: bound(s.Context.Near), Listed: bound(s.Context.Listed)},
		Budgets: assembly.Budgets{InitialPlanning: b.InitialPlanning, ToolSelection: b.ToolSelection, ExecutionPreparation: b.ExecutionPreparation, ErrorRecovery: b.ErrorRecovery}}
}

// VectorDSN is the database of pgvector.
func (c *Config) VectorDSN() string {
	if c.Search.VectorsDSN != "" {
		return c.Search.VectorsDSN
	}
	return c.Store.DSN
}

// vectorConns are those of a node's connections that search.vectors on the store's PostgreSQL
// takes, and vectorPool those that it may open elsewhere.
const (
	vectorConns = 2
	vectorPool  = 8
)

// Conns divides store.max_conns between the store and the vectors.
func (c *Config) Conns() (store, vectors int) {
	switch {
	case c.Search.Vectors != "pgvector":
		return c.Store.MaxConns, 0
	case c.VectorDSN() != c.Store.DSN:
		return c.Store.MaxConns, vectorPool
	}
	return c.Store.MaxConns - vectorConns, vectorConns
}

// CheckVectors is E3008 where search.vectors is pgvector and its address cannot be read.
func (c *Config) CheckVectors() error {
	if c.Search.Vectors != "pgvector" {
		return nil
	}
	return pgvector.Config{DSN: c.VectorDSN()}.Validate()
}

// ToolDefaults hold for what tools' manifests leave out.
func (c *Config) ToolDefaults() catalog.Defaults {
	t := c.Tools
	base, longest := t.Retry.BaseDelay.Milliseconds(), t.Retry.MaxDelay.Milliseconds()
	d := catalog.Defaults{Timeout: t.Timeout, CacheTTL: c.Cache.TTL, Lenient: !t.Strict, Coerce: t.Coerce,
		Retry: toolkeep.RetrySpec{MaxAttempts: t.Retry.MaxAttempts, BaseDelayMS: &base, MaxDelayMS: &longest, Jitter: t.Retry.Jitter}}
	d.Retry.RetryableStatusCodes, _ = t.Retry.statuses() // checked by Validate
	return d
}

// statuses reads tools.retry.status_codes; why says what is wrong with one.
func (r ToolRetry) statuses() (codes []int, why string) {
	for _, text := range r.StatusCodes {
		n, err := strconv.Atoi(text)
		if err != nil || n < 100 || n > 599 {
			return nil, fmt.Sprintf("%s is not an HTTP status code from 100 to 599", quote(text))
		}
		codes = append(codes, n)
	}
	return codes, ""
}

// Targets are the types that texts in results become; none if there are none.
func (t Tools) Targets() []string { return append([]string{}, t.CoerceTo...) }

// Rates are the limits of calls.
func (l Limits) Rates() limit.Config {
	upstreams, _ := l.upstreams() // checked by Validate
	return limit.Config{PerAgentRPM: l.AgentPerMinute, PerToolRPM: l.AgentToolPerMinute, PerTenantRPM: l.TenantPerMinute, PerUpstreamRPM: l.UpstreamPerMinute, Upstreams: upstreams,
		GlobalRPM: l.GlobalPerMinute, ConsoleRPM: l.ConsolePerMinute, Concurrent: l.AgentConcurrent, Algorithm: l.Algorithm, Burst: l.Burst}
}

// upstreams reads Upstreams, and names them as calls do (invoke.ServiceOf); why says what is wrong.
func (l Limits) upstreams() (all map[string]int, why string) {
	all = map[string]int{}
	for _, text := range l.Upstreams {
		before, number, _ := strings.Cut(text, "=")
		n, err := strconv.Atoi(number)
		name := upstreamName(strings.ToLower(before))
		if name == "" || err != nil || n < -1 || n == 0 || n > 100_000_000 {
			return nil, quote(text) + " is not the name of an upstream, = and its calls a minute (1 to 100000000, or -1); write it such as host:api.example.com:443=600, with the port, or mcp:search=60"
		}
		if _, has := all[name]; has {
			return nil, name + " stands twice; leave one"
		}
		all[name] = n
	}
	return all, ""
}

var mcpName = regexp.MustCompile(`^mcp:[a-z][a-z0-9-]{0,31}$`)

// upstreamName is the name of a host and port or of an MCP server as calls have it, "" for none.
func upstreamName(text string) string {
	address, isHost := strings.CutPrefix(text, "host:")
	if !isHost {
		return mcpName.FindString(text)
	}
	host, digits, err := net.SplitHostPort(address)
	port, notNumber := strconv.ParseUint(digits, 10, 16)
	if err != nil || notNumber != nil || port == 0 || host == "" || strings.ContainsAny(host, "/@? \t") {
		return ""
	}
	return "host:" + net.JoinHostPort(host, strconv.FormatUint(port, 10))
}

// Bulkheads bounds what one node has running at once.
func (l Limits) Bulkheads() bulkhead.Config {
	return bulkhead.Config{Total: l.Concurrent, HTTP: l.HTTPConcurrent, SQL: l.SQLConcurrent, GRPC: l.GRPCConcurrent, MCP: l.MCPConcurrent,
		Costly: l.CostlyConcurrent, CostlyUSD: l.CostlyUSD, Queue: l.Queue, Wait: l.QueueWait}
}

// Rule is the rule of breakers.
func (b Breaker) Rule() *breaker.Rule {
	ignore, _ := breaker.CodesOf(b.IgnoreErrors) // checked by Validate
	return &breaker.Rule{On: b.Enabled, Count: b.Window == "count", Window: b.WindowSize, MinCalls: b.MinimumCalls, FailureRate: b.FailureRate,
		Consecutive: b.ConsecutiveFailures, Failures: b.ErrorCount, SlowRate: b.SlowCallRate, Slow: b.SlowCall, Open: b.Open,
		Canary: b.HalfOpen == "canary", HalfOpenCalls: b.HalfOpenCalls, Ignore: ignore}
}

// Retries bounds the retries of a tool.
func (c Calls) Retries() *breaker.Retries {
	return &breaker.Retries{Share: c.RetryShare, Floor: c.RetryFloor}
}

// Load bounds the calls that this node takes.
func (c Calls) Load() overload.Config {
	return overload.Config{Wait: c.MaxCPUWait, InFlight: c.MaxInFlight}
}

// SecretDirs are the folders of file:// references.
func (c *Config) SecretDirs() []string {
	if len(c.Secrets.Dirs) > 0 {
		return c.Secrets.Dirs
	}
	dir, err := filepath.Abs(filepath.Join(c.Data, datadir.Secrets))
	if err != nil {
		return nil
	}
	return []string{dir}
}

// BlobDir is the folder of what is too big for the store.
func (c *Config) BlobDir() string {
	if c.Store.Blobs != "" {
		return c.Store.Blobs
	}
	return filepath.Join(c.Data, datadir.Blobs)
}

// Names are those under which the HTTP face is reached beside loopback; "*" is any. A
// server that listens on every address cannot know its names; TLS and authentication,
// which it must have, do what the Host rule does on loopback.
func (h HTTP) Names() []string {
	names := append([]string{}, h.Hosts...)
	host, _, err := net.SplitHostPort(h.Addr)
	ip := net.ParseIP(host)
	switch {
	case err != nil:
	case host == "" || ip != nil && ip.IsUnspecified():
		names = append(names, "*")
	case host != "localhost" && (ip == nil || !ip.IsLoopback()):
		names = append(names, host)
	}
	if u, err := url.Parse(h.PublicURL); err == nil && u.Hostname() != "" {
		names = append(names, u.Hostname())
	}
	return names
}

// TrustedProxies are those of http.trusted_proxies. E3008 for what is no address and no
// range, and for a range of everything, which would let each client name its address.
func (h HTTP) TrustedProxies() ([]netip.Prefix, error) {
	var all []netip.Prefix
	for _, text := range h.Proxies {
		p, err := netip.ParsePrefix(text)
		if ip, aErr := netip.ParseAddr(text); aErr == nil && ip.Zone() == "" {
			p, err = ip.Unmap().Prefix(ip.Unmap().BitLen())
		}
		switch {
		case err != nil || p.Addr().Is4In6():
			return nil, toolkeep.NewError(toolkeep.InvalidManifest, "http.trusted_proxies: %q is neither an address nor a range such as 10.0.0.0/8", text)
		case p.Bits() == 0:
			return nil, toolkeep.NewError(toolkeep.InvalidManifest, "http.trusted_proxies: %s trusts every client to name its own address; name the proxies", text)
		}
		all = append(all, p.Masked())
	}
	return all, nil
}

// Peer is the address of this node for the others, "" where it has none: it listens on
// every address, at being one of them, and http.peer_url names none.
func (h HTTP) Peer(at string) string {
	host, _, err := net.SplitHostPort(h.Addr)
	ip := net.ParseIP(host)
	switch {
	case h.PeerURL != "":
		return h.PeerURL
	case err != nil || host == "" || ip != nil && ip.IsUnspecified():
		return ""
	}
	return at
}

// CheckPublic is E3008 where http.public_url is no address that people can be sent to.
func (h HTTP) CheckPublic() error {
	u, err := url.Parse(h.PublicURL)
	if h.PublicURL == "" || err == nil && (u.Scheme == "https" || u.Scheme == "http") && u.Hostname() != "" && u.RawQuery == "" && u.Fragment == "" && u.User == nil {
		return nil
	}
	return toolkeep.NewError(toolkeep.InvalidManifest, "http.public_url must be an address such as https://tools.example.com, without query or user")
}

// Addresses are those of a server that listens at: that one, the public one and the one for
// other nodes.
func (h HTTP) Addresses(at string) []string { return []string{at, h.Public(at), h.PeerURL} }

// Public is the address under which people reach a server that listens at.
func (h HTTP) Public(at string) string {
	if h.PublicURL != "" {
		return strings.TrimRight(h.PublicURL, "/")
	}
	return at
}

// Wait is how much longer the store keeps what is not archived; 0 without an archive.
func (a Audit) Wait() time.Duration {
	if a.Archive == "" {
		return 0
	}
	return a.ArchiveWait
}

// PersonalData is what is replaced in what records quote.
func (a Audit) PersonalData() redact.Personal {
	set, _ := redact.PersonalOf(a.Personal) // Validate has checked it
	return set
}

// AuditArchive is what the settings say of the archive, with an empty Dir for none.
func (c *Config) AuditArchive() archive.Config {
	return archive.Config{Dir: c.Audit.Archive, Keep: c.Audit.ArchiveKeep, Wait: c.Audit.ArchiveWait,
		After: min(time.Hour, min(c.Store.KeepCalls, c.Store.KeepEvents)/4)}
}

// DeadLetters is the folder of the events that sinks refused.
func (c *Config) DeadLetters() string {
	if c.Outbox.DeadLetters != "" {
		return c.Outbox.DeadLetters
	}
	return filepath.Join(c.Data, datadir.Outbox)
}

// Rules reads the approval rules.
func (a Approvals) Rules() (*approval.Rules, error) {
	return approval.ReadRules(a.RulesFile, approval.Defaults{Escalate: []time.Duration{a.Escalate, a.EscalateAgain}, Expires: a.Expire})
}

// Supervisor is the service of approvals.endpoint without its client and key, nil for none.
func (a Approvals) Supervisor() *approvals.Supervisor {
	if a.Endpoint == "" {
		return nil
	}
	s := &approvals.Supervisor{URL: a.Endpoint, Timeout: a.EndpointTimeout}
	if a.EndpointFailure == "deny" {
		s.DenyAfter = a.EndpointDeny
	}
	return s
}

// Engine is what makes the policy's engine, remote where neither a path nor a bundle is set.
func (s Policy) Engine() policy.Config {
	c := policy.Config{Path: s.Path, KeyFile: s.BundleKeyFile, Timeout: s.Timeout, KeepFor: s.CacheTTL, Poll: s.Poll}
	if s.CacheTTL == 0 {
		c.KeepFor = -1
	}
	switch {
	case s.BundleURL != "":
		c.Bundle = &policy.Bundle{URL: s.BundleURL, Every: s.BundlePoll}
	case s.Path == "":
		c.Remote, c.Timeout = &policy.Remote{OPA: s.OPAURL, ABAC: s.ABACURL}, s.RemoteTimeout
	}
	return c
}
