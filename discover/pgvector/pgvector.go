// Package pgvector stores the vectors of tools in PostgreSQL with the extension pgvector, which
// also compares them. Nodes that share the database share the vectors: a text is embedded by one
// node only.
//
// Each model has its own table, toolkeep_vectors_N, where N is its number in
// toolkeep_vector_spaces: a vector column has fixed dimensions, and no comparison reads another
// model's vectors. The tables are created at first use. Comparison is exact, a scan of the model's
// table.
package pgvector

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/discover"
)

// Config of a Backend. Only DSN is required.
type Config struct {
	// DSN is a connection string, as keywords or as a URL. A search_path in it selects the schema
	// of the tables, which must exist.
	DSN string
	// MaxConns bounds the connections; default 8.
	MaxConns int
	// Name is this process's application name in PostgreSQL; default "toolkeep".
	Name string
	// Pooled: a pooler such as PgBouncer stands before the database, which keeps no named
	// statements.
	Pooled bool
	// Sweeps tells whether this process removes vectors that no node uses; default it does.
	Sweeps func() bool
	// Clock dates the use of vectors; default time.Now.
	Clock func() time.Time
	Log   *slog.Logger // for dropped vectors; nil: no logging
}

const (
	// atOnce is how many queries share one scan.
	atOnce = 16
	// unused is how long a vector is kept that no node uses.
	unused = 7 * 24 * time.Hour
	// digests is the maximum number of digests per statement.
	digests = 5000
	// lock serialises the creation of the tables.
	lock = 0x746b7665 // "tkve"
)

// Backend stores vectors in a PostgreSQL database.
type Backend struct {
	pool   *pgxpool.Pool
	sweeps func() bool
	clock  func() time.Time
	log    *slog.Logger
}

// Validate returns what New would refuse of the settings.
func (c Config) Validate() error {
	_, err := c.parse()
	return err
}

func (c Config) parse() (*pgxpool.Config, error) {
	if c.DSN == "" {
		return nil, toolkeep.NewError(toolkeep.InvalidManifest, "pgvector needs the address of a PostgreSQL: set store.dsn, or search.vectors_dsn where the vectors are kept elsewhere")
	}
	pc, err := pgxpool.ParseConfig(c.DSN)
	if err != nil {
		// The error contains the address, and pgx hides only what it recognises as a password.
		return nil, toolkeep.NewError(toolkeep.InvalidManifest, "the address of the PostgreSQL for vectors cannot be read; it is postgres://user@host/database or host=... dbname=...")
	}
	return pc, nil
}

// New checks the settings and does not connect. E3008 describes a fault.
func New(c Config) (*Backend, error) {
	pc, err := c.parse()
	if err != nil {
		return nil, err
	}
	pc.MaxConns = int32(cmp.Or(c.MaxConns, 8))
	pc.ConnConfig.ConnectTimeout = cmp.Or(pc.ConnConfig.ConnectTimeout, 5*time.Second)
	pc.ConnConfig.RuntimeParams["application_name"] = cmp.Or(c.Name, "toolkeep")
	if c.Pooled {
		pc.ConnConfig.DefaultQueryExecMode = pgx.QueryExecModeCacheDescribe
	}
	pool, err := pgxpool.NewWithConfig(context.Background(), pc)
	if err != nil {
		return nil, toolkeep.NewError(toolkeep.InvalidManifest, "the settings of the PostgreSQL for vectors are refused").Because(err)
	}
	b := &Backend{pool: pool, clock: c.Clock, log: c.Log, sweeps: c.Sweeps}
	if b.clock == nil {
		b.clock = time.Now
	}
	if b.sweeps == nil {
		b.sweeps = func() bool { return true }
	}
	if b.log == nil {
		b.log = slog.New(slog.DiscardHandler)
	}
	return b, nil
}

// Close ends all connections.
func (b *Backend) Close() error {
	b.pool.Close()
	return nil
}

