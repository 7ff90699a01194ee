package canon_test

import (
	"testing"

	"github.com/toolkeep/toolkeep/canon"
)

// document is a typical call, about 600 bytes.
const document = `{"customer":{"id":"c-10293","name":"Ada Lovelace","email":"ada@example.com","tags":["vip","eu","beta"]},` +
	`"items":[{"sku":"A-100","quantity":2,"price":19.99,"note":"gift wrap, please"},` +
	`{"sku":"B-220","quantity":1,"price":249.00,"note":null},{"sku":"C-7","quantity":12,"price":0.5,"note":"blue"}],` +
	`"shipping":{"street":"12 St James's Square","city":"London","country":"GB","express":true},` +
	`"currency":"GBP","total":294.98,"created_at":"2026-11-28T10:15:00Z","comment":"Leave it with the neighbour\nif nobody opens.",` +
	`"coupon":"WINTER-2026","reference":9007199254740993}`

func BenchmarkParse(b *testing.B) {
	data := []byte(document)
	b.SetBytes(int64(len(data)))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := canon.Parse(data, canon.Limits{}); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkAppend(b *testing.B) {
	v, err := canon.Parse([]byte(document), canon.Limits{})
	if err != nil {
		b.Fatal(err)
	}
	buf := make([]byte, 0, 1024)
	b.ReportAllocs()
	for b.Loop() {
		buf = canon.Append(buf[:0], v)
	}
}

func BenchmarkHash(b *testing.B) {
	v, err := canon.Parse([]byte(document), canon.Limits{})
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		canon.Hash(v)
	}
}

func BenchmarkJCS(b *testing.B) {
	data := []byte(`{"city":"Paris","units":"metric","days":3,"detail":{"wind":true,"rain":0.25}}`)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := canon.JCS(data); err != nil {
			b.Fatal(err)
		}
	}
}
