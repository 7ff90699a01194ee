// Package sql reads the schema of a database and plans the tools that list, get and search the rows
// of selected tables and views. The statements are fixed texts with bound values; names of tables
// and columns are quoted by the database's rules.
//
// # Connection strings
//
//	postgres://USER[:PASSWORD]@HOST[:PORT]/DATABASE[?sslmode=disable|require|verify-full]
//	postgres://USER@/DATABASE?host=/DIRECTORY/OF/THE/SOCKET
//	mysql://USER[:PASSWORD]@HOST[:PORT]/DATABASE[?tls=false|skip-verify|true], mariadb:// as well
//	mysql://USER@/DATABASE?socket=/PATH/OF/THE/SOCKET
//	sqlite:///PATH/OF/THE/FILE, or the file's path alone
//
// TLS with a verified certificate is the default. The password is only used to read the schema: a
// manifest names a secret reference.
package sql
