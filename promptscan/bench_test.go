package promptscan

import (
	"strings"
	"testing"
)

const (
	prose = "The library opened in 1921 and moved to its present building forty years later. Readers may borrow up to ten books at a time, and each can be kept for three weeks; a book that another reader has asked for must be returned sooner. The catalogue lists about 84,000 titles, of which a third can be read online with a password from the desk. If you forget your card, the staff will find your record by name. Please read the rules before you use the copying room. Before 1950 all messages to members were sent by post, and the complete collection of letters from that time is kept in the archive: a rather heavy set of folders, open to everyone. "
	// manual is prose in which nearly each sentence has the words of an order.
	manual = "The user can open the page, and the password is not shown before the order is sent. "
)

// BenchmarkAimed has ordinary texts of results, in which nothing is found.
func BenchmarkAimed(b *testing.B) {
	for name, text := range map[string]string{
		"prose/2K":  strings.Repeat(prose, 3)[:1900],
		"prose/60K": strings.Repeat(prose, 96),
		"manual/2K": strings.Repeat(manual, 24),
		"greek/2K":  strings.ReplaceAll(strings.Repeat(prose, 3), "the", "το")[:1900],
		"rows/60K":  strings.Repeat(`{"id":12345,"name":"Ann Miller","city":"Rotterdam","tags":["a","b"],"active":true,"total":12.5},`, 600),
	} {
		ascii := PlainASCII(text)
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			b.SetBytes(int64(len(text)))
			for b.Loop() {
				var a Aimed
				if f, ok := a.Text(text, ascii); ok {
					b.Fatal(f)
				}
			}
		})
	}
}
