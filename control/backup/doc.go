// Package backup copies everything that a server keeps into one archive, while it runs or
// not, and makes a data directory from an archive. An archive may come from anywhere: its
// names, sizes and kinds of files are bounded before anything is written.
package backup
