package discover

import (
	"bufio"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"math"
	"os"
	"path/filepath"
)

// vectorFile keeps vectors over restarts: a head that names the model, then records of
// digest, numbers and a checksum, one behind the other. A record that is not whole, as
// a crash leaves it, ends the file. A file of another model is begun anew.
type vectorFile struct {
	f      *os.File
	buf    []byte
	broken bool // nothing is written any more
}

const vectorMagic = "TKVEC1\n"

var checksum = crc32.MakeTable(crc32.Castagnoli)

// openVectors reads a file, or makes it, and gives what it holds.
func openVectors(path, model string, dimensions int, each func(digest, []float32)) (*vectorFile, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return nil, err
	}
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	v := &vectorFile{f: f, buf: make([]byte, sha256.Size+4*dimensions+4)}
	head := fmt.Appendf(nil, "%s%s\n%d\n", vectorMagic, model, dimensions)
	end, err := v.read(head, each)
	if err == nil {
		err = f.Truncate(end)
	}
	if err == nil {
		_, err = f.Seek(end, io.SeekStart)
	}
	if err == nil && end == 0 {
		_, err = f.Write(head)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("the file of vectors %s: %w", path, err), f.Close())
	}
	return v, nil
}

// read tells where the whole records end, 0 where the head is another's.
func (v *vectorFile) read(head []byte, each func(digest, []float32)) (int64, error) {
	r := bufio.NewReaderSize(v.f, 1<<20)
	got := make([]byte, len(head))
	switch _, err := io.ReadFull(r, got); {
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return 0, nil
	case err != nil:
		return 0, err
	case string(got) != string(head):
		return 0, nil
	}
	end := int64(len(head))
	for {
		switch _, err := io.ReadFull(r, v.buf); {
		case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
			return end, nil
		case err != nil:
			return 0, err
		}
		body := v.buf[:len(v.buf)-4]
		if crc32.Checksum(body, checksum) != binary.LittleEndian.Uint32(v.buf[len(body):]) {
			return end, nil
		}
		numbers := make([]float32, (len(body)-sha256.Size)/4)
		for i := range numbers {
			numbers[i] = math.Float32frombits(binary.LittleEndian.Uint32(body[sha256.Size+4*i:]))
		}
		each(digest(body[:sha256.Size]), numbers)
		end += int64(len(v.buf))
	}
}

func (v *vectorFile) add(d digest, numbers []float32) error {
	if v.broken {
		return nil
	}
	b := append(v.buf[:0], d[:]...)
	for _, n := range numbers {
		b = binary.LittleEndian.AppendUint32(b, math.Float32bits(n))
	}
	b = binary.LittleEndian.AppendUint32(b, crc32.Checksum(b, checksum))
	_, err := v.f.Write(b)
	return err
}

func (v *vectorFile) close() error { return v.f.Close() }
