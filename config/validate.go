package config

import (
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/access"
	"github.com/toolkeep/toolkeep/access/policy"
	"github.com/toolkeep/toolkeep/datadir"
	"github.com/toolkeep/toolkeep/limit/breaker"
	"github.com/toolkeep/toolkeep/mcpregistry"
	"github.com/toolkeep/toolkeep/redact"
	"github.com/toolkeep/toolkeep/schema"
)

// Validate reports every fault at once, as E3008 with details.errors.
func (c *Config) Validate() error {
	return Refusal(c.faults())
}

func (c *Config) faults() []toolkeep.Fault {
	var f faults
	if c.Data == "" {
		f.add("data", "required", "the data directory is not named; set data or TOOLKEEP_DATA")
	}
	if c.Node.Name != "" {
		if err := datadir.CheckNodeName(c.Node.Name); err != nil {
			f.add("node.name", "format", "node.name: "+err.Error())
		}
	}
	f.listener(c, "http.addr", c.HTTP.Addr)
	f.listener(c, "metrics.addr", c.Metrics.Addr)
	if _, _, err := net.SplitHostPort(c.Metrics.Addr); err == nil && c.Metrics.TLS == "off" && !loopback(c.Metrics.Addr) {
		f.add("metrics.tls", "contradiction", fmt.Sprintf("metrics.tls is off, and metrics.addr is %s, which is not loopback; set metrics.tls to server", c.Metrics.Addr))
	}
	if c.GRPC.Enabled() {
		f.listener(c, "grpc.addr", c.GRPC.Addr)
		f.apart("grpc.addr", c.GRPC.Addr, "http.addr", c.HTTP.Addr)
		f.apart("grpc.addr", c.GRPC.Addr, "metrics.addr", c.Metrics.Addr)
	}
	f.apart("metrics.addr", c.Metrics.Addr, "http.addr", c.HTTP.Addr)
	if _, err := c.HTTP.TrustedProxies(); err != nil {
		f.add("http.trusted_proxies", "format", toolkeep.AsError(err).Message)
	}
	if _, err := mcpregistry.New(c.MCP.Registry); err != nil {
		f.add("mcp.registry", "format", "mcp.registry: "+toolkeep.AsError(err).Message)
	}
	if at := c.Calls.TraceURL; at != "" {
		u, err := url.Parse(strings.ReplaceAll(at, "{trace_id}", "0"))
		if err != nil || u.Host == "" || u.User != nil || !strings.Contains(at, "{trace_id}") || u.Scheme != "https" && (u.Scheme != "http" || !loopback(net.JoinHostPort(u.Hostname(), "80"))) {
			f.add("calls.trace_url", "format", "calls.trace_url is an address with https, or with http on loopback, and {trace_id} in it, such as https://traces.example/trace/{trace_id}")
		}
	}
	if err := c.Breaker.Rule().Validate(); err != nil {
		f.add("breaker.window_size", "contradiction", err.Error())
	}
	if _, others := breaker.CodesOf(c.Breaker.IgnoreErrors); len(others) > 0 {
		f.add("breaker.ignore_errors", "enum", fmt.Sprintf("breaker.ignore_errors has %q, which breakers do not count; it may have %v", others[0], breaker.Counted))
	}
	f.together(c, "tls.cert", "tls.key")
	if c.TLS.ClientCA != "" && !c.TLS.Enabled() {
		f.add("tls.client_ca", "required", "tls.client_ca asks clients for certificates, which only TLS can; that needs tls.cert and tls.key")
	}
	if c.TLS.ClientCA == "" {
		f.needs(c, "tls.client_ca", "access.certificates_file", "access.same_subject")
		if c.TLS.Clients == "optional" {
			f.add("tls.client_ca", "required", "tls.clients is optional; it needs tls.client_ca")
		}
	}
	if c.Access.SameSubject && c.Access.CertificatesFile == "" {
		f.add("access.same_subject", "required", "access.same_subject compares callers with their client certificates; that needs access.certificates_file")
	}
	if c.Store.DSN != "" && c.Secrets.SealKey == "" && c.Secrets.SealKeys == "" {
		f.add("secrets.seal_key", "required", "store.dsn names a database that nodes share; that needs secrets.seal_key, a file with the same content on every node, or the keys in the variable TOOLKEEP_SEAL_KEY")
	}
	if c.Secrets.SealKey != "" && c.Secrets.SealKeys != "" {
		f.add("secrets.seal_keys", "contradiction", "secrets.seal_key names a file with keys, and secrets.seal_keys (TOOLKEEP_SEAL_KEY) holds keys; leave one out")
	}
	f.signing(c)
	f.oauth(c)
	f.policies(c)
	f.vault(c)
	f.search(c)
	f.approvals(c)
	f.context(c)
	f.redis(c)
	if _, why := c.Tools.Retry.statuses(); why != "" {
		f.add("tools.retry.status_codes", "format", "tools.retry.status_codes: "+why)
	}
	if _, why := c.Limits.upstreams(); why != "" {
		f.add("limits.upstreams", "format", "limits.upstreams: "+why)
	}
	if _, err := redact.PersonalOf(c.Audit.Personal); err != nil {
		f.add("audit.personal", "enum", "audit.personal: "+err.Error())
	}
	if _, ok := schema.NewTargets(c.Tools.CoerceTo); !ok {
		f.add("tools.coerce_to", "format", fmt.Sprintf("tools.coerce_to is %s; there are %s", strings.Join(c.Tools.CoerceTo, ", "), strings.Join(schema.TargetNames, ", ")))
	}
	if keep := max(c.Store.KeepCalls, c.Store.KeepEvents); c.Audit.Archive != "" && c.Audit.ArchiveKeep < keep {
		f.add("audit.archive_keep", "minimum", fmt.Sprintf("audit.archive_keep is %s, shorter than what the store itself keeps (%s); make it longer, or leave audit.archive out", c.Audit.ArchiveKeep, keep))
	}
	if c.Calls.WaitLimit < c.Calls.SyncLimit {
		f.add("calls.wait_limit", "minimum", "calls.wait_limit is shorter than calls.sync_limit")
	}
	for _, d := range c.Secrets.Dirs {
		if !filepath.IsAbs(d) {
			f.add("secrets.dirs", "format", fmt.Sprintf("the secrets folder %q is not an absolute path", d))
		}
	}
	if c.Examples.Enabled {
		if _, _, err := hostPort(c.Examples.Addr); err != nil {
			f.add("examples.addr", "format", err.Error())
		} else if !loopback(c.Examples.Addr) {
			f.add("examples.addr", "loopback", "the example bookshop has no authentication and listens on loopback only; "+c.Examples.Addr+" is not loopback")
		}
	}
	for i := range settings {
		if s := &settings[i]; s.path != nil {
			if why := s.check(s.field(c)); why != "" {
				f.add(s.key, "range", s.key+" "+why)
			}
		}
	}
	return f
}

