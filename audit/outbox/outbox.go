package outbox

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/toolkeep/toolkeep"
)

// Work is the name of the work that one node does for its store: it delivers to all sinks.
const Work = "audit.sinks"

// SinkKind is the kind of the documents with what is known of a sink besides its cursors.
const SinkKind = "outbox_sink"

const author = "toolkeep"

// Store is what the package needs of a store.
type Store interface {
	toolkeep.Applier
	toolkeep.Chains
	toolkeep.Cursors
	Document(ctx context.Context, kind, tenant, id string) (toolkeep.Document, error)
}

// Config configures Outbox. Store, Open and Dir are required.
type Config struct {
	Sinks []Settings
	Store Store
	// Open makes a sink, which connects when it first delivers.
	Open  func(Settings) (Sink, error)
	Dir   string // of the dead letters
	Clock func() time.Time
	Log   *slog.Logger
	// Hook is called before a cursor moves, with the sink's name; nil by default. Crash tests use it.
	Hook func(sink string)
}

// Outbox delivers to sinks. It is safe for concurrent use.
type Outbox struct {
	c       Config
	sinks   []*sink
	release func() // of the folder of dead letters; nil without one
}

// New makes an Outbox, and the folder of the dead letters if there are sinks. A folder that another process uses is
// an error.
func New(c Config) (*Outbox, error) {
	if c.Clock == nil {
		c.Clock = time.Now
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	if c.Hook == nil {
		c.Hook = func(string) {}
	}
	o := &Outbox{c: c}
	if len(c.Sinks) > 0 {
		if err := os.MkdirAll(c.Dir, 0o700); err != nil {
			return nil, fmt.Errorf("the folder of dead letters cannot be made: %w", err)
		}
		var err error
		if o.release, err = holdFolder(c.Dir); err != nil {
			return nil, err
		}
	}
	for _, settings := range c.Sinks {
		settings.fill()
		s := &sink{Settings: settings, c: &o.c, turn: make(chan struct{}, 1), events: !settings.calls()}
		s.dead = deadLetters{path: filepath.Join(c.Dir, s.Name+".jsonl"), most: s.DeadLetterBytes}
		if err := s.dead.open(); err != nil {
			return nil, errors.Join(fmt.Errorf("the dead letters of the sink %s cannot be read: %w", s.Name, err), o.Stop())
		}
		s.state.DeadLetters = s.dead.count
		var err error
		if s.out, err = c.Open(settings); err != nil {
			return nil, errors.Join(fmt.Errorf("the sink %s cannot be used: %w", s.Name, err), o.Stop())
		}
		o.sinks = append(o.sinks, s)
	}
	return o, nil
}

// Any reports whether there are sinks.
func (o *Outbox) Any() bool { return len(o.sinks) > 0 }

// Run delivers to all sinks until ctx ends. It is for the node that leads Work.
func (o *Outbox) Run(ctx context.Context) {
	var all sync.WaitGroup
	for _, s := range o.sinks {
		all.Go(func() { s.run(ctx) })
	}
	all.Wait()
}

// Stop closes the sinks. Run must have returned.
func (o *Outbox) Stop() error {
	if o.release != nil {
		defer o.release()
	}
	var errs []error
	for _, s := range o.sinks {
		errs = append(errs, s.out.Close())
	}
	return errors.Join(errs...)
}

func (o *Outbox) find(name string) *sink {
	if i := slices.IndexFunc(o.sinks, func(s *sink) bool { return s.Name == name }); i >= 0 {
		return o.sinks[i]
	}
	return nil
}

// State is what a node knows of its delivery to a sink. Nodes tell it each other.
type State struct {
	Delivered    int64     `json:"delivered"`    // events, since the node started
	Failures     int64     `json:"failures"`     // deliveries that failed, since the node started
	DeadLetters  int       `json:"dead_letters"` // in the node's file
	FailingSince time.Time `json:"failing_since,omitzero"`
	Error        string    `json:"error,omitempty"`   // why nothing is delivered, while that is so
	Full         bool      `json:"full,omitempty"`    // the file of dead letters has no room
	Damaged      int64     `json:"damaged,omitempty"` // entries that no event can be made of, since the node started
	Lost         int64     `json:"-"`                 // entries that retention removed before they were sent, at most
	LostAt       time.Time `json:"-"`                 // when the last of them were missed
}

// Told returns what this node tells the others of its sinks, by name. It may be asked of a nil Outbox.
func (o *Outbox) Told() map[string]State {
	if o == nil || len(o.sinks) == 0 {
		return nil
	}
	all := make(map[string]State, len(o.sinks))
	for _, s := range o.sinks {
		all[s.Name] = s.known()
	}
	return all
}

// Stats are numbers for metrics, of all sinks of this node.
type Stats struct {
	Delivered, Failures, Lost, Damaged int64
	DeadLetters, Failing               int
}

// Stats returns them.
func (o *Outbox) Stats() (t Stats) {
	for _, s := range o.sinks {
		st := s.known()
		t.Delivered += st.Delivered
		t.Failures += st.Failures
		t.Lost += st.Lost
		t.Damaged += st.Damaged
		t.DeadLetters += st.DeadLetters
		if st.Error != "" {
			t.Failing++
		}
	}
	return t
}

const (
	patience = time.Minute    // how long a sink may fail before health tells of it
	tellLost = 24 * time.Hour // how long health tells of entries that were lost, after they were missed
)

// Health is the first sink that is down for a minute, has no room for dead letters, or lost entries within a day.
func (o *Outbox) Health(context.Context) error {
	for _, s := range o.sinks {
		switch st := s.known(); {
		case st.Full:
			return fmt.Errorf("the sink %s waits, since its dead letters fill their file; replay them with toolkeep outbox replay %s", s.Name, s.Name)
		case st.Error != "" && o.c.Clock().Sub(st.FailingSince) > patience:
			return fmt.Errorf("the sink %s is down since %s", s.Name, st.FailingSince.UTC().Format(time.RFC3339))
		case st.Lost > 0 && o.c.Clock().Sub(st.LostAt) < tellLost:
			return fmt.Errorf("retention removed up to %d entries before the sink %s had them", st.Lost, s.Name)
		}
	}
	return nil
}

// Status is a sink as its cursors show it.
type Status struct {
	Settings
	Begun  bool
	Behind int64     // entries of the journal after its cursors, of all types
	Oldest time.Time // when the oldest of them was written; zero without one
	Lost   int64     // entries that retention removed before they were sent, at most
}

// Statuses returns how far the sinks are. E3965: the store cannot be read.
func (o *Outbox) Statuses(ctx context.Context) ([]Status, error) {
	list := make([]Status, len(o.sinks))
	for i, s := range o.sinks {
		var err error
		if list[i], err = s.status(ctx); err != nil {
			return nil, toolkeep.NewError(toolkeep.RecordUnavailable, "the journal cannot be read now").Because(err)
		}
	}
	return list, nil
}

// Replayed is what a replay did.
type Replayed struct {
	Sent      int    `json:"sent" doc:"dead letters that the sink has confirmed"`
	Remaining int    `json:"remaining" doc:"dead letters that are still in this node's file"`
	Error     string `json:"error,omitempty" doc:"why the first of them was not sent"`
}

// replayTime bounds a replay.
const replayTime = 20 * time.Second

// Replay sends this node's dead letters of a sink again, the oldest first, for at most 20 s. E3001: there is no
// such sink. E3965: the file cannot be read or written.
func (o *Outbox) Replay(ctx context.Context, name string) (Replayed, error) {
	s := o.find(name)
	if s == nil {
		return Replayed{}, toolkeep.NewError(toolkeep.ToolNotFound, "there is no sink %s", name)
	}
	ctx, cancel := context.WithTimeout(ctx, replayTime)
	defer cancel()
	r, err := s.replay(ctx)
	if err != nil {
		return r, toolkeep.NewError(toolkeep.RecordUnavailable, "the dead letters of the sink %s cannot be sent again", name).Because(err)
	}
	return r, nil
}
