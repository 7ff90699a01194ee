package rest

import (
	"context"
	"encoding/json"
	"net/http"
	"time"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/access/capability"
	"github.com/toolkeep/toolkeep/face/gate"
)

// Tokens is what control/tokens does, which see.
type Tokens interface {
	Mint(ctx context.Context, p *toolkeep.Principal, c capability.Claims, parent toolkeep.CapabilityToken) (string, *capability.Claims, error)
	Revoke(ctx context.Context, p *toolkeep.Principal, jti string) error
	RotateKey(ctx context.Context, p *toolkeep.Principal, drop bool) (kid string, err error)
	PublicKeys() ([]byte, error)
}

// TokenFiles, TokenNetwork and TokenSecrets name the schemas in the document.
type (
	TokenFiles struct {
		Paths []string `json:"allowed_paths" maxItems:"100" doc:"absolute folders or files of the server, with all below them"`
		Mode  string   `json:"mode,omitempty" enum:"ro,rw" doc:"default ro"`
	}
	TokenNetwork struct {
		Hosts []string `json:"allowed_hosts" maxItems:"100" doc:"names, addresses, or *.NAME for all below NAME"`
		Ports []int    `json:"allowed_ports,omitempty" maxItems:"100" doc:"absent: every port"`
	}
	TokenSecrets struct {
		Secrets []string `json:"allowed_secrets" maxItems:"100" doc:"references as manifests write them; a name alone is secret://name"`
	}
)

type mintTokenInput struct {
	Presented string `header:"X-Capability-Token" doc:"the caller's token; the new one is made from it, as with parent"`
	Body      struct {
		Agent      string        `json:"agent_did" minLength:"1" maxLength:"256" doc:"whose calls it is for: the subject of that agent's key"`
		Tools      []string      `json:"tool_id,omitempty" maxItems:"100" doc:"patterns on tool ids, such as weather.*; required without a parent"`
		Version    string        `json:"tool_version,omitempty" maxLength:"256" doc:"SemVer range; absent: every version"`
		Operations []string      `json:"allowed_operations,omitempty" maxItems:"100" doc:"execute, or read for tools that do not write; absent: execute"`
		Files      *TokenFiles   `json:"filesystem_permissions,omitempty"`
		Network    *TokenNetwork `json:"network_permissions,omitempty"`
		Secrets    *TokenSecrets `json:"credential_permissions,omitempty"`
		Seconds    int           `json:"ttl_seconds,omitempty" minimum:"1" maximum:"2592000" doc:"lifetime; default an hour, or the parent's"`
		NotBefore  *time.Time    `json:"not_before,omitempty"`
		Parent     string        `json:"parent,omitempty" maxLength:"16384" doc:"the caller's token; the new one is within it, and needs no permission"`
	} `nameHint:"MintTokenRequest"`
}

func (in *mintTokenInput) needs(_ *API, p *toolkeep.Principal, body tree) error {
	if in.Presented != "" || textOf(body["parent"]) != "" {
		return nil
	}
	return gate.Need(p, toolkeep.PermTokens)
}

type mintTokenOutput struct {
	Body struct {
		Token   string    `json:"token" doc:"shown once"`
		ID      string    `json:"jti" doc:"revokes it"`
		Agent   string    `json:"agent_did"`
		Tools   []string  `json:"tool_id"`
		Parents []string  `json:"parent_jtis,omitempty"`
		Expires time.Time `json:"expires_at"`
	} `nameHint:"MintedToken"`
}

