package servers

import "testing"

func TestOwnAddresses(t *testing.T) {
	s := New(Config{Addresses: func() []string {
		return []string{"http://127.0.0.1:8080", "https://tools.example", "https://10.0.0.7:8080", ""}
	}})
	for address, own := range map[string]bool{
		"http://127.0.0.1:8080/mcp": true, "http://localhost:8080/mcp": true, "http://[::1]:8080": true, "http://0.0.0.0:8080/mcp": true,
		"https://Tools.Example/mcp": true, "https://tools.example.:443/mcp/sets/a": true, "https://10.0.0.7:8080/mcp": true,
		"http://127.0.0.1:8081/mcp": false, "https://tools.example:8443/mcp": false, "https://other.example/mcp": false, "http://10.0.0.8:8080": false,
		"": false, "::": false, "localhost:8080": false,
	} {
		if got := s.atOwn(address); got != own {
			t.Errorf("%q: %t", address, got)
		}
	}
	for _, none := range []Config{{}, {Addresses: func() []string { return []string{"", "http:///mcp"} }}} {
		if New(none).atOwn("http:///mcp") {
			t.Error("a server without an address takes one for its own")
		}
	}
}
