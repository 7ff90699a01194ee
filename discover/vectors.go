package discover

import (
	"context"
	"crypto/sha256"
)

// Digest is the SHA-256 of a text, which identifies the text's vector.
type Digest = [sha256.Size]byte

// Backend stores vectors, separately for each model: Memory, or discover/pgvector.
// discover/vectortest is its contract.
type Backend interface {
	// Open returns the vectors of a model, including those stored earlier. A model can be open only
	// once at a time. E3104.
	Open(ctx context.Context, model string, dimensions int) (Vectors, error)
	// Spaces returns the models with stored vectors. E3104.
	Spaces(ctx context.Context) ([]Space, error)
	// Close releases the backend's own resources. Close what it opened first.
	Close() error
}

// Space is what vectors must share to be comparable.
type Space struct {
	Model      string
	Dimensions int
	Vectors    int // how many there are
}

// Vectors are the vectors of one model, of about length 1. All methods are safe for concurrent use. After Close,
// and while the backend is unreachable, they fail with E3104.
type Vectors interface {
	// Have returns which texts have a vector, from any node. Select sees these from then on.
	Have(ctx context.Context, of []Digest) ([]bool, error)
	// Put stores the vectors of texts, replacing existing ones. E3102 for a vector with other
	// dimensions than the model's or invalid numbers.
	Put(ctx context.Context, of []Digest, vectors [][]float32) error
	// Retain declares which texts are in use. Others are dropped over time: in memory when they
	// outnumber these, and in a shared database when unused for a week.
	Retain(ctx context.Context, live []Digest) error
	// Select prepares the comparison of queries with these texts. It does no I/O and sees the
	// vectors known from earlier calls of Have and Put.
	Select(of []Digest) Selection
	Close() error
}

// Selection is a list of texts to compare with. Vectors put later are not included.
type Selection interface {
	// Has reports whether the i-th text has a vector.
	Has(i int) bool
	// Alike writes the similarity of the q-th query and the i-th text to to[q][i]: the scalar
	// product, or 0 if there is no vector or it is negative. It is exact, since a missing
	// similarity would distort a score of several parts. E3102 for a query with other dimensions,
	// E3104.
	Alike(ctx context.Context, queries, to [][]float32) error
}