type faults []toolkeep.Fault

func (f *faults) add(key, rule, message string) {
	pointer := "/" + strings.NewReplacer(".", "/", "~", "~0", "/", "~1").Replace(key)
	*f = append(*f, toolkeep.Fault{Pointer: pointer, Rule: rule, Message: message})
}

// needs refuses settings that require another one that is not set.
func (f *faults) needs(c *Config, needed string, keys ...string) {
	for _, key := range keys {
		if !byName[key].field(c).IsZero() {
			f.add(needed, "required", key+" is set; it needs "+needed)
		}
	}
}

// together refuses one of two settings without the other.
func (f *faults) together(c *Config, a, b string) {
	for _, missing := range [][2]string{{a, b}, {b, a}} {
		if byName[missing[0]].field(c).IsZero() && !byName[missing[1]].field(c).IsZero() {
			f.add(missing[0], "required", a+" and "+b+" go together; set both or neither")
		}
	}
}

// reference checks a setting that names a secret of the server itself: there is no
// agent context that could supply it.
func (f *faults) reference(key, value, example string) {
	scheme, rest, _ := strings.Cut(value, "://")
	if value != "" && (rest == "" || scheme != "secret" && scheme != "vault" && scheme != "env" && scheme != "file") {
		f.add(key, "format", key+" must be a secret reference, such as "+example+"; there are secret://, vault://, env:// and file://")
	}
}

