// Package redis connects to what nodes share besides the store: a Redis server, or one
// with the same protocol. Its data may be lost at any time; nothing depends on it for
// correctness, and the gateway works without it.
//
// A Client is one connection pool. Each use is a small type made from the Client, with
// its own key prefix: Cache stores bytes for a while. Values put into Redis must be
// sealed, or harmless to anyone with access to the server.
package redis
