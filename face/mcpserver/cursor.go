package mcpserver

import (
	"encoding/base64"

	"github.com/toolkeep/toolkeep/mcp"
)

// A cursor is the key of the last entry shown, so if the list changes between two pages no other
// entry is lost or repeated.

func cursorAfter(key string) string { return base64.RawURLEncoding.EncodeToString([]byte("1" + key)) }

// cursor reads where a list continues; "" is the start.
func (s *Server) cursor(m *mcp.Message) (after string, err error) {
	raw := mcp.Get(m.Params, "cursor")
	if mcp.IsNull(raw) {
		return "", nil
	}
	text, ok := mcp.Unquote(raw)
	if ok && text == "" {
		return "", nil
	}
	if ok && len(text) <= s.limits.KeyBytes {
		if key, err := base64.RawURLEncoding.DecodeString(text); err == nil && len(key) > 1 && key[0] == '1' {
			return string(key[1:]), nil
		}
	}
	return "", mcp.NewError(mcp.CodeInvalidParams, "the cursor is not from this server; start the list again without one")
}
