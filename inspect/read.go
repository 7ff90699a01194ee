package inspect

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/big"
	"mime"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	htmlcharset "golang.org/x/net/html/charset"
	"golang.org/x/text/encoding"
	"golang.org/x/text/encoding/charmap"
	"golang.org/x/text/encoding/htmlindex"
	"golang.org/x/text/encoding/unicode"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/canon"
)

// read makes the tree: the executor's own, or the body parsed by its type.
func (i *Inspector) read(r *result, o *toolkeep.Output) error {
	r.sizeHint = 512
	if o.HasValue {
		// The size received approximates the tree's size as JSON.
		r.sizeHint += int(min(max(o.BytesRecv, 0), maxHint))
		return r.takeValue(o.Value)
	}
	if o.Kept != nil {
		r.takeKept(o)
		return nil
	}
	body := o.Body
	if int64(len(body)) > i.hard {
		return i.tooLarge(int64(len(body)))
	}
	media, params := parseType(o.ContentType)
	r.media = media
	r.sizeHint += len(body)
	if len(body) == 0 {
		return nil // null, whatever the type
	}
	kind := kindOf(media)
	switch kind {
	case kindGuess:
		return i.guess(r, body)
	case kindBinary:
		r.takeBinary(body)
		return nil
	}
	text, err := r.decode(body, kind, strings.ToLower(params["charset"]))
	if err != nil {
		return notReadable(media, err)
	}
	header := !strings.EqualFold(params["header"], "absent")
	switch kind {
	case kindJSON:
		return i.parse(r, text)
	case kindXML:
		r.value, err = parseXML(text, maxElements)
	case kindCSV:
		r.value, err = list(parseCSV(text, header, params[escapeName] == escapeApostrophe))
	case kindTSV:
		r.value, err = list(parseTSV(text, header))
	case kindLines:
		r.value, err = list(i.parseLines(r, text))
	case kindSequence:
		r.value, err = list(i.parseSequence(r, text))
	case kindHTML:
		if text, err = r.cleanHTML(text); err == nil {
			r.takeText(text)
		}
	case kindSVG:
		if err = r.judgeSVG(text); err == nil {
			r.takeText(text)
		}
	default:
		r.takeText(text)
	}
	if err != nil {
		return r.unreadable(err)
	}
	if kind < kindText {
		r.value, err = r.tidy(r.value, maxTree)
	}
	return err
}

// list wraps a list in any, so that an error returns no typed nil.
func list(l []any, err error) (any, error) {
	if err != nil {
		return nil, err
	}
	return l, nil
}

// unreadable words a parse error of one kind of body.
func (r *result) unreadable(err error) error {
	var own *toolkeep.Error
	if errors.As(err, &own) {
		return own
	}
	if errors.Is(err, errElements) {
		return toolkeep.NewError(toolkeep.ResultTooLarge, "the result has over %d values; ask the tool for less", maxElements).With("limit", maxElements)
	}
	return notReadable(r.media, err)
}

// kind is how a body is parsed.
type kind int

const (
	kindJSON kind = iota
	kindXML
	kindCSV
	kindTSV
	kindLines
	kindSequence
	kindText // the kinds from here on have no tree
	kindHTML
	kindSVG
	kindBinary
	kindGuess
)

// kindOf returns the kind of a media type.
func kindOf(media string) kind {
	switch media {
	case jsonType, "text/json":
		return kindJSON
	case "":
		return kindGuess
	case "text/html", "application/xhtml+xml":
		return kindHTML
	case "application/xml", "text/xml":
		return kindXML
	case "text/csv", "application/csv":
		return kindCSV
	case "text/tab-separated-values":
		return kindTSV
	case "application/x-ndjson", "application/ndjson", "application/jsonl", "application/x-jsonl", "application/jsonlines",
		"application/x-jsonlines", "application/json-lines":
		return kindLines
	case "application/json-seq":
		return kindSequence
	case "image/svg+xml":
		return kindSVG
	}
	switch {
	case strings.HasSuffix(media, "+json"):
		return kindJSON
	case strings.HasSuffix(media, "+xml"):
		return kindXML
	case isText(media):
		return kindText
	}
	return kindBinary
}

