package secrets

import (
	"cmp"
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/access"
	"github.com/toolkeep/toolkeep/audit"
	"github.com/toolkeep/toolkeep/audit/archive"
	"github.com/toolkeep/toolkeep/datadir"
	"github.com/toolkeep/toolkeep/secret"
	"github.com/toolkeep/toolkeep/secret/vault"
	"github.com/toolkeep/toolkeep/upstream"
)

// Sealer seals with Vault's transit engine where that is configured, else with the keys
// of this server. It opens what either sealed.
type Sealer struct {
	keys    *secret.Sealer
	transit *vault.Transit // nil without one
}

// byTransit is the first byte of what Vault's transit engine sealed.
const byTransit = 2

// Keys are the keys of this server.
func (s *Sealer) Keys() *secret.Sealer { return s.keys }

// IDs are those of the keys that open, the one that seals first. They reveal nothing of
// the keys.
func (s *Sealer) IDs() []string {
	ids := s.keys.IDs()
	if s.transit != nil {
		ids = append([]string{"transit/" + s.transit.Key()}, ids...)
	}
	return ids
}

// OpensStore is an error if the keys do not open the store's check. A Vault that does not
// answer is no error.
func (s *Sealer) OpensStore(ctx context.Context, store secret.Documents) error {
	check, err := readCheck(ctx, store)
	if err != nil || check.Body == nil {
		return err
	}
	return (&opening{Sealer: s}).unlessAway(secret.OpenCheck(s, check.Body))
}

// Seal implements secret.Sealing.
func (s *Sealer) Seal(plain, context []byte) ([]byte, error) {
	if s.transit != nil {
		return s.transit.Seal(plain, context)
	}
	return s.keys.Seal(plain, context)
}

// Open implements secret.Sealing.
func (s *Sealer) Open(sealed, context []byte) ([]byte, error) {
	if s.ofTransit(sealed) {
		return s.transit.Open(sealed, context)
	}
	return s.keys.Open(sealed, context)
}

// Opens implements secret.Opener. Vault is not asked.
func (s *Sealer) Opens(sealed []byte) bool { return s.ofTransit(sealed) || s.keys.Opens(sealed) }

// Stale tells whether sealing again would use another key or engine.
func (s *Sealer) Stale(sealed []byte) bool {
	if s.transit != nil {
		return !s.ofTransit(sealed)
	}
	return s.keys.Stale(sealed)
}

func (s *Sealer) ofTransit(sealed []byte) bool {
	return s.transit != nil && len(sealed) > 0 && sealed[0] == byTransit
}

// SealConfig says with what a server seals.
type SealConfig struct {
	Data    string         // the data directory
	KeyFile string         // default seal.key in Data
	Keys    string         // keys as text (TOOLKEEP_SEAL_KEY); KeyFile is not read then
	Transit *vault.Transit // seals instead of the keys; nil without one

	Store secret.Documents
	// Queued counts the waiting calls, whose arguments are sealed.
	Queued func(context.Context) (map[toolkeep.Priority]int, error)
	Clock  func() time.Time // default time.Now
	Log    *slog.Logger
}

// KeyPath is the file of the keys.
func (c *SealConfig) KeyPath() string {
	return cmp.Or(c.KeyFile, filepath.Join(c.Data, datadir.SealKey))
}

// lost is the file by which an operator gives up what was sealed with a lost key. The start
// that does so removes it.
func (c *SealConfig) lost() string { return filepath.Join(c.Data, datadir.SealLost) }

// opening is a Sealer while OpenSealer makes it.
type opening struct {
	SealConfig
	*Sealer
}

