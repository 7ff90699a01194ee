package toolkeep

import "regexp"

var folderName = regexp.MustCompile(`^[a-z0-9][a-z0-9._-]{0,63}$`)

// CheckFolder checks the name of a folder of configuration, which marks what was applied from it. E3301.
func CheckFolder(name string) error {
	if folderName.MatchString(name) {
		return nil
	}
	return NewError(InvalidParameters, "%q is not the name of a folder of configuration: write 1 to 64 of a-z, 0-9, dot, hyphen and underscore, a letter or digit first", ClipBytes(name, 64))
}
