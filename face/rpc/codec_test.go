package rpc

import (
	"context"
	"crypto/sha256"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/tap"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/toolkeep/toolkeep/proto/l03v1"
)

// A message is hashed while a signed request is under way, and no field that a client sends passes for
// its digest.
func TestDigestOnDemand(t *testing.T) {
	plain, err := proto.Marshal(&l03v1.ListToolsRequest{PageSize: 7})
	if err != nil {
		t.Fatal(err)
	}
	forged := protowire.AppendBytes(append(append([]byte(nil), plain...), digestTag...), make([]byte, sha256.Size))
	var signed atomic.Int64
	c := newCodec(&signed)
	for _, x := range []struct {
		name   string
		signed int64
		data   []byte
		hashed bool
	}{
		{"no part signs", 0, plain, false},
		{"a signed request", 1, plain, true},
		{"a field like a digest", 0, forged, true},
		{"the same in a signed request", 1, forged, true},
	} {
		signed.Store(x.signed)
		m := new(l03v1.ListToolsRequest)
		if err := c.Unmarshal(mem.BufferSlice{mem.SliceBuffer(x.data)}, m); err != nil || m.PageSize != 7 {
			t.Fatalf("%s: %v %v", x.name, m, err)
		}
		if sum, ok := takeDigest(m); ok != x.hashed || ok && sum != sha256.Sum256(x.data) {
			t.Errorf("%s: hashed %t, %x", x.name, ok, sum)
		}
	}
}

// A request counts as signed from its headers to its end.
func TestSignedUnderWay(t *testing.T) {
	s := &Server{}
	s.limits.BodyTimeout = time.Hour
	if _, err := s.await(t.Context(), &tap.Info{Header: metadata.Pairs("authorization", "Bearer k")}); err != nil || s.signed.Load() != 0 {
		t.Errorf("unsigned: %v, %d", err, s.signed.Load())
	}
	synctest.Test(t, func(t *testing.T) {
		ctx, end := context.WithCancel(t.Context())
		ctx, err := s.await(ctx, &tap.Info{Header: metadata.Pairs("x-request-signature", "aa")})
		if err != nil || s.signed.Load() != 1 {
			t.Errorf("signed: %v, %d", err, s.signed.Load())
		}
		ctx.Value(arrivalKey{}).(*arrival).timer.Stop()
		end()
		synctest.Wait()
		if s.signed.Load() != 0 {
			t.Errorf("%d after its end", s.signed.Load())
		}
	})
}
