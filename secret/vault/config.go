package vault

import (
	"log/slog"
	"net/netip"
	"net/url"
	"path"
	"strconv"
	"strings"
	"time"

	"github.com/toolkeep/toolkeep"
)

// Names of the auth methods.
const (
	Token      = "token"
	AppRole    = "approle"
	Kubernetes = "kubernetes"
	AWSIAM     = "aws-iam"
	AWSEC2     = "aws-ec2"
	GCPIAM     = "gcp-iam"
	GCPGCE     = "gcp-gce"
	Azure      = "azure"
)

// Methods lists all auth methods.
var Methods = []string{Token, AppRole, Kubernetes, AWSIAM, AWSEC2, GCPIAM, GCPGCE, Azure}

const (
	defaultPrefix  = "secret/tool-execution"
	defaultRole    = "toolkeep"
	defaultTimeout = 2 * time.Second
	defaultJWTFile = "/var/run/secrets/kubernetes.io/serviceaccount/token"
)

// Config configures the connection to Vault, the login and the paths that tools may read.
type Config struct {
	// Address is an https URL, http for loopback only, or unix:///path of an agent.
	Address string
	// Namespace is sent with every request (Vault Enterprise, OpenBao); "" is the root.
	Namespace string
	TLS       TLS
	Auth      Auth
	// Paths lists prefixes of API paths that tools may read, such as "secret/data/{tenant}/". A prefix that ends in
	// a slash covers what is below; without a slash it also covers the path itself. Empty allows nothing.
	Paths []string
	// Prefix is put before references that begin with "./". Default secret/tool-execution. It allows nothing by
	// itself.
	Prefix string
	// Mounts lists mounts for logins that may not query them: mount=1 or mount=2 for the KV versions, mount=0 for
	// other engines.
	Mounts []string
	// Timeout bounds one attempt of a request; there are three. Default 2 s.
	Timeout time.Duration
	// Log gets what callers do not see, such as a failed renewal. nil discards it.
	Log *slog.Logger
	// Now is the clock; nil is time.Now.
	Now func() time.Time
}

// TLS configures the connection.
type TLS struct {
	CAFile     string // PEM file of the CAs; "" is the system's
	ServerName string // name in the certificate, if it is not the address's
	CertFile   string // PEM file of a client certificate, "" for none
	KeyFile    string // PEM file of its key
}

// Auth configures the server's login.
type Auth struct {
	Method string // one of Methods; "" is token
	Mount  string // mount below auth/; "" is the method's default
	Role   string // role, or the role id of AppRole; "" is toolkeep for kubernetes, gcp and azure

	Token     string // token: the token itself, or
	TokenFile string // the file that holds it, read again when it changes

	SecretID     string // AppRole: the secret id itself, or
	SecretIDFile string // the file that holds it, read at each login
	Wrapped      bool   // the secret id is given as a response-wrapping token

	JWTFile        string // Kubernetes: file of the service account's token; "" is the pod's
	ServiceAccount string // gcp-iam: e-mail of the service account
	Region         string // aws: region; "" is us-east-1
	ServerID       string // aws-iam: what Vault's iam_server_id_header_value wants; "" for none
	NonceFile      string // aws-ec2: file that keeps the nonce of this machine's logins; created if missing
	Resource       string // azure: resource of the token; "" is the management API
}

