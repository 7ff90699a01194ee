package main

import (
	"net"
	"regexp"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/toolkeep/toolkeep/config"
)

// TestPortsInUse: what another start holds for a moment refuses none; what stays in use does, with a number for --port that
// can be used.
func TestPortsInUse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		on, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer on.Close()
		c := &config.Config{Data: t.TempDir()}
		c.HTTP.Addr, c.GRPC.Addr, c.Metrics.Addr = "127.0.0.1:0", "off", on.Addr().String()
		err = checkPorts(c)
		if err == nil {
			t.Fatal("an address in use was not refused")
		}
		var port int
		if m := regexp.MustCompile(`--port (\d+)`).FindStringSubmatch(err.Error()); m != nil {
			port, _ = strconv.Atoi(m[1])
		}
		if port < 8090 {
			t.Errorf("the port is %d: %v", port, err)
		}
		time.AfterFunc(150*time.Millisecond, func() { on.Close() })
		if err := checkPorts(c); err != nil {
			t.Error(err)
		}
	})
}
