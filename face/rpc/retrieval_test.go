package rpc

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/discover"
	"github.com/toolkeep/toolkeep/proto/l03v1"
)

func TestToolContext(t *testing.T) {
	s, seen := newSystem(), make(recorder, 1)
	s.Retrievals = seen
	c := l03v1.NewToolRetrievalClient(s.start(t))
	res, err := c.ToolContext(as(t.Context(), "agent", "x-session-id", "s-1"), &l03v1.ToolContextRequest{Phase: "tool_selection", Format: l03v1.ToolContextRequest_MARKDOWN,
		Messages: []*l03v1.ContextMessage{{Role: "user", Content: "text"}, {Role: "assistant", ToolCalls: []string{"demo.text"}}}})
	if err != nil {
		t.Fatal(err)
	}
	var meta struct{ Phase string }
	if err := json.Unmarshal(res.GetMetadataJson(), &meta); err != nil || meta.Phase != "tool_selection" || len(res.GetContextJson()) != 0 ||
		!strings.Contains(res.GetMarkdown(), "demo.text") || strings.Contains(res.GetMarkdown(), "demo.other") || res.GetRetrievalId() != "retrieval-of-agent" {
		t.Errorf("%v %v", res, err)
	}
	if got := <-seen; got.Session != (discover.Session{Tenant: "t", Subject: "agent", ID: "s-1"}) || got.Face != "grpc" || got.Query != "text" {
		t.Errorf("%+v", got)
	}
	for name, x := range map[string]struct {
		msg  *l03v1.ToolContextRequest
		code toolkeep.Code
	}{
		"two sessions":        {&l03v1.ToolContextRequest{Query: "text", SessionId: "s-2"}, toolkeep.MalformedRequest},
		"a format of later":   {&l03v1.ToolContextRequest{Query: "text", Format: 7}, toolkeep.InvalidParameters},
		"too many tools":      {&l03v1.ToolContextRequest{Query: "text", ToolIds: make([]string, 21)}, toolkeep.InvalidParameters},
		"a large budget":      {&l03v1.ToolContextRequest{Query: "text", Budget: 1 << 31}, toolkeep.InvalidParameters},
		"a long conversation": {&l03v1.ToolContextRequest{Messages: many(501)}, toolkeep.InvalidParameters},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := c.ToolContext(as(t.Context(), "agent", "x-session-id", "s-1"), x.msg)
			wantCode(t, err, x.code)
		})
	}
}

func many(n int) []*l03v1.ContextMessage {
	out := make([]*l03v1.ContextMessage, n)
	for i := range out {
		out[i] = &l03v1.ContextMessage{Role: "user"}
	}
	return out
}

func TestWithoutASearchThereIsNoContext(t *testing.T) {
	s := newSystem()
	s.Search = nil
	c := l03v1.NewToolRetrievalClient(s.start(t))
	_, err := c.ToolContext(as(t.Context(), "agent"), &l03v1.ToolContextRequest{Query: "text"})
	wantCode(t, err, toolkeep.IndexUnavailable)
	_, err = c.Feedback(as(t.Context(), "agent"), &l03v1.FeedbackRequest{Query: "text", ToolSelected: "demo.text"})
	wantCode(t, err, toolkeep.IndexUnavailable)
}
