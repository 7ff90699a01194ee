package sqltool

import (
	"strings"
	"testing"

	"github.com/toolkeep/toolkeep"
)

// TestPages: a list says whether rows are missing, whatever its page's size and the rows
// that are there.
func TestPages(t *testing.T) {
	b, admin := sqliteBench(t, Config{})
	runMySQL(t, admin, "CREATE TABLE t (n INTEGER PRIMARY KEY)", "WITH RECURSIVE c(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM c WHERE n < 51) INSERT INTO t SELECT n FROM c")
	list := `"statement":"SELECT n FROM t ORDER BY n LIMIT ? OFFSET ?","parameters":[{"name":"a","type":"integer","page_size":true,"default":50},{"name":"b","type":"integer","default":0}],"max_rows":60`
	for _, tt := range []struct {
		args, rows string
		truncated  bool
	}{
		{`{}`, "50", true}, {`{"b":1}`, "50", false}, {`{"a":51}`, "51", false}, {`{"a":60}`, "51", false}, {`{"a":61}`, "51", false},
		{`{"a":50,"b":50}`, "1", false}, {`{"a":1}`, "1", true}, {`{"a":1.0}`, "1", true}, {`{"a":0}`, "0", true}, {`{"a":1,"b":51}`, "0", false},
	} {
		out := b.must(list, tt.args)
		if jsonOf(out["row_count"]) != tt.rows || out["truncated"] != tt.truncated {
			t.Errorf("%s: %s rows, truncated %v", tt.args, jsonOf(out["row_count"]), out["truncated"])
		}
		if said, _ := out["warning"].(string); tt.truncated != strings.Contains(said, "more rows") {
			t.Errorf("%s: the warning is %q", tt.args, said)
		}
	}
	// max_rows below the page still counts.
	if out := b.must(strings.Replace(list, `"max_rows":60`, `"max_rows":10`, 1), `{}`); jsonOf(out["row_count"]) != "10" || out["truncated"] != true {
		t.Error(jsonOf(out))
	}
	for _, bad := range []string{`{"a":-1}`, `{"a":1.5}`, `{"a":"1"}`, `{"a":1e9}`} {
		b.refused(toolkeep.UnsafeArgument, list, bad)
	}
	for _, bad := range []string{strings.Replace(list, `"type":"integer","page_size"`, `"page_size"`, 1), strings.Replace(list, `"default":0`, `"page_size":true`, 1)} {
		if len(b.e.Check(b.manifest(bad))) == 0 {
			t.Errorf("%s passes Check", bad)
		}
	}
}
