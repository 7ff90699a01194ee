package toolkeeptest_test

import (
	"fmt"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/toolkeep/toolkeep/toolkeeptest"
)

func TestZZHit(t *testing.T) {
	if os.Getenv("ZZ") == "" {
		t.Skip()
	}
	k := toolkeeptest.New(t, toolkeeptest.Option{Settings: map[string]string{"search.model": os.Getenv("ZZ"), "search.models_dir": "/work/main/models"}})
	ann := k.Key("default", "ann", "agent")
	for b := range 20 {
		var list []string
		for i := range 500 {
			list = append(list, toolkeeptest.Manifest(fmt.Sprintf("mail%d.send_%d", b, i), "1.0.0", "echo", `"side_effects":"none"`))
		}
		k.Publish(list...)
	}
	run := func(name string, q func(i int) string) {
		var took []time.Duration
		hits := 0
		for i := range 2000 {
			s := time.Now()
			if find(t, k, ann, q(i)).hit {
				hits++
			}
			took = append(took, time.Since(s))
		}
		slices.Sort(took)
		t.Logf("%s: hits %d p50 %s p95 %s p99 %s", name, hits, took[1000], took[1900], took[1980])
	}
	run("hit", func(int) string { return "send a test tool" })
	run("miss", func(i int) string { return fmt.Sprint("send a test tool ", i) })
}