func (c Config) filled() Config {
	if c.Prefix == "" {
		c.Prefix = defaultPrefix
	}
	if c.Timeout <= 0 {
		c.Timeout = defaultTimeout
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	if c.Auth.Method == "" {
		c.Auth.Method = Token
	}
	switch c.Auth.Method {
	case Kubernetes, GCPIAM, GCPGCE, Azure:
		if c.Auth.Role == "" {
			c.Auth.Role = defaultRole
		}
	}
	if c.Auth.JWTFile == "" {
		c.Auth.JWTFile = defaultJWTFile
	}
	if c.Auth.Region == "" {
		c.Auth.Region = awsRegion
	}
	if c.Auth.Mount == "" {
		c.Auth.Mount, _, _ = strings.Cut(c.Auth.Method, "-")
	}
	return c
}

// Validate returns the first invalid setting as E3008.
func (c Config) Validate() error {
	c = c.filled()
	if err := checkAddress(c.Address); err != nil {
		return err
	}
	if (c.TLS.CertFile == "") != (c.TLS.KeyFile == "") {
		return wrong("vault.client_cert and vault.client_key go together; set both or neither")
	}
	if err := c.Auth.validate(); err != nil {
		return err
	}
	for _, p := range c.Paths {
		if _, err := parsePrefix(p); err != nil {
			return err
		}
	}
	if cleanPath(strings.Trim(strings.NewReplacer("{tenant}", "t", "{workspace}", "w", "{subject}", "s").Replace(c.Prefix), "/")) == "" {
		return wrong("the prefix %q of Vault references is not a path such as secret/tool-execution", c.Prefix)
	}
	_, err := parseMounts(c.Mounts)
	return err
}

func (a Auth) validate() error {
	switch a.Method {
	case Token:
		if a.Token == "" && a.TokenFile == "" {
			return wrong("logging in to Vault by token needs vault.token or vault.token_file")
		}
	case AppRole:
		if a.Role == "" || a.SecretID == "" && a.SecretIDFile == "" {
			return wrong("logging in to Vault by AppRole needs vault.role, the role id, and vault.secret_id or vault.secret_id_file")
		}
	case GCPIAM:
		if a.ServiceAccount == "" {
			return wrong("logging in to Vault by gcp-iam needs vault.service_account")
		}
	case Kubernetes, GCPGCE, Azure:
	case AWSIAM: // Vault infers the role
	case AWSEC2:
		if a.NonceFile == "" {
			return wrong("logging in to Vault by aws-ec2 needs a file for the nonce of this machine's logins")
		}
	default:
		return wrong("%q is not a way to log in to Vault; use one of %s", a.Method, strings.Join(Methods, ", "))
	}
	if cleanPath(a.Mount) == "" {
		return wrong("the mount %q of Vault's auth method is not a path such as kubernetes", a.Mount)
	}
	return nil
}

// checkAddress requires TLS if the token would cross a network.
func checkAddress(address string) error {
	u, err := url.Parse(address)
	if err != nil || address == "" {
		return wrong("the address of Vault is not a URL such as https://vault.example:8200")
	}
	switch {
	case u.User != nil || u.RawQuery != "" || u.Fragment != "":
		return wrong("the address of Vault must hold no user, query or fragment")
	case u.Scheme == "https" && u.Host != "":
		return nil
	case u.Scheme == "unix" && u.Host == "" && path.IsAbs(u.Path):
		return nil
	case u.Scheme == "http" && loopbackHost(u.Hostname()):
		return nil
	case u.Scheme == "http":
		return wrong("the address of Vault is http, which would send its token and all secrets in the clear; use https")
	}
	return wrong("the address of Vault is not a URL such as https://vault.example:8200")
}

func loopbackHost(host string) bool {
	if host == "localhost" {
		return true
	}
	ip, err := netip.ParseAddr(host)
	return err == nil && ip.Unmap().IsLoopback()
}

// parseMounts parses mount=version.
func parseMounts(list []string) (map[string]mount, error) {
	m := make(map[string]mount, len(list))
	for _, l := range list {
		name, version, _ := strings.Cut(l, "=")
		name = strings.Trim(name, "/")
		n, err := strconv.Atoi(version)
		if err != nil || n < 0 || n > 2 || cleanPath(name) == "" {
			return nil, wrong("%q does not say what is mounted in Vault; write secret=2 for KV version 2, secret=1 for version 1, database=0 for another engine", l)
		}
		m[name] = mount{path: name, kv: n}
	}
	return m, nil
}

func wrong(format string, args ...any) *toolkeep.Error {
	return toolkeep.NewError(toolkeep.InvalidManifest, format, args...)
}
