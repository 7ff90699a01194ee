package rest

import (
	"context"
	"time"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/discover"
	learned "github.com/toolkeep/toolkeep/discover/usage"
)

// Learning is what was learned from how tools are used, for administrators.
type Learning interface {
	// Report tells what happened in a tenant from one day to another, by tool, user or
	// strategy.
	Report(tenant string, from, to time.Time, by string) learned.Report
	// Train learns the weights of a tenant again.
	Train(ctx context.Context, tenant string) (learned.Training, error)
	// ResetWeights gives up the learned weights of the principal's tenant.
	ResetWeights(ctx context.Context, p *toolkeep.Principal) error
	// Known tells how much Forget would take out.
	Known(ctx context.Context, p *toolkeep.Principal, user string) (learned.Known, error)
	// Forget takes out what is known of a user of the principal's tenant.
	Forget(ctx context.Context, p *toolkeep.Principal, user string) error
}

type analyticsInput struct {
	StartDate string `query:"startDate" maxLength:"40" doc:"first day, such as 2026-11-01, or a time of RFC 3339 in it; default 29 days before endDate"`
	EndDate   string `query:"endDate" maxLength:"40" doc:"last day; default today"`
	GroupBy   string `query:"groupBy" enum:"tool,user,strategy" default:"tool"`
	Limit     int    `query:"limit" minimum:"1" maximum:"1000" default:"100" doc:"groups at most"`
}

// UsageGroup is what happened to one group.
type UsageGroup struct {
	Key            string  `json:"key,omitempty" doc:"id of the tool, the user, or name of the strategy; absent in total"`
	Retrievals     int     `json:"retrievals" doc:"searches that offered the tool, that the user made, or that followed the strategy"`
	Selected       int     `json:"selected" doc:"those of them after which the tool, or any that was offered, was called"`
	SelectionRate  float64 `json:"selectionRate"`
	MeanPosition   float64 `json:"meanPosition" doc:"place, from 1, of what was selected first; 0 where nothing was"`
	Rated          int     `json:"rated" doc:"feedback with a relevance"`
	MeanRelevance  float64 `json:"meanRelevance"`
	Calls          int     `json:"calls" doc:"that worked or failed; by strategy: of what such searches offered"`
	SuccessRate    float64 `json:"successRate"`
	AvgExecutionMs float64 `json:"avgExecutionTimeMs" doc:"of calls that were not answered from a cache"`
	P95ExecutionMs float64 `json:"p95ExecutionTimeMs" doc:"exact to a fifth"`
}

func groupOf(r learned.Row) UsageGroup {
	return UsageGroup{Key: r.Group, Retrievals: r.Retrievals, Selected: r.Chosen, SelectionRate: r.SelectionRate, MeanPosition: r.MeanPosition,
		Rated: r.Rated, MeanRelevance: r.Relevance, Calls: r.Calls, SuccessRate: r.SuccessRate, AvgExecutionMs: r.MeanMS, P95ExecutionMs: r.P95MS}
}

// RankingFit is how well weights explain choices that they were not learned from.
type RankingFit struct {
	Weights map[string]float64 `json:"weights"`
	NDCG    float64            `json:"ndcg" doc:"1: everything chosen stood first"`
	LogLoss float64            `json:"logLoss" doc:"lower is better; 0.69 is guessing"`
}

// RankingLearning is the newest learning of weights.
type RankingLearning struct {
	Mode    string             `json:"mode" enum:"on,observe,off" doc:"setting search.learning"`
	At      *time.Time         `json:"at,omitempty" doc:"absent: not yet"`
	Lessons int                `json:"lessons" doc:"searches with a choice that were learned from"`
	HeldOut int                `json:"heldOut" doc:"the newest of them, on which old and new weights were compared"`
	Better  bool               `json:"better"`
	Verdict string             `json:"verdict"`
	Before  *RankingFit        `json:"before,omitempty"`
	After   *RankingFit        `json:"after,omitempty"`
	Weights map[string]float64 `json:"weights,omitempty" doc:"those that were learned and count while mode is on; absent: those of the configuration count"`
}

func weightsOf(w discover.Weights) map[string]float64 { return learned.WeightNames(w) }

func learningOf(mode learned.Learning, t *learned.Training) RankingLearning {
	l := RankingLearning{Mode: string(mode)}
	if t == nil {
		return l
	}
	at := t.At
	l.At, l.Lessons, l.HeldOut, l.Better, l.Verdict = &at, t.Lessons, t.Held, t.Better, t.Verdict
	if t.Held > 0 {
		l.Before = &RankingFit{Weights: weightsOf(t.Before.Weights), NDCG: t.Before.NDCG, LogLoss: t.Before.LogLoss}
		l.After = &RankingFit{Weights: weightsOf(t.After.Weights), NDCG: t.After.NDCG, LogLoss: t.After.LogLoss}
	}
	if t.Weights != nil {
		l.Weights = weightsOf(*t.Weights)
	}
	return l
}

type analyticsOutput struct {
	Body struct {
		Status string        `json:"status" enum:"success"`
		Data   AnalyticsData `json:"data"`
	} `nameHint:"AnalyticsAnswer"`
}

// AnalyticsData is a report.
type AnalyticsData struct {
	StartDate string          `json:"startDate" format:"date"`
	EndDate   string          `json:"endDate" format:"date"`
	GroupBy   string          `json:"groupBy" enum:"tool,user,strategy"`
	Since     *time.Time      `json:"since,omitempty" doc:"when the first thing happened that is known; absent: nothing did"`
	AsOf      *time.Time      `json:"asOf,omitempty" doc:"what any node recorded by then is included; what this node did, up to now"`
	Groups    []UsageGroup    `json:"groups" doc:"those with most calls first"`
	More      int             `json:"more" doc:"groups beyond limit"`
	Total     UsageGroup      `json:"total" doc:"of all groups; by tool, retrievals counts every tool that a search offered"`
	Ranking   RankingLearning `json:"ranking"`
	Dropped   int64           `json:"droppedEvents" doc:"records of searches that this node could not write since its start"`
}

