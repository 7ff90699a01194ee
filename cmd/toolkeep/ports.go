package main

import (
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/toolkeep/toolkeep/config"
	"github.com/toolkeep/toolkeep/datadir"
)

// checkPorts refuses addresses that are in use, all at once and before anything is made. A server of the same data directory
// has its own refusal, by the directory's lock. Another start at the same moment holds the addresses for a moment, so that
// they are tried again before a refusal.
func checkPorts(c *config.Config) error {
	list := c.Listeners()
	taken, _ := try(list)
	for range 5 {
		if len(taken) == 0 {
			return nil
		}
		if pid, _ := datadir.Holder(c.Data); pid != 0 {
			return nil
		}
		time.Sleep(100 * time.Millisecond)
		taken, _ = try(list)
	}
	if len(taken) == 0 {
		return nil
	}
	free := "N"
	_, http, _ := net.SplitHostPort(list[0].Addr)
	from, _ := strconv.Atoi(http)
	if from == 0 {
		from = 8080
	}
	for n := from + 10; n <= min(from+1000, config.MaxPort); n += 10 {
		moved := make([]config.Listener, len(list))
		for i, l := range list {
			moved[i] = l.Moved(n)
		}
		if _, all := try(moved); all {
			free = strconv.Itoa(n)
			break
		}
	}
	are := "is"
	if len(taken) > 1 {
		are = "are"
	}
	return &failure{code: exitUnavailable, err: fmt.Errorf("%s %s in use; %s", strings.Join(taken, ", "), are, movePorts(free))}
}

// movePorts says how to use other ports.
func movePorts(n string) string {
	return "move all with --port " + n + ", or one with --addr, --grpc-addr, --metrics-addr or --set examples.addr=…, or stop what uses it"
}

// try opens all addresses at once, and returns those that are in use, and whether all could be opened. Other reasons are for
// the start to tell.
func try(list []config.Listener) (taken []string, all bool) {
	all = true
	for _, l := range list {
		on, err := net.Listen("tcp", l.Addr)
		if err == nil {
			defer on.Close()
			continue
		}
		all = false
		if errors.Is(err, syscall.EADDRINUSE) {
			taken = append(taken, l.Addr+" ("+l.Setting+")")
		}
	}
	return taken, all
}
