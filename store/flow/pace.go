package flow

import "time"

// pace says what groups take: each takes some time, and each request in it some more. Both are the
// line that fits the last groups best, in which every further group counts for a share of paceShare.
type pace struct {
	groups int
	// Means of the size and the seconds of a group, the variance of the size, and the covariance of both.
	size, took, variance, together float64
}

const (
	paceShare = 1. / 8
	// paceSpread is the least variance of sizes that shows what a request adds: for groups of about
	// one size, chance would decide.
	paceSpread = 64
)

func (p *pace) add(n int, d time.Duration) {
	if p.groups++; p.groups == 1 {
		p.size, p.took = float64(n), d.Seconds()
		return
	}
	size, took := float64(n)-p.size, d.Seconds()-p.took
	p.size += paceShare * size
	p.took += paceShare * took
	p.variance = (1 - paceShare) * (p.variance + paceShare*size*size)
	p.together = (1 - paceShare) * (p.together + paceShare*size*took)
}

// expect is how long n requests take in groups of at most most.
func (p *pace) expect(n, most int) time.Duration {
	each := 0.
	if p.variance >= paceSpread { // neither part is negative
		each = min(max(p.together/p.variance, 0), p.took/p.size)
	}
	groups := (n + most - 1) / most
	return time.Duration((float64(groups)*(p.took-each*p.size) + float64(n)*each) * float64(time.Second))
}