func (i *Inspector) parse(r *result, text []byte) error {
	v, repairs, err := canon.ParseLoose(bytes.TrimPrefix(text, utf8BOM), i.jsonLimits())
	if err != nil {
		return notReadable(r.media, err)
	}
	r.value = v
	r.repaired(repairs)
	return nil
}

func (i *Inspector) jsonLimits() canon.Limits {
	return canon.Limits{Bytes: i.hard, Depth: maxDepth, Properties: maxElements, Elements: maxElements}
}

// repaired warns, once, of what had to be changed: the call was made and may have written, so its result is given.
func (r *result) repaired(c canon.Repairs) {
	for _, w := range c.Warnings() {
		if !slices.ContainsFunc(r.out.Warnings, func(have toolkeep.Warning) bool { return have.Message == w.Message }) {
			r.out.Warnings = append(r.out.Warnings, w)
		}
	}
}

var utf8BOM = []byte("\ufeff")

// guess handles a body without a declared type: JSON if it parses, text if it is UTF-8 without NUL, else binary.
func (i *Inspector) guess(r *result, body []byte) error {
	if v, err := canon.Parse(bytes.TrimPrefix(body, utf8BOM), i.jsonLimits()); err == nil {
		r.value = v
		return nil
	}
	if isGoodText(string(body)) {
		r.media = "text/plain"
		r.takeText(body)
		return nil
	}
	r.takeBinary(body)
	return nil
}

// notReadable words the parser's error for a result. It quotes nothing of the body.
func notReadable(media string, err error) error {
	e := toolkeep.NewError(toolkeep.InvalidResponse, "the tool declared %s and sent something else", cutText(media, 100)).
		With("content_type", cutText(media, 100)).Because(err)
	var cause *toolkeep.Error
	if errors.As(err, &cause) {
		large := cause.Code == toolkeep.RequestTooLarge
		if large && !errors.Is(err, canon.ErrNumber) { // the bytes were already checked
			return toolkeep.NewError(toolkeep.ResultTooLarge, "the result has over %d values; ask the tool for less", maxElements).
				With("limit", maxElements).Because(err)
		}
		if large {
			e.Message = "the tool sent JSON with a number that is too long to be read exactly"
		} else {
			e.Message += ": " + cause.Message
		}
		e.With("pointer", cause.Details["pointer"]).With("offset", cause.Details["offset"])
	} else {
		e.Message += ": " + err.Error()
	}
	return e
}

func (r *result) takeText(text []byte) {
	r.value, _ = r.goodText(string(text))
	r.form = formText
	r.out.ContentType = r.media + "; charset=utf-8"
}

// takeKept describes a body whose whole is in the blob store, and takes the beginning of a text.
func (r *result) takeKept(o *toolkeep.Output) {
	r.media, _ = parseType(o.ContentType)
	if kindOf(r.media) == kindText {
		head := []byte(o.Kept.Head)
		if int64(len(head)) < o.Kept.Blob.Bytes {
			head = head[:len(head)-begun(head)]
		}
		r.takeText(head)
		return
	}
	r.form, r.out.ContentType = formBinary, r.media
	r.value = map[string]any{"content_type": r.media, "bytes": json.Number(strconv.FormatInt(o.Kept.Blob.Bytes, 10))}
}

// takeBinary cleans the raw bytes, because escaped secrets would not be found in base64.
func (r *result) takeBinary(body []byte) {
	var told []toolkeep.Warning
	r.media, told = Sniff(r.media, body)
	r.out.Warnings = append(r.out.Warnings, told...)
	if r.clean != nil {
		if text := string(body); r.clean.Clean(text) != text {
			body = []byte(r.clean.Clean(text))
		}
	}
	r.form, r.raw = formBinary, body
	object := map[string]any{"content_type": r.media, "bytes": json.Number(strconv.Itoa(len(body)))}
	r.value, r.out.ContentType = object, r.media
	if len(body) > maxInline && !r.reads() {
		r.sizeHint = 512
		return
	}
	r.base64 = base64.StdEncoding.EncodeToString(body)
	object["base64"] = r.base64
	r.sizeHint += len(body) / 2
}

