package rest

import (
	"bufio"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/catalog"
	"github.com/toolkeep/toolkeep/discover"
	"github.com/toolkeep/toolkeep/face/gate"
)

// fakeIndexing knows tools by words at once and embeds them when it is told to.
type fakeIndexing struct {
	mu      sync.Mutex
	model   string
	ready   map[string]bool
	changed chan struct{}
	asked   []string
	looked  chan struct{} // gets one for each look at all that is asked for
}

func (f *fakeIndexing) Indexed(tenant, id, version string) (searchable, embedded bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.asked = append(f.asked, tenant+"/"+id+"@"+version)
	return !strings.HasPrefix(id, "demo.old"), f.ready[id]
}

func (f *fakeIndexing) Embedding() discover.Embedding { return discover.Embedding{Model: f.model} }

func (f *fakeIndexing) Changed() <-chan struct{} {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.looked != nil {
		select {
		case f.looked <- struct{}{}:
		default:
		}
	}
	return f.changed
}

// embed says that a tool has its vector.
func (f *fakeIndexing) embed(id string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.ready[id] = true
	close(f.changed)
	f.changed = make(chan struct{})
}

func newIndexing(model string) *fakeIndexing {
	return &fakeIndexing{model: model, ready: map[string]bool{}, changed: make(chan struct{}), looked: make(chan struct{}, 1)}
}

// batches is a system whose catalogue publishes what it is sent, but refuses manifests as
// they say: "bad" is invalid, "taken" belongs to somebody else, "secret" wants a
// permission and is not named, "down" fails the store.
func batches(t *testing.T) (*system, *[]int) {
	t.Helper()
	s := newSystem()
	var sizes []int
	seen := map[string]bool{}
	s.catalog.publish = func(_ *toolkeep.Principal, manifests [][]byte, o catalog.PublishOptions) ([]catalog.Published, error) {
		sizes = append(sizes, len(manifests))
		var out []catalog.Published
		var bad []catalog.ManifestFaults
		var breaking []catalog.Breaking
		for i, raw := range manifests {
			var m struct {
				ToolID  string `json:"tool_id"`
				Version string `json:"version"`
				Is      string `json:"is"`
			}
			if err := json.Unmarshal(raw, &m); err != nil {
				return nil, err
			}
			switch m.Is {
			case "bad":
				bad = append(bad, catalog.ManifestFaults{Index: i, ToolID: m.ToolID, Errors: []toolkeep.Fault{{Pointer: "/version", Rule: "semver", Message: "is none"}}})
			case "breaking":
				breaking = append(breaking, catalog.Breaking{Index: i, ToolID: m.ToolID, From: "1.0.0", Version: "1.1.0"})
			case "taken":
				return nil, toolkeep.NewError(toolkeep.DuplicateTool, "%s is taken", m.ToolID).With("tool_id", m.ToolID)
			case "secret":
				return nil, toolkeep.NewError(toolkeep.PermissionDenied, "no secrets for you")
			case "down":
				return nil, toolkeep.NewError(toolkeep.RecordUnavailable, "the store is away")
			}
			key := m.ToolID + "@" + m.Version
			out = append(out, catalog.Published{ToolID: m.ToolID, Version: m.Version, Digest: "sha256:00", Bump: "new", Created: !seen[key]})
		}
		switch {
		case len(bad) > 0:
			return nil, toolkeep.NewError(toolkeep.InvalidManifest, "bad").With("manifests", bad)
		case len(breaking) > 0:
			return nil, toolkeep.NewError(toolkeep.InvalidManifest, "breaks").With("breaking", breaking)
		}
		if !o.DryRun {
			for _, v := range out {
				seen[v.ToolID+"@"+v.Version] = true
			}
		}
		return out, nil
	}
	return s, &sizes
}

func posted(id, version, is string) string {
	return fmt.Sprintf(`{"manifest":{"tool_id":%q,"version":%q,"is":%q}}`, id, version, is)
}

