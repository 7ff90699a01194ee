package node

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/config"
	"github.com/toolkeep/toolkeep/egress"
	"github.com/toolkeep/toolkeep/face/rest"
	"github.com/toolkeep/toolkeep/overlay"
	"github.com/toolkeep/toolkeep/secret"
	"github.com/toolkeep/toolkeep/secret/tokenexchange"
	"github.com/toolkeep/toolkeep/secret/vault"
	"github.com/toolkeep/toolkeep/telemetry"
	"github.com/toolkeep/toolkeep/upstream"
	"github.com/toolkeep/toolkeep/upstream/oauth"
)

// secretKeeping is all that has to do with secrets.
type secretKeeping struct {
	local     *secret.Local
	vault     secret.Store // nil without one
	minter    *tokenexchange.Minter
	rotations *prometheus.CounterVec
}

// sealer seals with Vault's transit engine where that is configured, else with the
// keys of this server, and opens what either sealed.
type sealer struct {
	keys    *secret.Sealer
	transit *vault.Transit // nil without one
}

// byTransit opens what Vault's transit engine sealed.
const byTransit = 2

func (s *sealer) Seal(plain, context []byte) ([]byte, error) {
	if s.transit != nil {
		return s.transit.Seal(plain, context)
	}
	return s.keys.Seal(plain, context)
}

func (s *sealer) Open(sealed, context []byte) ([]byte, error) {
	if s.transit != nil && len(sealed) > 0 && sealed[0] == byTransit {
		return s.transit.Open(sealed, context)
	}
	return s.keys.Open(sealed, context)
}

// Opens implements secret.Opener. Vault is not asked.
func (s *sealer) Opens(sealed []byte) bool {
	if s.transit != nil && len(sealed) > 0 && sealed[0] == byTransit {
		return true
	}
	return s.keys.Opens(sealed)
}

// stale tells whether something would be sealed in another way now.
func (s *sealer) stale(sealed []byte) bool {
	if s.transit != nil {
		return len(sealed) == 0 || sealed[0] != byTransit
	}
	return s.keys.Stale(sealed)
}

// lostName is the file in the data directory by which somebody gives up what was
// sealed with a key that is lost; the start that does so takes it away.
const lostName = "seal.lost"

// buildSealer makes what seals, and refuses the start where the keys of now are not
// those with which the store was sealed. A key file is made only for a store that
// holds nothing sealed.
func (n *Node) buildSealer(ctx context.Context) (err error) {
	k := &n.keeping
	if k.vault, err = n.vaultStore(); err != nil {
		return err
	}
	n.sealer = &sealer{}
	if n.sealer.transit, err = n.vaultSealer(k.vault); err != nil {
		return err
	}
	lost := filepath.Join(n.config.Data, lostName)
	_, err = os.Stat(lost)
	giveUp := err == nil
	check, err := n.sealCheck(ctx)
	if err != nil {
		return err
	}
	made, err := n.readKeys()
	if err != nil {
		return err
	}
	fault, err := n.sealFault(ctx, check, made)
	if err != nil {
		return err
	}
	if fault != nil {
		if _, err := os.Stat(n.sealKey()); made && err == nil {
			return n.buildSealer(ctx) // another node has made the file meanwhile, and sealed with it
		}
		if !giveUp {
			return n.refuseKeys(fault, made, lost)
		}
		n.logger("secret_manager").Warn("what was sealed with a lost key is given up", "file", lost, "error", fault)
		check.Body = nil
	}
	if made {
		if n.sealer.keys, err = secret.OpenSealer(n.sealKey()); err != nil {
			return err
		}
	}
	if check.Body == nil {
		if err := n.putSealCheck(ctx, check.Revision, lost); err != nil {
			return err
		}
	}
	if giveUp {
		return os.Remove(lost)
	}
	return nil
}

// sealCheck reads the item that tells with which keys the store is sealed; without a
// body where there is none.
func (n *Node) sealCheck(ctx context.Context) (toolkeep.Document, error) {
	it, err := n.store.Document(ctx, secret.CheckKind, "", secret.CheckID)
	if errors.Is(err, toolkeep.ErrNotFound) {
		return toolkeep.Document{}, nil
	}
	return it, err
}

