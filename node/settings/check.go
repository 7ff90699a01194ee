package settings

import (
	"context"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/access/policy"
	"github.com/toolkeep/toolkeep/audit/outbox"
	"github.com/toolkeep/toolkeep/config"
	"github.com/toolkeep/toolkeep/discover/remote"
	"github.com/toolkeep/toolkeep/secret"
	"github.com/toolkeep/toolkeep/store/redis"
)

// Check tells what node.New would refuse of what the settings open to tools
// (files.roots, sql.sqlite_roots, sql.socket_dirs, secrets.env, paths of Vault) and of the
// services and keys that they name (egress, search, vault, redis, TOOLKEEP_SEAL_KEY), as
// E3008 with details.errors. It reads the certificates that they name and makes nothing.
// Only Redis is asked, whether it has the keys of the caches.
func Check(ctx context.Context, c *config.Config) error {
	var faults []toolkeep.Fault
	check := func(pointer string, err error) {
		if err != nil {
			faults = append(faults, toolkeep.Fault{Pointer: pointer, Rule: "value", Message: toolkeep.AsError(err).Message})
		}
	}
	_, _, err := Files(c)
	check("/files/roots", err)
	s := SQL(c)
	check("/sql", s.Validate())
	check("/secrets", secret.Config{EnvPrefix: c.Secrets.Env, Dirs: c.SecretDirs()}.Validate())
	if c.Secrets.SealKeys != "" {
		_, err := secret.ParseSealer(c.Secrets.SealKeys)
		check("/secrets/seal_keys", err)
	}
	_, err = c.Egress.Pool()
	check("/egress", err)
	if c.Search.Model != "none" && c.Search.EmbeddingsURL != "" {
		_, err := remote.New(c.Search.Service())
		check("/search/embeddings_url", err)
	}
	_, err = outbox.Read(c.Outbox.SinksFile)
	check("/outbox/sinks_file", err)
	check("/policy/path", checkPolicy(ctx, c))
	check("/http/public_url", c.HTTP.CheckPublic())
	check("/vault", c.Vault.Check(c.Data))
	check("/redis", checkRedis(ctx, c))
	check("/search/vectors_dsn", c.CheckVectors())
	return config.Refusal(faults)
}

// checkRedis is E3008 for a Redis that a node would refuse.
func checkRedis(ctx context.Context, all *config.Config) error {
	c := all.Redis
	switch {
	case c.URL == "":
		return nil
	case c.Password != "": // which cannot be read here
		return redis.Check(ctx, Redis(c))
	}
	return redis.Check(ctx, Redis(c), RedisUses(all)...)
}

// checkPolicy is the error of a policy that cannot be used.
func checkPolicy(ctx context.Context, c *config.Config) error {
	if !c.Access.Attributes() || c.Policy.Path == "" {
		return nil
	}
	_, err := policy.New(ctx, c.Policy.Engine())
	return err
}
