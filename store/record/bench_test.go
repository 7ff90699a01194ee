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
