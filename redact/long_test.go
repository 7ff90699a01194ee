//go:build !race

package redact_test

import (
	"strings"
	"testing"

	"github.com/toolkeep/toolkeep/redact"
)

// TestTextOfBeginnings cleans a megabyte of repeated token prefixes. If any of it were scanned more than a few
// times, the test would not end.
func TestTextOfBeginnings(t *testing.T) {
	s := redact.NewSecrets(nil)
	s.Hold("aaaaaaaa")
	for want, units := range map[string][]string{
		"": { // as it was
			"sk-", "eyJ-", "-eyJ", "basic+", "bearer ", "://a:", "a://", "ghp_", "AKIA", `\`, "%", "+",
			"-AIza.", "ya29. ", "xoxb- ", "xoxb-a", "secret_access_key", "Bearer", "SecretAccessKey ", "&", "&amp;", "&amp", "&a", "&;",
		},
		redact.Marker:       {"-----BEGIN PRIVATE KEY-----", "tk_", "a", `\u0061`, "%61", "&#97;", "&#97", "&#x61;%61"},
		"-" + redact.Marker: {"-tk_"},
	} {
		for _, unit := range units {
			text := strings.Repeat(unit, (1<<20)/len(unit))
			if got := s.Clean(text); got != want && (want != "" || got != text) {
				t.Errorf("%s over and over gives %.80s, %d bytes", unit, got, len(got))
			}
		}
	}
}
