// Package gate is what every request passes before a face reads it, whatever
// the face: REST, MCP and gRPC use the same checks, limits and refusals.
//
// An HTTP request passes Gate.Serve once, also where one face is mounted below
// another:
//
//	request id                     gate.go
//	panic -> E3999                 gate.go
//	Host, Origin, size of headers  host.go
//	time for the body              body.go
//
// A face then calls what it needs:
//
//	headers or metadata            headers.go
//	who asks                       caller.go
//	the client's address           client.go
//	API key, access token          bearer.go
//	client certificate             certificate.go
//	trusted proxy                  proxy.go
//	signature                      signature.go
//	capability token               proofs.go
//	request from another node      handover.go
//	limits of requests             caller.go
//	body: type, size               body.go
//	answer, compressed             send.go
//	problem document (RFC 9457)    problem.go
//
// gRPC has no Host rule and no Origin rule: a browser cannot speak it. The size
// and the time of its messages are bounded by the library, with Limits. The
// listener of the metrics is not behind the gate: scrapers come by address.
package gate
