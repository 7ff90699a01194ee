// Package okta stands for Okta's SDK in vaulttest, whose tests have no login with Okta. Vault asks
// it for the second factor of a login; here it refuses to make a client. It takes as long to build
// as a seventh of Vault.
package okta

import (
	"context"
	"errors"
	"net/http"
)

var errAbsent = errors.New("Okta is not built into vaulttest")

type (
	// Configuration is empty.
	Configuration struct{ Context context.Context }
	// ConfigSetter changes nothing.
	ConfigSetter func(*Configuration)
	// APIClient is never made, since NewConfiguration refuses.
	APIClient struct {
		UserAPI       userAPI
		UserFactorAPI factorAPI
	}
	// UserFactorPush is a factor that asks a phone.
	UserFactorPush struct{}
)

type (
	userAPI   struct{}
	factorAPI struct{}
	user      struct{}
	factor    struct{ UserFactorPush *UserFactorPush }
	verified  struct{ Links map[string]any }
	status    struct {
		UserFactorPushTransactionWaiting, UserFactorPushTransaction         *struct{}
		UserFactorPushTransactionRejected, UserFactorPushTransactionTimeout *struct{}
	}
	request[T any] struct{}
)

// NewConfiguration refuses.
func NewConfiguration(...ConfigSetter) (*Configuration, error) { return nil, errAbsent }

// WithToken changes nothing.
func WithToken(string) ConfigSetter { return nil }

// WithOrgUrl changes nothing.
func WithOrgUrl(string) ConfigSetter { return nil }

// WithCache changes nothing.
func WithCache(bool) ConfigSetter { return nil }

// NewAPIClient returns a client whose requests are refused.
func NewAPIClient(*Configuration) *APIClient { return &APIClient{} }

// GetConfig returns an empty configuration.
func (*APIClient) GetConfig() *Configuration { return &Configuration{} }

func (userAPI) ListUsers(context.Context) request[[]user]               { return request[[]user]{} }
func (factorAPI) ListFactors(context.Context, string) request[[]factor] { return request[[]factor]{} }
func (factorAPI) VerifyFactor(_ context.Context, user, factor string) request[verified] {
	return request[verified]{}
}
func (factorAPI) GetFactorTransactionStatus(_ context.Context, user, factor, transaction string) request[status] {
	return request[status]{}
}

func (user) GetId() string                    { return "" }
func (*UserFactorPush) GetId() string         { return "" }
func (verified) GetFactorResult() string      { return "" }
func (r request[T]) Filter(string) request[T] { return r }
func (request[T]) Execute() (out T, resp *http.Response, err error) {
	return out, nil, errAbsent
}
