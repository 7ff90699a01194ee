package httptool

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/toolkeep/toolkeep"
)

// watched returns a tool whose health has an endpoint.
func watched(t *testing.T, server, endpoint string, network ...toolkeep.HostPort) *toolkeep.Tool {
	t.Helper()
	m := manifest(t, server, `{"method":"POST","server":"SERVER/v1","path":"/"}`)
	m.Health = &toolkeep.HealthSpec{Endpoint: endpoint, IntervalS: 30}
	m.Permissions = &toolkeep.Permissions{Network: network}
	return &toolkeep.Tool{ID: "a.b", Manifest: m}
}

func local(t *testing.T, server string) toolkeep.HostPort {
	t.Helper()
	u, err := url.Parse(server)
	if err != nil {
		t.Fatal(err)
	}
	port, _ := strconv.Atoi(u.Port())
	return toolkeep.HostPort{Host: u.Hostname(), Port: port}
}

func TestProbe(t *testing.T) {
	var asked atomic.Pointer[http.Request]
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked.Store(r)
		switch r.URL.Path {
		case "/moved":
			http.Redirect(w, r, "/up", http.StatusFound)
		case "/down":
			w.WriteHeader(http.StatusServiceUnavailable)
		case "/login":
			w.WriteHeader(http.StatusUnauthorized)
		case "/endless":
			for r.Context().Err() == nil {
				if _, err := io.WriteString(w, strings.Repeat("x", 32<<10)); err != nil {
					return
				}
			}
		case "/silent":
			<-r.Context().Done()
		}
	}))
	defer s.Close()
	here := local(t, s.URL)
	e := newExecutor(t)
	for endpoint, want := range map[string]toolkeep.Code{
		"/up": "", "/up?deep=1": "", s.URL + "/up": "", "/endless": "",
		"/moved": toolkeep.InvalidResponse, "/down": toolkeep.UpstreamServerError, "/login": toolkeep.UpstreamClientError,
	} {
		tool := watched(t, s.URL, endpoint, here)
		tool.Manifest.Auth = []toolkeep.AuthSpec{{Type: "bearer", Secret: "secret://x"}}
		if faults := e.CheckProbe(tool.Manifest); len(faults) > 0 {
			t.Errorf("%s: %+v", endpoint, faults)
		}
		err := e.Probe(t.Context(), tool)
		if want == "" && err != nil || want != "" && (err == nil || toolkeep.AsError(err).Code != want) {
			t.Errorf("%s: %v, want %s", endpoint, err, want)
		}
		r := asked.Load()
		if path, _, _ := strings.Cut(strings.TrimPrefix(endpoint, s.URL), "?"); r.URL.Path != path || r.Method != "GET" || r.Header.Get("Authorization") != "" {
			t.Errorf("%s asked %s %s %v", endpoint, r.Method, r.URL, r.Header)
		}
	}

	for _, tool := range []*toolkeep.Tool{watched(t, s.URL, "/up"), watched(t, s.URL, "/up", toolkeep.HostPort{Host: here.Host, Port: here.Port + 1})} {
		if err := e.Probe(t.Context(), tool); err == nil || toolkeep.AsError(err).Code != toolkeep.DestinationForbidden {
			t.Errorf("an inner address that the manifest does not list: %v", err)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if err := e.Probe(ctx, watched(t, s.URL, "/silent", here)); err == nil || toolkeep.AsError(err).Code != toolkeep.UpstreamTimeout {
		t.Errorf("no answer in time: %v", err)
	}

	// Another kind of tool has no server of its own, and the guard holds for it too.
	other := watched(t, s.URL, s.URL+"/up", here)
	other.Manifest.Execution = toolkeep.ExecutionSpec{Kind: "grpc"}
	if err := e.Probe(t.Context(), other); err != nil || len(e.CheckProbe(other.Manifest)) > 0 {
		t.Errorf("a tool of kind grpc: %v", err)
	}
	other.Manifest.Permissions = nil
	if err := e.Probe(t.Context(), other); err == nil || toolkeep.AsError(err).Code != toolkeep.InvalidManifest {
		t.Errorf("a host that the manifest does not list: %v", err)
	}
	s.Close()
	if err := e.Probe(t.Context(), watched(t, s.URL, "/up", here)); err == nil || toolkeep.AsError(err).Code != toolkeep.NetworkError {
		t.Errorf("no server: %v", err)
	}
}

func TestCheckProbe(t *testing.T) {
	e := newExecutor(t)
	const server = "https://api.example.com"
	listed := []toolkeep.HostPort{{Host: "Status.example.com", Port: 8443}, {Host: "any.example.com"}}
	for endpoint, words := range map[string]string{
		"/up": "", "/v1/up?x=1": "", server + "/up": "", "https://API.example.com:443/up": "", "https://status.example.com:8443/": "", "http://any.example.com:9/": "",
		"":                                "1 to 2048 bytes",
		"/" + strings.Repeat("x", 2048):   "1 to 2048 bytes",
		"up":                              "begin with /",
		"https://user:pw@api.example.com": "without a user",
		"/up#x":                           "without a user, a password and a fragment",
		"ftp://api.example.com/":          "absolute http or https URL",
		"https://":                        "absolute http or https URL",
		"https://api.example.com:8080/":   `add {"host": "api.example.com", "port": 8080} to permissions.network`,
		"https://status.example.com/":     `add {"host": "status.example.com", "port": 443}`,
		"https://169.254.169.254/latest":  "is not the tool's server",
		"%zz":                             "must be a URL or a path",
	} {
		faults := e.CheckProbe(watched(t, server, endpoint, listed...).Manifest)
		switch {
		case words == "" && len(faults) > 0, words != "" && (len(faults) != 1 || faults[0].Pointer != "/health/endpoint" || !strings.Contains(faults[0].Message, words)):
			t.Errorf("%.80q: %+v, want %q", endpoint, faults, words)
		}
	}
	grpc := watched(t, server, "/up").Manifest
	grpc.Execution = toolkeep.ExecutionSpec{Kind: "grpc"}
	if faults := e.CheckProbe(grpc); len(faults) != 1 || !strings.Contains(faults[0].Message, "kind grpc has no HTTP server") {
		t.Errorf("a path of a tool without a server: %+v", faults)
	}
}
