package vault

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"io"
	"io/fs"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	v4 "github.com/aws/aws-sdk-go-v2/aws/signer/v4"
	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	awsconfig "github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/feature/ec2/imds"
	"github.com/aws/aws-sdk-go-v2/service/sts"
	"github.com/go-json-experiment/json"
	"github.com/hashicorp/vault/api"

	"github.com/toolkeep/toolkeep"
)

const (
	awsRegion      = "us-east-1"
	awsServerID    = "X-Vault-AWS-IAM-Server-ID"
	callerIdentity = "Action=GetCallerIdentity&Version=2011-06-15"
)

// awsAuth logs in with an AWS identity. With iam, Vault gets a signed STS request for the caller's identity and
// sends it to STS itself; with ec2, it gets the signed identity document of the machine. Vault's own library
// depends on the first AWS SDK, which costs each start 3 ms and 2 MB.
type awsAuth struct {
	mount, role string
	region      string // "" is us-east-1
	serverID    string // value the signature is bound to; "" is none
	ec2         bool
	nonceFile   string
	now         func() time.Time
}

// Login implements api.AuthMethod.
func (a awsAuth) Login(ctx context.Context, c *api.Client) (*api.Secret, error) {
	client := awshttp.NewBuildableClient().WithTimeout(cloudTimeout).WithTransportOptions(func(t *http.Transport) {
		t.Proxy, t.DisableKeepAlives = cloudProxy, true // leave no connection open
	})
	cfg, err := awsconfig.LoadDefaultConfig(ctx, awsconfig.WithRegion(a.region), awsconfig.WithHTTPClient(client))
	if err != nil {
		return nil, noProof("the settings of AWS on this server cannot be read", err)
	}
	proof := a.signed
	if a.ec2 {
		proof = a.machine
	}
	body, err := proof(ctx, cfg)
	if err != nil {
		return nil, err
	}
	if a.role != "" {
		body["role"] = a.role
	}
	return c.Logical().WriteWithContext(ctx, "auth/"+a.mount+"/login", body)
}

// signed returns the STS request, signed with the credentials of the environment, the shared files, a web identity,
// the container or the machine.
func (a awsAuth) signed(ctx context.Context, cfg aws.Config) (map[string]any, error) {
	creds, err := cfg.Credentials.Retrieve(ctx)
	if err != nil {
		return nil, noProof("this server has no credentials of AWS", err)
	}
	// The region without its own STS endpoint is the one that Vault asks by default.
	at, err := sts.NewDefaultEndpointResolverV2().ResolveEndpoint(ctx, sts.EndpointParameters{Region: &a.region, UseGlobalEndpoint: aws.Bool(a.region == awsRegion)})
	if err != nil {
		return nil, noProof("vault.region is not a region of AWS", err)
	}
	to := at.URI.JoinPath("/").String()
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, to, strings.NewReader(callerIdentity))
	if err != nil {
		return nil, err
	}
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded; charset=utf-8")
	if a.serverID != "" {
		r.Header.Set(awsServerID, a.serverID)
	}
	sum := sha256.Sum256([]byte(callerIdentity))
	if err := v4.NewSigner().SignHTTP(ctx, creds, r, hex.EncodeToString(sum[:]), "sts", a.region, a.now()); err != nil {
		return nil, noProof("the credentials of AWS cannot sign", err)
	}
	headers, err := json.Marshal(r.Header)
	if err != nil {
		return nil, err
	}
	return map[string]any{
		"iam_http_request_method": r.Method,
		"iam_request_url":         base64.StdEncoding.EncodeToString([]byte(to)),
		"iam_request_headers":     base64.StdEncoding.EncodeToString(headers),
		"iam_request_body":        base64.StdEncoding.EncodeToString([]byte(callerIdentity)),
	}, nil
}

// machine returns the AWS-signed identity document from the metadata service. Vault treats the nonce of a machine's
// first login as the password for later ones.
func (a awsAuth) machine(ctx context.Context, cfg aws.Config) (map[string]any, error) {
	doc, err := imds.NewFromConfig(cfg).GetDynamicData(ctx, &imds.GetDynamicDataInput{Path: "instance-identity/pkcs7"})
	if err != nil {
		return nil, noProof("the metadata service of EC2 returned no identity of this machine", err)
	}
	defer doc.Content.Close()
	pkcs7, err := io.ReadAll(io.LimitReader(doc.Content, maxCredential))
	if err != nil {
		return nil, noProof("the metadata service of EC2 broke off", err)
	}
	nonce, err := a.nonce()
	if err != nil {
		return nil, err
	}
	return map[string]any{"pkcs7": strings.TrimSpace(string(pkcs7)), "nonce": nonce}, nil
}

// nonce is created at the first login and kept in the file, so that a restart can log in.
func (a awsAuth) nonce() (string, error) {
	f, err := os.OpenFile(a.nonceFile, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	switch {
	case errors.Is(err, fs.ErrExist):
		return readCredential(a.nonceFile)
	case err != nil:
		return "", refuse(toolkeep.SecretRetrievalFailed, "the file that keeps the nonce of logins at Vault cannot be made").Because(err)
	}
	nonce := rand.Text()
	_, err = f.WriteString(nonce + "\n")
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	if err != nil {
		os.Remove(a.nonceFile)
		return "", refuse(toolkeep.SecretRetrievalFailed, "the file that keeps the nonce of logins at Vault cannot be written").Because(err)
	}
	return nonce, nil
}

const cloudTimeout = 10 * time.Second

// cloudProxy disables the proxy for metadata services, which speak plain http on the machine itself.
func cloudProxy(r *http.Request) (*url.URL, error) {
	if r.URL.Scheme == "http" {
		return nil, nil
	}
	return http.ProxyFromEnvironment(r)
}

// noProof makes E3403: the cloud's proof of identity is unavailable.
func noProof(why string, err error) error {
	return refuse(toolkeep.SecretRetrievalFailed, "this server cannot log in to Vault: %s", why).Because(cause(err))
}
