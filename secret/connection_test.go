package secret

import (
	"encoding/base64"
	"slices"
	"testing"
)

func TestPartsOfConnectionStrings(t *testing.T) {
	for text, want := range map[string][]string{
		"postgres://me:p%40ss@db.example/x?sslmode=disable":                    {"p%40ss", "p@ss"},
		"mysql://me:a@b@db/x":                                                  {"a@b"},
		"https://ghp_token@github.example/repo.git":                            {"ghp_token"},
		"https://api.example/v1?x=1&api_key=k%2Bey&y=2":                        {"k%2Bey", "k+ey"},
		"https://x.blob.example/c?sv=1&sig=abc123":                             {"abc123"},
		"host=db user=me password='it is' dbname=x":                            {"it is"},
		"Server=db;User Id=me;Pwd={a;b};Database=x":                            {"a;b"},
		"DefaultEndpointsProtocol=https;AccountName=me;AccountKey=Zm9vYmFy==;": {"Zm9vYmFy=="},
		"Endpoint=sb://x/;SharedAccessKeyName=n;SharedAccessKey=q1w2":          {"q1w2"},
		"Basic " + base64.StdEncoding.EncodeToString([]byte("me:the word")):    {"the word"},
		"https://api.example/v1":                                               nil,
		"a=b; c=d":                                                             nil,
		"https://example.com/@me":                                              nil,
	} {
		got := Parts("", text)
		if got[0] != text || !slices.Equal(got[1:], want) {
			t.Errorf("%s: %q, want %q", text, got[1:], want)
		}
	}
}
