package datadir

import (
	"crypto/sha256"
	"encoding/hex"
	"regexp"
	"strings"
)

// TenantMark stands for the caller's tenant in paths that an operator or a manifest writes.
const TenantMark = "{tenant}"

// MaxElement is how many bytes an element of a path may have.
const MaxElement = 255

// ForTenant puts a tenant's name, as it is, in the place of each TenantMark. ok is false if
// the name cannot be an element of a path.
func ForTenant(path, tenant string) (_ string, ok bool) {
	if !strings.Contains(path, TenantMark) {
		return path, true
	}
	if tenant == "" || tenant == "." || tenant == ".." || len(tenant) > MaxElement || strings.ContainsAny(tenant, "/\x00") {
		return "", false
	}
	return strings.ReplaceAll(path, TenantMark, tenant), true
}

var plainName = regexp.MustCompile(`^[a-z0-9][a-z0-9_-]{0,63}$`)

// PlainName tells whether a name has 1 to 64 small letters, digits, _ and -, a letter or digit
// first. Such a name is that of a file or folder as it is, on every disk.
func PlainName(name string) bool { return plainName.MatchString(name) }

// TenantFolder names the folder of a tenant, in a folder that Toolkeep alone fills. Every
// name has one, different from every other's also where the disk ignores case: the name
// itself, or + and its SHA-256 where it has more than small letters, digits, _ and -.
func TenantFolder(tenant string) string {
	if PlainName(tenant) {
		return tenant
	}
	sum := sha256.Sum256([]byte(tenant))
	return "+" + hex.EncodeToString(sum[:])
}
