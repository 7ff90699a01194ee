package mcptool

import (
	"strconv"
	"strings"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/canon"
)

// Limits of an error's content.
const (
	maxMessage = 2000      // characters
	maxData    = 64 << 10  // bytes of a JSON-RPC error's data
	maxDetails = 256 << 10 // bytes of content and structured content together
	maxURL     = 8 << 10   // bytes
	minText    = 1 << 10   // bytes; no text is cut shorter
)

func resultLimits(bytes int64) canon.Limits {
	return canon.Limits{Bytes: bytes, Depth: maxDepth, Properties: maxElements, Elements: maxElements}
}

// result returns the tree of a CallToolResult, or the error that it reports.
func (c *call) result(raw []byte) (map[string]any, *toolkeep.Error) {
	if int64(len(raw)) > c.limit {
		return nil, toolkeep.NewError(toolkeep.ResultTooLarge, "the result of the MCP server %s has %d bytes, at most %d are accepted; ask for less", c.server, len(raw), c.limit).
			With("server", c.server).With("limit_bytes", c.limit)
	}
	v, repairs, err := canon.ParseLoose(raw, resultLimits(int64(len(raw))+1))
	tree, ok := v.(map[string]any)
	if err != nil || !ok {
		return nil, c.broken("its answer cannot be read").Because(err)
	}
	c.repairs = repairs
	content, isList := tree["content"].([]any)
	if v, has := tree["content"]; has && v != nil && !isList {
		return nil, c.broken("the content of its answer is not a list")
	}
	if content == nil {
		content = []any{}
	}
	tree["content"] = content
	failed := tree["isError"] == true
	delete(tree, "isError")
	delete(tree, "resultType")
	if failed {
		return nil, c.reported(tree, content)
	}
	return tree, nil
}

func (c *call) broken(why string) *toolkeep.Error {
	return toolkeep.NewError(toolkeep.MCPError, "the MCP server %s broke the protocol: %s", c.server, why).With("server", c.server)
}

// reported is the error that a tool itself reports.
func (c *call) reported(tree map[string]any, content []any) *toolkeep.Error {
	message := "the tool reports an error without details"
	for _, block := range content {
		b, _ := block.(map[string]any)
		if text, _ := b["text"].(string); b["type"] == "text" && strings.TrimSpace(text) != "" {
			message = c.x.Cleaned(toolkeep.Clip(strings.TrimSpace(text), maxMessage))
			break
		}
	}
	e := toolkeep.NewError(toolkeep.MCPError, "%s", message).With("server", c.server).With("tool", c.tool)
	kept, left := c.blocks(content, maxDetails)
	e.With("content", kept)
	if v, has := tree["structuredContent"]; has {
		if n := len(canon.Append(nil, v)); n <= left {
			e.With("structured_content", c.x.CleanedTree(v))
		}
	}
	return e
}

// blocks returns as many content blocks as fit into limit bytes, truncating a text if
// needed, and the bytes left.
func (c *call) blocks(content []any, limit int) (kept []any, left int) {
	kept, left = []any{}, limit
	omitted := 0
	for _, block := range content {
		b, _ := block.(map[string]any)
		text, isText := b["text"].(string)
		size := left + 1
		if len(text) <= left { // avoids encoding a 100 MB text just to measure it
			size = len(canon.Append(nil, block))
		}
		switch {
		case size <= left:
			kept = append(kept, c.x.CleanedTree(block))
			left -= size
		case isText && b["type"] == "text" && left >= minText:
			kept = append(kept, map[string]any{"type": "text", "text": c.x.Cleaned(toolkeep.ClipBytes(text, left))})
			left = 0
		default:
			omitted++
		}
	}
	if omitted > 0 {
		kept = append(kept, map[string]any{"type": "text", "text": "(" + strconv.Itoa(omitted) + " parts of the answer are left out because they are too large)"})
	}
	return kept, left
}
