// Package tokenexchange turns secrets into access tokens for the auth types of a manifest
// whose secret is not itself what the upstream wants:
//
//	oauth2_client_credentials  RFC 6749 4.4; the secret is client_id:client_secret or JSON with both
//	oauth2_refresh             RFC 6749 6; the secret is JSON with client_id, refresh_token, maybe client_secret
//	google_service_account     RFC 7523; the secret is the service account's JSON key
//	azure_ad                   client credentials at Microsoft's identity platform, by secret or certificate
//
// # What is kept
//
// A token serves calls of its tenant with the same auth entry and the same secret
// until 30 s before it ends, or half its life if that is shorter than a minute. Callers
// who want the same token at once share one request, which goes on when one of them
// gives up. Nothing is shared across tenants.
//
// A refresh token that the server replaced is used from then on, also where the new
// one cannot be stored.
//
// # What is refused
//
// Token endpoints are https, or http where the tool's permissions.network name their
// host; redirects are not followed; answers are bounded. Errors hold the code that the
// endpoint answered with if it is a known one, and nothing else that it or the secret
// says.
package tokenexchange
