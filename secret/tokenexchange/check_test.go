package tokenexchange

import (
	"testing"

	"github.com/toolkeep/toolkeep"
)

// TestCheckManifest tests entries that would fail only at the first call.
func TestCheckManifest(t *testing.T) {
	entry := func(kind string, change func(*toolkeep.AuthSpec)) toolkeep.AuthSpec {
		s := toolkeep.AuthSpec{Type: kind, Secret: "secret://x", TokenURL: "https://auth.example/token", Scopes: []string{"a"}}
		if change != nil {
			change(&s)
		}
		return s
	}
	with := func(also any) *toolkeep.AuthSpec {
		return &toolkeep.AuthSpec{Type: "api_key", Name: "X-Key", Secret: "secret://k", Settings: map[string]any{"also": []any{also}}}
	}
	for name, tt := range map[string]struct {
		auth []toolkeep.AuthSpec
		want string // pointer of the only fault; "" is none
	}{
		"none":         {[]toolkeep.AuthSpec{{Type: "none"}, {Type: "bearer"}}, ""},
		"good":         {[]toolkeep.AuthSpec{entry(ClientCredentials, nil), entry(Refresh, nil), entry(GoogleAccount, nil), entry(AzureAD, nil)}, ""},
		"google's own": {[]toolkeep.AuthSpec{entry(GoogleAccount, func(s *toolkeep.AuthSpec) { s.TokenURL = "" })}, ""},
		"ftp":          {[]toolkeep.AuthSpec{{Type: "none"}, entry(AzureAD, func(s *toolkeep.AuthSpec) { s.TokenURL = "ftp://login.example/token" })}, "/auth/1/token_url"},
		"authority": {[]toolkeep.AuthSpec{entry(AzureAD, func(s *toolkeep.AuthSpec) {
			s.TokenURL = ""
			s.Settings = map[string]any{"tenant": "t", "authority": "ftp://x"}
		})}, "/auth/0/settings/authority"},
		"no tenant":    {[]toolkeep.AuthSpec{entry(AzureAD, func(s *toolkeep.AuthSpec) { s.TokenURL = "" })}, "/auth/0/settings/tenant"},
		"no scope":     {[]toolkeep.AuthSpec{entry(AzureAD, func(s *toolkeep.AuthSpec) { s.Scopes = nil })}, "/auth/0/scopes"},
		"no address":   {[]toolkeep.AuthSpec{entry(ClientCredentials, func(s *toolkeep.AuthSpec) { s.TokenURL = "" })}, "/auth/0/token_url"},
		"in the clear": {[]toolkeep.AuthSpec{entry(Refresh, func(s *toolkeep.AuthSpec) { s.TokenURL = "http://other.example/token" })}, "/auth/0/token_url"},
		"in a setting": {[]toolkeep.AuthSpec{entry(Refresh, func(s *toolkeep.AuthSpec) {
			s.TokenURL = ""
			s.Settings = map[string]any{"token_url": "http://other.example"}
		})}, "/auth/0/settings/token_url"},
		"named host":     {[]toolkeep.AuthSpec{entry(Refresh, func(s *toolkeep.AuthSpec) { s.TokenURL = "http://inner.example:81/token" })}, ""},
		"goes with it":   {[]toolkeep.AuthSpec{*with(map[string]any{"type": AzureAD, "secret": "secret://x", "settings": map[string]any{"tenant": "t"}})}, "/auth/0/settings/also/0/scopes"},
		"reserved param": {[]toolkeep.AuthSpec{entry(ClientCredentials, func(s *toolkeep.AuthSpec) { s.Settings = map[string]any{"params": map[string]any{"scope": "x"}} })}, "/auth/0/settings/params/scope"},
	} {
		t.Run(name, func(t *testing.T) {
			m := &toolkeep.Manifest{Auth: tt.auth, Permissions: &toolkeep.Permissions{Network: []toolkeep.HostPort{{Host: "inner.example", Port: 81}}}}
			faults := CheckManifest(m)
			switch {
			case tt.want == "" && len(faults) > 0, tt.want != "" && (len(faults) != 1 || faults[0].Pointer != tt.want || faults[0].Message == "" || faults[0].Rule == ""):
				t.Errorf("faults %+v, want one at %q", faults, tt.want)
			}
		})
	}
}
