package tokenexchange

import (
	"strconv"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/secret"
)

// CheckManifest returns the faults of a manifest's minted auth entries, including additional ones (settings.also):
// invalid settings, and a plain http token endpoint on a host that permissions.network does not name. Pointers are
// from the manifest's root.
func CheckManifest(m *toolkeep.Manifest) []toolkeep.Fault {
	var allow []toolkeep.HostPort
	if m.Permissions != nil {
		allow = m.Permissions.Network
	}
	var faults []toolkeep.Fault
	for i, spec := range m.Auth {
		for j, s := range secret.Entries(spec) {
			if !Mints(s.Type) {
				continue
			}
			at := "/auth/" + strconv.Itoa(i)
			if j > 0 {
				at += "/settings/also/" + strconv.Itoa(j-1)
			}
			for _, f := range checkEntry(s, allow) {
				f.Pointer = at + f.Pointer
				faults = append(faults, f)
			}
		}
	}
	return faults
}

func checkEntry(spec toolkeep.AuthSpec, allow []toolkeep.HostPort) []toolkeep.Fault {
	s := settings{spec: spec}
	u := s.check()
	if u == nil || len(s.faults) > 0 {
		return s.faults
	}
	if err := checkEndpoint(u, allow); err != nil {
		_, pointer := s.endpoint()
		s.fault(pointer, "format", toolkeep.AsError(err).Message)
	}
	if s.idp != nil {
		if err := checkEndpoint(s.idp, allow); err != nil {
			s.fault("/settings/idp_token_url", "format", toolkeep.AsError(err).Message)
		}
	}
	return s.faults
}
