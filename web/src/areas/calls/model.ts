// The timeline's state, without a page: what came while the page is open, beside the list that was there before.

import type { components } from '../../core/schema'

/** A call as the list and its events say it. */
export type Call = components['schemas']['LiveCall']

/** Most calls that the page keeps of those that came while it was open, shown and waiting together. */
export const mostKept = 500

export interface Live {
  /** Calls that came since the list was read and are shown above it, newest first. */
  shown: Call[]
  /** Those that came while the reader read: "37 new". Newest first. */
  waiting: Call[]
  /** Newer states of calls of the list, by id. */
  changed: ReadonlyMap<string, Call>
  /** Calls that the server left out because there were too many. */
  missed: number
  /** Calls that came and were dropped since more than mostKept came; the list has them. */
  dropped: number
}

export const nothing: Live = { shown: [], waiting: [], changed: new Map(), missed: 0, dropped: 0 }

export type Event = { type: 'call'; call: Call } | { type: 'gap'; missed: number }

/**
 * Takes a batch of events. A call that is known keeps its place and gets its new state; a new one comes to the top, or
 * waits while the reader holds the page. listed tells whether the list below has a call.
 */
export function take(live: Live, events: Event[], hold: boolean, listed: (id: string) => boolean): Live {
  const shown = new Map(live.shown.map((c) => [c.invocation_id, c]))
  const waiting = new Map(live.waiting.map((c) => [c.invocation_id, c]))
  const changed = new Map(live.changed)
  const toShow: Call[] = []
  const toWait: Call[] = []
  let { missed, dropped } = live
  for (const event of events) {
    if (event.type === 'gap') {
      missed += event.missed
      continue
    }
    const { call } = event
    const id = call.invocation_id
    const before = shown.get(id) ?? waiting.get(id) ?? changed.get(id)
    if (before && ended(before.state) && !ended(call.state)) continue
    if (shown.has(id)) shown.set(id, call)
    else if (waiting.has(id)) waiting.set(id, call)
    else if (listed(id)) changed.set(id, call)
    else if (hold) { waiting.set(id, call); toWait.push(call) } else { shown.set(id, call); toShow.push(call) }
  }
  const top = (map: Map<string, Call>, fresh: Call[], old: Call[]) => [...fresh.reverse(), ...old].map((c) => map.get(c.invocation_id)!)
  let nowWaiting = top(waiting, toWait, live.waiting)
  let nowShown = top(shown, toShow, live.shown)
  const over = nowWaiting.length + nowShown.length - mostKept
  if (over > 0) {
    // What is shown came first; the oldest of it go, then the oldest that wait.
    const fromShown = Math.min(over, nowShown.length)
    nowShown = nowShown.slice(0, nowShown.length - fromShown)
    nowWaiting = nowWaiting.slice(0, nowWaiting.length - (over - fromShown))
    dropped += over
  }
  while (changed.size > mostKept) changed.delete(changed.keys().next().value!)
  return { shown: nowShown, waiting: nowWaiting, changed, missed, dropped }
}

/** Shows what waited. */
export function release(live: Live): Live {
  return live.waiting.length === 0 ? live : { ...live, shown: [...live.waiting, ...live.shown], waiting: [] }
}

/** The call in its newest state. */
export const newest = (live: Live, call: Call): Call => live.changed.get(call.invocation_id) ?? call

const ends = new Set(['succeeded', 'failed', 'refused', 'cancelled', 'expired', 'unknown'])

/** Whether a call in the state has ended. */
export const ended = (state: string) => ends.has(state)

export const states = ['accepted', 'pending_approval', 'queued', 'running', 'input_required', 'succeeded', 'failed', 'refused', 'cancelled', 'expired', 'unknown'] as const

/** A state in words, with the tone of its badge. */
export const stateWords: Record<string, { word: string; tone: 'ok' | 'warn' | 'bad' | 'info' | 'soft' }> = {
  accepted: { word: 'Accepted', tone: 'info' },
  pending_approval: { word: 'Waits for approval', tone: 'warn' },
  queued: { word: 'Queued', tone: 'info' },
  running: { word: 'Running', tone: 'info' },
  input_required: { word: 'Asks its caller', tone: 'warn' },
  succeeded: { word: 'Succeeded', tone: 'ok' },
  failed: { word: 'Failed', tone: 'bad' },
  refused: { word: 'Refused', tone: 'bad' },
  cancelled: { word: 'Cancelled', tone: 'soft' },
  expired: { word: 'Result expired', tone: 'soft' },
  unknown: { word: 'Outcome unknown', tone: 'warn' },
}

/** What each step of a call does, for those who do not know the names. */
export const stepWords: Record<string, string> = {
  admit: 'Admit', resolve: 'Resolve', authorise: 'Authorise', validate: 'Validate', limit: 'Limit', recall: 'Recall',
  approve: 'Approve', claim: 'Claim', equip: 'Equip', execute: 'Execute', inspect: 'Inspect', record: 'Record',
}

/** The moment until which the list was read: it then stays the same while calls arrive. It is just after the newest row. */
export function anchorOf(newestRow: Call | undefined): string | undefined {
  if (!newestRow?.created_at) return undefined
  const at = Date.parse(newestRow.created_at)
  // A row's time has more digits than a Date.
  return Number.isNaN(at) ? undefined : new Date(at + 1).toISOString()
}