const unknownType = "application/octet-stream"

// Sniff names the type of bytes without a declared one by their beginning. A picture, sound or film whose bytes are
// something else loses its type, with a warning: a browser that trusts it could run what it is.
func Sniff(media string, head []byte) (as string, warnings []toolkeep.Warning) {
	seen, _, _ := strings.Cut(http.DetectContentType(head), ";")
	family, _, _ := strings.Cut(media, "/")
	switch {
	case media == "" || media == unknownType:
		if strings.HasPrefix(seen, "text/") {
			seen = unknownType // nothing says that it is meant to be read
		}
		return seen, nil
	case family == "image" && !strings.HasPrefix(seen, "image/") && seen != unknownType,
		(family == "audio" || family == "video") && strings.HasPrefix(seen, "text/"):
		return unknownType, []toolkeep.Warning{{Code: toolkeep.InvalidResponse,
			Message: fmt.Sprintf("the tool declared %s, and the bytes are %s; they are given as %s", cutText(media, 100), seen, unknownType)}}
	}
	return media, nil
}

// reads reports whether the manifest inspects the result.
func (r *result) reads() bool {
	return len(r.tool.ResultSchema) > 0 || r.tool.Result != nil && (r.tool.Result.Transform != "" || len(r.tool.Result.SensitiveFields) > 0 || len(r.tool.Result.Sanitize) > 0)
}

// ownBase64 is the base64 of a binary, which stands in the tree until attach, if nothing was rewritten: no text of the tool's.
func (r *result) ownBase64() string {
	if r.form != formBinary || r.reshaped {
		return ""
	}
	return r.base64
}

// attach separates a binary: its bytes go into the blob store, and the result describes them. A short one is in the
// result as well.
func (r *result) attach() {
	object, ok := r.value.(map[string]any)
	if r.form != formBinary || r.reshaped || !ok {
		return
	}
	text, inline := object["base64"]
	if inline && text != any(r.base64) {
		return // something was removed from it
	}
	r.out.Attached, r.out.Whole = true, r.raw
	if inline && len(r.raw) > maxInline {
		object = maps.Clone(object)
		delete(object, "base64")
		r.value, r.sizeHint = object, 512
	}
}

// goodText replaces what JSON or its readers cannot hold, with a warning.
func (r *result) goodText(s string) (any, bool) {
	if isGoodText(s) {
		return s, false
	}
	r.repaired(canon.Repairs{Text: true})
	return replaced(s), true
}

// decode converts text to UTF-8: by its type's charset, a byte order mark, or the declaration at the start of XML
// and HTML; otherwise it is taken as UTF-8.
func (r *result) decode(body []byte, kind kind, charset string) ([]byte, error) {
	if charset == "" {
		switch {
		case bytes.HasPrefix(body, []byte("\xfe\xff")), bytes.HasPrefix(body, []byte("\xff\xfe")):
			charset = "utf-16"
		case kind == kindXML:
			charset = declaredEncoding(body)
		case kind == kindHTML && !utf8.Valid(body):
			_, charset, _ = htmlcharset.DetermineEncoding(body, "")
		}
	}
	var e encoding.Encoding
	switch charset {
	case "", "utf-8", "utf8", "us-ascii", "ascii":
		return body, nil
	case "iso-8859-1", "latin1", "iso8859-1", "latin-1":
		e = charmap.ISO8859_1
	case "iso-8859-15", "latin9":
		e = charmap.ISO8859_15
	case "windows-1252", "cp1252":
		e = charmap.Windows1252
	case "utf-16", "utf-16be":
		e = unicode.UTF16(unicode.BigEndian, unicode.UseBOM)
	case "utf-16le":
		e = unicode.UTF16(unicode.LittleEndian, unicode.UseBOM)
	default:
		var err error
		if e, err = htmlindex.Get(charset); err != nil {
			if !utf8.Valid(body) {
				r.warn(toolkeep.InvalidResponse, "the charset %q is not known; the result was read as UTF-8", cutText(charset, 40))
			}
			return body, nil
		}
	}
	return e.NewDecoder().Bytes(body)
}

