package toolkeeptest_test

import (
	"fmt"
	"strings"
	"testing"

	json "github.com/go-json-experiment/json"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/proto/l03v1"
	"github.com/toolkeep/toolkeep/toolkeeptest"
)

// found is the part of a search response that these tests use.
type found struct {
	Data struct {
		LightweightIndex []struct {
			ToolID      string `json:"toolId"`
			Explanation struct {
				History float64 `json:"history"`
				Learned float64 `json:"learned"`
			} `json:"explanation"`
		} `json:"lightweightIndex"`
		Metadata struct {
			RetrievalID string `json:"retrievalId"`
		} `json:"metadata"`
	} `json:"data"`
}

// user sends requests with one key in one session.
type user struct {
	t            testing.TB
	k            *toolkeeptest.Toolkeep
	key, session string
	person       string // the person that the agent acts for, "" for none
}

func (u user) do(method, path, body string) (int, string) {
	u.t.Helper()
	header := []string{"Authorization", "Bearer " + u.key}
	if u.session != "" {
		header = append(header, "X-Session-ID", u.session)
	}
	if u.person != "" {
		header = append(header, "X-User-ID", u.person)
	}
	return u.k.Do(method, path, body, header...)
}

func (u user) search(query string) (f found, ids []string) {
	u.t.Helper()
	status, body := u.do("GET", "/api/v1/tools/retrieval/search?explain=true&"+query, "")
	if status == 404 { // nothing was found; feedback can name that search too
		var none struct {
			Code    toolkeep.Code `json:"code"`
			Details struct {
				RetrievalID string `json:"retrieval_id"`
			} `json:"details"`
		}
		if err := json.Unmarshal([]byte(body), &none); err != nil || none.Code != toolkeep.NoToolMatches {
			u.t.Fatalf("%v %s", err, body)
		}
		f.Data.Metadata.RetrievalID = none.Details.RetrievalID
		return f, nil
	}
	if status != 200 || json.Unmarshal([]byte(body), &f) != nil {
		u.t.Fatalf("%d %s", status, body)
	}
	for _, e := range f.Data.LightweightIndex {
		ids = append(ids, e.ToolID)
	}
	return f, ids
}

func (u user) call(tool string) {
	u.t.Helper()
	if status, body := u.do("POST", "/api/v1/tools/invoke", fmt.Sprintf(`{"tool_id":%q,"parameters":{}}`, tool)); status != 200 || !strings.Contains(body, `"success"`) {
		u.t.Fatalf("%d %s", status, body)
	}
}

func described(id, description string) string {
	return strings.Replace(toolkeeptest.Manifest(id, "1.0.0", "echo"), "A tool of a test.", description, 1)
}

func publishSome(k *toolkeeptest.Toolkeep) {
	k.Publish(described("mail.dispatch", "Sends a message to a person."), described("mail.compose", "Writes the text of a letter."),
		described("chat.post", "Sends a message to a channel."), described("files.read", "Reads a file."))
}

