// Package declare reads a folder of configuration and compares it with what a server has. It reads files alone: who uses it
// asks the server, and carries out the plan.
//
// A folder has
//
//	toolkeep.yaml   its name, imports, MCP servers, secret references and scopes of keys (contracts/folder.schema.json)
//	roles.yaml      roles, in the format of access.roles_file; optional
//	tools/          manifests in JSON and YAML, in any folders, several documents in a YAML file; nothing else
//
// and further files that imports name. Files and folders whose names begin with a dot are not looked at. Links, and anything
// else that is no file or folder, are refused wherever they are, so that nothing outside is read.
//
// All faults of all files are found before anything is asked, each with its file and line.
package declare
