package rest

import (
	"context"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/discover/usage"
)

// Retrievals records searches and what is said of them.
type Retrievals interface {
	usage.Recorder
	// Feedback records what the principal says of one of its own searches; again is true
	// where the same was said before. E3013.
	Feedback(ctx context.Context, p *toolkeep.Principal, f usage.Feedback) (id string, again bool, err error)
}

type feedbackInput struct {
	Body struct {
		RetrievalID      string   `json:"retrievalId,omitempty" maxLength:"64" doc:"metadata.retrievalId of the answer; or send sessionId and query"`
		SessionID        string   `json:"sessionId,omitempty" maxLength:"4096" doc:"X-Session-ID of the search; absent: it belonged to no session"`
		Query            string   `json:"query,omitempty" maxLength:"64000" doc:"q of the search; the newest one with it is meant"`
		ToolSelected     string   `json:"toolSelected,omitempty" maxLength:"4096" doc:"the tool that was chosen, also one that was not found; absent: none fits"`
		Relevance        *float64 `json:"relevance,omitempty" minimum:"0" maximum:"1" doc:"how well it fits; below 0.5 it was a mistake"`
		ExecutionSuccess *bool    `json:"executionSuccess,omitempty" doc:"whether its call did what was wanted"`
	} `nameHint:"FeedbackRequest"`
}

type feedbackOutput struct {
	Body struct {
		Status string `json:"status" enum:"success"`
		Data   struct {
			RetrievalID string `json:"retrievalId"`
			Recorded    bool   `json:"recorded" doc:"false: the same was said before"`
		} `json:"data" nameHint:"FeedbackData"`
	} `nameHint:"FeedbackAnswer"`
}

func (a *API) feedback(ctx context.Context, p *toolkeep.Principal, in *feedbackInput) (*feedbackOutput, error) {
	b := &in.Body
	said := usage.Feedback{Retrieval: b.RetrievalID, Session: b.SessionID, Query: b.Query, Tool: b.ToolSelected, Relevance: b.Relevance, Success: b.ExecutionSuccess}
	if err := said.Check(); err != nil {
		return nil, err
	}
	if b.ToolSelected != "" {
		v, _, err := a.c.Catalog.Describe(ctx, p, b.ToolSelected, "", a.visible(p))
		if err != nil {
			return nil, err
		}
		said.Tool = v.Tool.ID
	}
	id, again, err := a.c.Retrievals.Feedback(ctx, p, said)
	if err != nil {
		return nil, err
	}
	out := &feedbackOutput{}
	out.Body.Status, out.Body.Data.RetrievalID, out.Body.Data.Recorded = "success", id, !again
	return out, nil
}

// usageRoutes are those of feedback and of what was usage.
func (a *API) usageRoutes() {
	const tools = "/api/v1/tools"
	op := func(method, path, id, tag, summary string) route { return op(method, tools+path, id, tag, summary) }
	if a.c.Retrievals != nil {
		register(a, op("POST", "/retrieval/feedback", "retrievalFeedback", tagRetrieval, "Say which tool a search led to and how well it fitted; the same again is harmless"), "", a.feedback)
	}
	if a.c.Learning == nil {
		return
	}
	register(a, op("GET", "/admin/analytics", "analytics", tagAdmin, "How tools are found and how they do in your tenant, by day in UTC"), toolkeep.PermInvocations, a.analytics)
	register(a, op("DELETE", "/admin/analytics/users/{user_id}", "forgetUser", tagAdmin, "Forget a user's conversations, questions, preferences and numbers; also of one that is not known"), toolkeep.PermOperate, a.forgetUser)
	register(a, op("POST", "/admin/weights", "learnWeights", tagAdmin, "Learn the weights of your tenant's search from the chosen tools, and use them if they are better"), toolkeep.PermOperate, a.learnWeights)
	register(a, op("DELETE", "/admin/weights", "resetWeights", tagAdmin, "Drop the learned weights and use those of the configuration"), toolkeep.PermOperate, a.resetWeights)
}