// OpenSealer makes the Sealer.
//
// E3403 the keys cannot be read, or are not those with which the store was sealed;
// other errors are the store's. A Vault that does not answer is no error.
func OpenSealer(ctx context.Context, c SealConfig) (*Sealer, error) {
	if c.Clock == nil {
		c.Clock = time.Now
	}
	o := &opening{c, &Sealer{transit: c.Transit}}
	_, err := os.Stat(c.lost())
	giveUp := err == nil
	check, err := readCheck(ctx, c.Store)
	if err != nil {
		return nil, err
	}
	made, err := o.readKeys()
	if err != nil {
		return nil, err
	}
	fault, err := o.fault(ctx, check, made)
	if err != nil {
		return nil, err
	}
	if fault != nil {
		if _, err := os.Stat(c.KeyPath()); made && err == nil {
			return OpenSealer(ctx, c) // another node has made the file meanwhile, and sealed with it
		}
		if !giveUp {
			return nil, o.refuse(fault, made)
		}
		c.Log.Warn("the sealing key is lost; everything that it sealed is discarded", "file", c.lost(), "error", fault)
		check.Body = nil
	}
	if made {
		if o.keys, err = secret.OpenSealer(c.KeyPath()); err != nil {
			return nil, err
		}
	}
	if check.Body == nil {
		if err := o.putCheck(ctx, check.Revision); err != nil {
			return nil, err
		}
	}
	if giveUp {
		if err := o.giveUpKeys(ctx); err != nil {
			return nil, err
		}
		return o.Sealer, os.Remove(c.lost())
	}
	return o.Sealer, nil
}

// giveUpKeys gives up the keys of persons' records and of the archive that cannot be opened, so that others are made in their place, also
// where the keys open the check. While a key is not given up nothing replaces it: another node may have its sealing key.
func (o *opening) giveUpKeys(ctx context.Context) error {
	for _, kind := range []string{audit.PersonKind, audit.PersonDigestKind, archive.KeyKind} {
		give := audit.GiveUpPerson
		if kind == archive.KeyKind {
			give = archive.GiveUp
		}
		items, _, err := o.Store.Documents(ctx, kind)
		if err != nil {
			return err
		}
		given := 0
		for _, it := range items {
			body, done, err := give(o.Sealer, &it)
			if err != nil {
				o.Log.Warn("Vault does not answer, so a key of the audit's records stays; make the file again when it does", "file", o.lost(), "kind", kind, "tenant", it.Tenant, "error", err)
			}
			if !done {
				continue
			}
			it.Body, it.UpdatedBy, it.UpdatedAt = body, access.System().Subject, time.Time{}
			err = o.Store.Apply(ctx, toolkeep.PutDocument{Document: it, Expect: it.Revision, OmitBody: true})
			if errors.Is(err, toolkeep.ErrStale) { // another node gave it up, or it was destroyed
				continue
			}
			if err != nil {
				return err
			}
			given++
		}
		if given > 0 {
			o.Log.Warn("keys of the audit's records were given up; what they sealed stays unreadable", "kind", kind, "keys", given)
		}
	}
	return nil
}

// CheckSeal tells whether a server with these settings could open a store whose check
// (kind secret.CheckKind) has this body. known is false where only Vault could tell.
// It makes no key file and reads no store. E3403, E3999.
func CheckSeal(c SealConfig, body []byte) (known bool, err error) {
	sealed, err := secret.Checked(body)
	if err != nil || sealed[0] == byTransit {
		return err != nil, err
	}
	o := &opening{c, &Sealer{}}
	made, err := o.readKeys()
	if err != nil {
		return true, err
	}
	if fault := secret.OpenCheck(o.Sealer, body); fault != nil {
		return true, o.refuse(fault, made)
	}
	return true, nil
}

// KeyIDs are the IDs of the Sealer that OpenSealer would make, as far as there is a key. It
// makes none and asks no Vault. E3403.
func KeyIDs(c SealConfig) ([]string, error) {
	o := &opening{c, &Sealer{}}
	if made, err := o.readKeys(); made || err != nil {
		return nil, err
	}
	return o.IDs(), nil
}

// readCheck reads the document that tells with which keys the store is sealed; it has
// no body where there is none.
func readCheck(ctx context.Context, store secret.Documents) (toolkeep.Document, error) {
	it, err := store.Document(ctx, secret.CheckKind, "", secret.CheckID)
	if errors.Is(err, toolkeep.ErrNotFound) {
		return toolkeep.Document{}, nil
	}
	return it, err
}

