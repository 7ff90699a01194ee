package mcp_test

import (
	"bytes"
	"strings"
	"testing"

	"github.com/toolkeep/toolkeep/canon"
	"github.com/toolkeep/toolkeep/mcp"
)

var (
	smallCall = []byte(`{"jsonrpc":"2.0","id":17,"method":"tools/call","params":{"name":"weather__current","arguments":{"city":"Paris","units":"metric"},"_meta":{"progressToken":17}}}`)
	bigAnswer = []byte(`{"jsonrpc":"2.0","id":17,"result":{"content":[{"type":"text","text":"` + strings.Repeat("All happy families are alike. ", 2000) + `"}]}}`)
)

func BenchmarkParse(b *testing.B) {
	for name, data := range map[string][]byte{"call": smallCall, "60KB": bigAnswer} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			b.SetBytes(int64(len(data)))
			for b.Loop() {
				if _, err := mcp.Parse(data, canon.Limits{}); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkAppend(b *testing.B) {
	m, _ := mcp.Parse(smallCall, canon.Limits{})
	var buf []byte
	b.ReportAllocs()
	for b.Loop() {
		buf = m.Append(buf[:0])
	}
}

func BenchmarkGet(b *testing.B) {
	m, _ := mcp.Parse(smallCall, canon.Limits{})
	b.ReportAllocs()
	for b.Loop() {
		if mcp.Get(m.Params, "_meta", "progressToken") == nil {
			b.Fatal("nil")
		}
	}
}

func BenchmarkSet(b *testing.B) {
	m, _ := mcp.Parse(smallCall, canon.Limits{})
	b.ReportAllocs()
	for b.Loop() {
		mcp.Set(m.Params, []byte("99"), "_meta", "progressToken")
	}
}

func BenchmarkEvents(b *testing.B) {
	stream := bytes.Repeat(mcp.AppendEvent(nil, mcp.Event{ID: "12_1", Name: "message", Data: smallCall}), 1000)
	b.ReportAllocs()
	b.SetBytes(int64(len(stream)))
	for b.Loop() {
		r := mcp.NewEventReader(bytes.NewReader(stream), 0)
		for {
			if _, err := r.Next(); err != nil {
				break
			}
		}
	}
}
