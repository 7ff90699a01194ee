package vault

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	v4 "github.com/aws/aws-sdk-go-v2/aws/signer/v4"
	"github.com/go-json-experiment/json"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/secret/vault/vaulttest"
)

// onlyThese hides the AWS settings of the test machine.
func onlyThese(t *testing.T, env map[string]string) {
	dir := t.TempDir()
	for _, v := range os.Environ() {
		if name, _, _ := strings.Cut(v, "="); strings.HasPrefix(name, "AWS_") && name != "AWS_CA_BUNDLE" {
			t.Setenv(name, "")
		}
	}
	t.Setenv("AWS_CONFIG_FILE", filepath.Join(dir, "config"))
	t.Setenv("AWS_SHARED_CREDENTIALS_FILE", filepath.Join(dir, "credentials"))
	for name, value := range env {
		t.Setenv(name, value)
	}
}

var keyPair = aws.Credentials{AccessKeyID: "AKIAEXAMPLE", SecretAccessKey: "the-secret-key", SessionToken: "the-session"}

var environment = map[string]string{"AWS_ACCESS_KEY_ID": keyPair.AccessKeyID, "AWS_SECRET_ACCESS_KEY": keyPair.SecretAccessKey, "AWS_SESSION_TOKEN": keyPair.SessionToken}

// TestAWS checks the STS request that Vault gets.
func TestAWS(t *testing.T) {
	onlyThese(t, environment)
	for _, tt := range []struct{ region, server, address, scope string }{
		{"", "", "https://sts.amazonaws.com/", "us-east-1"},
		{"us-east-1", "vault.example", "https://sts.amazonaws.com/", "us-east-1"},
		{"eu-central-1", "", "https://sts.eu-central-1.amazonaws.com/", "eu-central-1"},
		{"cn-north-1", "", "https://sts.cn-north-1.amazonaws.com.cn/", "cn-north-1"},
		{"us-gov-west-1", "", "https://sts.us-gov-west-1.amazonaws.com/", "us-gov-west-1"},
	} {
		got := login(t, Auth{Method: AWSIAM, Role: "shop", Region: tt.region, ServerID: tt.server}, nil)
		part := func(name string) string {
			b, err := base64.StdEncoding.DecodeString(fmt.Sprint(got[name]))
			if err != nil {
				t.Error(err)
			}
			return string(b)
		}
		var headers http.Header
		if err := json.Unmarshal([]byte(part("iam_request_headers")), &headers); err != nil {
			t.Fatal(err)
		}
		if got["role"] != "shop" || got["iam_http_request_method"] != "POST" || part("iam_request_url") != tt.address || part("iam_request_body") != callerIdentity ||
			!strings.Contains(headers.Get("Authorization"), "/"+tt.scope+"/sts/aws4_request") || headers.Get(awsServerID) != tt.server ||
			strings.Contains(headers.Get("Authorization"), "x-vault-aws-iam-server-id") != (tt.server != "") {
			t.Errorf("%+v: %v, %s, %v", tt, got, part("iam_request_url"), headers)
		}
		if all := fmt.Sprint(got, headers); strings.Contains(all, keyPair.SecretAccessKey) {
			t.Error("the secret key was sent")
		}
	}
	got := login(t, Auth{Method: AWSIAM}, nil)
	if _, has := got["role"]; has {
		t.Errorf("a role was named: %v", got)
	}
}

// TestAWSElsewhere takes the credentials from the shared file and from the container's service, and tests the error
// without any.
func TestAWSElsewhere(t *testing.T) {
	credentialOf := func(got map[string]any) string {
		b, _ := base64.StdEncoding.DecodeString(fmt.Sprint(got["iam_request_headers"]))
		_, after, _ := strings.Cut(string(b), "Credential=")
		id, _, _ := strings.Cut(after, "/")
		return id
	}
	t.Run("file", func(t *testing.T) {
		onlyThese(t, map[string]string{"AWS_EC2_METADATA_DISABLED": "true"})
		if err := os.WriteFile(os.Getenv("AWS_SHARED_CREDENTIALS_FILE"), []byte("[default]\naws_access_key_id = AKIAFILE\naws_secret_access_key = s\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		if id := credentialOf(login(t, Auth{Method: AWSIAM}, nil)); id != "AKIAFILE" {
			t.Errorf("signed by %q", id)
		}
	})
	t.Run("container", func(t *testing.T) {
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Header.Get("Authorization") != "the-container's" {
				t.Errorf("asked with %v", r.Header)
			}
			fmt.Fprintf(w, `{"AccessKeyId":"AKIACONTAINER","SecretAccessKey":"s","Token":"t","Expiration":%q}`, time.Now().Add(time.Hour).UTC().Format(time.RFC3339))
		}))
		defer s.Close()
		onlyThese(t, map[string]string{"AWS_EC2_METADATA_DISABLED": "true", "AWS_CONTAINER_CREDENTIALS_FULL_URI": s.URL, "AWS_CONTAINER_AUTHORIZATION_TOKEN": "the-container's"})
		if id := credentialOf(login(t, Auth{Method: AWSIAM}, nil)); id != "AKIACONTAINER" {
			t.Errorf("signed by %q", id)
		}
	})
	t.Run("none", func(t *testing.T) {
		onlyThese(t, map[string]string{"AWS_EC2_METADATA_DISABLED": "true"})
		v := openFake(t, newFake(t), func(c *Config) { c.Auth = Auth{Method: AWSIAM} })
		_, err := v.Read(t.Context(), acme, "secret/acme/x#k")
		if codeOf(err) != toolkeep.SecretRetrievalFailed || !strings.Contains(err.Error(), "no credentials of AWS") {
			t.Errorf("%v", err)
		}
	})
}

