package mcpserver

import (
	"cmp"
	"context"
	"crypto/sha256"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/mcp"
	"github.com/toolkeep/toolkeep/upstream"
)

// In views that join several servers a resource has the address
//
//	toolkeep+SERVER:URI
//
// such as toolkeep+files:file:///notes/today.md. That is a URI with its own scheme by RFC 3986, so
// clients pass it on unchanged, and removing the prefix restores the original. Templates have the
// same prefix. Prompts are named like tools, SERVER__NAME.

const uriScheme = "toolkeep+"

func prefixURI(server, uri string) string { return uriScheme + server + ":" + uri }

func splitURI(uri string) (server, inner string, ok bool) {
	rest, ok := strings.CutPrefix(uri, uriScheme)
	if !ok {
		return "", "", false
	}
	server, inner, ok = strings.Cut(rest, ":")
	return server, inner, ok && server != "" && inner != ""
}

func (x *exchange) hasUpstreams() bool { return x.s.c.Upstreams != nil }

// item is one prompt, resource or template with its list position.
type item struct {
	key string // for sorting and cursors
	raw []byte
}

// gather asks all servers that the caller may use for their definitions, in parallel. Servers that
// cannot answer are left out.
func (x *exchange) gather(ctx context.Context, of func(server string, d upstream.Definitions) []item) []item {
	if !x.hasUpstreams() {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, upstreamWait)
	defer cancel()
	names := x.s.c.Upstreams.Names(x.p)
	found := make([][]item, len(names))
	slots := make(chan struct{}, 16)
	var all sync.WaitGroup
	for i, name := range names {
		slots <- struct{}{}
		all.Go(func() {
			defer func() { <-slots }()
			d, err := x.s.c.Upstreams.Definitions(ctx, x.p, name)
			if err != nil {
				x.s.failed.Warn("an MCP server is left out of a list", "server", name, "error", err)
				return
			}
			found[i] = of(name, d)
		})
	}
	all.Wait()
	list := slices.Concat(found...)
	slices.SortFunc(list, func(a, b item) int { return strings.Compare(a.key, b.key) })
	return list
}

// mayUse reports whether a server's prompt or resource exists for the caller, under the id it would
// have as a tool of kind mcp. All that rules can read of it follows from the id.
func (x *exchange) mayUse(server, name string) bool {
	id := []byte(server + "." + name)
	for i := len(server) + 1; i < len(id); i++ {
		if c := id[i]; !(c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '-') {
			id[i] = '_'
		}
	}
	return x.sees(&toolkeep.Tool{ID: string(id), Digest: fmt.Sprintf("mcp:%x", sha256.Sum256(id)),
		Manifest: &toolkeep.Manifest{ToolID: string(id), SideEffects: "reads", Risk: "low", Execution: toolkeep.ExecutionSpec{Kind: kindMCP}}})
}

func (x *exchange) listItems(m *mcp.Message, dst []byte, member string, list []item) ([]byte, error) {
	after, err := x.s.cursor(m)
	if err != nil {
		return nil, err
	}
	dst = append(append(append(dst, `{"`...), member...), `":[`...)
	next, shown := "", 0
	for i, it := range list {
		if it.key <= after && after != "" {
			continue
		}
		if shown == x.s.limits.pageSize {
			next = list[i-1].key
			break
		}
		if shown > 0 {
			dst = append(dst, ',')
		}
		shown++
		dst = append(dst, it.raw...)
	}
	return x.endList(append(dst, ']'), next), nil
}

func (x *exchange) listResources(ctx context.Context, m *mcp.Message, dst []byte) ([]byte, error) {
	return x.listItems(m, dst, "resources", x.gather(ctx, func(server string, d upstream.Definitions) []item {
		return x.addressed(server, d.Resources, "uri")
	}))
}

func (x *exchange) listTemplates(ctx context.Context, m *mcp.Message, dst []byte) ([]byte, error) {
	return x.listItems(m, dst, "resourceTemplates", x.gather(ctx, func(server string, d upstream.Definitions) []item {
		return x.addressed(server, d.Templates, "uriTemplate")
	}))
}

// addressed returns the visible definitions addressed by URI, with the prefix.
func (x *exchange) addressed(server string, defs [][]byte, member string) []item {
	var out []item
	for _, raw := range defs {
		uri := mcp.Text(raw, member)
		name := mcp.Text(raw, "name")
		if name == "" {
			name = uri
		}
		if uri == "" || !x.mayUse(server, name) {
			continue
		}
		full := prefixURI(server, uri)
		out = append(out, item{full, mcp.Set(raw, mcp.Quote(full), member)})
	}
	return out
}