// readKeys reads the keys. Where there is no file yet, made is true and the key is one
// that only this process has.
func (n *Node) readKeys() (made bool, err error) {
	if keys := n.config.Secrets.SealKeys; keys != "" {
		n.sealer.keys, err = secret.ParseSealer(keys)
		return false, err
	}
	if _, err := os.Stat(n.sealKey()); errors.Is(err, fs.ErrNotExist) {
		n.sealer.keys, err = secret.NewSealer()
		return true, err
	}
	n.sealer.keys, err = secret.OpenSealer(n.sealKey())
	return false, err
}

// sealFault says why what the store holds does not open with the keys of now; nil where
// it does, where it holds nothing, or where Vault is away, which cannot be told then.
// err is the store's.
func (n *Node) sealFault(ctx context.Context, check toolkeep.Document, made bool) (fault, err error) {
	if check.Body != nil {
		return n.unlessAway(secret.OpenCheck(n.sealer, check.Body)), nil
	}
	if made {
		depth, err := n.store.Invocations().QueueDepth(ctx)
		if err != nil {
			return nil, err
		}
		for _, calls := range depth {
			if calls > 0 {
				return errors.New("calls wait whose arguments are sealed"), nil
			}
		}
	}
	return n.oldFault(ctx)
}

// looked is how many items of a kind are tried in a store without the check.
const looked = 20

// oldFault tries some of what an earlier version has sealed: that none of it opens is
// a fault.
func (n *Node) oldFault(ctx context.Context) (fault, err error) {
	for _, r := range n.resealers() {
		items, _, err := n.store.Documents(ctx, r.kind)
		if err != nil {
			return nil, err
		}
		for _, it := range items[:min(len(items), looked)] {
			_, done, err := r.do(it)
			if done || err == nil && r.kind != upstream.DocumentKind { // most servers hold nothing sealed
				return nil, nil
			}
			var e *toolkeep.Error // what cannot be read for another reason says nothing of keys
			if errors.As(err, &e) && (e.Code == toolkeep.InternalError || e.Code == toolkeep.SecretAccessDenied) {
				fault = err
			}
		}
	}
	return fault, nil
}

// unlessAway drops the error of a Vault that does not answer: the node starts and is
// degraded.
func (n *Node) unlessAway(err error) error {
	if err != nil && n.sealer.transit != nil && toolkeep.AsError(err).Code == toolkeep.SecretRetrievalFailed {
		n.logger("secret_manager").Warn("whether what is sealed can be opened is not known: Vault does not answer", "error", err)
		return nil
	}
	return err
}

func (n *Node) refuseKeys(fault error, made bool, lost string) error {
	where, has := "the key file "+n.sealKey(), "does not have the key"
	switch {
	case n.config.Secrets.SealKeys != "":
		where = "the variable TOOLKEEP_SEAL_KEY"
	case made:
		has = "is not there"
	}
	return toolkeep.NewError(toolkeep.SecretRetrievalFailed,
		"the store holds what was sealed with another key, and %s %s: put the key back that was used before (%s from a backup or its volume, TOOLKEEP_SEAL_KEY, or Vault's transit key), or, if it is lost, give up all that is sealed (secrets, logins, contexts, waiting calls) by making the empty file %s, and start again",
		where, has, filepath.Base(n.sealKey()), lost).Because(fault)
}

// putSealCheck seals the check with the keys of now. Of nodes that start at once the
// first makes it, and the others must be able to open it.
func (n *Node) putSealCheck(ctx context.Context, revision int64, lost string) error {
	it, err := secret.NewCheck(n.sealer)
	if err != nil { // only Vault fails; a later start makes it
		n.logger("secret_manager").Warn("nothing can be sealed now", "error", err)
		return nil
	}
	it.UpdatedBy = System().Subject
	err = n.store.Apply(ctx, toolkeep.PutDocument{Document: it, Expect: revision})
	if !errors.Is(err, toolkeep.ErrStale) {
		return err
	}
	if it, err = n.sealCheck(ctx); err != nil {
		return err
	}
	fault, err := n.sealFault(ctx, it, false)
	if fault != nil {
		return n.refuseKeys(fault, false, lost)
	}
	return err
}

