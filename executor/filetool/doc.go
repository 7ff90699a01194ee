// Package filetool carries out tools of kind "file": one operation, read, write,
// list, stat or delete, on files below the folders that the manifest asks for and
// the operator opens.
//
// # Folders
//
// A manifest asks under permissions.filesystem, the operator opens with the setting
// files.roots, and what both have is left: a folder of the one that lies within a
// folder of the other, for writing only if both say rw. Narrow is that rule, and
// further limits are put on top with it. Folders add up: what an outer one opens,
// an inner one does not close again.
//
// {tenant} as an element of a path stands for the caller's tenant. A relative path
// of a manifest lies below Config.Home. A folder that a manifest asks for and that is
// missing is made by the first write of a tool with make_dirs that may write there.
//
// # Paths
//
// An argument is relative to the binding's root or absolute within one. An element
// "..", a NUL byte, more than 4,096 bytes and an element over 255 are refused. What
// is left goes through os.Root: each element is opened below the one before, and a
// symbolic link may point within the folder and not out of it, whoever changes
// links meanwhile. The path of the operator's folder itself may hold links. Upper
// and lower case and Unicode forms are told apart as the file system does; a hard
// link to a file elsewhere cannot be told from the file.
//
// # What is read and written
//
// Regular files only: pipes, sockets and devices are refused before they are
// opened, and opened without waiting in case one is put in the place of a file.
// A read ends at its limit whatever size the file claims to have. A write is
// made beside the file, synced, and put in its place in one step, with the old
// file's permissions; so a reader sees the old content or the new one, and a name
// that is a symbolic link is refused rather than replaced.
//
// An operation of the system that hangs, on a network file system whose server is
// gone, is not ended by the call's deadline.
package filetool
