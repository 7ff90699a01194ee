package holds_test

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/control/holds"
	"github.com/toolkeep/toolkeep/store/sqlite"
	"github.com/toolkeep/toolkeep/store/storetest"
)

func TestHolds(t *testing.T) {
	store, err := sqlite.Open(t.Context(), sqlite.Config{Path: filepath.Join(t.TempDir(), "db")})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = store.Close() })
	s := &holds.Holds{Store: store}
	ctx, began := t.Context(), time.Now().UTC().Truncate(time.Microsecond)
	boss := &toolkeep.Principal{Tenant: "t", Subject: "boss", Permissions: []string{"*"}}
	auditor := &toolkeep.Principal{Tenant: "t", Subject: "eve", Permissions: []string{toolkeep.PermInvocations}}
	other := &toolkeep.Principal{Tenant: "u", Subject: "root", Permissions: []string{"*"}}
	is := func(what string, err error, code toolkeep.Code) {
		t.Helper()
		if !toolkeep.IsCode(err, code) {
			t.Errorf("%s: %v, want %s", what, err, code)
		}
	}
	good := toolkeep.LegalHold{From: began, Until: began.Add(time.Hour), Agent: "a", Tool: "ns.x", Reason: "case 1"}
	_, err = s.Add(ctx, auditor, good)
	is("an auditor", err, toolkeep.PermissionDenied)
	for what, bad := range map[string]toolkeep.LegalHold{
		"no reason": {From: began}, "no time": {Reason: "x"}, "ends before": {From: began, Until: began, Reason: "x"},
		"long": {From: began, Reason: strings.Repeat("x", 1001)},
	} {
		_, err = s.Add(ctx, boss, bad)
		is(what, err, toolkeep.InvalidParameters)
	}
	made, err := s.Add(ctx, boss, good)
	if err != nil || made.ID == "" || made.By != "boss" || made.Tenant != "t" || made.At.Before(began) {
		t.Fatalf("%+v, %v", made, err)
	}
	list, err := s.List(ctx, auditor)
	if err != nil || len(list) != 1 || list[0] != made {
		t.Errorf("the list is %+v, want %+v: %v", list, made, err)
	}
	if list, err := s.List(ctx, other); err != nil || len(list) != 0 {
		t.Errorf("another tenant sees %+v, %v", list, err)
	}
	_, err = s.List(ctx, &toolkeep.Principal{Tenant: "t"})
	is("no permission", err, toolkeep.PermissionDenied)
	_, err = s.Remove(ctx, other, made.ID)
	is("another tenant's", err, toolkeep.ResourceNotFound)
	_, err = s.Remove(ctx, auditor, made.ID)
	is("an auditor removes", err, toolkeep.PermissionDenied)
	if _, err := s.Remove(ctx, boss, made.ID); err != nil {
		t.Error(err)
	}
	_, err = s.Remove(ctx, boss, made.ID)
	is("one that is gone", err, toolkeep.ResourceNotFound)

	var kinds []string
	for _, e := range storetest.Entries(ctx, t, store) {
		if e.Event != nil {
			kinds = append(kinds, e.Event.Type)
			if !strings.Contains(string(e.Event.Data), `"agent_did":"boss"`) || !strings.Contains(string(e.Event.Data), made.ID) || e.Event.Tenant != "t" {
				t.Errorf("the event %s of %s", e.Event.Data, e.Event.Tenant)
			}
		}
	}
	if fmt.Sprint(kinds) != "[ai.agent.audit.hold_added ai.agent.audit.hold_removed]" {
		t.Errorf("the events are %v", kinds)
	}
	for i := range toolkeep.MaxLegalHolds {
		p := &toolkeep.Principal{Tenant: fmt.Sprint("t", i/toolkeep.MaxTenantHolds), Subject: "boss", Permissions: []string{"*"}}
		if _, err := s.Add(ctx, p, good); err != nil {
			t.Fatal(i, err)
		}
		if i == toolkeep.MaxTenantHolds-1 {
			_, err = s.Add(ctx, p, good)
			is("too many of a tenant", err, toolkeep.InvalidParameters)
		}
	}
	_, err = s.Add(ctx, boss, good)
	is("too many", err, toolkeep.InvalidParameters)
}
