package main

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"
)

// shedPause is how long a caller waits after a refusal, as Retry-After asks at least.
const shedPause = time.Second

// shedding measures what calls take that were admitted while others are refused because they would wait for too long for the
// processor or the store.
func shedding(b *bench) (part, error) {
	const ordinary, many = 200, 3000
	p := part{set: fmt.Sprintf("Set: calls of 600 bytes over REST in closed loops, SQLite, `limits.concurrent` off and the other settings as they come; where none is refused `calls.max_cpu_wait` and "+
		"`store.max_wait` are 0. A caller that is refused asks again after %s. Callers come one after the other for a first while; what is shown is the time "+
		"after that, in which all are there, and of latencies those of admitted calls.", shedPause)}
	for _, keyed := range []bool{false, true} {
		what := "reading"
		if keyed {
			what = "keyed"
		}
		for _, c := range []struct {
			name     string
			callers  int
			settings []string
		}{
			{"%s, %d callers", clients, nil},
			{"%s, %d callers", ordinary, nil},
			{"%s, %d callers, none refused", many, []string{"TOOLKEEP_CALLS_MAX_CPU_WAIT=0", "TOOLKEEP_STORE_MAX_WAIT=0"}},
			{"%s, %d callers", many, nil},
		} {
			name := fmt.Sprintf(c.name, what, c.callers)
			srv, err := b.server("shed "+name, append(c.settings, "TOOLKEEP_LIMITS_CONCURRENT=-1")...)
			if err != nil {
				return part{}, err
			}
			m, refused, err := admitted(overREST(echoBody(), keyed, srv), c.callers, b.d)
			srv.stop()
			if err != nil {
				return part{}, err
			}
			p.rows = append(p.rows, []string{name, rate(m), fmt.Sprintf("%.0f", float64(refused)/m.took.Seconds()), m.quantiles()})
		}
	}
	return p, nil
}

// admitted runs a closed loop for d after as long in which its callers come. They go on after E3811; refused counts those.
func admitted(t target, callers int, d time.Duration) (m measured, refused int, err error) {
	type result struct {
		took    []time.Duration
		refused int
		err     error
	}
	all := make([]result, callers)
	var wg sync.WaitGroup
	from := time.Now().Add(d)
	until := from.Add(d)
	for n := range callers {
		wg.Go(func() {
			r := &all[n]
			time.Sleep(d * time.Duration(n) / time.Duration(callers))
			s, err := t.open(n)
			if err != nil {
				r.err = err
				return
			}
			defer s.close()
			for began := time.Now(); began.Before(until); began = time.Now() {
				err := s.send(requests.Add(1))
				switch now := time.Now(); {
				case err == nil:
					if now.After(from) && now.Before(until) {
						r.took = append(r.took, now.Sub(began))
					}
				case strings.Contains(err.Error(), "E3811"):
					if now.After(from) && now.Before(until) {
						r.refused++
					}
					time.Sleep(shedPause)
				default:
					r.err = err
					return
				}
			}
		})
	}
	wg.Wait()
	m.took = until.Sub(from)
	for _, r := range all {
		m.latencies = append(m.latencies, r.took...)
		refused += r.refused
		err = errors.Join(err, r.err)
	}
	m.calls = int64(len(m.latencies))
	slices.Sort(m.latencies)
	if err == nil && m.calls == 0 {
		err = errors.New("no call was answered")
	}
	return m, refused, err
}
