package nodes

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/toolkeep/toolkeep"
)

// Thresholds of the difference between a node's clock and the store's, by which leases count.
const (
	ClockWarn = 2 * time.Second
	ClockFail = 10 * time.Second // the node is not ready
)

// Facts are what the nodes of a store compare, in toolkeep.NodeState.Data. A member that is
// empty is not compared, such as that of a node of an older version.
type Facts struct {
	// Seals is the id of the key that seals, Opens are those of all that open. An id is a
	// hash that tells nothing of its key.
	Seals string   `json:"seals,omitempty"`
	Opens []string `json:"opens,omitempty"`
	Blobs string   `json:"blobs,omitempty"` // id in the folder of blobs
	// KeyTTL is idempotency.ttl.
	KeyTTL time.Duration `json:"key_ttl,omitempty"`
	// Issuers identifies the contents of oauth.issuers_file; see access.IssuersSum.
	Issuers string `json:"issuers,omitempty"`
}

func factsOf(n *toolkeep.NodeState) (f Facts) {
	if json.Unmarshal(n.Data, &f) != nil {
		return Facts{}
	}
	return f
}

// Difference is something that a node has otherwise than others. Its JSON is for health, which
// anybody may read: it names no node and no place.
type Difference struct {
	What  string `json:"what"`  // seal_key, blobs, idempotency_ttl, oauth_issuers, version or clock
	State string `json:"state"` // differs, warn, or fail: the node is not ready
	Text  string `json:"-"`     // what, where and what to do
}

// States of a Difference.
const (
	Differs = "differs" // as nodes may for a while
	Warn    = "warn"
	Fail    = "fail"
)

// Compare gives what self has otherwise than the others. conflict is an error if self cannot
// open what the store holds. It is asked, once at most, where self lacks another node's key:
// a node that opens what the store holds, as others do that seal alike, stays ready beside
// one with a key of its own.
func Compare(self *toolkeep.NodeState, others []toolkeep.NodeState, conflict func() error) (all []Difference) {
	mine := factsOf(self)
	add := func(what, state string, names []string, text string) {
		if len(names) > 0 {
			all = append(all, Difference{what, state, fmt.Sprintf(text, strings.Join(names, ", "))})
		}
	}
	conflict = sync.OnceValue(conflict)
	var theirKey, myKey, both, alike, blobs, ttls, issuers, versions []string
	for _, o := range others {
		if o.Name == self.Name {
			continue
		}
		has := factsOf(&o)
		if has.Seals != "" && mine.Seals != "" {
			lack, lacks := !slices.Contains(mine.Opens, has.Seals), !slices.Contains(has.Opens, mine.Seals)
			switch {
			case has.Seals == mine.Seals:
				alike = append(alike, o.Name)
			case lack && lacks:
				both = append(both, o.Name)
			case lack:
				theirKey = append(theirKey, o.Name)
			case lacks:
				myKey = append(myKey, o.Name)
			}
		}
		if has.Blobs != "" && mine.Blobs != "" && has.Blobs != mine.Blobs {
			blobs = append(blobs, o.Name)
		}
		if has.KeyTTL != 0 && mine.KeyTTL != 0 && has.KeyTTL != mine.KeyTTL {
			ttls = append(ttls, o.Name)
		}
		if has.Issuers != "" && mine.Issuers != "" && has.Issuers != mine.Issuers {
			issuers = append(issuers, o.Name)
		}
		if o.Version != self.Version {
			versions = append(versions, o.Name+" ("+o.Version+")")
		}
	}
	const copyKey = "; give all nodes the same key file (secrets.seal_key) or TOOLKEEP_SEAL_KEY"
	if len(theirKey) > 0 && len(alike) > 0 && conflict() == nil {
		add("seal_key", Warn, theirKey, "%s seals with a key that this node does not have, which agrees with others and opens what the store holds; what was accepted there this node cannot execute"+copyKey)
		theirKey = nil
	}
	add("seal_key", Fail, theirKey, "%s seals with a key that this node does not have, so this node cannot execute what was accepted there"+copyKey)
	add("seal_key", Warn, myKey, "%s does not have the key with which this node seals, and cannot execute what is accepted here"+copyKey)
	if len(both) > 0 {
		if err := conflict(); err != nil {
			add("seal_key", Fail, both, "%s and this node have different sealing keys, and this node's does not open what the store holds"+copyKey)
		} else {
			add("seal_key", Warn, both, "%s has another sealing key than this node, whose key opens what the store holds"+copyKey)
		}
	}
	add("blobs", Warn, blobs, "%s stores full results in another folder than this node, so a result can be fetched only from the node that produced it; set store.blobs to one folder that all nodes share")
	add("idempotency_ttl", Warn, ttls, "%s has another idempotency.ttl than this node, so a key may be free before the longer of them is over; set the same on all nodes")
	add("oauth_issuers", Warn, issuers, "%s has another file of OAuth issuers than this node, so a token may be let in by one of them alone, or as the caller of another tenant; give all nodes the same oauth.issuers_file, and restart those that read an older one")
	add("version", Differs, versions, "%s runs another version than this node ("+strings.ReplaceAll(self.Version, "%", "%%")+"); update all nodes, in the order of docs/operations.md")
	return all
}

