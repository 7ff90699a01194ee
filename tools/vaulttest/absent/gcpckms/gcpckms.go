// Package gcpckms stands for Vault's seal by the key service of Google Cloud in vaulttest, which is
// unsealed by its own keys. That service's SDK is long to build.
package gcpckms

import (
	"context"
	"errors"

	wrapping "github.com/hashicorp/go-kms-wrapping/v2"
)

// The names that Vault's configuration has for this seal.
const (
	EnvGcpCkmsWrapperCredsPath   = "GOOGLE_CREDENTIALS"
	EnvGcpCkmsWrapperProject     = "GOOGLE_PROJECT"
	EnvGcpCkmsWrapperLocation    = "GOOGLE_REGION"
	EnvGcpCkmsWrapperKeyRing     = "GCPCKMS_WRAPPER_KEY_RING"
	EnvVaultGcpCkmsSealKeyRing   = "VAULT_GCPCKMS_SEAL_KEY_RING"
	EnvGcpCkmsWrapperCryptoKey   = "GCPCKMS_WRAPPER_CRYPTO_KEY"
	EnvVaultGcpCkmsSealCryptoKey = "VAULT_GCPCKMS_SEAL_CRYPTO_KEY"
)

// Wrapper refuses every configuration.
type Wrapper struct{ wrapping.Wrapper }

// NewWrapper returns a Wrapper.
func NewWrapper() *Wrapper { return &Wrapper{} }

// SetConfig refuses.
func (*Wrapper) SetConfig(context.Context, ...wrapping.Option) (*wrapping.WrapperConfig, error) {
	return nil, errors.New("the seal by gcpckms is not built into vaulttest")
}
