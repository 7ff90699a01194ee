package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
	"github.com/toolkeep/toolkeep/datadir"
)

// cmdRemote sets TOOLKEEP_URL to the server's address, or to one where nothing listens.
func cmdRemote(ts *testscript.TestScript, _ bool, args []string) {
	if len(args) > 0 {
		ts.Setenv("TOOLKEEP_URL", "http://127.0.0.1:1")
		return
	}
	info, err := datadir.ReadServerFile(ts.Getenv("TOOLKEEP_DATA"))
	ts.Check(err)
	ts.Setenv("TOOLKEEP_URL", info.URL)
}

func cmdStarted(ts *testscript.TestScript, _ bool, _ []string) {
	for deadline := time.Now().Add(waitLimit); time.Now().Before(deadline); <-time.After(5 * time.Millisecond) {
		if _, err := datadir.ReadServerFile(ts.Getenv("TOOLKEEP_DATA")); err == nil {
			return
		}
	}
	ts.Fatalf("the server did not start")
}

// issue makes a certificate for 127.0.0.1, for servers and clients, signed by by; without by, a CA certificate.
func issue(ts *testscript.TestScript, name string, by *x509.Certificate, byKey *ecdsa.PrivateKey) (*x509.Certificate, *ecdsa.PrivateKey) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	ts.Check(err)
	c := &x509.Certificate{SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: name},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(60 * 24 * time.Hour), BasicConstraintsValid: true}
	if by == nil {
		c.IsCA, c.KeyUsage, by, byKey = true, x509.KeyUsageCertSign, c, key
	} else {
		c.IPAddresses = []net.IP{net.IPv4(127, 0, 0, 1)}
		c.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}
	}
	der, err := x509.CreateCertificate(rand.Reader, c, by, key.Public(), byKey)
	ts.Check(err)
	cert, err := x509.ParseCertificate(der)
	ts.Check(err)
	private, err := x509.MarshalPKCS8PrivateKey(key)
	ts.Check(err)
	write := func(file, kind string, der []byte) {
		ts.Check(os.WriteFile(ts.MkAbs(file), pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600))
	}
	write(name+".pem", "CERTIFICATE", der)
	write(name+".key", "PRIVATE KEY", private)
	return cert, key
}

func cmdCertificates(ts *testscript.TestScript, _ bool, _ []string) {
	ca, key := issue(ts, "ca", nil, nil)
	issue(ts, "server", ca, key)
	issue(ts, "client", ca, key)
	foreign, foreignKey := issue(ts, "foreign", nil, nil)
	issue(ts, "stranger", foreign, foreignKey)
}
