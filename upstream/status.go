package upstream

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/toolkeep/toolkeep"
)

// State is a server's state for one tenant.
type State string

const (
	StateIdle     State = "idle"           // no session; the next call starts one
	StateStarting State = "starting"       // the first session is starting
	StateReady    State = "ready"          // at least one session works
	StateBackoff  State = "backoff"        // it failed and waits for its next start
	StateFailed   State = "failed"         // it failed too often and is paused
	StateLogin    State = "login_required" // a principal has to log in first
	StateDisabled State = "disabled"
)

// Status is one server as seen by the principal's tenant.
type Status struct {
	Name      string    `json:"name"`
	Owner     string    `json:"owner,omitempty"` // tenant that it belongs to; "" all
	Transport string    `json:"transport"`
	State     State     `json:"state"`
	Since     time.Time `json:"since,omitzero"` // of the oldest session
	// PID is that of the oldest session's command; RSS is the resident bytes of all
	// process trees without their reapers. 0 means none or unknown.
	PID       int       `json:"pid,omitempty"`
	RSS       int64     `json:"rss_bytes,omitempty"`
	Sessions  int       `json:"sessions"`
	InUse     int       `json:"in_use"` // by calls or bound sessions
	Tools     int       `json:"tools"`  // of the latest definitions
	Version   string    `json:"protocol_version,omitempty"`
	Lost      int64     `json:"lost"` // sessions that ended by themselves
	LastError string    `json:"last_error,omitempty"`
	ErrorAt   time.Time `json:"last_error_at,omitzero"`
	RetryAt   time.Time `json:"retry_at,omitzero"` // of backoff and failed
	Stale     string    `json:"stale,omitempty"`   // why the definitions are older than the latest attempt
	Stray     int64     `json:"stray"`             // unsolicited messages
	Refused   int64     `json:"refused"`           // refused server requests
	Dropped   int64     `json:"dropped"`           // notifications dropped for slow callers
}

// Status lists the servers visible to the principal, by name.
func (s *Servers) Status(p *toolkeep.Principal) []Status {
	list := s.visible(p)
	out := make([]Status, 0, len(list))
	roots := make([][]int, len(list))
	var all []int
	for i, srv := range list {
		st, pids := srv.status(p.Tenant)
		out = append(out, st)
		roots[i] = pids
		all = append(all, pids...)
	}
	sizes := residentBytes(all)
	for i := range out {
		for _, pid := range roots[i] {
			out[i].RSS += sizes[pid]
		}
	}
	return out
}

// status also returns the pids of the process trees.
func (s *server) status(tenant string) (Status, []int) {
	st := s.state(tenant)
	v := Status{
		Name: s.spec.Name, Owner: s.spec.Tenant, Transport: s.spec.Transport, Tools: st.defs.tools(),
		Stray: st.stray.Load(), Refused: st.refused.Load(), Dropped: st.dropped.Load(),
	}
	if d, _ := st.defs.get(); d.Stale != nil {
		v.Stale = st.clean(d.Stale.Error())
	}
	starting := false
	var trees []int
	s.mu.Lock()
	for _, sl := range s.slots {
		if sl.key.tenant != tenant {
			continue
		}
		select {
		case <-sl.ready:
		default:
			starting = true
			continue
		}
		if sl.sess == nil {
			continue
		}
		v.Sessions++
		if sl.uses > 0 {
			v.InUse++
		}
		oldest := v.Since.IsZero() || sl.since.Before(v.Since)
		if oldest {
			v.Since, v.Version = sl.since, sl.sess.info.Version
		}
		if p := sl.sess.proc; p != nil {
			trees = append(trees, p.cmd.Process.Pid)
			if oldest {
				v.PID = p.pid
			}
		}
	}
	s.mu.Unlock()
	now := s.config.Clock()
	h := &st.health
	h.mu.Lock()
	v.State, v.Lost, v.LastError, v.ErrorAt = h.stateLocked(now), h.lost, h.last, h.lastAt
	if now.Before(h.until) {
		v.RetryAt = h.until
	}
	h.mu.Unlock()
	switch {
	case s.spec.Disabled:
		v.State = StateDisabled
	case v.Sessions > 0:
		v.State = StateReady
	case starting:
		v.State = StateStarting
	}
	return v, trees
}

// Running is a server that does something for a tenant.
type Running struct {
	Tenant string
	Status
}

// Running lists what the servers do for all tenants, by owner, name and tenant. What is idle or
// disabled is not in it, and RSS is not known.
func (s *Servers) Running() []Running {
	s.mu.Lock()
	list := slices.Collect(maps.Values(s.servers))
	s.mu.Unlock()
	var out []Running
	for _, srv := range list {
		srv.mu.Lock()
		tenants := slices.Collect(maps.Keys(srv.states))
		srv.mu.Unlock()
		for _, tenant := range tenants {
			if st, _ := srv.status(tenant); st.State != StateIdle && st.State != StateDisabled {
				out = append(out, Running{tenant, st})
			}
		}
	}
	slices.SortFunc(out, func(a, b Running) int {
		return cmp.Or(cmp.Compare(a.Owner, b.Owner), cmp.Compare(a.Name, b.Name), cmp.Compare(a.Tenant, b.Tenant))
	})
	return out
}
