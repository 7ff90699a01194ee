// Package promptscan finds text that addresses the model instead of a reader: orders and markup of another
// speaker, and characters that a reader does not see. It judges and changes nothing.
package promptscan

// Severity of a Finding.
type Severity string

const (
	High   Severity = "high"   // hardly any legitimate reason
	Medium Severity = "medium" // a person should read it
	Low    Severity = "low"    // worth knowing
)

// Rules of findings.
const (
	RuleHidden      = "hidden-characters" // invisible characters, or ones that reorder the text
	RuleControl     = "control-characters"
	RuleInstruction = "instruction"   // orders to the model
	RuleSecrecy     = "secrecy"       // keeps something from the user
	RulePromptTag   = "prompt-tag"    // markup that models take for system markup
	RuleExfiltrate  = "data-request"  // asks for the conversation, credentials or files that the tool does not need
	RuleMarkup      = "hidden-markup" // text hidden by markup
	RuleSpace       = "pushed-out-of-sight"
)

// Finding is one thing in a text that a person should look at.
type Finding struct {
	Rule     string
	Severity Severity
	Message  string
	Text     string // what was found, at most 120 characters, invisible ones escaped
}