func (f *faults) signing(c *Config) {
	for _, face := range c.Signing.Required {
		if face != "rest" && face != "mcp" && face != "grpc" {
			f.add("signing.required", "enum", fmt.Sprintf("signing.required: there is no face %s; there are rest, mcp and grpc", quote(face)))
		}
	}
	for key, refs := range map[string][]string{"signing.keys": c.Signing.Keys, "proxy.keys": c.Proxy.Keys} {
		for _, ref := range refs {
			f.reference(key, ref, "secret://signing/shared")
		}
		if len(refs) > maxSigningKeys {
			f.add(key, "maxItems", fmt.Sprintf("%s has %d references; each is tried, so there are at most %d", key, len(refs), maxSigningKeys))
		}
	}
	f.reference("results.signing_key", c.Results.SigningKey, "secret://signing/results")
	if len(c.Proxy.Keys) == 0 {
		f.needs(c, "proxy.keys", "proxy.roles")
	} else if len(c.Proxy.Roles) == 0 {
		f.add("proxy.roles", "required", "proxy.keys lets proxies name callers; that needs proxy.roles, the roles that they may give")
	}
}

// maxSigningKeys bounds the secrets that verify one signature.
const maxSigningKeys = 5

func (f *faults) oauth(c *Config) {
	o := &c.OAuth
	if o.Issuer == "" {
		if c.Access.Method == "oauth" && o.IssuersFile == "" {
			f.add("oauth.issuer", "required", "access.method is oauth; that needs oauth.issuer or oauth.issuers_file")
		} else {
			f.needs(c, "oauth.issuer", "oauth.audience", "oauth.scopes", "oauth.jwks_url", "oauth.default_tenant", "oauth.workspace_claim", "oauth.tenants")
		}
		return
	}
	for _, u := range []struct{ key, url string }{{"oauth.issuer", o.Issuer}, {"oauth.jwks_url", o.JWKSURL}} {
		if u.url != "" {
			if err := access.CheckIssuerURL(u.url); err != nil {
				f.add(u.key, "format", u.key+": "+err.Error())
			}
		}
	}
	if o.SubjectClaim == "" || o.TenantClaim == "" {
		f.add("oauth", "required", "oauth.subject_claim and oauth.tenant_claim must not be empty")
	}
	if len(o.Scopes) == 0 {
		f.add("oauth.scopes", "required", "oauth.scopes is empty; no token could do anything. Give at least one scope its role, such as tools:call=agent")
	}
	if roles := o.Roles(); len(roles) != len(o.Scopes) {
		f.add("oauth.scopes", "format", "oauth.scopes must be scope=role each, every scope once, such as tools:call=agent")
	}
}

// service checks the address of a service: outside of this machine it needs TLS.
func (f *faults) service(key, address, example string) {
	u, err := url.Parse(address)
	switch {
	case err != nil || u.Host == "" || u.Scheme != "https" && u.Scheme != "http" || u.User != nil || u.RawQuery != "" || u.Fragment != "":
		f.add(key, "format", key+" must be an http or https URL without user, query and fragment, such as "+example)
	case u.Scheme == "http" && !loopback(net.JoinHostPort(u.Hostname(), "80")):
		f.add(key, "format", key+" must be https where the service is not on this machine")
	}
}

