package postgres

import (
	"strings"
	"testing"
	"time"

	"github.com/toolkeep/toolkeep/store/postgres/pgtest"
)

func TestInspect(t *testing.T) {
	dsn := pgtest.NewDatabase(t)
	info, err := Inspect(t.Context(), dsn)
	if err != nil || info.Schema != 0 || info.Server == "" {
		t.Fatalf("an empty database: %+v, %v", info, err)
	}
	if _, _, err := Migrate(t.Context(), dsn, -1); err != nil {
		t.Fatal(err)
	}
	info, err = Inspect(t.Context(), dsn)
	if err != nil || info.Schema != info.Newest || info.Newest == 0 {
		t.Fatalf("%+v, %v", info, err)
	}
	if off := info.Ahead.Abs(); off > info.Within+time.Second {
		t.Errorf("one machine's clock differs from itself by %s", off)
	}
	if _, err := Inspect(t.Context(), "host=/nowhere password=hunter2"); err == nil || strings.Contains(err.Error(), "hunter2") {
		t.Errorf("a server that is not there: %v", err)
	}
}
