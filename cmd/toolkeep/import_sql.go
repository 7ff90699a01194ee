package main

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/toolkeep/toolkeep/catalog"
	"github.com/toolkeep/toolkeep/catalog/source"
	"github.com/toolkeep/toolkeep/catalog/source/sql"
	"github.com/toolkeep/toolkeep/catalog/source/toolbox"
	"github.com/toolkeep/toolkeep/executor/sqltool"
)

// sqlPassword names the variable with the password for reading a schema.
const sqlPassword = "TOOLKEEP_SQL_PASSWORD"

func (a *app) importSQLCmd() *cobra.Command {
	o := sql.Options{}
	var choice importChoice
	c := &cobra.Command{
		Use:   "sql DSN",
		Short: "Turn tables and views of a database into tools that list, get and search",
		Long: `Turn chosen tables and views of PostgreSQL, MySQL, MariaDB or SQLite into tools that read: list with
filters by indexed columns, get by key, search in text columns.

This command connects to the database itself, to read its schema. The password for that comes from
the variable ` + sqlPassword + `, from the secret where it is env://NAME, or from the DSN, where other
users of this machine can see it. It is never written into a tool: --secret names the reference that
the server gets it from at each call.

TLS with a verified certificate is the default; ?sslmode=disable (PostgreSQL) or ?tls=false (MySQL)
disables it. The server opens SQLite files only below its setting sql.sqlite_roots, and Unix sockets
only in sql.socket_dirs.`,
		Example: `  toolkeep import sql postgres://reader@db.internal/shop --table orders --table 'sales.*' --secret secret://shop-db --dry-run
  toolkeep import sql 'mysql://reader@db.internal/shop?tls=skip-verify' --table '*' --secret env://TOOLKEEP_SECRET_SHOP
  toolkeep import sql /srv/data/books.db --table books --namespace books`,
		Args: arguments(1, 1, "the database's connection string"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := checkNamespace(o.Namespace); err != nil {
				return err
			}
			t, err := sql.ParseTarget(args[0])
			if err != nil {
				return usagef("%v", err)
			}
			if o.Secret != "" {
				if err := sql.CheckReference(o.Secret); err != nil {
					return usagef("--secret: %v", err)
				}
			}
			if t.Password != "" {
				fmt.Fprintf(a.stderr, "toolkeep: warning: other users of this machine can see a password on the command line; set %s instead\n", sqlPassword)
			}
			t.Password = a.schemaPassword(t.Password, o)
			o.Target = t
			return a.importSource(cmd.Context(), t.URI(), choice, func(previous source.Previous) (*source.Plan, error) {
				o.Previous = previous
				return checkSQL(sql.Read(cmd.Context(), o))
			})
		},
	}
	f := c.Flags()
	f.StringArrayVar(&o.Tables, "table", nil, "table or view, with its schema or without; * and ? stand for letters; repeatable")
	f.StringVar(&o.Namespace, "namespace", "", "namespace of the tools; made from the database's name if absent")
	f.StringVar(&o.Secret, "secret", "", "reference of the password, such as secret://shop-db, for the calls")
	f.BoolVar(&o.Login, "login", false, "the secret is user:password and not the password alone")
	importFlags(c, &choice)
	return a.withJSON(c)
}

// schemaPassword returns the password for reading the schema: from the variable, from the secret if it is a
// variable of this process, or from the DSN.
func (a *app) schemaPassword(given string, o sql.Options) string {
	if p, _ := a.variable(sqlPassword); p != "" {
		return p
	}
	if given != "" {
		return given
	}
	if name, ok := strings.CutPrefix(o.Secret, "env://"); ok {
		p, _ := a.variable(name)
		if _, password, ok := strings.Cut(p, ":"); o.Login && ok {
			return password
		}
		return p
	}
	return ""
}

func (a *app) importToolboxCmd() *cobra.Command {
	o := toolbox.Options{}
	var choice importChoice
	var secrets []string
	c := &cobra.Command{
		Use:   "toolbox FILE",
		Short: "Turn the SQL tools of an MCP Toolbox tools.yaml into tools",
		Long: `Turn the tools of an MCP Toolbox for Databases configuration into tools: those of kind postgres-sql,
mysql-sql and sqlite-sql, their -execute-sql, and the kinds of Toolbox's prebuilt files, such as
postgres-list-tables, whose source is a PostgreSQL, MySQL or SQLite database. Everything else is
refused by name and reason, such as cloud sources. Tools that take SQL from their caller only read
and have risk high.

A tool can only read, which the database enforces, unless --write names it.`,
		Example: `  toolkeep import toolbox tools.yaml --secret my-pg=env://TOOLKEEP_SECRET_SHOP --dry-run
  toolkeep import toolbox tools.yaml --write book-hotel --write cancel-hotel`,
		Args: arguments(1, 1, "the tools.yaml"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := checkNamespace(o.Namespace); err != nil {
				return err
			}
			var err error
			o.Name = args[0]
			if o.Data, err = readFile(args[0]); err != nil {
				return usagef("%v", err)
			}
			o.Env = func(name string) string {
				v, _ := a.variable(name)
				return v
			}
			for _, s := range secrets {
				name, ref, ok := strings.Cut(s, "=")
				if !ok || name == "" || sql.CheckReference(ref) != nil {
					return usagef("--secret %s=…: write SOURCE=secret://NAME or another reference; never give the secret itself on the command line", name)
				}
				if o.Secrets == nil {
					o.Secrets = make(map[string]string)
				}
				o.Secrets[name] = ref
			}
			return a.importSource(cmd.Context(), o.Name, choice, func(previous source.Previous) (*source.Plan, error) {
				o.Previous = previous
				return checkSQL(toolbox.Read(o))
			})
		},
	}
	f := c.Flags()
	f.StringVar(&o.Namespace, "namespace", "", "namespace of the tools; made from each source's database if absent")
	f.StringArrayVar(&secrets, "secret", nil, "reference of a source's password, `SOURCE=secret://NAME`; repeatable")
	f.StringArrayVar(&o.Write, "write", nil, "tool that writes; repeatable")
	f.StringVar(&o.TLS, "tls", "verify", "TLS for sources that do not set it: verify, require or off")
	importFlags(c, &choice)
	return a.withJSON(c)
}

// checkSQL moves tools that the server would refuse at publish to the refused ones, such as tools whose
// placeholders and parameters differ. Whether a tool may open a file or a socket depends on the server's settings.
func checkSQL(plan *source.Plan, err error) (*source.Plan, error) {
	if err != nil {
		return nil, err
	}
	e := sqltool.New(sqltool.Config{})
	defer e.Close()
	kept := plan.Tools[:0]
	for _, t := range plan.Tools {
		tool, err := catalog.ParseManifest(t.Manifest)
		if err != nil {
			return nil, err
		}
		why := ""
		for _, f := range e.Check(tool.Manifest) {
			if f.Rule != "roots" && why == "" {
				why = f.Pointer + ": " + f.Message
			}
		}
		if why == "" {
			kept = append(kept, t)
			continue
		}
		plan.Refused = append(plan.Refused, source.Refused{Origin: t.Origin, Reason: why})
	}
	plan.Tools = kept
	return plan, nil
}