// resealCheck seals the check anew, after all else and if that could be, so that it
// needs the old key as long as anything does.
func (n *Node) resealCheck(ctx context.Context) error {
	for {
		it, err := n.sealCheck(ctx)
		if err != nil {
			return err
		}
		if sealed, err := secret.Checked(it.Body); it.Body != nil && err == nil && !n.sealer.stale(sealed) {
			return nil
		}
		fresh, err := secret.NewCheck(n.sealer)
		if err != nil {
			return err
		}
		fresh.UpdatedBy = System().Subject
		if err = n.store.Apply(ctx, toolkeep.PutDocument{Document: fresh, Expect: it.Revision}); !errors.Is(err, toolkeep.ErrStale) {
			return err
		}
	}
}

// CheckSeal tells whether a server with these settings could open a store whose check
// (kind secret.CheckKind) has this body. known is false where only Vault could tell.
// It makes no key file. E3403, E3999.
func CheckSeal(c *config.Config, body []byte) (known bool, err error) {
	sealed, err := secret.Checked(body)
	if err != nil || sealed[0] == byTransit {
		return err != nil, err
	}
	n := &Node{config: c, sealer: &sealer{}}
	made, err := n.readKeys()
	if err != nil {
		return true, err
	}
	if fault := secret.OpenCheck(n.sealer, body); fault != nil {
		return true, n.refuseKeys(fault, made, filepath.Join(c.Data, lostName))
	}
	return true, nil
}

// buildSecrets makes the stores of secrets.
func (n *Node) buildSecrets() (err error) {
	c := n.config.Secrets
	k := &n.keeping
	k.rotations = prometheus.NewCounterVec(prometheus.CounterOpts{Name: "tool_secret_rotation_total",
		Help: "Secrets that took the place of others: success when stored, failure when they could not be, picked_up when a call saw another version than the one before it."}, []string{"status"})
	for _, status := range []string{"success", "failure", "picked_up"} {
		k.rotations.WithLabelValues(status)
	}
	count := func(status string) { k.rotations.WithLabelValues(status).Inc() }
	k.local = secret.NewLocal(secret.LocalConfig{Store: n.store, Sealer: n.sealer, Clock: n.options.Clock, Rotated: func(ok bool) {
		if ok {
			count("success")
		} else {
			count("failure")
		}
	}})
	k.minter = tokenexchange.New(tokenexchange.Config{Client: n.mintClient, Clock: n.options.Clock})
	all := secret.Config{EnvPrefix: c.Env, Dirs: n.secretDirs(), Stores: []secret.Store{k.local}, Minter: k.minter, Rotated: count,
		Clock: n.options.Clock, Log: n.logger("secret_manager")}
	if k.vault != nil {
		all.Stores = append(all.Stores, k.vault)
	}
	if c.LastKnownGood {
		all.KeepLast = n.sealer.keys // Vault may be what is away
	}
	n.secrets, err = secret.New(all)
	return err
}

