// Package storetest is the conformance suite for stores. A store's own tests call Run.
package storetest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"sync"
	"testing"
	"time"

	"github.com/toolkeep/toolkeep"
)

// Store is what the suite needs of a store.
type Store interface {
	toolkeep.Applier
	toolkeep.Watcher
	toolkeep.Members
	toolkeep.Journal
	toolkeep.Chains
	toolkeep.Cursors
	Invocations() toolkeep.Invocations
	CallMarks() toolkeep.CallMarks
	Versions(ctx context.Context) ([]toolkeep.Version, int64, error)
	Keys(ctx context.Context) ([]toolkeep.APIKey, int64, error)
	Document(ctx context.Context, kind, tenant, id string) (toolkeep.Document, error)
	Documents(ctx context.Context, kind string) ([]toolkeep.Document, int64, error)
	Close() error
}

// Setup configures a test's store.
type Setup struct {
	// Clock is the store's clock.
	Clock func() time.Time
	// Enqueue stands in for the queue; the store calls it within the transaction.
	Enqueue func(ctx context.Context, e toolkeep.Enqueue) error
}

// Open opens an empty store, which is closed when the test ends. reopen closes it and
// opens the same data again; it is nil if the data does not outlive the store, and
// tests that need it are skipped.
type Open func(t *testing.T, s Setup) (store Store, reopen func() Store)

// Run runs the suite.
func Run(t *testing.T, open Open) {
	for _, c := range []struct {
		name string
		run  func(*testing.T, *fixture)
	}{
		{"record", testRecord},
		{"record what is taken", testRecordTaken},
		{"claim", testClaim},
		{"claim key", testClaimKey},
		{"claim key after 24 hours", testClaimKeyTakeOver},
		{"claim key race", testClaimRace},
		{"every field", testEveryField},
		{"move", testMove},
		{"move race", testMoveRace},
		{"move keeps progress, cancel and lease", testMoveKeeps},
		{"move frees the key", testMoveFreesKey},
		{"move to a key that is taken", testMoveToTakenKey},
		{"end erases arguments and lease", testEndErases},
		{"leases", testLeases},
		{"cancel", testCancel},
		{"progress", testProgress},
		{"fetched", testFetched},
		{"enqueue", testEnqueue},
		{"publish", testPublish},
		{"lifecycle", testLifecycle},
		{"keys", testKeys},
		{"items", testItems},
		{"items are expected", testItemsExpected},
		{"items made again", testItemsAnew},
		{"items of tenants", testItemsTenants},
		{"items that are malformed", testItemsMalformed},
		{"items all or nothing", testItemsAllOrNothing},
		{"items with their bodies aside", testItemsAside},
		{"items race", testItemsRace},
		{"items hammer", testItemsHammer},
		{"items reopened", testItemsReopen},
		{"all or nothing", testAllOrNothing},
		{"neighbours", testNeighbours},
		{"malformed changes", testMalformed},
		{"cancelled before", testCancelledBefore},
		{"every change has an action", testEveryChange},
		{"feed has what all must know", testFeed},
		{"journal has what happened", testJournal},
		{"journal read while it is written", testJournalRead},
		{"chain of the journal", testChain},
		{"chain without what is taken", testChainTaken},
		{"cursors", testCursors},
		{"nothing of what failed or changed nothing", testSilence},
		{"in order under writers", each(testOrder)},
		{"watch stops", each(testStops)},
		{"slow watcher", each(testSlowWatcher)},
		{"watcher far behind", each(testFarBehind)},
		{"nonces", testNonces},
		{"filters", testFilters},
		{"paging", testPaging},
		{"sweeps", testSweeps},
		{"queue depth", testQueueDepth},
		{"marks", testMarks},
		{"leased calls", testLeased},
		{"nodes", testNodes},
		{"nodes of one name", testNodeStale},
		{"nodes that are malformed", testNodeMalformed},
		{"leads", testLead},
		{"leads race", testLeadRace},
		{"read your writes", testReadYourWrites},
		{"reopen", testReopen},
		{"close", testClose},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := &fixture{T: t, now: time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)}
			f.store, f.reopen = open(t, Setup{Clock: f.clock, Enqueue: f.enqueue})
			c.run(t, f)
		})
	}
}

