package toolkeep

import (
	"encoding/csv"
	"os"
	"testing"
)

func TestCatalogueMatchesItsFile(t *testing.T) {
	f, err := os.Open("contracts/errors.csv")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	rows, err := csv.NewReader(f).ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	codes := Codes()
	if len(rows)-1 != len(codes) {
		t.Fatalf("the file has %d codes, the table %d: run make generate", len(rows)-1, len(codes))
	}
	for i, row := range rows[1:] {
		if string(codes[i].Code) != row[0] || codes[i].Name != row[1] || codes[i].When != row[9] {
			t.Errorf("row %s differs from the table: run make generate", row[0])
		}
		if _, err := os.Stat("docs/errors/" + row[0] + ".md"); err != nil {
			t.Errorf("%s has no page in docs/errors", row[0])
		}
	}
}

func TestUnknownCodeIsInternal(t *testing.T) {
	if got := Code("E9999").Info().Code; got != InternalError {
		t.Errorf("Info of an unknown code gives %s, want %s", got, InternalError)
	}
}

func TestStatusOfBC2(t *testing.T) {
	for _, c := range []struct {
		state CallState
		code  Code
		want  string
	}{
		{CallAccepted, "", "pending"}, {CallQueued, "", "pending"}, {CallRunning, "", "running"},
		{CallPendingApproval, "", "pending_approval"}, {CallInputRequired, "", "pending_approval"},
		{CallSucceeded, "", "success"}, {CallFailed, UpstreamServerError, "error"}, {CallFailed, Timeout, "timeout"},
		{CallFailed, UpstreamTimeout, "timeout"}, {CallRefused, InvalidParameters, "error"},
		{CallRefused, PermissionDenied, "permission_denied"}, {CallCancelled, Cancelled, "cancelled"},
		{CallExpired, HandleExpired, "error"}, {CallUnknown, OutcomeUnknown, "error"},
	} {
		if got := c.state.BC2(c.code); got != c.want {
			t.Errorf("%s with %s is %q, want %q", c.state, c.code, got, c.want)
		}
	}
}

func TestClassByStatus(t *testing.T) {
	for _, c := range []struct {
		code  Code
		class any
		want  string
	}{
		{UpstreamClientError, nil, "PROVIDER_ERROR"},
		{UpstreamClientError, "VALIDATION_ERROR", "VALIDATION_ERROR"},
		{GRPCError, "VALIDATION_ERROR", "VALIDATION_ERROR"},
		{UpstreamClientError, "POLICY_DENIED", "PROVIDER_ERROR"},
		{UpstreamServerError, "VALIDATION_ERROR", "PROVIDER_ERROR"},
	} {
		e := NewError(c.code, "x")
		if c.class != nil {
			e.With("class", c.class)
		}
		if got := e.Class(); got != c.want {
			t.Errorf("%s with %v: %s, want %s", c.code, c.class, got, c.want)
		}
	}
}
