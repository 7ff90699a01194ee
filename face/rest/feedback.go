package rest

import (
	"context"
	"time"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/discover"
	"github.com/toolkeep/toolkeep/discover/assembly"
	learned "github.com/toolkeep/toolkeep/discover/usage"
)

// Retrievals records searches and what is said of them.
type Retrievals interface {
	// Retrieved records a search in the background and gives the id of its event at once.
	Retrieved(p *toolkeep.Principal, r learned.Retrieval) (id string)
	// Feedback records what the principal says of one of its own searches; again is true
	// where the same was said before. E3013.
	Feedback(ctx context.Context, p *toolkeep.Principal, f learned.Feedback) (id string, again bool, err error)
}

// retrieved records a search that gave these tools and took from start to now, and
// gives the id by which feedback names it, "" where searches are not recorded.
func (a *API) retrieved(p *toolkeep.Principal, q discover.Query, found []discover.Match, r discover.Report, start time.Time, agent string) string {
	if a.c.Retrievals == nil {
		return ""
	}
	one := learned.Of(q, found, r, time.Since(start))
	one.Face, one.Agent = "rest", agent
	return a.c.Retrievals.Retrieved(p, one)
}

// disclosed records a context like a search that gave the tools that it shows whole.
func (a *API) disclosed(p *toolkeep.Principal, r *assembly.Request, c *assembly.Context, as assembly.Asker, start time.Time, agent string) string {
	if a.c.Retrievals == nil {
		return ""
	}
	one := learned.OfContext(r, c, as, time.Since(start))
	one.Face, one.Agent = "rest", agent
	return a.c.Retrievals.Retrieved(p, one)
}

type feedbackInput struct {
	Body struct {
		RetrievalID      string   `json:"retrievalId,omitempty" maxLength:"64" doc:"metadata.retrievalId of the answer; or send sessionId and query"`
		SessionID        string   `json:"sessionId,omitempty" maxLength:"4096" doc:"X-Session-ID of the search; absent: it belonged to no session"`
		Query            string   `json:"query,omitempty" maxLength:"2000" doc:"q of the search; the newest one with it is meant"`
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
	switch {
	case (b.RetrievalID == "") == (b.Query == ""):
		return nil, toolkeep.NewError(toolkeep.MalformedRequest, "name the search either by retrievalId, or by query and, if it had one, sessionId")
	case b.RetrievalID != "" && b.SessionID != "":
		return nil, toolkeep.NewError(toolkeep.MalformedRequest, "sessionId goes with query; retrievalId says it all")
	case b.ToolSelected == "" && b.Relevance == nil:
		return nil, toolkeep.NewError(toolkeep.MalformedRequest, "say which tool was chosen (toolSelected), how well the answer fits (relevance), or both")
	case b.ToolSelected == "" && b.ExecutionSuccess != nil:
		return nil, toolkeep.NewError(toolkeep.MalformedRequest, "executionSuccess goes with toolSelected")
	}
	if b.ToolSelected != "" {
		if _, _, err := a.c.Catalog.Describe(p, b.ToolSelected, "", a.visible(p)); err != nil {
			return nil, err
		}
	}
	id, again, err := a.c.Retrievals.Feedback(ctx, p, learned.Feedback{Retrieval: b.RetrievalID, Session: b.SessionID, Query: b.Query, Tool: b.ToolSelected,
		Relevance: b.Relevance, Success: b.ExecutionSuccess})
	if err != nil {
		return nil, err
	}
	out := &feedbackOutput{}
	out.Body.Status, out.Body.Data.RetrievalID, out.Body.Data.Recorded = "success", id, !again
	return out, nil
}

// usageRoutes are those of feedback and of what was learned.
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
	register(a, op("POST", "/admin/weights", "learnWeights", tagAdmin, "Learn the weights of your tenant's search anew from what was chosen, and keep them if they are better"), toolkeep.PermOperate, a.learnWeights)
	register(a, op("DELETE", "/admin/weights", "resetWeights", tagAdmin, "Give up learned weights for those of the configuration"), toolkeep.PermOperate, a.resetWeights)
}
