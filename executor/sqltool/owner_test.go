package sqltool

import (
	"io/fs"
	"os"
	"syscall"
	"testing"
)

// chownLike gives a file the owner of another: PostgreSQL only reads keys that it owns.
func chownLike(t *testing.T, path string, like fs.FileInfo) {
	t.Helper()
	owner, ok := like.Sys().(*syscall.Stat_t)
	if !ok {
		t.Fatal("the file system tells no owner")
	}
	if err := os.Chown(path, int(owner.Uid), int(owner.Gid)); err != nil {
		t.Fatal(err)
	}
}
