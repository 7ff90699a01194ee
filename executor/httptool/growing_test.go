package httptool

import (
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
)

// TestAnswersTellWhatTheyTake: bytes are told as they arrive, and
// no more is read once there is no room.
func TestAnswersTellWhatTheyTake(t *testing.T) {
	answer := func() *http.Response {
		return &http.Response{Header: http.Header{}, Body: io.NopCloser(strings.NewReader(strings.Repeat("x", 10_000))), ContentLength: 10_000}
	}
	told := int64(0)
	body, _, err := readAnswer(answer(), 1<<20, func(n int64) error { told += n; return nil }, nil)
	if err != nil || told != 10_000 || len(body) != 10_000 {
		t.Errorf("%d of %d bytes were told, %v", told, len(body), err)
	}
	full := errors.New("no room")
	if _, _, err := readAnswer(answer(), 1<<20, func(int64) error { return full }, nil); !errors.Is(err, full) {
		t.Errorf("without room: %v", err)
	}
	if body, _, err := readAnswer(answer(), 1<<20, nil, nil); err != nil || len(body) != 10_000 {
		t.Errorf("nobody asks: %d, %v", len(body), err)
	}
}
