package mcp

import (
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"strings"
)

// Protocol revisions.
const (
	V20241105 = "2024-11-05"
	V20250326 = "2025-03-26"
	V20250618 = "2025-06-18"
	V20251125 = "2025-11-25"
	V20260728 = "2026-07-28"

	// Latest is the newest known revision, LatestLegacy the newest that begins with
	// initialize.
	Latest       = V20260728
	LatestLegacy = V20251125
)

var supported = []string{V20260728, V20251125, V20250618, V20250326, V20241105}

// Supported returns the revisions, newest first.
func Supported() []string { return slices.Clone(supported) }

// Known reports whether the revision is one of Supported.
func Known(v string) bool { return slices.Contains(supported, v) }

// Modern reports whether v is revision 2026-07-28 or later: no initialize, no session,
// and a _meta in every request that identifies the client. It is false if v is not a
// date.
func Modern(v string) bool {
	if len(v) != len(V20260728) || v[4] != '-' || v[7] != '-' {
		return false
	}
	return v >= V20260728 && v[0] <= '9'
}

// Negotiate returns a server's answer to the revision requested by initialize: that
// revision if it is known and legacy, else LatestLegacy.
func Negotiate(asked string) string {
	if Known(asked) && !Modern(asked) {
		return asked
	}
	return LatestLegacy
}

// Methods.
const (
	MethodInitialize            = "initialize" // up to 2025-11-25
	MethodDiscover              = "server/discover"
	MethodPing                  = "ping"
	MethodListTools             = "tools/list"
	MethodCallTool              = "tools/call"
	MethodListPrompts           = "prompts/list"
	MethodGetPrompt             = "prompts/get"
	MethodListResources         = "resources/list"
	MethodListResourceTemplates = "resources/templates/list"
	MethodReadResource          = "resources/read"
	MethodSubscribe             = "resources/subscribe"
	MethodUnsubscribe           = "resources/unsubscribe"
	MethodListen                = "subscriptions/listen" // from 2026-07-28
	MethodComplete              = "completion/complete"
	MethodSetLevel              = "logging/setLevel"
	MethodGetTask               = "tasks/get"
	MethodTaskResult            = "tasks/result"
	MethodListTasks             = "tasks/list"
	MethodUpdateTask            = "tasks/update"
	MethodCancelTask            = "tasks/cancel"

	// Requests from a server to its client.
	MethodListRoots     = "roots/list"
	MethodCreateMessage = "sampling/createMessage"
	MethodElicit        = "elicitation/create"
)

// Notifications.
const (
	NotificationInitialized         = "notifications/initialized"
	NotificationCancelled           = "notifications/cancelled"
	NotificationProgress            = "notifications/progress"
	NotificationMessage             = "notifications/message" // a log line
	NotificationToolsChanged        = "notifications/tools/list_changed"
	NotificationPromptsChanged      = "notifications/prompts/list_changed"
	NotificationResourcesChanged    = "notifications/resources/list_changed"
	NotificationResourceUpdated     = "notifications/resources/updated"
	NotificationRootsChanged        = "notifications/roots/list_changed"
	NotificationElicitationComplete = "notifications/elicitation/complete"
	NotificationSubscriptionsAck    = "notifications/subscriptions/acknowledged"
	NotificationTaskStatus          = "notifications/tasks/status"
)

// knownMethods lets Parse return a method name without a copy.
var knownMethods = func() map[string]string {
	m := make(map[string]string)
	for _, name := range []string{
		MethodInitialize, MethodDiscover, MethodPing, MethodListTools, MethodCallTool, MethodListPrompts,
		MethodGetPrompt, MethodListResources, MethodListResourceTemplates, MethodReadResource, MethodSubscribe,
		MethodUnsubscribe, MethodListen, MethodComplete, MethodSetLevel, MethodGetTask, MethodTaskResult,
		MethodListTasks, MethodUpdateTask, MethodCancelTask, MethodListRoots, MethodCreateMessage, MethodElicit,
		NotificationInitialized, NotificationCancelled, NotificationProgress, NotificationMessage,
		NotificationToolsChanged, NotificationPromptsChanged, NotificationResourcesChanged,
		NotificationResourceUpdated, NotificationRootsChanged, NotificationElicitationComplete,
		NotificationSubscriptionsAck, NotificationTaskStatus,
	} {
		m[name] = name
	}
	return m
}()

// Keys of _meta.
const (
	MetaProtocolVersion    = "io.modelcontextprotocol/protocolVersion"
	MetaClientInfo         = "io.modelcontextprotocol/clientInfo"
	MetaClientCapabilities = "io.modelcontextprotocol/clientCapabilities"
	MetaServerInfo         = "io.modelcontextprotocol/serverInfo"
	MetaLogLevel           = "io.modelcontextprotocol/logLevel"
	MetaSubscriptionID     = "io.modelcontextprotocol/subscriptionId"
	MetaProgressToken      = "progressToken"
)

// ToolName turns a tool id, namespace.name, into a name that every MCP client and model
// accepts: namespace__name, of [A-Za-z0-9_-] and at most 64 characters. A namespace has
// no underscore, so two ids never share a name, except ids that are too long: these get
// NameWithHash, which another tool may deliberately be named.
func ToolName(id string) string {
	if name := plainName(id); len(name) <= MaxToolName {
		return name
	}
	return NameWithHash(id)
}

// NameWithHash returns a name that is unique to the tool id: as much of namespace__name
// as fits, an underscore and 12 hex digits of the id's SHA-256.
func NameWithHash(id string) string {
	sum := sha256.Sum256([]byte(id))
	name := plainName(id)
	return name[:min(len(name), MaxToolName-hashSize)] + "_" + hex.EncodeToString(sum[:6])
}

// MaxToolName is the longest name in bytes.
const MaxToolName = 64

// hashSize is the length of what NameWithHash appends.
const hashSize = 13

// WithoutHash returns what a name of NameWithHash has before its hash; ok is false if it has none.
func WithoutHash(name string) (rest string, ok bool) {
	i := len(name) - hashSize
	if i <= 0 || name[i] != '_' {
		return "", false
	}
	_, err := hex.DecodeString(name[i+1:])
	return name[:i], err == nil
}

// plainName also replaces characters that are invalid in a tool id.
func plainName(id string) string {
	id = strings.Replace(id, ".", "__", 1)
	for i := 0; i < len(id); i++ {
		if !nameByte(id[i]) {
			b := []byte(id)
			for j := i; j < len(b); j++ {
				if !nameByte(b[j]) {
					b[j] = '_'
				}
			}
			return string(b)
		}
	}
	return id
}

func nameByte(c byte) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || c == '_' || c == '-'
}
