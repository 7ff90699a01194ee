package outbox

import (
	_ "embed"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"net/url"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/canon/yaml"
	"github.com/toolkeep/toolkeep/schema"
)

// Kinds of sinks.
const (
	File    = "file"
	Webhook = "webhook"
	Kafka   = "kafka"
	NATS    = "nats"
)

// Settings are those of one sink. Values that name a secret are references, never the secret itself.
type Settings struct {
	Name    string   // what its cursors and dead letters are kept by
	Kind    string   // File, Webhook, Kafka or NATS
	Types   []string // patterns on types of events; empty is all
	Tenants []string // empty is all
	// FromStart has a new sink begin with the oldest entry that is there, and not with those from now on.
	FromStart bool
	Batch     int           // events that are delivered at once; 1 to 1,000, default 100
	Flush     time.Duration // how long an event waits for others; 10 ms to 1 h, default 1 s
	Timeout   time.Duration // of one delivery; 10 ms to 5 min, default 5 s for Webhook and 500 ms for the others
	// Retries is how often an event that the sink refuses is tried again before it is a dead letter; default 3.
	Retries int
	// DeadLetterBytes bounds the file of dead letters; default 64 MiB.
	DeadLetterBytes int64

	Path    string   // File: absolute
	URL     string   // Webhook, NATS
	Secret  string   // Webhook: reference of what signs, in the form of Standard Webhooks
	Token   string   // Webhook, NATS: reference of a bearer token
	Brokers []string // Kafka: host:port
	Topic   string   // Kafka; default tool-execution-events
	Subject string   // NATS: what subjects begin with; default tool-execution-events
	// Network lists further addresses inside, HOST:PORT, that the brokers may send clients to.
	Network  []string
	TLS      bool
	SASL     string // Kafka: plain, scram-sha-256 or scram-sha-512
	Username string // Kafka, NATS
	Password string // reference
}

// DefaultTopic is the topic and the begin of the subjects where none is set.
const DefaultTopic = "tool-execution-events"

//go:embed sinks.schema.json
var sinksSchema []byte

// Limits of a file of sinks.
const (
	maxYAML  = 1 << 20 // bytes, and values
	maxDepth = 16
)

// text is a sink as it is written.
type text struct {
	Name            string   `json:"name"`
	Kind            string   `json:"kind"`
	Types           []string `json:"types"`
	Tenants         []string `json:"tenants"`
	From            string   `json:"from"`
	Batch           int      `json:"batch"`
	Flush           string   `json:"flush"`
	Timeout         string   `json:"timeout"`
	Retries         *int     `json:"retries"`
	DeadLetterBytes int64    `json:"dead_letter_bytes"`
	Path            string   `json:"path"`
	URL             string   `json:"url"`
	Secret          string   `json:"secret"`
	Token           string   `json:"token"`
	Brokers         []string `json:"brokers"`
	Topic           string   `json:"topic"`
	Subject         string   `json:"subject"`
	Network         []string `json:"network"`
	TLS             bool     `json:"tls"`
	SASL            string   `json:"sasl"`
	Username        string   `json:"username"`
	Password        string   `json:"password"`
}

// Read reads a file of sinks in YAML; "" is none. The error is E3008 with every fault.
func Read(file string) ([]Settings, error) {
	if file == "" {
		return nil, nil
	}
	raw, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("the file of sinks cannot be read: %w", err)
	}
	return Parse(raw)
}

// Parse reads sinks:
//
//	sinks:
//	  - name: approvers
//	    kind: webhook
//	    types: ["approval.*"]
//	    url: https://chat.example/hooks/approvals
//	    secret: env://TOOLKEEP_SECRET_HOOK
func Parse(raw []byte) ([]Settings, error) {
	texts, err := readTexts(raw)
	if err != nil {
		return nil, err
	}
	var faults []toolkeep.Fault
	list := make([]Settings, len(texts))
	for i, t := range texts {
		at := fmt.Sprintf("/sinks/%d", i)
		fault := func(member, format string, args ...any) {
			faults = append(faults, toolkeep.Fault{Pointer: at + member, Rule: "value", Message: fmt.Sprintf(format, args...)})
		}
		list[i] = t.settings(fault)
		if slices.ContainsFunc(list[:i], func(o Settings) bool { return o.Name == t.Name }) {
			fault("/name", "%s is the name of two sinks", t.Name)
		}
	}
	if len(faults) > 0 {
		return nil, refused(faults)
	}
	return list, nil
}

