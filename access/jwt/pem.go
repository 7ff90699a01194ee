package jwt

import (
	"crypto"
	"crypto/x509"
	"encoding/pem"
	"fmt"
)

// PublicKey reads a block of PEM: a public key, or that of a certificate. Other blocks, above all private keys, are an error.
func PublicKey(b *pem.Block) (crypto.PublicKey, error) {
	switch b.Type {
	case "PUBLIC KEY":
		return x509.ParsePKIXPublicKey(b.Bytes)
	case "RSA PUBLIC KEY":
		return x509.ParsePKCS1PublicKey(b.Bytes)
	case "CERTIFICATE":
		c, err := x509.ParseCertificate(b.Bytes)
		if err != nil {
			return nil, err
		}
		return c.PublicKey, nil
	}
	return nil, fmt.Errorf("a PEM block is %.40q; only public keys and certificates belong here: write the public key alone there (openssl pkey -in key.pem -pubout)", b.Type)
}
