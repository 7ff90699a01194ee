package node

import (
	"context"
	"path/filepath"
	"time"

	"github.com/toolkeep/toolkeep/config"
	"github.com/toolkeep/toolkeep/secret/vault"
)

// buildVault makes the store of vault:// references, nil where no Vault is configured. It
// asks Vault for nothing: the first reference logs in.
func (n *Node) buildVault(context.Context) (err error) {
	c := n.config.Vault
	if !c.Enabled() {
		return nil
	}
	vc := vaultConfig(c, n.config.Data)
	vc.Log, vc.Now = n.logger("secret_manager"), n.options.Clock
	n.keeping.vault, err = vault.New(vc)
	return err
}

// vaultConfig is what the settings under vault say.
func vaultConfig(c config.Vault, data string) vault.Config {
	return vault.Config{
		Address: c.Address, Namespace: c.Namespace,
		TLS: vault.TLS{CAFile: c.CAFile, ServerName: c.ServerName, CertFile: c.ClientCert, KeyFile: c.ClientKey},
		Auth: vault.Auth{Method: c.Auth, Mount: c.AuthMount, Role: c.Role, Token: c.Token, TokenFile: c.TokenFile,
			SecretID: c.SecretID, SecretIDFile: c.SecretIDFile, Wrapped: c.Wrapped, JWTFile: c.JWTFile,
			ServiceAccount: c.ServiceAccount, Region: c.Region, Resource: c.Resource, ServerID: c.ServerID,
			NonceFile: filepath.Join(data, "vault.nonce")},
		Paths: c.Paths, Prefix: c.Prefix, Mounts: c.Mounts, Timeout: c.Timeout,
	}
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
