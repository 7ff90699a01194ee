package node

import (
	"context"
	"fmt"
	"net/url"

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
	n := &Node{config: c}
	check("/secrets", secret.Config{EnvPrefix: c.Secrets.Env, Dirs: n.secretDirs()}.Validate())
	if c.Secrets.SealKeys != "" {
		_, err := secret.ParseSealer(c.Secrets.SealKeys)
		check("/secrets/seal_keys", err)
	}
	_, err = n.egressConfig()
	check("/egress", err)
	if c.Search.Model != "none" && c.Search.EmbeddingsURL != "" {
		_, err := n.embeddingService(c.Search.EmbeddingsModel, c.Search.EmbeddingsDimensions)
		check("/search/embeddings_url", err)
	}
	check("/http/public_url", checkPublicURL(c.HTTP.PublicURL))
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

func checkPublicURL(text string) error {
	if u, err := url.Parse(text); text == "" || err == nil && (u.Scheme == "https" || u.Scheme == "http") && u.Hostname() != "" && u.RawQuery == "" && u.Fragment == "" && u.User == nil {
		return nil
	}
	return toolkeep.NewError(toolkeep.InvalidManifest, "http.public_url must be an address such as https://tools.example.com, without query or user")
}

func checkVault(c config.Vault, data string) error {
	if !c.Enabled() {
		return nil
	}
	s, err := vault.New(vaultConfig(c, data))
	if err != nil {
		return err
	}
	defer s.Close(context.Background())
	if c.TransitKey != "" {
		_, err = s.Transit(c.TransitMount, c.TransitKey)
	}
	return err
}
