// Package oauth logs principals in at MCP servers that want OAuth (MCP revision
// 2025-11-25, "Authorization"): discovery, registration of the client, PKCE and
// resource indicators are the official SDK's; this package keeps the tokens, and
// carries the login of a person who sits at another machine.
//
// # A login
//
//	call      the server answers 401; Challenge begins a login, and the call ends
//	          with E3407, whose details.url is our page /oauth/login/{id}
//	page      says who asks for what, and leads to the authorization server; a
//	          cookie marks the browser
//	callback  /oauth/callback takes the code, from the marked browser alone
//	node      the one that began the login exchanges the code and keeps the token
//
// Page and callback may reach any node: what they need is an item in the store,
// sealed, and the node that waits follows the feed.
//
// The page is there because a link can be sent to somebody else, who would then
// hand over an account to whoever asked. It names the principal and the server.
//
// # Tokens
//
// A token belongs to tenant, principal and server, lies sealed in the store, and
// is bound to its place there. It is refreshed by one flight on a node, and
// across nodes by who changes the item first: refresh tokens rotate, so the others
// take what that one got.
package oauth
