package record

import (
	"testing"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/store/storetest"
)

func BenchmarkCodec(b *testing.B) {
	v := storetest.FullCall("id", toolkeep.CallSucceeded, 1)
	data, err := AppendCall(nil, v, Parts{Output: true})
	if err != nil {
		b.Fatal(err)
	}
	b.Run("append", func(b *testing.B) {
		b.ReportAllocs()
		buf := make([]byte, 0, 1024)
		for b.Loop() {
			if buf, err = AppendCall(buf[:0], v, Parts{Output: true}); err != nil {
				b.Fatal(err)
			}
		}
		b.ReportMetric(float64(len(data)), "bytes")
	})
	b.Run("decode", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if _, err := DecodeCall(v.Tenant, v.ID, data); err != nil {
				b.Fatal(err)
			}
		}
	})
}

// BenchmarkChain measures the hash of a call's entry: the work that the chain adds to the writer.
func BenchmarkChain(b *testing.B) {
	e := Encoded{Kind: KindRecord, Tenant: "default", Ref: "0195f0a2-7b6c-7c1d-9e21-000000000000", Data: make([]byte, 400)}
	var c Chain
	c.Start(1)
	b.ReportAllocs()
	for i := range b.N {
		e.Hash = c.Next(&e, int64(i), 1)
		c.Commit()
	}
}
