package policy

import (
	"context"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"strings"
	"time"

	"github.com/toolkeep/toolkeep"
)

// Start follows the files, or fetches the bundle and follows it, until Stop. A remote policy has
// none. ctx bounds only the start. E3008 for a bundle that cannot be had or used, where none was kept.
func (e *Engine) Start(ctx context.Context) error {
	follow := e.follow
	switch {
	case e.c.Remote != nil:
		return nil
	case e.c.Bundle != nil:
		follow = e.followBundle
		if err := e.startBundle(ctx); err != nil {
			return err
		}
	}
	following, cancel := context.WithCancel(context.Background())
	e.stop = cancel
	e.done.Go(func() { follow(following) })
	return nil
}

// Stop ends the following. A nil Engine has none.
func (e *Engine) Stop() {
	if e == nil {
		return
	}
	if e.stop != nil {
		e.stop()
	}
	e.done.Wait()
}

// rereadEvery is the number of looks after which the files are read even if nothing shows a change.
const rereadEvery = 15

// follow looks at the files every Poll. The first look always reads them: they may have changed
// since New read them.
func (e *Engine) follow(ctx context.Context) {
	taken, last := "", ""
	for looks := 1; toolkeep.Sleep(ctx, e.c.Poll); looks++ {
		now := look(e.c.Path) + look(e.c.KeyFile)
		// The times of some file systems are coarse, and a busy node may not have had the time for the tests.
		if every := rereadEvery; looks%every == 0 && (e.State().Refused == "" || looks%(every*rereadEvery) == 0) {
			taken = ""
		}
		if now != last { // it may be written just now
			last = now
			continue
		}
		if now != taken {
			taken = now
			files, err := Read(e.c.Path, e.c.KeyFile)
			e.reload(ctx, files, err)
		}
	}
}

// reload takes files that were read if they differ from those in use and pass; err is why they
// could not be read. Without that, the policy in use goes on. It returns the State after it.
func (e *Engine) reload(ctx context.Context, files Files, err error) State {
	if err == nil && files.Digest() == e.State().Digest {
		return e.setState(func(s *State) { s.Refused, s.RefusedAt = "", time.Time{} })
	}
	var s State
	var g *generation
	if err == nil {
		g, s, err = e.load(ctx, files)
	}
	if ctx.Err() != nil { // before any of it is taken: what decides, State and a kept bundle agree
		return e.State()
	}
	if err != nil {
		why := toolkeep.ClipBytes(err.Error(), 4000)
		was, now := e.refusedFiles, files.Digest()
		if e.refusedFiles = now; was == now && e.State().Refused == why { // told already
			return e.State()
		}
		e.refusals.Add(1)
		s = e.setState(func(s *State) { s.Refused, s.RefusedAt = why, e.c.Clock() })
		e.c.Log.Error("the changed policy is not taken; the one in use goes on", "source", e.c.source(), "digest", s.Digest, "error", err)
	} else {
		e.current.Store(g)
		e.changes.Add(1)
		s = e.setState(func(now *State) { *now = s })
		e.c.Log.Info("the changed policy is in use", "source", e.c.source(), "digest", s.Digest, "files", s.Files, "tests", s.Tests)
	}
	if e.c.OnChange != nil {
		e.c.OnChange(s)
	}
	return s
}

func (e *Engine) setState(change func(*State)) State {
	e.mu.Lock()
	defer e.mu.Unlock()
	change(&e.state)
	return e.state
}

// look returns what changes when a file is written, added or removed: names, sizes and times.
func look(name string) string {
	var b strings.Builder
	entries := 0
	var walk func(at, below string, depth int)
	walk = func(at, below string, depth int) {
		info, err := os.Stat(at)
		if err != nil {
			fmt.Fprintf(&b, "%s: %v\n", below, err)
			return
		}
		if !info.IsDir() {
			fmt.Fprintf(&b, "%s %d %d\n", below, info.Size(), info.ModTime().UnixNano())
			return
		}
		list, err := os.ReadDir(at)
		if err != nil || depth > maxFolders {
			fmt.Fprintf(&b, "%s: %v\n", below, err)
			return
		}
		for _, e := range list {
			if entries++; entries > maxEntries {
				return
			}
			switch sub := path.Join(below, e.Name()); {
			case strings.HasPrefix(e.Name(), ".") && sub != signatureFile:
			case e.IsDir():
				walk(filepath.Join(at, e.Name()), sub, depth+1)
			default:
				if want, err := wanted(sub); want || err != nil || sub == signatureFile {
					walk(filepath.Join(at, e.Name()), sub, depth+1)
				}
			}
		}
	}
	walk(name, "", 0)
	return b.String()
}
