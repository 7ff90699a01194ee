// Package alicloudkms stands for Vault's seal by the key service of AliCloud in vaulttest, which is
// unsealed by its own keys. That service's SDK is long to build.
package alicloudkms

import (
	"context"
	"errors"

	wrapping "github.com/hashicorp/go-kms-wrapping/v2"
)

// The names that Vault's configuration has for this seal.
const (
	EnvAliCloudKmsWrapperKeyId   = "ALICLOUDKMS_WRAPPER_KEY_ID"
	EnvVaultAliCloudKmsSealKeyId = "VAULT_ALICLOUDKMS_SEAL_KEY_ID"
)

// Wrapper refuses every configuration.
type Wrapper struct{ wrapping.Wrapper }

// NewWrapper returns a Wrapper.
func NewWrapper() *Wrapper { return &Wrapper{} }

// SetConfig refuses.
func (*Wrapper) SetConfig(context.Context, ...wrapping.Option) (*wrapping.WrapperConfig, error) {
	return nil, errors.New("the seal by alicloudkms is not built into vaulttest")
}
