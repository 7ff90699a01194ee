package egress

import (
	"crypto/x509"
	"fmt"
	"io"
	"os"
)

const maxRootsFile = 4 << 20

// LoadRoots returns the system's CA certificates and those of the PEM files, each at
// most 4 MiB. Without files it returns nil, which means the system's. The error names
// the file.
func LoadRoots(files []string) (*x509.CertPool, error) {
	if len(files) == 0 {
		return nil, nil
	}
	roots, err := x509.SystemCertPool()
	if err != nil {
		roots = x509.NewCertPool() // this host has none: use only the files'
	}
	for _, name := range files {
		if err := addRoots(roots, name); err != nil {
			return nil, err
		}
	}
	return roots, nil
}

func addRoots(roots *x509.CertPool, name string) error {
	f, err := os.Open(name)
	if err != nil {
		return err
	}
	defer f.Close()
	pem, err := io.ReadAll(io.LimitReader(f, maxRootsFile+1))
	switch {
	case err != nil:
		return err
	case len(pem) > maxRootsFile:
		return fmt.Errorf("%s is over %d bytes", name, maxRootsFile)
	case !roots.AppendCertsFromPEM(pem):
		return fmt.Errorf("%s holds no certificate in PEM form", name)
	}
	return nil
}