func (a *API) mintToken(ctx context.Context, p *toolkeep.Principal, in *mintTokenInput) (*mintTokenOutput, error) {
	b := &in.Body
	parent := b.Parent
	switch {
	case parent == "":
		parent = in.Presented
	case in.Presented != "" && in.Presented != parent:
		return nil, toolkeep.NewError(toolkeep.InvalidParameters, "the header X-Capability-Token and parent are two tokens that differ; send one")
	}
	c := capability.Claims{Grant: toolkeep.Grant{Agent: b.Agent, Tools: b.Tools, Version: b.Version, Operations: b.Operations}}
	if b.Files != nil {
		c.Grant.Files = &toolkeep.FileGrant{Paths: b.Files.Paths, Mode: b.Files.Mode}
	}
	if b.Network != nil {
		c.Grant.Network = &toolkeep.NetworkGrant{Hosts: b.Network.Hosts, Ports: b.Network.Ports}
	}
	if b.Secrets != nil {
		c.Grant.Secrets = &toolkeep.CredentialGrant{Secrets: b.Secrets.Secrets}
	}
	if b.Seconds > 0 {
		c.Expires = time.Now().Add(time.Duration(b.Seconds) * time.Second)
	}
	if b.NotBefore != nil {
		c.NotBefore = *b.NotBefore
	}
	text, made, err := a.c.Tokens.Mint(ctx, p, c, toolkeep.CapabilityToken(parent))
	if err != nil {
		return nil, err
	}
	out := &mintTokenOutput{}
	out.Body.Token, out.Body.ID, out.Body.Agent, out.Body.Tools = text, made.Grant.ID, made.Grant.Agent, made.Grant.Tools
	out.Body.Parents, out.Body.Expires = made.Grant.Parents, made.Expires.UTC()
	return out, nil
}

type revokeTokenInput struct {
	ID string `path:"jti" maxLength:"256" doc:"the token's claim jti"`
}

func (a *API) revokeToken(ctx context.Context, p *toolkeep.Principal, in *revokeTokenInput) (*struct{}, error) {
	return nil, a.c.Tokens.Revoke(ctx, p, in.ID)
}

type tokenKeysOutput struct {
	Body struct {
		Keys []object `json:"keys" doc:"JSON Web Keys"`
	} `nameHint:"TokenKeys"`
}

func (a *API) tokenKeys(context.Context, *toolkeep.Principal, *struct{}) (*tokenKeysOutput, error) {
	raw, err := a.c.Tokens.PublicKeys()
	if err != nil {
		return nil, err
	}
	var set struct {
		Keys []json.RawMessage `json:"keys"`
	}
	if err := json.Unmarshal(raw, &set); err != nil {
		return nil, err
	}
	out := &tokenKeysOutput{}
	out.Body.Keys = make([]object, len(set.Keys))
	for i, k := range set.Keys {
		out.Body.Keys[i] = object(k)
	}
	return out, nil
}

type rotateTokenKeyInput struct {
	Body struct {
		Drop bool `json:"drop_old,omitempty" doc:"remove the old keys at once, which ends every token of this server; else they verify until their tokens expire"`
	} `nameHint:"RotateTokenKeyRequest"`
}

type rotateTokenKeyOutput struct {
	Body struct {
		KeyID string `json:"kid"`
	} `nameHint:"RotatedTokenKey"`
}

func (a *API) rotateTokenKey(ctx context.Context, p *toolkeep.Principal, in *rotateTokenKeyInput) (*rotateTokenKeyOutput, error) {
	kid, err := a.c.Tokens.RotateKey(ctx, p, in.Body.Drop)
	if err != nil {
		return nil, err
	}
	out := &rotateTokenKeyOutput{}
	out.Body.KeyID = kid
	return out, nil
}

// tokenRoutes are the routes of capability tokens.
func (a *API) tokenRoutes() {
	if a.c.Tokens == nil {
		return
	}
	op := func(method, path, id, summary string) route {
		return op(method, "/api/v1/tokens"+path, id, tagAdmin, summary)
	}
	mint := op("POST", "", "mintToken", "Make a capability token, or a narrower one from your own")
	mint.status, mint.spares = http.StatusCreated, toolkeep.PermTokens
	register(a, mint, "", a.mintToken)
	register(a, op("GET", "/keys", "tokenKeys", "Read the public keys that verify this server's capability tokens"), "", a.tokenKeys)
	register(a, op("POST", "/keys", "rotateTokenKey", "Make a new key for capability tokens"), toolkeep.PermTokens, a.rotateTokenKey)
	register(a, op("DELETE", "/{jti}", "revokeToken", "Revoke a capability token and all that were made from it"), toolkeep.PermTokens, a.revokeToken)
}
