package node

import (
	"context"
	"iter"
	"time"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/access"
	"github.com/toolkeep/toolkeep/control/secrets"
	"github.com/toolkeep/toolkeep/egress"
	"github.com/toolkeep/toolkeep/overlay"
	"github.com/toolkeep/toolkeep/secret"
	"github.com/toolkeep/toolkeep/secret/tokenexchange"
	"github.com/toolkeep/toolkeep/secret/vault"
	"github.com/toolkeep/toolkeep/telemetry"
)

// secretKeeping is all that has to do with secrets.
type secretKeeping struct {
	local  *secret.Local
	vault  *vault.Store // nil without one
	minter *tokenexchange.Minter
}

// buildSealer makes what seals.
func (n *Node) buildSealer(ctx context.Context) (err error) {
	c := n.config
	sc := secrets.SealConfig{Data: c.Data, KeyFile: c.Secrets.SealKey, Keys: c.Secrets.SealKeys, Store: n.store,
		Queued: n.store.Invocations().QueueDepth, Clock: n.options.Clock, Log: n.logger("secret_manager")}
	if v := n.keeping.vault; v != nil && c.Vault.TransitKey != "" {
		if sc.Transit, err = v.Transit(c.Vault.TransitMount, c.Vault.TransitKey); err != nil {
			return err
		}
	}
	if n.sealer, err = secrets.OpenSealer(ctx, sc); err != nil {
		return err
	}
	n.persons.PersonKeys().Use(n.sealer)
	return nil
}

// buildSecrets makes the stores of secrets.
func (n *Node) buildSecrets(context.Context) (err error) {
	c := n.config.Secrets
	k := &n.keeping
	rotated := func(status string) { n.metrics.SecretRotated(status) }
	lookUp := func(ctx context.Context, read func(context.Context) error) error { return n.pipeline.LookUp(ctx, read) }
	k.local = secret.NewLocal(secret.LocalConfig{Store: n.store, Sealer: n.sealer, Clock: n.options.Clock, LookUp: lookUp, Rotated: func(ok bool) {
		if ok {
			rotated(telemetry.Rotated)
		} else {
			rotated(telemetry.NotRotated)
		}
	}})
	k.minter = tokenexchange.New(tokenexchange.Config{Client: n.client, Clock: n.options.Clock})
	all := secret.Config{EnvPrefix: c.Env, Dirs: n.config.SecretDirs(), Stores: []secret.Store{k.local}, Minter: k.minter, Rotated: rotated,
		Clock: n.options.Clock, Log: n.logger("secret_manager")}
	if k.vault != nil {
		all.Stores = append(all.Stores, k.vault)
	}
	if c.LastKnownGood {
		all.KeepLast = n.sealer.Keys() // Vault may be what is away
	}
	n.secrets, err = secret.New(all)
	return err
}

// secretsControl is what people decide about secrets.
func (n *Node) secretsControl() *secrets.Secrets {
	return secrets.New(secrets.Config{Store: n.store, Local: n.keeping.local, Resolver: n.secrets, Sealer: n.sealer, Access: n.access,
		Tools: func() iter.Seq[toolkeep.Version] { return n.catalog.Snapshot().All() }, Redact: n.redact, Hook: n.hook,
		Clock: n.options.Clock, Log: n.logger("secret_manager")})
}

// credential reads a secret of the settings at each use, so that a new one serves at once; nil for "".
func (n *Node) credential(ref string) func(context.Context) (string, error) {
	if ref == "" {
		return nil
	}
	return func(ctx context.Context) (string, error) {
		text, err := n.secrets.Resolve(ctx, access.System(), ref)
		if err != nil {
			return "", err
		}
		n.redact.HoldInLog(text)() // known for a while after
		return text, nil
	}
}

// buildVault makes the store of vault:// references, nil where no Vault is configured. It
// asks Vault for nothing: the first reference logs in.
func (n *Node) buildVault(context.Context) (err error) {
	c := n.config.Vault
	if !c.Enabled() {
		return nil
	}
	vc := c.Store(n.config.Data)
	vc.Log, vc.Now = n.logger("secret_manager"), n.options.Clock
	n.keeping.vault, err = vault.New(vc)
	return err
}

// closeVault revokes what was made in Vault for calls, and the login. A Vault that
// is away delays the end by ten seconds at most; what is left there ends by itself.
func (n *Node) closeVault() {
	if v := n.keeping.vault; v != nil {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		v.Close(ctx)
	}
}

// buildContexts makes what agents add to tools, with the remote service if one is set.
func (n *Node) buildContexts(context.Context) (err error) {
	s := n.config.Context
	c := overlay.Config{Store: n.store, Sealer: n.sealer, Share: n.limits.Share, URL: s.URL, Required: s.Required, Timeout: s.Timeout, Life: s.TTL,
		Clock: n.options.Clock, Log: n.logger("context")}
	// The operator names the service, so it may stand on an inner address; nothing else is
	// reached with this client.
	c.Client, c.Bearer = n.client("", egress.Destination(s.URL)), n.credential(s.Token)
	n.contexts, err = overlay.New(c)
	return err
}
