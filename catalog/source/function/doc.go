// Package function reads function schemas, the JSON in which programs describe
// their functions to a model, and plans a tool for each. What carries the function
// out is said beside: an HTTP endpoint that takes the arguments as its JSON body, or
// a function built into the server.
//
// # Forms
//
// One file holds a list of functions, or an object that holds the list:
//
//	openai     {"type":"function","function":{"name","description","parameters","strict"}}
//	           (Chat Completions), the same without the inner object (Responses), or
//	           {"name","description","parameters"} in functions (before tools)
//	anthropic  {"name","description","input_schema"}
//	gemini     {"functionDeclarations":[{"name","description","parameters"}]}, or
//	           parametersJsonSchema in place of parameters; also with underscores
//	langchain  {"name","description","args_schema"} or "args", or a JSON Schema whose
//	           title is the name
//	mcp        {"tools":[{"name","description","inputSchema"}]}, the result of tools/list
//
// # What becomes of a schema
//
// A JSON Schema is kept as it is written. Gemini's parameters are OpenAPI's dialect
// and are rewritten: types in small letters, nullable as a type, numbers that
// came as text as numbers, ref and defs with their signs. Flags of a provider
// (strict, cache_control, …) go into the manifest's annotations under the form's
// name and do nothing else.
package function
