package discover

import "time"

// Session identifies the user and conversation of a query.
type Session struct {
	Tenant  string
	Subject string // the user: toolkeep.Principal.Person
	ID      string // of the conversation, "" outside of one
}

// Usage knows how tools were used; search learns from it. Its methods are called in each search,
// concurrently: they answer from memory within microseconds. Data of one tenant is never used for
// another.
type Usage interface {
	// History returns the earlier calls of a conversation.
	History(s Session) History
	// SuccessRates returns the success rates of a tenant's calls of the tools; -1 for a tool
	// without calls, nil if no tool has any.
	SuccessRates(tenant string, tools []string) []float64
	// Examples returns a tenant's newest queries after which tools were chosen.
	Examples(tenant string) []Example
}

// History holds the earlier calls of a conversation.
type History struct {
	Recent []Recent // calls of this conversation, the newest first, at most 50
	// Paired are tools often called with or after the recent ones, and Preferred those the user
	// calls often in any conversation; both map tools to weights between 0 and 1.
	Paired, Preferred map[string]float64
}

// Recent is one call of a conversation.
type Recent struct {
	Tool    string
	At      time.Time
	Success bool
}

// Example is a query and the tool chosen after it.
type Example struct {
	Query string // redacted
	Tool  string
	Count int // how often
}

// Learned is an optional ability of a Usage: weights learned from which of the offered tools were
// chosen. ok is false if a tenant has none, or learning is off; then the Index's own weights apply.
// It is called once per search, like the methods of Usage.
type Learned interface {
	Weights(tenant string) (w Weights, ok bool)
}
