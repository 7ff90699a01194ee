package catalog

import (
	"context"
	"reflect"
	"strings"
	"testing"

	"github.com/toolkeep/toolkeep"
)

// TestSetChoice keeps what was chosen of a document for its namespace and owner, over a restart and beside other documents.
func TestSetChoice(t *testing.T) {
	c, store, _ := open(t)
	set := func(p *toolkeep.Principal, namespace, title string, choice Choice, shared bool) error {
		return c.SetChoice(t.Context(), p, namespace, title, choice, shared)
	}
	first, second := Choice{Exclude: []string{"tag:admin"}}, Choice{Include: []string{"method:GET"}, Names: []string{"^v1_="}}
	for title, choice := range map[string]Choice{"Shop": first, "Büro 2.0": second} {
		if err := set(publisher("acme"), "shop", title, choice, false); err != nil {
			t.Fatal(err)
		}
	}
	if err := set(admin("acme"), "shop", "Shop", second, true); err != nil {
		t.Fatal(err)
	}
	applied := store.applied()
	if err := set(publisher("acme"), "shop", "Shop", first, false); err != nil || store.applied() != applied {
		t.Errorf("the same again is stored again: %v", err)
	}
	again := New(Config{Store: store})
	if err := again.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	defer again.Stop()
	for _, c := range []*Catalog{c, again} {
		for _, w := range []struct {
			by        *toolkeep.Principal
			namespace string
			shared    bool
			want      map[string]Choice
		}{
			{publisher("acme"), "shop", false, map[string]Choice{"Shop": first, "Büro 2.0": second}},
			{admin("acme"), "shop", true, map[string]Choice{"Shop": second}},
			{publisher("globex"), "shop", false, nil},
			{publisher("acme"), "sho", false, nil},
		} {
			if got, err := c.Choices(t.Context(), w.by, w.namespace, w.shared); err != nil || !reflect.DeepEqual(got, w.want) {
				t.Errorf("%s, shared %t: %v, %v", w.namespace, w.shared, got, err)
			}
		}
	}
	wantCode(t, set(&toolkeep.Principal{Subject: "x", Tenant: "acme"}, "shop", "Shop", first, false), toolkeep.PermissionDenied)
	wantCode(t, set(publisher("acme"), "shop", "Shop", first, true), toolkeep.PermissionDenied)
	wantCode(t, set(publisher("acme"), "Shop/..", "Shop", first, false), toolkeep.InvalidParameters)
	wantCode(t, set(publisher("acme"), "shop", strings.Repeat("x", 1001), first, false), toolkeep.InvalidParameters)
	wantCode(t, set(publisher("acme"), "shop", "Shop", Choice{Names: []string{strings.Repeat("x", MaxPattern+1)}}, false), toolkeep.InvalidParameters)
	wantCode(t, set(publisher("acme"), "shop", "Shop", Choice{Names: make([]string, MaxPatterns+1)}, false), toolkeep.InvalidParameters)
	_, err := c.Choices(t.Context(), &toolkeep.Principal{Subject: "x", Tenant: "acme"}, "shop", false)
	wantCode(t, err, toolkeep.PermissionDenied)
}

// TestChoiceFromLoad reads choices from the store's documents where the feed is not read from its beginning.
func TestChoiceFromLoad(t *testing.T) {
	store := &documented{memory: newMemory(), docs: []toolkeep.Document{{Kind: KindChoice, Tenant: "acme", ID: "pets.00", Body: []byte(`{"title":"Petstore","exclude":["tag:admin"]}`)}}}
	c := New(Config{Store: store, Load: func(context.Context) ([]toolkeep.Version, int64, error) { return nil, 0, nil }})
	if err := c.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	defer c.Stop()
	if got, err := c.Choices(t.Context(), publisher("acme"), "pets", false); err != nil || len(got["Petstore"].Exclude) != 1 {
		t.Errorf("%v, %v", got, err)
	}
}
