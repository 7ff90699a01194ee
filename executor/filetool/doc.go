// Package filetool executes tools of kind "file": one operation, read, write, list,
// stat or delete, on files in the folders that the manifest requests and the operator
// opens.
//
// # Folders
//
// A manifest requests folders with permissions.filesystem, the operator opens folders
// with the setting files.roots, and a tool may use what is in both: a folder of one
// list inside a folder of the other, writable only if both say rw. The same rule (meet)
// applies further limits on top. Folders add up: an inner folder does not close what an
// outer one opens.
//
// {tenant} as a path element stands for the caller's tenant. A manifest's relative path
// is below Config.Home. A requested folder that is missing is created by the first
// write of a tool with make_dirs that may write there.
//
// # Paths
//
// An argument is a path relative to the binding's root, or absolute within one. "..",
// NUL bytes, more than 4,096 bytes and elements over 255 bytes are refused. The rest
// goes through os.Root: each element is opened below the previous one, and a symbolic
// link may lead within the folder but not out of it, even if links change meanwhile.
// The path of the operator's folder itself may contain links. Case and Unicode forms
// are distinguished as the file system does; a hard link to a file elsewhere cannot be
// told from the file.
//
// # What is read and written
//
// Regular files only: pipes, sockets and devices are refused before they are opened,
// and files are opened without blocking in case one was replaced by a device. A read
// stops at its limit whatever size the file claims. A write creates a file next to the
// target, syncs it and renames it over the target, with the old file's permissions; so
// a reader sees the old content or the new, and a name that is a symbolic link is
// refused rather than replaced.
//
// A system call that hangs, as on a dead network file system, is not ended by the
// call's deadline.
package filetool
