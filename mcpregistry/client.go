// Package mcpregistry reads registries of MCP servers, which speak the API v0.1 of the official one, and says how a server
// that one of them describes in its server.json is started or reached.
//
// Everything that a registry says is text of strangers. It is bounded, characters that do not print are taken out before
// anything else reads it, so that what is shown is what is used, and nothing of it chooses a program: a package is run by the
// runtime of its kind, with arguments from a closed list, in the exact version that the entry names.
package mcpregistry

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/canon"
)

// Default is the address of the official registry.
const Default = "https://registry.modelcontextprotocol.io"

// Limits of what a registry may answer.
const (
	requestTime = 30 * time.Second
	maxAnswer   = 8 << 20 // bytes
	maxHops     = 5       // redirects, on one host
	MaxPage     = 100     // entries of one Search
)

// Client asks one registry. It is safe for concurrent use.
type Client struct {
	base *url.URL
	http *http.Client
}

// New makes a client of the registry at an address: https, or http on this machine.
//
// Errors: E3301.
func New(address string) (*Client, error) {
	u, err := url.Parse(strings.TrimRight(address, "/"))
	switch {
	case err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "":
		return nil, toolkeep.NewError(toolkeep.InvalidParameters, "the registry's address must be an https URL without user, query and fragment, such as %s", Default)
	case u.Scheme == "http" && !loopback(u.Hostname()):
		return nil, toolkeep.NewError(toolkeep.InvalidParameters, "the registry at %s would be asked without TLS, so that others on the way could name other packages; write https://", u.Host)
	}
	redirect := func(r *http.Request, via []*http.Request) error {
		if len(via) > maxHops || r.URL.Scheme != u.Scheme || r.URL.Host != u.Host {
			return errRedirect
		}
		return nil
	}
	return &Client{u, &http.Client{Timeout: requestTime, CheckRedirect: redirect}}, nil
}

// Tidied writes the address of a registry in one way: the host in lower case, no port that is its scheme's own, no slash at
// the end. What is no address stays.
func Tidied(s string) string {
	u, err := url.Parse(strings.TrimRight(s, "/"))
	if err != nil {
		return s
	}
	u.Host = strings.ToLower(u.Host)
	if port := map[string]string{"https": ":443", "http": ":80"}[u.Scheme]; port != "" {
		u.Host = strings.TrimSuffix(u.Host, port)
	}
	return u.String()
}

var errRedirect = errors.New("it redirects to another host, or too often")

func loopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// Page is what a search found.
type Page struct {
	Entries []*Entry `json:"servers"`
	Next    string   `json:"next_cursor,omitempty"` // cursor of the next page, "" at the end
	// LeftOut says of each entry that cannot be read why, without its name.
	LeftOut []string `json:"left_out,omitempty"`
}

// Search finds the latest versions of servers whose name holds the text, "" for all, at most limit (1 to 100), from a cursor of
// an earlier page on.
//
// Errors: E3011 the registry does not answer, or not as registries do; E3301 it refuses the question.
func (c *Client) Search(ctx context.Context, text, cursor string, limit int) (*Page, error) {
	q := url.Values{"version": {"latest"}, "limit": {strconv.Itoa(limit)}}
	for name, value := range map[string]string{"search": text, "cursor": cursor} {
		if value != "" {
			q.Set(name, value)
		}
	}
	tree, err := c.get(ctx, c.base.JoinPath("v0.1", "servers"), q)
	if err != nil {
		return nil, err
	}
	list, ok := tree["servers"].([]any)
	if !ok && tree["servers"] != nil || len(list) > MaxPage {
		return nil, c.foreign("its list of servers is none, or longer than %d", MaxPage)
	}
	page := &Page{Entries: []*Entry{}}
	for _, one := range list {
		e, err := readEntry(one)
		if err != nil {
			page.LeftOut = append(page.LeftOut, toolkeep.ClipBytes(err.Error(), 500))
			continue
		}
		page.Entries = append(page.Entries, e)
	}
	if about, ok := tree["metadata"].(map[string]any); ok {
		page.Next, _ = about["nextCursor"].(string)
		page.Next = toolkeep.ClipBytes(tidy(page.Next), maxText)
	}
	return page, nil
}

