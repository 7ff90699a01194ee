package toolkeeptest_test

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/catalog"
	"github.com/toolkeep/toolkeep/rpcclient"
	"github.com/toolkeep/toolkeep/toolkeeptest"
)

// TestLifetimesOfCachedResults: each place where someone says how long a cached result
// lives takes a day and no more, and a call's 0 is the tool's own lifetime. Settings are
// in config's TestTTLs.
func TestLifetimesOfCachedResults(t *testing.T) {
	t.Parallel()
	var asked atomic.Int64
	url, _ := upstream(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprint(w, asked.Add(1))
	})
	k := toolkeeptest.New(t)
	k.Publish(webTool("t.kept", url, "/", `"cache":{"policy":"ttl","ttl_s":86400}`))
	key := k.Key("default", "ann", "agent")
	c := as(t, k, key)
	rpc := dialRPC(t, k, rpcclient.Options{Key: key})
	manifest := func(seconds int) error {
		_, err := catalog.ParseManifest([]byte(webTool("t.long", url, "/", fmt.Sprintf(`"cache":{"policy":"ttl","ttl_s":%d}`, seconds))))
		return err
	}
	overREST := func(seconds string) error {
		a := c.call("t.kept", `{}`, `"cache_override_ttl":`+seconds)
		if a.status != 200 {
			return errors.New(a.body)
		}
		return nil
	}
	overRPC := func(d time.Duration) error {
		_, err := rpc.Invoke(t.Context(), nil, &toolkeep.Call{Tool: "t.kept", CacheTTL: d})
		return err
	}
	inProcess := func(d time.Duration) error {
		_, err := k.Pipeline().Invoke(t.Context(), &toolkeep.Principal{Tenant: "default", Subject: "ann", Roles: []string{"agent"}},
			&toolkeep.Call{Tool: "t.kept", CacheTTL: d, Face: "test"})
		return err
	}
	const day = 24 * time.Hour
	for place, x := range map[string]struct{ fits, over error }{
		"manifest":   {manifest(86_400), manifest(86_401)},
		"REST":       {overREST("86400"), overREST("86400.5")},
		"gRPC":       {overRPC(day), overRPC(day + time.Second)},
		"in process": {inProcess(day), inProcess(day + time.Nanosecond)},
		"REST below": {overREST("0.001"), overREST("-1")},
	} {
		if x.fits != nil || x.over == nil || !strings.Contains(x.over.Error(), "ttl") {
			t.Errorf("%s: %v, %v", place, x.fits, x.over)
		}
	}

	before := asked.Load()
	if err := errors.Join(overREST("0"), overREST("null"), overRPC(0)); err != nil {
		t.Error(err)
	}
	if n := asked.Load() - before; n != 0 {
		t.Errorf("a call with the lifetime 0 was not answered from the cache: %d", n)
	}
}
