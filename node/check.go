package node

import (
	"context"
	"fmt"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/config"
	"github.com/toolkeep/toolkeep/secret/vault"
)

// CheckSettings tells what New would refuse of the folders and paths that the
// settings open to tools: files.roots, sql.sqlite_roots, sql.socket_dirs and those
// of Vault, as E3008 with details.errors. It reads the certificates that vault
// and redis name, makes nothing and connects to nothing.
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
