package vault

import (
	"crypto"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"math/big"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"testing"
	"time"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/secret/vault/vaulttest"
)

// TestRealEC2 logs in to a real Vault with a machine's document signed by this test's certificate, twice with the
// nonce that the first login kept; another nonce fails.
func TestRealEC2(t *testing.T) {
	s := vaulttest.Start(t)
	signer := newSigner(t)
	const document = `{"instanceId":"i-0123456789abcdef0","imageId":"ami-1","accountId":"123456789012","region":"us-east-1","pendingTime":"2026-01-02T03:04:05Z"}`
	meta := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/latest/api/token":
			w.Header().Set("X-Aws-Ec2-Metadata-Token-Ttl-Seconds", "300")
			fmt.Fprint(w, "session")
		case "/latest/dynamic/instance-identity/pkcs7":
			fmt.Fprint(w, signer.pkcs7(t, document))
		default:
			w.WriteHeader(http.StatusNotFound)
		}
	}))
	defer meta.Close()
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/xml")
		if r.FormValue("Action") == "GetCallerIdentity" {
			fmt.Fprint(w, `<GetCallerIdentityResponse><GetCallerIdentityResult><Arn>arn:aws:iam::123456789012:user/vault</Arn>`+
				`<UserId>AIDAEXAMPLE</UserId><Account>123456789012</Account></GetCallerIdentityResult></GetCallerIdentityResponse>`)
			return
		}
		fmt.Fprint(w, `<DescribeInstancesResponse><reservationSet><item><instancesSet><item><instanceId>i-0123456789abcdef0</instanceId><imageId>ami-1</imageId>`+
			`<instanceState><code>16</code><name>running</name></instanceState></item></instancesSet></item></reservationSet></DescribeInstancesResponse>`)
	}))
	defer api.Close()
	s.Mount("secret", "kv", map[string]string{"version": "2"})
	s.Write("secret/data/acme/x", map[string]any{"data": map[string]any{"k": "v"}})
	s.Policy("reader", `path "secret/data/*" { capabilities = ["read"] }`)
	s.EnableAuth("aws")
	s.Write("auth/aws/config/client", map[string]any{"endpoint": api.URL, "sts_endpoint": api.URL, "sts_region": "us-east-1", "iam_endpoint": api.URL,
		"access_key": "AKIAVAULT", "secret_key": "vaults-own", "max_retries": 0})
	s.Write("auth/aws/config/certificate/test", map[string]any{"aws_public_cert": base64.StdEncoding.EncodeToString(signer.pem), "type": "pkcs7"})
	s.Write("auth/aws/role/shop", map[string]any{"auth_type": "ec2", "bound_ami_id": "ami-1", "token_policies": "reader"})
	onlyThese(t, map[string]string{"AWS_EC2_METADATA_SERVICE_ENDPOINT": meta.URL})
	nonce := filepath.Join(t.TempDir(), "nonce")
	as := func(file string) *Store {
		return open(t, s, "", func(c *Config) {
			c.Auth = Auth{Method: AWSEC2, Role: "shop", NonceFile: file}
			c.Timeout = 10 * time.Second
		})
	}
	want(t, as(nonce), acme, "secret/acme/x#k", "v", "")
	want(t, as(nonce), acme, "secret/acme/x#k", "v", "") // a restart
	want(t, as(nonce+"-of-another"), acme, "secret/acme/x#k", "", toolkeep.SecretAccessDenied)
	signer.broken = true
	want(t, as(nonce), acme, "secret/acme/x#k", "", toolkeep.SecretRetrievalFailed) // Vault answers 500 to it
}

// documents signs documents as AWS does, as PKCS #7 with the content inside.
type documents struct {
	key    *rsa.PrivateKey
	cert   *x509.Certificate
	pem    []byte
	broken bool // signs something else
}

func newSigner(t *testing.T) *documents {
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	c := &x509.Certificate{SerialNumber: big.NewInt(7), Subject: pkix.Name{CommonName: "ec2"}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, c, c, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	d := &documents{key: key, pem: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})}
	if d.cert, err = x509.ParseCertificate(der); err != nil {
		t.Fatal(err)
	}
	return d
}

// pkcs7 is SignedData of RFC 2315 without attributes, as base64.
func (d *documents) pkcs7(t *testing.T, content string) string {
	type contentInfo struct {
		Type    asn1.ObjectIdentifier
		Content asn1.RawValue `asn1:"explicit,tag:0"`
	}
	type issuerAndSerial struct {
		Issuer asn1.RawValue
		Serial *big.Int
	}
	type signerInfo struct {
		Version   int
		Cert      issuerAndSerial
		Digest    pkix.AlgorithmIdentifier
		Signing   pkix.AlgorithmIdentifier
		Signature []byte
	}
	type signedData struct {
		Version int
		Digests []pkix.AlgorithmIdentifier `asn1:"set"`
		Content contentInfo
		Signers []signerInfo `asn1:"set"`
	}
	raw := func(v any) asn1.RawValue {
		b, err := asn1.Marshal(v)
		if err != nil {
			t.Error(err)
		}
		return asn1.RawValue{FullBytes: b}
	}
	inside := func(v any) asn1.RawValue {
		return asn1.RawValue{Class: asn1.ClassContextSpecific, Tag: 0, IsCompound: true, Bytes: raw(v).FullBytes}
	}
	signed := content
	if d.broken {
		signed += " "
	}
	sum := sha256.Sum256([]byte(signed))
	signature, err := rsa.SignPKCS1v15(nil, d.key, crypto.SHA256, sum[:])
	if err != nil {
		t.Error(err)
	}
	sha := pkix.AlgorithmIdentifier{Algorithm: asn1.ObjectIdentifier{2, 16, 840, 1, 101, 3, 4, 2, 1}, Parameters: asn1.NullRawValue}
	one := pkix.AlgorithmIdentifier{Algorithm: asn1.ObjectIdentifier{1, 2, 840, 113549, 1, 1, 1}, Parameters: asn1.NullRawValue}
	b := raw(contentInfo{Type: asn1.ObjectIdentifier{1, 2, 840, 113549, 1, 7, 2}, Content: inside(signedData{
		Version: 1, Digests: []pkix.AlgorithmIdentifier{sha},
		Content: contentInfo{Type: asn1.ObjectIdentifier{1, 2, 840, 113549, 1, 7, 1}, Content: inside([]byte(content))},
		Signers: []signerInfo{{1, issuerAndSerial{asn1.RawValue{FullBytes: d.cert.RawIssuer}, d.cert.SerialNumber}, sha, one, signature}},
	})}).FullBytes
	return base64.StdEncoding.EncodeToString(b)
}
