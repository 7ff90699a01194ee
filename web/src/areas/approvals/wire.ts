import type { components } from '../../core/schema'
import type { Tone } from '../../parts/Badge'

export type Approval = components['schemas']['ApprovalRequest']
export type Grant = components['schemas']['StandingApproval']

export const tabs = [
  { href: '/approvals', label: 'Waiting' },
  { href: '/approvals?state=all', label: 'Last day' },
  { href: '/approvals/standing', label: 'Standing' },
]

/** How a state is said and drawn. */
export const states: Record<string, { tone: Tone; word: string }> = {
  pending: { tone: 'warn', word: 'waits' },
  approved: { tone: 'ok', word: 'approved' },
  denied: { tone: 'bad', word: 'denied' },
  expired: { tone: 'soft', word: 'expired' },
  ended: { tone: 'soft', word: 'ended without a decision' },
}

export const risks: Record<string, Tone> = { low: 'ok', medium: 'warn', high: 'bad' }
