package sqlite

import (
	"errors"
	"fmt"

	"github.com/toolkeep/toolkeep"
)

// Kinds of feed rows. They are stored: numbers are never reused.
const (
	kindRecord   = 1
	kindClaim    = 2
	kindMove     = 3
	kindLease    = 4
	kindCancel   = 5
	kindProgress = 6
	kindFetched  = 7
	lastCallKind = 9 // kinds up to here are of calls and leave after FeedKeep

	kindEvent = 10 // leaves after EventKeep

	kindPublish   = 20
	kindLifecycle = 21
	kindKey       = 22
	kindRevoke    = 23
)

// step is one change, ready for the writer: its feed row, already encoded, and
// what it does beside the feed.
type step struct {
	change toolkeep.Change // as watchers get it
	kind   int64
	tenant string
	ref    string
	data   []byte
	// act does the change in the writer's transaction. It gives false where there
	// was nothing to change, so that no feed row is written. It may replace
	// change and data. nil does nothing beside the feed.
	act func(g *group, st *step) (changed bool, err error)
	// foreign says that act runs code of others, which may write and then fail.
	foreign bool
}

// prepare checks and encodes a change where Apply was called, so that the
// writer has as little to do as possible.
func (s *Store) prepare(c toolkeep.Change) (step, error) {
	st, err := s.prepareKind(c)
	if err == nil && len(st.data) > maxRecord {
		err = fmt.Errorf("it takes %d bytes, the limit is %d", len(st.data), maxRecord)
	}
	if err != nil {
		return st, fmt.Errorf("sqlite: %T: %w", c, err)
	}
	return st, nil
}

func (s *Store) prepareKind(c toolkeep.Change) (step, error) {
	switch c := c.(type) {
	case toolkeep.RecordCall:
		return prepareRecord(c)
	case toolkeep.ClaimCall:
		return prepareClaim(c)
	case toolkeep.MoveCall:
		return prepareMove(c)
	case toolkeep.RenewLeases:
		return prepareLeases(c)
	case toolkeep.RequestCancel:
		return prepareCancel(c)
	case toolkeep.ReportProgress:
		return prepareProgress(c)
	case toolkeep.MarkFetched:
		return prepareFetched(c, s.cfg.Clock)
	case toolkeep.Enqueue:
		return s.prepareEnqueue(c)
	case toolkeep.PublishVersion:
		return preparePublish(c)
	case toolkeep.SetLifecycle:
		return prepareLifecycle(c)
	case toolkeep.PutKey:
		return preparePutKey(c)
	case toolkeep.RevokeKey:
		return prepareRevoke(c)
	case toolkeep.AppendEvent:
		return prepareEvent(c)
	case nil:
		return step{}, errors.New("there is no change")
	default:
		return step{}, errors.New("the store does not know this change; changes are passed by value")
	}
}

func checkRef(r toolkeep.CallRef) error {
	if r.Tenant == "" || r.ID == "" {
		return errors.New("a call is named by tenant and id, one is empty")
	}
	return nil
}

func checkCall(v *toolkeep.Invocation) error {
	if v == nil {
		return errors.New("there is no invocation")
	}
	if err := checkRef(v.Ref()); err != nil {
		return err
	}
	if !knownState(v.State) {
		return fmt.Errorf("%q is no state of a call", string(v.State))
	}
	if n := len(v.Output) + len(v.SealedArgs); n > maxRecord {
		return fmt.Errorf("output and sealed arguments take %d bytes, the limit is %d", n, maxRecord)
	}
	return nil
}

func knownState(s toolkeep.CallState) bool {
	switch s {
	case toolkeep.CallAccepted, toolkeep.CallPendingApproval, toolkeep.CallQueued,
		toolkeep.CallRunning, toolkeep.CallInputRequired:
		return true
	}
	return s.Ended()
}
