// Command toolkeep is the only binary: the server, and the client of a running one. `toolkeep help` lists its
// commands.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"github.com/toolkeep/toolkeep/upstream"
)

// reaperArg runs the command as the reaper of an MCP server's process; see upstream.RunReaper.
const reaperArg = "__reaper"

// version is set by the linker.
var version = "dev"

func main() {
	if len(os.Args) > 1 && os.Args[1] == reaperArg {
		os.Exit(upstream.RunReaper(os.Args[2:]))
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := run(ctx, stop, os.Args[1:], os.Stdin, os.Stdout, os.Stderr)
	os.Exit(code)
}
