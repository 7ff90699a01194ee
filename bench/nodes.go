package main

import (
	"fmt"
	"path/filepath"
)

// nodes measures one node and three on one PostgreSQL, and three with a database each. They share the machine with
// each other, with it and with the clients, so this is what several nodes cost, not
// what more machines would bring.
func nodes(b *bench) (part, error) {
	db, err := startDatabase()
	if err != nil {
		return part{}, err
	}
	defer db.stop()
	p := part{set: fmt.Sprintf("Set: %d clients in a closed loop over REST, each taking the nodes in turn, the call of 600 bytes, limits off; "+
		"%s as initdb sets it up, over TCP. Nodes, PostgreSQL and clients share the machine's cores, so more nodes do not bring more calls here.",
		clients, db.set)}
	for i, c := range []struct {
		name          string
		nodes, stores int
	}{{"1 node", 1, 1}, {"3 nodes", 3, 1}, {"3 nodes that share nothing", 3, 3}} {
		rows, err := b.cluster(db, fmt.Sprint("nodes", i), c.name, c.nodes, c.stores)
		if err != nil {
			return part{}, err
		}
		p.rows = append(p.rows, rows...)
	}
	return p, nil
}

// cluster measures n nodes on one database, or on as many: the floor of what they cost together.
func (b *bench) cluster(db *database, id, name string, n, stores int) ([][]string, error) {
	var shared [][]string
	for i := range stores {
		dsn, err := db.create(fmt.Sprint(id, "_", i))
		if err != nil {
			return nil, err
		}
		shared = append(shared, onPostgres(dsn, filepath.Join(b.dir, id, fmt.Sprint("shared", i))))
	}
	var servers []*process
	defer func() {
		for _, p := range servers {
			p.stop()
		}
	}()
	for i := range n {
		start := startNode
		if i < stores {
			start = startToolkeep
		}
		p, err := start(b.binary, filepath.Join(b.dir, id, fmt.Sprint("node", i)), shared[i%stores]...)
		if err != nil {
			return nil, err
		}
		servers = append(servers, p)
		if i >= stores {
			p.key = servers[0].key
		}
	}
	return bothCalls(name, b.d, db.cpu, servers...)
}

// onPostgres is what nodes need that share a database and a directory.
func onPostgres(dsn, dir string) []string {
	return []string{"TOOLKEEP_STORE_DSN=" + dsn, "TOOLKEEP_STORE_BLOBS=" + filepath.Join(dir, "blobs"),
		"TOOLKEEP_SECRETS_SEAL_KEY=" + filepath.Join(dir, "seal.key")}
}