// mintClient reaches token endpoints as tools reach their servers.
func (n *Node) mintClient(tenant string, network []toolkeep.HostPort) *http.Client {
	return &http.Client{Transport: n.servers.pool.Transport(tenant, egress.NewAllowList(network)),
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
}

// observeSecrets adds them to metrics and health. A Vault that is away degrades the
// node: tools without secrets of it go on.
func (n *Node) observeSecrets() error {
	if v, ok := n.keeping.vault.(*vault.Store); ok {
		n.health.Add(telemetry.Component{Name: "secret_store", Check: v.Health})
	}
	return n.metrics.Registry().Register(n.keeping.rotations)
}

// startSecrets follows changes of stored secrets until run ends.
func (n *Node) startSecrets(ctx, run context.Context) error {
	after, err := n.keeping.local.Start(ctx)
	if err != nil {
		return err
	}
	n.done.Go(func() {
		n.watch(run, after, n.keeping.local.Follow, func(err error) {
			n.logger("secret_manager").Warn("the feed of secrets broke; it is taken up again", "error", err)
		})
	})
	return nil
}

func (n *Node) stopSecrets() {
	if n.keeping.minter != nil {
		n.keeping.minter.Close()
	}
	closeVault(n.keeping.vault)
}

// secretsAdmin shows secrets to people. It implements rest.Secrets.
type secretsAdmin struct{ n *Node }

func (s secretsAdmin) ListSecrets(ctx context.Context, p *toolkeep.Principal) ([]rest.SecretInfo, error) {
	list, err := s.n.keeping.local.List(ctx, p)
	if err != nil {
		return nil, err
	}
	serve := s.n.serving(p)
	list = slices.DeleteFunc(list, func(one secret.Info) bool { return one.Scope != secret.User && !serve(one.Ref()) })
	uses := s.n.usesOf(p, list)
	out := make([]rest.SecretInfo, len(list))
	for i, one := range list {
		out[i] = secretInfo(one)
		out[i].Tools = uses[one.Ref()]
	}
	return out, nil
}

// serving tells which secrets of its workspace and organisation the principal is told
// of: with secrets:admin or secrets:use, which publishes tools that name them, all, else
// those that a tool names which it may call. A key with a narrow scope, or a role that
// calls nothing, does not learn what else there is.
func (n *Node) serving(p *toolkeep.Principal) func(ref string) bool {
	if p.May(toolkeep.PermSecretsAdmin) || p.May(toolkeep.PermSecrets) {
		return func(string) bool { return true }
	}
	named := map[string]bool{}
	for v := range n.catalog.Snapshot().All() {
		m := v.Tool.Manifest
		if len(m.Auth) == 0 || v.Life.State == toolkeep.Removed || !n.access.Visible(p, v.Tool) || !n.access.Authorise(p, v.Tool, &toolkeep.Call{}).Allowed {
			continue
		}
		for _, spec := range m.Auth {
			for _, s := range secret.Entries(spec) {
				named[s.Secret] = true
			}
		}
		if m.Permissions != nil { // what agents' contexts may put in place of another
			for _, ref := range m.Permissions.Credentials {
				named[ref] = true
			}
		}
	}
	return func(ref string) bool { return named[ref] }
}

// usesOf gives the tools that the principal sees and that name one of the secrets.
func (n *Node) usesOf(p *toolkeep.Principal, list []secret.Info) map[string][]string {
	uses := map[string][]string{}
	for _, one := range list {
		uses[one.Ref()] = []string{}
	}
	for v := range n.catalog.Snapshot().All() {
		if len(v.Tool.Manifest.Auth) == 0 || v.Life.State == toolkeep.Removed || !n.access.Visible(p, v.Tool) {
			continue
		}
		for _, spec := range v.Tool.Manifest.Auth {
			for _, s := range secret.Entries(spec) {
				if tools, known := uses[s.Secret]; known && !slices.Contains(tools, v.Tool.ID) {
					uses[s.Secret] = append(tools, v.Tool.ID)
				}
			}
		}
	}
	for _, tools := range uses {
		slices.Sort(tools)
	}
	return uses
}

func secretInfo(i secret.Info) rest.SecretInfo {
	out := rest.SecretInfo{Name: i.Name, Reference: i.Ref(), Scope: string(i.Scope), Version: i.Version, UpdatedAt: i.SetAt, UpdatedBy: i.SetBy, State: i.State, Tools: []string{}}
	switch i.Scope {
	case secret.User:
		out.User = i.Owner
	case secret.Workspace:
		out.Workspace = i.Owner
	}
	if !i.Expires.IsZero() {
		out.ExpiresAt = &i.Expires
	}
	return out
}

func where(name string, w rest.SecretWhere) (secret.Where, error) {
	out := secret.Where{Name: name, Scope: secret.Scope(w.Scope)}
	if w.User != "" && w.Workspace != "" || w.User != "" && w.Scope != "" && out.Scope != secret.User || w.Workspace != "" && out.Scope != secret.Workspace {
		return out, toolkeep.NewError(toolkeep.InvalidParameters, "user goes with the scope user, and workspace with the scope workspace")
	}
	out.Owner = w.User + w.Workspace
	return out, nil
}

func (s secretsAdmin) PutSecret(ctx context.Context, p *toolkeep.Principal, name string, w rest.SecretWhere, value string, expires time.Time) (rest.SecretInfo, error) {
	defer s.n.redact.HoldInLog(secret.Parts("", value)...)()
	at, err := where(name, w)
	if err != nil {
		return rest.SecretInfo{}, err
	}
	plain := []byte(value)
	defer clear(plain)
	info, err := s.n.keeping.local.Set(ctx, p, secret.Put{Where: at, Value: plain, Expires: expires})
	if err != nil {
		return rest.SecretInfo{}, err
	}
	out := secretInfo(info)
	out.Tools = s.n.usesOf(p, []secret.Info{info})[info.Ref()]
	return out, nil
}

func (s secretsAdmin) DeleteSecret(ctx context.Context, p *toolkeep.Principal, name string, w rest.SecretWhere) error {
	at, err := where(name, w)
	if err != nil {
		return err
	}
	return s.n.keeping.local.Delete(ctx, p, at)
}

// TestSecret reads a secret as a call would, and tells all but its value.
func (s secretsAdmin) TestSecret(ctx context.Context, p *toolkeep.Principal, ref string, as rest.SecretWhere) (rest.SecretState, error) {
	if !strings.Contains(ref, "://") {
		ref = "secret://" + ref
	}
	admin := p.May(toolkeep.PermSecretsAdmin)
	if (as.User != "" || as.Workspace != "") && !admin {
		return rest.SecretState{}, toolkeep.NewError(toolkeep.PermissionDenied, "to test as another user or workspace you need the permission %s", toolkeep.PermSecretsAdmin)
	}
	if !strings.HasPrefix(ref, "secret://") && !admin && !p.May(toolkeep.PermSecrets) {
		return rest.SecretState{}, toolkeep.NewError(toolkeep.PermissionDenied, "to test what lies outside of the store of secrets you need the permission %s or %s", toolkeep.PermSecrets, toolkeep.PermSecretsAdmin)
	}
	who := *p
	if as.User != "" {
		who.Subject, who.OnBehalf = as.User, ""
	}
	if as.Workspace != "" {
		who.Workspace = as.Workspace
	}
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second) // ends what a store makes for the test
	defer cancel()
	out := rest.SecretState{Reference: ref}
	v, err := s.n.secrets.Fetch(ctx, &who, ref)
	if broad := v.Scope == secret.Workspace || v.Scope == secret.Organisation; err == nil && broad && strings.HasPrefix(ref, "secret://") && !s.n.serving(p)(ref) {
		v.Wipe()
		out.State, out.Store, out.Code = secret.Missing, v.Store, string(toolkeep.SecretNotFound)
		out.Reason = "there is no such secret that a tool names which you may call"
		return out, nil
	}
	if err == nil {
		defer s.n.redact.HoldInLog(secret.Parts("basic", v.Text())...)()
		defer v.Wipe()
		out.State, out.Scope, out.Store, out.Version = secret.Ready, string(v.Scope), v.Store, v.Version
		out.Stale = !v.KeptSince.IsZero()
		if !v.Expires.IsZero() {
			out.ExpiresAt = &v.Expires
		}
		return out, nil
	}
	e := toolkeep.AsError(err)
	if e.Code == toolkeep.SecretRetrievalFailed || e.Code == toolkeep.Cancelled {
		return rest.SecretState{}, e
	}
	out.State, out.Code, out.Reason = secret.Missing, string(e.Code), s.n.redact.For(p).Clean(e.Message)
	out.Store, _, _ = strings.Cut(ref, "://")
	if st, err := s.n.secrets.Look(ctx, &who, ref); err == nil && st.State == secret.Expired {
		out.State, out.Scope, out.Store, out.Version = st.State, string(st.Scope), st.Store, st.Version
		out.ExpiresAt = &st.Expires
	}
	return out, nil
}