// maxReportDays is the longest span of a report, as long as history can be kept.
const maxReportDays = 366

func (a *API) analytics(_ context.Context, p *toolkeep.Principal, in *analyticsInput) (*analyticsOutput, error) {
	to, err := dateOf("endDate", in.EndDate, time.Now())
	if err != nil {
		return nil, err
	}
	from, err := dateOf("startDate", in.StartDate, to.AddDate(0, 0, -29))
	if err != nil {
		return nil, err
	}
	switch {
	case from.After(to):
		return nil, toolkeep.NewError(toolkeep.MalformedRequest, "startDate is after endDate")
	case to.Sub(from) > maxReportDays*24*time.Hour:
		return nil, toolkeep.NewError(toolkeep.MalformedRequest, "a report is about %d days at most", maxReportDays)
	}
	r := a.c.Learning.Report(p.Tenant, from, to, in.GroupBy)
	if in.GroupBy == learned.ByTool {
		r.Rows = a.shownGroups(p, r.Rows)
	}
	out := &analyticsOutput{}
	out.Body.Status = "success"
	d := &out.Body.Data
	d.StartDate, d.EndDate, d.GroupBy = r.From.Format(time.DateOnly), r.To.Format(time.DateOnly), in.GroupBy
	d.Since, d.AsOf, d.Dropped = given(r.Since), given(r.AsOf), r.Dropped
	shown := r.Rows[:min(len(r.Rows), in.Limit)]
	d.Groups, d.More = make([]UsageGroup, len(shown)), len(r.Rows)-len(shown)
	for i, row := range shown {
		d.Groups[i] = groupOf(row)
	}
	d.Total, d.Ranking = groupOf(r.Total), learningOf(r.Learning, r.Training)
	return out, nil
}

// shownGroups leaves out tools that do not exist for the principal, and those that are
// no longer there.
func (a *API) shownGroups(p *toolkeep.Principal, rows []learned.Row) []learned.Row {
	if a.c.Search == nil {
		return nil
	}
	there := map[string]bool{}
	for _, t := range a.c.Search.Tools(a.visible(p)) {
		there[t.ID] = true
	}
	out := rows[:0]
	for _, r := range rows {
		if there[r.Group] {
			out = append(out, r)
		}
	}
	return out
}

// dateOf reads a day, or a time in it, in UTC.
func dateOf(name, s string, absent time.Time) (time.Time, error) {
	if s == "" {
		return absent.UTC(), nil
	}
	for _, layout := range []string{time.DateOnly, time.RFC3339} {
		if t, err := time.Parse(layout, s); err == nil {
			return t.UTC(), nil
		}
	}
	return time.Time{}, toolkeep.NewError(toolkeep.MalformedRequest, "%s must be a day such as 2026-11-01, or a time of RFC 3339", name)
}

type forgetInput struct {
	UserID string `path:"user_id" maxLength:"4096" doc:"subject of the user's credential"`
}

// ForgottenUser is what was known of a user.
type ForgottenUser struct {
	Known         bool `json:"known" doc:"false: there was nothing to forget, perhaps because the subject is another"`
	Conversations int  `json:"conversations"`
	Searches      int  `json:"searches"`
	Questions     int  `json:"questions" doc:"that led to a tool"`
}

type forgetOutput struct {
	Body struct {
		Status string        `json:"status" enum:"success"`
		Data   ForgottenUser `json:"data"`
	} `nameHint:"ForgetAnswer"`
}

// forgetUser forgets what is not known here too: another node may know it.
func (a *API) forgetUser(ctx context.Context, p *toolkeep.Principal, in *forgetInput) (*forgetOutput, error) {
	k, err := a.c.Learning.Known(ctx, p, in.UserID)
	if err != nil {
		return nil, err
	}
	if err := a.c.Learning.Forget(ctx, p, in.UserID); err != nil {
		return nil, err
	}
	out := &forgetOutput{}
	out.Body.Status = "success"
	out.Body.Data = ForgottenUser{Known: k.Any(), Conversations: k.Conversations, Searches: k.Searches, Questions: k.Questions}
	return out, nil
}

type learnOutput struct {
	Body struct {
		Status string          `json:"status" enum:"success"`
		Data   RankingLearning `json:"data"`
	} `nameHint:"LearnAnswer"`
}

func (a *API) learnWeights(ctx context.Context, p *toolkeep.Principal, _ *struct{}) (*learnOutput, error) {
	now := time.Now()
	if mode := a.c.Learning.Report(p.Tenant, now, now, "").Learning; mode == learned.LearnOff {
		return nil, toolkeep.NewError(toolkeep.MalformedRequest, "the setting search.learning is off; with observe, weights are learned and shown and not used")
	}
	t, err := a.c.Learning.Train(ctx, p.Tenant)
	if err != nil {
		return nil, err
	}
	out := &learnOutput{}
	out.Body.Status, out.Body.Data = "success", learningOf(a.c.Learning.Report(p.Tenant, now, now, "").Learning, &t)
	return out, nil
}

func (a *API) resetWeights(ctx context.Context, p *toolkeep.Principal, _ *struct{}) (*struct{}, error) {
	return nil, a.c.Learning.ResetWeights(ctx, p)
}
