package rpc

import (
	"context"
	"slices"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/discover"
	"github.com/toolkeep/toolkeep/discover/usage"
	"github.com/toolkeep/toolkeep/proto/l03v1"
)

type recorder chan usage.Retrieval

func (c recorder) Retrieved(p *toolkeep.Principal, r usage.Retrieval) string {
	c <- r
	return "retrieval-of-" + p.Subject
}

func (c recorder) Feedback(context.Context, *toolkeep.Principal, usage.Feedback) (string, bool, error) {
	return "", false, nil
}

// TestSearchesAreRecorded: both search methods return the search id in the header.
func TestSearchesAreRecorded(t *testing.T) {
	s, seen := newSystem(), make(recorder, 1)
	s.Retrievals = seen
	r := l03v1.NewToolRegistryClient(s.start(t))
	ctx := as(t.Context(), "agent")
	for name, search := range map[string]func(...grpc.CallOption) error{
		"s-1": func(o ...grpc.CallOption) error {
			_, err := r.QueryByCapability(ctx, &l03v1.QueryByCapabilityRequest{Query: "text", SessionId: "s-1"}, o...)
			return err
		},
		"": func(o ...grpc.CallOption) error {
			_, err := r.ListTools(ctx, &l03v1.ListToolsRequest{CapabilityQuery: "text"}, o...)
			return err
		},
	} {
		var header metadata.MD
		if err := search(grpc.Header(&header)); err != nil {
			t.Fatal(err)
		}
		got := <-seen
		ids := make([]string, len(got.Tools))
		for i, o := range got.Tools {
			ids[i] = o.Tool
		}
		if !slices.Equal(header[retrievalHeader], []string{"retrieval-of-agent"}) || got.Session != (discover.Session{Tenant: "t", Subject: "agent", ID: name}) ||
			got.Query != "text" || got.Face != "grpc" || got.Agent == "" || !slices.Equal(ids, []string{"demo.text"}) {
			t.Errorf("%q: %v %+v", name, header, got)
		}
	}
}