// ToolAuth tells how a tool stands with its secrets for the principal, nil where it
// needs none. Whose secret it would be, other than the principal's own, is for whoever
// may call the tool or handle secrets.
func (s secretsAdmin) ToolAuth(ctx context.Context, p *toolkeep.Principal, t *toolkeep.Tool, ask bool) *secret.Auth {
	m := t.Manifest
	if len(m.Auth) == 0 {
		return nil
	}
	if ask {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, 500*time.Millisecond)
		defer cancel()
	}
	a, needed := s.n.secrets.Auth(ctx, p, m, ask)
	if !needed {
		return nil
	}
	if a.Scope != secret.User && !p.May(toolkeep.PermSecretsAdmin) && !p.May(toolkeep.PermSecrets) && !s.n.access.Authorise(p, t, &toolkeep.Call{}).Allowed {
		a.Scope, a.Store, a.Expires = "", "", time.Time{}
	}
	return &a
}

// appendToolAuth is ToolAuth for lists of MCP: nothing is waited for.
func (n *Node) appendToolAuth(dst []byte, p *toolkeep.Principal, t *toolkeep.Tool) []byte {
	a := secretsAdmin{n}.ToolAuth(context.Background(), p, t, false)
	if a == nil {
		return dst
	}
	raw, err := json.Marshal(a)
	if err != nil {
		return dst
	}
	return append(dst, raw...)
}