// fixture is a store with a clock and a queue controlled by the test.
type fixture struct {
	*testing.T
	store  Store
	reopen func() Store

	mu     sync.Mutex
	now    time.Time
	queued []toolkeep.Enqueue
	refuse error
}

func (f *fixture) clock() time.Time {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.now
}

func (f *fixture) pass(d time.Duration) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.now = f.now.Add(d)
}

func (f *fixture) enqueue(_ context.Context, e toolkeep.Enqueue) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.refuse != nil {
		return f.refuse
	}
	f.queued = append(f.queued, e)
	return nil
}

func (f *fixture) apply(changes ...toolkeep.Change) {
	f.Helper()
	if err := f.store.Apply(f.Context(), changes...); err != nil {
		f.Fatalf("Apply(%T): %v", changes[0], err)
	}
}

// refused applies changes that must fail with want.
func (f *fixture) refused(want error, changes ...toolkeep.Change) {
	f.Helper()
	if err := f.store.Apply(f.Context(), changes...); !errors.Is(err, want) {
		f.Fatalf("Apply(%T) gave %v, want %v", changes[0], err, want)
	}
}

func (f *fixture) get(id string) *toolkeep.Invocation {
	f.Helper()
	v, err := f.store.Invocations().Get(f.Context(), toolkeep.CallRef{Tenant: "t", ID: id})
	if err != nil {
		f.Fatalf("Get(%s): %v", id, err)
	}
	return v
}

func (f *fixture) missing(id string) {
	f.Helper()
	v, err := f.store.Invocations().Get(f.Context(), toolkeep.CallRef{Tenant: "t", ID: id})
	if !errors.Is(err, toolkeep.ErrNotFound) {
		f.Fatalf("Get(%s) gave %v, %v, want ErrNotFound", id, v, err)
	}
}

func (f *fixture) head() int64 {
	f.Helper()
	n, err := f.store.Head(f.Context())
	if err != nil {
		f.Fatalf("Head: %v", err)
	}
	return n
}

// feed reads the changes committed after seq up to the current head.
func (f *fixture) feed(after int64) []toolkeep.Committed {
	f.Helper()
	head := f.head()
	var list []toolkeep.Committed
	if after >= head {
		return nil
	}
	for c, err := range f.store.Watch(f.Context(), after) {
		if err != nil {
			f.Fatalf("Watch: %v", err)
		}
		list = append(list, c)
		if c.Seq >= head {
			break
		}
	}
	return list
}

// journal returns the first n entries that this process wrote after seq.
func (f *fixture) journal(seq int64, n int) []toolkeep.Entry {
	f.Helper()
	var list []toolkeep.Entry
	for e, err := range f.store.WatchJournal(f.Context(), seq) {
		if err != nil {
			f.Fatalf("WatchJournal: %v", err)
		}
		if list = append(list, e); len(list) == n {
			break
		}
	}
	return list
}

// call returns a small call of tenant t in a state.
func call(id string, state toolkeep.CallState) *toolkeep.Invocation {
	return &toolkeep.Invocation{
		ID: id, Tenant: "t", Subject: "s", ToolID: "ns.tool", Version: "1.0.0", State: state,
		CreatedAt: time.Date(2026, 3, 1, 11, 0, 0, 0, time.UTC),
	}
}

func keyed(id, key string) *toolkeep.Invocation {
	v := call(id, toolkeep.CallRunning)
	v.Key = key
	return v
}

func ref(id string) toolkeep.CallRef { return toolkeep.CallRef{Tenant: "t", ID: id} }

// NeverStored returns the names of the fields that are only for the caller.
func NeverStored() []string { return []string{"Replayed", "Missed"} }

// FullCall returns a call in which every stored field is set, so that a test which
// compares it with what a store returns fails for every field that the store loses,
// including new ones. n makes calls differ.
func FullCall(id string, state toolkeep.CallState, n int) *toolkeep.Invocation {
	v := &toolkeep.Invocation{}
	count := n * 1000
	fill(reflect.ValueOf(v).Elem(), "call", &count)
	v.ID, v.Tenant, v.State = id, "t", state
	v.Details = json.RawMessage(fmt.Sprintf(`{"n":%d}`, n))
	v.Output = []byte(fmt.Sprintf(`{"out":[%d,9007199254740993]}`, n))
	return without(v, NeverStored()...)
}

