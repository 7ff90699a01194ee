package discover

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/viterin/vek/vek32"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/discover/mapped"
)

// unusedFor is how long the file of an unused model is kept, in case it is used again.
const unusedFor = 30 * 24 * time.Hour

// Memory keeps vectors in memory, where queries are compared with all of them, and in memory-mapped
// files, one per model, so that they survive a restart. A file's modification time is its last use.
// Files unused for 30 days are deleted once another model has a vector for every text in use.
type Memory struct {
	dir string
	log *slog.Logger

	mu   sync.Mutex
	open map[string]bool // by path
}

// NewMemory keeps vectors in a folder, which is created if absent; "" keeps them until the process
// ends. If a file cannot be used, that is logged (log nil: not), and its vectors also last only
// until the process ends. Only one process may use a folder.
func NewMemory(dir string, log *slog.Logger) *Memory {
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	return &Memory{dir: dir, log: log, open: map[string]bool{}}
}

// Open reads the file of a model.
func (m *Memory) Open(_ context.Context, model string, dimensions int) (Vectors, error) {
	if dimensions < 1 || dimensions > maxDimensions {
		return nil, toolkeep.NewError(toolkeep.IndexUnavailable, "vectors of %s have %d numbers; there can be 1 to %d", model, dimensions, maxDimensions)
	}
	v := &memoryVectors{model: model, dimensions: dimensions, slots: map[Digest]uint32{}, rows: newRows(dimensions)}
	if m.dir == "" {
		return v, nil
	}
	path := filepath.Join(m.dir, vectorFileName(model, dimensions))
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.open[path] {
		return nil, toolkeep.NewError(toolkeep.IndexUnavailable, "the vectors of %s are open already", model)
	}
	file, err := openVectorFile(path, model, dimensions)
	if err == nil {
		if file.damaged {
			m.log.Warn("a file of vectors was damaged; its vectors are computed again", "file", path)
		}
		err = v.load(file)
	}
	if err != nil {
		m.log.Warn("vectors are not kept over a restart", "file", path, "error", err)
		return &memoryVectors{model: model, dimensions: dimensions, slots: map[Digest]uint32{}, rows: newRows(dimensions)}, nil
	}
	m.open[path] = true
	v.log, v.path = m.log, path
	v.retained = func(complete bool) {
		m.touch(path)
		if complete {
			m.sweep()
		}
	}
	m.touch(path)
	v.closing = func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		delete(m.open, path)
	}
	return v, nil
}

// Spaces reads the headers of the files.
func (m *Memory) Spaces(context.Context) ([]Space, error) {
	if m.dir == "" {
		return nil, nil
	}
	entries, err := os.ReadDir(m.dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, toolkeep.NewError(toolkeep.IndexUnavailable, "the folder of vectors cannot be read").Because(err)
	}
	var out []Space
	for _, e := range entries {
		if !strings.HasSuffix(e.Name(), vectorFileEnd) {
			continue
		}
		s, err := readSpace(filepath.Join(m.dir, e.Name()))
		if err != nil {
			m.log.Warn("a file of vectors cannot be read", "file", e.Name(), "error", err)
			continue
		}
		if s.Model != "" {
			out = append(out, s)
		}
	}
	return out, nil
}

// touch marks a file as used now.
func (m *Memory) touch(path string) {
	now := time.Now()
	if err := os.Chtimes(path, now, now); err != nil {
		m.log.Warn("the use of a file of vectors cannot be recorded", "file", path, "error", err)
	}
}

// sweep deletes the files of models unused for long. Failures are retried the next time.
func (m *Memory) sweep() {
	m.mu.Lock()
	defer m.mu.Unlock()
	entries, err := os.ReadDir(m.dir)
	if err != nil {
		m.log.Warn("the folder of vectors cannot be read", "error", err)
		return
	}
	for _, e := range entries {
		path := filepath.Join(m.dir, e.Name())
		if !e.Type().IsRegular() || !strings.HasSuffix(e.Name(), vectorFileEnd) || m.open[path] {
			continue
		}
		info, err := e.Info()
		if err != nil || time.Since(info.ModTime()) < unusedFor {
			continue
		}
		s, err := readSpace(path)
		if err != nil || s.Model == "" || filepath.Base(path) != vectorFileName(s.Model, s.Dimensions) {
			continue // not created here
		}
		if err := os.Remove(path); err != nil {
			m.log.Warn("the vectors of a model that is not used any more cannot be deleted", "file", path, "error", err)
			continue
		}
		m.log.Info("the vectors of a model that was not used for 30 days are deleted", "model", s.Model, "file", path, "vectors", s.Vectors)
	}
}

