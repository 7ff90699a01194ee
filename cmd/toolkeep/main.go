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
	if len(os.Args) > 1 && os.Args[1] == "serve" {
		// A terminal that closes, or an operator who expects it to reload, must not end a
		// server. Ignoring it instead would pass on to the programs that it starts.
		signal.Notify(make(chan os.Signal, 1), syscall.SIGHUP)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := run(ctx, stop, os.Args[1:], os.Stdin, os.Stdout, os.Stderr)
	os.Exit(code)
}