// TestSearchesTeach: searches, calls and feedback change later searches: of the same
// conversation at once, of others through the queries that led to tools.
func TestSearchesTeach(t *testing.T) {
	t.Parallel()
	// Cached search results pick this up only within a minute.
	k := toolkeeptest.New(t, toolkeeptest.Option{Settings: map[string]string{"search.model": "none", "search.cache.enabled": "false"}})
	publishSome(k)
	ann := user{t, k, k.Key("default", "ann", "agent"), "s-1", ""}
	ben := user{t, k, k.Key("default", "ben", "agent"), "s-1", ""}
	stranger := user{t, k, k.Key("other", "ann", "agent"), "s-1", ""}

	// A query with words that no description has finds nothing until someone has chosen
	// a tool after it.
	first, ids := ann.search("q=send+a+message")
	if len(ids) < 2 || first.Data.Metadata.RetrievalID == "" {
		t.Fatalf("%+v", first)
	}
	ann.call("chat.post")
	waitUntil(t, "the conversation has the call", func() bool {
		f, _ := ann.search("strategy=session&q=anything+else")
		return len(f.Data.LightweightIndex) > 0 && f.Data.LightweightIndex[0].ToolID == "chat.post" && f.Data.LightweightIndex[0].Explanation.History > 0.5
	})
	// The same session id of another user or tenant is another session.
	for _, u := range []user{ben, stranger} {
		if f, ids := u.search("strategy=session&q=anything+else"); len(ids) != 0 {
			t.Errorf("%+v", f)
		}
	}
	waitUntil(t, "the question led to the tool", func() bool {
		f, ids := ben.search("q=send+a+message")
		return len(ids) > 0 && ids[0] == "chat.post" && f.Data.LightweightIndex[0].Explanation.Learned > 0.9
	})
	if f, _ := stranger.search("q=send+a+message"); len(f.Data.LightweightIndex) == 0 || f.Data.LightweightIndex[0].Explanation.Learned != 0 {
		t.Errorf("another tenant learned of it: %+v", f)
	}

	// Feedback names a tool that the search missed.
	missed, _ := ann.search("q=ping+someone")
	said := fmt.Sprintf(`{"retrievalId":%q,"toolSelected":"mail.dispatch","relevance":1,"executionSuccess":true}`, missed.Data.Metadata.RetrievalID)
	const feedback = "/api/v1/tools/retrieval/feedback"
	if status, body := ann.do("POST", feedback, said); status != 200 || !strings.Contains(body, `"recorded":true`) {
		t.Fatalf("%d %s", status, body)
	}
	waitUntil(t, "the missed tool is found", func() bool {
		_, ids := ben.search("q=ping+someone")
		return len(ids) > 0 && ids[0] == "mail.dispatch"
	})
	waitUntil(t, "it is said twice", func() bool {
		_, body := ann.do("POST", feedback, said)
		return strings.Contains(body, `"recorded":false`)
	})
	for _, u := range []user{ben, stranger} {
		if status, body := u.do("POST", feedback, said); status != 404 {
			t.Errorf("feedback on a search of another: %d %s", status, body)
		}
	}

	// The report covers only the tenant, for those who may read calls.
	const analytics = "/api/v1/tools/admin/analytics?groupBy="
	waitUntil(t, "the report has the call", func() bool {
		_, body := k.Do("GET", analytics+"tool", "")
		return strings.Contains(body, `"key":"chat.post"`) && strings.Contains(body, `"calls":1`)
	})
	if _, body := k.Do("GET", analytics+"user", ""); !strings.Contains(body, `"key":"ann"`) || !strings.Contains(body, `"key":"ben"`) {
		t.Error(body)
	}
	if status, _ := ann.do("GET", analytics+"tool", ""); status != 403 {
		t.Errorf("an agent reads the report: %d", status)
	}
	auditor := user{t, k, k.Key("other", "eve", "auditor"), "", ""}
	if status, body := auditor.do("GET", analytics+"user", ""); status != 200 || strings.Contains(body, "ben") {
		t.Errorf("%d %s", status, body)
	}
	if status, body := k.Do("DELETE", "/api/v1/tools/admin/analytics/users/ann", ""); status != 200 || !strings.Contains(body, `"known":true`) {
		t.Fatalf("%d %s", status, body)
	}
	if status, body := k.Do("DELETE", "/api/v1/tools/admin/analytics/users/nobody", ""); status != 200 || !strings.Contains(body, `"known":false,"conversations":0,"searches":0`) {
		t.Fatalf("%d %s", status, body)
	}
	if _, body := k.Do("GET", analytics+"user", ""); strings.Contains(body, `"ann"`) || !strings.Contains(body, `"ben"`) {
		t.Error(body)
	}
	if _, ids := ann.search("strategy=session&q=anything+else"); len(ids) != 0 {
		t.Errorf("the conversation is not forgotten: %v", ids)
	}
}

