package discover

import (
	"context"
	"crypto/sha256"
)

// Digest names a text by its SHA-256, and with it the vector that stands for the text.
type Digest = [sha256.Size]byte

// Backend keeps vectors, those of each model apart: Memory, or discover/pgvector. What
// it must do is discover/vectortest.
type Backend interface {
	// Open gives the vectors of a model, with what was kept from before. A model is
	// open once at a time. E3104.
	Open(ctx context.Context, model string, dimensions int) (Vectors, error)
	// Spaces tells of which models vectors are kept. E3104.
	Spaces(ctx context.Context) ([]Space, error)
	// Close ends what the backend itself holds. Close what it opened first.
	Close() error
}

// Space is what vectors must have in common to be compared.
type Space struct {
	Model      string
	Dimensions int
	Vectors    int // how many there are
}

// Vectors are those of one model, all of length 1. All methods are safe for concurrent
// use. After Close, and while the backend cannot be reached, they fail with E3104.
type Vectors interface {
	// Have tells which texts have a vector, whichever node made it. Select knows of
	// these from then on.
	Have(ctx context.Context, of []Digest) ([]bool, error)
	// Put keeps the vectors of texts, in the place of those they had. E3102 for one
	// that has not the model's dimensions or is not of numbers.
	Put(ctx context.Context, of []Digest, vectors [][]float32) error
	// Retain says which texts are in use. Others are dropped by and by: in memory when
	// they outweigh these, and in a database that nodes share when they were not used
	// for a week.
	Retain(ctx context.Context, live []Digest) error
	// Select prepares the comparing of queries with these texts. It does no I/O and
	// sees what Have and Put have told before.
	Select(of []Digest) Selection
	Close() error
}

// Selection is a list of texts to compare with. Vectors that are put later do not come
// into it.
type Selection interface {
	// Has tells whether the i-th text has a vector.
	Has(i int) bool
	// Alike writes how much the q-th query and the i-th text mean alike to to[q][i]: the
	// scalar product, 0 where there is no vector or it is negative. It is exact: what is
	// added up from several parts of a score would be upset by a likeness that is
	// missing. E3102 for a query with other dimensions, E3104.
	Alike(ctx context.Context, queries, to [][]float32) error
}
