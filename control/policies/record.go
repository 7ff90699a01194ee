package policies

import (
	"context"
	"log/slog"
	"time"

	"github.com/google/uuid"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/access"
	"github.com/toolkeep/toolkeep/access/policy"
	"github.com/toolkeep/toolkeep/canon"
)

// eventChanged is the record of a policy that was taken, or refused at a change.
const eventChanged = "ai.agent.policy.changed"

// recordWait is how long a Recorder waits for the store.
const recordWait = 5 * time.Second

// Recorder records which policy decides on a node from now on.
type Recorder struct {
	Store toolkeep.Applier
	Node  string
	Clock func() time.Time
	Log   *slog.Logger
	// Tell makes the other nodes look for the policy of a digest now; nil tells none.
	Tell func(ctx context.Context, digest string) error
}

// Changed records the policy that was taken, or was refused while the one before goes on.
func (r Recorder) Changed(s policy.State) {
	data := map[string]any{"source": s.Source, "digest": s.Digest, "node": r.Node, "taken": s.Refused == ""}
	if s.Refused != "" {
		data["reason"] = s.Refused
	}
	ctx, cancel := context.WithTimeout(context.Background(), recordWait)
	defer cancel()
	if r.Tell != nil && s.Refused == "" {
		if err := r.Tell(ctx, s.Digest); err != nil {
			r.Log.Warn("the other nodes are not told of the changed policy; each sees it at its next look", "digest", s.Digest, "error", err)
		}
	}
	id, err := uuid.NewV7()
	if err == nil {
		err = r.Store.Apply(ctx, toolkeep.AppendEvent{Event: toolkeep.Event{ID: id.String(), Type: eventChanged, Tenant: access.HomeTenant,
			Time: r.Clock(), Data: canon.Append(nil, data)}})
	}
	if err != nil {
		r.Log.Error("the record of a changed policy could not be written", "digest", s.Digest, "error", err)
	}
}
