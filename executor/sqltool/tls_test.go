package sqltool

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/canon"
	"github.com/toolkeep/toolkeep/store/postgres/pgtest"
)

// authority issues certificates for tests.
type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	pem  string
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	a := &authority{}
	a.key, a.cert, a.pem = issue(t, nil, &x509.Certificate{Subject: pkix.Name{CommonName: "test authority"}, IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign})
	return a
}

// pair returns a certificate and its key in PEM.
func (a *authority) pair(t *testing.T, name string) (cert, key string) {
	t.Helper()
	k, _, text := issue(t, a, &x509.Certificate{Subject: pkix.Name{CommonName: name}, DNSNames: []string{"localhost"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}})
	der, err := x509.MarshalPKCS8PrivateKey(k)
	if err != nil {
		t.Fatal(err)
	}
	return text, string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}))
}

func issue(t *testing.T, by *authority, c *x509.Certificate) (*ecdsa.PrivateKey, *x509.Certificate, string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	c.SerialNumber, c.NotBefore, c.NotAfter = big.NewInt(time.Now().UnixNano()), time.Now().Add(-time.Hour), time.Now().Add(time.Hour)
	parent, signer := c, key
	if by != nil {
		parent, signer = by.cert, by.key
	}
	der, err := x509.CreateCertificate(rand.Reader, c, parent, key.Public(), signer)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return key, cert, string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))
}

// TestTLS: PostgreSQL has a certificate and requires client certificates.
func TestTLS(t *testing.T) {
	s := pgtest.Start(t)
	b, admin := postgresBench(t, s, Config{})
	ca, other := newAuthority(t), newAuthority(t)
	cert, key := ca.pair(t, "localhost")
	owner, err := os.Stat(s.Dir)
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{"server.pem": cert, "server.key": key, "ca.pem": ca.pem} {
		path := filepath.Join(s.Dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		chownLike(t, path, owner)
	}
	var hba string
	if err := admin.QueryRow(t.Context(), "SHOW hba_file").Scan(&hba); err != nil {
		t.Fatal(err)
	}
	role := strings.TrimSuffix(b.connection[strings.Index(b.connection, `"user":"`)+8:], `"}`)
	rules := "local all all trust\nhostssl all " + role + " 127.0.0.1/32 scram-sha-256\nhostssl all shown 127.0.0.1/32 cert\nhost all all 127.0.0.1/32 reject\n"
	if err := os.WriteFile(hba, []byte(rules), 0o600); err != nil {
		t.Fatal(err)
	}
	run(t, admin, "CREATE ROLE shown LOGIN", "ALTER SYSTEM SET ssl = on", "ALTER SYSTEM SET ssl_cert_file = '"+s.Dir+"/server.pem'", "ALTER SYSTEM SET ssl_key_file = '"+s.Dir+"/server.key'",
		"ALTER SYSTEM SET ssl_ca_file = '"+s.Dir+"/ca.pem'", "SELECT pg_reload_conf()")
	await(t, "the server speaks TLS", func() bool {
		c, err := pgx.Connect(t.Context(), fmt.Sprintf("host=127.0.0.1 port=%d user=%s password='%s' dbname=postgres sslmode=require", s.Port, role, strings.ReplaceAll(password, `'`, `\'`)))
		if err != nil {
			return false
		}
		c.Close(t.Context())
		return true
	})
	database := strings.Split(b.connection, `"database":"`)[1]
	database = database[:strings.IndexByte(database, '"')]
	ask := func(user, rest string, creds ...toolkeep.Credential) error {
		one := *b
		one.connection = fmt.Sprintf(`{"host":"localhost","port":%d,"database":%q,"user":%q,%s}`, s.Port, database, user, rest)
		one.allow = []toolkeep.HostPort{{Host: "localhost"}}
		one.creds = creds
		out, err := one.call(t.Context(), query("SELECT ssl AS v FROM pg_stat_ssl WHERE pid = pg_backend_pid()"), "{}")
		if err == nil && jsonOf(out["rows"]) != `[{"v":true}]` {
			t.Errorf("%s: %s", rest, jsonOf(out))
		}
		return err
	}
	bearer := toolkeep.Credential{Spec: toolkeep.AuthSpec{Type: "bearer"}, Value: password}
	quote := func(s string) string { return string(canon.AppendString(nil, s)) }
	for _, rest := range []string{`"tls":"verify","ca":` + quote(ca.pem), `"tls":"require"`, `"ca":` + quote(ca.pem) + `,"server_name":"localhost"`} {
		if err := ask(role, rest, bearer); err != nil {
			t.Errorf("%.60s: %v (because of %v)", rest, err, asErr(err).Cause)
		}
	}
	for _, rest := range []string{`"tls":"verify"`, `"tls":"verify","ca":` + quote(other.pem), `"ca":` + quote(ca.pem) + `,"server_name":"elsewhere"`} {
		if e := asErr(ask(role, rest, bearer)); e == nil || e.Code != toolkeep.DBConnectionFailed || e.Details["reason"] != "tls" || !e.NothingSent {
			t.Errorf("%.60s: %v", rest, e)
		}
	}
	for _, wrong := range []toolkeep.Credential{{Spec: bearer.Spec, Value: "wrong-password"}, {Spec: toolkeep.AuthSpec{Type: "azure_ad"}, Value: "expired.token"}} {
		if e := asErr(ask(role, `"tls":"require"`, wrong)); e == nil || e.Code != toolkeep.SecretAccessDenied || !e.NothingSent || strings.Contains(fmt.Sprint(e, e.Cause), wrong.Value) {
			t.Errorf("a wrong password: %v", e)
		}
	}
	if e := asErr(ask(role, `"tls":"off"`, bearer)); e == nil || e.Code != toolkeep.SecretAccessDenied {
		t.Errorf("without TLS where the server wants it: %v", e)
	}
	shown, shownKey := ca.pair(t, "shown")
	mtls := toolkeep.AuthSpec{Type: "mtls"}
	if err := ask("shown", `"ca":`+quote(ca.pem), toolkeep.Credential{Spec: mtls, Value: shown + shownKey}); err != nil {
		t.Errorf("with a certificate: %v (because of %v)", err, asErr(err).Cause)
	}
	stranger, strangerKey := other.pair(t, "shown")
	if ask("shown", `"ca":`+quote(ca.pem), toolkeep.Credential{Spec: mtls, Value: stranger + strangerKey}) == nil {
		t.Error("a stranger's certificate is let in")
	}
	if e := asErr(ask("shown", `"ca":`+quote(ca.pem), toolkeep.Credential{Spec: mtls, Value: shown})); e == nil || e.Code != toolkeep.SecretAccessDenied {
		t.Errorf("a certificate without key: %v", e)
	}
}
