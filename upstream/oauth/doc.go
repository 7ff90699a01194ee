// Package oauth logs principals in at MCP servers that want OAuth (MCP revisions
// 2025-03-26 to 2026-07-28, "Authorization"): discovery by RFC 9728 and RFC 8414
// or OpenID Connect, registration of the client, PKCE with S256, resource
// indicators (RFC 8707), the issuer in the answer (RFC 9207), and tokens that are
// kept and renewed.
//
// # A login
//
//	call      the server answers 401; Challenge finds out how to log in, and the
//	          call ends with E3407, whose details.url is our page /oauth/login/{id}
//	page      says who asks for what; its button marks the browser with a cookie
//	          and leads to the authorization server
//	callback  /oauth/callback takes the code, from the marked browser alone,
//	          exchanges it and keeps the token
//
// All that a login needs lies sealed in the store, so page and callback may reach
// any node, and a restart between them does no harm. A code is exchanged once:
// whoever takes the login's item out of the store does it.
//
// The page is there because an address can be sent to somebody else, who would
// then hand over an account to whoever asked. It names principal, server and
// scopes, cannot be framed, and is left by a POST that no other site can send; an
// address of the authorization server that was sent on leads to a browser
// without the mark, and its code is refused.
//
// # Tokens
//
// A token belongs to tenant, principal, server and the server's address: a server
// of the same name elsewhere never gets it. It lies sealed in the store, bound to
// its place there.
//
// Refresh tokens rotate, and an authorization server that sees a used one again
// may end the whole login. So it is used by one node at a time, which says so in
// the item before (by compare-and-set) and for lease long; on that node by one
// refresh, which goes on when the call that began it gives up. Of an item that
// changed meanwhile, by a login or a logout, the change wins.
package oauth
