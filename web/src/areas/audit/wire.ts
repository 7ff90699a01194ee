import type { components } from '../../core/schema'
import type { Tone } from '../../parts/Badge'

export type Entry = components['schemas']['AuditEntry']

export const tabs = [{ href: '/audit', label: 'Events' }, { href: '/audit/chain', label: 'Chain' }]

/** Kinds of entries in words. The server's names stand beside them. */
export const types: [string, string][] = [
  ['succeeded', 'A call succeeded'],
  ['failed', 'A call failed'],
  ['timeout', 'A call ran out of time'],
  ['cancelled', 'A call was cancelled'],
  ['authorization_denied', 'A call was not allowed'],
  ['rate_limit_exceeded', 'A call was over a limit'],
  ['approval.requested', 'An approval was asked for'],
  ['approval.decided', 'A person decided about a call'],
  ['approval.escalated', 'Further approvers were asked'],
  ['tool.registered', 'A tool was published'],
  ['tool.changed', 'A tool changed its state'],
  ['definition.changed', "A server's definition changed"],
  ['secret.accessed', 'A secret was used'],
  ['secret.rotated', 'A secret was replaced'],
  ['auth.failed', 'A login failed'],
  ['auth.key_created', 'A key was made'],
  ['auth.key_rotated', 'A key was replaced'],
  ['auth.key_revoked', 'A key was revoked'],
  ['auth.token_minted', 'A token was made'],
  ['auth.token_revoked', 'A token was revoked'],
  ['policy.changed', 'The policy changed'],
  ['circuit.opened', 'A breaker opened'],
  ['circuit.closed', 'A breaker closed'],
  ['tool.retrieved', 'Tools were searched'],
  ['tool.read', 'A tool was read'],
  ['audit.erased', "A person's records were erased"],
  ['audit.hold_added', 'A legal hold was made'],
  ['audit.hold_removed', 'A legal hold was removed'],
]

/** The type in words, where there are some. */
export function say(type: string): string {
  const name = type.replace(/^ai\.agent\./, '')
  return types.find(([end]) => name === end || name.endsWith(`.${end}`))?.[1] ?? name.replaceAll(/[._]/g, ' ')
}

export function text(data: unknown, ...names: string[]): string {
  for (const name of names) {
    const value = (data as Record<string, unknown> | undefined)?.[name]
    if (typeof value === 'string' && value !== '') return value
  }
  return ''
}

const tones: Record<string, Tone> = { allowed: 'ok', approved: 'ok', refused: 'bad', denied: 'bad', failed: 'bad', succeeded: 'ok' }
export const tone = (decision: string): Tone => tones[decision] ?? 'soft'
