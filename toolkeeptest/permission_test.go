package toolkeeptest_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/proto/l03v1"
	"github.com/toolkeep/toolkeep/toolkeeptest"
)

// TestPermissionComesBeforeTheBody: a key without any permission is told of the permission,
// and not of what is wrong with a body, by every operation of the served document.
func TestPermissionComesBeforeTheBody(t *testing.T) {
	t.Parallel()
	roles := filepath.Join(t.TempDir(), "roles.yaml")
	if err := os.WriteFile(roles, []byte("roles:\n  none:\n    allow:\n      - tools: [\"none.*\"]\n        actions: [see]\n  writer:\n    permissions: [\"catalog:publish\"]\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	k := toolkeeptest.New(t, toolkeeptest.Option{Settings: map[string]string{"access.roles_file": roles}})
	none, writer := as(t, k, k.Key("default", "guest", "none")), as(t, k, k.Key("default", "author", "writer"))
	var doc struct {
		Paths map[string]map[string]struct {
			OperationID string
			RequestBody json.RawMessage
		}
	}
	if err := json.Unmarshal([]byte(none.do("GET", "/openapi.json", "").want(t, 200).body), &doc); err != nil {
		t.Fatal(err)
	}
	// open needs no permission for these: everybody may do it for themselves. With the
	// members here it needs one.
	open := map[string][]string{
		"invokeTool": nil, "invokeForModel": nil, "toolContext": nil, "searchToolsLong": nil, "retrievalFeedback": nil,
		"approveCall": nil, "denyCall": nil, "makeDecisionLink": nil, // who may depends on the request, and others do not learn that there is one
		"redeemLoginLink":  nil, // the link is the credential
		"decideByLink":     nil, // the link's token is the permission
		"cancelInvocation": {`"agent_context":{"agent_did":"other"}`, `"agent_context":{"tenant_id":"other"}`},
		"putSecret":        {`"scope":"organisation"`, `"scope":"organization"`, `"scope":"workspace"`, `"user":"other"`, `"scope":"user","user":"other"`},
		"mintToken":        {""}, // without a parent
		"testSecret":       {`"user":"other"`, `"workspace":"other"`, `"reference":"env://X"`, `"reference":"vault://x/y"`},
	}
	shared := []string{`"force":true`, `"shared":true`}
	further := map[string][]string{"registerTool": shared, "publishVersion": shared, "batchRegister": shared, "importTools": shared, "setAbout": shared[1:]}
	var bad []string
	for i := range 120 {
		bad = append(bad, `"unknown`+strings.Repeat("x", i)+`":1`)
	}
	body := func(members string) string {
		if members != "" {
			members += ","
		}
		return "{" + members + strings.Join(bad, ",") + "}"
	}
	seen := 0
	for path, methods := range doc.Paths {
		path = regexp.MustCompile(`\{[a-zA-Z_]+\}`).ReplaceAllString(path, "some.thing")
		for method, op := range methods {
			if op.RequestBody == nil {
				continue
			}
			seen++
			members, isOpen := open[op.OperationID]
			if !isOpen {
				members = []string{""}
				none.do(strings.ToUpper(method), path, "{").refused(t, toolkeep.PermissionDenied)
			}
			for _, m := range members {
				none.do(strings.ToUpper(method), path, body(m)).refused(t, toolkeep.PermissionDenied)
			}
			for _, m := range further[op.OperationID] {
				writer.do(strings.ToUpper(method), path, body(m)).refused(t, toolkeep.PermissionDenied)
			}
			delete(open, op.OperationID)
			delete(further, op.OperationID)
		}
	}
	if seen < 15 || len(open)+len(further) > 0 {
		t.Errorf("the document has %d operations with a body, and none of %v %v", seen, open, further)
	}
}

// raw sends bytes as a message.
type raw struct{}

func (raw) Marshal(v any) ([]byte, error) { return v.([]byte), nil }
func (raw) Unmarshal([]byte, any) error   { return nil }
func (raw) Name() string                  { return "proto" }

// TestIdentityComesBeforeTheMessage: no method of gRPC needs a permission by its message; each
// asks for the identity before it says that a message cannot be decoded.
func TestIdentityComesBeforeTheMessage(t *testing.T) {
	t.Parallel()
	k := toolkeeptest.New(t)
	conn, err := grpc.NewClient(k.GRPCAddr(), grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithDefaultCallOptions(grpc.ForceCodec(raw{})))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	key := k.Key("default", "robot", "agent")
	for _, s := range []grpc.ServiceDesc{l03v1.ToolExecution_ServiceDesc, l03v1.ToolRegistry_ServiceDesc, l03v1.ToolRetrieval_ServiceDesc} {
		for _, m := range s.Methods {
			for bearer, want := range map[string]codes.Code{"wrong": codes.Unauthenticated, key: codes.InvalidArgument} {
				ctx := metadata.AppendToOutgoingContext(t.Context(), "authorization", "Bearer "+bearer)
				err := conn.Invoke(ctx, "/"+s.ServiceName+"/"+m.MethodName, []byte{0xff}, new(any))
				if status.Code(err) != want {
					t.Errorf("%s: %v, want %s", m.MethodName, err, want)
				}
			}
		}
	}
}
