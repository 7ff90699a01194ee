// Package capability reads, makes and revokes capability tokens: JSON Web Tokens that a
// caller sends beside its key, and that narrow what one call may do (Platform 4.1.1). A token
// never widens: a caller that sends one has the rights of its key, within those of the token.
//
// # Claims
//
//	iss, iat, exp, jti       who made it, when, until when, and its name for revocation
//	nbf, aud                 not before; the servers it is for
//	tenant_id, agent_did     whose calls it is for; sub may stand for agent_did
//	tool_id                  a pattern on tool ids, or a list of them
//	tool_version             a SemVer range; absent is every version
//	allowed_operations       execute, or read for tools that do not write
//	filesystem_permissions   {"allowed_paths": […], "mode": "ro" or "rw"}
//	network_permissions      {"allowed_hosts": […], "allowed_ports": […]}
//	credential_permissions   {"allowed_secrets": […]}
//	parent_jtis              the tokens that it was made from, the oldest first
//
// tool_id, agent_did, tenant_id, iat and exp must be there (E3207). An absent list does not
// narrow, an empty one allows nothing, and a claim of this list that cannot be read refuses
// the token. Other claims are ignored. A token without jti has a name made of its content.
//
// # Verification
//
// A token is verified without asking anybody: by the keys of a file that the operator names,
// and by the server's own, which all nodes read from the store. The type of a key says which
// algorithm it verifies, never the token; keys and addresses in a token are not used. Claims
// are read only after the signature. A verified token is remembered by its SHA-256 until
// the keys change; its times and the revocation list are asked each time.
//
// # Revocation
//
// A revoked name is a document, and holds for every token that was made from it. It is kept
// for the longest lifetime of a token, after which the token has expired by itself, and for the
// longest wait of a call, since nothing else stops a waiting call that the token admitted.
package capability