// policies checks that exactly one policy is named where one is asked, and none where none is.
func (f *faults) policies(c *Config) {
	s, first := &c.Policy, ""
	for _, named := range []struct{ key, value string }{{"policy.path", s.Path}, {"policy.bundle_url", s.BundleURL}, {"policy.opa_url", s.OPAURL}, {"policy.abac_url", s.ABACURL}} {
		switch {
		case named.value == "":
		case first != "":
			f.add(named.key, "contradiction", fmt.Sprintf("%s and %s name a policy each; leave one out", first, named.key))
		default:
			first = named.key
		}
	}
	switch {
	case c.Access.Attributes() && first == "":
		f.add("policy.path", "required", "access.mode is "+c.Access.Mode+"; that needs a policy: policy.path, policy.bundle_url, policy.opa_url or policy.abac_url")
	case !c.Access.Attributes() && first != "":
		f.add("access.mode", "contradiction", first+" names a policy, and access.mode is "+c.Access.Mode+", which asks none; set access.mode to rbac+abac")
	}
	if s.BundleURL != "" {
		if err := policy.CheckURL(s.BundleURL); err != nil {
			f.add("policy.bundle_url", "format", "policy.bundle_url: "+err.Error())
		}
	}
	switch {
	case s.BundleKeyFile == "":
	case s.Path == "" && s.BundleURL == "":
		f.add("policy.bundle_key_file", "contradiction", "policy.bundle_key_file verifies the policy of policy.path or policy.bundle_url, and neither is set")
	default:
		if err := policy.CheckKeys(s.BundleKeyFile); err != nil {
			f.add("policy.bundle_key_file", "format", "policy.bundle_key_file: "+err.Error())
		}
	}
	if s.OPAURL != "" {
		f.service("policy.opa_url", s.OPAURL, "http://127.0.0.1:8181/v1/data/toolkeep")
	}
	if s.ABACURL != "" {
		f.service("policy.abac_url", s.ABACURL, "https://l01.example")
	}
	if s.Token != "" && s.BundleURL == "" && s.OPAURL == "" && s.ABACURL == "" {
		f.add("policy.token", "contradiction", "policy.token is the token for policy.bundle_url, policy.opa_url or policy.abac_url, and none is set")
	}
	f.reference("policy.token", s.Token, "env://TOOLKEEP_SECRET_POLICY")
}

func (f *faults) approvals(c *Config) {
	s := &c.Approvals
	f.together(c, "approvals.endpoint", "approvals.endpoint_key")
	if s.Endpoint != "" {
		f.service("approvals.endpoint", s.Endpoint, "https://supervision.example/escalations")
	} else if s.EndpointFailure != "wait" {
		f.add("approvals.endpoint_failure", "contradiction", "approvals.endpoint_failure is for approvals.endpoint, which is not set")
	}
	if enabled, ok := c.given["L03_L08_ENABLED"]; ok && enabled.value == false && c.given["approvals.endpoint"].name == "L03_L08_ENDPOINT" && s.Endpoint != "" {
		f.add("approvals.endpoint", "contradiction", "L03_L08_ENDPOINT names a service that decides about calls, and L03_L08_ENABLED is false; leave one of them out")
	}
	f.reference("approvals.endpoint_key", s.EndpointKey, "env://TOOLKEEP_SECRET_SUPERVISION")
}

func (f *faults) context(c *Config) {
	s := &c.Context
	if s.URL == "" {
		f.needs(c, "context.url", "context.token")
		return
	}
	f.service("context.url", s.URL, "https://sessions.example")
	f.reference("context.token", s.Token, "env://TOOLKEEP_SECRET_SESSIONS")
}

func (f *faults) redis(c *Config) {
	r := &c.Redis
	if r.URL == "" {
		f.needs(c, "redis.url", "redis.password", "redis.ca_file", "redis.server_name", "redis.client_cert", "redis.client_key")
		return
	}
	u, err := url.Parse(r.URL)
	if err != nil || u.Scheme != "redis" && u.Scheme != "rediss" && u.Scheme != "unix" {
		f.add("redis.url", "format", "redis.url must begin with redis://, rediss:// or unix://, such as rediss://redis.example:6379/0")
	} else if _, has := u.User.Password(); has {
		f.add("redis.url", "format", "redis.url holds a password; put a secret reference into redis.password instead")
	}
	f.reference("redis.password", r.Password, "env://TOOLKEEP_SECRET_REDIS")
	f.together(c, "redis.client_cert", "redis.client_key")
}

