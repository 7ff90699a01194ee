package record

import (
	"reflect"
	"strings"
	"testing"

	"github.com/toolkeep/toolkeep/store/storetest"

	"github.com/toolkeep/toolkeep"
)

// inClear are the fields of a call that are not sealed with a person's key. A new field is either here, and in
// docs/audit.md, or among those of AppendPersonal.
const inClear = `ID Tenant Subject Session Plan Task Face KeyID ToolID Version Range Digest Category Kind Writes State Code Retryable RetryS
	Key ArgsSize Async Priority Parent Ordinal CreatedAt StartedAt EndedAt Deadline ExpiresAt FetchedAt Attempts Sent Cached Truncated ToolUS
	TotalUS BytesSent BytesRecv CostUSD Output OutputSize Secrets PriorTools Sealed Withheld Replayed Missed SealedArgs Roles Scope Workspace Method Timeout
	SkipCache CacheTTL Traceparent LeaseOwner LeaseUntil Requeued Grant Approved Fallback SealedCaller AllowedRole AllowedPolicy Certificate Steps Tries TraceID`

// TestPersonal: the fields that are cleared come back, and every other one is named in inClear.
func TestPersonal(t *testing.T) {
	full := storetest.FullCall("id", toolkeep.CallFailed, 1)
	block, err := AppendPersonal(nil, full)
	if err != nil {
		t.Fatal(err)
	}
	v := *full
	ClearPersonal(&v)
	clear := " " + strings.Join(strings.Fields(inClear), " ") + " "
	for i := range reflect.TypeFor[toolkeep.Invocation]().NumField() {
		name := reflect.TypeFor[toolkeep.Invocation]().Field(i).Name
		cleared := reflect.ValueOf(v).Field(i).IsZero() && !reflect.ValueOf(*full).Field(i).IsZero()
		if named := strings.Contains(clear, " "+name+" "); named == cleared {
			t.Errorf("%s: sealed %v, in clear %v", name, cleared, named)
		}
	}
	if err := DecodePersonal(&v, block); err != nil {
		t.Fatal(err)
	}
	for _, d := range storetest.Differences(&v, full) {
		t.Error(d)
	}
	if err := DecodePersonal(&v, block[:len(block)/2]); err == nil {
		t.Error("half a block was read")
	}
}