// fill sets everything below v to non-zero values.
func fill(v reflect.Value, name string, n *int) {
	*n++
	switch v.Interface().(type) {
	case time.Time:
		v.Set(reflect.ValueOf(time.Date(2026, 1, 2, 3, 4, 5, 678_000, time.UTC).Add(time.Duration(*n) * time.Second)))
		return
	case map[string]any:
		v.Set(reflect.ValueOf(map[string]any{
			"text": name, "exact": json.Number("9007199254740993"), "list": []any{true, nil, json.Number("1.50")},
		}))
		return
	}
	switch v.Kind() {
	case reflect.String:
		v.SetString(fmt.Sprintf("%s-%d-ü", name, *n))
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Int, reflect.Int64:
		v.SetInt(int64(*n))
	case reflect.Uint32:
		v.SetUint(uint64(*n))
	case reflect.Uint8:
		v.SetUint(uint64(*n)%255 + 1)
	case reflect.Float64:
		v.SetFloat(float64(*n) + 0.25)
	case reflect.Array:
		for i := range v.Len() {
			fill(v.Index(i), name, n)
		}
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 2, 2))
		for i := range 2 {
			fill(v.Index(i), name, n)
		}
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fill(v.Elem(), name, n)
	case reflect.Struct:
		for i := range v.NumField() {
			fill(v.Field(i), v.Type().Field(i).Name, n)
		}
	default:
		panic("storetest: fill does not know " + v.Type().String())
	}
}

// WaitingOnly returns the names of the fields that RecordCall does not keep.
func WaitingOnly() []string {
	return []string{
		"SealedArgs", "SealedCaller", "Roles", "Scope", "Timeout", "SkipCache", "CacheTTL", "Traceparent",
		"LeaseOwner", "LeaseUntil", "Requeued", "CancelBy", "CancelWhy", "Progress", "Workspace", "Method", "Approved", "Grant",
	}
}

// Differences returns the names of the fields in which two calls differ.
func Differences(a, b *toolkeep.Invocation) []string {
	x, y := reflect.ValueOf(*a), reflect.ValueOf(*b)
	var names []string
	for i := range x.NumField() {
		p, q := x.Field(i).Interface(), y.Field(i).Interface()
		if t, ok := p.(time.Time); ok {
			if t.Equal(q.(time.Time)) {
				continue
			}
		} else if reflect.DeepEqual(p, q) {
			continue
		}
		names = append(names, fmt.Sprintf("%s: %v and %v", x.Type().Field(i).Name, p, q))
	}
	return names
}

// without returns a copy with the named fields zeroed.
func without(v *toolkeep.Invocation, fields ...string) *toolkeep.Invocation {
	w := *v
	for _, name := range fields {
		reflect.ValueOf(&w).Elem().FieldByName(name).SetZero()
	}
	return &w
}

func (f *fixture) same(got, want *toolkeep.Invocation) {
	f.Helper()
	for _, d := range Differences(got, want) {
		f.Errorf("got and want differ in %s", d)
	}
}

// sameJSON compares values by their JSON, which ignores nil versus empty and time
// zones.
func sameJSON(t *testing.T, what string, got, want any) {
	t.Helper()
	a, err1 := json.Marshal(got)
	b, err2 := json.Marshal(want)
	if err := errors.Join(err1, err2); err != nil {
		t.Fatal(err)
	}
	if string(a) != string(b) {
		t.Errorf("%s:\n got %s\nwant %s", what, a, b)
	}
}

// Entries reads the whole journal.
func Entries(ctx context.Context, t testing.TB, j toolkeep.Journal) (all []toolkeep.Entry) {
	t.Helper()
	const limit = 1000
	var at toolkeep.JournalPosition
	for {
		list, next, err := j.ReadJournal(ctx, at, limit)
		if err != nil {
			t.Fatal(err)
		}
		if all, at = append(all, list...), next; len(list) < limit {
			return all
		}
	}
}
