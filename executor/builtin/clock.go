package builtin

import (
	"context"
	"fmt"
	"strings"
	"time"
	_ "time/tzdata" // time zones for hosts without them

	"github.com/toolkeep/toolkeep"
)

func (e *Executor) clockNow(_ context.Context, x *toolkeep.Execution) (any, *toolkeep.Error) {
	name := text(x.Args, "timezone", "UTC")
	zone, err := loadZone(name)
	if err != nil {
		return nil, bad("/timezone", "format", "the time zone is not known; use an IANA name such as Europe/Paris, or UTC")
	}
	now := e.clock().In(zone)
	var shown string
	switch text(x.Args, "format", "rfc3339") {
	case "date":
		shown = now.Format(time.DateOnly)
	case "time":
		shown = now.Format(time.TimeOnly)
	case "unix":
		shown = fmt.Sprint(now.Unix())
	case "rfc1123":
		shown = now.Format(time.RFC1123Z)
	default:
		shown = now.Format(time.RFC3339)
	}
	_, offset := now.Zone()
	return map[string]any{
		"time":           shown,
		"timezone":       zone.String(),
		"unix_ms":        number(now.UnixMilli()),
		"offset_seconds": number(int64(offset)),
		"weekday":        strings.ToLower(now.Weekday().String()),
	}, nil
}

// loadZone accepts only IANA names: "Local" would reveal the server's location.
func loadZone(name string) (*time.Location, error) {
	if name == "" || name == "Local" {
		return nil, fmt.Errorf("%q is not a time zone", name)
	}
	return time.LoadLocation(name)
}

func dateDiff(_ context.Context, x *toolkeep.Execution) (any, *toolkeep.Error) {
	from, ok := parseDate(text(x.Args, "from", ""))
	if !ok {
		return nil, bad("/from", "format", "from must be a date (2026-03-01) or a time with its zone (2026-03-01T09:30:00Z)")
	}
	to, ok := parseDate(text(x.Args, "to", ""))
	if !ok {
		return nil, bad("/to", "format", "to must be a date (2026-03-01) or a time with its zone (2026-03-01T09:30:00Z)")
	}
	seconds := to.Unix() - from.Unix()
	years, months, days := calendar(from, to)
	return map[string]any{
		"seconds":  number(seconds),
		"minutes":  number(seconds / 60),
		"hours":    number(seconds / 3600),
		"days":     number(seconds / 86400),
		"weeks":    number(seconds / (7 * 86400)),
		"calendar": map[string]any{"years": number(int64(years)), "months": number(int64(months)), "days": number(int64(days))},
	}, nil
}

func parseDate(s string) (time.Time, bool) {
	for _, layout := range []string{time.DateOnly, time.RFC3339} {
		if t, err := time.Parse(layout, s); err == nil {
			return t, true
		}
	}
	return time.Time{}, false
}

// calendar counts whole years, months and days between two times as people do; all are
// negative if to is before from. A month's last day counts as its end: from 31 January
// to 28 February is one month, as in a contract.
func calendar(from, to time.Time) (years, months, days int) {
	from, to = from.UTC(), to.UTC()
	sign := 1
	if to.Before(from) {
		from, to, sign = to, from, -1
	}
	total := (to.Year()-from.Year())*12 + int(to.Month()) - int(from.Month())
	for total > 0 && addMonths(from, total).After(to) {
		total--
	}
	days = int(to.Sub(addMonths(from, total)) / (24 * time.Hour))
	return sign * (total / 12), sign * (total % 12), sign * days
}

// addMonths uses the month's last day if the month is too short.
func addMonths(t time.Time, n int) time.Time {
	first := time.Date(t.Year(), t.Month()+time.Month(n), 1, t.Hour(), t.Minute(), t.Second(), t.Nanosecond(), time.UTC)
	last := first.AddDate(0, 1, -1).Day()
	return first.AddDate(0, 0, min(t.Day(), last)-1)
}

// maxWait is the longest wait.
const maxWait = 5 * time.Minute

// wait waits and reports progress twenty times, at most ten times a second.
func wait(ctx context.Context, x *toolkeep.Execution) (any, *toolkeep.Error) {
	ms := integer(x.Args, "duration_ms", -1)
	total := time.Duration(ms) * time.Millisecond
	if ms < 0 || ms > int64(maxWait/time.Millisecond) {
		return nil, bad("/duration_ms", "maximum", "duration_ms must be from 0 to 300000")
	}
	start := time.Now()
	end := time.NewTimer(total)
	defer end.Stop()
	tick := time.NewTicker(max(total/20, 100*time.Millisecond))
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil, ended(ctx)
		case <-end.C:
			return map[string]any{"waited_ms": number(ms)}, nil
		case <-tick.C:
			if x.Caller != nil {
				x.Caller.Progress(toolkeep.Progress{
					Percent: int(min(time.Since(start)*100/max(total, 1), 99)),
					Phase:   "waiting",
					Message: text(x.Args, "message", ""),
				})
			}
		}
	}
}
