// Package azurekeyvault stands for Vault's seal by the key service of Azure in vaulttest, which is
// unsealed by its own keys. That service's SDK is long to build.
package azurekeyvault

import (
	"context"
	"errors"

	wrapping "github.com/hashicorp/go-kms-wrapping/v2"
)

// The names that Vault's configuration has for this seal.
const (
	EnvAzureKeyVaultWrapperVaultName = "AZUREKEYVAULT_WRAPPER_VAULT_NAME"
	EnvVaultAzureKeyVaultVaultName   = "VAULT_AZUREKEYVAULT_VAULT_NAME"
	EnvAzureKeyVaultWrapperKeyName   = "AZUREKEYVAULT_WRAPPER_KEY_NAME"
	EnvVaultAzureKeyVaultKeyName     = "VAULT_AZUREKEYVAULT_KEY_NAME"
)

// Wrapper refuses every configuration.
type Wrapper struct{ wrapping.Wrapper }

// NewWrapper returns a Wrapper.
func NewWrapper() *Wrapper { return &Wrapper{} }

// SetConfig refuses.
func (*Wrapper) SetConfig(context.Context, ...wrapping.Option) (*wrapping.WrapperConfig, error) {
	return nil, errors.New("the seal by azurekeyvault is not built into vaulttest")
}

// WithDisallowEnvVars changes nothing.
func WithDisallowEnvVars(bool) wrapping.Option { return nil }
