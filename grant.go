package toolkeep

import (
	"log/slog"
	"path"
	"reflect"
	"slices"
	"strings"
)

// CapabilityToken is the text of a capability token as a caller sent it. A caller that
// holds it may use it, so it never prints, marshals or logs as what it is.
type CapabilityToken string

const hiddenToken = "[capability token]"

func (CapabilityToken) String() string               { return hiddenToken }
func (CapabilityToken) GoString() string             { return hiddenToken }
func (CapabilityToken) LogValue() slog.Value         { return slog.StringValue(hiddenToken) }
func (CapabilityToken) MarshalText() ([]byte, error) { return []byte(hiddenToken), nil }

// Grant is what a verified capability token allows at most (Platform 4.1.1). It only
// narrows: roles, scope and risk decide as they do without it. A list that is nil does not
// narrow, an empty one allows nothing. A Grant is immutable.
type Grant struct {
	ID      string   `json:"jti"`                   // for revocation
	Parents []string `json:"parent_jtis,omitempty"` // ids of the tokens it was made from, the oldest first
	Issuer  string   `json:"iss"`
	Agent   string   `json:"agent_did"`
	Tenant  string   `json:"tenant_id"`
	// Tools are patterns on tool ids (path.Match syntax).
	Tools      []string         `json:"tool_id"`
	Version    string           `json:"tool_version,omitempty"` // SemVer range; "" allows every version
	Operations []string         `json:"allowed_operations,omitzero"`
	Files      *FileGrant       `json:"filesystem_permissions,omitempty"`
	Network    *NetworkGrant    `json:"network_permissions,omitempty"`
	Secrets    *CredentialGrant `json:"credential_permissions,omitempty"`
}

// Operations of a token. Other names allow nothing.
const (
	OperationExecute = "execute" // call a tool
	OperationRead    = "read"    // call a tool whose side_effects are none or reads
)

// FileGrant allows paths: each is an absolute folder or file and everything below it.
type FileGrant struct {
	Paths []string `json:"allowed_paths"`
	Mode  string   `json:"mode,omitempty"` // ro (the default) or rw
}

// Write reports whether files may be changed.
func (g *FileGrant) Write() bool { return g.Mode == "rw" }

// NetworkGrant allows hosts: each is a name, an address, or *.NAME for every name below
// NAME. Ports are the allowed ports; nil allows all.
type NetworkGrant struct {
	Hosts []string `json:"allowed_hosts"`
	Ports []int    `json:"allowed_ports,omitzero"`
}

// CredentialGrant allows secrets by their references as manifests write them, such as
// env://NAME. A name alone is secret://NAME.
type CredentialGrant struct {
	Secrets []string `json:"allowed_secrets"`
}

// AllowsTool reports whether a tool's id matches one of the patterns.
func (g *Grant) AllowsTool(id string) bool {
	return slices.ContainsFunc(g.Tools, func(pattern string) bool {
		ok, err := path.Match(pattern, id)
		return ok && err == nil
	})
}

// AllowsOperation reports whether a tool that writes, or one that does not, may be called.
func (g *Grant) AllowsOperation(writes bool) bool {
	return g.Operations == nil || slices.Contains(g.Operations, OperationExecute) || !writes && slices.Contains(g.Operations, OperationRead)
}

// AllowsHost reports whether calls may connect to a host, without brackets, and a port. A
// nil Grant allows every host.
func (g *Grant) AllowsHost(host string, port int) bool {
	if g == nil || g.Network == nil {
		return true
	}
	if g.Network.Ports != nil && !slices.Contains(g.Network.Ports, port) {
		return false
	}
	return slices.ContainsFunc(g.Network.Hosts, func(pattern string) bool { return HostWithin(host, pattern) })
}

// HostWithin reports whether a host, or everything that a pattern *.NAME allows, is within a
// pattern.
func HostWithin(host, pattern string) bool {
	host, pattern = strings.ToLower(strings.TrimSuffix(host, ".")), strings.ToLower(strings.TrimSuffix(pattern, "."))
	if host == pattern {
		return host != ""
	}
	below, wild := strings.CutPrefix(pattern, "*")
	return wild && len(host) > len(below) && strings.HasSuffix(host, below)
}

// AllowsSecret reports whether calls may use the secret of a reference. A nil Grant allows
// every secret.
func (g *Grant) AllowsSecret(ref string) bool {
	if g == nil || g.Secrets == nil || slices.Contains(g.Secrets.Secrets, ref) {
		return true
	}
	name, stored := strings.CutPrefix(ref, "secret://")
	return stored && slices.Contains(g.Secrets.Secrets, name)
}

// Permissions reports whether the token narrows files, network or secrets.
func (g *Grant) Permissions() bool {
	return g != nil && (g.Files != nil || g.Network != nil || g.Secrets != nil)
}

// SamePermissions reports whether two tokens narrow files, network and secrets alike. Lists in
// another order count as others.
func (g *Grant) SamePermissions(o *Grant) bool {
	if !g.Permissions() || !o.Permissions() {
		return g.Permissions() == o.Permissions()
	}
	return reflect.DeepEqual(g.Files, o.Files) && reflect.DeepEqual(g.Network, o.Network) && reflect.DeepEqual(g.Secrets, o.Secrets)
}
