package egress

import "net/netip"

// rangeRule is one forbidden range.
type rangeRule struct {
	prefix netip.Prefix
	name   string
	// inside marks ranges that networks use for their own hosts, which an allowed host
	// name opens. The others open only by IP address.
	inside bool
}

// forbidden returns the name of the forbidden range that contains addr, and whether an
// allowed host name opens it; "" means that addr may be dialled.
func forbidden(addr netip.Addr) (name string, inside bool) {
	addr = addr.WithZone("").Unmap()
	if !addr.IsValid() {
		return "invalid", false
	}
	for _, m := range metadata {
		if addr == m {
			return "metadata service", false
		}
	}
	rules := rules4
	if addr.Is6() {
		rules = rules6
	}
	for i := range rules {
		if rules[i].prefix.Contains(addr) {
			return rules[i].name, rules[i].inside
		}
	}
	if nat64.Contains(addr) {
		// The NAT64 translator connects to the address in the last four bytes.
		b := addr.As16()
		if name, _ := forbidden(netip.AddrFrom4([4]byte(b[12:16]))); name != "" {
			return "NAT64 of " + name, false
		}
	}
	return "", false
}

var nat64 = netip.MustParsePrefix("64:ff9b::/96")

// metadata lists the addresses at which clouds hand out credentials.
var metadata = []netip.Addr{
	netip.MustParseAddr("169.254.169.254"), // AWS, Azure, Google and others
	netip.MustParseAddr("169.254.170.2"),   // AWS containers
	netip.MustParseAddr("169.254.170.23"),  // AWS pod identity
	netip.MustParseAddr("100.100.100.200"), // Alibaba
	netip.MustParseAddr("168.63.129.16"),   // Azure wire server, a public address
	netip.MustParseAddr("fd00:ec2::254"),   // AWS
	netip.MustParseAddr("fd00:ec2::23"),    // AWS pod identity
	netip.MustParseAddr("fd20:ce::254"),    // Google
}

var rules4 = []rangeRule{
	{netip.MustParsePrefix("127.0.0.0/8"), "loopback", true},
	{netip.MustParsePrefix("10.0.0.0/8"), "private", true},
	{netip.MustParsePrefix("172.16.0.0/12"), "private", true},
	{netip.MustParsePrefix("192.168.0.0/16"), "private", true},
	{netip.MustParsePrefix("169.254.0.0/16"), "link-local", true},
	{netip.MustParsePrefix("100.64.0.0/10"), "carrier-grade NAT", true},
	{netip.MustParsePrefix("0.0.0.0/8"), "unspecified", false},
	{netip.MustParsePrefix("192.0.0.0/24"), "protocol assignments", false},
	{netip.MustParsePrefix("192.0.2.0/24"), "documentation", false},
	{netip.MustParsePrefix("198.51.100.0/24"), "documentation", false},
	{netip.MustParsePrefix("203.0.113.0/24"), "documentation", false},
	{netip.MustParsePrefix("192.88.99.0/24"), "6to4 relay", false},
	{netip.MustParsePrefix("198.18.0.0/15"), "benchmarking", false},
	{netip.MustParsePrefix("224.0.0.0/4"), "multicast", false},
	{netip.MustParsePrefix("255.255.255.255/32"), "broadcast", false},
	{netip.MustParsePrefix("240.0.0.0/4"), "reserved", false},
}

// rules6 forbids the old tunnel ranges entirely: an address in them contains an IPv4
// address that a relay connects to, and no public service needs them.
var rules6 = []rangeRule{
	{netip.MustParsePrefix("::1/128"), "loopback", true},
	{netip.MustParsePrefix("fe80::/10"), "link-local", true},
	{netip.MustParsePrefix("fec0::/10"), "site-local", true},
	{netip.MustParsePrefix("fc00::/7"), "unique local", true},
	{netip.MustParsePrefix("::/128"), "unspecified", false},
	{netip.MustParsePrefix("::/96"), "IPv4-compatible", false},
	{netip.MustParsePrefix("::ffff:0:0:0/96"), "IPv4-translated", false},
	{netip.MustParsePrefix("64:ff9b:1::/48"), "local NAT64", false},
	{netip.MustParsePrefix("100::/64"), "discard", false},
	{netip.MustParsePrefix("2001::/32"), "Teredo", false},
	{netip.MustParsePrefix("2001:2::/48"), "benchmarking", false},
	{netip.MustParsePrefix("2001:10::/28"), "ORCHID", false},
	{netip.MustParsePrefix("2001:20::/28"), "ORCHID", false},
	{netip.MustParsePrefix("2001:db8::/32"), "documentation", false},
	{netip.MustParsePrefix("3fff::/20"), "documentation", false},
	{netip.MustParsePrefix("2002::/16"), "6to4", false},
	{netip.MustParsePrefix("5f00::/16"), "segment routing", false},
	{netip.MustParsePrefix("ff00::/8"), "multicast", false},
}
