package vault

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/hashicorp/vault/api"
	"github.com/hashicorp/vault/api/auth/approle"
	"github.com/hashicorp/vault/api/auth/kubernetes"

	"github.com/toolkeep/toolkeep"
)

// login requests a token from Vault. The proof of identity is read each time.
func (a Auth) login(ctx context.Context, c *api.Client) (*api.Secret, error) {
	method, err := a.method()
	if err != nil {
		return nil, err
	}
	return method.Login(ctx, c)
}

func (a Auth) method() (api.AuthMethod, error) {
	switch a.Method {
	case AppRole:
		id := a.SecretID
		if a.SecretIDFile != "" {
			var err error
			if id, err = readCredential(a.SecretIDFile); err != nil {
				return nil, err
			}
		}
		opts := []approle.LoginOption{approle.WithMountPath(a.Mount)}
		if a.Wrapped {
			opts = append(opts, approle.WithWrappingToken())
		}
		return approle.NewAppRoleAuth(a.Role, &approle.SecretID{FromString: id}, opts...)
	case Kubernetes:
		jwt, err := readCredential(a.JWTFile)
		if err != nil {
			return nil, err
		}
		return kubernetes.NewKubernetesAuth(a.Role, kubernetes.WithMountPath(a.Mount), kubernetes.WithServiceAccountToken(jwt))
	case AWSIAM, AWSEC2:
		return awsAuth{mount: a.Mount, role: a.Role, region: a.Region, serverID: a.ServerID, ec2: a.Method == AWSEC2, nonceFile: a.NonceFile, now: time.Now}, nil
	case GCPIAM:
		return gcpAuth{mount: a.Mount, role: a.Role, account: a.ServiceAccount, iam: iamCredentials}, nil
	case GCPGCE:
		return gcpAuth{mount: a.Mount, role: a.Role}, nil
	case Azure:
		return azureAuth{mount: a.Mount, role: a.Role, resource: a.Resource, metadata: azureMetadata}, nil
	}
	return nil, wrong("%q is not a way to log in to Vault", a.Method)
}

// secrets returns the values that a login error must not contain.
func (a Auth) secrets() []string { return []string{a.Token, a.SecretID} }

const maxCredential = 64 << 10

// readCredential reads a file that proves the server's identity.
func readCredential(name string) (string, error) {
	f, err := os.Open(name)
	if err != nil {
		return "", refuse(toolkeep.SecretRetrievalFailed, "the file that logs this server in to Vault cannot be read").Because(err)
	}
	defer f.Close()
	fi, err := f.Stat()
	if err != nil {
		return "", refuse(toolkeep.SecretRetrievalFailed, "the file that logs this server in to Vault cannot be read").Because(err)
	}
	if fi.Mode().Perm()&0o022 != 0 {
		return "", refuse(toolkeep.SecretRetrievalFailed, "the file that logs this server in to Vault can be written by others than its owner; the operator must chmod go-w it (the server's log names it)").Because(errors.New(name))
	}
	b, err := io.ReadAll(io.LimitReader(f, maxCredential+1))
	if err != nil || len(b) > maxCredential {
		return "", refuse(toolkeep.SecretRetrievalFailed, "the file that logs this server in to Vault cannot be read or is over 64 KiB").Because(fmt.Errorf("%s: %w", name, cmp.Or(err, errors.New("over 64 KiB"))))
	}
	s := strings.TrimSpace(string(b))
	if s == "" {
		return "", refuse(toolkeep.SecretRetrievalFailed, "the file that logs this server in to Vault is empty").Because(errors.New(name))
	}
	return s, nil
}

// tokenFile caches a token file.
type tokenFile struct {
	name  string
	mtime time.Time
	size  int64
	token string
}

// read returns the token; it rereads the file only if that changed.
func (t *tokenFile) read() (string, error) {
	fi, err := os.Stat(t.name)
	if err == nil && t.token != "" && fi.ModTime().Equal(t.mtime) && fi.Size() == t.size {
		return t.token, nil
	}
	token, rerr := readCredential(t.name)
	if rerr != nil {
		return "", rerr
	}
	if err == nil {
		t.mtime, t.size = fi.ModTime(), fi.Size()
	}
	t.token = token
	return token, nil
}
