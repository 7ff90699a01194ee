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
	"regexp"
	"strings"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
)

// addressOf is the server's address of a scheme.
func addressOf(ts *testscript.TestScript, scheme string) string {
	info, err := readServerFile(ts.Getenv("TOOLKEEP_DATA"))
	ts.Check(err)
	if strings.HasPrefix(scheme, "grpc") {
		return scheme + "://" + info.GRPC
	}
	return info.URL // which has the scheme
}

func cmdVia(ts *testscript.TestScript, _ bool, args []string) {
	scheme := ts.Getenv("VIA")
	if len(args) > 0 {
		ts.Setenv("TOOLKEEP_URL", scheme+"://127.0.0.1:1")
		return
	}
	ts.Setenv("TOOLKEEP_URL", addressOf(ts, scheme))
}

func cmdStarted(ts *testscript.TestScript, _ bool, _ []string) {
	for deadline := time.Now().Add(waitLimit); time.Now().Before(deadline); <-time.After(5 * time.Millisecond) {
		if _, err := readServerFile(ts.Getenv("TOOLKEEP_DATA")); err == nil {
			return
		}
	}
	ts.Fatalf("the server did not start")
}

// passing are ids and times, which differ from run to run.
var passing = regexp.MustCompile(`[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[0-9a-f]{4}-[0-9a-f]{12}|\d{4}-\d\d-\d\dT[0-9:.]+Z|"(overhead_us|duration_ms|retrievalTimeMs)": \d+`)

func cmdAlike(ts *testscript.TestScript, _ bool, args []string) {
	if len(args) == 0 {
		ts.Fatalf("usage: alike COMMAND…")
	}
	before := ts.Getenv("TOOLKEEP_URL")
	defer ts.Setenv("TOOLKEEP_URL", before)
	var outcomes [2]string
	for i, scheme := range []string{"http", "grpc"} {
		ts.Setenv("TOOLKEEP_URL", addressOf(ts, scheme))
		how := "exit status 0"
		if err := ts.Exec(args[0], args[1:]...); err != nil {
			how = err.Error()
		}
		outcomes[i] = passing.ReplaceAllString(ts.ReadFile("stdout")+"\n-- stderr\n"+ts.ReadFile("stderr")+"\n-- "+how, "…")
	}
	if outcomes[0] != outcomes[1] {
		ts.Fatalf("over HTTP:\n%s\nover gRPC:\n%s", outcomes[0], outcomes[1])
	}
}

// issue makes a certificate for 127.0.0.1, servers and clients, that by signs;
// without by, an authority's.
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
