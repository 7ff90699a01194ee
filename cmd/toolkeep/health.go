package main

import (
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/toolkeep/toolkeep/control/health"
)

func (a *app) toolHealthCmd() *cobra.Command {
	return a.withJSON(&cobra.Command{
		Use:               "health TOOL",
		Short:             "Show how well a tool works: its calls, its breaker, and the last probe",
		Example:           "  toolkeep tools health bookshop.createOrder\n  toolkeep tools health std.hash --json",
		Args:              arguments(1, 1, "the tool's id, such as std.hash"),
		ValidArgsFunction: a.completeTools,
		RunE: func(cmd *cobra.Command, args []string) error {
			var h health.Health
			return a.ask(cmd.Context(), http.MethodGet, "/api/v1/tools/"+url.PathEscape(args[0])+"/health", nil, &h, func(w io.Writer) error {
				_, err := io.WriteString(w, healthText(&h))
				return err
			})
		},
	})
}

func healthText(h *health.Health) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s is %s\n", h.ToolID, h.Status)
	if why := h.Metadata.Reasons; len(why) > 0 {
		fmt.Fprintf(&b, "  because %s\n", strings.Join(why, ", "))
	}
	fmt.Fprintf(&b, "  %.1f %% of its calls failed, %.1f ms on average\n", h.ErrorRate, h.Latency)
	if m := h.Metadata; m.Calls > 0 {
		fmt.Fprintf(&b, "  now %d calls are counted, %d failed, %d slow\n", m.Calls, m.Failures, m.Slow)
	}
	fmt.Fprintf(&b, "  its breaker is %s\n", h.Metadata.State)
	if u := h.Metadata.Upstream; u != nil {
		fmt.Fprintf(&b, "  the breaker %s of its upstream is %s\n", u.Breaker, u.State)
	}
	if p := h.Metadata.Probe; p != nil {
		fmt.Fprintf(&b, "  the last probe: %s since %s, %.1f ms, %d in a row failed\n", p.Status, p.Since.Local().Format(time.DateTime), p.Latency, p.Failures)
		if p.Error != "" {
			fmt.Fprintf(&b, "    %s\n", p.Error)
		}
	}
	return b.String()
}
