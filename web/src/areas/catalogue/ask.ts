import { api, must } from '../../core/api'
import { Problem } from '../../core/problem'
import { flag, list, text, choice, type Filters } from '../../core/filters'
import type { components } from '../../core/schema'
import type { Parts, Weights } from './score'
import { known, ofList, ofSearch } from './wire'

export type Row = components['schemas']['ToolSummary']
export type Facet = components['schemas']['FacetValue']

/** The filters of the catalogue, which are its URL. */
export const spec = {
  q: text, category: text, namespace: text, tag: list, source: text, state: text, risk: text, side_effects: text, auth_state: text, auth_scope: text,
  callable: flag, held: flag, include_deprecated: flag, sort: choice('id', '-id', '-published', 'published'),
}
export type Asked = Filters<typeof spec>

/** The filters that are set, beside the words and the order. */
export const setOf = (f: Asked) => Object.entries(f).filter(([name, v]) => name !== 'q' && name !== 'sort' && (Array.isArray(v) ? v.length > 0 : v !== '' && v !== false)).map(([name]) => name)

function queryOf(f: Asked): Record<string, unknown> {
  const some = (v: string) => (v === '' ? undefined : v)
  const yes = (v: boolean) => v || undefined
  return known(ofList, {
    ...(f.q ? { capability_query: f.q, learn: false } : {}),
    category: some(f.category), namespace: some(f.namespace), tag: f.tag.length > 0 ? f.tag : undefined,
    source: f.source ? [f.source] : undefined, state: f.state ? [f.state] : undefined, risk: f.risk ? [f.risk] : undefined, side_effects: f.side_effects ? [f.side_effects] : undefined,
    auth_state: f.auth_state ? [f.auth_state] : undefined, auth_scope: f.auth_scope ? [f.auth_scope] : undefined,
    callable: yes(f.callable), held: yes(f.held), include_deprecated: yes(f.include_deprecated), sort: f.sort === 'id' || f.q !== '' ? undefined : f.sort,
  })
}

/** One page of the tools that the filters leave; with words those that a search finds, best first. */
export async function toolsPage(f: Asked, page: number, size: number, signal: AbortSignal): Promise<{ rows: Row[]; total: number }> {
  const got = await must(api.GET('/api/v1/tools', { params: { query: { ...queryOf(f), page, page_size: size } as never }, signal }))
  return { rows: got.tools, total: got.total_count }
}

/** How many tools each value of a filter would leave; none where the server does not count them. */
export async function facets(f: Asked, signal: AbortSignal): Promise<Record<string, Facet[]>> {
  if (!ofList.has('facets')) return {}
  const got = await must(api.GET('/api/v1/tools', { params: { query: { ...queryOf(f), facets: true, page: 1, page_size: 1 } as never }, signal }))
  return { ...got.facets }
}

export interface Scored { score: number; why: string[]; parts: Parts }
export interface Scores { of: Map<string, Scored>; weights: Weights; degraded?: string; cut: boolean; took: number; strategy: string }

/** How a search comes to its order: the same search as agents make, with the parts of each score. */
export async function scores(q: string, category: string, signal: AbortSignal): Promise<Scores> {
  const none = { of: new Map<string, Scored>(), weights: { semantic: 0, keyword: 0, history: 0, success: 0, complexity: 0 }, cut: false, took: 0, strategy: '' }
  try {
    const { data } = await must(api.GET('/api/v1/tools/retrieval/search', { params: { query: known(ofSearch, { q, category: category || undefined, limit: 10, explain: true, includeExamples: false, learn: false }) as never }, signal }))
    const m = data.metadata
    for (const e of data.lightweightIndex) if (e.explanation) none.of.set(e.toolId, { score: e.score, why: e.why, parts: e.explanation })
    return { ...none, weights: m.weights ?? none.weights, degraded: m.degraded, cut: m.queryCut ?? false, took: m.retrievalTimeMs, strategy: m.retrievalStrategy }
  } catch (err) {
    if (err instanceof Problem && err.code === 'E3101') return none // nothing matches, which the list says too
    throw err
  }
}
