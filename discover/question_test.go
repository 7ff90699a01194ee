package discover

import (
	"errors"
	"testing"

	"github.com/toolkeep/toolkeep"
)

func TestCheckQuery(t *testing.T) {
	for text, found := range map[string]string{"": "", "send a\tletter\r\nand é 漢 \u200d": "", "a\x00b": "U+0000", "\x1b[31mred": "U+001B", "a\x7f": "U+007F", "a\u0085b": "U+0085", "\xff": ""} {
		err := CheckQuery(text)
		var e *toolkeep.Error
		switch {
		case found == "":
			if err != nil || PlainQuery(text) != text && text != "\xff" {
				t.Errorf("%q: %v", text, err)
			}
		case !errors.As(err, &e) || e.Code != toolkeep.InvalidEncoding || e.Message != "the query contains the control character "+found+"; leave it out":
			t.Errorf("%q: %v", text, err)
		case CheckQuery(PlainQuery(text)) != nil:
			t.Errorf("%q stays as it is", text)
		}
	}
}