// Spaces returns the models with stored vectors. Before first use there are none.
func (b *Backend) Spaces(ctx context.Context) ([]discover.Space, error) {
	var out []discover.Space
	err := b.try(ctx, func() error {
		out = nil
		var there bool
		if err := b.pool.QueryRow(ctx, `SELECT to_regclass('toolkeep_vector_spaces') IS NOT NULL`).Scan(&there); err != nil || !there {
			return err
		}
		rows, err := b.pool.Query(ctx, `SELECT id, model, dimensions FROM toolkeep_vector_spaces ORDER BY id`)
		if err != nil {
			return err
		}
		var tables []string
		var id int64
		var s discover.Space
		if _, err = pgx.ForEachRow(rows, []any{&id, &s.Model, &s.Dimensions}, func() error {
			out, tables = append(out, s), append(tables, table(id))
			return nil
		}); err != nil {
			return err
		}
		kept := out[:0]
		for i, t := range tables {
			s := out[i]
			if err := b.pool.QueryRow(ctx, `SELECT count(*) FROM `+t).Scan(&s.Vectors); gone(err) {
				continue // dropped by another node
			} else if err != nil {
				return err
			}
			kept = append(kept, s)
		}
		out = kept
		return nil
	})
	return out, err
}

func table(id int64) string { return "toolkeep_vectors_" + strconv.FormatInt(id, 10) }

// Open creates the model's table if it is absent.
func (b *Backend) Open(ctx context.Context, model string, dimensions int) (discover.Vectors, error) {
	if dimensions < 1 || dimensions > 16_000 {
		return nil, toolkeep.NewError(toolkeep.IndexUnavailable, "vectors of %s have %d numbers; pgvector keeps 1 to 16000", model, dimensions)
	}
	v := &vectors{b: b, model: model, dimensions: dimensions, places: map[discover.Digest]int64{}}
	err := b.try(ctx, func() error { return v.migrate(ctx) })
	if err != nil {
		return nil, err
	}
	return v, nil
}

// try retries once if the connection was lost, since the server may have ended a pooled one. All
// operations here are idempotent.
func (b *Backend) try(ctx context.Context, do func() error) error {
	err := do()
	if lost(err) && ctx.Err() == nil {
		b.pool.Reset()
		err = do()
	}
	return explain(err)
}

// lost reports whether the connection failed.
func lost(err error) bool {
	var known *toolkeep.Error
	var refused *pgconn.PgError
	switch {
	case err == nil, errors.As(err, &known), errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return false
	case errors.As(err, &refused):
		return refused.Code[:2] == "57" // the server is shutting down or starting
	}
	return true
}

// explain moves addresses, which appear in connection errors, to the cause.
func explain(err error) error {
	var known *toolkeep.Error
	var refused *pgconn.PgError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &known):
		return known
	case errors.Is(err, context.DeadlineExceeded):
		return toolkeep.NewError(toolkeep.IndexUnavailable, "the PostgreSQL that keeps the vectors did not answer in time").Because(err)
	case errors.As(err, &refused) && refused.Code == "42P01":
		return toolkeep.NewError(toolkeep.IndexUnavailable, "the tables of the vectors are gone; a restart creates them").Because(err)
	case errors.As(err, &refused):
		return toolkeep.NewError(toolkeep.IndexUnavailable, "the PostgreSQL that keeps the vectors refused: %s (%s)", refused.Message, refused.Code).Because(err)
	}
	return toolkeep.NewError(toolkeep.IndexUnavailable, "the PostgreSQL that keeps the vectors cannot be reached").Because(err)
}

// vectors are the vectors of one model.
type vectors struct {
	b          *Backend
	model      string
	dimensions int
	table      string
	vector     string // the type, with its schema
	product    string // the operator of the negative scalar product, with its schema

	mu     sync.RWMutex
	places map[discover.Digest]int64 // the rows known to this process
	closed bool
}

