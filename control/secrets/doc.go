// Package secrets is what people decide about secrets: which there are, who uses them,
// and with which key everything is sealed.
//
// Two kinds of state stand behind it. Stored secrets are documents of secret.Local.
// The sealing keys are those of this server (a key file or TOOLKEEP_SEAL_KEY) or
// Vault's transit engine; OpenSealer refuses keys that do not open what the store
// holds, which one sealed document (secret.CheckKind) tells. A key file is made only
// for a store that holds nothing sealed.
package secrets
