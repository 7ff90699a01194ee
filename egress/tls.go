package egress

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"slices"
	"strings"
)

// IsTLS reports whether a connection failed because of TLS: an untrusted certificate or
// one for another host, an alert, or a server without TLS.
func IsTLS(err error) bool {
	var (
		verify  *tls.CertificateVerificationError
		record  tls.RecordHeaderError
		host    x509.HostnameError
		unknown x509.UnknownAuthorityError
		invalid x509.CertificateInvalidError
	)
	if errors.As(err, &verify) || errors.As(err, &record) ||
		errors.As(err, &host) || errors.As(err, &unknown) || errors.As(err, &invalid) {
		return true
	}
	return saysTLS(err)
}

// saysTLS recognises errors without a type: alerts and other refusals of crypto/tls,
// and net/http's error for a server without TLS.
func saysTLS(err error) bool {
	for err != nil {
		for _, begin := range []string{"tls: ", "remote error: tls: ", "http: server gave HTTP response to HTTPS client"} {
			if strings.HasPrefix(err.Error(), begin) {
				return true
			}
		}
		switch e := err.(type) {
		case interface{ Unwrap() error }:
			err = e.Unwrap()
		case interface{ Unwrap() []error }: // from drivers that try several addresses
			return slices.ContainsFunc(e.Unwrap(), saysTLS)
		default:
			return false
		}
	}
	return false
}
