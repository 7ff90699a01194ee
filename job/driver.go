package job

import (
	"context"
	"database/sql"

	"github.com/riverqueue/river/riverdriver"
	"github.com/riverqueue/river/riverdriver/riversqlite"
)

// driver is River's SQLite driver with another way to hear of new jobs: not
// through rows of a notification table that a listener polls for, but through a
// channel. This is enough because there is one process.
type driver struct {
	*riversqlite.Driver
	wakes chan struct{}
}

func newDriver(db *sql.DB) *driver {
	return &driver{Driver: riversqlite.New(db), wakes: make(chan struct{}, 1)}
}

// wake makes the fetcher look for jobs. It never blocks; several wakes before
// the fetcher gets round to it are one.
func (d *driver) wake() {
	select {
	case d.wakes <- struct{}{}:
	default:
	}
}

// SupportsListenNotify keeps River from writing notification rows.
func (d *driver) SupportsListenNotify() bool { return false }

// GetListener gives the listener that hears wake.
func (d *driver) GetListener(p *riverdriver.GetListenenerParams) riverdriver.Listener {
	return &listener{wakes: d.wakes, schema: p.Schema}
}

// listener hands the wakes to River as if they were notifications of an insert.
type listener struct {
	wakes  <-chan struct{}
	schema string
}

const (
	topicInsert   = "river_insert"
	payloadInsert = `{"queue":"` + queueName + `"}`
)

func (l *listener) WaitForNotification(ctx context.Context) (*riverdriver.Notification, error) {
	select {
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-l.wakes:
		return &riverdriver.Notification{Topic: topicInsert, Payload: payloadInsert}, nil
	}
}

func (l *listener) Close(context.Context) error            { return nil }
func (l *listener) Connect(context.Context) error          { return nil }
func (l *listener) Listen(context.Context, string) error   { return nil }
func (l *listener) Ping(context.Context) error             { return nil }
func (l *listener) Schema() string                         { return l.schema }
func (l *listener) SetAfterConnectExec(string)             {}
func (l *listener) Unlisten(context.Context, string) error { return nil }