// TestUsageOverARestart: usage survives a restart.
func TestUsageOverARestart(t *testing.T) {
	t.Parallel()
	none := toolkeeptest.Option{Settings: map[string]string{"search.model": "none"}}
	k := toolkeeptest.New(t, none)
	publishSome(k)
	ann := user{t, k, k.Key("default", "ann", "agent"), "s-1", ""}
	ann.search("q=send+a+message")
	ann.call("chat.post")
	ann.call("files.read")
	k.Close() // writes the pending search
	again := toolkeeptest.Open(t, k.Dir, none)
	ann.k = again
	waitUntil(t, "the conversation is back", func() bool {
		_, ids := ann.search("strategy=session&q=anything+else")
		return len(ids) == 2
	})
	waitUntil(t, "the question is back", func() bool {
		_, ids := ann.search("q=send+a+message")
		return len(ids) > 0 && ids[0] == "chat.post"
	})
	if a, ok := again.Usage().Analytics("default", "chat.post"); !ok || a.TotalExecutions != 1 {
		t.Errorf("%+v %v", a, ok)
	}
}

// TestUsageOnTwoNodes: a node takes feedback on a search that the other made, and knows then what
// the other executed; without that it knows it within about a minute.
func TestUsageOnTwoNodes(t *testing.T) {
	t.Parallel()
	nodes := cluster(t, 2)
	one, two := nodes[0], nodes[1]
	publishSome(one)
	key := one.Key("default", "ann", "agent")
	two.AwaitKey("default", key)
	for _, way := range [][2]*toolkeeptest.Toolkeep{{one, two}, {two, one}} { // one of them leads
		session := "s-" + way[0].URL()
		here, there := user{t, way[0], key, session, ""}, user{t, way[1], key, session, ""}
		waitUntil(t, "the second node has the tools", func() bool {
			status, body := there.do("GET", "/api/v1/tools/retrieval/search?q=send+a+message", "")
			return status == 200 && strings.Contains(body, "chat.post")
		})
		f, _ := here.search("q=send+a+message")
		here.call("chat.post")
		waitUntil(t, "feedback is taken there", func() bool { // the record of the search is written within a second
			status, _ := there.do("POST", "/api/v1/tools/retrieval/feedback", fmt.Sprintf(`{"retrievalId":%q,"toolSelected":"chat.post","relevance":1}`, f.Data.Metadata.RetrievalID))
			return status == 200
		})
		waitUntil(t, "the conversation is known there", func() bool {
			_, ids := there.search("strategy=session&q=anything+else")
			return len(ids) == 1 && ids[0] == "chat.post"
		})
	}
}

