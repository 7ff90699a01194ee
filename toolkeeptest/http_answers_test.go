package toolkeeptest_test

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/canon"
	"github.com/toolkeep/toolkeep/toolkeeptest"
)

// webTool returns a tool of kind http that gets path from the server at base.
func webTool(id, base, path string, more ...string) string {
	u, _ := url.Parse(base)
	binding := fmt.Sprintf(`"method":"GET","server":%q,"path":%q`, base, path)
	rest := ""
	for _, m := range more {
		if strings.HasPrefix(m, `"pagination"`) || strings.HasPrefix(m, `"stream"`) {
			binding += "," + m
		} else {
			rest += "," + m
		}
	}
	return fmt.Sprintf(`{"schema_version":1,"tool_id":%q,"version":"1.0.0","description":"A tool of a test.","side_effects":"reads",
		"parameters_schema":{"type":"object","properties":{}},"permissions":{"network":[{"host":%q}]},
		"execution":{"kind":"http","binding":{%s}}%s}`, id, u.Hostname(), binding, rest)
}

// TestHTTPAnswers takes each kind of response from the upstream to the REST caller.
func TestHTTPAnswers(t *testing.T) {
	t.Parallel()
	image := bytes.Repeat([]byte{0x89, 'P', 'N', 'G', 0, 0xff}, 2000)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		say := func(contentType, body string) {
			w.Header().Set("Content-Type", contentType)
			io.WriteString(w, body)
		}
		switch r.URL.Path {
		case "/image":
			w.Header().Set("Content-Type", "image/png")
			w.Write(image)
		case "/xml":
			say("application/xml; charset=iso-8859-1", `<list n="1"><item>caf`+"\xe9"+`</item></list>`)
		case "/dtd":
			say("text/xml", `<!DOCTYPE a [<!ENTITY x SYSTEM "file:///etc/passwd">]><a>&x;</a>`)
		case "/csv":
			say("text/csv", "id,name\n1,Ann\n")
		case "/html":
			say("text/html", "<script>steal()</script><p onclick=x>Hello")
		case "/events":
			say("text/event-stream", "data: {\"n\":1}\n\ndata: [DONE]\n\n")
		case "/pages":
			if r.URL.RawQuery == "" {
				w.Header().Set("Link", `</pages?p=2>; rel="next"`)
			}
			say("application/json", `["`+r.URL.RawQuery+`"]`)
		case "/busy":
			w.Header().Set("Retry-After", "7")
			w.Header().Set("Content-Type", "application/problem+json")
			w.WriteHeader(http.StatusUnprocessableEntity)
			io.WriteString(w, `{"title":"No such colour"}`)
		}
	}))
	defer s.Close()
	k := toolkeeptest.New(t)
	k.Publish(webTool("web.image", s.URL, "/image"), webTool("web.xml", s.URL, "/xml"), webTool("web.dtd", s.URL, "/dtd"),
		webTool("web.csv", s.URL, "/csv", `"result":{"transform":"map(.name)"}`), webTool("web.html", s.URL, "/html"),
		webTool("web.events", s.URL, "/events", `"stream":{"sentinel":"[DONE]"}`), webTool("web.pages", s.URL, "/pages", `"pagination":{"kind":"link"}`),
		webTool("web.first", s.URL, "/pages", `"pagination":{"kind":"link","max_pages":1}`), webTool("web.busy", s.URL, "/busy"))
	c := as(t, k, k.Key("default", "ann", "agent"))
	for tool, want := range map[string]string{
		"web.xml":    `{"list":{"@n":"1","item":"café"}}`,
		"web.csv":    `["Ann"]`,
		"web.html":   `"<p>Hello"`,
		"web.events": `[{"data":{"n":1}}]`,
		"web.pages":  `["","p=2"]`,
		"web.first":  `[""]`,
		"web.image":  `{"bytes":12000,"content_type":"image/png"}`,
	} {
		a := c.call(tool, `{}`).success(t)
		if got := string(canon.Append(nil, a.at(t, "result"))); got != want {
			t.Errorf("%s gives %s, want %s", tool, got, want)
		}
		if warned := strings.Contains(a.body, "at most 1 pages"); warned != (tool == "web.first") {
			t.Errorf("%s: %s", tool, a.body)
		}
	}
	a := c.call("web.image", `{}`).success(t)
	if kind := a.text(t, "execution_metadata", "attachments", "0", "kind"); kind != "image" || a.at(t, "execution_metadata", "truncated") != false {
		t.Errorf("%s", a.body)
	}
	if b := c.do("GET", a.text(t, "execution_metadata", "attachments", "0", "url"), "").want(t, 200); b.body != string(image) || b.header.Get("Content-Type") != "image/png" {
		t.Errorf("the attachment has %d bytes of %s", len(b.body), b.header.Get("Content-Type"))
	}
	if a := c.call("web.dtd", `{}`).failed(t, toolkeep.UnsafeXML); strings.Contains(a.body, "passwd") {
		t.Errorf("%s", a.body)
	}
	a = c.call("web.busy", `{}`).failed(t, toolkeep.UpstreamClientError)
	if a.text(t, "error", "details", "body", "title") != "No such colour" || a.text(t, "error", "class") != "VALIDATION_ERROR" {
		t.Errorf("%s", a.body)
	}
}

