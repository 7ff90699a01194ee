// Package redis is what nodes share beside their store: a Redis server, or one that
// speaks its protocol. What lies there may be lost at any time; nothing of it is needed
// to be right, and everything goes on while it is away.
//
// A Client is one pool of connections. Each use of it is a small type of its own, made
// from the Client, with keys under its own prefix: Cache keeps bytes for a while. What
// is put into Redis must be sealed, or harmless to whoever reads and writes there.
package redis