func (x *exchange) noResource(uri string) error {
	code := int64(mcp.CodeResourceNotFound)
	if x.modern {
		code = mcp.CodeInvalidParams
	}
	return &mcp.Error{Code: code, Message: "there is no such resource, or you may not see it; resources/list shows those that there are",
		Data: append(append([]byte(`{"uri":`), mcp.Quote(toolkeep.ClipBytes(uri, 500))...), '}')}
}

// resourceOf finds the server of a resource the caller may read.
func (x *exchange) resourceOf(ctx context.Context, uri string) (server, inner string, err error) {
	server, inner, ok := splitURI(uri)
	if !ok || len(uri) > 64<<10 || !x.has(server) {
		return "", "", x.noResource(uri)
	}
	d, err := x.s.c.Upstreams.Definitions(ctx, x.p, server)
	if err != nil {
		return "", "", err
	}
	for _, name := range namesOf(d, inner) {
		if !x.mayUse(server, name) {
			return "", "", x.noResource(uri)
		}
	}
	return server, inner, nil
}

// namesOf returns the names under which a server lists an address, all of which the caller must see:
// that of the resource, else of the template, else of the templates that match it, since the server may
// take any of them. What is listed nowhere has its address as name.
func namesOf(d upstream.Definitions, uri string) (names []string) {
	for member, defs := range map[string][][]byte{"uri": d.Resources, "uriTemplate": d.Templates} {
		for _, raw := range defs {
			if mcp.Text(raw, member) == uri {
				return []string{cmp.Or(mcp.Text(raw, "name"), uri)}
			}
		}
	}
	for _, raw := range d.Templates {
		if template := mcp.Text(raw, "uriTemplate"); matches(template, uri) {
			names = append(names, cmp.Or(mcp.Text(raw, "name"), template))
		}
	}
	if names == nil {
		return []string{uri}
	}
	return names
}

// expression is one of a URI template (RFC 6570). Without an operator it stands for one segment.
var expression = regexp.MustCompile(`\{([+#./;?&=,!@|]?)[^{}]*\}`)

// matches reports whether a template may yield an address. One that cannot be read matches all.
func matches(template, uri string) bool {
	pattern, at := `^`, 0
	for _, found := range expression.FindAllStringSubmatchIndex(template, -1) {
		pattern += regexp.QuoteMeta(template[at:found[0]])
		if at = found[1]; found[2] == found[3] {
			pattern += `[^/]*`
		} else {
			pattern += `.*`
		}
	}
	if strings.ContainsAny(template[at:], "{}") {
		return true
	}
	re, err := regexp.Compile(`(?s)` + pattern + regexp.QuoteMeta(template[at:]) + `$`)
	return err != nil || re.MatchString(uri)
}

func (x *exchange) readResource(ctx context.Context, m *mcp.Message, dst []byte) ([]byte, error) {
	uri, ok := mcp.Unquote(mcp.Get(m.Params, "uri"))
	if !ok {
		return nil, mcp.NewError(mcp.CodeInvalidParams, "resources/read needs params.uri, a string")
	}
	server, inner, err := x.resourceOf(ctx, uri)
	if err != nil {
		return nil, err
	}
	result, err := x.passOn(ctx, server, m, mcp.Set(m.Params, mcp.Quote(inner), "uri"))
	if err != nil {
		return nil, err
	}
	contents := mcp.Get(result, "contents")
	if contents == nil { // the upstream asks questions
		return append(dst, result...), nil
	}
	out := []byte{'['}
	for c := range mcp.Elements(contents) {
		if len(out) > 1 {
			out = append(out, ',')
		}
		out = append(out, prefixMember(server, c, "uri")...)
	}
	return append(dst, mcp.Set(result, append(out, ']'), "contents")...), nil
}

// prefixMember adds the server's prefix to a URI within an object.
func prefixMember(server string, obj []byte, path ...string) []byte {
	uri, ok := mcp.Unquote(mcp.Get(obj, path...))
	if !ok || uri == "" {
		return obj
	}
	return mcp.Set(obj, mcp.Quote(prefixURI(server, uri)), path...)
}

