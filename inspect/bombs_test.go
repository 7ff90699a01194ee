//go:build !race

package inspect

import (
	"math/big"
	"runtime"
	"runtime/debug"
	"strings"
	"testing"
	"time"
)

// bombs are programs that make huge values from small ones.
var bombs = []string{
	`def f: . + . | f; "x" | f`,
	`"x" * 2000000000`,
	`2000000000 * "xxxx"`,
	`[range(1e9)]`,
	`[limit(200000000; repeat("a"))] | length`,
	`reduce range(40) as $i ("x"; . + .)`,
	`reduce range(40) as $i ([1]; . + .)`,
	`reduce range(40) as $i (1; [., .]) | tojson`,
	`reduce range(40) as $i (1; [., .]) | tostring | length`,
	`reduce range(40) as $i (1; [., .]) | @json`,
	`reduce range(40) as $i (1; [., .]) | @text`,
	`reduce range(40) as $i (1; [., .]) | "\(.)"`,
	`reduce range(40) as $i (1; [., .]) | flatten | length`,
	`reduce range(40) as $i (1; [., .]) | error`,
	`reduce range(40) as $i (1; [., .]) | try error catch tojson`,
	`reduce range(40) as $i (1; [., .]) | halt_error`,
	`(reduce range(40) as $i (1; [., .])) == (reduce range(40) as $i (1; [., .]))`,
	`(reduce range(40) as $i (1; [., .])) | contains([[]])`,
	`[(reduce range(40) as $i (1; [., .])), (reduce range(40) as $i (1; [., .]))] | sort | length`,
	`(reduce range(40) as $i ({}; {a: ., b: .})) | . * . | length`,
	`("x" * 1000000) as $s | [range(100000) | $s] | join("") | length`,
	`("x" * 1000000) as $s | [range(100000) | $s] | add | length`,
	`("x" * 1000000) as $s | [range(2) | 1] | join($s * 60) | length`,
	`("x" * 30000000) | explode | length`,
	`("x" * 30000000) | split("") | length`,
	`("x" * 30000000) / "" | length`,
	`("x" * 30000000) | [match(""; "g")] | length`,
	`("x" * 30000000) | gsub("x"; "yyyyyyyy") | length`,
	`("x " * 3000000) | [scan("x")] | length`,
	`("{\"a\":{}}," * 3000000) | "[" + . + "1]" | fromjson | length`,
	`("[]," * 10000000) | "[" + . + "1]" | fromjson | length`,
	`[] | .[500000000] = 1 | length`,
	`null | setpath([100000000, 100000000]; 1) | length`,
	`[[range(10000)], (range(20000) | [])] | transpose | length`,
	`reduce range(1e9) as $i (null; [.])`,
	`reduce range(1e9) as $i (null; [.]) | tojson`,
	`def f: [.] | f; f`,
	`def f: 1 + f; f`,
	`def f: f, f; f`,
	`[range(300000)] | [.[] as $a | .] | length`,
	`[range(300000)] | def f: .[] as $a | f; f`,
	`reduce range(100) as $i (3; . * .) | tostring | length`,
	`[range(200000)] as $a | $a - ($a | map(. + 0.5)) | length`,
	`[range(200000)] as $a | $a | indices($a[100000:]) | length`,
	`[range(100000) | {a: ., b: [.], c: {d: .}}] | [combinations]? // . | length`,
	`[range(1000) | [range(1000)]] | combinations`,
	`[paths(..)] | [limit(100000000; repeat(.))] | length`,
	`[range(3000000) | tostring] | group_by(.) | map(unique) | length`,
	`"%c" * 5000000 | . as $f | 0 | strftime($f) | length`,
	`[recurse(. + 1)]`,
	`"x" * 60000000 | @uri | @uri | @uri | @html | @base64 | length`,
	`try ("x" * 2000000000) catch [range(1e9)]`,
	`label $out | foreach range(1e9) as $i ([]; . + [$i]; if length > 1e9 then ., break $out else empty end)`,
}

// TestBombs runs each bomb, under -short one of six; the heap never grows far.
func TestBombs(t *testing.T) {
	defer debug.SetGCPercent(debug.SetGCPercent(100)) // what these bounds count on, whatever GOGC the tests run with
	var before, after runtime.MemStats
	for i, text := range bombs {
		if testing.Short() && i%6 > 0 {
			continue
		}
		runtime.GC()
		debug.FreeOSMemory()
		runtime.ReadMemStats(&before)
		ask(t, text, map[string]any{"a": "text"})
		// This count never falls, so it holds the peak of the heap.
		runtime.ReadMemStats(&after)
		if grown := int64(after.HeapSys) - int64(before.HeapSys); grown > 4*transformMemory {
			t.Errorf("%s: the heap grew by %d MiB", text, grown>>20)
		}
		if grown := int64(after.StackSys) - int64(before.StackSys); grown > transformMemory {
			t.Errorf("%s: the stacks grew by %d MiB", text, grown>>20)
		}
	}
}

// TestMeterLetsPass tests programs that are large but fine.
func TestMeterLetsPass(t *testing.T) {
	rows := make([]any, 10_000)
	for i := range rows {
		rows[i] = map[string]any{"id": i, "name": "name " + strings.Repeat("x", i%50), "tags": []any{"a", "b"}}
	}
	big1, _ := new(big.Int).SetString("123456789012345678901234567890", 10)
	for _, text := range []string{
		`map({id, name})`, `[.[] | select(.id % 7 == 0)] | length`, `map(.name) | join(",") | length`, `group_by(.id % 10) | map(length)`,
		`map(.name | gsub(" "; "_")) | unique | length`, `[.[].tags[]] | length`, `tojson | fromjson | length`, `sort_by(.name) | reverse | .[0].id`,
		`map(.tags | @csv) | length`, `[.[:1000][] | .name | split(" ") | last]`, `reduce .[:2000][] as $x ({}; .[$x.name] += 1) | length`,
		`[limit(3; .[])] | tojson`, `map(.id) | add`, `(.[0] * .[1]) | keys`, `.[:10] | map(.name | @base64 | @base64d)`, `.[17].name = "y" | length`,
	} {
		if _, _, err := ask(t, text, rows, func(g *guard) { g.begun = time.Now().Add(time.Hour) }); err != nil {
			t.Errorf("%s: %v", text, err)
		}
	}
	if v, _, err := ask(t, `. * 10`, big1); err != nil || v.(*big.Int).String() != "1234567890123456789012345678900" {
		t.Errorf("%v %v", v, err)
	}
}
