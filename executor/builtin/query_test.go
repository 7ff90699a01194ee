package builtin

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/canon"
)

func query(t testing.TB, data, program string) (string, *toolkeep.Error) {
	t.Helper()
	v, err := jsonQuery(t.Context(), &toolkeep.Execution{Args: map[string]any{"data": tree(t, data), "query": program}})
	if err != nil {
		return "", err
	}
	return string(canon.Append(nil, v.(map[string]any)["results"])), nil
}

func TestQuery(t *testing.T) {
	const data = `{"items":[{"n":"b","p":2.50,"t":["x","y"]},{"n":"a","p":9007199254740993,"t":[]},{"n":"c","p":null}],"s":"Hi"}`
	tests := []struct{ program, want string }{
		{`.s`, `["Hi"]`},
		{`.items[].n`, `["b","a","c"]`},
		{`.items | map(.p)`, `[[2.50,9007199254740993,null]]`},
		{`.items[1].p - 1`, `[9007199254740992]`},
		{`.items[0].p * 2, .items[0].p / 2, .items[0].p + 1`, `[5,1.25,3.5]`},
		{`[.items[] | select(.t | length > 0) | .n]`, `[["b"]]`},
		{`.items | sort_by(.n) | map(.n) | join("-")`, `["a-b-c"]`},
		{`.items | group_by(.p == null) | map(length)`, `[[2,1]]`},
		{`[.items[] | {(.n): .p}] | add | keys`, `[["a","b","c"]]`},
		{`"\(.s), \(.items | length)"`, `["Hi, 3"]`},
		{`.items[0].t as $t | $t | contains(["x"])`, `[true]`},
		{`.s | test("^h"; "i")`, "E"},
		{`.s | test("^H")`, `[true]`},
		{`.items | to_entries | map(.key)`, `[[0,1,2]]`},
		{`if .s == "Hi" then 1 else 2 end`, `[1]`},
		{`.missing // "none"`, `["none"]`},
		{`.. | numbers`, `[2.50,9007199254740993]`},
		{`try (.s.x) catch "no"`, `["no"]`},
		{`.items[]?.n?`, `["b","a","c"]`},
		{`.items[0]["n"], .items[:1][0].n, .items[-1].n`, `["b","b","c"]`},
		{`[limit(2; .items[])] | length`, `[2]`},
		{`@base64 "\(.s)"`, `["SGk="]`},
		{`.items | map(.p // 0) | max`, `[9007199254740993]`},
		{`"12" | tonumber`, `[12]`},
		{`empty`, `[]`},
		{`[range(3)]`, `[[0,1,2]]`},
		{`$ENV`, "E"}, {`env`, "E"}, {`$__prog_args`, "E"}, {`{$ENV}`, "E"}, {`input`, "E"}, {`debug`, "E"}, {`now`, "E"},
		{`def f: 1; f`, "E"}, {`import "a" as a; .`, "E"}, {`include "a"; .`, "E"},
		{`reduce .items[] as $i (0; . + 1)`, "E"}, {`foreach .items[] as $i (0; .)`, "E"}, {`label $x | 1`, "E"},
		{`.a = 1`, "E"}, {`.a |= 1`, "E"}, {`del(.a)`, "E"}, {`until(false; .)`, "E"}, {`repeat(.)`, "E"},
		{`_bounded`, "E"}, {`_times(1; 2)`, "E"}, {`halt`, "E"}, {`.s as [$a] | $a`, "E"}, {`.`, "all"},
		{`{a: env}`, "E"}, {`[.[] | env]`, "E"}, {`.[env]`, "E"}, {`"\(env)"`, "E"}, {`if env then 1 end`, "E"}, {`-env`, "E"}, {`map(env)`, "E"}, {`try env`, "E"}, {`1 as $x | env`, "E"}, {`.s[env:]`, "E"},
		{`(`, "E"},
	}
	for _, tt := range tests {
		t.Run(tt.program, func(t *testing.T) {
			got, err := query(t, data, tt.program)
			if err != nil {
				got = "E"
				if err.Code != toolkeep.InputValidationFailed || !err.NothingSent {
					t.Errorf("error = %+v", err)
				}
			}
			if tt.want == "all" {
				tt.want = "[" + string(canon.Append(nil, tree(t, data))) + "]"
			}
			if got != tt.want {
				t.Errorf("got %s, want %s (%v)", got, tt.want, err)
			}
		})
	}
}

