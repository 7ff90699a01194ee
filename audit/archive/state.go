package archive

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"
)

const (
	patience  = time.Minute    // how long writing may fail before health tells of it
	tellLost  = 24 * time.Hour // how long health tells that retention removed what was not archived
	maxError  = 300            // bytes of an error that is shown
	lateTimes = 3              // times After that an entry may wait before health tells of it
)

// State is what the node that leads Work knows.
type State struct {
	Segments     int64 // written since the node started
	Entries      int64
	Failures     int64
	Missed       int64     // entries that retention may have removed before they were archived, at most, since the node started
	MissedAt     time.Time // when the last of them were noticed
	Oldest       time.Time // time of the oldest entry that waits; zero without one
	FailingSince time.Time
	Error        string // why nothing is written, while that is so
}

// State returns it; a node that does not lead has none.
func (a *Archive) State() State {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.state
}

// Health tells that segments cannot be written for a minute, that entries wait for too long, and within a day that retention
// removed entries that were not archived.
func (a *Archive) Health(context.Context) error {
	st, now, keeps := a.State(), a.c.Clock(), a.c.Store.KeepsFrom()
	var errs []error
	if st.Error != "" && now.Sub(st.FailingSince) > patience {
		errs = append(errs, fmt.Errorf("the audit's archive cannot be written since %s: %s", st.FailingSince.UTC().Format(time.RFC3339), st.Error))
	}
	switch {
	case st.Oldest.IsZero():
	case st.Oldest.Before(keeps):
		errs = append(errs, fmt.Errorf("retention waits for the audit's archive, whose oldest missing entry is of %s; it removes what is older than %s, archived or not",
			st.Oldest.Format(time.RFC3339), keeps.Add(-a.c.Wait).UTC().Format(time.RFC3339)))
	case now.Sub(st.Oldest) > lateTimes*a.c.After:
		errs = append(errs, fmt.Errorf("the audit's archive is behind: its oldest missing entry is of %s", st.Oldest.Format(time.RFC3339)))
	}
	if st.Missed > 0 && now.Sub(st.MissedAt) < tellLost {
		errs = append(errs, fmt.Errorf("retention removed up to %d entries before the audit's archive had them", st.Missed))
	}
	return errors.Join(errs...)
}

func (a *Archive) fails(err error, failures int) {
	text := err.Error()
	if len(text) > maxError {
		text = text[:maxError] + "…"
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.state.Failures++
	if a.state.FailingSince.IsZero() {
		a.state.FailingSince = a.c.Clock().UTC()
	}
	if a.state.Error = text; failures == 2 {
		a.c.Log.Error("the audit's archive cannot be written; it is tried again, and retention keeps what is not archived for longer", "error", text)
	}
}

func (a *Archive) works() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.state.Error, a.state.FailingSince = "", time.Time{}
}

// stops forgets what another node knows better from now on.
func (a *Archive) stops() {
	a.works()
	a.waits(time.Time{})
}

// waits notes the time of the oldest entry that waits.
func (a *Archive) waits(oldest time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.state.Oldest = oldest
}

func (a *Archive) wrote(s *Segment) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.state.Segments++
	a.state.Entries += int64(len(s.Links))
}

// gaps counts numbers of a writer without an entry of which retention may have removed one before it was archived.
type gaps struct {
	a    *Archive
	last int64     // number up to which it has counted
	at   time.Time // of the entry before; zero if there is none
	n    int64
}

// entry notes the next number that has an entry, of a time. Of what is missing before it, retention can have removed what is
// older than what it keeps for the archive, and not older than the archive.
func (g *gaps) entry(seq int64, at time.Time) {
	missing := seq - g.last - 1
	waited := g.a.c.Store.KeepsFrom().Add(-g.a.c.Wait)
	if missing > 0 && g.at.Before(waited) && waited.After(g.a.begun.From) && at.After(g.a.begun.From) {
		g.n += missing
	}
	if seq > g.last {
		g.last, g.at = seq, at
	}
}

// missed notes that retention removed up to n entries.
func (a *Archive) missed(writer, n int64) {
	if n == 0 {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.state.Missed += n
	a.state.MissedAt = a.c.Clock().UTC()
	a.c.Log.Error("retention removed entries before the audit's archive had them", "writer", writer, "at_most", n, "waited", a.c.Wait)
}

// remove removes a day of a tenant, and the tenant's folder after its last one.
func (a *Archive) remove(tenant, day string) error {
	dir := filepath.Join(string(a.folder), tenant, day)
	list, err := a.folder.segments(tenant, day)
	if err != nil {
		return err
	}
	for _, n := range list {
		if err := os.Remove(a.folder.path(n)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	if err := a.folder.removeStale(tenant, day, time.Now()); err != nil {
		return err
	}
	_ = os.Remove(dir) // it stays with files that are not the archive's
	_ = os.Remove(filepath.Dir(dir))
	a.c.Log.Info("segments of the audit's archive were removed, since they are past their time", "tenant", tenant, "day", day, "segments", len(list))
	return nil
}
