package doctor

import (
	"errors"
	"io/fs"
	"os"
	"time"
)

// archive checks the folder of the audit's archive.
func (d *doctor) archive() {
	dir := d.c.Archive
	if dir == "" {
		return
	}
	switch fi, err := os.Stat(dir); {
	case errors.Is(err, fs.ErrNotExist):
		d.add("archive", Warn, "is audit.archive right, and is its disk mounted?", "the folder %s is not there; serve makes it", dir)
	case err != nil:
		d.add("archive", Fail, "give the user that runs serve access to it", "the folder %s cannot be read: %v", dir, err)
	case !fi.IsDir():
		d.add("archive", Fail, "name another in audit.archive", "%s is not a folder", dir)
	case fi.Mode().Perm()&0o077 != 0:
		d.add("archive", Warn, "chmod 700 "+d.c.Quote(dir), "the folder %s is open to others than its owner (mode %04o)", dir, fi.Mode().Perm())
	default:
		d.add("archive", OK, "", "%s, mode %04o", dir, fi.Mode().Perm())
	}
}

var archiveSamples = []string{"toolkeep_audit_archive_failing", "toolkeep_audit_archive_held_seconds", "toolkeep_audit_archive_missed_total"}

// archiving says how the server comes on with the archive.
func (d *doctor) archiving(values map[string]float64) {
	failing, there := values[archiveSamples[0]]
	held, missed := values[archiveSamples[1]], values[archiveSamples[2]]
	if !there {
		return
	}
	for _, c := range []struct {
		is     bool
		state  string
		advice string
		text   string
		args   []any
	}{
		{missed > 0, Fail, "see the log for when; set audit.archive_wait longer", "retention removed up to %.0f entries before they were archived", []any{missed}},
		{failing > 0, Fail, "the log and /health say why; make room or mend the disk before audit.archive_wait is over", "the audit's archive cannot be written", nil},
		{held > 0, Warn, "retention removes what is older than audit.archive_wait, archived or not", "retention has waited %s for the audit's archive; the database grows meanwhile",
			[]any{(time.Duration(held) * time.Second).Round(time.Minute)}},
	} {
		if c.is {
			d.add("archiving", c.state, c.advice, c.text, c.args...)
		}
	}
	if missed == 0 && failing == 0 && held == 0 {
		d.add("archiving", OK, "", "the server archives what was recorded")
	}
}
