package node

import (
	"strings"
	"testing"

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
	if err := checkRedis(config.Redis{URL: "rediss://redis.example"}); err != nil {
		t.Error(err)
	}
}
