package main

import (
	"cmp"
	"container/heap"
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
)

// The machines of the simulation.
const (
	nodeCores     = 4
	databaseCores = 16
	nodeClients   = 256 // callers of each node, in a closed loop
	groupMost     = 512 // as store/postgres has it
	groupDelay    = 500 * time.Microsecond
	delayNodes    = 8 // a node waits group_delay times the live nodes, at most this many
)

// costs is what a call takes, measured with one node.
type costs struct {
	steps                int           // commits that a call waits for, one after the other
	node                 time.Duration // CPU of the node
	databaseCall, commit time.Duration // CPU of PostgreSQL for a call, and for each transaction whatever its size
	flush                time.Duration // from a COMMIT to its answer, without CPU
}

// scale measures what a call costs one node and PostgreSQL, alone and in groups, and simulates 1 to 64 nodes with that.
func scale(b *bench) (part, error) {
	db, err := startDatabase()
	if err != nil {
		return part{}, err
	}
	defer db.stop()
	dsn, err := db.create("scale")
	if err != nil {
		return part{}, err
	}
	srv, err := b.server("scale", onPostgres(dsn, filepath.Join(b.dir, "scale shared"))...)
	if err != nil {
		return part{}, err
	}
	defer srv.stop()
	p := part{set: fmt.Sprintf("Set: a simulation. Nodes of %d cores, each with %d callers in a closed loop, before one PostgreSQL of %d cores; "+
		"no time for the network; what takes CPU was measured with one node on the machine above, %s.", nodeCores, nodeClients, databaseCores, db.set)}
	var kinds []costs
	for _, kind := range []struct {
		name  string
		keyed bool
	}{{"reading", false}, {"keyed", true}} {
		c, err := measureCosts(b, db, srv, kind.keyed)
		if err != nil {
			return part{}, fmt.Errorf("%s: %w", kind.name, err)
		}
		kinds = append(kinds, c)
		p.set += fmt.Sprintf(" A %s call: %s of the node; of PostgreSQL %s, and %s for each transaction; a COMMIT is answered after %s.",
			kind.name, us(micros(c.node)), us(micros(c.databaseCall)), us(micros(c.commit)), ms(c.flush))
	}
	for _, n := range []int{1, 2, 4, 8, 16, 32, 64} {
		row := []string{fmt.Sprint(n)}
		for _, c := range kinds {
			s := simulate(n, c)
			row = append(row, fmt.Sprintf("%.0f", s.perSecond), ms(s.p50), fmt.Sprintf("%.0f %% / %.0f %%", 100*s.nodes, 100*s.database))
		}
		p.rows = append(p.rows, row)
	}
	return p, nil
}

func micros(d time.Duration) float64 { return float64(d.Nanoseconds()) / 1000 }

// measureCosts takes the costs from one caller, whose every commit is its own, and from many, whose commits are groups.
func measureCosts(b *bench, db *database, srv *process, keyed bool) (c costs, err error) {
	c.steps = 1
	if keyed {
		c.steps = 2
	}
	type sample struct{ node, database, groups, latency float64 }
	measure := func(callers int) (sample, error) {
		before, err := db.commits("scale")
		if err != nil {
			return sample{}, err
		}
		t := overREST(echoBody(), keyed, srv)
		t.store = db.cpu
		m, err := closedLoop(t, callers, b.d)
		if err != nil {
			return sample{}, err
		}
		after, err := db.commits("scale")
		return sample{m.cpuPerCall(), m.storePerCall(), float64(after-before) / float64(m.calls), micros(m.quantile(0.5))}, err
	}
	one, err := measure(1)
	if err != nil {
		return c, err
	}
	many, err := measure(clients)
	if err != nil {
		return c, err
	}
	commit := max(0, (one.database-many.database)/(one.groups-many.groups))
	us := func(v float64) time.Duration { return time.Duration(max(0, v) * float64(time.Microsecond)) }
	c.node, c.commit = us(many.node), us(commit)
	c.databaseCall = us(many.database - commit*many.groups)
	c.flush = us((one.latency - one.node - one.database) / float64(c.steps))
	return c, nil
}

