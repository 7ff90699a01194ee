// Package sqltool carries out tools of kind "sql": a named statement with typed
// parameters, or several in one transaction, on PostgreSQL, MySQL, MariaDB or
// SQLite.
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
// connection: socket (a directory for PostgreSQL, a file for MySQL) in place of host
// and port, file alone for SQLite. tls is verify (the default over TCP), require
// (encrypted, to whoever answers) or off. superuser lets in a login that a
// read-only transaction does not hold.
//
// statements, a list of {statement, parameters}, in place of statement runs several
// in one transaction. results is last (the default) or all; isolation is read
// committed, repeatable read or serializable; write: true is a tool that writes,
// whose manifest says side_effects: writes.
//
// # Parameters
//
// parameters are in the order of the placeholders: $1 of PostgreSQL, ? of MySQL, ?
// or ?1 of SQLite. arg is the argument, by default the name. What is absent is the
// default, or NULL. type (text, integer, number, boolean, bytes, json, date, time,
// timestamp, uuid, each with [] for a list in PostgreSQL) declares the type; without
// it PostgreSQL infers one, and the others take the value's own. bytes are base64,
// json is the value as JSON text. like (contains, prefix, suffix) makes a LIKE
// pattern that matches the text as it is; the statement says ESCAPE '!'.
//
// Values are bound by the database's protocol and never put into text. There is no
// way to fill in a name, a keyword or a part of a statement.
//
// # Reading
//
// A tool that does not say that it writes is held to reading by the database, not by
// a look at its text:
//
//   - PostgreSQL runs it in a READ ONLY transaction that is rolled back, by the
//     extended protocol, which takes one statement. The server describes the statement
//     first; one that gives no rows (COMMIT, SET, DO, COPY, …) is never carried out.
//     The first snapshot is taken before anything runs, after which the server lets
//     nobody set the transaction to READ WRITE.
//   - MySQL and MariaDB run it prepared, which takes one statement, in START
//     TRANSACTION READ ONLY. The server must also parse it behind EXPLAIN FORMAT=JSON,
//     which takes queries and what READ ONLY refuses, and neither CALL nor COMMIT.
//   - SQLite opens the file with mode=ro and query_only, defensive; an authorizer
//     keeps out ATTACH, PRAGMA, transactions and extensions as it compiles.
//
// A login that is a superuser, or may run programs or write files on its server, is
// refused: no transaction undoes that. Violations are E3610.
//
// # Results
//
//	{ "rows": [{…}], "row_count": 2, "truncated": false, "columns": [{"name": "id", "type": "int8"}] }
//
// max_rows and max_bytes bound it; the server is asked for no more (PostgreSQL) or
// told to stop (MySQL). There is a warning where it is truncated, and rows_affected
// and last_insert_id where a statement writes. A name that comes twice gets _2.
//
// Integers and decimals keep every digit as JSON numbers; NaN and infinities are
// text. Times with a zone are RFC 3339 in UTC, times without have none; bytes are
// base64; json is embedded; arrays are arrays; intervals (ISO 8601), ranges,
// addresses and what else there is are the database's text. MySQL's zero dates are
// null.
//
// # Connections
//
// Are pooled for one tenant, one connection, one allow-list, one credential and one
// direction (read or write), with a bound for each pool and for all. TCP goes
// through the egress guard; Unix sockets and SQLite files only where the operator
// opens a folder. The session's time limit and the pools' cleanup keep what a call
// did to its session from the next; MySQL's user variables and locks by name are
// the exception and live as long as the session.
//
// When a call's context ends, the server is told to cancel (PostgreSQL's cancel
// request, KILL, sqlite3_interrupt) and the session is closed. The server has the
// attempt's time limit, too.
package sqltool
