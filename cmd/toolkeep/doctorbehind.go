package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/url"
	"os"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/control/doctor"
	"github.com/toolkeep/toolkeep/datadir"
	"github.com/toolkeep/toolkeep/secret"
)

const (
	behindTime = 20 * time.Second
	freshError = time.Hour // an idle server whose latest error is older may have worked since
	maxAsked   = 50        // tools without a secret that are looked at, and references that are tested
)

// checkBehind adds what the data directory's running server says of secrets that are missing and of the MCP servers behind
// it. That needs a key: without one, a line says so.
func (a *app) checkBehind(ctx context.Context, found []doctor.Finding) []doctor.Finding {
	info, err := datadir.ReadServerFile(a.data)
	if pid, _ := datadir.Holder(a.data); err != nil || pid == 0 || slices.ContainsFunc(found, func(f doctor.Finding) bool { return f.Check == "server" && f.State == doctor.Fail }) {
		return found
	}
	ctx, cancel := context.WithTimeout(ctx, behindTime)
	defer cancel()
	var cl *client
	if os.Getenv("TOOLKEEP_URL") == "" {
		err = trusted(info.URL, found)
	}
	if err == nil {
		cl, err = a.connect()
	}
	if err == nil && !sameServer(ctx, cl.base, info.URL) {
		err = errors.New("TOOLKEEP_URL names another server than that of the data directory")
	}
	b := &behind{cl: cl, refs: map[string][]string{}, all: map[string]bool{}}
	if err == nil {
		err = b.servers(ctx)
	}
	if err == nil {
		err = b.secrets(ctx)
	}
	if ctx.Err() == context.DeadlineExceeded {
		err = fmt.Errorf("the server took longer than %s", behindTime)
	}
	if err != nil {
		b.found = append(b.found, doctor.Finding{Check: "behind", State: doctor.OK, Found: "MCP servers and missing secrets were not looked at: " + err.Error()})
	}
	return append(found, b.found...)
}

// trusted refuses to send a key to the address in a file that another user may have written, or to another machine.
func trusted(address string, found []doctor.Finding) error {
	if slices.ContainsFunc(found, func(f doctor.Finding) bool { return f.Check == "data" && f.State != doctor.OK }) {
		return errors.New("others may write into the data directory, so no key is sent to the address in it; see the check data, or set TOOLKEEP_URL")
	}
	if u, err := url.Parse(address); err != nil || !isLoopback(u.Hostname()) {
		return fmt.Errorf("no key is sent to %s without being told: set TOOLKEEP_URL to it", address)
	}
	return nil
}

func isLoopback(host string) bool {
	return host == "localhost" || net.ParseIP(host).IsLoopback()
}

// sameServer reports whether two addresses have the same port of the same machine.
func sameServer(ctx context.Context, one, other string) bool {
	x, xErr := url.Parse(one)
	y, yErr := url.Parse(other)
	switch {
	case one == other:
		return true
	case xErr != nil || yErr != nil || x.Scheme != y.Scheme || x.Port() != y.Port():
		return false
	case isLoopback(x.Hostname()) && isLoopback(y.Hostname()):
		return true
	}
	hosts, _ := net.DefaultResolver.LookupHost(ctx, x.Hostname())
	others, _ := net.DefaultResolver.LookupHost(ctx, y.Hostname())
	return slices.ContainsFunc(hosts, func(host string) bool { return slices.Contains(others, host) })
}

// behind collects what a server says of what it depends on.
type behind struct {
	cl    *client
	found []doctor.Finding
	refs  map[string][]string // tools and servers by the reference that they name
	all   map[string]bool     // references that a session of all callers needs, from the organisation
}

func (b *behind) add(check, state, advice, format string, args ...any) {
	b.found = append(b.found, doctor.Finding{Check: check, State: state, Found: fmt.Sprintf(format, args...), Advice: advice})
}

// reference finds references to secrets in a value of a server's definition, such as "Bearer env://NAME".
var reference = regexp.MustCompile(`\b(?:secret|env|file|vault)://[^\s"']+`)

func (b *behind) servers(ctx context.Context) error {
	var list struct {
		Servers []struct {
			Name      string    `json:"name"`
			State     string    `json:"state"`
			LastError string    `json:"last_error"`
			ErrorAt   time.Time `json:"last_error_at"`
			Spec      struct {
				Session string            `json:"session"`
				Env     map[string]string `json:"env"`
				Headers map[string]string `json:"headers"`
				OAuth   struct {
					Secret string `json:"client_secret"`
				} `json:"oauth"`
				Auth toolkeep.AuthSpec `json:"auth"`
			} `json:"spec"`
		} `json:"servers"`
	}
	if _, err := b.cl.get(ctx, "/api/v1/servers", &list); err != nil {
		return err
	}
	well := 0
	for _, s := range list.Servers {
		values := slices.Concat(slices.Collect(maps.Values(s.Spec.Env)), slices.Collect(maps.Values(s.Spec.Headers)), []string{s.Spec.OAuth.Secret, s.Spec.Auth.Secret})
		for _, ref := range reference.FindAllString(strings.Join(values, " "), -1) {
			if !slices.Contains(b.refs[ref], s.Name) {
				b.refs[ref] = append(b.refs[ref], s.Name)
			}
			b.all[ref] = b.all[ref] || s.Spec.Session == "" || s.Spec.Session == "shared"
		}
		switch ill := s.State == "idle" && s.LastError != "" && time.Since(s.ErrorAt) < freshError; {
		case ill, s.State == "failed", s.State == "backoff":
			b.add("servers", doctor.Warn, "`toolkeep servers logs "+s.Name+"` shows why", "the MCP server %s is %s, and its latest error is of %s: %s", s.Name, s.State, s.ErrorAt.Local().Format(time.DateTime), toolkeep.Clip(s.LastError, 300))
		case s.State == "login_required":
			b.add("servers", doctor.Warn, "toolkeep servers login "+s.Name, "the MCP server %s requires a login", s.Name)
		default:
			well++
		}
	}
	if len(list.Servers) > 0 && well == len(list.Servers) {
		b.add("servers", doctor.OK, "", "%d MCP servers, none of them failing", well)
	}
	return nil
}

