// Package oauth logs principals in at MCP servers that require OAuth (MCP revisions
// 2025-03-26 to 2026-07-28, "Authorization"): discovery by RFC 9728 and RFC 8414 or
// OpenID Connect, client registration, PKCE with S256, resource indicators (RFC 8707),
// the issuer in the callback (RFC 9207), and stored tokens with refresh.
//
// # A login
//
//	call      the server answers 401; Challenge finds out how to log in, and the
//	          call ends with E3407, whose details.url is the page /oauth/login/{id}
//	page      says who asks for what; its button sets a cookie in the browser
//	          and redirects to the authorization server
//	callback  /oauth/callback takes the code, only from the browser with the
//	          cookie, exchanges it and stores the token
//
// The whole state of a login is sealed in the store, so the page and the callback may
// reach any node, also after a restart. A code is exchanged once, by the node that removes
// the login's item from the store.
//
// The page prevents an attack: a login address can be sent to another person, who would
// then grant access to their account to the sender. The page names principal, server
// and scopes, cannot be framed, and is left by a POST that no other site can send. If
// the authorization server's address is forwarded instead, the other browser lacks the
// cookie, and its code is refused.
//
// # Tokens
//
// A token belongs to tenant, principal, server and the server's address: a server of
// the same name at another address never gets it. It is sealed in the store, bound to
// its item.
//
// Refresh tokens rotate, and an authorization server that sees a used one again may end
// the whole login. So only one node uses it at a time: it first marks the item, by
// compare-and-set, for the time of lease. Within that node one refresh serves all
// callers, and goes on if the call that began it gives up. If a login or logout changes
// the item meanwhile, that change wins.
package oauth
