package record

import (
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"
	"regexp"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/pack"
)

// The catalogue and the keys change rarely; their feed rows are JSON and stay forever.
// A published tool is immutable and never leaves its table, so its feed row only refers
// to it.

type publishedRow struct {
	ID      string             `json:"id"`
	Version string             `json:"version"`
	Life    toolkeep.Lifecycle `json:"life"`
}

type lifecycleRow struct {
	ID      string             `json:"id"`
	Version string             `json:"version"`
	Life    toolkeep.Lifecycle `json:"life"`
	By      string             `json:"by,omitempty"`
}

type revokeRow struct {
	At time.Time `json:"at"`
	By string    `json:"by,omitempty"`
}

// keyRow is an API key as it is stored, in its table and in the feed.
type keyRow struct {
	Subject   string    `json:"subject"`
	Name      string    `json:"name,omitempty"`
	Hash      string    `json:"hash"` // hexadecimal
	Roles     []string  `json:"roles,omitempty"`
	Scope     []string  `json:"scope,omitempty"`
	Workspace string    `json:"workspace,omitempty"`
	CreatedAt time.Time `json:"created_at,omitzero"`
	CreatedBy string    `json:"created_by,omitempty"`
	ExpiresAt time.Time `json:"expires_at,omitzero"`
	RevokedAt time.Time `json:"revoked_at,omitzero"`
	Successor string    `json:"successor,omitempty"`

	RequireSignature bool   `json:"require_signature,omitzero"`
	Signing          []byte `json:"signing,omitempty"` // sealed
}

func encodeCatalogue(c toolkeep.Change) (Encoded, error) {
	switch c := c.(type) {
	case toolkeep.PublishVersion:
		t := c.Version.Tool
		if t == nil || t.ID == "" || t.Version == "" || t.Digest == "" || len(t.Raw) == 0 && t.Packed == nil {
			return Encoded{}, errors.New("the tool is incomplete: id, version, digest and manifest are needed")
		}
		data, err := Marshal(publishedRow{ID: t.ID, Version: t.Version, Life: c.Version.Life})
		return Encoded{Change: c, Kind: KindPublish, Tenant: t.Tenant, Ref: t.Ref(), Data: data}, err
	case toolkeep.SetLifecycle:
		data, err := Marshal(lifecycleRow{ID: c.ToolID, Version: c.Version, Life: c.Life, By: c.By})
		return Encoded{Change: c, Kind: KindLifecycle, Tenant: c.Tenant, Ref: c.ToolID + "@" + c.Version, Data: data}, err
	case toolkeep.PutKey:
		if c.Key.Tenant == "" || c.Key.ID == "" {
			return Encoded{}, errors.New("a key is named by tenant and id, one is empty")
		}
		data, err := EncodeKey(c.Key)
		return Encoded{Change: c, Kind: KindKey, Tenant: c.Key.Tenant, Ref: c.Key.ID, Data: data}, err
	case toolkeep.ScopeKey: // the store replaces it by the key
		if c.Tenant == "" || c.ID == "" {
			return Encoded{}, errors.New("a key is named by tenant and id, one is empty")
		}
		return Encoded{Change: c, Kind: KindKey, Tenant: c.Tenant, Ref: c.ID}, nil
	case toolkeep.RevokeKey:
		if c.At.IsZero() {
			return Encoded{}, errors.New("it does not say when")
		}
		data, err := Marshal(revokeRow{At: c.At, By: c.By})
		return Encoded{Change: c, Kind: KindRevoke, Tenant: c.Tenant, Ref: c.ID, Data: data}, err
	}
	return Encoded{}, errors.New("the store does not know this change; changes are passed by value")
}

// EncodeKey returns the data column of an API key.
func EncodeKey(k toolkeep.APIKey) ([]byte, error) {
	return Marshal(keyRow{
		Subject: k.Subject, Name: k.Name, Hash: hex.EncodeToString(k.Hash[:]), Roles: k.Roles, Scope: k.Scope, Workspace: k.Workspace,
		CreatedAt: k.CreatedAt, CreatedBy: k.CreatedBy, ExpiresAt: k.ExpiresAt, RevokedAt: k.RevokedAt, Successor: k.Successor,
		RequireSignature: k.RequireSignature, Signing: k.Signing,
	})
}

// DecodeKey reads what EncodeKey wrote.
func DecodeKey(tenant, id string, data []byte) (toolkeep.APIKey, error) {
	var r keyRow
	if err := Unmarshal(data, &r); err != nil {
		return toolkeep.APIKey{}, fmt.Errorf("key %s: %w", id, err)
	}
	k := toolkeep.APIKey{
		ID: id, Tenant: tenant, Subject: r.Subject, Name: r.Name, Roles: r.Roles, Scope: r.Scope, Workspace: r.Workspace,
		CreatedAt: r.CreatedAt, CreatedBy: r.CreatedBy, ExpiresAt: r.ExpiresAt, RevokedAt: r.RevokedAt, Successor: r.Successor,
		RequireSignature: r.RequireSignature, Signing: r.Signing,
	}
	if n, err := hex.Decode(k.Hash[:], []byte(r.Hash)); err != nil || n != len(k.Hash) {
		return toolkeep.APIKey{}, fmt.Errorf("key %s: %w", id, ErrDamaged)
	}
	return k, nil
}

