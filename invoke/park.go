package invoke

import (
	"context"
	"sync"

	"github.com/toolkeep/toolkeep"
)

// parking gives the agent's slot of a call back while the call waits for its caller's
// answer: a person who does not answer must not keep the agent from its other tools.
type parking struct {
	mu     sync.Mutex
	over   bool
	resume func() // while parked
}

// parks returns a context whose pauses park the call.
func (p *Pipeline) parks(ctx context.Context, a *activeCall) context.Context {
	if _, ok := a.call.Caller.(toolkeep.Asker); !ok || a.mode == modeChild || a.release == nil { // a child holds no slot of the agent
		return ctx
	}
	release, s, acting := a.release, &parking{}, a.principal
	a.release = func() { s.end(); release() }
	return toolkeep.OnPause(ctx, func() func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if !s.over { // a shared run may outlive the call that began it
			s.resume = p.Limits.Park(acting)
		}
		return s.unpark
	})
}

func (s *parking) unpark() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.takeBack()
}

// takeBack takes the slot again if it is parked. s.mu is held.
func (s *parking) takeBack() {
	if s.resume != nil {
		s.resume()
		s.resume = nil
	}
}

// end takes the slot back before the call's release gives it up; later pauses of a shared run park nothing.
func (s *parking) end() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.over = true
	s.takeBack()
}
