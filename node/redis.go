package node

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/toolkeep/toolkeep/config"
	"github.com/toolkeep/toolkeep/redact"
	"github.com/toolkeep/toolkeep/store/redis"
)

// buildRedis makes the connections to Redis that all uses of it share, where one is
// configured. A server that is away keeps nothing from starting.
func (n *Node) buildRedis(context.Context) (err error) {
	if n.config.Redis.URL == "" {
		return nil
	}
	c := redisConfig(n.config.Redis)
	c.Name = n.name
	if n.config.Redis.Password != "" {
		c.Password = n.redisPassword
	}
	n.redis, err = redis.New(c)
	return err
}

// redisConfig is what the settings under redis say.
func redisConfig(c config.Redis) redis.Config {
	return redis.Config{URL: c.URL, CAFile: c.CAFile, ServerName: c.ServerName, CertFile: c.ClientCert, KeyFile: c.ClientKey,
		Prefix: c.Prefix, Conns: c.MaxConns, Timeout: c.Timeout}
}

// checkRedis says what is wrong with the settings, of files too.
func checkRedis(c config.Redis) error {
	if c.URL == "" {
		return nil
	}
	client, err := redis.New(redisConfig(c))
	if err != nil {
		return err
	}
	if c.Password == "" { // which nobody can read here
		err = elsewhere(context.Background(), client, c.Timeout)
	}
	return errors.Join(err, client.Close())
}

// searchCache is the name of the cache of searches in Redis.
const searchCache = "search"

// elsewhere refuses a cluster that would answer every use of the cache with a
// redirection. A server that does not answer within the timeout is for later.
func elsewhere(ctx context.Context, client *redis.Client, timeout time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, cmp.Or(timeout, time.Second))
	defer cancel()
	return client.Elsewhere(ctx, searchCache)
}

// redisPassword reads the password at each connection, so that a new one serves at
// once.
func (n *Node) redisPassword(ctx context.Context) (string, error) {
	word, err := n.secrets.Resolve(ctx, System(), n.config.Redis.Password)
	if err != nil {
		return "", err
	}
	n.redact.Hold(redact.AllTenants, word)() // known for a while after
	return word, nil
}

func (n *Node) closeRedis() {
	if n.redis == nil {
		return
	}
	if err := n.redis.Close(); err != nil {
		n.logger("search").Warn("the connections to Redis did not close well", "error", err)
	}
}
