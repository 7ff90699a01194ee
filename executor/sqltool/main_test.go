package sqltool

import (
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	// database/sql handles of the tests close their opener a moment later.
	goleak.VerifyTestMain(m)
}
