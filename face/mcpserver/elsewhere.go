package mcpserver

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"io"
	"net/http"
	"slices"
	"strings"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/mcp"
)

// forwardedBy marks a request forwarded by another node. This node always answers it, so requests
// cannot loop.
const forwardedBy = "Toolkeep-Forwarded-By"

// Tag returns the short form of a node's name used in the ids that clients carry.
func Tag(node string) string { return tagOf(nodeID(node)) }

func tagOf(id [16]byte) string { return hex.EncodeToString(id[:6]) }

// sessionNode returns the tag of the node that created a session id, "" if there is none.
func sessionNode(id string) string {
	tag, _, ok := strings.Cut(id, ".")
	if !ok {
		return ""
	}
	return tag
}

// stateNode returns the tag of the node where a requestState's call waits, "" if the state is not
// ours.
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

// elsewhere forwards a request to the node of the tag. It returns false for this node and for an
// unknown one: then the session is gone and the client starts a new one. body is the part of the
// request already read, which is all of it, and list its messages: only a POST has a body. p is the
// caller.
func (s *Server) elsewhere(w http.ResponseWriter, r *http.Request, p *toolkeep.Principal, tag string, body []byte, list []*mcp.Message) bool {
	if tag == "" || s.c.Forward == nil || tag == tagOf(s.node) || r.Header.Get(forwardedBy) != "" {
		return false
	}
	r.Header.Set(forwardedBy, tagOf(s.node))
	r.Header.Set("X-Request-Id", w.Header().Get("X-Request-Id"))
	r.Body, r.ContentLength, r.TransferEncoding = http.NoBody, int64(len(body)), nil
	if len(body) > 0 {
		r.Body = io.NopCloser(bytes.NewReader(body))
	}
	if err := s.gate.HandOver(r, p, body); err != nil {
		s.refuse(w, r, err, 0)
		return true
	}
	err := s.c.Forward(w, r, tag)
	if errors.Is(err, toolkeep.ErrNotFound) {
		return false
	}
	if err != nil {
		s.refuse(w, r, unknownIfSent(err, list), 0)
	}
	return true
}

// unknownIfSent is E3909 for a call that was sent to a node which then did not answer: it may have been
// carried out, so it is no refusal. All other requests may be repeated.
func unknownIfSent(err error, list []*mcp.Message) error {
	e := toolkeep.AsError(err)
	if e.Code != toolkeep.NodeUnavailable || e.NothingSent || !slices.ContainsFunc(list, func(m *mcp.Message) bool { return m.Method == mcp.MethodCallTool }) {
		return err
	}
	return toolkeep.NewError(toolkeep.OutcomeUnknown,
		"the node that has this MCP session does not answer, and the call may have been carried out there; repeat it only if it reads, or with the same idempotency key").Because(err)
}