// RotateSealKey makes a new key, unless fresh is false, and seals all that is stored
// under the newest one. Everything can be read at every moment, also where it ends
// half way: the old keys stay. What cannot be sealed anew is told and left.
func (s secretsAdmin) RotateSealKey(ctx context.Context, p *toolkeep.Principal, fresh bool) (rest.Resealed, error) {
	var out rest.Resealed
	if p.Tenant != System().Tenant || !p.May(toolkeep.PermSecretsAdmin) {
		return out, toolkeep.NewError(toolkeep.PermissionDenied, "the sealing key serves all tenants; administrators of the tenant %s (permission %s) rotate it", System().Tenant, toolkeep.PermSecretsAdmin)
	}
	n := s.n
	if fresh {
		if n.sealer.transit != nil {
			return out, toolkeep.NewError(toolkeep.InvalidParameters, "Vault's transit engine seals here: rotate its key with `vault write -f transit/keys/NAME/rotate`")
		}
		if _, err := n.sealer.keys.AddKey(); err != nil {
			return out, err
		}
	}
	out.Key, out.Keys = n.sealer.keys.Newest(), n.sealer.keys.Keys()
	if n.sealer.transit != nil {
		out.Key = "transit/" + n.config.Vault.TransitKey
	}
	ctx = context.WithoutCancel(ctx) // who asked may go; what was begun is finished
	for _, r := range n.resealers() {
		if err := n.resealAll(ctx, r, &out); err != nil {
			return out, err
		}
	}
	if out.Failed > 0 { // something still needs an old key
		n.logger("secret_manager").Warn("an old sealing key is still needed", "failed", out.Failed)
	} else if err := n.resealCheck(ctx); err != nil {
		return out, toolkeep.NewError(toolkeep.RecordUnavailable, "the store cannot be written now; what was sealed anew stays so, rotate again without a new key").Because(err)
	}
	n.logger("secret_manager").Info("what is stored was sealed anew", "key", out.Key, "resealed", out.Resealed, "failed", out.Failed, "by", p.Subject)
	return out, nil
}

// resealer seals the items of one kind anew.
type resealer struct {
	kind string
	do   func(it toolkeep.Document) (body []byte, done bool, err error)
}