func readTexts(raw []byte) ([]text, error) {
	var all struct {
		Sinks []text `json:"sinks"`
	}
	faults, err := schema.DecodeYAML(sinksSchema, raw, yaml.Options{Bytes: maxYAML, Values: maxYAML, Depth: maxDepth}, &all)
	for i, f := range faults { // what stands there may be the secret itself
		if slices.Contains(references, path.Base(f.Pointer)) {
			faults[i].Message = noReference
		}
	}
	if len(faults) > 0 {
		return nil, refused(faults)
	}
	return all.Sinks, err
}

// references are the members that name a secret.
var references = []string{"secret", "token", "password"}

const noReference = "it must be a reference of at most 1,024 bytes to a secret, such as env://TOOLKEEP_SECRET_NAME; there are secret://, vault://, env:// and file://"

func refused(faults []toolkeep.Fault) error {
	return toolkeep.FaultsError(toolkeep.InvalidManifest, "the sinks cannot be used: "+faults[0].Pointer+": "+faults[0].Message, faults)
}

// settings checks what the schema cannot say.
func (t *text) settings(fault func(member, format string, args ...any)) Settings {
	s := Settings{Name: t.Name, Kind: t.Kind, Types: t.Types, Tenants: t.Tenants, FromStart: t.From == "start", Batch: t.Batch,
		Retries: 3, DeadLetterBytes: t.DeadLetterBytes, Path: t.Path, URL: t.URL, Secret: t.Secret, Token: t.Token, Brokers: t.Brokers,
		Topic: t.Topic, Subject: t.Subject, Network: t.Network, TLS: t.TLS, SASL: t.SASL, Username: t.Username, Password: t.Password}
	if t.Retries != nil {
		s.Retries = *t.Retries
	}
	duration := func(member, value string, least, most time.Duration) time.Duration {
		d, err := time.ParseDuration(value)
		if value != "" && (err != nil || d < least || d > most) {
			fault(member, "%s is not between %s and %s", value, least, most)
		}
		return d
	}
	s.Flush = duration("/flush", t.Flush, 10*time.Millisecond, time.Hour)
	s.Timeout = duration("/timeout", t.Timeout, 10*time.Millisecond, 5*time.Minute)
	s.fill()
	for i, p := range s.Types {
		if _, err := path.Match(p, ""); err != nil {
			fault(fmt.Sprintf("/types/%d", i), "%q is not a pattern", p)
		}
	}
	t.members(&s, fault)
	return s
}

// fill sets the defaults.
func (s *Settings) fill() {
	if s.Batch == 0 {
		s.Batch = 100
	}
	if s.Flush == 0 {
		s.Flush = time.Second
	}
	if s.Timeout == 0 {
		s.Timeout = 500 * time.Millisecond
		if s.Kind == Webhook { // one that answers later than this would get the same batch for ever
			s.Timeout = 5 * time.Second
		}
	}
	if s.DeadLetterBytes == 0 {
		s.DeadLetterBytes = 64 << 20
	}
	if s.Topic == "" {
		s.Topic = DefaultTopic
	}
	if s.Subject == "" {
		s.Subject = DefaultTopic
	}
}

