package inspect

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"
)

func TestQuery(t *testing.T) {
	t.Parallel()
	run := func(text string, limit time.Duration, values int) (outs []any, err error) {
		q, err := ParseQuery(text)
		if err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		q.time, q.values = limit, values
		err = q.Run(map[string]any{"n": json.Number("9007199254740993"), "list": []any{"a", "b"}}, func(v any) error {
			outs = append(outs, v)
			return nil
		})
		return outs, err
	}
	if outs, err := run(".list[], .n", time.Minute, 100); err != nil || len(outs) != 3 || outs[0] != "a" || outs[2] != json.Number("9007199254740993") {
		t.Errorf("%v, %v", outs, err)
	}
	if outs, err := run("env.HOME", time.Minute, 100); err != nil || outs[0] != nil {
		t.Errorf("the environment: %v, %v", outs, err)
	}
	for text, want := range map[string]string{"range(1e12)": errTooMuch.Error(), "\"x\" * 1e10": errMemory.Error(), "error(\"no\")": "no"} {
		if outs, err := run(text, time.Minute, 1000); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %d outputs, %v", text, len(outs), err)
		}
	}
	for _, text := range []string{"def f: f; f", "[range(1e10)]"} {
		if _, err := run(text, 20*time.Millisecond, 1000); err == nil || !strings.Contains(err.Error(), "longer than 20ms") {
			t.Errorf("%s: %v", text, err)
		}
	}
	stop := errors.New("stop")
	q, err := ParseQuery("1, 2")
	if err != nil {
		t.Fatal(err)
	}
	if err := q.Run(nil, func(any) error { return stop }); !errors.Is(err, stop) {
		t.Error(err)
	}
	if _, err := ParseQuery(".["); err == nil {
		t.Error("an open bracket is a program")
	}
}
