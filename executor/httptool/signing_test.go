package httptool

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/hex"
	"encoding/pem"
	"io"
	"log"
	"math/big"
	"net/http"
	"net/http/httptest"
	"net/url"
	"sort"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/egress"
)

// TestSigningVectors compares signatures with those that AWS publishes: the Signature
// Version 4 test suite and "Signature Calculations for the Authorization Header" of
// Amazon S3.
func TestSigningVectors(t *testing.T) {
	suite := &signer{keyID: "AKIDEXAMPLE", key: "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY", region: "us-east-1", service: "service"}
	s3 := &signer{keyID: "AKIAIOSFODNN7EXAMPLE", key: "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY", region: "us-east-1", service: "s3"}
	suiteTime, s3Time := time.Date(2015, 8, 30, 12, 36, 0, 0, time.UTC), time.Date(2013, 5, 24, 0, 0, 0, 0, time.UTC)
	tests := []struct {
		name        string
		signer      *signer
		at          time.Time
		method, url string
		contentType string
		body        string
		signed      string
		want        string
	}{
		{"get-vanilla", suite, suiteTime, "GET", "https://example.amazonaws.com/", "", "", "host;x-amz-date", "5fa00fa31553b73ebf1942676e86291e8372ff2a2260956d9b8aae1d763fbf31"},
		{"get-vanilla-query-order-key-case", suite, suiteTime, "GET", "https://example.amazonaws.com/?Param2=value2&Param1=value1", "", "", "host;x-amz-date", "b97d918cfa904a5beff61c982a1b6f458b799221646efd99d3219ec94cdf2500"},
		{"get-vanilla-query-unreserved", suite, suiteTime, "GET", "https://example.amazonaws.com/?-._~0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz=-._~0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz", "", "", "host;x-amz-date", "9c3e54bfcdf0b19771a7f523ee5669cdf59bc7cc0884027167c21bb143a40197"},
		{"get-slashes", suite, suiteTime, "GET", "https://example.amazonaws.com//example//", "", "", "host;x-amz-date", "9a624bd73a37c9a373b5312afbebe7a714a789de108f0bdfe846570885f57e84"},
		{"post-vanilla", suite, suiteTime, "POST", "https://example.amazonaws.com/", "", "", "host;x-amz-date", "5da7c1a2acd57cee7505fc6676e4e544621c30862966e37dddb68e92efbe5d6b"},
		{"post-x-www-form-urlencoded", suite, suiteTime, "POST", "https://example.amazonaws.com/", "application/x-www-form-urlencoded", "Param1=value1", "content-type;host;x-amz-date", "ff11897932ad3f4e8b18135d722051e5ac45fc38421b1da7b9d196a0fe09473a"},
		{"S3 GET bucket lifecycle", s3, s3Time, "GET", "https://examplebucket.s3.amazonaws.com/?lifecycle", "", "", "host;x-amz-content-sha256;x-amz-date", "fea454ca298b7da1c68078a5d1bdbfbbe0d65c699e0f91ac7a200a0136783543"},
		{"S3 list objects", s3, s3Time, "GET", "https://examplebucket.s3.amazonaws.com/?max-keys=2&prefix=J", "", "", "host;x-amz-content-sha256;x-amz-date", "34b48302e7b5fa45bde8084f4b7868a86f0a534bc59db6670ed5711ef69dc6f7"},
	}
	for _, tt := range tests {
		u, err := url.Parse(tt.url)
		if err != nil {
			t.Fatal(err)
		}
		req := &http.Request{Method: tt.method, URL: u, Host: u.Host, Header: http.Header{"User-Agent": {"x"}, "Accept": {"y"}}}
		if tt.contentType != "" {
			req.Header.Set("Content-Type", tt.contentType)
		}
		if err := tt.signer.apply(req, []byte(tt.body), tt.at); err != nil {
			t.Fatal(err)
		}
		got := req.Header.Get("Authorization")
		if !strings.Contains(got, "SignedHeaders="+tt.signed+",") || !strings.HasSuffix(got, "Signature="+tt.want) {
			t.Errorf("%s: %s, want %s", tt.name, got, tt.want)
		}
	}
}

