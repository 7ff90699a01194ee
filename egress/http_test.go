package egress

import (
	"net/http"
	"net/url"
	"testing"
	"time"
)

func TestRetryAfter(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	for value, want := range map[string]time.Duration{
		"": 0, "0": 0, "-3": 0, "1.5": 0, "soon": 0, " 7 ": 7 * time.Second, "3600": time.Hour, "3601": time.Hour,
		"9223372036854775807": time.Hour, "99999999999999999999": 0,
		now.Add(time.Minute).Format(http.TimeFormat):    time.Minute,
		now.Add(-time.Minute).Format(http.TimeFormat):   0,
		now.Add(48 * time.Hour).Format(http.TimeFormat): time.Hour,
	} {
		if got := RetryAfter(value, now); got != want {
			t.Errorf("RetryAfter(%q) = %v, want %v", value, got, want)
		}
	}
}

func TestSameOrigin(t *testing.T) {
	for _, tt := range []struct {
		a, b string
		want bool
	}{
		{"https://a.example/x", "https://A.example:443/y", true},
		{"http://a.example", "http://a.example:80", true},
		{"http://a.example", "https://a.example", false},
		{"https://a.example", "https://a.example:80", false},
		{"https://a.example", "https://b.example", false},
	} {
		a, _ := url.Parse(tt.a)
		b, _ := url.Parse(tt.b)
		if got := SameOrigin(a, b); got != tt.want {
			t.Errorf("SameOrigin(%s, %s) = %v", tt.a, tt.b, got)
		}
	}
}

func TestHTTPWords(t *testing.T) {
	for path, want := range map[string]bool{"/a/b": false, "/a/../b": true, "/a/%2e%2E/b": true, "/.": true, "/a..b/c.": false, "/%zz": true} {
		if HasDotSegments(path) != want {
			t.Errorf("HasDotSegments(%q) = %v", path, !want)
		}
	}
	for s, want := range map[string]bool{"": false, "X-A_b.1": true, "a b": false, "a:b": false, "ü": false, "@": false, "[": false} {
		if IsToken(s) != want {
			t.Errorf("IsToken(%q) = %v", s, !want)
		}
	}
	for s, want := range map[string]bool{"application/json": true, "Text/JSON; charset=utf-8": true, "application/problem+json": true, "image/svg+xml": false, "text/x+json": false, "": false} {
		if IsJSON(MediaType(s)) != want {
			t.Errorf("IsJSON(MediaType(%q)) = %v", s, !want)
		}
	}
}
