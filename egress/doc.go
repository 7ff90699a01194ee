// Package egress dials out on behalf of tools. A tool's definition comes from
// outside, so its server may be written, or may resolve, to a place that only
// this host can reach: the loopback, the private network, a cloud's metadata
// service. The guard looks at the address of every connection just before it is
// made, after DNS and for each address that is tried, so that neither a second
// DNS answer nor a redirect gets past it.
//
// A forbidden address is E3505, and nothing was sent.
//
// # Allow-lists
//
// A tool opens such a place for itself by naming it in its manifest under
// permissions.network. An entry is a host as it stands in the URL, or an IP
// address; port 0 is any port. A named host opens the ranges that networks use
// inside (loopback, private, link-local, carrier-grade NAT, unique local). The
// rest (metadata services, multicast, broadcast, unspecified, reserved and
// tunnel addresses) opens only for an entry that is the IP address itself.
//
// # Pools of connections
//
// A Pool keeps one transport for each tenant and allow-list, so that no
// connection made for one tenant, or let through by one tool's allow-list, is
// used for another. HTTP carries its credentials in each request, so principals
// of one tenant may share connections.
package egress
