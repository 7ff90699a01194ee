package servers

import "testing"

func TestLooksSecret(t *testing.T) {
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
		{"PLACE", "postgres://me:pw@db/x", true},
		{"SOMETHING", "ghp_16C7e42F292c6912E7710c838347Ae178B4a", true},
		{"VALUE", "sk-proj-4f8a9b7c6d5e4f3a2b1c", true},
	} {
		if got := looksSecret(c.name, c.value); got != c.want {
			t.Errorf("%s=%s: %v", c.name, c.value, got)
		}
	}
}