// Version reads one version of a server, the latest for "". What comes has the name that was asked for, and the version.
//
// Errors: E3011, E3301 as Search; E3013 the registry has none.
func (c *Client) Version(ctx context.Context, name, version string) (*Entry, error) {
	if !nameForm.MatchString(name) {
		return nil, toolkeep.NewError(toolkeep.InvalidParameters, "%q is not the name of a server in a registry, which has one slash, such as io.github.user/weather; `toolkeep registry search` finds names", toolkeep.ClipBytes(name, 200))
	}
	asked := version
	if asked == "" {
		asked = "latest"
	}
	at := *c.base
	at.Path += "/v0.1/servers/" + name + "/versions/" + asked
	at.RawPath = c.base.EscapedPath() + "/v0.1/servers/" + url.PathEscape(name) + "/versions/" + url.PathEscape(asked)
	tree, err := c.get(ctx, &at, nil)
	if toolkeep.IsCode(err, toolkeep.ResourceNotFound) {
		what := name
		if version != "" {
			what += "@" + version
		}
		return nil, toolkeep.NewError(toolkeep.ResourceNotFound, "the registry at %s has no server %s", c.base.Host, toolkeep.ClipBytes(what, 300))
	} else if err != nil {
		return nil, err
	}
	e, err := readEntry(tree)
	switch {
	case err != nil:
		return nil, c.foreign("%s", err.Error())
	case e.Server.Name != name || version != "" && e.Server.Version != version:
		return nil, c.foreign("it was asked for %s@%s and answered with %s@%s", name, asked, e.Server.Name, e.Server.Version)
	}
	return e, nil
}

// foreign is the error for an answer that registries do not give.
func (c *Client) foreign(format string, args ...any) error {
	return toolkeep.NewError(toolkeep.ImportFailed, "%s does not answer as a registry of MCP servers (API v0.1): %s", c.base.Host, toolkeep.ClipBytes(fmt.Sprintf(format, args...), 500))
}

func (c *Client) get(ctx context.Context, at *url.URL, q url.Values) (map[string]any, error) {
	u := *at
	u.RawQuery = q.Encode()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, u.String(), nil)
	if err != nil {
		return nil, toolkeep.NewError(toolkeep.InvalidParameters, "the registry's address cannot be asked").Because(err)
	}
	req.Header.Set("Accept", "application/json")
	resp, err := c.http.Do(req)
	if err != nil {
		var told *url.Error // has the whole address
		if errors.As(err, &told) {
			err = told.Err
		}
		return nil, toolkeep.NewError(toolkeep.ImportFailed, "the registry at %s does not answer: %s", c.base.Host, toolkeep.ClipBytes(tidy(err.Error()), 300)).Because(err)
	}
	defer resp.Body.Close()
	raw, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer+1))
	switch {
	case err != nil:
		return nil, toolkeep.NewError(toolkeep.ImportFailed, "the answer of the registry at %s broke off", c.base.Host).Because(err)
	case len(raw) > maxAnswer:
		return nil, c.foreign("the answer is over %d MiB", maxAnswer>>20)
	case resp.StatusCode == http.StatusNotFound:
		return nil, toolkeep.NewError(toolkeep.ResourceNotFound, "the registry at %s has nothing there", c.base.Host)
	}
	// One bad character in one entry must not take a whole page away.
	v, _, err := canon.ParseLoose(raw, canon.Limits{Bytes: maxAnswer, Depth: 40, Properties: 100_000})
	tree, ok := v.(map[string]any)
	if resp.StatusCode == http.StatusOK && err != nil {
		return nil, c.foreign("%s", toolkeep.AsError(err).Message)
	} else if resp.StatusCode == http.StatusOK && !ok {
		return nil, c.foreign("it is no object")
	}
	if resp.StatusCode != http.StatusOK {
		code := toolkeep.ImportFailed
		if resp.StatusCode == http.StatusBadRequest || resp.StatusCode == http.StatusUnprocessableEntity {
			code = toolkeep.InvalidParameters
		}
		why := ""
		for _, member := range []string{"detail", "error", "title"} { // a problem document, or what the API's document has
			if s, ok := tree[member].(string); ok && s != "" {
				why = ": " + toolkeep.ClipBytes(tidy(s), 300)
				break
			}
		}
		return nil, toolkeep.NewError(code, "the registry at %s answers %d%s", c.base.Host, resp.StatusCode, why)
	}
	return tree, nil
}