// secrets tests the references of the servers, and those of the tools that lack one.
func (b *behind) secrets(ctx context.Context) error {
	var lacking []string
	tools := 0
	err := b.cl.eachTool(ctx, "", func(t toolSummary) bool {
		if t.Authentication != nil {
			tools++
			if t.Authentication.State != secret.Ready {
				lacking = append(lacking, t.ToolID)
			}
		}
		return true
	})
	if err != nil {
		return err
	}
	unread := 0
	unnamed := map[[2]string][]string{} // tools, by namespace and type
	var order [][2]string
	for _, id := range lacking[:min(len(lacking), maxAsked)] {
		t, err := b.cl.published(ctx, id, "")
		var m toolkeep.Manifest
		if err == nil {
			err = decode(t.Manifest, &m)
		}
		var refused *refusedError
		if errors.As(err, &refused) { // such as one that was removed meanwhile
			unread++
			continue
		}
		if err != nil {
			return err
		}
		for _, spec := range m.Auth {
			for _, s := range secret.Entries(spec) {
				if s.Secret == "" && s.Type != "none" {
					namespace, _, _ := strings.Cut(id, ".")
					of := [2]string{namespace, s.Type}
					if unnamed[of] = append(unnamed[of], id); len(unnamed[of]) == 1 {
						order = append(order, of)
					}
				} else if s.Secret != "" {
					b.refs[s.Secret] = append(b.refs[s.Secret], id)
				}
			}
		}
	}
	for _, of := range order { // one line for each API, not for each of its tools
		b.add("secrets", doctor.Warn, "import them again with --secret", "no secret is named for the %s of %s", of[1], andMore(unnamed[of]))
	}
	if unread > 0 {
		b.add("secrets", doctor.OK, "", "%d tools that lack a secret could not be read", unread)
	}
	return b.test(ctx, tools, len(lacking))
}

// andMore names the first of some tools, and how many more there are.
func andMore(ids []string) string {
	if len(ids) == 1 {
		return ids[0]
	}
	return fmt.Sprintf("%s and %d more", ids[0], len(ids)-1)
}

func (b *behind) test(ctx context.Context, tools, lacking int) error {
	for i, ref := range slices.Sorted(maps.Keys(b.refs)) {
		if i == maxAsked {
			b.add("secrets", doctor.OK, "", "%d further references were not tested", len(b.refs)-maxAsked)
			break
		}
		var st struct {
			State string `json:"state"`
			Scope string `json:"scope"`
		}
		if strings.HasPrefix(ref, "context://") { // of each caller
			continue
		}
		_, err := b.cl.post(ctx, "/api/v1/secrets/test", map[string]any{"reference": ref}, &st)
		var refused *refusedError
		if errors.As(err, &refused) && refused.Code == string(toolkeep.PermissionDenied) { // for all of them
			b.add("secrets", doctor.OK, "", "%d references were not tested: %v", len(b.refs), err)
			break
		}
		if errors.As(err, &refused) { // such as a store of secrets that does not answer
			b.add("secrets", doctor.Warn, "", "%s could not be tested: %v", ref, err)
			continue
		}
		if err != nil {
			return err
		}
		own := b.all[ref] && (st.Scope == string(secret.User) || st.Scope == string(secret.Workspace))
		if st.State == secret.Ready && !own {
			continue
		}
		advice := "`toolkeep secrets test " + quote(ref) + "` says why"
		if name, stored := strings.CutPrefix(ref, "secret://"); stored {
			advice = "toolkeep secrets set " + quote(name)
			if b.all[ref] {
				advice += " --scope organisation"
			}
		}
		whose := "for this key"
		if own {
			st.State, whose = secret.Missing, "in the scope organisation"
		}
		b.add("secrets", doctor.Warn, advice, "%s is %s %s, and %s needs it", ref, st.State, whose, andMore(b.refs[ref]))
	}
	if lacking > maxAsked {
		b.add("secrets", doctor.Warn, "`toolkeep tools` shows which", "%d further tools lack a secret", lacking-maxAsked)
	}
	if len(b.refs)+tools > 0 && !slices.ContainsFunc(b.found, func(f doctor.Finding) bool { return f.Check == "secrets" }) {
		b.add("secrets", doctor.OK, "", "none is missing that %d tools and the MCP servers refer to", tools)
	}
	return nil
}
