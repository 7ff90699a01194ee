// Package httptool executes tools of kind "http": it turns a call's arguments into one
// HTTP request by the rules of OpenAPI, sends it through the egress guard, and returns
// the response or exactly how it failed.
//
// # The binding
//
// execution.binding of a manifest; docs/http-tools.md explains it by task:
//
//	{ "method": "POST",
//	  "server": "https://api.example.com/v1",
//	  "path": "/pets/{petId}",
//	  "parameters": [ {"name": "petId", "arg": "petId", "in": "path",
//	                   "style": "simple", "explode": false, "item_styles": [],
//	                   "deep_lists": "indices", "allow_reserved": false, "allow_empty": false,
//	                   "content": "application/json"} ],
//	  "body": {"arg": "body", "content_type": "application/json", "required": true,
//	           "format": "json", "encoding": {"field": {…}}, "order": ["field"],
//	           "xml": {…}, "others": [{"content_type": "text/csv"}], "type_arg": "content_type"},
//	  "headers": {"Accept": "application/json"},
//	  "response_types": ["application/json"] }
//
// A body with "all": true instead of arg is an object of all arguments that are not
// parameters.
//
// arg names the argument with the value; it defaults to the parameter's name. style
// defaults to simple in path and header and to form in query and cookie; explode
// defaults to false for every style. With content the value is sent as that media type
// (JSON, text, XML, a form) instead of in a style. in is path, query, header, cookie,
// or querystring for a parameter that is the whole query. The method is any but CONNECT
// and TRACE, whose response would repeat the credentials.
//
// # Serialisation
//
// A number keeps its exact text, an object's names are sorted, and an argument that is
// absent or null is not sent (with allow_empty a null or an empty list sends the bare
// name). What OpenAPI leaves undefined is refused with E3320: an array within an array,
// an object within a form-style object, null within an array. So is an element that
// contains the delimiter, unless percent-encoding distinguishes the two, which it does
// only for the comma. item_styles are the delimiters of nested lists, as in Swagger
// 2.0. deepObject is as deep as the value: objects as a[b][c]=1, arrays as
// a[b][0]=1&a[b][1][c]=2; deep_lists writes them as a[b][]=1 (brackets) or a[b]=1 (repeat)
// and then refuses elements that could not be told apart. allow_reserved keeps :
// / ? @ ! $ ' ( ) * , = of a query and : @ ! $ & ' ( ) * + , ; = of a path; characters
// that would end the query or path, or begin another part, are still encoded. Style
// cookie sends a cookie unencoded and refuses what a cookie cannot hold.
//
// A path value is encoded as a whole, "/" included. One that is empty, "." or "..", or
// has such a part, is refused (E3320), because servers and proxies decode.
//
// # Bodies
//
// The content type determines the format, unless format is set: json, text, form, xml
// (with a description; without one XML is text), lines (one JSON text per line),
// multipart, and binary for any other. A file is its bytes in base64, or an object with
// base64 or text, and content_type and file_name; blobs of the store cannot be sent,
// because executors have no access to them. A body is at most 64 MiB. The boundary of a
// multipart body is a hash of its parts, so that the same call sends the same bytes.
// Request bodies are not compressed.
//
// # Templates
//
// For an API without a document, template replaces path, parameters and body:
//
//	{ "method": "POST", "server": "https://api.example.com",
//	  "template": {"path": "/orders/{{id}}", "query": {"page": "{{page?}}"},
//	               "headers": {"X-Team": "{{team}}"}, "cookies": {},
//	               "body": {"note": "Note: {{note}}", "lines": "{{lines}}"},
//	               "content_type": "application/json", "encoding": {…}} }
//
// It is compiled to parameters and a body: an argument is encoded for its place and
// cannot change the structure around it. Within text, placeholders are allowed in
// text/plain, in XML (escaped) and in values of JSON and forms.
//
// # Credentials
//
// api_key goes into the header (default), query, cookie or body property of its name;
// bearer, and the access tokens of oauth2_token_exchange, oauth2_identity_assertion, oauth2_client_credentials, oauth2_refresh,
// google_service_account and azure_ad, into Authorization unless in and name say
// otherwise; basic into Authorization or the header of its name. prefix precedes the
// value, with a space if it ends in a letter or digit; in a header it is Bearer for
// tokens. basic takes a secret of the form user:password. Credentials override
// arguments. aws_sigv4 signs host, content type and x-amz- headers of the finished
// request with settings.region and settings.service, again for a redirect within the
// origin; settings.unsigned_payload leaves the body unsigned. mtls shows a certificate
// only to the first origin. HTTP digest is not supported: it would need a refused
// request before each one, and hashes passwords with MD5.
//
// # Idempotency
//
// The caller's key is sent as Idempotency-Key if the binding has a header parameter of
// that name which the call leaves out, or if the manifest declares the tool idempotent.
// Otherwise it is not sent: net/http repeats requests with that header, and an upstream
// that ignores it would execute them twice.
//
// # Redirects
//
// At most 5; GET after 303 and after a 301 or 302 to POST. Another origin gets no
// credentials, and no arguments in headers, cookies or body. A redirect that would need
// them, or leads from https to http, is refused (E3504). Each is dialled through the
// same guard.
//
// # Answers
//
// Further members of the binding configure the trusted authorities for the server's
// certificate, and how responses are read:
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
// A response is returned decompressed (gzip, br, zstd, deflate) as bytes with their
// type; package inspect parses it. Two kinds are parsed here: pages, because the
// response or its headers name the next one, and streams, because their events are
// reported as they arrive. Both return the list of their elements, and a warning if it
// was cut short. docs/http-answers.md has the rules and limits.
//
// An attempt reads in one goroutine. A stream's timer only ends the request's context;
// the reader then sees the broken body, and a flag tells it that its own limit was the
// cause.
package httptool
