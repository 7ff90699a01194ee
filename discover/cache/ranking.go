package cache

import (
	"fmt"
	"runtime/debug"
)

// Ranking is Config.Ranking of a program and the settings that it ranks by. Nodes of
// different builds may rank differently, so they do not share answers.
func Ranking(version string, settings any) string {
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, s := range info.Settings {
			if s.Key == "vcs.revision" || s.Key == "vcs.modified" {
				version += " " + s.Value
			}
		}
	}
	return fmt.Sprintf("%s %+v", version, settings)
}