// Close does nothing: Memory holds only what Open returned.
func (m *Memory) Close() error { return nil }

// vectorFileName includes the model for human readers and keeps similar names apart.
func vectorFileName(model string, dimensions int) string {
	readable := strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z', r >= 'A' && r <= 'Z', r >= '0' && r <= '9', r == '-', r == '.', r == '_':
			return r
		}
		return '-'
	}, model)
	sum := spaceSum(model, dimensions)
	return strings.Trim(readable[:min(len(readable), 40)], "-.") + "-" + hex.EncodeToString(sum[:4]) + vectorFileEnd
}

// memoryVectors are the vectors of one model. Lock order: writing before mu.
type memoryVectors struct {
	model      string
	dimensions int
	log        *slog.Logger // nil without a file
	path       string       // of the file
	closing    func()
	retained   func(complete bool) // called by Retain with whether all texts in use have a vector; nil without a file

	writing sync.Mutex  // serialises Put and Retain; before Memory.mu
	file    *vectorFile // nil without a file, or after it failed
	closed  atomic.Bool

	mu    sync.RWMutex
	slots map[Digest]uint32 // slot of each vector in rows
	rows  *rows
	// chunks are those of rows that searches may see; they exclude one that Put is adding.
	chunks [][]float32
	used   uint32 // used slots, live and dead
}

// load reads the vectors of a file.
func (v *memoryVectors) load(file *vectorFile) error {
	err := file.read(v.rows, func(slot uint32, d Digest) {
		v.slots[d] = slot
		v.used = slot + 1
	})
	if err != nil {
		return errors.Join(err, file.close())
	}
	v.file, v.chunks = file, v.rows.chunks
	return nil
}

func (v *memoryVectors) gone() error {
	return toolkeep.NewError(toolkeep.IndexUnavailable, "the vectors of %s are closed", v.model)
}

// errLost reports that a part of a vector file is missing. An embedder's file may fail likewise,
// but then no vector is lost.
var errLost = fmt.Errorf("vectors: %w", mapped.ErrGone)

// cut records that a part of the file is missing, and logs it once.
func (v *memoryVectors) cut(r *rows) error {
	err := toolkeep.NewError(toolkeep.IndexUnavailable, "the file of vectors %s cannot be read any more (%v); its vectors are computed again", v.path, mapped.ErrGone).Because(errLost)
	if !r.gone.Swap(true) {
		v.log.Warn("vectors were lost and are computed again; until then only words count", "file", v.path, "error", mapped.ErrGone)
	}
	return err
}

// repair salvages the rest of a damaged file into a new one that takes its place. v.writing is held.
func (v *memoryVectors) repair() {
	if v.closed.Load() || !v.rows.gone.Load() {
		return
	}
	left := &memoryVectors{slots: map[Digest]uint32{}, rows: newRows(v.dimensions)}
	if v.file != nil {
		if err := v.file.close(); err != nil {
			v.log.Warn("the file of vectors was not closed cleanly", "error", err)
		}
		file, err := openVectorFile(v.path, v.model, v.dimensions)
		if err == nil {
			err = left.load(file)
		}
		if err != nil {
			v.log.Warn("vectors are not kept over the next restart any more", "file", v.path, "error", err)
			left = &memoryVectors{slots: map[Digest]uint32{}, rows: newRows(v.dimensions)}
		}
	}
	v.file = left.file
	v.mu.Lock()
	defer v.mu.Unlock()
	v.slots, v.rows, v.chunks, v.used = left.slots, left.rows, left.chunks, left.used
}

