package tokenexchange

import (
	"crypto"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/canon"
)

const (
	assertionLife = time.Hour        // Google's maximum
	azureLife     = 10 * time.Minute // Microsoft's advice
	publicAzure   = "https://login.microsoftonline.com"

	jwtBearer    = "urn:ietf:params:oauth:grant-type:jwt-bearer"
	jwtAssertion = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer"
)

// grant is a token request, ready to send.
type grant struct {
	endpoint               *url.URL
	kind                   string // grant_type
	clientID, clientSecret string
	basic                  bool // client credentials in the header
	refresh                string
	scope                  string
	params                 map[string]string // further parameters
	field                  string            // response field that holds the token
	sign                   func(now time.Time) (assertion string, err error)
	// Of the types that need it: the caller's token, of which type it is, and the type of the token that is wanted.
	caller                 *toolkeep.CallerToken
	subjectType, requested string
	// first is the request whose token this one sends as takes.
	first *grant
	takes string
	given string
	// identity is the part of the secret that names the client. With the refresh token it identifies a kept token.
	identity string
}

// form returns the request body.
func (g grant) form(now time.Time) (url.Values, error) {
	v := url.Values{"grant_type": {g.kind}}
	for name, value := range g.params {
		v.Set(name, value)
	}
	set := func(name, value string) {
		if value != "" {
			v.Set(name, value)
		}
	}
	set("scope", g.scope)
	set("refresh_token", g.refresh)
	set("requested_token_type", g.requested)
	if g.subjectType != "" {
		set("subject_token", g.caller.Reveal())
		set("subject_token_type", g.subjectType)
	}
	set(g.takes, g.given)
	if g.takes == "actor_token" {
		set("actor_token_type", typePrefix+"access_token")
	}
	if !g.basic {
		set("client_id", g.clientID)
		set("client_secret", g.clientSecret)
	}
	if g.sign == nil {
		return v, nil
	}
	assertion, err := g.sign(now)
	if err != nil {
		return nil, err
	}
	if g.kind == jwtBearer {
		v.Set("assertion", assertion)
	} else {
		v.Set("client_assertion_type", jwtAssertion)
		v.Set("client_assertion", assertion)
	}
	return v, nil
}

// settings parses an auth entry.
type settings struct {
	spec   toolkeep.AuthSpec
	faults []toolkeep.Fault
	idp    *url.URL // the identity provider's token endpoint, set by check; nil for none
}

func (s *settings) fault(pointer, rule, message string) {
	s.faults = append(s.faults, toolkeep.Fault{Pointer: pointer, Rule: rule, Message: message})
}

// text returns a setting that must be text.
func (s *settings) text(name string) string {
	v, ok := s.spec.Settings[name]
	if !ok || v == nil {
		return ""
	}
	text, ok := v.(string)
	if !ok {
		s.fault("/settings/"+canon.Escape(name), "type", "settings."+name+" must be text")
	}
	return text
}

// reserved lists parameters that settings.params cannot set.
var reserved = []string{"grant_type", "client_id", "client_secret", "refresh_token", "scope", "assertion", "client_assertion", "client_assertion_type"}

func (s *settings) params() map[string]string {
	m := make(map[string]string)
	for _, name := range []string{"audience", "resource"} {
		if v := s.text(name); v != "" {
			m[name] = v
		}
	}
	given, ok := s.spec.Settings["params"]
	if !ok {
		return m
	}
	obj, ok := given.(map[string]any)
	if !ok {
		s.fault("/settings/params", "type", "settings.params must be an object of text")
		return m
	}
	for name, v := range obj {
		text, ok := v.(string)
		switch {
		case !ok:
			s.fault("/settings/params/"+canon.Escape(name), "type", "settings.params."+name+" must be text")
		case slices.Contains(reserved, name):
			s.fault("/settings/params/"+canon.Escape(name), "enum", "settings.params cannot set "+name)
		default:
			m[name] = text
		}
	}
	return m
}

// basic reports whether the client credentials go into the header.
func (s *settings) basic() bool {
	switch style := s.text("auth_style"); style {
	case "", "header":
		return true
	case "body":
		return false
	default:
		s.fault("/settings/auth_style", "enum", "settings.auth_style must be header or body")
		return true
	}
}

