package datadir_test

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/toolkeep/toolkeep/datadir"
)

// TestTenants: no tenant's name leads out of its folder or into another's, and folders keep
// the names that they have on disks.
func TestTenants(t *testing.T) {
	hash := datadir.TenantFolder("Acme")
	tenants := []struct {
		name   string
		insert bool   // ForTenant takes it
		folder string // of TenantFolder; "" is + and a hash
	}{
		{"acme", true, "acme"}, {"a-b_0", true, "a-b_0"}, {strings.Repeat("a", 64), true, strings.Repeat("a", 64)},
		{"Acme", true, "+37036cd8f9746d335038eca92f8a73ae5f1bca4779a1e55e5812e37743b2f5bf"}, {"ACME", true, ""},
		{"acme corp", true, ""}, {"käse", true, ""}, {"a\\b", true, ""}, {"acme\n", true, ""},
		{"-a", true, ""}, {"_a", true, ""}, {".a", true, ""}, {"a..b", true, ""}, {hash, true, ""},
		{datadir.TenantMark, true, ""}, {strings.Repeat("a", 65), true, ""}, {strings.Repeat("a", 255), true, ""},
		{strings.Repeat("a", 256), false, ""}, {"", false, ""}, {".", false, ""}, {"..", false, ""},
		{"a/b", false, ""}, {"/", false, ""}, {"../acme", false, ""}, {"a\x00b", false, ""},
	}
	seen := map[string]string{}
	for _, c := range tenants {
		folder := datadir.TenantFolder(c.name)
		if other, ok := seen[strings.ToLower(folder)]; ok {
			t.Errorf("%q and %q share the folder %s", c.name, other, folder)
		}
		seen[strings.ToLower(folder)] = c.name
		if filepath.Dir(filepath.Join("/base", folder)) != "/base" || len(folder) > 255 {
			t.Errorf("%q leads to %q", c.name, folder)
		}
		if c.folder != "" && folder != c.folder || c.folder == "" && !strings.HasPrefix(folder, "+") {
			t.Errorf("the folder of %q is %q, want %q", c.name, folder, c.folder)
		}
		got, ok := datadir.ForTenant("/srv/{tenant}/x", c.name)
		if ok != c.insert || ok && got != "/srv/"+c.name+"/x" {
			t.Errorf("with %q the path is %q, %v", c.name, got, ok)
		}
		if got, ok := datadir.ForTenant("/srv/all", c.name); got != "/srv/all" || !ok {
			t.Errorf("a path for all tenants is %q, %v with %q", got, ok, c.name)
		}
	}
}