func (v *memoryVectors) Have(_ context.Context, of []Digest) ([]bool, error) {
	if v.closed.Load() {
		return nil, v.gone()
	}
	v.mu.RLock()
	gone := v.rows.gone.Load()
	v.mu.RUnlock()
	if gone {
		v.writing.Lock()
		v.repair()
		v.writing.Unlock()
	}
	v.mu.RLock()
	defer v.mu.RUnlock()
	out := make([]bool, len(of))
	for i, d := range of {
		_, out[i] = v.slots[d]
	}
	return out, nil
}

func (v *memoryVectors) Put(_ context.Context, of []Digest, vectors [][]float32) error {
	if err := CheckVectors(v.model, v.dimensions, len(of), vectors); err != nil {
		return err
	}
	v.writing.Lock()
	defer v.writing.Unlock()
	if v.closed.Load() {
		return v.gone()
	}
	v.repair()
	if v.file != nil && v.file.cut(v.rows) {
		return v.cut(v.rows)
	}
	for i, d := range of {
		if err := v.put(d, vectors[i]); err != nil {
			return err
		}
	}
	return nil
}

// put writes to a new slot, because searches may be reading the old one. v.writing is held.
func (v *memoryVectors) put(d Digest, numbers []float32) error {
	slot := v.used
	if slot == noSlot {
		return toolkeep.NewError(toolkeep.IndexUnavailable, "there are too many vectors of %s", v.model)
	}
	if v.file != nil {
		if err := v.file.write(v.rows, slot, d, numbers); err != nil {
			// Search continues; the next start embeds again what is not in the file.
			v.log.Warn("vectors are not kept over the next restart any more", "error", err)
			slot = v.abandon()
		}
	}
	if v.file == nil {
		v.rows.hold(slot, numbers)
	}
	v.mu.Lock()
	old, replaced := v.slots[d]
	v.slots[d], v.used, v.chunks = slot, slot+1, v.rows.chunks
	v.mu.Unlock()
	if replaced && v.file != nil {
		if err := v.file.erase(old); err != nil {
			v.log.Warn("an old vector stays in the file", "error", err)
		}
	}
	return nil
}

// abandon continues without the file, from the next chunk on.
func (v *memoryVectors) abandon() uint32 {
	if err := v.file.close(); err != nil {
		v.log.Warn("the file of vectors was not closed cleanly", "error", err)
	}
	v.file = nil
	return v.rows.next()
}

