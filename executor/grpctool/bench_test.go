//go:build unix

package grpctool

import (
	"context"
	"syscall"
	"testing"

	rpc "google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/dynamicpb"

	"github.com/toolkeep/toolkeep/executor/grpctool/grpctest"
)

// cpu reports the CPU time per call of the whole process, including the server.
func cpu(b *testing.B, call func()) {
	b.ReportAllocs()
	call() // connects
	spent := func() int64 {
		var u syscall.Rusage
		if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
			b.Fatal(err)
		}
		return u.Utime.Nano() + u.Stime.Nano()
	}
	before := spent()
	for b.Loop() {
		call()
	}
	b.ReportMetric(float64(spent()-before)/float64(b.N), "cpu-ns/op")
}

const benchArgs = `{"aString":"a text of some length","anInt64":"9007199254740993","texts":["a","b","c"],"numbers":[{"n":1},{"n":2}],"place":{"latitude":47.5,"longitude":8.5}}`

// BenchmarkExecute measures a call through the executor, BenchmarkDirect one with the
// library alone: a ready dynamic message and no JSON.
func BenchmarkExecute(b *testing.B) {
	s := grpctest.Start(b, grpctest.Options{})
	ts, e := importTools(b, s), newExecutor(b)
	x := execution(ts["v1_Kinds_Echo"], args(b, benchArgs))
	cpu(b, func() {
		if _, err := e.Execute(context.Background(), x); err != nil {
			b.Fatal(err)
		}
	})
}

func BenchmarkDirect(b *testing.B) {
	s := grpctest.Start(b, grpctest.Options{})
	d, ts := descriptors(b)
	m, bad := (&writer{types: ts}).message(d, args(b, benchArgs), "")
	if bad != nil {
		b.Fatal(bad)
	}
	conn, err := rpc.NewClient("passthrough:///"+s.Addr, rpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		b.Fatal(err)
	}
	defer conn.Close()
	cpu(b, func() {
		if err := conn.Invoke(context.Background(), "/acme.kinds.v1.Kinds/Echo", m, dynamicpb.NewMessage(d)); err != nil {
			b.Fatal(err)
		}
	})
}

// BenchmarkConvert measures only the JSON: arguments to message, message to result.
func BenchmarkConvert(b *testing.B) {
	d, ts := descriptors(b)
	tree := args(b, benchArgs)
	cpu(b, func() {
		m, bad := (&writer{types: ts}).message(d, tree, "")
		if bad != nil {
			b.Fatal(bad)
		}
		if _, err := (&shower{types: ts, left: 1 << 20}).message(protoreflect.Message(m), maxDepth); err != nil {
			b.Fatal(err)
		}
	})
}