// verify checks a received request's signature by the published steps, without the code
// under test.
func verify(r *http.Request, body []byte, key, session string) string {
	auth := r.Header.Get("Authorization")
	fields := map[string]string{}
	for part := range strings.SplitSeq(strings.TrimPrefix(auth, "AWS4-HMAC-SHA256 "), ", ") {
		k, v, _ := strings.Cut(part, "=")
		fields[k] = v
	}
	credential := strings.Split(fields["Credential"], "/")
	if len(credential) != 5 || !strings.HasPrefix(auth, "AWS4-HMAC-SHA256 ") {
		return "no signature"
	}
	encode := func(s string) string { return strings.ReplaceAll(url.QueryEscape(s), "+", "%20") }
	path, query, _ := strings.Cut(r.RequestURI, "?")
	var segments []string
	for _, s := range strings.Split(path, "/") {
		if credential[3] == "s3" {
			s, _ = url.PathUnescape(s)
		}
		segments = append(segments, encode(s))
	}
	var pairs []string
	for p := range strings.SplitSeq(query, "&") {
		if k, v, _ := strings.Cut(p, "="); p != "" {
			k, _ = url.PathUnescape(k)
			v, _ = url.PathUnescape(v)
			pairs = append(pairs, encode(k)+"="+encode(v))
		}
	}
	sort.Strings(pairs)
	canonical := r.Method + "\n" + strings.Join(segments, "/") + "\n" + strings.Join(pairs, "&") + "\n"
	for name := range strings.SplitSeq(fields["SignedHeaders"], ";") {
		v := r.Header.Get(name)
		if name == "host" {
			v = r.Host
		}
		canonical += name + ":" + v + "\n"
	}
	sum := sha256.Sum256(body)
	hash := hex.EncodeToString(sum[:])
	if h := r.Header.Get("X-Amz-Content-Sha256"); h == "UNSIGNED-PAYLOAD" {
		hash = h
	} else if h != "" && h != hash {
		return "wrong hash of the body"
	}
	if session != r.Header.Get("X-Amz-Security-Token") || session != "" && !strings.Contains(fields["SignedHeaders"], "x-amz-security-token") {
		return "wrong session"
	}
	sum = sha256.Sum256([]byte(canonical + "\n" + fields["SignedHeaders"] + "\n" + hash))
	mac := func(k []byte, s string) []byte { h := hmac.New(sha256.New, k); h.Write([]byte(s)); return h.Sum(nil) }
	k := []byte("AWS4" + key)
	for _, s := range credential[1:] {
		k = mac(k, s)
	}
	want := mac(k, "AWS4-HMAC-SHA256\n"+r.Header.Get("X-Amz-Date")+"\n"+strings.Join(credential[1:], "/")+"\n"+hex.EncodeToString(sum[:]))
	if hex.EncodeToString(want) != fields["Signature"] {
		return "wrong signature over\n" + canonical
	}
	return ""
}

func TestSigning(t *testing.T) {
	const key = "a/secret+key"
	var wrong atomic.Pointer[string]
	var leaked atomic.Bool
	other := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization")+r.Header.Get("X-Amz-Date")+r.Header.Get("X-Amz-Security-Token") != "" {
			leaked.Store(true)
		}
		io.WriteString(w, "other")
	})
	base := serve(t, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		why := verify(r, body, key, "tok/en==")
		wrong.Store(&why)
		switch r.URL.Path {
		case "/again":
			http.Redirect(w, r, "/there?x=1", http.StatusTemporaryRedirect)
		case "/away":
			http.Redirect(w, r, other+"/", http.StatusFound)
		}
	})
	e := newExecutor(t)
	for _, service := range []string{"execute-api", "s3"} {
		spec := toolkeep.AuthSpec{Type: "aws_sigv4", Settings: map[string]any{"region": "eu-central-1", "service": service}}
		signed := func(x *toolkeep.Execution) {
			x.Traceparent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
			x.Credentials = []toolkeep.Credential{{Spec: spec, Value: `{"access_key_id":"AKID","secret_access_key":"` + key + `","session_token":"tok/en=="}`}}
		}
		for _, tt := range []struct{ path, args string }{
			{"/plain", `{"body":{"a":1}}`},
			{"/{p}", `{"p":"a b/é+(*)","q":["x y","z&"],"body":"ü"}`},
			{"/it's/{p}", `{"p":"$&,:;=@"}`},
			{"/again", `{"body":{"a":1},"q":["1"]}`},
		} {
			m := manifest(t, base, `{"method":"POST","server":"SERVER","path":"`+tt.path+`","parameters":[{"name":"q","in":"query","explode":true},{"name":"X-Amz-Target","arg":"t","in":"header"}`+
				map[bool]string{true: `,{"name":"p","in":"path"}`}[strings.Contains(tt.path, "{p}")]+`],"body":{"arg":"body","content_type":"application/json"}}`)
			if _, err := execute(t, e, m, tt.args, signed); err != nil {
				t.Errorf("%s: %v", tt.path, err)
			}
			if why := *wrong.Load(); why != "" {
				t.Errorf("%s %s: %s", service, tt.path, why)
			}
		}
		get := manifest(t, base, `{"method":"GET","server":"SERVER","path":"/away"}`, func(m *toolkeep.Manifest) {
			m.Permissions.Network = append(m.Permissions.Network, manifest(t, other, `{}`).Permissions.Network...)
		})
		if out, err := execute(t, e, get, `{}`, signed); err != nil || string(out.Body) != "other" {
			t.Errorf("%v %v", out, err)
		}
		if leaked.Load() {
			t.Error("another origin got the signature")
		}
	}
	for _, secret := range []string{`{}`, `plain`, `{"access_key_id":"a,b","secret_access_key":"x"}`, `{"access_key_id":"a","secret_access_key":"x","session_token":"a\nb"}`} {
		_, err := execute(t, e, manifest(t, base, `{"method":"GET","server":"SERVER","path":"/"}`), `{}`, func(x *toolkeep.Execution) {
			x.Credentials = []toolkeep.Credential{{Spec: toolkeep.AuthSpec{Type: "aws_sigv4"}, Value: secret}}
		})
		if err == nil || err.Code != toolkeep.SecretAccessDenied || !err.NothingSent || strings.Contains(err.Error(), secret) {
			t.Errorf("%s: %v", secret, err)
		}
	}
}