// Retain rewrites everything when dead vectors outnumber live ones.
func (v *memoryVectors) Retain(_ context.Context, live []Digest) error {
	v.writing.Lock()
	defer v.writing.Unlock()
	if v.closed.Load() {
		return v.gone()
	}
	v.repair()
	if v.file != nil && v.file.cut(v.rows) {
		return v.cut(v.rows)
	}
	kept := make(map[Digest]uint32, len(live)) // new slots
	var from []uint32                          // old slot of each new one
	complete := len(live) > 0
	if v.retained != nil && v.file != nil {
		defer func() { v.retained(complete) }()
	}
	for _, d := range live {
		slot, ok := v.slots[d]
		complete = complete && ok
		if _, twice := kept[d]; ok && !twice {
			kept[d] = uint32(len(from))
			from = append(from, slot)
		}
	}
	if dead := int(v.used) - len(from); dead <= len(from)+chunkRows {
		return nil
	}
	fresh := newRows(v.dimensions)
	var file *vectorFile
	if v.file != nil {
		order := make([]Digest, len(from))
		for d, slot := range kept {
			order[slot] = d
		}
		its := make([]float32, v.dimensions)
		var err error
		file, err = v.file.rewrite(fresh, order, func(i int) ([]float32, error) {
			return its, reading(v.rows.chunks, func() { copy(its, v.rows.at(from[i])) })
		})
		if errors.Is(err, mapped.ErrGone) {
			complete = false
			return v.cut(v.rows)
		}
		if err != nil {
			return toolkeep.NewError(toolkeep.IndexUnavailable, "the file of vectors could not be made smaller; it stays as it is").Because(err)
		}
		if err := v.file.close(); err != nil {
			v.log.Warn("the old file of vectors was not closed cleanly", "error", err)
		}
		v.file = file
	} else if err := reading(v.rows.chunks, func() { // chunks from before the file failed
		for i, slot := range from {
			fresh.hold(uint32(i), v.rows.at(slot))
		}
	}); err != nil {
		return v.cut(v.rows)
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	v.slots, v.rows, v.chunks, v.used = kept, fresh, fresh.chunks, uint32(len(from))
	return nil
}

func (v *memoryVectors) Select(of []Digest) Selection {
	v.mu.RLock()
	defer v.mu.RUnlock()
	s := &memorySelection{of: v, rows: v.rows, chunks: v.chunks, slots: make([]uint32, len(of))}
	gone := v.rows.gone.Load()
	if gone {
		s.rows, s.chunks = newRows(v.dimensions), nil
	}
	for i, d := range of {
		slot, ok := v.slots[d]
		if !ok || gone {
			slot = noSlot
		}
		s.slots[i] = slot
	}
	return s
}

func (v *memoryVectors) Close() error {
	v.writing.Lock()
	defer v.writing.Unlock()
	if v.closed.Swap(true) {
		return nil
	}
	if v.closing != nil {
		defer v.closing()
	}
	if v.file == nil {
		return nil
	}
	return v.file.close()
}

// memorySelection sees the rows as of its creation: used slots are never written again.
type memorySelection struct {
	of     *memoryVectors
	rows   *rows // keeps the file's mapping alive
	chunks [][]float32
	slots  []uint32
}

func (s *memorySelection) Has(i int) bool { return s.slots[i] != noSlot }

// alone is how many multiplications run on one core before another core helps.
const alone = 1 << 21

func (s *memorySelection) Alike(ctx context.Context, queries, to [][]float32) error {
	if s.of.closed.Load() {
		return s.of.gone()
	}
	if err := CheckVectors(s.of.model, s.of.dimensions, len(queries), queries); err != nil {
		return err
	}
	n := len(s.slots)
	cores := min(runtime.GOMAXPROCS(0), 1+n*len(queries)*s.of.dimensions/alone)
	if cores == 1 {
		s.compare(queries, to, 0, n)
	} else {
		var all sync.WaitGroup
		for c := range cores {
			all.Go(func() { s.compare(queries, to, c*n/cores, (c+1)*n/cores) })
		}
		all.Wait()
	}
	// Another goroutine may have detected the loss: the file may have its old length again.
	if s.rows.gone.Load() {
		return s.of.cut(s.rows)
	}
	return ctx.Err()
}

// compare reads the rows once, with all queries at each row.
func (s *memorySelection) compare(queries, to [][]float32, from, end int) {
	if reading(s.chunks, func() { s.dots(queries, to, from, end) }) != nil {
		_ = s.of.cut(s.rows) // Alike reports it
	}
	runtime.KeepAlive(s.rows)
}

func (s *memorySelection) dots(queries, to [][]float32, from, end int) {
	d := s.of.dimensions
	for i := from; i < end; i++ {
		slot := s.slots[i]
		if slot == noSlot {
			for q := range queries {
				to[q][i] = 0
			}
			continue
		}
		at := int(slot%chunkRows) * d
		row := s.chunks[slot/chunkRows][at : at+d]
		for q, query := range queries {
			to[q][i] = max(0, vek32.Dot(query, row))
		}
	}
}

// CheckVectors checks a model's vectors, of which n are expected. E3102.
func CheckVectors(model string, dimensions, n int, vectors [][]float32) error {
	if len(vectors) != n {
		return toolkeep.NewError(toolkeep.EmbeddingFailed, "there are %d vectors of %s for %d texts", len(vectors), model, n)
	}
	for _, v := range vectors {
		if len(v) != dimensions {
			return toolkeep.NewError(toolkeep.EmbeddingFailed, "a vector has %d numbers; those of %s have %d", len(v), model, dimensions)
		}
		if slices.ContainsFunc(v, func(f float32) bool { return f-f != 0 }) {
			return toolkeep.NewError(toolkeep.EmbeddingFailed, "a vector of %s holds what is not a number", model)
		}
	}
	return nil
}