// declaredEncoding returns the encoding in an XML declaration, in lower case.
func declaredEncoding(body []byte) string {
	rest, ok := bytes.CutPrefix(body, []byte("<?xml"))
	if !ok {
		return ""
	}
	rest, _, ok = bytes.Cut(rest[:min(len(rest), 200)], []byte("?>"))
	if !ok {
		return ""
	}
	_, rest, ok = bytes.Cut(rest, []byte("encoding"))
	rest = bytes.TrimLeft(rest, " \t\r\n=")
	if !ok || len(rest) == 0 || rest[0] != '"' && rest[0] != '\'' {
		return ""
	}
	name, _, _ := bytes.Cut(rest[1:], rest[:1])
	return strings.ToLower(string(name))
}

// parseType parses a Content-Type header into the type, in lower case, and its parameters. The upstream's text is
// shown and stored, so an invalid type, or one longer than RFC 6838 allows, counts as none.
func parseType(header string) (media string, params map[string]string) {
	media, params, err := mime.ParseMediaType(header)
	if err != nil && !errors.Is(err, mime.ErrInvalidMediaParameter) {
		return "", nil
	}
	if kind, sub, _ := strings.Cut(media, "/"); kind == "" || sub == "" || len(media) > 255 {
		return "", nil
	}
	return media, params
}

// isText recognises text types whose media type does not begin with text/.
func isText(media string) bool {
	if strings.HasPrefix(media, "text/") || strings.HasSuffix(media, "+yaml") {
		return true
	}
	switch media {
	case "application/yaml", "application/x-yaml", "application/javascript",
		"application/x-www-form-urlencoded", "application/graphql", "application/sql", "application/toml":
		return true
	}
	return false
}

// takeValue checks an executor's tree and normalises Go's numbers. The executor's tree may be shared and is not
// modified.
func (r *result) takeValue(v any) error {
	v, err := r.tidy(v, maxDepth)
	if err != nil {
		return toolkeep.NewError(toolkeep.InvalidResponse, "the tool's value cannot be written as JSON: %s", err)
	}
	r.value = v
	return nil
}

func (r *result) tidy(v any, depth int) (any, error) {
	untidy, err := survey(v, depth)
	if err != nil || !untidy {
		return v, err
	}
	v, _ = rewrite(v, func(v any) (any, bool) {
		switch t := v.(type) {
		case string:
			return r.goodText(t)
		case int, int32, int64, uint32, uint64, float64, *big.Int:
			return json.Number(canon.Append(nil, v)), true
		}
		return v, false
	})
	return v, nil
}

// survey returns why v is not JSON, and whether it needs normalising; settle finds control characters. For a normal tree it costs one walk and no
// memory.
func survey(v any, depth int) (untidy bool, err error) {
	switch t := v.(type) {
	case nil, bool:
		return false, nil
	case string:
		return !utf8.ValidString(t), nil
	case json.Number:
		if !canon.IsNumber(string(t)) || !canon.Bounded(t) {
			return false, fmt.Errorf("a number has no form that JSON allows")
		}
		return false, nil
	case map[string]any:
		if depth <= 0 {
			return false, fmt.Errorf("arrays and objects are nested over %d deep", maxDepth)
		}
		for k, e := range t {
			bad, err := survey(e, depth-1)
			if err != nil {
				return false, err
			}
			untidy = untidy || bad || !utf8.ValidString(k)
		}
		return untidy, nil
	case []any:
		if depth <= 0 {
			return false, fmt.Errorf("arrays and objects are nested over %d deep", maxDepth)
		}
		for _, e := range t {
			bad, err := survey(e, depth-1)
			if err != nil {
				return false, err
			}
			untidy = untidy || bad
		}
		return untidy, nil
	}
	return true, canon.Check(v, 0)
}

func cutText(s string, max int) string {
	return toolkeep.Clip(strings.ToValidUTF8(s, "\ufffd"), max)
}
