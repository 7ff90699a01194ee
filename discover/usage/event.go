package usage

import (
	"crypto/sha256"
	"encoding/hex"
	"math"
	"strings"
	"time"

	json "github.com/go-json-experiment/json"
	"github.com/google/uuid"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/discover"
	"github.com/toolkeep/toolkeep/discover/assembly"
)

// Types of the events that are folded.
const (
	EventRetrieved = "ai.agent.tool.retrieved"         // a search, with what it gave; also its audit record (Discovery 7.1, 10.3)
	EventFeedback  = "ai.agent.tool.feedback"          // what a user says of a search
	EventForgotten = "ai.agent.tool.usage.forgotten"   // a user's data are to be forgotten
	EventRanking   = "ai.agent.tool.ranking.retrained" // learned weights were adopted, or given up; told, and not folded
)

// Bounds of what an event holds.
const (
	maxQuery   = 500 // bytes
	maxID      = 128 // bytes; a longer id of a user or session is known by its SHA-256
	maxOffered = 50  // tools of an event
	maxAgent   = 200 // bytes of a user agent
)

// Retrieval is one search and what it gave.
type Retrieval struct {
	At       time.Time        // when it began; zero is now
	Session  discover.Session // whose it is; an empty tenant and subject are the principal's
	Query    string           // as asked; it is cleaned before it is kept
	Strategy string           // that was followed
	Tools    []Offered        // that were given, the best first
	Found    int              // how many were found, where not all were given; 0: as many as Tools
	Took     time.Duration
	Face     string // rest, grpc, mcp
	Agent    string // user agent of the client, where the face knows it
}

// Offered is one tool that a search gave.
type Offered struct {
	Tool  string
	Parts discover.Parts
}

// Of is the Retrieval of a search that took so long, without face and agent.
func Of(q discover.Query, found []discover.Match, r discover.Report, took time.Duration) Retrieval {
	out := Retrieval{Session: q.Session, Query: q.Text, Strategy: string(r.Strategy), Found: len(found), Took: took,
		Tools: make([]Offered, min(len(found), maxOffered))}
	for i := range out.Tools {
		out.Tools[i] = Offered{Tool: found[i].Tool.ID, Parts: found[i].Parts}
	}
	return out
}

// StrategyContext stands for contexts, whatever search they began with.
const StrategyContext = "context"

// OfContext is the Retrieval of a context that took so long to make: of the tools that
// it shows whole.
func OfContext(r *assembly.Request, c *assembly.Context, as assembly.Asker, took time.Duration) Retrieval {
	out := Retrieval{Session: as.Session, Query: r.Query, Strategy: StrategyContext, Found: max(len(r.Found), len(c.DetailedTools)), Took: took}
	for _, d := range c.DetailedTools[:min(len(c.DetailedTools), maxOffered)] {
		o := Offered{Tool: d.ToolID}
		for i := range r.Found {
			if r.Found[i].Tool.ID == d.ToolID {
				o.Parts = r.Found[i].Parts
				break
			}
		}
		out.Tools = append(out.Tools, o)
	}
	return out
}

// retrievedData is the data of EventRetrieved. The names are those of Discovery 7.1;
// agent_did is user_id under the name that it has in all events.
type retrievedData struct {
	EventID   string       `json:"event_id"`
	Timestamp string       `json:"timestamp"`
	UserID    string       `json:"user_id"`
	AgentDID  string       `json:"agent_did"`
	SessionID string       `json:"session_id,omitempty"`
	Query     string       `json:"query,omitempty"`
	Strategy  string       `json:"retrieval_strategy"`
	Tools     []string     `json:"tools_retrieved"`
	Found     int          `json:"tools_found"`
	Parts     [][5]float64 `json:"score_parts"` // by tool: semantic, keyword, history, success, complexity
	TookMS    int64        `json:"retrieval_time_ms"`
	Face      string       `json:"face,omitempty"`
	Address   string       `json:"ip_address,omitempty"`
	Agent     string       `json:"user_agent,omitempty"`
}

// feedbackData is the data of EventFeedback.
type feedbackData struct {
	EventID   string   `json:"event_id"` // of the retrieval
	UserID    string   `json:"user_id"`
	AgentDID  string   `json:"agent_did"`
	Tool      string   `json:"tool_selected,omitempty"`
	Success   *bool    `json:"execution_success,omitempty"`
	Relevance *float64 `json:"relevance_score,omitempty"`
}

type forgottenData struct {
	UserID string `json:"user_id"` // by its hash, see userMark
	By     string `json:"by"`
}

func eventOf(kind, tenant, id string, at time.Time, data any) (toolkeep.Event, error) {
	raw, err := json.Marshal(data)
	if err != nil {
		return toolkeep.Event{}, err
	}
	if id == "" {
		v, err := uuid.NewV7()
		if err != nil {
			return toolkeep.Event{}, err
		}
		id = v.String()
	}
	return toolkeep.Event{ID: id, Type: kind, Tenant: tenant, Time: at, Data: raw}, nil
}

func stamp(t time.Time) string { return t.UTC().Format("2006-01-02T15:04:05.000Z") }

// short is an id as it is kept: itself, or its hash where it is long.
func short(id string) string {
	if len(id) <= maxID {
		return id
	}
	sum := sha256.Sum256([]byte(id))
	return "sha256:" + hex.EncodeToString(sum[:])
}

// plain is a question as it is compared: in lower case, with single spaces.
func plain(q string) string { return strings.Join(strings.Fields(strings.ToLower(q)), " ") }

// rounded keeps four digits of each part, which are enough to learn from.
func rounded(p discover.Parts) [5]float64 {
	out := [5]float64{p.Semantic, p.Keyword, p.History, p.Success, p.Complexity}
	for i, v := range out {
		out[i] = math.Round(v*1e4) / 1e4
	}
	return out
}