// readKeys reads the keys. Where there is no file yet, made is true and the key is one
// that only this process has.
func (o *opening) readKeys() (made bool, err error) {
	if o.SealConfig.Keys != "" {
		o.keys, err = secret.ParseSealer(o.SealConfig.Keys)
		return false, err
	}
	if _, err := os.Stat(o.KeyPath()); errors.Is(err, fs.ErrNotExist) {
		o.keys, err = secret.NewSealer()
		return true, err
	}
	o.keys, err = secret.OpenSealer(o.KeyPath())
	return false, err
}

// fault says why the present keys do not open what the store holds. It is nil where
// they do, where the store holds nothing sealed, and where Vault does not answer and so
// nothing is known. err is the store's.
func (o *opening) fault(ctx context.Context, check toolkeep.Document, made bool) (fault, err error) {
	if check.Body != nil {
		return o.unlessAway(secret.OpenCheck(o.Sealer, check.Body)), nil
	}
	if made {
		depth, err := o.Queued(ctx)
		if err != nil {
			return nil, err
		}
		for _, calls := range depth {
			if calls > 0 {
				return errors.New("calls wait whose arguments are sealed"), nil
			}
		}
	}
	return o.oldFault(ctx)
}

// triedOfKind is how many documents of a kind are tried in a store without the check.
const triedOfKind = 20

// oldFault tries some documents that a version without the check has sealed. It is a
// fault that none of them opens.
func (o *opening) oldFault(ctx context.Context) (fault, err error) {
	for _, k := range sealedKinds(o.Sealer, o.Clock) {
		items, _, err := o.Store.Documents(ctx, k.kind)
		if err != nil {
			return nil, err
		}
		for _, it := range items[:min(len(items), triedOfKind)] {
			_, done, err := k.reseal(it)
			if done || err == nil && k.kind != upstream.DocumentKind { // most servers hold nothing sealed
				return nil, nil
			}
			var e *toolkeep.Error // what cannot be read for another reason says nothing of keys
			if errors.As(err, &e) && (e.Code == toolkeep.InternalError || e.Code == toolkeep.SecretAccessDenied) {
				fault = err
			}
		}
	}
	return fault, nil
}

// unlessAway drops the error of a Vault that does not answer: the node starts and is
// degraded.
func (o *opening) unlessAway(err error) error {
	if err != nil && o.transit != nil && toolkeep.IsCode(err, toolkeep.SecretRetrievalFailed) {
		o.Log.Warn("Vault does not answer; whether it can open the sealed data in the store is unknown", "error", err)
		return nil
	}
	return err
}

func (o *opening) refuse(fault error, made bool) error {
	where, has := "the key file "+o.KeyPath(), "does not have the key"
	switch {
	case o.SealConfig.Keys != "":
		where = "the variable TOOLKEEP_SEAL_KEY"
	case made:
		has = "is not there"
	}
	return toolkeep.NewError(toolkeep.SecretRetrievalFailed,
		"the store holds what was sealed with another key, and %s %s: put the key back that was used before (%s from a backup or its volume, TOOLKEEP_SEAL_KEY, or Vault's transit key), or, if it is lost, give up all that is sealed (secrets, logins, contexts, waiting calls) by making the empty file %s, and start again",
		where, has, filepath.Base(o.KeyPath()), o.lost()).Because(fault)
}

// putCheck seals the check with the present keys. Of nodes that start at once the first
// makes it, and the others must be able to open it.
func (o *opening) putCheck(ctx context.Context, revision int64) error {
	it, err := secret.NewCheck(o.Sealer)
	if err != nil { // only Vault fails; a later start makes it
		o.Log.Warn("Vault does not answer; nothing can be sealed now", "error", err)
		return nil
	}
	it.UpdatedBy = access.System().Subject
	err = o.Store.Apply(ctx, toolkeep.PutDocument{Document: it, Expect: revision})
	if !errors.Is(err, toolkeep.ErrStale) {
		return err
	}
	if it, err = readCheck(ctx, o.Store); err != nil {
		return err
	}
	fault, err := o.fault(ctx, it, false)
	if fault != nil {
		return o.refuse(fault, false)
	}
	return err
}