// Tool is a row of the versions table, with the rows of its parts. Life and Outline are JSON columns: Outline is the
// manifest as pack.Outline leaves it, without defaults.
type Tool struct {
	Tenant, ID, Version, Digest string
	Life, Outline               []byte
	pack.Stored
}

// EncodeVersion returns the row of a published version.
func EncodeVersion(v toolkeep.Version) (Tool, error) {
	t := v.Tool
	life, err := Marshal(v.Life)
	if err != nil {
		return Tool{}, err
	}
	packed, err := pack.Of(t)
	if err != nil {
		return Tool{}, err
	}
	outline, err := EncodeOutline(packed)
	return Tool{Tenant: t.Tenant, ID: t.ID, Version: t.Version, Digest: t.Digest, Life: life, Outline: outline, Stored: packed.Stored()}, err
}

// EncodeOutline returns the outline column of a manifest.
func EncodeOutline(m *pack.Manifest) ([]byte, error) {
	raw, err := m.Raw()
	if err != nil {
		return nil, err
	}
	whole, err := pack.Decode(raw)
	if err != nil {
		return nil, err
	}
	return Marshal(pack.Outline(whole))
}

// DecodeVersion reads what EncodeVersion wrote; part returns the data of a part. The tool is an outline whose manifest
// lacks its defaults.
func DecodeVersion(r Tool, part func(pack.Digest) ([]byte, error)) (toolkeep.Version, error) {
	t := &toolkeep.Tool{Tenant: r.Tenant, ID: r.ID, Version: r.Version, Digest: r.Digest, Manifest: &toolkeep.Manifest{}}
	v := toolkeep.Version{Tool: t}
	packed, err := pack.Read(r.Tenant, r.Text, r.Words, part)
	if err := errors.Join(err, Unmarshal(r.Life, &v.Life), Unmarshal(r.Outline, t.Manifest)); err != nil {
		return v, fmt.Errorf("version %s: %w", t.Ref(), err)
	}
	t.Packed = packed
	t.Manifest.ParametersSchema = nil // null in the column
	fillCause(&v.Life)
	return v, nil
}

// decodeTogether is how many rows are decoded at a time, on all processors.
const decodeTogether = 1024

// Decoder decodes the versions of a whole table into List.
type Decoder struct {
	Part func(tenant string, d pack.Digest) ([]byte, error) // is called by several goroutines
	List []toolkeep.Version
	rows []Tool
	text []byte // lives and outlines of rows
}

// Expect makes room for n versions.
func (d *Decoder) Expect(n int) { d.List = slices.Grow(d.List, n) }

// Add takes a row, and copies its life and outline: both are read once. Flush decodes the last rows.
func (d *Decoder) Add(r Tool) error {
	r.Life, r.Outline = d.copied(r.Life), d.copied(r.Outline)
	if d.rows = append(d.rows, r); len(d.rows) < decodeTogether {
		return nil
	}
	return d.Flush()
}

func (d *Decoder) copied(b []byte) []byte {
	from := len(d.text)
	d.text = append(d.text, b...)
	return d.text[from:]
}

// Flush decodes the rows that have not been decoded yet into List.
func (d *Decoder) Flush() error {
	from, errs := len(d.List), make([]error, len(d.rows))
	d.List = slices.Grow(d.List, len(d.rows))[:from+len(d.rows)]
	var wg sync.WaitGroup
	n := min(runtime.GOMAXPROCS(0), len(d.rows))
	for first := range n {
		wg.Go(func() {
			for i := first; i < len(d.rows); i += n {
				r := d.rows[i]
				d.List[from+i], errs[i] = DecodeVersion(r, func(digest pack.Digest) ([]byte, error) { return d.Part(r.Tenant, digest) })
			}
		})
	}
	wg.Wait()
	clear(d.rows)
	d.rows, d.text = d.rows[:0], d.text[:0]
	return errors.Join(errs...)
}

// oldBlock matches the reasons that MCP servers gave for their blocks before records
// had a cause.
var oldBlock = regexp.MustCompile(`^the MCP server [a-z][a-z0-9-]{0,31} (was removed|does not offer this tool any more)$`)

// fillCause adds causes to a lifecycle from a record without them. Only the reason's
// text distinguishes a server's block from an administrator's, so it must match a
// server's text exactly; holds were always a server's.
func fillCause(life *toolkeep.Lifecycle) {
	if life.State == toolkeep.Blocked && life.Cause == "" {
		life.Cause = toolkeep.CauseAdministrator
		switch m := oldBlock.FindStringSubmatch(life.Reason); {
		case m == nil:
		case m[1] == "was removed":
			life.Cause = toolkeep.CauseServerRemoved
		default:
			life.Cause = toolkeep.CauseDefinitionGone
		}
	}
	if h := life.Held; h != nil && h.Cause == "" {
		h.Cause = toolkeep.CauseDefinitionChanged
		if h.Digest == "" {
			h.Cause = toolkeep.CauseDefinitionGone
		}
	}
}

// SameLife reports whether a stored lifecycle equals the given one.
func SameLife(stored []byte, life toolkeep.Lifecycle) (bool, error) {
	var have toolkeep.Lifecycle
	if err := Unmarshal(stored, &have); err != nil {
		return false, err
	}
	fillCause(&have)
	a, err := Marshal(have)
	if err != nil {
		return false, err
	}
	b, err := Marshal(life)
	return bytes.Equal(a, b), err
}