func (f *faults) search(c *Config) {
	s := &c.Search
	if s.EmbeddingsURL == "" {
		f.needs(c, "search.embeddings_url", "search.embeddings_model", "search.embeddings_dimensions", "search.embeddings_key")
	}
	f.reference("search.embeddings_key", s.EmbeddingsKey, "env://TOOLKEEP_SECRET_EMBEDDINGS")
}

func (f *faults) vault(c *Config) {
	v := &c.Vault
	if !v.Enabled() {
		f.needs(c, "vault.address", "vault.paths", "vault.role", "vault.token", "vault.token_file", "vault.secret_id", "vault.secret_id_file", "vault.transit_key")
		return
	}
	if u, err := url.Parse(v.Address); err != nil || u.Scheme != "https" && u.Scheme != "http" && u.Scheme != "unix" || u.User != nil {
		f.add("vault.address", "format", "vault.address must be a URL such as https://vault.example:8200")
		return
	}
	f.together(c, "vault.client_cert", "vault.client_key")
	if v.Auth == "token" && v.Token == "" && v.TokenFile == "" {
		f.add("vault.token_file", "required", "vault.auth is token; that needs vault.token_file or vault.token")
	}
	if v.Auth == "approle" && (v.Role == "" || v.SecretID == "" && v.SecretIDFile == "") {
		f.add("vault.secret_id_file", "required", "vault.auth is approle; that needs vault.role, the role id, and vault.secret_id_file or vault.secret_id")
	}
	if v.Auth == "gcp-iam" && v.ServiceAccount == "" {
		f.add("vault.service_account", "required", "vault.auth is gcp-iam; that needs vault.service_account")
	}
}

// listener checks an address: outside loopback it needs TLS and a configured way to
// authenticate.
func (f *faults) listener(c *Config, key, addr string) {
	if _, _, err := hostPort(addr); err != nil {
		f.add(key, "format", key+": "+err.Error())
		return
	}
	if loopback(addr) {
		return
	}
	for _, need := range []struct{ key, value string }{
		{"tls.cert", c.TLS.Cert}, {"tls.key", c.TLS.Key}, {"access.method", c.Access.Method + c.OAuth.Issuer + c.OAuth.IssuersFile},
	} {
		if need.value == "" {
			f.add(need.key, "required", fmt.Sprintf("%s is %s, which is not loopback; that needs %s", key, addr, need.key))
		}
	}
}

// apart checks that two listeners do not use the same port.
func (f *faults) apart(key, addr, other, otherAddr string) {
	if addr == otherAddr && addr != "" && !endsInZero(addr) {
		f.add(key, "conflict", other+" and "+key+" are both "+addr+"; give each its own port")
	}
}

// Refusal is one error for all faults of settings: E3008 with details.errors, nil without
// faults.
func Refusal(f []toolkeep.Fault) error {
	if len(f) == 0 {
		return nil
	}
	first := f[0].Message
	if len(f) > 1 {
		first += fmt.Sprintf(" (and %d more)", len(f)-1)
	}
	return toolkeep.FaultsError(toolkeep.InvalidManifest, "the configuration is refused: "+first, f)
}

func hostPort(addr string) (host string, port int, err error) {
	host, p, err := net.SplitHostPort(addr)
	if err != nil {
		return "", 0, fmt.Errorf("%q is not an address; write host:port, such as 127.0.0.1:8080", addr)
	}
	port, err = strconv.Atoi(p)
	if err != nil || port < 0 || port > 65535 {
		return "", 0, fmt.Errorf("%q has no port between 0 and 65535", addr)
	}
	return host, port, nil
}

func endsInZero(addr string) bool {
	_, p, err := hostPort(addr)
	return err == nil && p == 0
}

// loopback reports whether only this machine can reach the address. A name other than
// localhost may resolve to anything.
func loopback(addr string) bool {
	host, _, err := hostPort(addr)
	if err != nil {
		return false
	}
	if host == "localhost" {
		return true
	}
	ip, err := netip.ParseAddr(host)
	return err == nil && ip.Unmap().IsLoopback()
}
