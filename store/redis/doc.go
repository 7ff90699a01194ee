// Package redis connects to what nodes share besides the store: a Redis server, or one
// with the same protocol. Its data may be lost at any time; nothing depends on it for
// correctness, and the gateway works without it.
//
// Limits of calls are counted here for all nodes; without it each node admits its share.
//
// A Client is one connection pool. Each use is a small type made from the Client, with
// its own key prefix: Cache stores bytes for a while. Values put into Redis must be
// sealed, or harmless to anyone with access to the server.
package redis
