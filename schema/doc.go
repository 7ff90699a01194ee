// Package schema validates JSON trees against JSON Schema and converts arguments to the types of a schema.
//
// # Drafts
//
// $schema selects draft-04, draft-06, draft-07, 2019-09 or 2020-12; without it a schema is read as 2020-12. The
// metaschemas are built in. Nothing else is ever loaded: a $ref to a file, a host or any other document is an
// error, because following it would let an imported schema read the server's files and reach its network.
//
// # Formats
//
// These formats are asserted in every draft: date-time, date, time, duration,
// email, hostname, ipv4, ipv6, uri, uri-reference, uri-template, iri,
// iri-reference, uuid, json-pointer, relative-json-pointer, regex. Every other
// format, such as int32, byte or password of OpenAPI, is an annotation.
// contentEncoding and contentMediaType are annotations as well.
//
// # Patterns
//
// A pattern runs on Go's regexp, which takes time linear in its text. A pattern that it refuses (look-around, back
// references, \u escapes, counts over 1000) runs on a backtracking engine with ECMAScript's rules and about 50 ms
// per match; a match that takes longer fails the whole validation.
//
// # Cost
//
// A library compiles schemas; this package evaluates them, see run. A check takes time in proportion to the number of
// schemas times the number of parts of the value, whatever the branches of anyOf, oneOf, allOf, not, if and the like,
// and at most half a million steps and 64 more for each part.
//
// # Coercion and defaults
//
// Prepare converts a string to a number, an integer or a boolean if the schema allows no string at that place and
// the whole text is one ("5", "true"; not " 5", "5 items", "True"). It follows properties, patternProperties,
// additionalProperties, items, prefixItems, $ref, allOf, anyOf and oneOf; of the last two it takes the first branch
// that accepts the value, as it is or else coerced. It fills the defaults of absent properties in every object that
// is present. A default that its own schema refuses is not filled, so that a careless schema does not refuse calls
// that omit the property. Conditions (if, dependentSchemas) and dynamic references are validated but do not take
// part in coercion and defaults.
package schema