const batchPath = "/api/v1/tools/batch-register"

// outcome is status and code of each manifest.
func outcome(t *testing.T, body []byte) (r BatchResult, list []string) {
	t.Helper()
	if err := json.Unmarshal(body, &r); err != nil {
		t.Fatalf("%v in %s", err, body)
	}
	for i, o := range r.Outcomes {
		if o.Index != i || (o.Status == "refused") != (o.Error != nil) {
			t.Errorf("%+v", o)
		}
		s := o.ToolID + " " + o.Status
		if o.Error != nil {
			s += " " + o.Error.ErrorCode
		}
		list = append(list, s)
	}
	return r, list
}

func TestBatchTellsEachOutcome(t *testing.T) {
	s, sizes := batches(t)
	s.Indexing = newIndexing("m")
	body := `{"partial":true,"tools":[` + strings.Join([]string{posted("demo.a", "1.0.0", ""), posted("demo.bad", "1.0.0", "bad"), posted("demo.b", "1.0.0", ""),
		posted("demo.taken", "1.0.0", "taken"), posted("demo.secret", "1.0.0", "secret"), posted("demo.two", "1.0.0", ""), posted("demo.two", "2.0.0", "bad"),
		posted("demo.breaks", "1.1.0", "breaking"), `{"manifest":{"tool_id":"demo.twice","examples":[]},"examples":[{"scenario":"x"}]}`, posted("demo.old", "0.1.0", "")}, ",") + `]}`
	w := s.do(t, "POST", batchPath, body)
	wantStatus(t, w, 200)
	r, got := outcome(t, w.Body.Bytes())
	want := []string{"demo.a created", "demo.bad refused E3008", "demo.b created", "demo.taken refused E3007", "demo.secret refused E3201", "demo.two refused E3008", "demo.two refused E3008",
		"demo.breaks refused E3008", " refused E3312", "demo.old created"}
	if !slices.Equal(got, want) || r.Created != 3 || r.Refused != 7 || r.Unchanged != 0 || len(r.Published) != 3 {
		t.Errorf("%q\n%q\n%+v", got, want, r)
	}
	if r.Published[0].Indexing != (IndexingStatus{true, "pending"}) || r.Published[2].Indexing != (IndexingStatus{false, "none"}) || r.Published[2].Indexed {
		t.Errorf("%+v", r.Published)
	}
	if !strings.Contains(r.Outcomes[1].Error.Message, "/version: is none") {
		t.Errorf("%+v", r.Outcomes[1].Error)
	}
	if len(*sizes) > 12 {
		t.Errorf("published %v", *sizes)
	}
	// The same again: what was created is unchanged.
	if r, _ = outcome(t, s.do(t, "POST", batchPath, body).Body.Bytes()); r.Created != 0 || r.Unchanged != 3 {
		t.Errorf("%+v", r)
	}
	// All or none, as it always was.
	problem(t, s.do(t, "POST", batchPath, strings.Replace(body, `"partial":true,`, "", 1)), toolkeep.MalformedRequest)
	problem(t, s.do(t, "POST", batchPath, `{"tools":[`+posted("demo.n", "1.0.0", "")+","+posted("demo.bad", "1.0.0", "bad")+`]}`), toolkeep.InvalidManifest)
	// A dry run says what would be.
	w = s.do(t, "POST", batchPath, `{"partial":true,"dry_run":true,"tools":[`+posted("demo.new", "1.0.0", "")+","+posted("demo.a", "1.0.0", "")+`]}`)
	if r, got = outcome(t, w.Body.Bytes()); !slices.Equal(got, []string{"demo.new checked", "demo.a unchanged"}) || r.Published[0].Indexing.Searchable {
		t.Errorf("%q %+v", got, r)
	}
}

