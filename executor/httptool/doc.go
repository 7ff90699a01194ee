// Package httptool carries out tools of kind "http": it turns the arguments of
// a call into one HTTP request by the rules of OpenAPI, sends it through the
// egress guard, and brings back the answer or says exactly how it failed.
//
// # The binding
//
// execution.binding of a manifest:
//
//	{ "method": "GET",
//	  "server": "https://api.example.com/v1",
//	  "path": "/pets/{petId}",
//	  "parameters": [ {"name": "petId", "arg": "petId", "in": "path",
//	                   "style": "simple", "explode": false,
//	                   "allow_reserved": false, "allow_empty": false,
//	                   "content": "application/json"} ],
//	  "body": {"arg": "body", "content_type": "application/json", "required": true,
//	           "encoding": {"field": {"style": "form", "explode": true, "content_type": ""}}},
//	  "headers": {"Accept": "application/json"},
//	  "response_types": ["application/json"] }
//
// A body with "all": true in place of arg is an object of all arguments that no
// parameter takes.
//
// arg names the argument that holds the value; without it, it is the parameter's
// name. style defaults to simple in path and header and to form in query and
// cookie; explode is false where it is absent, whatever the style. With content
// the value is sent as JSON text in place of a style.
//
// # Serialisation
//
// A number keeps its exact text, names of an object go out sorted, an argument
// that is absent or null sends nothing (with allow_empty a null or an empty list
// sends the bare name). What OpenAPI leaves undefined is refused with E3320 and
// not guessed: an array within an array, an object within a form-style object,
// null within an array. deepObject goes as deep as the value does: objects as
// a[b][c]=1, an array of plain values as a[b]=1&a[b]=2, an array of objects as
// a[b][0][c]=1. allow_reserved leaves  : / ? @ ! $ ' ( ) * , =  as they are;
// characters that would end the query or begin another parameter (# & + % ; and
// brackets) are encoded all the same.
//
// A path value is encoded as a whole, "/" included. One that is empty, "." or
// "..", or has such a part, is refused (E3320): servers and proxies decode.
//
// # Credentials
//
// api_key goes into the header (default), query, cookie or body property of its
// name; bearer and basic into Authorization, or the header of their name. prefix
// is put before the value, with a space if it ends in a letter or digit. basic
// takes a secret of the form user:password. They win over arguments.
//
// # Idempotency
//
// The caller's key is sent as Idempotency-Key if the binding has a header
// parameter of that name which the call leaves out, or if the manifest says that
// the tool is idempotent. Otherwise it is not: net/http repeats a request that
// carries it, which an upstream that ignores the header would carry out twice.
//
// # Redirects
//
// At most 5, GET after 303 and after a 301 or 302 to POST. To another origin go
// neither credentials nor arguments in headers, cookies or body; what would need
// them, and a step from https to http, is refused (E3504). Each is dialled
// through the same guard.
//
// # Answers
//
// Further members of the binding say how answers are read:
//
//	"response":   {"content_type": "application/json"},
//	"stream":     {"sentinel": "[DONE]", "max_events": 1000, "max_bytes": 10485760,
//	               "max_seconds": 20, "progress": "/percent"},
//	"pagination": {"kind": "link|url|cursor|page|offset", "items": "/data",
//	               "next": "/next", "more": "/has_more", "total": "/total",
//	               "param": "cursor", "start": 1, "size": 100, "size_param": "limit",
//	               "max_pages": 10, "max_pages_arg": "pages"}
//
// An answer is handed over unpacked (gzip, br, zstd, deflate) as bytes with their
// type; package inspect makes a tree of it. Two sorts are read here: pages, because
// the next one is named in the answer or its headers, and streams, because they are
// told while they arrive. Both give the list of their elements, and what cut it
// short as a warning. docs/http-answers.md has the rules and limits.
//
// An attempt reads in one goroutine. A stream's timer ends the request's context
// and nothing else; the reader sees the broken body and knows by a flag that it was
// its own limit.
package httptool
