package discover

import "time"

// Session says whose question it is and in which conversation.
type Session struct {
	Tenant  string
	Subject string // the user
	ID      string // of the conversation, "" outside of one
}

// Usage knows how tools were used, from which search learns. Its methods are called in
// each search, from any number of goroutines: they answer from memory and take no lock
// that another search or a call holds. Nothing that one tenant did is told to another.
type Usage interface {
	// History is what went before in a conversation.
	History(s Session) History
	// Fared is how a tool did for a tenant; ok is false for one that it has not
	// called.
	Fared(tenant, tool string) (f Fared, ok bool)
	// Led are the newest questions of a tenant after which tools were chosen.
	Led(tenant string) []Led
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

// Fared is how a tool did for one tenant.
type Fared struct {
	Calls     int
	Success   float64 // share of calls that succeeded, drawn towards the mean of all tools where there are few
	Frequency float64 // 0 to 1: calls in 30 days, on a logarithmic scale against the tool that is called most
	MeanMS    int64
	LastUsed  time.Time
}

// Led is a question and the tool that was chosen after it.
type Led struct {
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
