// Package export writes tools as the function schemas that model providers accept, keeps each provider's limits,
// and reports every loss.
//
// # Limits
//
// As published by the providers, read in November 2026:
//
//   - Names: OpenAI ^[a-zA-Z0-9_-]{1,64}$ (API reference, tools[].function.name);
//     Anthropic ^[a-zA-Z0-9_-]{1,128}$ (platform.claude.com, Define tools), 64 in
//     older versions; Gemini a letter or underscore first, then letters, digits,
//     underscores, dots and dashes, 64 in all (cloud.google.com, FunctionDeclaration).
//     A name here is mcp.ToolName's, which keeps all of them and the MCP face's own.
//   - OpenAI, parameters: an object, without oneOf, anyOf, allOf, enum, const and not
//     at the top (the API's own refusal). With strict (Structured Outputs, Supported
//     schemas): every object closed, every property required, at most 5,000
//     properties and 10 levels, names and values of at most 120,000 characters
//     together, 1,000 enum values in all, 15,000 characters within one enum of over
//     250 values, no allOf, not, if, dependent… . 128 functions a request.
//   - Anthropic, input_schema: an object, without oneOf, anyOf and allOf at the top,
//     its properties' names ^[a-zA-Z0-9_.-]{1,64}$ (the API's own refusals), JSON
//     Schema 2020-12. With strict (Structured outputs, JSON Schema limitations):
//     every object closed, no recursion, no bounds but minItems 0 or 1, a list of
//     formats; 20 strict tools a request with 24 optional properties and 16 of
//     several types.
//   - Gemini, parametersJsonSchema: the keywords that GenerationConfig's
//     responseJsonSchema lists; enum of strings and numbers; nothing but $… beside a
//     $ref.
//   - MCP and LangChain take any JSON Schema of an object.
//
// # Changes and losses
//
// A schema within the limits is passed on unchanged. Otherwise the parts that break them are removed. A result that
// allows more than before is harmless, because the gateway checks the arguments against the whole schema. A result
// that would allow nothing useful is refused: an optional property, or else the tool, is left out. Refused for
// Gemini and for strict are also schemas that contain themselves, several types with objects or arrays among them
// (except null), and an allOf whose parts contradict each other; of two parts that describe one keyword, the first is
// kept. Each such step is a Loss with its place. An entry that still breaks a limit is left out (Validate is the gate), so one tool
// never spoils a request.
//
// All of it is pure and deterministic: no map order shows, and a number of schema nodes limits the work per tool.
package export
