package schema

import (
	"strings"
	"time"
)

// dateLayouts are the ways in which a moment is written beside RFC 3339, each without doubt about its time zone.
var dateLayouts = []string{
	"2006-01-02 15:04:05Z07:00", "2006-01-02T15:04:05-0700", "2006-01-02 15:04:05 -0700", "2006-01-02 15:04:05 UTC",
	"2006-01-02T15:04Z07:00", time.RFC1123Z, "Mon, 02 Jan 2006 15:04:05 GMT", "Mon, 2 Jan 2006 15:04:05 -0700", "Mon, 2 Jan 2006 15:04:05 GMT",
}

// dayLayouts are the ways in which a day is written beside RFC 3339; 01/02/2006 is none, because it is two days.
var dayLayouts = []string{"2006/01/02", "20060102", "2 January 2006", "2 Jan 2006", "January 2, 2006", "Jan 2, 2006", "02-Jan-2006"}

// dated brings the whole text to the form of a format: "date-time" or "date" of RFC 3339. A moment without a time zone,
// and one at another time than midnight where a day is asked for, stay as they are.
func dated(s, format string) (string, bool) {
	if len(s) > 64 {
		return s, false
	}
	if format == "date" {
		if _, err := time.Parse(time.DateOnly, s); err == nil {
			return s, false
		}
		for _, layout := range dayLayouts {
			if t, err := time.Parse(layout, s); err == nil {
				return t.Format(time.DateOnly), true
			}
		}
		if t, ok := moment(s); ok && t.Equal(t.Truncate(24*time.Hour)) {
			if _, offset := t.Zone(); offset == 0 {
				return t.Format(time.DateOnly), true
			}
		}
		return s, false
	}
	if t, ok := moment(s); ok {
		w := t.Format(time.RFC3339Nano)
		if _, err := time.Parse(time.RFC3339, s); err == nil && strings.ToUpper(s) == s {
			return s, false // as it was written, with its zeros
		}
		return w, true
	}
	return s, false
}

func moment(s string) (time.Time, bool) {
	if t, err := time.Parse(time.RFC3339, strings.ToUpper(s)); err == nil {
		return t, true
	}
	for _, layout := range dateLayouts {
		if t, err := time.Parse(layout, s); err == nil {
			return t, true
		}
	}
	return time.Time{}, false
}