// TestPersonsBehindOneKey: the persons behind one agent share no history, no feedback and no report, over every face.
// Forgetting one keeps the others.
func TestPersonsBehindOneKey(t *testing.T) {
	t.Parallel()
	k := toolkeeptest.New(t, toolkeeptest.Option{Settings: map[string]string{"search.model": "none", "search.cache.enabled": "false"}})
	publishSome(k)
	key := k.Key("default", "proxy", "agent", "admin")
	ann, ben := user{t, k, key, "s-1", "ann"}, user{t, k, key, "s-1", "ben"}
	_, ids := ann.search("q=send+a+message")
	if len(ids) < 2 {
		t.Fatal(ids)
	}
	ann.call("chat.post")
	waitUntil(t, "the conversation has the call", func() bool {
		_, ids := ann.search("strategy=session&q=anything+else")
		return len(ids) > 0 && ids[0] == "chat.post"
	})
	for _, u := range []user{ben, {t, k, key, "s-1", ""}} {
		if _, ids := u.search("strategy=session&q=anything+else"); len(ids) != 0 {
			t.Errorf("%q has the history of ann: %v", u.person, ids)
		}
	}

	// The searches of every face are the person's.
	own, _ := ann.search("q=over+rest")
	conn, err := grpc.NewClient(k.GRPCAddr(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	var head metadata.MD
	ctx := metadata.AppendToOutgoingContext(t.Context(), "authorization", "Bearer "+key, "x-user-id", "ann", "x-session-id", "s-1")
	if _, err := l03v1.NewToolRegistryClient(conn).QueryByCapability(ctx, &l03v1.QueryByCapabilityRequest{Query: "send over grpc"}, grpc.Header(&head)); err != nil || len(head["x-retrieval-id"]) != 1 {
		t.Fatalf("%v %v", head, err)
	}
	status, body := k.Do("POST", "/mcp/search", `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"find_tools","arguments":{"query":"send over mcp"}}}`,
		"Authorization", "Bearer "+key, "X-User-ID", "ann", "X-Session-ID", "s-1", "Content-Type", "application/json", "Accept", "application/json, text/event-stream")
	if status != 200 {
		t.Fatalf("%d %s", status, body)
	}
	_, after, _ := strings.Cut(body, `"toolkeep/retrieval_id":"`)
	overMCP, _, _ := strings.Cut(after, `"`)
	for face, search := range map[string]string{"rest": fmt.Sprintf(`"retrievalId":%q`, own.Data.Metadata.RetrievalID),
		"grpc": fmt.Sprintf(`"retrievalId":%q`, head["x-retrieval-id"][0]), "mcp": fmt.Sprintf(`"retrievalId":%q`, overMCP)} {
		said := `{` + search + `,"toolSelected":"files.read","relevance":1}`
		if status, body := ben.do("POST", "/api/v1/tools/retrieval/feedback", said); status != 404 {
			t.Errorf("%s: ben judges the search of ann: %d %s", face, status, body)
		}
		if status, body := ann.do("POST", "/api/v1/tools/retrieval/feedback", said); status != 200 {
			t.Errorf("%s: ann may not judge her search: %d %s", face, status, body)
		}
	}

	// The person is in the report and with the call, and forgotten alone.
	ben.call("files.read")
	waitUntil(t, "the report has both", func() bool {
		_, body := k.Do("GET", "/api/v1/tools/admin/analytics?groupBy=user", "")
		return strings.Contains(body, `"key":"ann"`) && strings.Contains(body, `"key":"ben"`) && strings.Contains(body, `"asOf":"`)
	})
	_, list := ann.do("GET", "/api/v1/invocations?tool_id=chat.post", "")
	if !strings.Contains(list, `"agent_id":"proxy","user_id":"ann"`) {
		t.Error(list)
	}
	_, after, _ = strings.Cut(list, `"invocation_id":"`)
	id, _, _ := strings.Cut(after, `"`)
	if r, err := l03v1.NewToolExecutionClient(conn).GetInvocation(ctx, &l03v1.GetInvocationRequest{InvocationId: id}); err != nil || r.UserId != "ann" || len(r.AllowedBy) != 1 || !strings.HasPrefix(r.AllowedBy[0], "role ") {
		t.Errorf("%v %v", r, err)
	}
	if _, body := k.Do("POST", "/mcp/search", fmt.Sprintf(`{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"get_invocation","arguments":{"invocation_id":%q}}}`, id),
		"Authorization", "Bearer "+key, "X-User-ID", "ann", "Content-Type", "application/json", "Accept", "application/json, text/event-stream"); !strings.Contains(body, `"agent_id":"proxy","user_id":"ann","allowed_by":["role `) {
		t.Error(body)
	}
	if status, body := k.Do("DELETE", "/api/v1/tools/admin/analytics/users/ann", ""); status != 200 || !strings.Contains(body, `"known":true`) {
		t.Fatalf("%d %s", status, body)
	}
	if _, ids := ann.search("strategy=session&q=anything+else"); len(ids) != 0 {
		t.Errorf("ann is not forgotten: %v", ids)
	}
	waitUntil(t, "ben is not forgotten", func() bool {
		_, ids := ben.search("strategy=session&q=anything+else")
		return len(ids) == 1 && ids[0] == "files.read"
	})
}
