package sqlite

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// checkpointEvery is how often the log's size is checked; a fast-growing log is
	// checked again at once.
	checkpointEvery = 500 * time.Millisecond
	// checkpointBytes is the size from which a checkpoint is worthwhile.
	checkpointBytes = 1 << 20
	// truncateWait bounds how long truncating the log may block the writer while it
	// waits for readers.
	truncateWait = 50 * time.Millisecond
	// passives is the most PASSIVE checkpoints before the log is truncated, smallRest the pages of 4 KiB that are few
	// enough to be moved while the writer waits.
	passives  = 4
	smallRest = 256
)

// walKeeper keeps the write-ahead log short, on its own connection. A PASSIVE
// checkpoint blocks neither readers nor the writer. Under steady writes it never
// reaches the end of the log, so above the limit a TRUNCATE follows, which blocks the
// writer for the small rest.
type walKeeper struct {
	mu      sync.Mutex // held by tend
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

// tend checks the log once.
func (k *walKeeper) tend(ctx context.Context) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	size, err := k.size()
	if err != nil || size < min(checkpointBytes, k.s.cfg.WALBytes) {
		return err
	}
	// What is written meanwhile is the rest. Moving that, the writer waits, so it is made small first.
	for range passives {
		rest, err := k.checkpoint(ctx, "PASSIVE")
		if err != nil {
			return err
		}
		if size <= k.s.cfg.WALBytes {
			return nil
		}
		if rest <= smallRest {
			break
		}
	}
	rest, err := k.checkpoint(ctx, "TRUNCATE")
	if err != nil {
		return err
	}
	done := rest == 0
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

// size returns the size of the log.
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

// checkpoint runs a checkpoint and returns how many pages of the log it left, at least 1 if it did not reach the end.
func (k *walKeeper) checkpoint(ctx context.Context, mode string) (rest int, err error) {
	conn, err := k.s.check.Conn(ctx)
	if err != nil {
		return 0, err
	}
	defer conn.Close()
	if _, err := conn.ExecContext(ctx, fmt.Sprintf("PRAGMA busy_timeout = %d", truncateWait.Milliseconds())); err != nil {
		return 0, err
	}
	var busy, log, moved int
	err = conn.QueryRowContext(ctx, "PRAGMA wal_checkpoint("+mode+")").Scan(&busy, &log, &moved)
	return max(busy, log-moved), err
}
