package imports_test

import (
	"context"
	"net"
	"net/http"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/catalog"
	"github.com/toolkeep/toolkeep/catalog/source/function"
	"github.com/toolkeep/toolkeep/catalog/source/grpc"
	"github.com/toolkeep/toolkeep/control/imports"
	"github.com/toolkeep/toolkeep/egress"
	"github.com/toolkeep/toolkeep/executor/grpctool/grpctest"
)

func guarded(f *fakeCatalog) *imports.Imports {
	pool := egress.NewPool(egress.PoolConfig{})
	return imports.New(imports.Config{Catalog: f, Visible: func(*toolkeep.Principal, *toolkeep.Tool) bool { return true },
		Transport: func(tenant string) http.RoundTripper { return pool.Transport(tenant, egress.AllowList{}) }, Dialer: pool.Dialer})
}

// TestGRPC: reflection reaches an internal address only with catalog:network, and descriptors need no connection.
func TestGRPC(t *testing.T) {
	f := &fakeCatalog{}
	m := guarded(f)
	s := grpctest.Start(t, grpctest.Options{Reflection: "v1"})
	o := grpc.Options{Target: s.Addr, Plaintext: true, Namespace: "kinds"}
	dry := catalog.PublishOptions{DryRun: true}

	if _, _, err := m.GRPC(t.Context(), publisher, o, dry); err == nil || toolkeep.AsError(err).Code != toolkeep.ImportFailed || s.Conns() != 0 {
		t.Fatalf("without catalog:network: %v, %d connections", err, s.Conns())
	}
	network := &toolkeep.Principal{Tenant: "acme", Subject: "bob", Permissions: []string{toolkeep.PermPublish, toolkeep.PermNetwork}}
	plan, done, err := m.GRPC(t.Context(), network, o, dry)
	if err != nil {
		t.Fatal(err)
	}
	if len(plan.Tools) == 0 || plan.Namespace != "kinds" || plan.Operations != len(plan.Tools)+len(plan.Refused) || done != nil || len(f.sent) != len(plan.Tools) || !f.options.DryRun {
		t.Errorf("%+v, published %v, sent %v", plan, done, f.sent)
	}
	if one := plan.Tools[0]; one.Change != "new" || !strings.Contains(one.Path, "/") || one.Method != "" {
		t.Errorf("%+v", one)
	}

	set, err := grpctest.Set()
	if err != nil {
		t.Fatal(err)
	}
	if o.Protoset, err = proto.Marshal(set); err != nil {
		t.Fatal(err)
	}
	o.Target, o.ImportPaths, o.Protos = "kinds.example:443", []string{"/etc"}, []string{"passwd"}
	if plan, done, err = m.GRPC(t.Context(), publisher, o, catalog.PublishOptions{}); err != nil || len(done) != len(plan.Tools) || plan.Digest == "" {
		t.Errorf("%+v %v %v", plan, done, err)
	}
	if _, _, err = m.GRPC(t.Context(), publisher, o, catalog.PublishOptions{Force: true}); err == nil || toolkeep.AsError(err).Code != toolkeep.PermissionDenied {
		t.Errorf("force without catalog:admin: %v", err)
	}
	if _, _, err = m.GRPC(t.Context(), &toolkeep.Principal{Tenant: "acme", Subject: "eve", Permissions: []string{toolkeep.PermNetwork}}, o, dry); err == nil || toolkeep.AsError(err).Code != toolkeep.PermissionDenied {
		t.Errorf("without catalog:publish: %v", err)
	}
}

func TestFunctions(t *testing.T) {
	f := &fakeCatalog{highest: map[string]*toolkeep.Tool{}}
	m := imports.New(imports.Config{Catalog: f, Dialer: func([]toolkeep.HostPort) func(context.Context, string) (net.Conn, error) {
		t.Error("functions need no connection")
		return nil
	}})
	o := function.Options{Data: []byte(`[{"type":"function","function":{"name":"now","description":"Tells the time.","parameters":{"type":"object","properties":{}}}}]`), URL: "https://run.example/"}
	plan, done, err := m.Functions(t.Context(), publisher, o, catalog.PublishOptions{})
	if err != nil || len(done) != 1 || plan.Namespace != "functions" || plan.Tools[0].Name != "functions.now" || plan.Tools[0].Path != "now" {
		t.Fatalf("%+v %v %v", plan, done, err)
	}
	if f.highest["functions.now"], err = catalog.ParseManifest(f.last); err != nil {
		t.Fatal(err)
	}
	if plan, done, err = m.Functions(t.Context(), publisher, o, catalog.PublishOptions{}); err != nil || done != nil || plan.Tools[0].Change != "unchanged" {
		t.Errorf("the same once more: %+v %v %v", plan, done, err)
	}
	o.Data = []byte(`[]`)
	if _, _, err = m.Functions(t.Context(), publisher, o, catalog.PublishOptions{}); err == nil || toolkeep.AsError(err).Code != toolkeep.ImportFailed {
		t.Errorf("no functions: %v", err)
	}
}

func TestSecretAuth(t *testing.T) {
	kinds := []string{"bearer", "basic", "header", "query"}
	for _, tt := range []struct{ secret, how, want string }{
		{"", "", "none"}, {"env://K", "", "bearer  "}, {"env://K", "header:X-Key", "api_key header X-Key"}, {"env://K", "query:key", "api_key query key"}, {"env://K", "basic", "basic  "},
		{"", "basic", "E3301"}, {"hunter2", "", "E3301"}, {"env://K", "mtls", "E3301"}, {"env://K", "metadata:x", "E3301"}, {"env://K", "header", "E3301"}, {"env://K", "header:", "E3301"}, {"env://K", "bearer:x", "E3301"},
	} {
		a, err := imports.SecretAuth(tt.secret, tt.how, kinds...)
		got := "none"
		if err != nil {
			got = string(toolkeep.AsError(err).Code)
			if strings.Contains(err.Error(), "hunter2") {
				t.Errorf("it tells the secret: %v", err)
			}
		} else if a != nil {
			got = a.Type + " " + a.In + " " + a.Name
		}
		if got != tt.want {
			t.Errorf("%q %q: %s, want %s", tt.secret, tt.how, got, tt.want)
		}
	}
}
