package builtin

import (
	"context"
	"fmt"
	"strings"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/access"
	"github.com/toolkeep/toolkeep/catalog"
)

// Publish registers the tools std.* for all tenants, as examples. What is there already stays as it is.
func Publish(ctx context.Context, c *catalog.Catalog) error {
	if _, err := c.Publish(ctx, access.System(), Manifests(), catalog.PublishOptions{Shared: true}); err != nil {
		return fmt.Errorf("the builtin tools cannot be published: %w", err)
	}
	return nil
}

// Published reports whether a tool is one of those that Publish registers.
func Published(t *toolkeep.Tool) bool {
	return t.Tenant == "" && t.Manifest.Execution.Kind == "builtin" && strings.HasPrefix(t.ID, "std.")
}
