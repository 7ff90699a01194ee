package servers

import (
	"slices"
	"testing"

	"github.com/toolkeep/toolkeep/upstream"
)

func TestSecretNames(t *testing.T) {
	for _, c := range []struct {
		name, value string
		want        bool
	}{
		{"NODE_ENV", "production", false},
		{"LOG_LEVEL", "debug", false},
		{"MEMORY_FILE_PATH", "/srv/data/memory-of-the-team.json", false},
		{"PORT", "8080", false},
		{"BASE", "https://api.example.com/v1", false},
		{"COMPASS_MODE", "north", false},
		{"PATH_PREFIX", "/srv", false},
		{"DB_PASS", "hunter2", true},
		{"GITHUB_PAT", "x", true},
		{"GITHUB_TOKEN", "x", true},
		{"Authorization", "Bearer abc", true},
		{"oauth.client_secret", "short", true},
		{"DATABASE_URL", "anything", true},
	} {
		if got := upstream.SecretName(c.name); got != c.want {
			t.Errorf("%s=%s: %v", c.name, c.value, got)
		}
	}
}

// TestLiteralsAreTakenOut: every literal value is taken out of results and logs, whatever its name, with the
// parts of a connection string; only what is short or a common word stays, unless its name says that it is
// secret.
func TestLiteralsAreTakenOut(t *testing.T) {
	c := &Credentials{Sealer: sealer{}}
	spec := &upstream.Spec{Tenant: "acme"}
	for _, x := range []struct {
		name, value string
		want        []string
	}{
		{"SOMETHING", "ghp_16C7e42F292c6912E7710c838347Ae178B4a", []string{"ghp_16C7e42F292c6912E7710c838347Ae178B4a"}},
		{"VALUE", "sk-proj-4f8a9b7c6d5e4f3a2b1c", []string{"sk-proj-4f8a9b7c6d5e4f3a2b1c"}},
		{"MYVAR", "hunter2values", []string{"hunter2values"}},
		{"MEMORY_FILE_PATH", "/srv/data/team.json", []string{"/srv/data/team.json"}},
		{"X-Customer", "customer 4711-0815", []string{"customer 4711-0815", "4711-0815"}},
		{"STORE", "postgres://me:opensesame@db/x", []string{"postgres://me:opensesame@db/x", "opensesame"}},
		{"STORE", "host=db password=opensesame", []string{"host=db password=opensesame", "opensesame", "password=opensesame"}},
		{"Authorization", "Bearer abc", []string{"Bearer abc", "abc"}},
		{"DB_PASS", "hunter2", []string{"hunter2"}},
		{"API_TOKEN", "production", []string{"production"}},
		{"NODE_ENV", "production", nil},
		{"LANG", "C.UTF-8", nil},
		{"LOG_LEVEL", "debug", nil},
		{"Accept", "application/json", nil},
	} {
		sealed, err := c.sealOne(x.name, x.value, "")
		if err != nil {
			t.Fatal(err)
		}
		v, err := c.Resolve(t.Context(), spec, admin("acme"), sealed)
		if err != nil || v.Text != x.value || !slices.Equal(v.Held, x.want) {
			t.Errorf("%s=%s: %q %q %v, want %q", x.name, x.value, v.Text, v.Held, err, x.want)
		}
	}
}
