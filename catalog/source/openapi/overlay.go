package openapi

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/pb33f/libopenapi"
	"github.com/pb33f/libopenapi/overlay"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/canon"
)

// Overlay is an OpenAPI Overlay (1.0), which changes a document before it is read.
type Overlay struct {
	Name string // for messages
	Text []byte // YAML or JSON
}

// Limits of overlays.
const (
	maxOverlays  = 20
	maxOverlay   = 1 << 20  // bytes of one
	maxOverlaid  = 16 << 20 // bytes of a document that is changed, as JSON
	maxUnfitting = 20       // warnings of one overlay
)

// overlay applies the overlays in order to the document itself, not to the files to which it refers.
func (d *document) overlay() error {
	if len(d.opt.Overlays) > maxOverlays {
		return importError("there are more than %d overlays", maxOverlays)
	}
	for _, o := range d.opt.Overlays {
		if err := d.apply(o); err != nil {
			return err
		}
	}
	return nil
}

func (d *document) apply(o Overlay) (err error) {
	name := toolkeep.ClipBytes(clean(o.Name), 200)
	if len(o.Text) > maxOverlay {
		return importError("the overlay %s is over %d MiB", name, maxOverlay>>20)
	}
	defer func() {
		if p := recover(); p != nil { // in the library
			err = importError("the overlay %s cannot be applied: %s", name, toolkeep.Clip(fmt.Sprint(p), 200))
		}
	}()
	// The limits of our parser hold for overlays too: depth, and aliases that grow.
	changes := &file{loc: o.Name, name: name}
	tree, err := parseTree(o.Text, changes)
	if err != nil {
		return importError("the overlay cannot be read: %s", err.Error())
	}
	plain, err := plainJSON(tree, maxOverlay)
	if err != nil {
		return importError("the overlay %s: %s", name, err.Error())
	}
	over, err := libopenapi.NewOverlayDocument(plain)
	if err != nil {
		return importError("%s is not an OpenAPI Overlay: %s", name, toolkeep.ClipBytes(clean(err.Error()), 300))
	}
	for _, a := range over.Actions {
		if a != nil && a.Copy != "" {
			return importError("the overlay %s copies (Overlay 1.1); update and remove are known", name)
		}
	}
	document, err := plainJSON(d.main.root, maxOverlaid)
	if err != nil {
		return importError("the overlay %s cannot be applied to %s: %s", name, d.main.name, err.Error())
	}
	result, err := overlay.Apply(document, over)
	if err != nil {
		return importError("the overlay %s cannot be applied: %s", name, toolkeep.ClipBytes(clean(err.Error()), 300))
	}
	if len(result.Bytes) > 2*maxOverlaid || d.ctx.Err() != nil {
		return importError("the overlay %s makes more than %d MiB of %s, or takes too long", name, 2*maxOverlaid>>20, d.main.name)
	}
	for i, w := range result.Warnings {
		if i == maxUnfitting {
			d.warn("%s: %d more actions changed nothing", name, len(result.Warnings)-i)
			break
		}
		d.warn("%s: the action at %s changed nothing: %s", name, toolkeep.ClipBytes(clean(w.Target), 200), toolkeep.ClipBytes(clean(w.Message), 200))
	}
	f := d.main
	root, err := parseYAML(result.Bytes, f)
	if err != nil {
		return importError("what the overlay %s makes of %s cannot be read: %s", name, f.name, err.Error())
	}
	f.root, f.anchors, f.ids = root, nil, nil
	markResources(f)
	own := sha256.Sum256(o.Text)
	f.sum = sha256.Sum256(append(f.sum[:], own[:]...))
	return nil
}

// plainJSON writes a tree as JSON, its aliases as often as they are used.
func plainJSON(v any, limit int) ([]byte, error) {
	w := &treeWriter{left: limit}
	if err := w.value(v); err != nil {
		return nil, err
	}
	return w.out.Bytes(), nil
}

type treeWriter struct {
	out  bytes.Buffer
	left int
}

func (w *treeWriter) value(v any) (err error) {
	if w.left -= 2; w.left < w.out.Len() {
		return errors.New("with its aliases it is too large for overlays")
	}
	switch v := v.(type) {
	case *object:
		w.out.WriteByte('{')
		for i, k := range v.keys {
			if i > 0 {
				w.out.WriteByte(',')
			}
			w.out.Write(canon.AppendString(nil, k))
			w.out.WriteByte(':')
			if err := w.value(v.vals[k]); err != nil {
				return err
			}
		}
		w.out.WriteByte('}')
	case []any:
		w.out.WriteByte('[')
		for i, e := range v {
			if i > 0 {
				w.out.WriteByte(',')
			}
			if err := w.value(e); err != nil {
				return err
			}
		}
		w.out.WriteByte(']')
	case json.Number:
		w.out.WriteString(v.String())
	case string, bool, nil:
		w.out.Write(canon.Append(nil, v))
	default:
		return fmt.Errorf("it holds a value of the type %T", v)
	}
	return nil
}
