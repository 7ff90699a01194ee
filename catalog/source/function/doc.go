// Package function reads function schemas, the JSON in which programs describe their functions to a
// model, and plans a tool for each. The options say what executes a function: an HTTP endpoint that
// takes the arguments as its JSON body, or a function built into the server.
//
// # Forms
//
// A file holds a list of functions, or an object that contains the list:
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
// # Schemas
//
// A JSON Schema is kept unchanged. Gemini's parameters are in OpenAPI's dialect and are converted:
// types to lower case, nullable to a type, numbers in text to numbers, ref and defs to $ref and
// $defs. A provider's flags (strict, cache_control, …) become annotations in the manifest under the
// form's name and have no other effect.
package function
