package datadir

import (
	"encoding/json"
	"os"
	"path/filepath"
)

// StartedFile is how the latest server of a data directory was started. It stays when the
// server ends.
type StartedFile struct {
	PID    int      `json:"pid"`
	Bridge bool     `json:"bridge,omitempty"` // by toolkeep mcp, for a client
	With   []string `json:"with,omitempty"`   // the names of flags and environment variables that it was given, without values
}

// Write writes the file into a data directory.
func (f StartedFile) Write(data string) error {
	raw, err := json.Marshal(f)
	if err != nil {
		return err
	}
	return WriteFile(filepath.Join(data, Started), string(raw)+"\n")
}

// ReadStartedFile reads the file of a data directory; an error of fs.ErrNotExist where no
// server has written it.
func ReadStartedFile(data string) (f StartedFile, err error) {
	raw, err := os.ReadFile(filepath.Join(data, Started))
	if err != nil {
		return f, err
	}
	return f, json.Unmarshal(raw, &f)
}
