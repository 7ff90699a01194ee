package gate

import (
	"net/http"
	"net/netip"
	"testing"

	"github.com/toolkeep/toolkeep"
)

// The same table holds for HTTP headers and for metadata.
func TestClientAddress(t *testing.T) {
	proxies := Proxies{netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("2001:db8:1::/64"), netip.MustParsePrefix("127.0.0.1/32")}
	for _, x := range []struct {
		name, peer string
		forwarded  []string
		plain      []string
		want       string
	}{
		{name: "no proxy", peer: "192.0.2.1", want: "192.0.2.1"},
		{name: "a client's own headers", peer: "192.0.2.1", plain: []string{"198.51.100.1"}, forwarded: []string{"for=198.51.100.1"}, want: "192.0.2.1"},
		{name: "a proxy that says nothing", peer: "10.0.0.1", want: "10.0.0.1"},
		{name: "no address", peer: "@", plain: []string{"198.51.100.1"}, want: "@"},
		{name: "none", peer: "", plain: []string{"198.51.100.1"}, want: ""},

		{name: "plain", peer: "10.0.0.1", plain: []string{"198.51.100.1"}, want: "198.51.100.1"},
		{name: "plain, mapped peer", peer: "::ffff:10.0.0.1", plain: []string{"198.51.100.1"}, want: "198.51.100.1"},
		{name: "plain, two proxies", peer: "10.0.0.1", plain: []string{"198.51.100.1, 10.9.9.9"}, want: "198.51.100.1"},
		{name: "plain, invented", peer: "10.0.0.1", plain: []string{"203.0.113.9,198.51.100.1 ,10.9.9.9"}, want: "198.51.100.1"},
		{name: "plain, lines", peer: "10.0.0.1", plain: []string{"203.0.113.9", "198.51.100.1", "10.9.9.9"}, want: "198.51.100.1"},
		{name: "plain, ports", peer: "10.0.0.1", plain: []string{"198.51.100.1:4711, 10.9.9.9:80"}, want: "198.51.100.1"},
		{name: "plain, IPv6", peer: "2001:db8:1::5", plain: []string{"2001:db8:2::7"}, want: "2001:db8:2::7"},
		{name: "plain, IPv6 port", peer: "10.0.0.1", plain: []string{"[2001:db8:2::7]:4711"}, want: "2001:db8:2::7"},
		{name: "plain, mapped", peer: "10.0.0.1", plain: []string{"::ffff:198.51.100.1"}, want: "198.51.100.1"},
		{name: "plain, all trusted", peer: "10.0.0.1", plain: []string{"10.1.1.1, 10.2.2.2"}, want: "10.1.1.1"},
		{name: "plain, unknown", peer: "10.0.0.1", plain: []string{"198.51.100.1, unknown, 10.2.2.2"}, want: "10.2.2.2"},
		{name: "plain, garbage", peer: "10.0.0.1", plain: []string{"198.51.100.1, <script>"}, want: "10.0.0.1"},
		{name: "plain, empty", peer: "10.0.0.1", plain: []string{""}, want: "10.0.0.1"},

		{name: "forwarded", peer: "10.0.0.1", forwarded: []string{"for=198.51.100.1"}, want: "198.51.100.1"},
		{name: "forwarded, all members", peer: "10.0.0.1", forwarded: []string{`proto=https ; FOR="198.51.100.1:4711";by=10.0.0.1;host="a,b"`}, want: "198.51.100.1"},
		{name: "forwarded, IPv6", peer: "10.0.0.1", forwarded: []string{`for="[2001:db8:2::7]:4711"`}, want: "2001:db8:2::7"},
		{name: "forwarded, two proxies", peer: "10.0.0.1", forwarded: []string{`for=203.0.113.9, for=198.51.100.1;proto=http , for=10.2.2.2`}, want: "198.51.100.1"},
		{name: "forwarded, lines", peer: "10.0.0.1", forwarded: []string{`for=203.0.113.9`, `for=198.51.100.1`}, want: "198.51.100.1"},
		{name: "forwarded, quoted comma", peer: "10.0.0.1", forwarded: []string{`for=203.0.113.9;host="x, for=192.0.2.5", for="198.51.100.1"`}, want: "198.51.100.1"},
		{name: "forwarded, escaped quote", peer: "10.0.0.1", forwarded: []string{`host="\", for=192.0.2.5", for=198.51.100.1`}, want: "198.51.100.1"},
		{name: "forwarded, open quote", peer: "10.0.0.1", forwarded: []string{`for=198.51.100.1;host="x`}, want: "10.0.0.1"},
		{name: "forwarded, hidden", peer: "10.0.0.1", forwarded: []string{`for=198.51.100.1, for=_hidden`}, want: "10.0.0.1"},
		{name: "forwarded, without for", peer: "10.0.0.1", forwarded: []string{`for=198.51.100.1, proto=https`}, want: "10.0.0.1"},
		{name: "forwarded, two", peer: "10.0.0.1", forwarded: []string{`for=198.51.100.1;for=198.51.100.2`}, want: "10.0.0.1"},
		{name: "forwarded, trailing comma", peer: "10.0.0.1", forwarded: []string{`for=198.51.100.1,`}, want: "10.0.0.1"},
		{name: "forwarded, no pair", peer: "10.0.0.1", forwarded: []string{`198.51.100.1`}, want: "10.0.0.1"},

		{name: "both agree", peer: "10.0.0.1", plain: []string{"198.51.100.1"}, forwarded: []string{`for="198.51.100.1:1"`}, want: "198.51.100.1"},
		{name: "one is the client's", peer: "10.0.0.1", plain: []string{"198.51.100.1"}, forwarded: []string{`for=203.0.113.9`}, want: "10.0.0.1"},
	} {
		h, md := http.Header{}, map[string][]string{}
		for name, lines := range map[string][]string{"Forwarded": x.forwarded, "X-Forwarded-For": x.plain} {
			for _, l := range lines {
				h.Add(name, l)
				md[map[string]string{"Forwarded": "forwarded", "X-Forwarded-For": "x-forwarded-for"}[name]] = lines
			}
		}
		for form, headers := range map[string]Headers{"HTTP": HTTP(h), "metadata": Metadata(md)} {
			t.Run(x.name+" in "+form, func(t *testing.T) {
				g := New(Config{Proxies: proxies, Auth: fakeAuth(func(_, addr string) (*toolkeep.Principal, error) {
					return &toolkeep.Principal{Addr: addr}, nil
				})})
				p, err := g.Authenticate(t.Context(), &Request{Headers: headers, Peer: x.peer})
				if err != nil || p.Addr != x.want {
					t.Errorf("%+v %v, want %q", p, err, x.want)
				}
			})
		}
	}
}

func FuzzForwarded(f *testing.F) {
	for _, s := range []string{`for=1.2.3.4, for="[::1]:80";proto=https`, `for="\`, `a=b;for=`, `,`, `for=1.2.3.4 x`} {
		f.Add(s)
	}
	p := Proxies{netip.MustParsePrefix("10.0.0.0/8")}
	f.Fuzz(func(t *testing.T, line string) {
		// What a proxy appends counts, whatever the client sent on a line of its own.
		got := p.client(HTTP(http.Header{"Forwarded": {line, "for=198.51.100.1"}}), "10.0.0.1")
		if got != "198.51.100.1" {
			t.Errorf("%q", got)
		}
	})
}