// members checks what each kind needs and does not have.
func (t *text) members(s *Settings, fault func(member, format string, args ...any)) {
	given := map[string]bool{
		"path": t.Path != "", "url": t.URL != "", "secret": t.Secret != "", "token": t.Token != "", "brokers": len(t.Brokers) > 0, "topic": t.Topic != "",
		"subject": t.Subject != "", "network": len(t.Network) > 0, "tls": t.TLS, "sasl": t.SASL != "", "username": t.Username != "", "password": t.Password != "",
	}
	needs, may := map[string][]string{File: {"path"}, Webhook: {"url", "secret"}, Kafka: {"brokers"}, NATS: {"url"}}[s.Kind],
		map[string][]string{Webhook: {"token"}, Kafka: {"topic", "network", "tls", "sasl", "username", "password"}, NATS: {"subject", "network", "token", "username", "password"}}[s.Kind]
	for _, m := range needs {
		if !given[m] {
			fault("", "a sink of kind %s needs %s", s.Kind, m)
		}
	}
	for _, m := range slices.Sorted(maps.Keys(given)) {
		if given[m] && !slices.Contains(needs, m) && !slices.Contains(may, m) {
			fault("/"+m, "a sink of kind %s has no %s", s.Kind, m)
		}
	}
	for i, ref := range []string{s.Secret, s.Token, s.Password} {
		scheme, rest, _ := strings.Cut(ref, "://")
		if ref != "" && (rest == "" || !slices.Contains([]string{"secret", "vault", "env", "file"}, scheme)) {
			fault("/"+references[i], noReference)
		}
	}
	if (s.Username == "") != (s.Password == "") || s.SASL != "" && s.Username == "" {
		fault("/username", "username and password go together, and sasl needs them")
	}
	if s.Kind == Kafka && s.Username != "" && s.SASL == "" {
		fault("/sasl", "username needs sasl: plain, scram-sha-256 or scram-sha-512")
	}
	if s.Path != "" && !filepath.IsAbs(s.Path) {
		fault("/path", "%s is not an absolute path", s.Path)
	}
	schemes := map[string][]string{Webhook: {"https", "http"}, NATS: {"tls", "nats"}}[s.Kind]
	if u, err := url.Parse(s.URL); s.URL != "" && (err != nil || u.Hostname() == "" || u.User != nil || u.Fragment != "" || !slices.Contains(schemes, u.Scheme)) {
		fault("/url", "the address must begin with %s://, name a host, and have no user or fragment", strings.Join(schemes, ":// or "))
	}
	s.clear(fault)
	for i, b := range s.Brokers {
		if _, _, err := net.SplitHostPort(b); err != nil {
			fault(fmt.Sprintf("/brokers/%d", i), "%q is not HOST:PORT", b)
		}
	}
	for i, b := range s.Network {
		if _, _, err := net.SplitHostPort(b); err != nil {
			fault(fmt.Sprintf("/network/%d", i), "%q is not HOST:PORT", b)
		}
	}
}

// clear refuses what would send a token or a password in the clear to another host.
func (s *Settings) clear(fault func(member, format string, args ...any)) {
	u, err := url.Parse(s.URL)
	elsewhere := err == nil && u.Hostname() != "" && !loopback(u.Hostname())
	switch {
	case s.Kind == Webhook && s.Token != "" && elsewhere && u.Scheme == "http":
		fault("/url", "http:// would send the token in the clear; use https://")
	case s.Kind == NATS && (s.Token != "" || s.Password != "") && elsewhere && u.Scheme == "nats":
		fault("/url", "nats:// may send the token or the password in the clear; use tls://")
	case s.Kind == Kafka && s.SASL == "plain" && !s.TLS && slices.ContainsFunc(s.Brokers, func(b string) bool {
		host, _, err := net.SplitHostPort(b)
		return err == nil && !loopback(host)
	}):
		fault("/sasl", "plain without TLS would send the password in the clear; set tls: true, or use scram-sha-512")
	}
}

func loopback(host string) bool {
	ip, err := netip.ParseAddr(host)
	return strings.EqualFold(host, "localhost") || err == nil && ip.Unmap().IsLoopback()
}

// Target says where a sink leads, without what may be secret.
func (s *Settings) Target() string {
	switch s.Kind {
	case File:
		return s.Path
	case Kafka:
		return strings.Join(s.Brokers, ",") + "/" + s.Topic
	}
	u, err := url.Parse(s.URL)
	if err != nil {
		return ""
	}
	if s.Kind == NATS {
		return u.Host + "/" + s.Subject
	}
	return u.Scheme + "://" + u.Host
}

// callTypes are the types of ends of calls; see toolkeep.Invocation.EventType.
var callTypes = []string{"ai.agent.tool.succeeded", "ai.agent.tool.cache_hit", "ai.agent.tool.cancelled", "ai.agent.tool.failed", "ai.agent.tool.timeout",
	"ai.agent.tool.authorization_denied", "ai.agent.tool.rate_limit_exceeded"}

// calls reports whether the sink takes any ends of calls.
func (s *Settings) calls() bool { return slices.ContainsFunc(callTypes, s.takesType) }

func (s *Settings) takesType(kind string) bool {
	if len(s.Types) == 0 {
		return true
	}
	short := strings.TrimPrefix(kind, "ai.agent.")
	for _, p := range s.Types {
		for _, name := range []string{kind, short, strings.TrimPrefix(short, "tool.")} {
			if ok, _ := path.Match(p, name); ok {
				return true
			}
		}
	}
	return false
}

func (s *Settings) takes(e *Event) bool { return s.takesTenant(e.Tenant) && s.takesType(e.Type) }

func (s *Settings) takesTenant(tenant string) bool {
	return len(s.Tenants) == 0 || slices.Contains(s.Tenants, tenant)
}
