package mcpserver

import "net/http"

// bearer returns a client that authenticates every request.
func bearer(key string) *http.Client { return &http.Client{Transport: bearerTransport(key)} }

type bearerTransport string

func (b bearerTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("Authorization", "Bearer "+string(b))
	return http.DefaultTransport.RoundTrip(r)
}