func TestUnsignedPayload(t *testing.T) {
	s := &signer{keyID: "AKID", key: "k", region: "r", service: "x", unsigned: true}
	req := httptest.NewRequest("PUT", "https://example.com/a", nil)
	req.RequestURI = "/a"
	if err := s.apply(req, []byte("body"), time.Unix(0, 0)); err != nil {
		t.Fatal(err)
	}
	if why := verify(req, []byte("another"), "k", ""); why != "" || req.Header.Get("X-Amz-Content-Sha256") != "UNSIGNED-PAYLOAD" {
		t.Errorf("%s %v", why, req.Header)
	}
}

// certificate returns a self-signed certificate with its key, as PEM.
func certificate(t testing.TB, name string) (text string, cert *x509.Certificate) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	tmpl := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}, IsCA: true, BasicConstraintsValid: true}
	der, err := x509.CreateCertificate(rand.Reader, tmpl, tmpl, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	cert, _ = x509.ParseCertificate(der)
	pkcs8, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	pem.Encode(&b, &pem.Block{Type: "CERTIFICATE", Bytes: der})
	pem.Encode(&b, &pem.Block{Type: "PRIVATE KEY", Bytes: pkcs8})
	return b.String(), cert
}

func TestClientCertificate(t *testing.T) {
	pemA, certA := certificate(t, "a")
	pemB, certB := certificate(t, "b")
	pool := x509.NewCertPool()
	pool.AddCert(certA)
	pool.AddCert(certB)
	start := func(auth tls.ClientAuthType, h http.HandlerFunc) *httptest.Server {
		s := httptest.NewUnstartedServer(h)
		s.TLS = &tls.Config{ClientAuth: auth, ClientCAs: pool}
		s.Config.ErrorLog = log.New(io.Discard, "", 0)
		s.StartTLS()
		t.Cleanup(s.Close)
		return s
	}
	name := func(r *http.Request) string {
		if len(r.TLS.PeerCertificates) == 0 {
			return "nobody"
		}
		return r.TLS.PeerCertificates[0].Subject.CommonName
	}
	other := start(tls.RequestClientCert, func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, name(r)) })
	s := start(tls.RequireAndVerifyClientCert, func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/here":
			http.Redirect(w, r, "/", http.StatusFound)
		case "/away":
			http.Redirect(w, r, other.URL, http.StatusFound)
		default:
			io.WriteString(w, name(r))
		}
	})
	roots := x509.NewCertPool()
	roots.AddCert(s.Certificate())
	roots.AddCert(other.Certificate())
	e := New(Config{Egress: egress.PoolConfig{RootCAs: roots}})
	t.Cleanup(e.Close)
	call := func(path, pem string) (string, *toolkeep.Error) {
		m := manifest(t, s.URL, `{"method":"GET","server":"SERVER","path":"`+path+`"}`, func(m *toolkeep.Manifest) {
			m.Auth = specs(t, `[{"type":"mtls"}]`)
			m.Permissions.Network = append(m.Permissions.Network, manifest(t, other.URL, `{}`).Permissions.Network...)
		})
		if faults := e.Check(m); len(faults) > 0 {
			t.Fatal(faults)
		}
		out, err := execute(t, e, m, `{}`, func(x *toolkeep.Execution) {
			if pem != "" {
				x.Credentials = []toolkeep.Credential{{Spec: m.Auth[0], Value: pem}}
			}
		})
		if err != nil {
			return "", err
		}
		return string(out.Body), nil
	}
	for _, tt := range []struct{ path, pem, want string }{
		{"/", pemA, "a"}, {"/", pemB, "b"}, {"/", pemA, "a"}, {"/here", pemB, "b"}, {"/away", pemA, "nobody"},
	} {
		if got, err := call(tt.path, tt.pem); got != tt.want {
			t.Errorf("%s: the server saw %q, want %s (%v)", tt.path, got, tt.want, err)
		}
	}
	if _, err := call("/", ""); err == nil || err.Code == toolkeep.SecretAccessDenied {
		t.Errorf("without a certificate: %v", err)
	}
	for _, secret := range []string{"no PEM", strings.Split(pemA, "-----BEGIN PRIVATE")[0], strings.Split(pemA, "-----BEGIN PRIVATE")[0] + "-----BEGIN PRIVATE" + strings.Split(pemB, "-----BEGIN PRIVATE")[1]} {
		if _, err := call("/", secret); err == nil || err.Code != toolkeep.SecretAccessDenied || !err.NothingSent {
			t.Errorf("a secret that is not a certificate with its key: %v", err)
		}
	}
}

