// Package tokenexchange exchanges secrets for access tokens, for the auth types whose upstream wants a token
// instead of the secret:
//
//	oauth2_client_credentials  RFC 6749 4.4; the secret is client_id:client_secret or JSON with both
//	oauth2_refresh             RFC 6749 6; the secret is JSON with client_id, refresh_token, maybe client_secret
//	google_service_account     RFC 7523; the secret is the service account's JSON key
//	azure_ad                   client credentials at Microsoft's identity platform, by secret or certificate
//	oauth2_token_exchange      RFC 8693; the caller's token, and client_id:client_secret as the secret
//	oauth2_identity_assertion  the caller's token becomes an assertion at the identity provider, and that an access
//	                           token at the upstream's authorization server (draft-ietf-oauth-identity-assertion-authz-grant)
//
// # Token cache
//
// A token serves calls of its tenant with the same auth entry and the same secret until 30 s before it expires, or
// for half its life if that is shorter than a minute. Concurrent callers for the same token share one request,
// which continues if one of them gives up. Nothing is shared across tenants.
// A token of the last two types serves only the caller's token that it was got for, and ends with that.
//
// A rotated refresh token is used from then on, even if it could not be stored. Until it is, the token that came with it
// is never dropped. Callers' tokens are kept apart from the others, so that however many there are, they push out none.
//
// # Restrictions
//
// Token endpoints must use https, or http if the tool's permissions.network names their host; redirects are not
// followed; responses are limited in size. Errors contain the endpoint's error code if it is a known one, and
// nothing else from the endpoint or the secret.
package tokenexchange
