package rpc

import (
	"context"
	"encoding/json"
	"strings"
	"time"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/audit"
	"github.com/toolkeep/toolkeep/catalog"
	"github.com/toolkeep/toolkeep/discover"
	"github.com/toolkeep/toolkeep/discover/assembly"
	"github.com/toolkeep/toolkeep/discover/usage"
	"github.com/toolkeep/toolkeep/proto/l03v1"
)

// retrieval is the service ToolRetrieval.
type retrieval struct {
	l03v1.UnimplementedToolRetrievalServer
	s *Server
}

// ToolContext writes what a language model is to know of the tools in its phase of a
// conversation, as REST's retrieval/context does. E3104, E3301, E3311, E3312.
func (g *retrieval) ToolContext(ctx context.Context, msg *l03v1.ToolContextRequest) (_ *l03v1.ToolContextResponse, err error) {
	s := g.s
	p, err := s.admitPlain(ctx, msg)
	if err != nil {
		return nil, err
	}
	defer func() {
		s.read(ctx, p, audit.Read{What: audit.ReadContext, Query: msg.GetQuery(), Session: msg.GetSessionId(), Err: err})
	}()
	if s.guide == nil {
		return nil, errNoSearch()
	}
	session, err := s.sessionOf(ctx, msg.GetSessionId())
	if err != nil {
		return nil, err
	}
	r := requestOf(msg)
	if err := discover.CheckQuery(r.Query); err != nil {
		return nil, err
	}
	if err := r.Check(); err != nil {
		return nil, err
	}
	r.Rename(func(name string) string { return catalog.ID(s.c.Catalog, p, name, s.visible(p)) })
	as := assembly.Asker{Session: discover.Session{Tenant: p.Tenant, Subject: p.Person(), ID: session}, Visible: s.callable(p)}
	if s.c.Audience != nil {
		as.Audience = s.c.Audience(p)
	}
	start := time.Now()
	r = s.guide.Gather(ctx, r, as)
	c, err := assembly.Build(r)
	if err != nil {
		return nil, err
	}
	out := &l03v1.ToolContextResponse{RetrievalId: s.record(ctx, p, usage.OfContext(&r, c, as, time.Since(start)))}
	if out.MetadataJson, err = json.Marshal(c.Metadata); err != nil {
		return nil, err
	}
	if c.Format() == assembly.Markdown {
		out.Markdown = valid(c.Markdown())
	} else {
		out.ContextJson = c.JSON()
	}
	return out, nil
}

// sessionOf is the conversation of a question, which the metadata can name too.
func (s *Server) sessionOf(ctx context.Context, id string) (string, error) {
	header := headersOf(ctx).Session()
	switch {
	case id != "" && header != "" && id != header:
		return "", toolkeep.NewError(toolkeep.MalformedRequest, "session_id and the metadata x-session-id have different values")
	case id == "":
		id = header
	}
	if len(id) > s.limits.KeyBytes {
		return "", toolkeep.NewError(toolkeep.InvalidParameters, "session_id has more than %d bytes", s.limits.KeyBytes)
	}
	return id, nil
}

func requestOf(msg *l03v1.ToolContextRequest) assembly.Request {
	r := assembly.Request{Query: msg.GetQuery(), Phase: assembly.Phase(msg.GetPhase()), Chosen: msg.GetToolIds(), Failure: failureOf(msg.GetError()),
		Budget: int(msg.GetBudget()), Format: assembly.JSON}
	if msg.GetFormat() != l03v1.ToolContextRequest_JSON {
		r.Format = assembly.Format(strings.ToLower(msg.GetFormat().String()))
	}
	for _, m := range msg.GetMessages() {
		to := assembly.Message{Role: assembly.Role(m.GetRole()), Content: m.GetContent(), ToolID: m.GetToolId(), ToolError: failureOf(m.GetToolError())}
		for _, id := range m.GetToolCalls() {
			to.ToolCalls = append(to.ToolCalls, assembly.ToolCall{ToolID: id})
		}
		r.Messages = append(r.Messages, to)
	}
	return r
}

func failureOf(m *l03v1.FailedCall) *assembly.Failure {
	if m == nil {
		return nil
	}
	return &assembly.Failure{ToolID: m.GetToolId(), Code: assembly.Code(m.GetErrorCode()), Class: m.GetClass(), Message: m.GetMessage(), Retryable: m.Retryable,
		RetryAfterS: int(m.GetRetryAfterS())}
}

// Feedback says which tool a search led to and how well it fitted; the same again is
// harmless. E3001, E3013, E3301, E3312.
func (g *retrieval) Feedback(ctx context.Context, msg *l03v1.FeedbackRequest) (*l03v1.FeedbackResponse, error) {
	s := g.s
	p, err := s.admitPlain(ctx, msg)
	if err != nil {
		return nil, err
	}
	if s.c.Retrievals == nil {
		return nil, errNoSearch()
	}
	said := usage.Feedback{Retrieval: msg.GetRetrievalId(), Session: msg.GetSessionId(), Query: msg.GetQuery(), Tool: msg.GetToolSelected(),
		Relevance: msg.Relevance, Success: msg.ExecutionSuccess}
	if err := said.Check(); err != nil {
		return nil, err
	}
	if said.Tool != "" {
		v, _, err := s.c.Catalog.Describe(ctx, p, said.Tool, "", s.visible(p))
		if err != nil {
			return nil, err
		}
		said.Tool = v.Tool.ID
	}
	id, again, err := s.c.Retrievals.Feedback(ctx, p, said)
	if err != nil {
		return nil, err
	}
	return &l03v1.FeedbackResponse{RetrievalId: id, Recorded: !again}, nil
}

func errNoSearch() error {
	return toolkeep.NewError(toolkeep.IndexUnavailable, "this server has no search index")
}