var azureTenant = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9.-]{0,252}$`)

// endpoint returns the token endpoint; "" if the secret names it.
func (s *settings) endpoint() (text, pointer string) {
	text, pointer = s.spec.TokenURL, "/token_url"
	if text == "" {
		text, pointer = s.text("token_url"), "/settings/token_url"
	}
	if text != "" || s.spec.Type != AzureAD {
		return text, pointer
	}
	tenant := s.text("tenant")
	if !azureTenant.MatchString(tenant) {
		s.fault("/settings/tenant", "pattern", "settings.tenant must be the directory's id or domain, such as contoso.onmicrosoft.com")
		return "", ""
	}
	authority := s.text("authority")
	if authority == "" {
		authority = publicAzure
	}
	return strings.TrimSuffix(authority, "/") + "/" + tenant + "/oauth2/v2.0/token", "/settings/authority"
}

// check validates the whole entry and returns the endpoint's URL, nil if the secret names it.
func (s *settings) check() *url.URL {
	s.params()
	s.basic()
	s.text("client_id")
	if s.spec.Type == GoogleAccount {
		s.text("subject")
		if len(s.spec.Scopes) == 0 && s.text("audience") == "" {
			s.fault("/scopes", "required", "a Google service account needs scopes, or settings.audience for an identity token")
		}
	}
	if s.spec.Type == AzureAD && len(s.spec.Scopes) == 0 && s.text("resource") == "" {
		s.fault("/scopes", "required", "azure_ad needs a scope such as https://graph.microsoft.com/.default, or settings.resource")
	}
	if s.spec.NeedsCaller() {
		s.idp = s.checkCaller()
	}
	text, pointer := s.endpoint()
	switch {
	case text == "" && (s.spec.Type == GoogleAccount || pointer == ""):
		return nil
	case text == "":
		s.fault("/token_url", "required", s.spec.Type+" needs token_url, the address of the token endpoint")
		return nil
	}
	u, err := parseEndpoint(text)
	if err != "" {
		s.fault(pointer, "format", err)
	}
	return u
}

func parseEndpoint(text string) (*url.URL, string) {
	u, err := url.Parse(text)
	if err != nil || u.Scheme != "https" && u.Scheme != "http" || u.Hostname() == "" || u.User != nil || u.Fragment != "" {
		return nil, "the token endpoint must be an https URL without user and fragment"
	}
	return u, ""
}

// parseGrant parses an auth entry and its secret. Errors never repeat the secret.
func parseGrant(spec toolkeep.AuthSpec, plain string) (grant, error) {
	s := settings{spec: spec}
	endpoint := s.check()
	if len(s.faults) > 0 {
		return grant{}, unusable("the tool's auth cannot be used: %s", s.faults[0].Message)
	}
	c, err := parseSecret(&s, plain)
	if err != nil {
		return grant{}, err
	}
	g := grant{endpoint: endpoint, kind: "client_credentials", clientID: c.ClientID, clientSecret: c.ClientSecret, basic: s.basic(),
		scope: strings.Join(spec.Scopes, " "), params: s.params(), field: "access_token"}
	switch spec.Type {
	case ClientCredentials:
		err = c.need(c.ClientID != "" && c.ClientSecret != "", "must be client_id:client_secret, or JSON with client_id and client_secret")
	case Refresh:
		g.kind, g.refresh = "refresh_token", c.RefreshToken
		g.basic = g.basic && g.clientSecret != "" // a public client has nothing to prove
		err = c.need(c.ClientID != "" && c.RefreshToken != "", "must be JSON with client_id, refresh_token and, if it has one, client_secret")
	case AzureAD:
		err = g.azure(c)
	case GoogleAccount:
		err = g.google(&s, c)
	case Exchange:
		err = g.exchangeOf(&s, c)
	case Assertion:
		err = g.assertionOf(&s, c, s.idp)
	default:
		err = unusable("auth of type %q is not minted", spec.Type)
	}
	c.RefreshToken = ""
	g.identity = c.text()
	return g, err
}

// credential lists the fields that a secret may have.
type credential struct {
	ClientID     string `json:"client_id"`
	ClientSecret string `json:"client_secret"`
	RefreshToken string `json:"refresh_token"`
	Certificate  string `json:"certificate"` // PEM of certificate and key, or of the certificate only
	PrivateKey   string `json:"private_key"` // PEM
	Email        string `json:"client_email"`
	KeyID        string `json:"private_key_id"`
	TokenURI     string `json:"token_uri"`
	// What the identity provider knows Toolkeep by, if that is another client.
	IDPClientID     string `json:"idp_client_id,omitempty"`
	IDPClientSecret string `json:"idp_client_secret,omitempty"`
}

func (c credential) need(ok bool, why string) error {
	if ok {
		return nil
	}
	return unusable("the secret cannot be used: it %s", why)
}

// text returns all fields as one text, each at a fixed place.
func (c credential) text() string {
	b, err := json.Marshal(c)
	if err != nil {
		panic(err) // only strings
	}
	return string(b)
}

func parseSecret(s *settings, plain string) (credential, error) {
	var c credential
	id := s.text("client_id")
	trimmed := strings.TrimSpace(plain)
	switch {
	case strings.HasPrefix(trimmed, "{"):
		if json.Unmarshal([]byte(trimmed), &c) != nil {
			return c, unusable("the secret cannot be used: it looks like JSON and is not valid, or has a field of the wrong type")
		}
	case strings.HasPrefix(trimmed, "-----BEGIN "):
		c.Certificate = trimmed
	case id != "":
		c.ClientSecret = plain
	default:
		c.ClientID, c.ClientSecret, _ = strings.Cut(plain, ":")
	}
	if c.ClientID == "" {
		c.ClientID = id
	}
	return c, nil
}

func (g *grant) azure(c credential) error {
	g.basic = false
	resource := g.params["resource"]
	delete(g.params, "resource")
	if g.scope == "" {
		g.scope = strings.TrimSuffix(resource, "/") + "/.default"
	}
	if c.Certificate == "" {
		return c.need(c.ClientID != "" && c.ClientSecret != "", "must be client_id:client_secret, JSON with client_id and client_secret, or JSON with client_id and certificate (PEM with the key)")
	}
	if c.ClientID == "" {
		return c.need(false, "holds a certificate and no client_id, which settings.client_id may name as well")
	}
	g.clientSecret = ""
	audience := g.endpoint.String()
	g.sign = func(now time.Time) (string, error) { // the key is parsed only when a token is requested
		cert, key, err := parsePair(c.Certificate + "\n" + c.PrivateKey)
		if err != nil || cert == nil {
			return "", c.need(false, "must hold a certificate and its RSA key in PEM form")
		}
		sum := sha256.Sum256(cert.Raw)
		header := map[string]any{"alg": "PS256", "typ": "JWT", "x5t#S256": base64.RawURLEncoding.EncodeToString(sum[:])}
		return signJWT(key, header, map[string]any{"aud": audience, "iss": c.ClientID, "sub": c.ClientID, "jti": rand.Text(),
			"nbf": now.Unix(), "iat": now.Unix(), "exp": now.Add(azureLife).Unix()})
	}
	return nil
}

func (g *grant) google(s *settings, c credential) error {
	const want = "must be the JSON key of a service account, with client_email and private_key"
	if c.Email == "" || c.PrivateKey == "" {
		return c.need(false, want)
	}
	if g.endpoint == nil {
		var why string
		if g.endpoint, why = parseEndpoint(c.TokenURI); why != "" {
			return c.need(false, "names no token_uri that is an https URL, and neither does token_url")
		}
	}
	claims := map[string]any{"iss": c.Email, "aud": g.endpoint.String()}
	if subject := s.text("subject"); subject != "" {
		claims["sub"] = subject
	}
	if audience := s.text("audience"); audience != "" {
		claims["target_audience"] = audience
		g.field = "id_token"
	} else {
		claims["scope"] = g.scope
	}
	g.kind, g.scope, g.clientID, g.clientSecret, g.basic = jwtBearer, "", "", "", false
	delete(g.params, "audience")
	header := map[string]any{"alg": "RS256", "typ": "JWT"}
	if c.KeyID != "" {
		header["kid"] = c.KeyID
	}
	g.sign = func(now time.Time) (string, error) {
		_, key, err := parsePair(c.PrivateKey)
		if err != nil {
			return "", c.need(false, want)
		}
		all := map[string]any{"iat": now.Unix(), "exp": now.Add(assertionLife).Unix()}
		for k, v := range claims {
			all[k] = v
		}
		return signJWT(key, header, all)
	}
	return nil
}

// parsePair finds the first certificate and the RSA key among PEM blocks. cert is nil without a certificate.
func parsePair(text string) (cert *x509.Certificate, key *rsa.PrivateKey, err error) {
	rest := []byte(text)
	for {
		var block *pem.Block
		if block, rest = pem.Decode(rest); block == nil {
			break
		}
		switch block.Type {
		case "CERTIFICATE":
			if cert == nil {
				if cert, err = x509.ParseCertificate(block.Bytes); err != nil {
					return nil, nil, err
				}
			}
		case "RSA PRIVATE KEY":
			if key, err = x509.ParsePKCS1PrivateKey(block.Bytes); err != nil {
				return nil, nil, err
			}
		case "PRIVATE KEY":
			parsed, err := x509.ParsePKCS8PrivateKey(block.Bytes)
			if err != nil {
				return nil, nil, err
			}
			key, _ = parsed.(*rsa.PrivateKey)
		}
	}
	if key == nil {
		return nil, nil, x509.ErrUnsupportedAlgorithm
	}
	return cert, key, nil
}

// signJWT signs claims with RS256 or PS256, per the header.
func signJWT(key *rsa.PrivateKey, header, claims map[string]any) (string, error) {
	h, herr := json.Marshal(header, json.Deterministic(true))
	p, err := json.Marshal(claims, json.Deterministic(true))
	if herr != nil || err != nil {
		return "", unusable("the credential's names cannot be written as JSON")
	}
	text := base64.RawURLEncoding.EncodeToString(h) + "." + base64.RawURLEncoding.EncodeToString(p)
	sum := sha256.Sum256([]byte(text))
	var sig []byte
	if header["alg"] == "PS256" {
		sig, err = rsa.SignPSS(rand.Reader, key, crypto.SHA256, sum[:], &rsa.PSSOptions{SaltLength: rsa.PSSSaltLengthEqualsHash})
	} else {
		sig, err = rsa.SignPKCS1v15(nil, key, crypto.SHA256, sum[:])
	}
	if err != nil {
		return "", unusable("the private key of the credential cannot sign")
	}
	return text + "." + base64.RawURLEncoding.EncodeToString(sig), nil
}