// TestMintedTokens covers the types whose secret was exchanged for an access token
// before the executor sees it.
func TestMintedTokens(t *testing.T) {
	base, last := rawServer(t)
	e := newExecutor(t)
	m := manifest(t, base, `{"method":"POST","server":"SERVER","path":"/","body":{"arg":"body","content_type":"multipart/form-data"}}`)
	for _, kind := range []string{"bearer", "oauth2_client_credentials", "oauth2_refresh", "google_service_account", "azure_ad"} {
		for _, tt := range []struct {
			spec toolkeep.AuthSpec
			want string
		}{
			{toolkeep.AuthSpec{}, "\r\nAuthorization: Bearer t0k/en\r\n"},
			{toolkeep.AuthSpec{Name: "X-Token"}, "\r\nX-Token: Bearer t0k/en\r\n"},
			{toolkeep.AuthSpec{Prefix: "GoogleLogin auth="}, "\r\nAuthorization: GoogleLogin auth=t0k/en\r\n"},
			{toolkeep.AuthSpec{In: "query", Name: "access_token"}, "POST /?access_token=t0k%2Fen HTTP/1.1\r\n"},
			{toolkeep.AuthSpec{In: "cookie", Name: "sid"}, "\r\nCookie: sid=t0k/en\r\n"},
			{toolkeep.AuthSpec{In: "body", Name: "token"}, "Content-Disposition: form-data; name=\"token\"\r\n\r\nt0k/en\r\n"},
		} {
			tt.spec.Type = kind
			_, err := execute(t, e, m, `{"body":{"token":"mine"}}`, func(x *toolkeep.Execution) {
				x.Credentials = []toolkeep.Credential{{Spec: tt.spec, Value: "t0k/en"}}
			})
			if err != nil || !strings.Contains(last(), tt.want) {
				t.Errorf("%s %+v: %v, no %q in\n%s", kind, tt.spec, err, tt.want, last())
			}
			if tt.spec.In == "body" && strings.Contains(last(), "mine") {
				t.Error("the argument went out beside the credential")
			}
		}
	}
	_, err := execute(t, e, m, `{}`, func(x *toolkeep.Execution) {
		x.Credentials = []toolkeep.Credential{{Spec: toolkeep.AuthSpec{Type: "bearer", In: "env", Name: "TOKEN"}, Value: "t"}}
	})
	if err == nil || err.Code != toolkeep.SecretAccessDenied || !err.NothingSent {
		t.Errorf("in env: %v", err)
	}
}
