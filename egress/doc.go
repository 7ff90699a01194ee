// Package egress opens outbound connections for tools. A tool's definition comes from
// outside, so its server may be written as, or resolve to, an address that only this
// host can reach: loopback, the private network, a cloud's metadata service. The guard
// checks the address of every connection just before connecting, after DNS and for each
// address tried, so that neither a second DNS response nor a redirect bypasses it.
//
// A forbidden address is E3505, and nothing was sent.
//
// The package also reads the words of HTTP that its users share: Retry-After, media types,
// tokens, origins and dot segments (http.go).
//
// # Allow-lists
//
// A tool may reach such an address by listing it in its manifest under
// permissions.network. An entry is a host as written in the URL, or an IP address; port
// 0 is any port. A host name opens the ranges that networks use internally (loopback,
// private, link-local, carrier-grade NAT, unique local). The others (metadata services,
// multicast, broadcast, unspecified, reserved and tunnel addresses) open only for an
// entry with the IP address itself.
//
// # Connection pools
//
// A Pool keeps one transport per tenant and allow-list, so that a connection made for
// one tenant, or permitted by one tool's allow-list, is never used for another. HTTP
// carries credentials in each request, so principals of one tenant may share
// connections.
package egress
