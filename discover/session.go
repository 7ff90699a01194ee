package discover

import "time"

// Session says whose question it is and in which conversation.
type Session struct {
	Tenant  string
	Subject string // the user
	ID      string // of the conversation, "" outside of one
}

// Usage knows how tools were used, from which search learns. Its methods are called in
// each search, from any number of goroutines: they answer from memory within
// microseconds. Nothing that one tenant did is told to another.
type Usage interface {
	// History is what went before in a conversation.
	History(s Session) History
	// SuccessRates are the shares of a tenant's calls of the tools that succeeded; -1 for
	// a tool that was not called, nil if none was.
	SuccessRates(tenant string, tools []string) []float64
	// Examples are the newest questions of a tenant after which tools were chosen.
	Examples(tenant string) []Example
}

// History is what went before in a conversation.
type History struct {
	Recent []Recent // calls of this conversation, the newest first, at most 50
	// Paired are tools that are often called with or after the recent ones, and
	// Preferred those that the user calls often, in any conversation: tool to weight
	// between 0 and 1.
	Paired, Preferred map[string]float64
}

// Recent is one call of a conversation.
type Recent struct {
	Tool    string
	At      time.Time
	Success bool
}

// Example is a question and the tool that was chosen after it.
type Example struct {
	Query string // redacted
	Tool  string
	Count int // how often
}

// Learned is an optional ability of a Usage: weights that were learned from what was
// chosen of what had been offered. ok is false where a tenant has none, or learning is
// off; the Index's own weights count then. It is asked once in each search, like the
// methods of Usage.
type Learned interface {
	Weights(tenant string) (w Weights, ok bool)
}