// TestQueryBombs: programs that would exhaust memory or time must end by themselves,
// with an error or a small result.
func TestQueryBombs(t *testing.T) {
	chain := func(s string, n int) string { return strings.TrimSuffix(strings.Repeat(s+" | ", n), " | ") }
	for name, program := range map[string]string{
		"doubling a text":        `"xxxxxxxx" | ` + chain(`. + .`, 60),
		"doubling by parts":      `"xxxxxxxx" | ` + chain(`"\(.)\(.)"`, 60),
		"doubling an array":      `[1] | ` + chain(`. + .`, 60),
		"shared parts":           `"x" | ` + chain(`[., .]`, 60),
		"shared parts, written":  `"x" | ` + chain(`[., .]`, 60) + ` | tojson`,
		"shared parts, compared": `"x" | ` + chain(`[., .]`, 60) + ` | . == .`,
		"shared objects":         `"x" | ` + chain(`{a: ., b: .}`, 60),
		"repeating a text":       `"x" * 1000000000`,
		"growing integers":       `99999999999999999999 | ` + chain(`. * .`, 60),
		"a long range":           `[range(1000000000)]`,
		"ranges in ranges":       `range(1000000) | range(1000000) | empty`,
		"join":                   `[range(100000)] | join("` + strings.Repeat("x", 1000) + `")`,
		"encoding again":         `"` + strings.Repeat("x", 500) + `" | ` + chain(`@base64`, 60),
		"escaping again":         `"\"\"\"\"" | ` + chain(`tojson`, 100),
		"many large values":      `("` + strings.Repeat("x", 900) + `" | ` + chain(`. + .`, 11) + `) as $x | [range(100000) | $x + "y"]`,
		"sorting by large keys":  `[range(50000)] as $x | $x | sort_by($x)`,
		"searching for arrays":   `[range(50000)] as $x | $x[$x]`,
		"containing arrays":      `[range(50000)] as $x | $x | contains($x)`,
		"subtracting arrays":     `[range(50000)] as $x | $x - $x`,
		"a long number":          `("1" | ` + chain(`. + .`, 20) + `) | tonumber`,
		"a long regular expr":    `("(a{1000}){1000}" as $p | "a" | test($p))`,
		"a large regular expr":   `"a" | test("((a{100}){100}){100}")`,
		"many results":           `range(20000)`,
		"recursion over sharing": `[1] | ` + chain(`[., .]`, 15) + ` | [..] | [..] | length`,
		"adding texts of arrays": `("` + strings.Repeat("x", 900) + `" | ` + chain(`. + .`, 11) + `) as $x | [range(1000) | $x] | add`,
		"flattening":             `[range(1000)] as $x | [range(1000) | $x] | flatten | length`,
	} {
		t.Run(name, func(t *testing.T) {
			if len(program) > maxProgram {
				t.Fatalf("the program has %d characters and is refused for that alone", len(program))
			}
			got, err := query(t, `null`, program)
			if err == nil && len(got) > maxText {
				t.Errorf("the result has %d bytes", len(got))
			}
			if err != nil && err.Code != toolkeep.TransformationFailed && err.Code != toolkeep.InputValidationFailed {
				t.Errorf("error = %v", err)
			}
		})
	}
}

func TestQueryCancelled(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Nanosecond)
	defer cancel()
	<-ctx.Done()
	_, err := jsonQuery(ctx, &toolkeep.Execution{Args: map[string]any{"query": "range(1000000)"}})
	if err == nil || err.Code != toolkeep.UpstreamTimeout {
		t.Errorf("error = %v", err)
	}
}

// FuzzQuery runs any program on any data: no panic, no endless run.
func FuzzQuery(f *testing.F) {
	f.Add(`.a[] | select(.b > 1)`, `{"a":[{"b":2}]}`)
	f.Add(`[.., "\(.)"] | sort_by(.) | add * 2 - 1`, `[1,"x",null]`)
	f.Add(`.[1:2] as $x | {$x, (.a): @json}`, `"abc"`)
	f.Fuzz(func(t *testing.T, program, data string) {
		v, err := canon.Parse([]byte(data), canon.Limits{})
		if err != nil {
			return
		}
		before := canon.Hash(v)
		out, terr := jsonQuery(t.Context(), &toolkeep.Execution{Args: map[string]any{"data": v, "query": program}})
		if canon.Hash(v) != before {
			t.Fatal("the data was modified")
		}
		if terr != nil && strings.Contains(fmt.Sprint(terr.Cause), "panicked") {
			t.Fatal(terr.Cause)
		}
		if terr == nil {
			if err := canon.Check(out, 10_000); err != nil {
				t.Fatalf("the result is no tree: %v", err)
			}
		}
	})
}
