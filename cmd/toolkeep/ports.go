package main

import (
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"syscall"

	"github.com/toolkeep/toolkeep/config"
	"github.com/toolkeep/toolkeep/datadir"
)

// checkPorts refuses addresses that are in use, all at once and before anything is made. A server of the same data directory
// has its own refusal, by the directory's lock.
func checkPorts(c *config.Config) error {
	list := c.Listeners()
	taken := inUse(list)
	if len(taken) == 0 {
		return nil
	}
	if pid, _ := datadir.Holder(c.Data); pid != 0 {
		return nil
	}
	free := "N"
	_, http, _ := net.SplitHostPort(list[0].Addr)
	from, _ := strconv.Atoi(http)
	for n := from + 10; n <= min(from+1000, config.MaxPort); n += 10 {
		moved := make([]config.Listener, len(list))
		for i, l := range list {
			moved[i] = l.Moved(n)
		}
		if len(inUse(moved)) == 0 {
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

// inUse opens all addresses at once, and returns those that are taken. Other reasons are for the start to tell.
func inUse(list []config.Listener) (taken []string) {
	for _, l := range list {
		on, err := net.Listen("tcp", l.Addr)
		if err == nil {
			defer on.Close()
		} else if errors.Is(err, syscall.EADDRINUSE) {
			taken = append(taken, l.Addr+" ("+l.Setting+")")
		}
	}
	return taken
}