func TestBatchThatTheStoreRefusesIsNotTriedOneByOne(t *testing.T) {
	s, sizes := batches(t)
	tools := []string{posted("demo.x", "1.0.0", "down")}
	for i := range 300 {
		tools = append(tools, posted(fmt.Sprintf("demo.t%d", i), "1.0.0", ""))
	}
	w := s.do(t, "POST", batchPath, `{"partial":true,"tools":[`+strings.Join(tools, ",")+`]}`)
	r, got := outcome(t, w.Body.Bytes())
	if len(*sizes) != 2 || (*sizes)[0] != 200 || r.Refused != 200 || r.Created != 101 || got[0] != "demo.x refused E3965" {
		t.Errorf("%v %d %d %s", *sizes, r.Refused, r.Created, got[0])
	}
	// One that nobody names is narrowed down.
	*sizes = nil
	tools[0] = posted("demo.x", "1.0.0", "secret")
	r, _ = outcome(t, s.do(t, "POST", batchPath, `{"partial":true,"tools":[`+strings.Join(tools, ",")+`]}`).Body.Bytes())
	if r.Refused != 1 || len(*sizes) > 20 {
		t.Errorf("%+v %v", r.Refused, *sizes)
	}
}

// A batch that is streamed tells how far it is, waits for the vectors, and ends with the
// plain answer.
func TestBatchStreams(t *testing.T) {
	for _, form := range []string{ndjsonType, eventsType} {
		s, _ := batches(t)
		x := newIndexing("m")
		s.Indexing = x
		srv := httptest.NewServer(s.api())
		defer srv.Close()
		req, err := http.NewRequestWithContext(t.Context(), "POST", srv.URL+batchPath, strings.NewReader(`{"partial":true,"await_embedding":true,"tools":[`+posted("demo.a", "1.0.0", "")+","+posted("demo.b", "1.0.0", "")+","+posted("demo.bad", "1.0.0", "bad")+`]}`))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Authorization", "Bearer admin")
		req.Header.Set("Content-Type", "application/json")
		req.Header.Set("Accept", "text/html;q=0.1, "+form)
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		if resp.StatusCode != 200 || resp.Header.Get("Content-Type") != form {
			t.Fatal(resp.Status, resp.Header)
		}
		<-x.looked // it waits
		x.embed("demo.a")
		<-x.looked
		x.embed("demo.b")
		var names []string
		var last string
		lines := bufio.NewScanner(resp.Body)
		for lines.Scan() {
			line := lines.Text()
			if form == eventsType {
				if name, ok := strings.CutPrefix(line, "event: "); ok {
					names = append(names, name)
				} else if data, ok := strings.CutPrefix(line, "data: "); ok {
					last = data
				}
				continue
			}
			var one struct {
				Event string
				Data  json.RawMessage
			}
			if err := json.Unmarshal([]byte(line), &one); err != nil {
				t.Fatalf("%v in %s", err, line)
			}
			names, last = append(names, one.Event), string(one.Data)
		}
		if err := lines.Err(); err != nil {
			t.Fatal(err)
		}
		r, got := outcome(t, []byte(last))
		if len(names) < 2 || names[0] != "progress" || names[len(names)-1] != "result" || !slices.Equal(got, []string{"demo.a created", "demo.b created", "demo.bad refused E3008"}) {
			t.Errorf("%q %q", names, got)
		}
		for _, v := range r.Published {
			if v.Indexing != (IndexingStatus{true, "done"}) {
				t.Errorf("%+v", v)
			}
		}
	}
}

