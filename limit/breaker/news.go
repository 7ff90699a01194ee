package breaker

import (
	"cmp"
	"context"
	"time"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/canon"
)

// Channel is where changes of state are told, after the tenant and a colon.
const Channel = "circuit:state:changes"

const (
	maxNews  = 256             // messages that wait; further ones are dropped
	newsWait = 2 * time.Second // for one message
)

// news is a change of state that is in the store.
type news struct{ tenant, message string }

// applied has Tell given a change of state, unless err says that it is not in the store. It returns err.
func (s *Breakers) applied(k key, r *Record, err error) error {
	if err != nil || s.c.Tell == nil {
		return err
	}
	data := map[string]any{"circuit_name": k.ID(), "state": string(r.State), "node": s.c.Node, "at": s.c.Clock().UTC().Format(time.RFC3339Nano)}
	if r.Reason != "" {
		data["reason"] = r.Reason
	}
	select {
	case s.news <- news{cmp.Or(k.tenant, s.c.Home), string(canon.Append(nil, data))}:
	default: // what follows cannot be reached, and reads the state when it can
	}
	return nil
}

// tell gives Tell the changes, one after the other. One that fails is not told again: the events have all of them.
func (s *Breakers) tell(ctx context.Context) {
	log := toolkeep.Seldom(s.c.Log, 1, nil)
	for {
		select {
		case <-ctx.Done():
			return
		case n := <-s.news:
			within, cancel := context.WithTimeout(ctx, newsWait)
			err := s.c.Tell(within, n.tenant+":"+Channel, n.message)
			cancel()
			if err != nil && ctx.Err() == nil {
				log.Warn("a change of a breaker's state was not told to others; its event is in the journal", "error", err)
			}
		}
	}
}
