// Package httptool carries out tools of kind "http": it turns the arguments of
// a call into one HTTP request by the rules of OpenAPI, sends it through the
// egress guard, and brings back the answer or says exactly how it failed.
//
// # The binding
//
// execution.binding of a manifest; docs/http-tools.md has it by task:
//
//	{ "method": "POST",
//	  "server": "https://api.example.com/v1",
//	  "path": "/pets/{petId}",
//	  "parameters": [ {"name": "petId", "arg": "petId", "in": "path",
//	                   "style": "simple", "explode": false, "item_styles": [],
//	                   "allow_reserved": false, "allow_empty": false,
//	                   "content": "application/json"} ],
//	  "body": {"arg": "body", "content_type": "application/json", "required": true,
//	           "format": "json", "encoding": {"field": {…}}, "order": ["field"],
//	           "xml": {…}, "others": [{"content_type": "text/csv"}], "type_arg": "content_type"},
//	  "headers": {"Accept": "application/json"},
//	  "response_types": ["application/json"] }
//
// A body with "all": true in place of arg is an object of all arguments that no
// parameter takes.
//
// arg names the argument that holds the value; without it, it is the parameter's
// name. style defaults to simple in path and header and to form in query and
// cookie; explode is false where it is absent, whatever the style. With content
// the value is sent as that media type (JSON, text, XML, a form) in place of a style.
// in is path, query, header, cookie, or querystring for one that is the whole query.
// The method is any but CONNECT and TRACE, whose answer would repeat the credentials.
//
// # Serialisation
//
// A number keeps its exact text, names of an object go out sorted, an argument
// that is absent or null sends nothing (with allow_empty a null or an empty list
// sends the bare name). What OpenAPI leaves undefined is refused with E3320 and
// not guessed: an array within an array, an object within a form-style object,
// null within an array. An element that holds the delimiter is refused too, unless
// percent-encoding tells the two apart, which it does for the comma alone.
// item_styles are the delimiters of lists within the list, as Swagger 2.0 has them.
// deepObject goes as deep as the value does: objects as a[b][c]=1, an array of plain
// values as a[b]=1&a[b]=2, an array of objects as a[b][0][c]=1. allow_reserved leaves
// : / ? @ ! $ ' ( ) * , =  of a query and  : @ ! $ & ' ( ) * + , ; =  of a path as they
// are; characters that would end it or begin another part are encoded all the same.
// Style cookie sends a cookie unencoded and refuses what a cookie cannot hold.
//
// A path value is encoded as a whole, "/" included. One that is empty, "." or
// "..", or has such a part, is refused (E3320): servers and proxies decode.
//
// # Bodies
//
// The content type decides the format, unless format does: json, text, form, xml
// (with a description; without one XML is text), lines (one JSON text a line),
// multipart, and binary for any other. A file is its bytes in base64, or an object
// with base64 or text, and content_type and file_name; blobs of the store are not
// read, because an executor has no way to them. A body is at most 64 MiB. The
// boundary of a multipart body is a hash of its parts, so that the same call sends
// the same bytes. Nothing is compressed on the way out.
//
// # Templates
//
// For an API without a document, template stands in place of path, parameters and
// body:
//
//	{ "method": "POST", "server": "https://api.example.com",
//	  "template": {"path": "/orders/{{id}}", "query": {"page": "{{page?}}"},
//	               "headers": {"X-Team": "{{team}}"}, "cookies": {},
//	               "body": {"note": "Note: {{note}}", "lines": "{{lines}}"},
//	               "content_type": "application/json", "encoding": {…}} }
//
// It is compiled to parameters and a body: an argument is encoded for where it
// stands and cannot change the structure around it. Within text it may stand in
// text/plain, in XML (escaped) and in values of JSON and forms.
//
// # Credentials
//
// api_key goes into the header (default), query, cookie or body property of its
// name; bearer, and the access tokens of oauth2_client_credentials, oauth2_refresh,
// google_service_account and azure_ad, into Authorization unless in and name say
// otherwise; basic into Authorization or the header of its name. prefix is put
// before the value, with a space if it ends in a letter or digit; in a header that
// is Bearer for tokens. basic takes a secret of the form user:password. They win
// over arguments. aws_sigv4 signs host, content type and x-amz- headers of the
// finished request with settings.region and settings.service, anew on a redirect
// within the origin; settings.unsigned_payload leaves the body out. mtls shows a
// certificate to the first origin alone. HTTP digest is not sent: it would need a
// refused request before each one, and hashes passwords with MD5.
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
// Further members of the binding say whose signature a server's certificate must
// have, and how answers are read:
//
//	"response":   {"content_type": "application/json"},
//	"tls":        {"ca": "-----BEGIN CERTIFICATE-----…"},
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