func TestBatchStreamThatFails(t *testing.T) {
	s, _ := batches(t)
	do := func(body string, headers ...string) *httptest.ResponseRecorder {
		return s.do(t, "POST", batchPath, body, headers...)
	}
	w := do(`{"tools":[`+posted("demo.x", "1.0.0", "down")+`]}`, "Accept: "+eventsType)
	if w.Code != 200 || !strings.Contains(w.Body.String(), "event: error\ndata: {") || !strings.Contains(w.Body.String(), `"code":"E3965"`) {
		t.Errorf("%s", w.Body)
	}
	// Before anything is told, a refusal is a problem document.
	problem(t, do(`{"tools":[]}`, "Accept: "+eventsType), toolkeep.InvalidParameters)
	problem(t, do(`{"tools":[`+posted("demo.a", "1.0.0", "")+`]}`, "Accept: "+ndjsonType, "Authorization: Bearer agent"), toolkeep.PermissionDenied)
	// Who does not want a stream gets none.
	if w := do(`{"tools":[`+posted("demo.a", "1.0.0", "")+`]}`, "Accept: application/x-ndjson;q=0, application/json"); w.Header().Get("Content-Type") != gate.JSONType {
		t.Errorf("%v", w.Header())
	}
}

// What waits for vectors ends with the server.
func TestAwaitEmbeddingEndsWithTheServer(t *testing.T) {
	s, _ := batches(t)
	x := newIndexing("m")
	s.Indexing = x
	a := s.api()
	done := make(chan *httptest.ResponseRecorder, 1)
	go func() {
		done <- send(t, a, "POST", "/api/v1/tools/register", `{"await_embedding":true,"manifest":{"tool_id":"demo.a","version":"1.0.0"}}`)
	}()
	<-x.looked
	a.Close()
	w := <-done
	wantStatus(t, w, 201)
	if !strings.Contains(w.Body.String(), `"indexing":{"searchable":true,"embedding":"pending"}`) {
		t.Errorf("%s", w.Body)
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.asked[0] != "t/demo.a@1.0.0" {
		t.Errorf("%q", x.asked)
	}
}

func TestUnknownRelationsAreWarnedOf(t *testing.T) {
	s := relatedSystem(t)
	s.catalog.publish = func(_ *toolkeep.Principal, list [][]byte, _ catalog.PublishOptions) ([]catalog.Published, error) {
		out := make([]catalog.Published, len(list))
		for i, raw := range list {
			var m struct {
				ToolID string `json:"tool_id"`
			}
			if err := json.Unmarshal(raw, &m); err != nil {
				return nil, err
			}
			out[i] = catalog.Published{ToolID: m.ToolID, Version: "1.0.0", Created: true}
		}
		return out, nil
	}
	manifest := `{"tool_id":"demo.new","relationships":{"dependencies":["demo.load","demo.veiled"],"pairings":[{"tool_id":"no.such"}],"alternatives":["demo.next"]}}`
	warned := func(v PublishedVersion) (out []string) {
		for _, w := range v.Warnings {
			out = append(out, string(w.Code)+" "+w.Details["tool"].(string))
		}
		return out
	}
	w := s.do(t, "POST", "/api/v1/tools/register", `{"manifest":`+manifest+`}`)
	wantStatus(t, w, 201)
	var one PublishedVersion
	if err := json.Unmarshal(w.Body.Bytes(), &one); err != nil {
		t.Fatal(err)
	}
	// A hidden tool is like one that there never was.
	if got := warned(one); !slices.Equal(got, []string{"E3001 demo.veiled", "E3001 no.such", "E3001 demo.next"}) {
		t.Errorf("%q", got)
	}
	w = s.do(t, "POST", batchPath, `{"tools":[{"manifest":`+manifest+`},{"manifest":{"tool_id":"demo.next"}}]}`)
	wantStatus(t, w, 200)
	var all BatchResult
	if err := json.Unmarshal(w.Body.Bytes(), &all); err != nil {
		t.Fatal(err)
	}
	if got := warned(all.Published[0]); !slices.Equal(got, []string{"E3001 demo.veiled", "E3001 no.such"}) || len(all.Published[1].Warnings) != 0 {
		t.Errorf("%q", got)
	}
}

var _ Indexing = (*discover.Index)(nil)