// migrate creates missing tables, and finds the extension's schema.
func (v *vectors) migrate(ctx context.Context) error {
	return pgx.BeginFunc(ctx, v.b.pool, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, `SELECT pg_advisory_xact_lock($1)`, lock); err != nil {
			return err
		}
		schema, err := extension(ctx, tx)
		if err != nil {
			return err
		}
		v.vector, v.product = schema+".vector", "OPERATOR("+schema+".<#>)"
		var there bool
		if err := tx.QueryRow(ctx, `SELECT to_regclass('toolkeep_vector_spaces') IS NOT NULL`).Scan(&there); err != nil {
			return err
		}
		if !there {
			if _, err := tx.Exec(ctx, `CREATE TABLE toolkeep_vector_spaces (
				id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, model text NOT NULL, dimensions int NOT NULL, UNIQUE (model, dimensions))`); err != nil {
				return err
			}
		}
		var id int64
		err = tx.QueryRow(ctx, `SELECT id FROM toolkeep_vector_spaces WHERE model = $1 AND dimensions = $2`, v.model, v.dimensions).Scan(&id)
		if errors.Is(err, pgx.ErrNoRows) {
			err = tx.QueryRow(ctx, `INSERT INTO toolkeep_vector_spaces (model, dimensions) VALUES ($1, $2) RETURNING id`, v.model, v.dimensions).Scan(&id)
		}
		if err != nil {
			return err
		}
		v.table = table(id)
		if err := tx.QueryRow(ctx, `SELECT to_regclass($1) IS NOT NULL`, v.table).Scan(&there); err != nil {
			return err
		}
		if there {
			return v.mark(ctx, tx)
		}
		// Storage "plain", where it fits, saves a scan the lookup of each vector in another table.
		_, err = tx.Exec(ctx, fmt.Sprintf(`CREATE TABLE %s (
			place bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, digest bytea NOT NULL UNIQUE CHECK (length(digest) = 32),
			embedding %s(%d) NOT NULL, used date NOT NULL)`, v.table, v.vector, v.dimensions))
		if err == nil && v.dimensions <= 1900 {
			_, err = tx.Exec(ctx, fmt.Sprintf(`ALTER TABLE %s ALTER COLUMN embedding SET STORAGE PLAIN`, v.table))
		}
		return err
	})
}

// extension returns pgvector's schema, and creates the extension in the database if it is only
// installed.
func extension(ctx context.Context, tx pgx.Tx) (string, error) {
	const where = `SELECT quote_ident(n.nspname) FROM pg_extension e JOIN pg_namespace n ON n.oid = e.extnamespace WHERE e.extname = 'vector'`
	var schema string
	err := tx.QueryRow(ctx, where).Scan(&schema)
	if !errors.Is(err, pgx.ErrNoRows) {
		return schema, err
	}
	var installed bool
	if err := tx.QueryRow(ctx, `SELECT count(*) > 0 FROM pg_available_extensions WHERE name = 'vector'`).Scan(&installed); err != nil {
		return "", err
	}
	if !installed {
		return "", toolkeep.NewError(toolkeep.IndexUnavailable, "the PostgreSQL has no pgvector: install the package of its version (such as postgresql-16-pgvector) on its machine, or set search.vectors to memory")
	}
	if _, err := tx.Exec(ctx, `CREATE EXTENSION IF NOT EXISTS vector`); err != nil {
		var refused *pgconn.PgError
		if errors.As(err, &refused) {
			return "", toolkeep.NewError(toolkeep.IndexUnavailable, "pgvector is installed but not in this database, and creating it was refused: %s; have an administrator run CREATE EXTENSION vector there", refused.Message).Because(err)
		}
		return "", err
	}
	err = tx.QueryRow(ctx, where).Scan(&schema)
	return schema, err
}

func (v *vectors) open() error {
	v.mu.RLock()
	defer v.mu.RUnlock()
	if v.closed {
		return toolkeep.NewError(toolkeep.IndexUnavailable, "the vectors of %s are closed", v.model)
	}
	return nil
}

func (v *vectors) Close() error {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.closed = true
	return nil
}