// TestEC2: each login sends the machine's document and the same nonce.
func TestEC2(t *testing.T) {
	var ready atomic.Bool
	meta := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.Method == http.MethodPut && r.URL.Path == "/latest/api/token":
			w.Header().Set("X-Aws-Ec2-Metadata-Token-Ttl-Seconds", "300")
			fmt.Fprint(w, "session")
		case r.URL.Path == "/latest/dynamic/instance-identity/pkcs7" && r.Header.Get("X-Aws-Ec2-Metadata-Token") == "session" && ready.Load():
			fmt.Fprintln(w, "MIAG\nsigned")
		default:
			w.WriteHeader(http.StatusNotFound)
		}
	}))
	defer meta.Close()
	onlyThese(t, map[string]string{"AWS_EC2_METADATA_SERVICE_ENDPOINT": meta.URL})
	file := filepath.Join(t.TempDir(), "nonce")
	auth := Auth{Method: AWSEC2, Role: "shop", NonceFile: file}

	v := openFake(t, newFake(t), func(c *Config) { c.Auth = auth })
	_, err := v.Read(t.Context(), acme, "secret/acme/x#k")
	if codeOf(err) != toolkeep.SecretRetrievalFailed || !strings.Contains(err.Error(), "no identity of this machine") {
		t.Errorf("%v", err)
	}
	ready.Store(true)
	first := login(t, auth, nil)
	if first["pkcs7"] != "MIAG\nsigned" || first["role"] != "shop" || len(fmt.Sprint(first["nonce"])) < 20 {
		t.Errorf("%v", first)
	}
	if fi, err := os.Stat(file); err != nil || fi.Mode().Perm() != 0o600 {
		t.Errorf("%v %v", fi, err)
	}
	if second := login(t, auth, nil); second["nonce"] != first["nonce"] {
		t.Errorf("another nonce: %v, before %v", second, first)
	}
}

// TestAzure uses a metadata service on loopback.
func TestAzure(t *testing.T) {
	var broken atomic.Value
	broken.Store("")
	meta := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Metadata") != "true" || r.URL.Query().Get("api-version") == "" {
			t.Errorf("asked for %s with %v", r.URL, r.Header)
		}
		switch r.URL.Path {
		case broken.Load():
			w.WriteHeader(http.StatusBadRequest)
			fmt.Fprint(w, `{"error":"invalid_request","error_description":"the-secret-of-azure"}`)
		case "/metadata/identity/oauth2/token":
			fmt.Fprintf(w, `{"access_token":"the.identity's.token","expires_in":"3599","resource":%q}`, r.URL.Query().Get("resource"))
		case "/metadata/instance":
			fmt.Fprint(w, `{"compute":{"name":"vm-1","vmScaleSetName":"set","subscriptionId":"sub","resourceGroupName":"group"}}`)
		}
	}))
	defer meta.Close()
	f := newFake(t)
	var got map[string]any
	f.on("/v1/auth/azure/login", func(w http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		if err := json.Unmarshal(b, &got); err != nil {
			t.Error(err)
		}
		fmt.Fprintf(w, `{"auth":{"client_token":%q}}`, fakeToken)
	})
	c, err := openFake(t, f, nil).client.newAPI("")
	if err != nil {
		t.Fatal(err)
	}
	method, err := Auth{Method: Azure, Mount: "azure", Role: "shop"}.method()
	a, ok := method.(azureAuth)
	if err != nil || !ok || a.metadata != azureMetadata {
		t.Fatalf("%#v %v", method, err)
	}
	a.metadata = meta.URL
	answer, err := a.Login(t.Context(), c)
	want := map[string]any{"role": "shop", "jwt": "the.identity's.token", "vm_name": "vm-1", "vmss_name": "set", "subscription_id": "sub", "resource_group_name": "group"}
	if err != nil || answer.Auth.ClientToken != fakeToken || fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("%v, %v", got, err)
	}
	for path, words := range map[string]string{"/metadata/identity/oauth2/token": "managed identity", "/metadata/instance": "which machine"} {
		broken.Store(path)
		_, err := a.Login(t.Context(), c)
		if codeOf(err) != toolkeep.SecretRetrievalFailed || !strings.Contains(err.Error(), words) || strings.Contains(fmt.Sprint(err, errors.Unwrap(err)), "the-secret-of-azure") {
			t.Errorf("%s: %v", path, err)
		}
	}
}