// commits is how many transactions the writers of a database's nodes committed.
func (d *database) commits(name string) (n int64, err error) {
	err = d.do(name, func(ctx context.Context, conn *pgx.Conn) error {
		return conn.QueryRow(ctx, `SELECT sum(committed_number)::bigint FROM writers`).Scan(&n)
	})
	return n, err
}

// simulated is what n nodes would do.
type simulated struct {
	perSecond       float64
	p50             time.Duration
	nodes, database float64 // how busy their cores are, 0 to 1
}

// event is something that happens at a time.
type event struct {
	at time.Duration
	do func()
}

type events []event

func (e events) Len() int           { return len(e) }
func (e events) Less(i, j int) bool { return e[i].at < e[j].at }
func (e events) Swap(i, j int)      { e[i], e[j] = e[j], e[i] }
func (e *events) Push(x any)        { *e = append(*e, x.(event)) }
func (e *events) Pop() any {
	last := len(*e) - 1
	x := (*e)[last]
	*e = (*e)[:last]
	return x
}

// cores serve one piece of work each, the others wait in order.
type cores struct {
	s       *simulation
	free    int
	waiting []func()
	busy    time.Duration // summed over cores, since the measured time began
}

func (c *cores) serve(cost time.Duration, then func()) {
	work := func() {
		c.free--
		c.s.after(cost, func() {
			c.free++
			if c.s.now > c.s.from {
				c.busy += cost
			}
			if len(c.waiting) > 0 {
				next := c.waiting[0]
				c.waiting = c.waiting[1:]
				next()
			}
			then()
		})
	}
	if c.free == 0 {
		c.waiting = append(c.waiting, work)
		return
	}
	work()
}

// simulation is a discrete-event simulation of nodes that commit in groups.
type simulation struct {
	now, from time.Duration
	next      events
}

func (s *simulation) after(d time.Duration, do func()) { heap.Push(&s.next, event{s.now + d, do}) }

// simulate runs n nodes for four seconds after as many in which their queues fill.
func simulate(n int, c costs) simulated {
	const length = 4 * time.Second
	s := &simulation{from: length}
	database := &cores{s: s, free: databaseCores}
	delay := groupDelay * time.Duration(min(n, delayNodes))
	var nodes []*cores
	var took []time.Duration
	for range n {
		cpu := &cores{s: s, free: nodeCores}
		nodes = append(nodes, cpu)
		var queue []func() // what waits for the writer
		writing := false
		var write func()
		write = func() {
			group := queue[:min(len(queue), groupMost)]
			queue = slices.Clone(queue[len(group):])
			database.serve(c.commit+c.databaseCall*time.Duration(len(group))/time.Duration(c.steps), func() {
				s.after(c.flush, func() {
					for _, answered := range group {
						answered()
					}
					if writing = len(queue) > 0; writing {
						s.after(delay, write)
					}
				})
			})
		}
		apply := func(answered func()) {
			queue = append(queue, answered)
			if !writing {
				writing = true
				s.after(delay, write)
			}
		}
		var call func()
		call = func() {
			began := s.now
			left := c.steps
			var step func()
			step = func() {
				if left--; left > 0 {
					apply(step)
					return
				}
				apply(func() {
					if s.now > s.from {
						took = append(took, s.now-began)
					}
					call()
				})
			}
			cpu.serve(c.node, step)
		}
		for range nodeClients {
			call()
		}
	}
	for end := s.from + length; len(s.next) > 0; {
		e := heap.Pop(&s.next).(event)
		if s.now = e.at; s.now > end {
			break
		}
		e.do()
	}
	r := simulated{perSecond: float64(len(took)) / length.Seconds(), database: share(database.busy, databaseCores, length)}
	for _, cpu := range nodes {
		r.nodes += share(cpu.busy, nodeCores*n, length)
	}
	slices.SortFunc(took, cmp.Compare[time.Duration])
	if len(took) > 0 {
		r.p50 = took[len(took)/2]
	}
	return r
}

func share(busy time.Duration, cores int, length time.Duration) float64 {
	return busy.Seconds() / float64(cores) / length.Seconds()
}