// TestEgressSettings: a call goes through the configured proxy, whatever the
// environment says, and internal destinations are still refused.
func TestEgressSettings(t *testing.T) {
	asked := make(chan string, 1)
	proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked <- r.RequestURI
		w.Header().Set("Content-Type", "application/json")
		io.WriteString(w, `{"by":"proxy"}`)
	}))
	defer proxy.Close()
	t.Setenv("HTTP_PROXY", "http://127.0.0.1:1")
	k := toolkeeptest.New(t, toolkeeptest.Option{Settings: map[string]string{"egress.proxy": proxy.URL, "egress.proxy_names": "trusted"}})
	k.Publish(webTool("web.outside", "http://api.example", "/x"),
		strings.Replace(webTool("web.inside", "http://10.1.2.3", "/x"), `{"host":"10.1.2.3"}`, "", 1))
	c := as(t, k, k.Key("default", "ann", "agent"))
	if a := c.call("web.outside", `{}`).success(t); a.text(t, "result", "by") != "proxy" {
		t.Errorf("%s", a.body)
	}
	if got := <-asked; got != "http://api.example/x" {
		t.Errorf("the proxy was asked %s", got)
	}
	c.call("web.inside", `{}`).want(t, 403).refused(t, toolkeep.DestinationForbidden)
	if len(asked) != 0 {
		t.Errorf("the proxy was asked %s", <-asked)
	}
}

// TestHTTPStreamProgress: a stream's events are counted while it runs, and none of
// their content is visible before the whole is inspected.
func TestHTTPStreamProgress(t *testing.T) {
	t.Parallel()
	proceed := make(chan struct{})
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/x-ndjson")
		io.WriteString(w, "{\"private\":1}\n{\"private\":2}\n")
		w.(http.Flusher).Flush()
		select {
		case <-proceed:
			io.WriteString(w, "3\n")
		case <-r.Context().Done():
		}
	}))
	defer s.Close()
	k := toolkeeptest.New(t)
	k.Publish(webTool("web.feed", s.URL, "/", `"stream":{"max_events":10}`))
	c := as(t, k, k.Key("default", "ann", "agent"))
	id := c.call("web.feed", `{}`, async).want(t, 202).id(t)
	events := c.follow(id, func(e event) bool { return strings.Contains(e.data, " events, ") })
	if n := len(events); n == 0 || !strings.Contains(events[n-1].data, "streaming") {
		t.Fatalf("the events are %v", events)
	}
	for _, e := range events {
		if strings.Contains(e.data, "private") {
			t.Errorf("%s: %s", e.name, e.data)
		}
	}
	close(proceed)
	if got := string(canon.Append(nil, c.ended(id).success(t).at(t, "result"))); got != `[{"private":1},{"private":2},3]` {
		t.Errorf("the result is %s", got)
	}
}
