package config

import (
	"net/url"
	"time"
)

// Vault is the server of vault:// references. Package secret/vault says what each
// field means and checks the rest.
type Vault struct {
	Address    string // "" is none
	Namespace  string
	CAFile     string
	ServerName string
	ClientCert string
	ClientKey  string

	Auth           string // method
	AuthMount      string // "" is the method's usual name
	Role           string
	Token          string // secret
	TokenFile      string
	SecretID       string // secret
	SecretIDFile   string
	Wrapped        bool
	JWTFile        string
	ServiceAccount string
	Region         string
	ServerID       string // for aws-iam
	Resource       string

	Paths        []string // what tools may read
	Prefix       string   // of vault://./ references
	Mounts       []string // mount=version each
	Timeout      time.Duration
	TransitKey   string // "" seals with secrets.seal_key
	TransitMount string
}

// Enabled tells whether there is a Vault.
func (v Vault) Enabled() bool { return v.Address != "" }

// vault checks what does not need the client's own eyes.
func (f *faults) vault(c *Config) {
	v := &c.Vault
	if !v.Enabled() {
		if len(v.Paths) > 0 || v.Role+v.Token+v.TokenFile+v.SecretID+v.SecretIDFile+v.TransitKey != "" {
			f.add("vault.address", "required", "there are settings of vault; they need vault.address")
		}
		return
	}
	if u, err := url.Parse(v.Address); err != nil || u.Scheme != "https" && u.Scheme != "http" && u.Scheme != "unix" || u.User != nil {
		f.add("vault.address", "format", "vault.address must be a URL such as https://vault.example:8200")
		return
	}
	if (v.ClientCert == "") != (v.ClientKey == "") {
		f.add("vault.client_cert", "required", "vault.client_cert and vault.client_key go together; set both or neither")
	}
	if v.Auth == "token" && v.Token == "" && v.TokenFile == "" {
		f.add("vault.token_file", "required", "vault.auth is token; that needs vault.token_file or vault.token")
	}
	if v.Auth == "approle" && (v.Role == "" || v.SecretID == "" && v.SecretIDFile == "") {
		f.add("vault.secret_id_file", "required", "vault.auth is approle; that needs vault.role, the role id, and vault.secret_id_file or vault.secret_id")
	}
	if v.Auth == "gcp-iam" && v.ServiceAccount == "" {
		f.add("vault.service_account", "required", "vault.auth is gcp-iam; that needs vault.service_account")
	}
}
