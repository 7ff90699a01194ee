package node

import (
	"context"
	"iter"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/control/secrets"
	"github.com/toolkeep/toolkeep/secret"
	"github.com/toolkeep/toolkeep/secret/tokenexchange"
	"github.com/toolkeep/toolkeep/secret/vault"
	"github.com/toolkeep/toolkeep/telemetry"
)

// secretKeeping is all that has to do with secrets.
type secretKeeping struct {
	local     *secret.Local
	vault     *vault.Store // nil without one
	minter    *tokenexchange.Minter
	rotations *prometheus.CounterVec
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
	n.sealer, err = secrets.OpenSealer(ctx, sc)
	return err
}

// buildSecrets makes the stores of secrets.
func (n *Node) buildSecrets(context.Context) (err error) {
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
	k.minter = tokenexchange.New(tokenexchange.Config{Client: n.client, Clock: n.options.Clock})
	all := secret.Config{EnvPrefix: c.Env, Dirs: n.secretDirs(), Stores: []secret.Store{k.local}, Minter: k.minter, Rotated: count,
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

// observeSecrets adds them to metrics and health. A Vault that is away degrades the
// node: tools without secrets of it go on.
func (n *Node) observeSecrets() error {
	if v := n.keeping.vault; v != nil {
		n.health.Add(telemetry.Component{Name: "secret_store", Check: v.Health})
	}
	return n.metrics.Registry().Register(n.keeping.rotations)
}

// secretsControl is what people decide about secrets.
func (n *Node) secretsControl() *secrets.Secrets {
	return secrets.New(secrets.Config{Store: n.store, Local: n.keeping.local, Resolver: n.secrets, Sealer: n.sealer, Access: n.access,
		Tools: func() iter.Seq[toolkeep.Version] { return n.catalog.Snapshot().All() }, Redact: n.redact, Hook: n.hook,
		Clock: n.options.Clock, Log: n.logger("secret_manager")})
}
