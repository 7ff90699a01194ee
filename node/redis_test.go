package node

import (
	"strings"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"

	"github.com/toolkeep/toolkeep/config"
)

// TestCheckRedis: what would refuse the start is told by `toolkeep config check` too.
func TestCheckRedis(t *testing.T) {
	for want, c := range map[string]config.Redis{
		"must be rediss://": {URL: "redis://redis.example:6379"},
		"redis.ca_file":     {URL: "rediss://redis.example", CAFile: "no/such/file"},
		"is not rediss://":  {URL: "unix:///s", ServerName: "x"},
	} {
		if err := CheckSettings(&config.Config{Data: t.TempDir(), Redis: c}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v, want %q", c, err, want)
		}
	}
	s := miniredis.RunT(t)
	one := &config.Config{Data: t.TempDir(), Redis: config.Redis{URL: "redis://" + s.Addr(), Timeout: 10 * time.Second}}
	if err := CheckSettings(one); err != nil {
		t.Error(err)
	}
	s.SetError("MOVED 11558 127.0.0.1:7002")
	if err := CheckSettings(one); err == nil || !strings.Contains(err.Error(), "node of a Redis cluster") {
		t.Error(err)
	}
	s.SetError("NOAUTH Authentication required.") // who cannot ask says nothing
	if err := CheckSettings(one); err != nil {
		t.Error(err)
	}
	s.Close() // a server that is away keeps nothing from starting
	if err := CheckSettings(one); err != nil {
		t.Error(err)
	}
}
