package servers

import (
	"context"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/catalog"
	"github.com/toolkeep/toolkeep/secret"
	"github.com/toolkeep/toolkeep/upstream"
	"github.com/toolkeep/toolkeep/upstream/oauth"
)

// Catalog publishes the servers' tools; *catalog.Catalog is one.
type Catalog interface {
	Snapshot() *catalog.Snapshot
	Versions(p *toolkeep.Principal, toolID string, visible func(*toolkeep.Tool) bool) ([]toolkeep.Version, error)
	PublishChecked(ctx context.Context, p *toolkeep.Principal, manifests []*catalog.Checked, o catalog.PublishOptions) ([]catalog.Published, error)
	SetState(ctx context.Context, p *toolkeep.Principal, toolID, version string, ch catalog.StateChange) (toolkeep.Lifecycle, error)
	SetHolds(ctx context.Context, p *toolkeep.Principal, changes []catalog.HoldChange) error
	SetAbout(ctx context.Context, p *toolkeep.Principal, namespace, text string, from catalog.AboutFrom, shared bool) error
}

// Store keeps the servers' definitions.
type Store interface {
	toolkeep.Applier
	toolkeep.Watcher
	Documents(ctx context.Context, kind string) ([]toolkeep.Document, int64, error)
}

// Pool runs the servers; *upstream.Servers is one.
type Pool interface {
	Set(specs []upstream.Spec)
	Status(p *toolkeep.Principal) []upstream.Status
	Running() []upstream.Running
	Refresh(ctx context.Context, p *toolkeep.Principal, name string) (upstream.Definitions, error)
	Compare(ctx context.Context, p *toolkeep.Principal, name string) (upstream.Definitions, error)
	Recheck(ctx context.Context, tenant, name string, alone bool) (upstream.Definitions, error)
	Restart(p *toolkeep.Principal, name string) error
	Renew(tenant, name string) error
	Logs(p *toolkeep.Principal, name string) ([]byte, error)
	Stop(ctx context.Context) error
}

// Secrets reads references; *secret.Resolver does.
type Secrets interface {
	Fetch(ctx context.Context, p *toolkeep.Principal, ref string) (secret.Value, error)
}

// Logins keeps principals' logins at servers; *oauth.Logins does.
type Logins interface {
	Account(r oauth.Ref) *oauth.Account
	Token(ctx context.Context, r oauth.Ref) (string, error)
	Login(ctx context.Context, r oauth.Ref, resp *http.Response) error
	Logout(ctx context.Context, r oauth.Ref) error
	Remove(ctx context.Context, server, owner string) error
	EndLogins(ctx context.Context, server, owner, url string) error
	Sweep(ctx context.Context) error
	Follow(c toolkeep.Committed)
}

// Config is what Servers asks. Clock and Log have defaults; all else is needed.
type Config struct {
	Catalog Catalog
	Store   Store
	// Pool runs the stored servers. Its OnDefinitions, Accepted and VerifyPinned are
	// DefinitionsRead, AcceptedDefinitions and VerifyPinned. Recheck calls OnDefinitions
	// even if it reads nothing new.
	Pool Pool
	// Probe gives a pool for one server that is looked at before it is stored. Nothing is
	// told of what it reads.
	Probe       func() Pool
	Credentials *Credentials
	Visible     func(p *toolkeep.Principal, t *toolkeep.Tool) bool
	// StdioTenants are the tenants beside the home tenant whose administrators may have
	// programs started; "*" is every tenant.
	StdioTenants []string
	// Addresses are the URLs under which this Toolkeep is reached; "" is none. They are
	// asked for at each import. nil is none.
	Addresses func() []string
	Members   Members          // nil: nodes are not shown
	Clock     func() time.Time // default time.Now
	Log       *slog.Logger     // default none
}

// Servers is the MCP servers behind Toolkeep. It is safe for concurrent use.
type Servers struct {
	c Config

	mu      sync.Mutex
	stored  map[serverID]toolkeep.Document
	pending map[serverID][]string // ids of offered tools that were not accepted yet
	locks   map[serverID]*sync.Mutex
	// offered is what a server offered a tenant last; failed is what could not be compared
	// and is compared again.
	offered map[tenantServer]offering
	renewed map[tenantServer]time.Time // when sessions that were outdated were ended
	agreed  map[tenantServer]agreement
	failed  map[tenantServer]upstream.Definitions
	retry   chan struct{}

	index index

	position toolkeep.FeedPosition

	run  context.Context // from Start to Stop
	stop context.CancelFunc
	done sync.WaitGroup
}

// serverID names a server; the owner "" is all tenants.
type serverID struct{ owner, name string }

// tenantServer is a server as one tenant is shown it.
type tenantServer struct {
	serverID
	tenant string
}

// New makes Servers that knows none until Start.
func New(c Config) *Servers {
	if c.Clock == nil {
		c.Clock = time.Now
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	s := &Servers{c: c, stored: map[serverID]toolkeep.Document{}, pending: map[serverID][]string{}, locks: map[serverID]*sync.Mutex{},
		offered: map[tenantServer]offering{}, renewed: map[tenantServer]time.Time{}, agreed: map[tenantServer]agreement{}, failed: map[tenantServer]upstream.Definitions{}, retry: make(chan struct{}, 1)}
	s.run, s.stop = context.WithCancel(context.Background())
	return s
}

// Start runs the stored servers and follows what is stored. ctx bounds the start alone.
func (s *Servers) Start(ctx context.Context) error {
	docs, seq, err := s.c.Store.Documents(ctx, upstream.DocumentKind)
	if err != nil {
		return err
	}
	s.mu.Lock()
	for _, d := range docs {
		s.stored[serverID{d.Tenant, d.ID}] = d
	}
	s.mu.Unlock()
	s.position.Reach(seq)
	_, unlock := s.read() // what is accepted from now on is newer than the sessions from now on
	unlock()
	s.setPool()
	if err := s.c.Credentials.Logins.Sweep(ctx); err != nil {
		return err
	}
	s.done.Go(func() {
		toolkeep.Follow(s.run, s.c.Store, seq, s.follow, func(err error) {
			s.c.Log.Warn("the feed of MCP servers broke; it is read again", "error", err)
		})
	})
	s.done.Go(s.compareAgain)
	s.done.Go(s.recheck)
	return nil
}

// Stop ends what Start began and waits. It does not stop the pool. It may be called twice.
func (s *Servers) Stop() {
	s.mu.Lock()
	s.stop()
	s.mu.Unlock()
	s.done.Wait()
}

// spawn runs f in a goroutine that Stop waits for, or not at all after Stop.
func (s *Servers) spawn(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.run.Err() == nil {
		s.done.Go(f)
	}
}

// lock waits until no other goroutine compares the server; the result unlocks.
func (s *Servers) lock(id serverID) (unlock func()) {
	s.mu.Lock()
	l := s.locks[id]
	if l == nil {
		l = new(sync.Mutex)
		s.locks[id] = l
	}
	s.mu.Unlock()
	l.Lock()
	return l.Unlock
}
