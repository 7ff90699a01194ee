package config

import (
	"net"
	"slices"
	"strconv"
)

// portKeys are the settings of addresses to listen on. Sources.Port gives the first its number, and each other one the next.
var portKeys = []string{"http.addr", "grpc.addr", "metrics.addr", "examples.addr"}

// MaxPort is the largest Sources.Port.
var MaxPort = 65535 - len(portKeys) + 1

// Listener is an address that the server listens on.
type Listener struct {
	Setting string
	Addr    string // host:port
}

// Listeners are all addresses that the server listens on.
func (c *Config) Listeners() []Listener {
	list := []Listener{{"http.addr", c.HTTP.Addr}}
	if c.GRPC.Enabled() {
		list = append(list, Listener{"grpc.addr", c.GRPC.Addr})
	}
	list = append(list, Listener{"metrics.addr", c.Metrics.Addr})
	if c.Examples.Enabled {
		list = append(list, Listener{"examples.addr", c.Examples.Addr})
	}
	return list
}

// Moved is the listener as with Sources.Port; what has no port stays.
func (l Listener) Moved(port int) Listener {
	host, _, err := hostPort(l.Addr)
	if err != nil {
		return l
	}
	if port > 0 {
		port += slices.Index(portKeys, l.Setting)
	}
	return Listener{l.Setting, net.JoinHostPort(host, strconv.Itoa(port))}
}

// move moves the ports of the addresses that no flag names.
func move(values map[string]given, flags *layer, port int) {
	for _, key := range portKeys {
		_, addr := flags.values[key]
		_, number := flags.ports[key]
		if g := values[key]; !addr && !number {
			values[key] = given{Listener{key, g.value.(string)}.Moved(port).Addr, key, "flag port"}
		}
	}
}