// resealers are all kinds of items that hold something sealed, but logins under way,
// which end by themselves within minutes.
func (n *Node) resealers() []resealer {
	return []resealer{
		{secret.DocumentKind, func(it toolkeep.Document) ([]byte, bool, error) { return secret.Reseal(n.sealer, n.sealer.stale, it) }},
		{overlay.DocumentKind, func(it toolkeep.Document) ([]byte, bool, error) {
			return overlay.Reseal(n.sealer, n.sealer.stale, it)
		}},
		{oauth.TokenKind, func(it toolkeep.Document) ([]byte, bool, error) {
			return oauth.Reseal(n.sealer, n.sealer.stale, it, n.now())
		}},
		{upstream.DocumentKind, n.resealServer},
	}
}

// resealTries bounds how often one item is read again that others change.
const resealTries = 10

func (n *Node) resealAll(ctx context.Context, r resealer, out *rest.Resealed) error {
	items, _, err := n.store.Documents(ctx, r.kind)
	if err != nil {
		return toolkeep.NewError(toolkeep.RecordUnavailable, "the store cannot be read now; what was sealed anew stays so, rotate again without a new key").Because(err)
	}
	for _, it := range items {
		switch done, err := n.resealOne(ctx, r, it); {
		case err != nil:
			out.Failed++
			n.logger("secret_manager").Error("an item cannot be sealed anew and stays as it is", "kind", r.kind, "tenant", it.Tenant, "error", err)
		case done:
			out.Resealed++
			n.hook("resealed")
		default:
			out.Unchanged++
		}
	}
	return nil
}

func (n *Node) resealOne(ctx context.Context, r resealer, it toolkeep.Document) (bool, error) {
	for try := 0; ; try++ {
		body, done, err := r.do(it)
		if !errors.Is(err, oauth.ErrRenewing) {
			if err != nil || !done {
				return false, err
			}
			it.Body = body
			err = n.store.Apply(ctx, toolkeep.PutDocument{Document: it, Expect: it.Revision})
			if err == nil {
				return true, nil
			}
			if !errors.Is(err, toolkeep.ErrStale) {
				return false, err
			}
		}
		if try == resealTries {
			return false, errors.New("others keep changing it")
		}
		select {
		case <-time.After(time.Duration(try) * 100 * time.Millisecond):
		case <-ctx.Done():
			return false, ctx.Err()
		}
		if it, err = n.store.Document(ctx, r.kind, it.Tenant, it.ID); errors.Is(err, toolkeep.ErrNotFound) {
			return false, nil
		} else if err != nil {
			return false, err
		}
	}
}

// resealServer seals the literal values of a server's definition anew. Its sessions
// begin anew with it, as with every change of a definition.
func (n *Node) resealServer(it toolkeep.Document) ([]byte, bool, error) {
	spec, err := upstream.ParseSpec(it.ID, it.Tenant, it.Body)
	if err != nil {
		return nil, false, err
	}
	changed := false
	again := func(v string) (string, error) {
		for _, scheme := range []string{sealedScheme, keptScheme} {
			text, ok := strings.CutPrefix(v, scheme)
			if !ok {
				continue
			}
			raw, err := base64.RawURLEncoding.DecodeString(text)
			if err != nil || !n.sealer.stale(raw) {
				return v, err
			}
			plain, err := n.sealer.Open(raw, sealedValue)
			if err != nil {
				return v, err
			}
			defer clear(plain)
			if raw, err = n.sealer.Seal(plain, sealedValue); err != nil {
				return v, err
			}
			changed = true
			return scheme + base64.RawURLEncoding.EncodeToString(raw), nil
		}
		return v, nil
	}
	for _, values := range []map[string]string{spec.Env, spec.Headers} {
		for name, v := range values {
			if values[name], err = again(v); err != nil {
				return nil, false, err
			}
		}
	}
	if spec.OAuth != nil {
		login := *spec.OAuth
		if login.ClientSecret, err = again(login.ClientSecret); err != nil {
			return nil, false, err
		}
		spec.OAuth = &login
	}
	if !changed {
		return nil, false, nil
	}
	return spec.Body(), true, nil
}

var _ rest.Secrets = secretsAdmin{}
