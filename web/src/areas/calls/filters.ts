import { choice, list, text, type Filters } from '../../core/filters.ts'

/** The filters of the timeline, as its URL has them. */
export const spec = {
  state: list, tool_id: text, agent_id: text, user_id: text, session_id: text, parent_invocation_id: text, error_code: text,
  face: choice('', 'rest', 'mcp', 'grpc', 'cli', 'child'),
  within: choice('', '15m', '1h', '24h', '7d'),
}
export type CallFilters = Filters<typeof spec>

const minutes: Record<string, number> = { '15m': 15, '1h': 60, '24h': 1440, '7d': 10_080 }

/** What the server is asked for, at the time now. Events have no time: they are all of now. */
export function query(f: CallFilters, now: number): { list: Record<string, string | string[]>; events: string } {
  const { within, ...words } = f
  const params: Record<string, string | string[]> = {}
  const events = new URLSearchParams()
  for (const [name, value] of Object.entries(words)) {
    if (value.length === 0) continue
    params[name] = value
    for (const one of [value].flat()) events.append(name, one)
  }
  if (within !== '') params.since = new Date(now - minutes[within]! * 60_000).toISOString()
  return { list: params, events: events.toString() }
}

/** Whether anything is filtered. */
export const filtered = (f: CallFilters) => Object.values(f).some((value) => value.length > 0)

/** The choices of states that people look for, each as the states that it means. */
export const stateChoices: { label: string; states: string[] }[] = [
  { label: 'All', states: [] },
  { label: 'Not ended', states: ['accepted', 'pending_approval', 'queued', 'running', 'input_required'] },
  { label: 'Waiting', states: ['pending_approval', 'queued', 'input_required'] },
  { label: 'Running', states: ['running'] },
  { label: 'Succeeded', states: ['succeeded'] },
  { label: 'Failed or refused', states: ['failed', 'refused'] },
  { label: 'Failed', states: ['failed'] },
  { label: 'Refused', states: ['refused'] },
  { label: 'Cancelled', states: ['cancelled'] },
  { label: 'Outcome unknown', states: ['unknown'] },
]
