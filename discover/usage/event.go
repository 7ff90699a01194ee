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

// Types of the folded events.
const (
	EventRetrieved = "ai.agent.tool.retrieved"         // a search and its result; also its audit record (Discovery 7.1, 10.3)
	EventFeedback  = "ai.agent.tool.feedback"          // a user's feedback on a search
	EventForgotten = "ai.agent.tool.usage.forgotten"   // a user's data must be forgotten
	EventRanking   = "ai.agent.tool.ranking.retrained" // learned weights were adopted or reset; informational, not folded
)

// Limits of an event.
const (
	maxQuery   = 500      // bytes
	maxCleaned = 16 << 10 // bytes of a query that are cleaned; a search waits with these for its record
	maxID      = 128      // bytes; a longer id of a user or session is replaced by its SHA-256
	maxOffered = 50       // tools per event
	maxAgent   = 200      // bytes of a user agent
)

// Retrieval is one search and its result.
type Retrieval struct {
	At       time.Time        // start time; zero means now
	Session  discover.Session // user and conversation; an empty tenant and subject are the principal's
	Query    string           // as entered; it is cleaned before it is stored
	Strategy string           // the strategy used
	Tools    []Offered        // the result, best first
	Found    int              // number found, if more than returned; 0: as many as Tools
	Took     time.Duration
	Face     string // rest, grpc, mcp
	Agent    string // user agent of the client, if known
	// Unlearned is a search that is recorded for the audit alone: nothing is learned from it, and no feedback is taken.
	Unlearned bool
}

// Offered is one tool in a search result.
type Offered struct {
	Tool  string
	Parts discover.Parts
}

// Recorder records searches; Usage is one.
type Recorder interface {
	// Retrieved records a search in the background and returns its event id at once, "" where nothing is to be learned from it.
	Retrieved(p *toolkeep.Principal, r Retrieval) (id string)
}

// Record records a search with the face and the program it came from, and returns the
// id that feedback refers to, "" without a recorder.
func Record(to Recorder, p *toolkeep.Principal, r Retrieval, face, agent string) (id string) {
	if to == nil {
		return ""
	}
	r.Face, r.Agent = face, agent
	return to.Retrieved(p, r)
}

// Of returns the Retrieval of a search with its duration, without face and agent.
func Of(q discover.Query, found []discover.Match, r discover.Report, took time.Duration) Retrieval {
	out := Retrieval{Session: q.Session, Query: q.Text, Strategy: string(r.Strategy), Found: len(found), Took: took,
		Tools: make([]Offered, min(len(found), maxOffered))}
	for i := range out.Tools {
		out.Tools[i] = Offered{Tool: found[i].Tool.ID, Parts: found[i].Parts}
	}
	return out
}

// StrategyContext stands for contexts, whatever search they used.
const StrategyContext = "context"

// OfContext returns the Retrieval of a context with its build time, for the tools it shows in full.
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

// retrievedData is the data of EventRetrieved. Names follow Discovery 7.1; agent_did is user_id
// under the name used in all events.
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
	Unlearned bool         `json:"unlearned,omitempty"`
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
	UserID string `json:"user_id"` // hashed, see userMark
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

// short returns an id as stored: unchanged, or hashed if it is long.
func short(id string) string {
	if len(id) <= maxID {
		return id
	}
	sum := sha256.Sum256([]byte(id))
	return "sha256:" + hex.EncodeToString(sum[:])
}

// plain normalises a query for comparison: lower case, single spaces.
func plain(q string) string { return strings.Join(strings.Fields(strings.ToLower(q)), " ") }

// rounded keeps four digits of each part, enough to learn from.
func rounded(p discover.Parts) [5]float64 {
	out := [5]float64{p.Semantic, p.Keyword, p.History, p.Success, p.Complexity}
	for i, v := range out {
		out[i] = math.Round(v*1e4) / 1e4
	}
	return out
}
