// Package settings is what the settings say to executors and stores, which package config does not
// know, and what of it a node would refuse.
package settings

import (
	"fmt"
	"path/filepath"

	"github.com/toolkeep/toolkeep/config"
	"github.com/toolkeep/toolkeep/datadir"
	"github.com/toolkeep/toolkeep/executor/filetool"
	"github.com/toolkeep/toolkeep/executor/sqltool"
	"github.com/toolkeep/toolkeep/store/redis"
)

// Names of caches in Redis.
const (
	SearchCache = "search"
	ResultCache = "results"
)

// Files is what files.roots says; base is where relative folders lie.
func Files(c *config.Config) (base string, fc filetool.Config, err error) {
	base, err = filepath.Abs(filepath.Join(c.Data, datadir.Files))
	if err != nil {
		return "", fc, fmt.Errorf("the data directory has no absolute path: %w", err)
	}
	fc, err = filetool.ReadConfig(base, c.Files.Roots)
	return base, fc, err
}

// SQL is what the settings under sql say.
func SQL(c *config.Config) sqltool.Config {
	s := c.SQL
	return sqltool.Config{SQLiteRoots: s.SQLiteRoots, SocketDirs: s.SocketDirs, Total: s.MaxConns, PerPool: s.PoolConns,
		Wait: s.Wait, IdleFor: s.IdleTimeout}
}

// Redis is what the settings under redis say.
func Redis(c config.Redis) redis.Config {
	return redis.Config{URL: c.URL, CAFile: c.CAFile, ServerName: c.ServerName, CertFile: c.ClientCert, KeyFile: c.ClientKey,
		Prefix: c.Prefix, Conns: c.MaxConns, Timeout: c.Timeout}
}

// OfResults are the settings that results of tools depend on besides the manifest, for sharedcache.Build. The folders of file
// tools and SQLite are not among them: what comes from there stays in its node.
func OfResults(c *config.Config) any {
	return struct {
		Tools     config.Tools
		Egress    config.Egress
		MaxResult int64
	}{c.Tools, c.Egress, c.Calls.MaxResult}
}

// RedisUses are the names of what this node keeps in Redis.
func RedisUses(c *config.Config) []string {
	uses := []string{SearchCache}
	if c.SharesLimits() {
		uses = append(uses, redis.LimitsName)
	}
	if c.SharesResults() {
		uses = append(uses, ResultCache)
	}
	return uses
}
