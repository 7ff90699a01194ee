package telemetry

import (
	"log/slog"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
)

// Levels holds the log level of each component. A component without its own level
// follows the common one. All can be changed at run time.
type Levels struct {
	common slog.LevelVar
	mu     sync.Mutex
	byName map[string]*level
}

// level is one component's level and a slog.Leveler.
type level struct {
	all *Levels
	own atomic.Pointer[slog.Level]
}

func (l *level) Level() slog.Level {
	if own := l.own.Load(); own != nil {
		return *own
	}
	return l.all.common.Level()
}

// NewLevels returns Levels with a common level and the levels of some components.
func NewLevels(common slog.Level, components map[string]slog.Level) *Levels {
	l := &Levels{byName: make(map[string]*level)}
	l.common.Set(common)
	for name, lv := range components {
		l.Set(name, lv)
	}
	return l
}

// For returns the level of a component, which follows later changes.
func (l *Levels) For(component string) slog.Leveler { return l.of(component) }

func (l *Levels) of(component string) *level {
	l.mu.Lock()
	defer l.mu.Unlock()
	c, ok := l.byName[component]
	if !ok {
		c = &level{all: l}
		l.byName[component] = c
	}
	return c
}

// SetCommon changes the level of every component without its own.
func (l *Levels) SetCommon(lv slog.Level) { l.common.Set(lv) }

// Set sets a component's own level.
func (l *Levels) Set(component string, lv slog.Level) { l.of(component).own.Store(&lv) }

// Unset makes a component follow the common level again.
func (l *Levels) Unset(component string) { l.of(component).own.Store(nil) }

// Common returns the level of every component without its own.
func (l *Levels) Common() slog.Level { return l.common.Level() }

// Known returns the components that log or have a level, sorted.
func (l *Levels) Known() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Sorted(maps.Keys(l.byName))
}
