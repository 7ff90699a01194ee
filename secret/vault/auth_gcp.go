package vault

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"cloud.google.com/go/compute/metadata"
	"github.com/go-json-experiment/json"
	"github.com/hashicorp/vault/api"
	"golang.org/x/oauth2"
	"golang.org/x/oauth2/google"
)

const (
	iamCredentials = "https://iamcredentials.googleapis.com"
	cloudPlatform  = "https://www.googleapis.com/auth/cloud-platform"
	gcpTimeout     = 10 * time.Second
)

// gcpAuth logs in with a Google identity: the machine's, or a token that IAM signs for the service account. For
// these two requests, Vault's own library adds four hundred packages and a goroutine that never ends.
type gcpAuth struct {
	mount, role string
	account     string // e-mail; "" is the machine's identity
	iam         string // address of IAM
}

// Login implements api.AuthMethod.
func (a gcpAuth) Login(ctx context.Context, c *api.Client) (*api.Secret, error) {
	proof := a.identity
	if a.account != "" {
		proof = a.signed
	}
	transport := &http.Transport{Proxy: nil, ForceAttemptHTTP2: true, TLSHandshakeTimeout: gcpTimeout}
	defer transport.CloseIdleConnections()
	jwt, err := proof(ctx, &http.Client{Transport: transport, Timeout: gcpTimeout}, c.Address())
	if err != nil {
		return nil, err
	}
	return c.Logical().WriteWithContext(ctx, "auth/"+a.mount+"/login", map[string]any{"role": a.role, "jwt": jwt})
}

// identity returns the machine's token from its metadata server.
func (a gcpAuth) identity(ctx context.Context, client *http.Client, address string) (string, error) {
	q := url.Values{"audience": {address + "/vault/" + a.role}, "format": {"full"}}
	jwt, err := metadata.NewClient(client).GetWithContext(ctx, "instance/service-accounts/default/identity?"+q.Encode())
	if err != nil {
		return "", errors.New("the metadata server returned no identity of this machine")
	}
	return strings.TrimSpace(jwt), nil
}

// signed returns a token that IAM signs for the service account, requested with the application default
// credentials.
func (a gcpAuth) signed(ctx context.Context, client *http.Client, _ string) (string, error) {
	ctx = context.WithValue(ctx, oauth2.HTTPClient, client)
	creds, err := google.FindDefaultCredentials(ctx, cloudPlatform)
	if err != nil {
		return "", errors.New("there are no default credentials of Google Cloud")
	}
	claims, err := json.Marshal(map[string]any{"aud": "vault/" + a.role, "sub": a.account, "exp": time.Now().Add(10 * time.Minute).Unix()})
	if err != nil {
		return "", err
	}
	body, err := json.Marshal(map[string]string{"payload": string(claims)})
	if err != nil {
		return "", err
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, a.iam+"/v1/projects/-/serviceAccounts/"+url.PathEscape(a.account)+":signJwt", bytes.NewReader(body))
	if err != nil {
		return "", err
	}
	r.Header.Set("Content-Type", "application/json")
	resp, err := oauth2.NewClient(ctx, creds.TokenSource).Do(r)
	if err != nil {
		return "", errors.New("IAM of Google Cloud cannot be reached, or returned no token to ask with")
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(io.LimitReader(resp.Body, maxCredential))
	if err != nil || resp.StatusCode != http.StatusOK {
		return "", fmt.Errorf("IAM of Google Cloud does not sign for the service account (status %d)", resp.StatusCode)
	}
	var answer struct {
		JWT string `json:"signedJwt"`
	}
	if json.Unmarshal(b, &answer) != nil || answer.JWT == "" {
		return "", errors.New("IAM of Google Cloud answered without a token")
	}
	return answer.JWT, nil
}
