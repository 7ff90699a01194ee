package limit

import "github.com/toolkeep/toolkeep"

// shares are the limits as this node applies them: a node of several takes its share of each.
type shares struct{ rank, nodes int }

// of returns the share of a limit; 0 stays 0, no limit. The shares of all nodes add up to the
// limit, except where there are more nodes than it has calls: each has at least 1.
func (s *shares) of(limit int) int {
	if s.nodes == 1 || limit <= 0 {
		return limit
	}
	n := limit / s.nodes
	if s.rank < limit%s.nodes {
		n++
	}
	return max(n, 1)
}

// spec is the share of a limit's numbers.
func (s *shares) spec(whole *toolkeep.RateLimitSpec) toolkeep.RateLimitSpec {
	mine := *whole
	mine.PerMinute, mine.Burst, mine.MaxConcurrent = s.of(whole.PerMinute), s.of(whole.Burst), s.of(whole.MaxConcurrent)
	return mine
}

// SetNodes tells how many nodes live, and how many of them come before this one in the order
// that all use. From then on this node admits its share of each limit: a bucket or window keeps
// the part of it that is used up, and calls that run keep their slots. A number below 1, and a
// rank that none of so many nodes has, change nothing.
func (l *Limits) SetNodes(rank, nodes int) {
	if nodes < 1 || rank < 0 || rank >= nodes {
		return
	}
	if now := l.shares.Load(); now.rank == rank && now.nodes == nodes {
		return
	}
	l.shares.Store(&shares{rank, nodes})
	l.waiters.serve() // the share of a tool's calls may have grown
}

// Share returns this node's share of a limit that all nodes keep together, at least 1, and
// the number of nodes. 0 or less is no limit, and returned as it is.
func (l *Limits) Share(limit int) (share, nodes int) {
	s := l.shares.Load()
	return s.of(limit), s.nodes
}
