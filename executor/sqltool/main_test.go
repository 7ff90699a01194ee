package sqltool

import (
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	// database/sql handles stop their opener goroutine shortly after Close.
	goleak.VerifyTestMain(m)
}
