package vault

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"

	"github.com/go-json-experiment/json"
	"github.com/hashicorp/vault/api"

	"github.com/toolkeep/toolkeep/egress"
)

const (
	azureMetadata = "http://169.254.169.254"
	azureResource = "https://management.azure.com/"
	azureVersion  = "2021-05-01"
)

// azureAuth logs in with the machine's managed identity. Vault's own library queries the metadata service without a
// context or a size limit.
type azureAuth struct {
	mount, role string
	resource    string // "" is the management API
	metadata    string // address of the metadata service
}

// Login implements api.AuthMethod.
func (a azureAuth) Login(ctx context.Context, c *api.Client) (*api.Secret, error) {
	transport := &http.Transport{Proxy: nil}
	defer transport.CloseIdleConnections()
	client := &http.Client{Transport: transport, Timeout: cloudTimeout, CheckRedirect: egress.NoRedirects}
	resource := a.resource
	if resource == "" {
		resource = azureResource
	}
	var token struct {
		AccessToken string `json:"access_token"`
	}
	err := a.ask(ctx, client, "/metadata/identity/oauth2/token", url.Values{"resource": {resource}}, &token)
	if err == nil && token.AccessToken == "" {
		err = errors.New("the answer has no token")
	}
	if err != nil {
		return nil, noProof("the metadata service of Azure returned no token of this machine's managed identity", err)
	}
	var machine struct {
		Compute struct {
			Name          string `json:"name"`
			ScaleSet      string `json:"vmScaleSetName"`
			Subscription  string `json:"subscriptionId"`
			ResourceGroup string `json:"resourceGroupName"`
		} `json:"compute"`
	}
	if err := a.ask(ctx, client, "/metadata/instance", nil, &machine); err != nil {
		return nil, noProof("the metadata service of Azure does not say which machine this is", err)
	}
	m := machine.Compute
	return c.Logical().WriteWithContext(ctx, "auth/"+a.mount+"/login", map[string]any{"role": a.role, "jwt": token.AccessToken,
		"vm_name": m.Name, "vmss_name": m.ScaleSet, "subscription_id": m.Subscription, "resource_group_name": m.ResourceGroup})
}

// ask reads one document of the metadata service. Errors never repeat it.
func (a azureAuth) ask(ctx context.Context, client *http.Client, path string, q url.Values, out any) error {
	if q == nil {
		q = url.Values{}
	}
	q.Set("api-version", azureVersion)
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, a.metadata+path+"?"+q.Encode(), nil)
	if err != nil {
		return err
	}
	r.Header.Set("Metadata", "true")
	resp, err := client.Do(r)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	defer clear(b)
	switch {
	case err != nil:
		return err
	case resp.StatusCode != http.StatusOK:
		return fmt.Errorf("status %d", resp.StatusCode)
	case json.Unmarshal(b, out) != nil:
		return errors.New("the answer is none of its own")
	}
	return nil
}
