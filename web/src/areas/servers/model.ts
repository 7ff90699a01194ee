import type { components } from '../../core/schema'

export type Tool = components['schemas']['ServerTool']

/** The tools that a person has to look at: what differs from what is pinned, or is not accepted. Grave findings first. */
export function toReview(tools: Tool[]): Tool[] {
  const grave = (t: Tool) => (t.findings?.some((f) => f.severity === 'high') ? 0 : t.change === 'major' || t.change === 'gone' ? 1 : 2)
  const done = (t: Tool) => t.change === 'gone' && t.state === 'blocked'
  return tools.filter((t) => (t.change !== 'unchanged' || t.state === 'pending') && !done(t)).sort((a, b) => grave(a) - grave(b) || (a.tool_id < b.tool_id ? -1 : 1))
}

/** What the page showed of each tool, "" of one that is gone: accepting names it, so that nothing else is accepted. */
export function digests(tools: Tool[]): Record<string, string> {
  return Object.fromEntries(tools.map((t) => [t.tool_id, t.digest ?? '']))
}
