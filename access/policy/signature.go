package policy

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rsa"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"

	opa "github.com/open-policy-agent/opa/v1/bundle"

	"github.com/toolkeep/toolkeep/access/jwt"
)

// signatureFile has the signature of a policy, as `opa sign` and `opa build --signing-key` write it, and manifestFile is
// signed too. Both lie at the top.
const (
	signatureFile = ".signatures.json"
	manifestFile  = ".manifest"
)

// Limits of a file of keys.
const (
	maxKeyFile = 64 << 10
	maxKeys    = 10
	minRSABits = 2048
)

// CheckKeys returns why a file cannot be that of the keys that verify policies, nil if it can.
func CheckKeys(file string) error {
	_, err := readKeys(file)
	return err
}

// readKeys reads the public keys of a file in PEM. Which algorithm a signature may have follows from the key alone.
func readKeys(file string) ([]*opa.KeyConfig, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if info, err := f.Stat(); err != nil || !info.Mode().IsRegular() {
		return nil, errors.Join(errors.New("it is not a regular file"), err)
	}
	rest, err := io.ReadAll(io.LimitReader(f, maxKeyFile+1))
	if err != nil {
		return nil, err
	}
	if len(rest) > maxKeyFile {
		return nil, fmt.Errorf("it has more than %d KiB", maxKeyFile>>10)
	}
	var keys []*opa.KeyConfig
	for {
		var block *pem.Block
		if block, rest = pem.Decode(rest); block == nil {
			break
		}
		if len(keys) == maxKeys {
			return nil, fmt.Errorf("it has more than %d keys", maxKeys)
		}
		key, err := jwt.PublicKey(block)
		if err != nil {
			return nil, err
		}
		algorithm := algorithmOf(key)
		if algorithm == "" {
			return nil, fmt.Errorf("a key must be of RSA with at least %d bits, of the curves P-256, P-384 or P-521, or Ed25519", minRSABits)
		}
		der, err := x509.MarshalPKIXPublicKey(key)
		if err != nil {
			return nil, err
		}
		text := pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der})
		keys = append(keys, &opa.KeyConfig{Key: string(text), Algorithm: algorithm})
	}
	if len(keys) == 0 {
		return nil, errors.New("it has no public key in PEM (-----BEGIN PUBLIC KEY-----)")
	}
	return keys, nil
}

// algorithmOf is the one algorithm of signatures by a key, "" for a key that cannot be used.
func algorithmOf(key crypto.PublicKey) string {
	switch k := key.(type) {
	case *rsa.PublicKey:
		if k.N.BitLen() >= minRSABits {
			return "RS256"
		}
	case *ecdsa.PublicKey:
		return map[elliptic.Curve]string{elliptic.P256(): "ES256", elliptic.P384(): "ES384", elliptic.P521(): "ES512"}[k.Curve]
	case ed25519.PublicKey:
		return "EdDSA"
	}
	return ""
}

// verify compares the files that were read with what is signed: each of them, and each that the signature names.
func (r *reader) verify() error {
	signature, found := r.others[signatureFile]
	delete(r.others, signatureFile)
	if r.keys == nil {
		if !found {
			return nil
		}
		return errors.New("it is signed, and no key is set that its signature is verified with; name the file of the public key in policy.bundle_key_file (toolkeep policy test: --key)")
	}
	if !found {
		return fmt.Errorf("it is not signed: policy.bundle_key_file is set, and there is no %s at its top", signatureFile)
	}
	var s opa.SignaturesConfig
	if err := json.Unmarshal(signature, &s); err != nil {
		return fmt.Errorf("its %s cannot be read: %w", signatureFile, err)
	}
	signed, err := r.signed(s)
	if err != nil {
		return fmt.Errorf("its signature is not one by a key of policy.bundle_key_file: %w", err)
	}
	for _, name := range slices.Sorted(maps.Keys(r.files)) {
		if err := opa.VerifyBundleFile(name, *bytes.NewBuffer(r.files[name]), signed); err != nil {
			return fmt.Errorf("it is not as it was signed: %w", err)
		}
	}
	for name, raw := range r.others {
		if _, ok := signed[name]; !ok { // it is no part of the policy
			continue
		}
		if err := opa.VerifyBundleFile(name, *bytes.NewBuffer(raw), signed); err != nil {
			return fmt.Errorf("it is not as it was signed: %w", err)
		}
	}
	if len(signed) > 0 {
		return fmt.Errorf("it is not as it was signed: files are missing, or not read: %s", strings.Join(slices.Sorted(maps.Keys(signed)), ", "))
	}
	return nil
}

// signed returns the files that a signature by one of the keys names.
func (r *reader) signed(s opa.SignaturesConfig) (files map[string]opa.FileInfo, err error) {
	const id = "key"
	for _, key := range r.keys {
		files, err = opa.VerifyBundleSignature(s, &opa.VerificationConfig{KeyID: id, PublicKeys: map[string]*opa.KeyConfig{id: key}})
		if err == nil {
			return files, nil
		}
	}
	return nil, err
}
