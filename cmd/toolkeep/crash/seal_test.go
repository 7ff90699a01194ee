package crash_test

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// killedWhileSealing kills the server during a reseal: the next server reads items under either key, and finishes
// the reseal.
func (l *lab) killedWhileSealing(t *testing.T) {
	const secrets = 5
	for _, nth := range []int{1, 3, secrets} {
		t.Run(fmt.Sprint("item ", nth), func(t *testing.T) {
			dir := l.dir(t)
			s := l.start(t, dir, fmt.Sprintf("resealed:%d", nth))
			for i := range secrets {
				s.must("PUT", fmt.Sprintf("/api/v1/secrets/s%d", i), fmt.Sprintf(`{"value":"value-%d","scope":"organisation"}`, i), http.StatusOK, nil)
			}
			until(t, "the audit has its key, which is sealed too", func() bool {
				_, answer, err := s.do("GET", "/api/v1/audit/keys", "")
				return err == nil && strings.Contains(string(answer), `"public":`)
			})
			if status, answer, err := s.do("POST", "/api/v1/secrets/rotate", `{"new_key":true}`); err == nil {
				t.Fatalf("the rotation answered: %d %s", status, answer)
			}
			s.killed()
			s = l.start(t, dir, "")
			readable := func() {
				t.Helper()
				for i := range secrets {
					var st struct{ State, Scope string }
					s.must("POST", "/api/v1/secrets/test", fmt.Sprintf(`{"reference":"s%d"}`, i), http.StatusOK, &st)
					if st.State != "ready" || st.Scope != "organisation" {
						t.Errorf("secret %d is %+v", i, st)
					}
				}
			}
			readable()
			// Beside the secrets there are the audit's key, that of digests and those of persons.
			var done, again struct{ Keys, Resealed, Unchanged, Failed int }
			s.must("POST", "/api/v1/secrets/rotate", `{}`, http.StatusOK, &done)
			s.must("POST", "/api/v1/secrets/rotate", `{}`, http.StatusOK, &again)
			if done.Keys != 2 || done.Unchanged != nth || done.Failed != 0 || again.Resealed != 0 || again.Unchanged <= secrets || done.Resealed != again.Unchanged-nth {
				t.Errorf("the rest: %+v, and then %+v", done, again)
			}
			readable()
			s.stop()
			// Now the new key alone is enough.
			file := filepath.Join(dir, "seal.key")
			raw, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(file, []byte(strings.Fields(string(raw))[0]+"\n"), 0o600); err != nil {
				t.Fatal(err)
			}
			s = l.start(t, dir, "")
			readable()
			s.stop()
		})
	}
}
