package catalog

import (
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/toolkeep/toolkeep"
)

// TestRenumbered: another version is all that differs, whatever members stand around it.
func TestRenumbered(t *testing.T) {
	annotated := func(version string) []byte {
		return []byte(strings.Replace(string(heavy("ns.b", version)), `"version"`, `"annotations":{"version":"1.0.0","z":[{"version":1}]},"version"`, 1))
	}
	for name, manifest := range map[string]func(version string) []byte{
		"plain":                   func(version string) []byte { return heavy("ns.a", version) },
		"other members so called": annotated,
	} {
		c, err := Check(manifest("1.0.0"))
		if err != nil {
			t.Fatal(err)
		}
		for _, version := range []string{"1.0.0", "2.10.3-rc.1+build.5"} {
			got, err := c.Renumbered(version)
			if err != nil {
				t.Fatal(err)
			}
			want, err := ParseManifest(manifest(version))
			if err != nil {
				t.Fatal(err)
			}
			if !reflect.DeepEqual(got.Tool(), want) {
				t.Errorf("%s: renumbered %+v, parsed %+v", name, got.Tool(), want)
			}
		}
		if _, err := c.Renumbered(`1.0","risk":"low`); !toolkeep.IsCode(err, toolkeep.InvalidManifest) {
			t.Errorf("%s: a version that is none: %v", name, err)
		}
		if c.Tool().Version != "1.0.0" {
			t.Errorf("%s: the manifest itself became %s", name, c.Tool().Version)
		}
	}
	long := strings.Replace(string(heavy("ns.c", "1.0.0")), `"version"`, `"annotations":{"pad":""},"version"`, 1)
	c, err := Check([]byte(strings.Replace(long, `"pad":"`, `"pad":"`+strings.Repeat("x", MaxManifestBytes-len(long)), 1)))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Renumbered("10.0.0-" + strings.Repeat("x", 100)); !toolkeep.IsCode(err, toolkeep.InvalidManifest) {
		t.Errorf("a manifest over %d bytes: %v", MaxManifestBytes, err)
	}
}

// TestCheckedIsPublishedAlike: what a publication makes of checked manifests is what it makes of their bytes, with the
// defaults of the node.
func TestCheckedIsPublishedAlike(t *testing.T) {
	r := newReader(Defaults{Timeout: 7 * time.Second, Lenient: true})
	raw := heavy("ns.a", "1.0.0")
	c, err := Check(raw)
	if err != nil {
		t.Fatal(err)
	}
	v, err := r.fresh(submitted{checked: c, whole: c.with(r.defaults)})
	if err != nil {
		t.Fatal(err)
	}
	tool, err := ParseManifest(raw)
	if err != nil {
		t.Fatal(err)
	}
	want, err := r.version(toolkeep.Version{Tool: tool})
	if err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(v.Tool.Manifest, want.Tool.Manifest) {
		t.Errorf("the outline is %+v, want %+v", v.Tool.Manifest, want.Tool.Manifest)
	}
	got, err := v.Tool.Whole()
	if err != nil {
		t.Fatal(err)
	}
	whole, err := want.Tool.Whole()
	if err != nil || !reflect.DeepEqual(got, whole) {
		t.Errorf("%v: the whole tool is %+v, want %+v", err, got, whole)
	}
}
