// Package sqltool executes tools of kind "sql": a fixed statement with typed
// parameters, or several in one transaction, on PostgreSQL, MySQL, MariaDB or SQLite.
//
// # The binding
//
// execution.binding of a manifest:
//
//	{ "database": "postgres",
//	  "connection": {"host": "db.internal", "port": 5432, "database": "shop", "user": "reader",
//	                 "tls": "verify", "server_name": "", "ca": "PEM"},
//	  "statement": "SELECT id, total FROM orders WHERE customer = $1 AND placed >= $2 LIMIT $3",
//	  "parameters": [ {"name": "customer"}, {"name": "since", "arg": "placed_since"},
//	                  {"name": "limit", "type": "integer", "default": 50} ],
//	  "max_rows": 1000, "max_bytes": 1000000 }
//
// connection: socket (a directory for PostgreSQL, a file for MySQL) instead of host and
// port; only file for SQLite. tls is verify (the default over TCP), require (encrypted
// but unauthenticated) or off. superuser accepts a login that a read-only transaction
// cannot restrict.
//
// statements, a list of {statement, parameters}, replaces statement and runs several in
// one transaction. results is last (the default) or all; isolation is read committed,
// repeatable read or serializable; write: true declares a writing tool, whose manifest
// says side_effects: writes. Either all statements take effect or none: those that end
// the transaction are refused at publishing, and among several of MySQL or MariaDB those
// that may commit by themselves (CREATE, ALTER, SET, CALL, …).
//
// # Parameters
//
// parameters are in the order of the placeholders: $1 of PostgreSQL, ? of MySQL, ? or
// ?1 of SQLite. arg is the argument, by default the name. A missing argument is its
// default, or NULL. type (text, integer, number, boolean, bytes, json, date, time,
// timestamp, uuid, each with [] for a list in PostgreSQL) declares the type; without it
// PostgreSQL infers one, and the others use the value's own. bytes are base64, json is
// the value as JSON text; a timestamp with a
// zone is that instant in UTC, except in SQLite, which compares texts. like (contains, prefix, suffix) builds a LIKE pattern that
// matches the text literally; the statement must say ESCAPE '!'. page_size marks the
// parameter of LIMIT: its value is how many rows are shown, and the database is asked for
// one more, so that truncated is known.
//
// Values are bound by the database's protocol, never inserted into the text. Names,
// keywords and parts of a statement cannot be parameters.
//
// insert lists arguments whose texts stand in the statement as {{.name}}, or {{array
// .name}} for a list, as they are; {{if .name}} to {{end}} is left out where the argument is
// empty. Only a tool that reads may have them, without superuser:
// the database enforces reading for whatever they say.
//
// # Reading
//
// For a tool that does not declare writing, the database enforces reading, not a check
// of the text:
//
//   - PostgreSQL runs it in a READ ONLY transaction that is rolled back, by the
//     extended protocol, which accepts a single statement. The server describes the
//     statement first; one that returns no rows (COMMIT, SET, DO, COPY, …) is never
//     executed. The first snapshot is taken before anything runs; after that the
//     server refuses to set the transaction to READ WRITE.
//   - MySQL and MariaDB run it prepared, which accepts a single statement, in START
//     TRANSACTION READ ONLY. The server must also parse it after EXPLAIN FORMAT=JSON,
//     which accepts queries and what READ ONLY refuses, but neither CALL nor COMMIT.
//   - SQLite opens the file with mode=ro and query_only, defensive; an authorizer
//     excludes ATTACH, PRAGMA, transactions and extensions at compile time.
//
// A login that is a superuser, or may run programs or write files on its server, is
// refused: no transaction undoes that. Violations are E3610.
//
// # Results
//
//	{ "rows": [{…}], "row_count": 2, "truncated": false, "columns": [{"name": "id", "type": "int8"}] }
//
// max_rows and max_bytes bound it; the server is asked for no more (PostgreSQL) or told
// to stop (MySQL). A truncated result has a warning, and a writing statement returns
// rows_affected and last_insert_id. A duplicate column name gets _2.
//
// Integers and decimals keep every digit as JSON numbers; NaN and infinities are text.
// Times with a zone are RFC 3339 in UTC, times without have none, SQLite's are as they are
// stored; bytes are base64;
// json is embedded; arrays are arrays; intervals (ISO 8601), ranges, addresses and all
// other types are the database's text. MySQL's zero dates are null.
//
// # Connections
//
// Connections are pooled per tenant, connection, allow-list, credential and direction
// (read or write), with a limit for each pool and for all. TCP goes through the egress
// guard; Unix sockets and SQLite files are opened only in the operator's folders. The
// session's time limit and the pools' cleanup keep a call's session state from the next
// call; MySQL's user variables and named locks are the exception and live as long as
// the session.
//
// When a call's context ends, the server is told to cancel (PostgreSQL's cancel
// request, KILL, sqlite3_interrupt) and the session is closed. The server also has the
// attempt's time limit.
package sqltool
