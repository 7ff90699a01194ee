package toolkeep

import (
	"crypto/x509"
	"slices"
	"time"
)

// Principal is the authenticated caller. It is always passed as a parameter, never in a
// context.
type Principal struct {
	Subject string   // stable id within the tenant; rate limits and keys are scoped by it
	Tenant  string   // never "" after authentication
	Roles   []string // names of built-in and custom roles
	Method  string   // authentication method: api_key, oauth, mtls, proxy
	KeyID   string   // id of the API key, "" for other methods
	// Scope limits what the roles grant to tools whose id matches one of these patterns
	// (path.Match syntax); empty does not limit.
	Scope []string
	// Permissions are named rights besides tools, such as act-as, from the roles.
	Permissions []string
	OnBehalf    string // the person an agent acts for, "" if none
	// Chain is on whose behalf the subject acts, from the first to the nearest, at most MaxChain, as a
	// trusted proxy or the act claim of an access token says, and as As goes on; nil if none does.
	Chain []string
	// Session is the session that the credential belongs to: the claim sid of an access token, or what a trusted proxy
	// signed as X-Session-ID; "" if it names none. The session of a call is in the Call, as its caller says it.
	Session string
	// SessionUnknown says that the credential may belong to a session which is not known: a call waited and was stored without.
	SessionUnknown bool `json:"-"`
	// Claims are those of the access token, for policies, also where its holder acts as another: at most 64
	// and 8 levels of a token of 16 KiB, without those that identify it. They are nil for other credentials, and where they are
	// not known: a token has more, or a call waited and an older program kept none. Only a call that waits is stored with them, sealed.
	Claims *Claims `json:"-"`
	// Narrowed is what the capability token of a request that is no call shows, nil without one: the
	// principal sees no more, and decides nothing. The token of a call is in the Call.
	Narrowed Narrowing `json:"-"`
	// Workspace is the part of the tenant that the credential belongs to, "" if none.
	// Its secrets take precedence over the tenant's (Agent 5.2).
	Workspace string
	// Token is the access token that the caller came with; nil for other credentials, for a call in the name of
	// another, and for a call that waited. It is stored nowhere.
	Token *CallerToken `json:"-"`
	// Certificate is the client certificate of the connection, verified by its handshake, nil without one; also where another
	// credential decides. What it opened ends with it. It is stored nowhere.
	Certificate *x509.Certificate `json:"-"`
	// Console is the session of a browser that the caller came by, whose end ends what it opened; nil for other credentials. It is
	// stored nowhere.
	Console *ConsoleSession `json:"-"`

	Addr string // remote address without port, for audit and failure limits
	// UserAgent is the program that asks, as it names itself: redacted, without control characters, at
	// most MaxUserAgent bytes; "" if it does not say. It is only recorded.
	UserAgent string
	// Until is when the credential ends; zero means never. Calls already admitted
	// continue, but open streams end.
	Until time.Time
}

// ConsoleSession is the session of a browser. It has the rights of the API key with which it began, as they are now.
type ConsoleSession struct {
	ID     string
	Method string // how it began: key, link
	// Until is when it ends, and IdleUntil when it ends if no request of it comes.
	Until, IdleUntil time.Time
}

// Narrowing is what a capability token shows of the tools that its holder's roles show. It is immutable.
type Narrowing interface {
	// Key names what Shows depends on besides the tool: narrowings of one key show the same.
	Key() string
	// Shows reports whether the token allows calls of the tool: by its id, version and side effects.
	Shows(t *Tool) bool
}

// Shows reports whether the capability token of the principal's request, if it has one, shows calls of a
// version of a tool, "" before it was chosen.
func (p *Principal) Shows(tool, version string, writes bool) bool {
	if p.Narrowed == nil {
		return true
	}
	effects := "reads"
	if writes {
		effects = "writes"
	}
	return p.Narrowed.Shows(&Tool{ID: tool, Version: version, Manifest: &Manifest{ToolID: tool, SideEffects: effects}})
}

// MaxUserAgent bounds Principal.UserAgent in bytes.
const MaxUserAgent = 256

// MaxChain is how many names a chain has at most.
const MaxChain = 16

// Person returns whose history, preferences and feedback the caller's are: the person an
// agent acts for, else the subject itself.
func (p *Principal) Person() string {
	if p.OnBehalf != "" {
		return p.OnBehalf
	}
	return p.Subject
}

// As returns the principal that acts as another subject, for another person, or both; "" is its own. Its rights stay,
// and its token does not: those rights are of another. The chain goes on to say who acts for whom: the new person comes
// first, and who acts as another subject is the nearest that this one acts for. There is none where p acts for no
// one. E3201 if the chain would have more than MaxChain names.
func (p *Principal) As(subject, person string) (*Principal, error) {
	q := *p
	q.Token = nil
	chain := p.Chain
	if len(chain) == 0 && p.OnBehalf != "" {
		chain = []string{p.OnBehalf}
	}
	behind := len(chain) > 0
	if person != "" {
		q.OnBehalf = person
		if behind {
			chain = append([]string{person}, chain...)
		}
	}
	if subject != "" {
		q.Subject = subject
		if behind {
			chain = append(slices.Clip(chain), p.Subject)
		}
	}
	if len(chain) > MaxChain {
		return nil, NewError(PermissionDenied, "the credential acts for a chain of persons and agents that is too long to act for another as well: at most %d are allowed", MaxChain).With("reason", "RBAC_DENIED")
	}
	if behind {
		q.Chain = chain
	}
	return &q, nil
}

// WithoutToken returns the principal for what outlives its call.
func (p *Principal) WithoutToken() *Principal {
	if p == nil || p.Token == nil {
		return p
	}
	q := *p
	q.Token = nil
	return &q
}

// May reports whether the principal holds a named permission.
func (p *Principal) May(permission string) bool {
	for _, q := range p.Permissions {
		if q == permission || q == "*" {
			return true
		}
	}
	return false
}

// Permissions required by faces and domains. Roles grant them.
const (
	PermActAs     = "act-as"          // call as another subject of the tenant
	PermPublish   = "catalog:publish" // register, import, batch-register
	PermLifecycle = "catalog:admin"   // deprecate, block, remove, force
	PermNetwork   = "catalog:network" // publish tools that may reach internal addresses (permissions.network)
	PermFiles     = "catalog:files"   // publish tools that use directories of the server (permissions.filesystem)
	PermContext   = "context:admin"   // read and change agents' contexts for tools
	PermSecrets   = "secrets:use"     // publish tools that reference secrets of the server
	// PermSecretsAdmin covers the secrets of workspaces, of the organisation and of
	// other users.
	PermSecretsAdmin = "secrets:admin"
	PermKeys         = "keys:admin"       // create, list, rotate, revoke API keys
	PermTokens       = "tokens:admin"     // make, revoke capability tokens
	PermInvocations  = "invocations:read" // see the calls of every principal of the tenant
	PermHold         = "audit:hold"       // make and remove legal holds
	PermCancel       = "invocations:cancel"
	PermApprove      = "approvals:decide" // approve and deny the calls of others that wait for a person
	PermServers      = "servers:admin"    // add, change, accept and remove MCP servers, which may run programs on the host
	PermErase        = "audit:erase"      // erase what was recorded of a person
	PermOperate      = "system:operate"   // cache invalidation, reindex, log level
)
