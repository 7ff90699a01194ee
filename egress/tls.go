package egress

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"strings"
)

// IsTLS tells whether a connection failed for TLS: a certificate that is not trusted
// or not for that host, an alert, or a server that does not speak it.
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
	// Alerts and the other refusals of crypto/tls, and net/http's word for a server
	// without TLS, have no types of their own.
	for ; err != nil; err = errors.Unwrap(err) {
		for _, begin := range []string{"tls: ", "remote error: tls: ", "http: server gave HTTP response to HTTPS client"} {
			if strings.HasPrefix(err.Error(), begin) {
				return true
			}
		}
	}
	return false
}
