package sqlite

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"sync/atomic"
	"time"
)

const (
	// checkpointEvery is how often the log is looked at; a log that grows fast is
	// looked at again at once.
	checkpointEvery = 500 * time.Millisecond
	// checkpointBytes is the size from which moving the log is worth it.
	checkpointBytes = 1 << 20
	// truncateWait bounds for how long cutting the log may keep the writer
	// waiting while it waits for readers.
	truncateWait = 50 * time.Millisecond
)

// walKeeper keeps the write-ahead log short from a connection of its own. A
// PASSIVE checkpoint disturbs nobody. Under steady writes it never reaches the
// end of the log, so above the limit a TRUNCATE follows, which holds the writer
// for the little that is left.
type walKeeper struct {
	s       *Store
	bytes   atomic.Int64
	blocked bool
}

func (k *walKeeper) start(s *Store) { k.s = s }

func (k *walKeeper) loop() {
	defer k.s.background.Done()
	t := time.NewTicker(checkpointEvery)
	defer t.Stop()
	for {
		select {
		case <-k.s.stop:
			return
		case <-t.C:
			if err := k.tend(context.Background()); err != nil {
				k.s.cfg.Log.Error("the write-ahead log could not be moved into the database", "error", err)
			}
		}
	}
}

// tend looks at the log once.
func (k *walKeeper) tend(ctx context.Context) error {
	size, err := k.size()
	if err != nil || size < min(checkpointBytes, k.s.cfg.WALBytes) {
		return err
	}
	if _, err := k.checkpoint(ctx, "PASSIVE"); err != nil {
		return err
	}
	if size <= k.s.cfg.WALBytes {
		return nil
	}
	done, err := k.checkpoint(ctx, "TRUNCATE")
	if err != nil {
		return err
	}
	if k.blocked == done { // it changed
		k.blocked = !done
		if k.blocked {
			k.s.cfg.Log.Warn("the write-ahead log is above its limit and a reader keeps it from being cut",
				"bytes", size, "limit", k.s.cfg.WALBytes)
		}
	}
	_, err = k.size()
	return err
}

// size looks up the size of the log.
func (k *walKeeper) size() (int64, error) {
	info, err := os.Stat(k.s.cfg.Path + "-wal")
	if errors.Is(err, fs.ErrNotExist) {
		k.bytes.Store(0)
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	k.bytes.Store(info.Size())
	return info.Size(), nil
}

// checkpoint runs one and tells whether it got to the end.
func (k *walKeeper) checkpoint(ctx context.Context, mode string) (done bool, err error) {
	conn, err := k.s.check.Conn(ctx)
	if err != nil {
		return false, err
	}
	defer conn.Close()
	if _, err := conn.ExecContext(ctx, fmt.Sprintf("PRAGMA busy_timeout = %d", truncateWait.Milliseconds())); err != nil {
		return false, err
	}
	var busy, log, moved int
	err = conn.QueryRowContext(ctx, "PRAGMA wal_checkpoint("+mode+")").Scan(&busy, &log, &moved)
	return err == nil && busy == 0, err
}
