import { api, must } from '../../core/api'
import type { components } from '../../core/schema'
import { known, ofContext } from '../catalogue/wire'

export const phases = ['initial_planning', 'tool_selection', 'execution_preparation', 'error_recovery'] as const
export type Phase = (typeof phases)[number]

export interface Asked { q: string; tool: string; budget: number; error: string; format: 'markdown' | 'json' }

/** One phase's context, and what it costs. */
export interface Shown {
  phase: Phase
  used: number
  budget: number
  whole: number
  seen: number
  degraded?: string
  left: { what: string; toolId?: string; count?: number; why: string }[]
  text?: string // Markdown
  value?: unknown // JSON
  all?: number // tokens of all tools whole
  estimated?: boolean
}

type Request = components['schemas']['ToolContextRequest']

/** The request for one phase: what it needs of the chosen tool and the error, and no more. */
export function requestOf(a: Asked, phase: Phase): Request {
  const chosen = a.tool !== '' && (phase === 'execution_preparation' || phase === 'error_recovery')
  return {
    q: a.q, phase, format: a.format, countAll: true, ...(a.budget ? { budget: a.budget } : {}), ...(chosen ? { toolIds: [a.tool] } : {}),
    ...(phase === 'error_recovery' ? { error: { errorCode: a.error, ...(a.tool ? { toolId: a.tool } : {}) } } : {}),
  } as Request
}

/** Asks for the context of a phase. Nothing of it is learned from. */
export async function contextOf(a: Asked, phase: Phase, signal: AbortSignal): Promise<Shown> {
  const { data } = await must(api.POST('/api/v1/tools/retrieval/context', { body: { ...requestOf(a, phase), ...known(ofContext, { learn: false }) }, signal }))
  const m = data.metadata
  return {
    phase, used: m.tokensUsed, budget: m.tokenBudget, whole: m.toolsRetrieved, seen: m.totalToolsAvailable, degraded: m.degraded, left: m.leftOut ?? [],
    ...(a.format === 'markdown' ? { text: data.markdown ?? '' } : { value: data }), all: m.tokensOfAll, estimated: m.tokensOfAllEstimated,
  }
}