// TestRealAWS logs in to a real Vault, which verifies the signature with this test's STS.
func TestRealAWS(t *testing.T) {
	s := vaulttest.Start(t)
	var asked atomic.Int64
	sts := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked.Add(1)
		w.Header().Set("Content-Type", "text/xml")
		if why := unsigned(r); why != "" {
			w.WriteHeader(http.StatusForbidden)
			fmt.Fprintf(w, `<ErrorResponse><Error><Code>SignatureDoesNotMatch</Code><Message>%s</Message></Error></ErrorResponse>`, why)
			return
		}
		fmt.Fprint(w, `<GetCallerIdentityResponse xmlns="https://sts.amazonaws.com/doc/2011-06-15/"><GetCallerIdentityResult>`+
			`<Arn>arn:aws:sts::123456789012:assumed-role/toolkeep/session</Arn><UserId>AROAEXAMPLE:session</UserId><Account>123456789012</Account>`+
			`</GetCallerIdentityResult></GetCallerIdentityResponse>`)
	}))
	defer sts.Close()
	s.Mount("secret", "kv", map[string]string{"version": "2"})
	s.Write("secret/data/acme/x", map[string]any{"data": map[string]any{"k": "v"}})
	s.Policy("reader", `path "secret/data/*" { capabilities = ["read"] }`)
	s.EnableAuth("aws")
	s.Write("auth/aws/config/client", map[string]any{"sts_endpoint": sts.URL, "sts_region": "us-east-1", "iam_server_id_header_value": "vault.acme.example", "max_retries": 0})
	s.Write("auth/aws/role/shop", map[string]any{"auth_type": "iam", "bound_iam_principal_arn": "arn:aws:iam::123456789012:role/toolkeep",
		"resolve_aws_unique_ids": false, "token_policies": "reader"})
	s.Write("auth/aws/role/others", map[string]any{"auth_type": "iam", "bound_iam_principal_arn": "arn:aws:iam::123456789012:role/other",
		"resolve_aws_unique_ids": false, "token_policies": "reader"})
	as := func(role, id string) *Store {
		return open(t, s, "", func(c *Config) {
			c.Auth = Auth{Method: AWSIAM, Role: role, ServerID: id}
			c.Timeout = 10 * time.Second
		})
	}
	onlyThese(t, environment)
	want(t, as("shop", "vault.acme.example"), acme, "secret/acme/x#k", "v", "")
	if asked.Load() == 0 {
		t.Error("STS was not asked")
	}
	want(t, as("others", "vault.acme.example"), acme, "secret/acme/x#k", "", toolkeep.SecretAccessDenied)
	want(t, as("shop", ""), acme, "secret/acme/x#k", "", toolkeep.SecretAccessDenied)
	want(t, as("shop", "another.vault"), acme, "secret/acme/x#k", "", toolkeep.SecretAccessDenied)
	before := asked.Load()
	t.Setenv("AWS_SECRET_ACCESS_KEY", "another key")
	want(t, as("shop", "vault.acme.example"), acme, "secret/acme/x#k", "", toolkeep.SecretAccessDenied)
	if asked.Load() == before {
		t.Error("STS was not asked about the wrong signature")
	}
}

// unsigned returns what is wrong with a request's signature by keyPair.
func unsigned(r *http.Request) string {
	body, err := io.ReadAll(r.Body)
	if err != nil || string(body) != callerIdentity {
		return fmt.Sprintf("another body: %s %v", body, err)
	}
	given := r.Header.Get("Authorization")
	_, names, _ := strings.Cut(given, "SignedHeaders=")
	names, _, _ = strings.Cut(names, ",")
	at, err := time.Parse("20060102T150405Z", r.Header.Get("X-Amz-Date"))
	if err != nil {
		return err.Error()
	}
	again, err := http.NewRequestWithContext(r.Context(), r.Method, "https://"+r.Host+"/", strings.NewReader(string(body)))
	if err != nil {
		return err.Error()
	}
	for _, name := range strings.Split(names, ";") {
		if !slices.Contains([]string{"host", "content-length", "x-amz-date", "x-amz-security-token"}, name) {
			again.Header.Set(name, r.Header.Get(name))
		}
	}
	sum := sha256.Sum256(body)
	if err := v4.NewSigner().SignHTTP(r.Context(), keyPair, again, hex.EncodeToString(sum[:]), "sts", "us-east-1", at); err != nil {
		return err.Error()
	}
	if again.Header.Get("Authorization") != given {
		return "signed otherwise"
	}
	return ""
}