// prefixBlock does the same for a content block that names a resource of its server. Links to the
// web stay as they are, since they do not go through the gateway.
func prefixBlock(server string, block []byte) []byte {
	switch mcp.Text(block, "type") {
	case "resource_link":
		if uri := mcp.Text(block, "uri"); strings.HasPrefix(uri, "https://") || strings.HasPrefix(uri, "http://") {
			return block
		}
		return prefixMember(server, block, "uri")
	case "resource":
		return prefixMember(server, block, "resource", "uri")
	}
	return block
}

func promptName(server, name string) string { return mcp.ToolName(server + "." + name) }

func (x *exchange) listPrompts(ctx context.Context, m *mcp.Message, dst []byte) ([]byte, error) {
	return x.listItems(m, dst, "prompts", x.gather(ctx, func(server string, d upstream.Definitions) []item {
		var out []item
		for _, raw := range d.Prompts {
			name := mcp.Text(raw, "name")
			if name == "" || !x.mayUse(server, name) {
				continue
			}
			full := promptName(server, name)
			out = append(out, item{full, mcp.Set(raw, mcp.Quote(full), "name")})
		}
		return out
	}))
}

// promptOf finds the server of a prompt and the prompt's name there.
func (x *exchange) promptOf(ctx context.Context, full string) (server, name string, err error) {
	server, _, ok := strings.Cut(full, "__")
	if ok && x.has(server) {
		d, err := x.s.c.Upstreams.Definitions(ctx, x.p, server)
		if err != nil {
			return "", "", err
		}
		for _, raw := range d.Prompts {
			if name := mcp.Text(raw, "name"); name != "" && promptName(server, name) == full && x.mayUse(server, name) {
				return server, name, nil
			}
		}
	}
	return "", "", noPrompt()
}

func noPrompt() error {
	return mcp.NewError(mcp.CodeInvalidParams, "there is no such prompt, or you may not see it; prompts/list shows those that there are")
}

func (x *exchange) getPrompt(ctx context.Context, m *mcp.Message, dst []byte) ([]byte, error) {
	full, ok := mcp.Unquote(mcp.Get(m.Params, "name"))
	if !ok {
		return nil, mcp.NewError(mcp.CodeInvalidParams, "prompts/get needs params.name, a string")
	}
	server, name, err := x.promptOf(ctx, full)
	if err != nil {
		return nil, err
	}
	result, err := x.passOn(ctx, server, m, mcp.Set(m.Params, mcp.Quote(name), "name"))
	if err != nil {
		return nil, err
	}
	messages := mcp.Get(result, "messages")
	if messages == nil {
		return append(dst, result...), nil
	}
	out := []byte{'['}
	for msg := range mcp.Elements(messages) {
		if len(out) > 1 {
			out = append(out, ',')
		}
		if content := mcp.Get(msg, "content"); mcp.IsObject(content) {
			msg = mcp.Set(msg, prefixBlock(server, content), "content")
		}
		out = append(out, msg...)
	}
	return append(dst, mcp.Set(result, append(out, ']'), "messages")...), nil
}

// What completion/complete is for, in params.ref.type.
const refPrompt, refResource = "ref/prompt", "ref/resource"

func wrongRef() error {
	return mcp.NewError(mcp.CodeInvalidParams, "params.ref.type must be ref/prompt or ref/resource")
}

// complete serves completion/complete, for the argument of a prompt or a template.
func (x *exchange) complete(ctx context.Context, m *mcp.Message, dst []byte) ([]byte, error) {
	ref := mcp.Get(m.Params, "ref")
	if !mcp.IsObject(ref) || mcp.Text(m.Params, "argument", "name") == "" {
		return nil, mcp.NewError(mcp.CodeInvalidParams, "completion/complete needs params.ref and params.argument.name")
	}
	var server string
	var params []byte
	switch mcp.Text(ref, "type") {
	case refPrompt:
		of, name, err := x.promptOf(ctx, mcp.Text(ref, "name"))
		if err != nil {
			return nil, err
		}
		server, params = of, mcp.Set(m.Params, mcp.Quote(name), "ref", "name")
	case refResource:
		of, inner, err := x.resourceOf(ctx, mcp.Text(ref, "uri"))
		if err != nil {
			return nil, err
		}
		server, params = of, mcp.Set(m.Params, mcp.Quote(inner), "ref", "uri")
	default:
		return nil, wrongRef()
	}
	result, err := x.passOn(ctx, server, m, params)
	if err != nil {
		return nil, err
	}
	return append(dst, result...), nil
}
