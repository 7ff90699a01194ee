// Package sinks is what people see of the sinks to which the journal is delivered, and do about them.
package sinks

import (
	"cmp"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"time"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/access"
	"github.com/toolkeep/toolkeep/audit/outbox"
	"github.com/toolkeep/toolkeep/audit/outbox/file"
	"github.com/toolkeep/toolkeep/audit/outbox/kafka"
	"github.com/toolkeep/toolkeep/audit/outbox/nats"
	"github.com/toolkeep/toolkeep/audit/outbox/webhook"
	"github.com/toolkeep/toolkeep/egress"
)

// Config configures Sinks. All are required.
type Config struct {
	File    string // of the sinks; "" is none
	Dir     string // of the dead letters
	Store   outbox.Store
	Members Members
	// Client returns an HTTP client that reaches these addresses inside besides public ones.
	Client func(tenant string, network []toolkeep.HostPort) *http.Client
	// Egress says how connections other than HTTP are made.
	Egress egress.PoolConfig
	// Credential reads a secret at each use.
	Credential func(ref string) func(context.Context) (string, error)
	Clock      func() time.Time
	Log        *slog.Logger
	Hook       func(sink string) // see outbox.Config
}

// Members is the node that is asked, among the others.
type Members interface {
	Live() (nodes []toolkeep.NodeState, age time.Duration)
	Owner() string
}

// Sinks are the sinks of the settings.
type Sinks struct {
	*outbox.Outbox
	c Config
}

// New makes the sinks. E3008: the file of sinks has faults.
func New(c Config) (*Sinks, error) {
	list, err := outbox.Read(c.File)
	if err != nil {
		return nil, err
	}
	s := &Sinks{c: c}
	s.Outbox, err = outbox.New(outbox.Config{Sinks: list, Store: c.Store, Open: s.open, Dir: c.Dir, Clock: c.Clock, Log: c.Log, Hook: c.Hook})
	return s, err
}

// open makes what delivers to a sink. An operator names it, so it may stand on an inner address; nothing else there
// is reached.
func (s *Sinks) open(t outbox.Settings) (outbox.Sink, error) {
	out, err := s.openKind(t)
	if err != nil {
		return nil, err
	}
	return guarded{out}, nil
}

// guarded is a sink whose errors say what an operator can do about an address that is forbidden: the guard's own speak of
// the manifest of a tool.
type guarded struct{ outbox.Sink }

func (g guarded) Deliver(ctx context.Context, events []outbox.Event) (int, error) {
	done, err := g.Sink.Deliver(ctx, events)
	if e, ok := errors.AsType[*toolkeep.Error](err); ok && e.Code == toolkeep.DestinationForbidden && e.Details["range"] != nil {
		err = fmt.Errorf("the sink leads into a forbidden range (%v): %w; if it is meant to be reached, write this IP address into the url of the sink, or list it with its port in network (kinds kafka and nats)",
			e.Details["range"], e.Cause)
	}
	return done, err
}

func (s *Sinks) openKind(t outbox.Settings) (outbox.Sink, error) {
	switch t.Kind {
	case outbox.Webhook:
		return webhook.New(webhook.Config{Name: t.Name, URL: t.URL, Client: s.c.Client("", egress.Destination(t.URL)), Secret: s.c.Credential(t.Secret),
			Token: s.credential(t.Token), Clock: s.c.Clock}), nil
	case outbox.NATS:
		u, err := url.Parse(t.URL)
		if err != nil {
			return nil, err
		}
		return nats.New(nats.Config{URL: t.URL, Subject: t.Subject, Timeout: s.c.Egress.ConnectTimeout, Dial: s.dial(append([]string{net.JoinHostPort(u.Hostname(), cmp.Or(u.Port(), "4222"))}, t.Network...)),
			TLS: s.tls(), Token: s.credential(t.Token), Username: t.Username, Password: s.credential(t.Password)}), nil
	case outbox.Kafka:
		c := kafka.Config{Brokers: t.Brokers, Topic: t.Topic, Dial: s.dial(slices.Concat(t.Brokers, t.Network)), SASL: t.SASL, Username: t.Username, Password: s.credential(t.Password)}
		if t.TLS {
			c.TLS = s.tls()
		}
		return kafka.New(c), nil
	case outbox.File:
		return file.New(t.Path), nil
	}
	return nil, toolkeep.NewError(toolkeep.InvalidManifest, "sinks of kind %s are not in this build", t.Kind)
}

func (s *Sinks) credential(ref string) func(context.Context) (string, error) {
	if ref == "" {
		return nil
	}
	return s.c.Credential(ref)
}

func (s *Sinks) tls() *tls.Config {
	return &tls.Config{MinVersion: max(s.c.Egress.MinTLS, tls.VersionTLS12), RootCAs: s.c.Egress.RootCAs}
}

// dial connects to public addresses, and to these inside.
func (s *Sinks) dial(inside []string) func(ctx context.Context, addr string) (net.Conn, error) {
	return s.c.Egress.Dialer(&egress.Guard{Allow: allowed(inside), Resolver: s.c.Egress.Resolver, ConnectTimeout: s.c.Egress.ConnectTimeout})
}