// find returns the rows of texts' vectors.
func (v *vectors) find(ctx context.Context, of []discover.Digest) (map[discover.Digest]int64, error) {
	found := make(map[discover.Digest]int64, len(of))
	for some := range slices.Chunk(of, digests) {
		err := v.b.try(ctx, func() error {
			rows, err := v.b.pool.Query(ctx, `SELECT place, digest FROM `+v.table+` WHERE digest = ANY($1)`, flat(some))
			if err != nil {
				return err
			}
			return collect(rows, found)
		})
		if err != nil {
			return nil, err
		}
	}
	return found, nil
}

func collect(rows pgx.Rows, into map[discover.Digest]int64) error {
	var place int64
	var digest []byte
	_, err := pgx.ForEachRow(rows, []any{&place, &digest}, func() error {
		into[discover.Digest(digest)] = place
		return nil
	})
	return err
}

func flat(of []discover.Digest) [][]byte {
	out := make([][]byte, len(of))
	for i := range of {
		out[i] = of[i][:]
	}
	return out
}

func (v *vectors) Have(ctx context.Context, of []discover.Digest) ([]bool, error) {
	if err := v.open(); err != nil {
		return nil, err
	}
	found, err := v.find(ctx, of)
	if err != nil {
		return nil, err
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	out := make([]bool, len(of))
	for i, d := range of {
		var place int64
		if place, out[i] = found[d]; out[i] {
			v.places[d] = place
		} else {
			delete(v.places, d)
		}
	}
	return out, nil
}

func (v *vectors) Put(ctx context.Context, of []discover.Digest, numbers [][]float32) error {
	if err := v.open(); err != nil {
		return err
	}
	if err := discover.CheckVectors(v.model, v.dimensions, len(of), numbers); err != nil {
		return err
	}
	// In one order, so that concurrent writers of the same rows do not deadlock; and without
	// duplicates, the last one winning, since a statement can write a row only once.
	last := make(map[discover.Digest]int, len(of))
	for i, d := range of {
		last[d] = i
	}
	order := make([]int, 0, len(last))
	for _, i := range last {
		order = append(order, i)
	}
	slices.SortFunc(order, func(a, b int) int { return bytes.Compare(of[a][:], of[b][:]) })
	put := make(map[discover.Digest]int64, len(order))
	for some := range slices.Chunk(order, 256) {
		ids, texts := make([][]byte, len(some)), make([]string, len(some))
		for k, i := range some {
			ids[k], texts[k] = of[i][:], text(numbers[i])
		}
		err := v.b.try(ctx, func() error {
			rows, err := v.b.pool.Query(ctx, `INSERT INTO `+v.table+` (digest, embedding, used)
				SELECT d, e::`+v.vector+`, $3 FROM unnest($1::bytea[], $2::text[]) AS new (d, e)
				ON CONFLICT (digest) DO UPDATE SET embedding = excluded.embedding, used = excluded.used
				RETURNING place, digest`, ids, texts, v.b.clock().UTC())
			if err != nil {
				return err
			}
			return collect(rows, put)
		})
		if err != nil {
			return err
		}
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	for d, place := range put {
		v.places[d] = place
	}
	return nil
}

// text formats a vector for pgvector.
func text(numbers []float32) string {
	b := make([]byte, 0, 12*len(numbers)+2)
	b = append(b, '[')
	for i, n := range numbers {
		if i > 0 {
			b = append(b, ',')
		}
		b = strconv.AppendFloat(b, float64(n), 'g', -1, 32)
	}
	return string(append(b, ']'))
}

// Retain marks the vectors as used today, and drops those unused for a week, since another node may
// still need them. Once every text has a vector, vectors of other models unused for 30 days are
// dropped too.
func (v *vectors) Retain(ctx context.Context, live []discover.Digest) error {
	if err := v.open(); err != nil {
		return err
	}
	today := v.b.clock().UTC()
	for some := range slices.Chunk(live, digests) {
		err := v.b.try(ctx, func() error {
			// Rows another node is marking now are skipped.
			_, err := v.b.pool.Exec(ctx, `UPDATE `+v.table+` SET used = $2 WHERE place IN (
				SELECT place FROM `+v.table+` WHERE digest = ANY($1) AND used < $2 ORDER BY place FOR UPDATE SKIP LOCKED)`, flat(some), today)
			return err
		})
		if err != nil {
			return err
		}
	}
	sweeps := v.b.sweeps()
	err := v.b.try(ctx, func() error {
		if !sweeps {
			return nil
		}
		_, err := v.b.pool.Exec(ctx, `DELETE FROM `+v.table+` WHERE used < $1`, today.Add(-unused))
		return err
	})
	if err != nil {
		return err
	}
	found, err := v.find(ctx, live)
	if err != nil {
		return err
	}
	whole := len(live) > 0 && !slices.ContainsFunc(live, func(d discover.Digest) bool { return found[d] == 0 })
	v.mu.Lock()
	v.places = found
	v.mu.Unlock()
	if whole && sweeps {
		v.sweep(ctx)
	}
	return nil
}

func (v *vectors) Select(of []discover.Digest) discover.Selection {
	v.mu.RLock()
	defer v.mu.RUnlock()
	s := &selection{v: v, places: make([]int64, len(of))}
	for i, d := range of {
		s.places[i] = v.places[d] // the first place is 1
	}
	return s
}

type selection struct {
	v      *vectors
	places []int64 // 0: there is no vector
	once   sync.Once
	first  map[int64]int32 // the first text at a place
	next   []int32         // the next text at the same place, -1 for none
}

func (s *selection) Has(i int) bool { return s.places[i] != 0 }

// index maps rows to texts, on first use since most selections are never compared.
func (s *selection) index() {
	s.first = make(map[int64]int32, len(s.places))
	s.next = make([]int32, len(s.places))
	for i, place := range s.places {
		s.next[i] = -1
		if place == 0 {
			continue
		}
		if j, ok := s.first[place]; ok {
			s.next[i] = j
		}
		s.first[place] = int32(i)
	}
}

func (s *selection) Alike(ctx context.Context, queries, to [][]float32) error {
	v := s.v
	if err := v.open(); err != nil {
		return err
	}
	if err := discover.CheckVectors(v.model, v.dimensions, len(queries), queries); err != nil {
		return err
	}
	s.once.Do(s.index)
	if len(s.first) == 0 {
		for q := range queries {
			clear(to[q])
		}
		return nil
	}
	for q := range queries {
		clear(to[q])
	}
	return v.b.try(ctx, func() error { return s.scan(ctx, queries, to) })
}

// set writes a similarity for all texts at a row.
func (s *selection) set(to []float32, place int64, alike float32) {
	if i, ok := s.first[place]; ok && alike > 0 {
		for ; i >= 0; i = s.next[i] {
			to[i] = alike
		}
	}
}

// scan reads every vector of the table once for all queries. Sorting in the database and returning
// only the nearest takes longer.
func (s *selection) scan(ctx context.Context, queries, to [][]float32) error {
	v := s.v
	for start := 0; start < len(queries); start += atOnce {
		some := queries[start:min(start+atOnce, len(queries))]
		var ask strings.Builder
		ask.WriteString("SELECT place")
		args := make([]any, len(some))
		found := make([]float32, len(some))
		var place int64
		into := []any{&place}
		for q, query := range some {
			fmt.Fprintf(&ask, ", (-(embedding %s $%d::text::%s))::real", v.product, q+1, v.vector)
			args[q] = text(query)
			into = append(into, &found[q])
		}
		ask.WriteString(" FROM " + v.table)
		rows, err := v.b.pool.Query(ctx, ask.String(), args...)
		if err != nil {
			return err
		}
		if _, err = pgx.ForEachRow(rows, into, func() error {
			for q, alike := range found {
				s.set(to[start+q], place, alike)
			}
			return nil
		}); err != nil {
			return err
		}
	}
	return nil
}
