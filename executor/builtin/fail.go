package builtin

import (
	"context"
	"time"

	"github.com/toolkeep/toolkeep"
)

// fail fails as requested, for testing retries, limits and alerts.
func fail(ctx context.Context, x *toolkeep.Execution) (any, *toolkeep.Error) {
	code := toolkeep.Code(text(x.Args, "code", string(toolkeep.UpstreamServerError)))
	info := code.Info()
	if info.Code != code || info.Kind != toolkeep.KindRefusal && info.Kind != toolkeep.KindResult {
		return nil, bad("/code", "enum", "there is no error of that code that a call can end with; the list is in docs/errors")
	}
	if after := integer(x.Args, "after_ms", 0); after > 0 {
		if !toolkeep.Sleep(ctx, time.Duration(min(after, 60_000))*time.Millisecond) {
			return nil, ended(ctx)
		}
	}
	if n := integer(x.Args, "succeed_on_attempt", 0); n > 0 && int64(x.Attempt) >= n {
		return map[string]any{"attempt": number(int64(x.Attempt))}, nil
	}
	message := text(x.Args, "message", "this tool fails as it was asked to")
	e := toolkeep.NewError(code, "%s", message).With("attempt", x.Attempt)
	e.RetryAfter = time.Duration(min(max(integer(x.Args, "retry_after_s", 0), 0), 3600)) * time.Second
	e.NothingSent = flag(x.Args, "nothing_sent")
	return nil, e
}