// allowed are the addresses of HOST:PORT.
func allowed(addresses []string) (list []toolkeep.HostPort) {
	for _, a := range addresses {
		host, port, _ := net.SplitHostPort(a) // the settings were checked
		n, _ := strconv.Atoi(port)
		list = append(list, toolkeep.HostPort{Host: host, Port: n})
	}
	return list
}

// States of a sink.
const (
	OK      = "ok"      // what there is was delivered, or is about to be
	Failing = "failing" // it does not take events; it is tried until it does
	Full    = "full"    // it waits, since its dead letters fill their file
	Waiting = "waiting" // no node delivers now, or none has begun
)

// Sink is a sink as operators see it.
type Sink struct {
	Name         string         `json:"name"`
	Kind         string         `json:"kind" enum:"file,webhook,kafka,nats"`
	Target       string         `json:"target" doc:"where it leads, without path and query of a URL"`
	Types        []string       `json:"types,omitempty" doc:"patterns on types of events; absent: all"`
	Tenants      []string       `json:"tenants,omitempty" doc:"absent: all"`
	State        string         `json:"state" enum:"ok,failing,full,waiting" doc:"failing: it does not take events and is tried until it does; full: its dead letters fill their file; waiting: no node delivers"`
	Node         string         `json:"node,omitempty" doc:"the node that delivers to all sinks"`
	Behind       int64          `json:"behind" doc:"entries of the journal that it has not had, of all types"`
	BehindMS     int64          `json:"behind_ms" doc:"age of the oldest of them"`
	Delivered    int64          `json:"delivered" doc:"events since that node started"`
	Error        string         `json:"error,omitempty" doc:"of the last delivery, while it fails"`
	FailingSince *time.Time     `json:"failing_since,omitempty"`
	DeadLetters  map[string]int `json:"dead_letters,omitempty" doc:"by the node that has them in its data directory"`
	Lost         int64          `json:"lost,omitempty" doc:"entries that retention removed before it had them, at most"`
}

func (s *Sinks) check(p *toolkeep.Principal) error {
	if p.Tenant != access.HomeTenant || !p.May(toolkeep.PermOperate) {
		return toolkeep.NewError(toolkeep.PermissionDenied, "the sinks serve all tenants; operators of the tenant %s (permission %s) see them", access.HomeTenant, toolkeep.PermOperate)
	}
	return nil
}

// List returns the sinks in the order of the settings. E3201 for all but operators of the home tenant, E3965 if the
// store cannot be read.
func (s *Sinks) List(ctx context.Context, p *toolkeep.Principal) ([]Sink, error) {
	if err := s.check(p); err != nil {
		return nil, err
	}
	statuses, err := s.Statuses(ctx)
	if err != nil {
		return nil, err
	}
	live, _ := s.c.Members.Live()
	list := make([]Sink, len(statuses))
	for i, st := range statuses {
		v := Sink{Name: st.Name, Kind: st.Kind, Target: st.Target(), Types: st.Types, Tenants: st.Tenants, State: Waiting, Behind: st.Behind, Lost: st.Lost}
		if !st.Oldest.IsZero() {
			v.BehindMS = max(s.c.Clock().Sub(st.Oldest).Milliseconds(), 0)
		}
		for _, n := range live {
			v.add(&n, n.Name+"/"+n.Run == s.c.Members.Owner(), s.Outbox)
		}
		list[i] = v
	}
	return list, nil
}

// add adds what a node knows; of itself this node knows the present.
func (v *Sink) add(n *toolkeep.NodeState, self bool, own *outbox.Outbox) {
	var told struct {
		Sinks map[string]outbox.State `json:"sinks"`
	}
	if self {
		told.Sinks = own.Told()
	} else if json.Unmarshal(n.Data, &told) != nil {
		return
	}
	st, ok := told.Sinks[v.Name]
	if !ok {
		return
	}
	if st.DeadLetters > 0 {
		if v.DeadLetters == nil {
			v.DeadLetters = map[string]int{}
		}
		v.DeadLetters[n.Name] = st.DeadLetters
	}
	if !slices.Contains(n.Leads, outbox.Work) {
		return
	}
	v.Node, v.Delivered, v.Error, v.State = n.Name, st.Delivered, st.Error, OK
	switch {
	case st.Full:
		v.State = Full
	case st.Error != "":
		v.State = Failing
	}
	if !st.FailingSince.IsZero() {
		v.FailingSince = &st.FailingSince
	}
}

// Replay sends the dead letters of a sink again that this node has, for at most 20 s. E3201 as List, E3001: there is
// no such sink, E3965: the file of dead letters cannot be read or written.
func (s *Sinks) Replay(ctx context.Context, p *toolkeep.Principal, name string) (outbox.Replayed, error) {
	if err := s.check(p); err != nil {
		return outbox.Replayed{}, err
	}
	return s.Outbox.Replay(ctx, name)
}
