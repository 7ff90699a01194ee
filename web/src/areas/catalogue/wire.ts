// Which parameters of openapi.json the pages may send. A server refuses parameters that it does not know, so
// unit/catalogue-wire.test.ts holds this list against the document.

/** Of GET /api/v1/tools. */
export const ofList: ReadonlySet<string> = new Set(['category', 'namespace', 'tag', 'include_deprecated', 'capability_query', 'source', 'state', 'risk', 'side_effects', 'auth_state', 'auth_scope', 'held', 'callable', 'sort', 'facets', 'learn'])
/** Of the search. */
export const ofSearch: ReadonlySet<string> = new Set(['q', 'category', 'limit', 'explain', 'includeExamples', 'learn'])
/** Of the body that asks for a context. */
export const ofContext: ReadonlySet<string> = new Set(['learn'])

/** The parameters that the route knows. */
export function known(route: ReadonlySet<string>, query: Record<string, unknown>): Record<string, unknown> {
  return Object.fromEntries(Object.entries(query).filter(([name, value]) => value !== undefined && route.has(name)))
}
