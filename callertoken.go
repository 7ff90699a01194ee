package toolkeep

import (
	"crypto/sha256"
	"log/slog"
	"time"
)

// CallerToken is the access token that a caller came with, verified. It is exchanged for a token of an upstream
// (AuthSpec.NeedsCaller), and sent to no tool. A caller that holds it may use it, so it never prints, marshals or
// logs as what it is, and no call that waits keeps it.
type CallerToken struct {
	text string
	ends time.Time
}

// NewCallerToken returns the token that is valid until ends.
func NewCallerToken(text string, ends time.Time) *CallerToken {
	return &CallerToken{text: text, ends: ends}
}

// Reveal returns the token itself, for its exchange.
func (t *CallerToken) Reveal() string { return t.text }

// Ends is when the token expires: nothing that was got for it serves longer.
func (t *CallerToken) Ends() time.Time { return t.ends }

// Sum identifies the token without giving it away.
func (t *CallerToken) Sum() [sha256.Size]byte { return sha256.Sum256([]byte(t.text)) }

const hiddenCaller = "[caller's token]"

func (*CallerToken) String() string               { return hiddenCaller }
func (*CallerToken) GoString() string             { return hiddenCaller }
func (*CallerToken) LogValue() slog.Value         { return slog.StringValue(hiddenCaller) }
func (*CallerToken) MarshalText() ([]byte, error) { return []byte(hiddenCaller), nil }
