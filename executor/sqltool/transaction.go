package sqltool

import (
	"slices"
	"strconv"
	"strings"

	"github.com/toolkeep/toolkeep"
	"github.com/toolkeep/toolkeep/executor/bindings"
)

// First words of statements that begin, end or divide a transaction.
var transactionWords = map[dialect][]string{
	postgres: {"BEGIN", "START", "COMMIT", "END", "ROLLBACK", "ABORT", "SAVEPOINT", "RELEASE", "PREPARE TRANSACTION"},
	mysqlDB:  {"BEGIN", "START", "COMMIT", "ROLLBACK", "SAVEPOINT", "RELEASE", "XA", "LOCK", "UNLOCK"},
	sqliteDB: {"BEGIN", "COMMIT", "END", "ROLLBACK", "SAVEPOINT", "RELEASE"},
}

// First words of the statements of MySQL and MariaDB that never commit by themselves. What
// changes definitions, rights or settings does, and a called procedure may.
var mysqlAtomic = []string{"SELECT", "INSERT", "UPDATE", "DELETE", "REPLACE", "WITH", "VALUES", "TABLE", "DO", "SHOW", "DESCRIBE", "DESC", "EXPLAIN"}

// checkTransactions collects the statements that would end the transaction that the call
// runs in: all statements of a call are kept or none. PostgreSQL and SQLite undo every
// other statement too, PostgreSQL also what a procedure did; MySQL does not, so that
// several statements are limited to those that it undoes.
func (b *binding) checkTransactions(top *bindings.Object) {
	for i, st := range b.statements {
		if len(st.first) == 0 {
			continue
		}
		why := ""
		switch word := st.first[0]; {
		case slices.Contains(transactionWords[b.dialect], word), slices.Contains(transactionWords[b.dialect], strings.Join(st.first, " ")):
			why = word + " is forbidden; each call is one transaction, which the server begins and ends"
		case b.dialect == mysqlDB && len(b.statements) > 1 && !slices.Contains(mysqlAtomic, word):
			why = word + " is forbidden among several statements: MySQL and MariaDB may commit before or after it, so that not all of them could be undone; give it a tool of its own"
			if word == "SET" {
				why = "SET is forbidden among several statements: it may commit; to keep a value for a later statement write SELECT … INTO @name"
			}
		}
		if why == "" {
			continue
		}
		at := top.Pointer("statement")
		if _, many := top.Tree["statements"]; many {
			at = top.Pointer("statements") + "/" + strconv.Itoa(i) + "/statement"
		}
		b.apart = append(b.apart, toolkeep.Fault{Pointer: at, Rule: "transaction", Message: why})
	}
}
