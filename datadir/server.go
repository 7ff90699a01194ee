package datadir

import (
	"encoding/json"
	"os"
	"path/filepath"
)

// ServerFile is what a running server leaves in its data directory, for clients on this
// machine.
type ServerFile struct {
	URL     string `json:"url"`
	Addr    string `json:"addr"` // the setting http.addr; with the port 0 each start takes another one
	GRPC    string `json:"grpc"` // host:port; "" where it is off
	Metrics string `json:"metrics"`
	PID     int    `json:"pid"`
	Version string `json:"version"`
}

// Write writes the file into a data directory.
func (f ServerFile) Write(data string) error {
	raw, err := json.Marshal(f)
	if err != nil {
		return err
	}
	return WriteFile(filepath.Join(data, Server), string(raw)+"\n")
}

// ReadServerFile reads the file of a data directory; an error of fs.ErrNotExist where no
// server runs that has written it.
func ReadServerFile(data string) (f ServerFile, err error) {
	raw, err := os.ReadFile(filepath.Join(data, Server))
	if err != nil {
		return f, err
	}
	return f, json.Unmarshal(raw, &f)
}
