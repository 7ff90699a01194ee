package main

import (
	"fmt"
	"path/filepath"
)

// nodes measures one node and three on one PostgreSQL. They share the machine with
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
	for _, n := range []int{1, 3} {
		name := fmt.Sprintf("%d nodes", n)
		if n == 1 {
			name = "1 node"
		}
		rows, err := b.cluster(db, name, n)
		if err != nil {
			return part{}, err
		}
		p.rows = append(p.rows, rows...)
	}
	return p, nil
}

// cluster measures n nodes on a database of their own.
func (b *bench) cluster(db *database, name string, n int) ([][]string, error) {
	dsn, err := db.create(fmt.Sprintf("nodes%d", n))
	if err != nil {
		return nil, err
	}
	dir := filepath.Join(b.dir, name)
	shared := onPostgres(dsn, dir)
	var servers []*process
	defer func() {
		for _, p := range servers {
			p.stop()
		}
	}()
	for i := range n {
		own := filepath.Join(dir, fmt.Sprint("node", i))
		start := startNode
		if i == 0 {
			start = startToolkeep
		}
		p, err := start(b.binary, own, shared...)
		if err != nil {
			return nil, err
		}
		servers = append(servers, p)
		p.key = servers[0].key
	}
	return bothCalls(name, b.d, db.cpu, servers...)
}

// onPostgres is what nodes need that share a database and a directory.
func onPostgres(dsn, dir string) []string {
	return []string{"TOOLKEEP_STORE_DSN=" + dsn, "TOOLKEEP_STORE_BLOBS=" + filepath.Join(dir, "blobs"),
		"TOOLKEEP_SECRETS_SEAL_KEY=" + filepath.Join(dir, "seal.key")}
}
