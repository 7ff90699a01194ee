package main

import (
	"fmt"
	"io/fs"
	"path/filepath"
	"time"
)

// manyTools is the size of a large catalogue.
const manyTools = 100_000

// largeCatalogue measures what a catalogue of 100,000 tools costs a server that starts with it, without an embedding model.
func largeCatalogue(b *bench) (part, error) {
	const none = "TOOLKEEP_SEARCH_MODEL=none"
	srv, err := b.server("catalogue", none)
	if err != nil {
		return part{}, err
	}
	err = registerTools(srv, manyTools)
	srv.stop()
	if err != nil {
		return part{}, err
	}
	var took, cpu time.Duration
	var most, least int64
	for i := range 3 {
		began := time.Now()
		srv, err := b.server("catalogue", none)
		if err != nil {
			return part{}, err
		}
		wall, used := time.Since(began), srv.cpu()
		if i == 0 || used < cpu {
			took, cpu = wall, used
		}
		high, low := srv.memoryFor(12 * time.Second)
		srv.stop()
		most, least = max(most, high), low
	}
	disk, err := size(filepath.Join(b.dir, "catalogue"))
	mb := func(n int64) string { return fmt.Sprintf("%.0f MB", float64(n)/1e6) }
	return part{set: fmt.Sprintf("Set: %d tools of about 580 bytes, without an embedding model; the start of three that took least CPU.", manyTools), rows: [][]string{
		{"start to ready", "3 s", fmt.Sprintf("%.1f s", took.Seconds())},
		{"CPU until ready", "-", fmt.Sprintf("%.1f s", cpu.Seconds())},
		{"RssAnon, the most at any time after ready", "500 MB", mb(most)},
		{"RssAnon, idle for 12 s", "500 MB", mb(least)},
		{"data directory", "-", mb(disk)},
	}}, err
}

// memoryFor returns the most RssAnon within a time, and that at its end.
func (p *process) memoryFor(d time.Duration) (most, last int64) {
	for end := time.Now().Add(d); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		last = p.rssAnon()
		most = max(most, last)
	}
	return most, last
}

// size sums the files below a folder.
func size(dir string) (n int64, err error) {
	err = filepath.WalkDir(dir, func(_ string, e fs.DirEntry, err error) error {
		if err != nil || !e.Type().IsRegular() {
			return err
		}
		info, err := e.Info()
		if err == nil {
			n += info.Size()
		}
		return err
	})
	return n, err
}
