package toolkeep

import (
	"crypto/sha256"
	"encoding/json"
	"log/slog"
	"sync"
)

// Claims are what a verified access token says of its caller (Principal.Claims). They are immutable, and personal data
// in general: they never print, marshal or log as what they are.
type Claims struct {
	tree map[string]any
	sum  func() [32]byte
}

// NewClaims returns claims of a tree as canon parses it, which is theirs from then on.
func NewClaims(tree map[string]any) *Claims {
	return &Claims{tree, sync.OnceValue(func() [32]byte {
		raw, err := json.Marshal(tree) // with sorted names
		if err != nil {
			panic(err) // it is no tree of canon
		}
		return sha256.Sum256(raw)
	})}
}

// Sum is a hash that tells the claims from others. It is made once.
func (c *Claims) Sum() [32]byte { return c.sum() }

// Tree returns the claims, to be read only; nil for none.
func (c *Claims) Tree() map[string]any {
	if c == nil {
		return nil
	}
	return c.tree
}

const hiddenClaims = "[claims]"

func (*Claims) String() string               { return hiddenClaims }
func (*Claims) GoString() string             { return hiddenClaims }
func (*Claims) LogValue() slog.Value         { return slog.StringValue(hiddenClaims) }
func (*Claims) MarshalText() ([]byte, error) { return []byte(hiddenClaims), nil }
