// Package ocikms stands for Vault's seal by the key service of Oracle in vaulttest, which is
// unsealed by its own keys. That service's SDK is long to build.
package ocikms

import (
	"context"
	"errors"

	wrapping "github.com/hashicorp/go-kms-wrapping/v2"
)

// The names that Vault's configuration has for this seal.
const (
	EnvOciKmsWrapperKeyId                = "OCIKMS_WRAPPER_KEY_ID"
	EnvVaultOciKmsSealKeyId              = "VAULT_OCIKMS_SEAL_KEY_ID"
	EnvOciKmsWrapperCryptoEndpoint       = "OCIKMS_WRAPPER_CRYPTO_ENDPOINT"
	EnvVaultOciKmsSealCryptoEndpoint     = "VAULT_OCIKMS_CRYPTO_ENDPOINT"
	EnvOciKmsWrapperManagementEndpoint   = "OCIKMS_WRAPPER_MANAGEMENT_ENDPOINT"
	EnvVaultOciKmsSealManagementEndpoint = "VAULT_OCIKMS_MANAGEMENT_ENDPOINT"
	KmsConfigKeyId                       = "key_id"
	KmsConfigCryptoEndpoint              = "crypto_endpoint"
	KmsConfigManagementEndpoint          = "management_endpoint"
)

// Wrapper refuses every configuration.
type Wrapper struct{ wrapping.Wrapper }

// NewWrapper returns a Wrapper.
func NewWrapper() *Wrapper { return &Wrapper{} }

// SetConfig refuses.
func (*Wrapper) SetConfig(context.Context, ...wrapping.Option) (*wrapping.WrapperConfig, error) {
	return nil, errors.New("the seal by ocikms is not built into vaulttest")
}