// Clock is how far the store's clock is ahead of the node's, give or take within.
func Clock(ahead, within time.Duration) []Difference {
	off, state := max(0, ahead.Abs()-within), ""
	switch {
	case off > ClockFail:
		state = Fail
	case off > ClockWarn:
		state = Warn
	default:
		return nil
	}
	// Milliseconds would make another line of each beat.
	return []Difference{{"clock", state, fmt.Sprintf("the database's clock is %s off this machine's; set both (NTP): %s may differ, and a node is not ready from %s on",
		ahead.Abs().Round(time.Second), ClockWarn, ClockFail)}}
}

// AgreementConfig is what an Agreement needs.
type AgreementConfig struct {
	Members interface {
		Members
		ClockDifference() (ahead, within time.Duration, known bool)
	}
	// OpensStore is an error if the sealing keys do not open what the store holds.
	OpensStore func(ctx context.Context) error
	Log        *slog.Logger
}

// Agreement compares this node with the others of its store, and logs what differs, once.
type Agreement struct {
	c AgreementConfig

	mu   sync.Mutex
	last []Difference
}

// NewAgreement returns an Agreement that has compared nothing.
func NewAgreement(c AgreementConfig) *Agreement { return &Agreement{c: c} }

// arbiterLimit bounds the question whose sealing key is the store's.
const arbiterLimit = 2 * time.Second

// Look compares, after each beat.
func (a *Agreement) Look() {
	live, _ := a.c.Members.Live()
	var all []Difference
	for i := range live {
		if owns(a.c.Members, &live[i]) {
			all = Compare(&live[i], live, func() error {
				ctx, cancel := context.WithTimeout(context.Background(), arbiterLimit)
				defer cancel()
				return a.c.OpensStore(ctx)
			})
		}
	}
	if ahead, within, known := a.c.Members.ClockDifference(); known {
		all = append(all, Clock(ahead, within)...)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, d := range all {
		level := map[string]slog.Level{Differs: slog.LevelInfo, Warn: slog.LevelWarn, Fail: slog.LevelError}[d.State]
		if !slices.Contains(a.last, d) {
			a.c.Log.Log(context.Background(), level, "this node differs from the others of its store: "+d.Text, "what", d.What)
		}
	}
	for _, d := range a.last {
		if !slices.ContainsFunc(all, func(o Difference) bool { return o.What == d.What }) {
			a.c.Log.Info("this node agrees again with the others of its store", "what", d.What)
		}
	}
	a.last = all
}

// Differences are those of the last Look, never nil.
func (a *Agreement) Differences() []Difference {
	a.mu.Lock()
	defer a.mu.Unlock()
	return append([]Difference{}, a.last...)
}

func (a *Agreement) err(states ...string) error {
	var all []error
	for _, d := range a.Differences() {
		if slices.Contains(states, d.State) {
			all = append(all, errors.New(d.Text))
		}
	}
	return errors.Join(all...)
}

// Ready is why this node must not serve beside the others.
func (a *Agreement) Ready(context.Context) error { return a.err(Fail) }

// Health is what an operator should put right.
func (a *Agreement) Health(context.Context) error { return a.err(Warn, Fail) }
