package policies

import (
	"context"
	"encoding/json"
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

// TakenKind is the kind of the document that says which policy a node took last; its id is the kind.
const TakenKind = "policy_taken"

// RecordStore is what a Recorder needs of a store.
type RecordStore interface {
	toolkeep.Applier
	Head(ctx context.Context) (int64, error)
	Document(ctx context.Context, kind, tenant, id string) (toolkeep.Document, error)
}

// Recorder records which policy decides on a node from now on, and tells the nodes that share its store over the feed: those
// with another one look at their bundle at once. It is a toolkeep.FeedPart, which starts Engine.
type Recorder struct {
	Store  RecordStore
	Engine *policy.Engine // its OnChange is Changed
	Node   string
	Clock  func() time.Time
	Log    *slog.Logger
	// Tell also tells others who listen of the digest that was taken; nil tells none.
	Tell func(ctx context.Context, digest string) error
}

// taken is the body of a TakenKind document.
type taken struct {
	Digest string `json:"digest"`
	Node   string `json:"node"`
}

// Start starts the engine and tells of the policy that it has: another node may have an older one.
func (r *Recorder) Start(ctx context.Context) (after int64, err error) {
	if after, err = r.Store.Head(ctx); err != nil {
		return 0, err
	}
	if err := r.Engine.Start(ctx); err != nil {
		return 0, err
	}
	if s := r.Engine.State(); s.Digest != "" && s.Refused == "" { // a remote policy has none
		r.apply(ctx, s.Digest, r.told(ctx, s.Digest))
	}
	return after, nil
}

// Follow looks at the bundle if another node has taken a policy that this one does not have.
func (r *Recorder) Follow(c toolkeep.Committed) {
	put, ok := c.Change.(toolkeep.PutDocument)
	if !ok || put.Document.Kind != TakenKind {
		return
	}
	var t taken
	if err := json.Unmarshal(put.Document.Body, &t); err != nil || t.Digest != r.Engine.State().Digest {
		r.Engine.Look()
	}
}

// told returns the change that tells of a policy, none if that was told.
func (r *Recorder) told(ctx context.Context, digest string) []toolkeep.Change {
	var was taken
	if d, err := r.Store.Document(ctx, TakenKind, "", TakenKind); err == nil && json.Unmarshal(d.Body, &was) == nil && was.Digest == digest {
		return nil
	}
	body, err := json.Marshal(taken{digest, r.Node})
	if err != nil {
		panic(err) // a struct of texts
	}
	return []toolkeep.Change{toolkeep.PutDocument{Document: toolkeep.Document{Kind: TakenKind, ID: TakenKind, Body: body, UpdatedBy: r.Node}, Expect: toolkeep.AnyRevision}}
}

func (r *Recorder) apply(ctx context.Context, digest string, changes []toolkeep.Change) {
	if len(changes) == 0 {
		return
	}
	if err := r.Store.Apply(ctx, changes...); err != nil {
		r.Log.Error("a policy that was taken or refused could not be recorded; the other nodes see a changed bundle at their next look", "digest", digest, "error", err)
	}
}

// Changed records the policy that was taken, or was refused while the one before goes on.
func (r *Recorder) Changed(s policy.State) {
	data := map[string]any{"source": s.Source, "digest": s.Digest, "node": r.Node, "taken": s.Refused == ""}
	if s.Refused != "" {
		data["reason"] = s.Refused
	}
	ctx, cancel := context.WithTimeout(context.Background(), recordWait)
	defer cancel()
	changes := []toolkeep.Change{toolkeep.AppendEvent{Event: toolkeep.Event{ID: uuid.Must(uuid.NewV7()).String(), Type: eventChanged, Tenant: access.HomeTenant,
		Time: r.Clock(), Data: canon.Append(nil, data)}}}
	if s.Refused == "" {
		changes = append(changes, r.told(ctx, s.Digest)...)
		if r.Tell != nil {
			if err := r.Tell(ctx, s.Digest); err != nil {
				r.Log.Warn("a changed policy is not told of on Redis; the nodes hear of it through the store", "digest", s.Digest, "error", err)
			}
		}
	}
	r.apply(ctx, s.Digest, changes)
}
