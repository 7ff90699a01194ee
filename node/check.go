package node

import (
	"context"
	"fmt"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/config"
	"github.com/toolkeep/toolkeep/secret"
	"github.com/toolkeep/toolkeep/secret/vault"
)

// CheckSettings tells what New would refuse of what the settings open to tools
// (files.roots, sql.sqlite_roots, sql.socket_dirs, secrets.env, paths of Vault) and of the
// services and keys that they name (egress, search, vault, redis, TOOLKEEP_SEAL_KEY), as
// E3008 with details.errors. It reads the certificates that they name, makes nothing and
// connects to nothing.
func CheckSettings(c *config.Config) error {
	var faults []toolkeep.Fault
	check := func(pointer string, err error) {
		if err != nil {
			faults = append(faults, toolkeep.Fault{Pointer: pointer, Rule: "value", Message: toolkeep.AsError(err).Message})
		}
	}
	_, _, err := fileConfig(c)
	check("/files/roots", err)
	s := sqlConfig(c)
	check("/sql", s.Validate())
	check("/secrets", secret.Config{EnvPrefix: c.Secrets.Env, Dirs: c.SecretDirs()}.Validate())
	if c.Secrets.SealKeys != "" {
		_, err := secret.ParseSealer(c.Secrets.SealKeys)
		check("/secrets/seal_keys", err)
	}
	_, err = c.Egress.Pool()
	check("/egress", err)
	if c.Search.Model != "none" && c.Search.EmbeddingsURL != "" {
		_, err := (&Node{config: c}).embeddingService(c.Search.EmbeddingsModel, c.Search.EmbeddingsDimensions)
		check("/search/embeddings_url", err)
	}
	check("/http/public_url", c.HTTP.CheckPublic())
	check("/vault", checkVault(c.Vault, c.Data))
	check("/redis", checkRedis(c.Redis))
	check("/search/vectors_dsn", checkVectors(c))
	if len(faults) == 0 {
		return nil
	}
	first := faults[0].Message
	if len(faults) > 1 {
		first += fmt.Sprintf(" (and %d more)", len(faults)-1)
	}
	return toolkeep.FaultsError(toolkeep.InvalidManifest, "the configuration is refused: "+first, faults)
}

func checkVault(c config.Vault, data string) error {
	if !c.Enabled() {
		return nil
	}
	s, err := vault.New(c.Store(data))
	if err != nil {
		return err
	}
	defer s.Close(context.Background())
	if c.TransitKey != "" {
		_, err = s.Transit(c.TransitMount, c.TransitKey)
	}
	return err
}
