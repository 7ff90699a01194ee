package mcpserver

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"io"
	"net/http"
	"strings"

	"github.com/toolkeep/toolkeep/mcp"
)

// forwardedBy marks a request that another node handed over: it is answered here,
// whatever it is, so that no request goes in a circle.
const forwardedBy = "Toolkeep-Forwarded-By"

// Tag is what stands for a node's name in the ids that clients carry.
func Tag(node string) string { return tagOf(nodeID(node)) }

func tagOf(id [16]byte) string { return hex.EncodeToString(id[:6]) }

// sessionNode is the tag of the node that made a session's id, "" for none.
func sessionNode(id string) string {
	tag, _, ok := strings.Cut(id, ".")
	if !ok {
		return ""
	}
	return tag
}

// stateNode is the tag of the node at which a requestState's call waits, "" where
// the state is none of ours.
func (s *Server) stateNode(raw []byte) string {
	text, ok := mcp.Unquote(raw)
	if !ok || len(text) > 4*stateSize {
		return ""
	}
	sealed, err := base64.RawURLEncoding.DecodeString(text)
	if err != nil {
		return ""
	}
	plain, err := s.c.Sealer.Open(sealed, stateContext)
	if err != nil || len(plain) != stateSize {
		return ""
	}
	return tagOf([16]byte(plain[1:]))
}

// elsewhere hands a request to the node of the tag. It is false where that is this
// node, or one that is not known: the session is gone then, and the client makes a
// new one. body is what was read of the request.
func (s *Server) elsewhere(w http.ResponseWriter, r *http.Request, tag string, body []byte) bool {
	if tag == "" || s.c.Forward == nil || tag == tagOf(s.node) || r.Header.Get(forwardedBy) != "" {
		return false
	}
	r.Header.Set(forwardedBy, tagOf(s.node))
	if body != nil {
		r.Body = io.NopCloser(bytes.NewReader(body))
		r.ContentLength = int64(len(body))
		r.TransferEncoding = nil
	}
	return s.c.Forward(w, r, tag)
}
